"""Running somebody else's program on somebody else's condition: signals on their way to it, and its end.

Knows processes and signals, and that there is a condition that may be lost; nothing of locks, servers or options.
"""
