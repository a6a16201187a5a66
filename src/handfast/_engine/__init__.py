"""Floor 1: what goes over the wire.

The scripts and their registry, key and channel names, packed calls, and the bytes of the protocol. It
knows the words of floor 0 and how Redis talks, but opens no socket and decides nothing.
"""
