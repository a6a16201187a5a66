"""Measures what happens to whom when a name is busy: preempt, replace, head starts, several limits together, holds.

**Method.** Processes make requests at a rate, and report when each one came, began and ended. They share the monotonic clock
of the machine. A span ends by the clock of the client: when the code of the block is over, before the release.

**Doubts.** Processes and server share two cores, and the event loops of the callers are busy.
"""
