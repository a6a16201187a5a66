"""Taking a name from the command line: a lock, a slot of a semaphore, or one side of a read-write lock.

What ``handfast run`` and ``handfast acquire`` share.
"""
