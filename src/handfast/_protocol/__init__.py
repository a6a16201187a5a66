"""Floor 2: what to do next.

Generators over the effects of floor 1, and plain objects that keep the books. Nothing here opens a socket, starts a
thread or a task, or reads a clock: all of that is the driver's, and every moment comes in from outside.
"""
