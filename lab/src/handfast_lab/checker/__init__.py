"""Histories of operations, and what must be true of them.

Nothing in here knows of our clients, drivers or chance. A checker takes a history, from a real server or from the simulator,
and gives what is wrong with it: an empty list is the answer that one hopes for. Two look elsewhere: `rest` at a server's
keys, and `leaks` at what a process and a server have in use.
"""

from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.finding import Finding
from handfast_lab.checker.history import Operation, read_history, write_history
from handfast_lab.checker.leaks import LeakWatch, MemoryWatch
from handfast_lab.checker.linearizability import check_linearizability
from handfast_lab.checker.order import check_order
from handfast_lab.checker.quiescence import check_permits, check_rest, immortal_keys
from handfast_lab.checker.verdict import check_all

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
