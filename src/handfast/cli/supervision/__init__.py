"""Running another program on a condition that may be lost: the signals forwarded to it, and the program's end.

Knows processes and signals; nothing of locks, servers or options.
"""
