"""Objects held by each caller (a thread or a task) of a client, by name: for reentrancy and detection of deadlocks.

All references are weak: an entry ends with the value or with the caller.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState

__all__ = ["PerCaller", "ReentrantHold"]

V = TypeVar("V")


class PerCaller(Generic[V]):
    """A mapping of caller and tag to a value."""

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[object, WeakValueDictionary[str, V]] = WeakKeyDictionary()

    def set(self, caller: object, tag: str, value: V) -> None:
        """Set the caller's value. Outside of any task there is no caller to find it again, and nothing is stored."""
        if caller is not None:
            self._values.setdefault(caller, WeakValueDictionary())[tag] = value

    def find(self, caller: object, tag: str) -> V | None:
        values = None if caller is None else self._values.get(caller)
        return None if values is None else values.get(tag)


class ReentrantHold:
    """A reentrant lock held by a caller: a single grant, and the leases which share it."""

    __slots__ = ("__weakref__", "_owner", "leases", "state")

    def __init__(self, caller: object, state: LeaseState) -> None:
        self._owner = ref(caller)
        self.state: LeaseState = state
        self.leases: WeakKeyDictionary[object, Attempt | None] = WeakKeyDictionary()
        """The leases that are not released, each with the attempt that made it unless that was the first."""

    @property
    def is_active(self) -> bool:
        """Whether further leases may share the grant."""
        return bool(self.leases) and not self.state.is_released

    def forget(self, attempt: Attempt) -> None:
        """Remove the lease of an attempt that raised: it may live on in the traceback, but the caller never got it."""
        for lease in [lease for lease, made_by in list(self.leases.items()) if made_by is attempt]:
            self.leases.pop(lease, None)

    @property
    def caller(self) -> object | None:
        """The caller that acquired it; None if that was garbage-collected."""
        return self._owner()
