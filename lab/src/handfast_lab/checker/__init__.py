"""Check recorded histories of operations against the guarantees of the locks, limiters and keys of `once`.

The checkers know nothing about our clients, our drivers or randomness. A checker takes a history, recorded with a real
server or in the simulator, and returns its findings: an empty list means that no violation was found. Two modules check
other things: `quiescence` checks the keys on a server, and `leaks` checks the resources used by a process and a server.
"""

from handfast_lab.checker.admissions import RateSpec, check_admissions
from handfast_lab.checker.exclusion import check_holds
from handfast_lab.checker.fences import check_fences
from handfast_lab.checker.finding import Finding
from handfast_lab.checker.history import Operation, read_history, write_history
from handfast_lab.checker.leaks import LeakWatch, MemoryWatch
from handfast_lab.checker.linearizability import check_linearizability
from handfast_lab.checker.order import check_order
from handfast_lab.checker.outcomes import check_outcomes
from handfast_lab.checker.quiescence import check_permits, check_rest, immortal_keys
from handfast_lab.checker.verdict import check_all

__all__ = [
    "Finding",
    "LeakWatch",
    "MemoryWatch",
    "Operation",
    "RateSpec",
    "check_admissions",
    "check_all",
    "check_fences",
    "check_holds",
    "check_linearizability",
    "check_order",
    "check_outcomes",
    "check_permits",
    "check_rest",
    "immortal_keys",
    "read_history",
    "write_history",
]
