"""Measures elections, partitions, groups and slots while processes die.

**Method.** Processes hold leases of many names and report when each span of ownership begins and ends. They share the
monotonic clock of the machine. A span ends by the clock of the client: at the call of a release, at the deadline of a lost
lease, or when the process is killed. Two spans of the same thing which overlap are a double. Contenders take the same events
in a run.

**Doubts.** Processes and server share two cores. A frozen process reports late, and the spans end at the deadlines of the
leases. A rival without deadlines owns a thing until it notices the loss: so does a program with this rival.
"""
