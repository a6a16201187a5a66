"""Layer 3: decide on the next step.

Protocols are generators over the effects of ``_engine``; beside them stand plain objects that keep state and judge
outcomes. Nothing here opens a socket, starts a thread or a task, or reads a clock: the drivers do, and pass the time
in.
"""
