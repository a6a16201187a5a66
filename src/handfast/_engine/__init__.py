"""Layer 2, the engine: scripts and their contracts, names of keys, calls as bytes, messages and replies.

It does no I/O and reads no clock: the drivers send the packed calls, and the server has the time.
"""
