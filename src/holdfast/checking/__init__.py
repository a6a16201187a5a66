"""Histories of operations, and what must be true of them.

Nothing in here knows of our clients, drivers or chance. A checker takes a history, from a real server or from the simulator,
and gives what is wrong with it: an empty list is the answer that one hopes for. Two look elsewhere: `rest` at a server's
keys, and `leaks` at what a process and a server have in use.
"""

from holdfast.checking.fences import check_fences
from holdfast.checking.finding import Finding
from holdfast.checking.history import Operation, read_history, write_history
from holdfast.checking.holds import check_holds
from holdfast.checking.leaks import LeakWatch, MemoryWatch
from holdfast.checking.linearizability import check_linearizability
from holdfast.checking.order import check_order
from holdfast.checking.rest import check_permits, check_rest, immortal_keys
from holdfast.checking.verdict import check_all

__all__ = [
    "Finding",
    "LeakWatch",
    "MemoryWatch",
    "Operation",
    "check_all",
    "check_fences",
    "check_holds",
    "check_linearizability",
    "check_order",
    "check_permits",
    "check_rest",
    "immortal_keys",
    "read_history",
    "write_history",
]
