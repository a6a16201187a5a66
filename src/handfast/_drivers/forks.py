"""Objects that belong to one process start anew in a child, whatever forks it.

Python runs hooks in a child forked by Python itself. A child forked by C code, as uWSGI does, finds out at its next
call, by the process id.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from weakref import WeakSet

__all__ = ["OfOneProcess"]

_all: WeakSet[OfOneProcess] = WeakSet()


class OfOneProcess(ABC):
    """Has connections, threads and leases that are of no use in a forked child."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._restarts: dict[int, threading.RLock] = {}
        _all.add(self)

    @abstractmethod
    def disown_parent(self) -> None:
        """Start anew: everything is the parent's."""

    def _in_this_process(self) -> None:
        """Start anew in a child, once, however many threads call at the same time."""
        pid = os.getpid()
        if pid != self._pid:
            # A lock for each process: the parent may have held one when it forked.
            with self._restarts.setdefault(pid, threading.RLock()):
                if pid != self._pid:
                    self.disown_parent()
                    self._pid = pid


def _after_fork_in_child() -> None:
    for one in list(_all):
        one._in_this_process()  # noqa: SLF001 -- of this module


os.register_at_fork(after_in_child=_after_fork_in_child)
