"""Taking a name from the command line: a lock, a slot of a semaphore, or one side of a read-write lock.

The shared parts of ``handfast run`` and ``handfast acquire``.
"""
