"""Measures elections, partitions, groups and slots while processes die.

**Method.** Processes hold leases of many names and report when each span of ownership begins and ends. They share the
monotonic clock of the machine. A span ends when the client says so by the clock of the client: at the call of a release, at the deadline
of a lease that was lost, or when the process is killed. Two spans of the same thing which overlap are a double. Contenders take the
same events in a run.

**Doubts.** Processes and server share two cores. A process that is thawed reports late, and its spans end at the deadlines
of its leases, as its clock has them. A rival that knows no deadline owns a thing until it notices the loss: so does a program that
uses the rival.
"""
