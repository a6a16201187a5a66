"""What each thread or task of a client has, by name: who asks for something that it has already is known here.

Nothing in here keeps anything alive: what nobody has any more is forgotten, and so is a caller that is gone.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState

__all__ = ["PerCaller", "ReentrantHold"]

V = TypeVar("V")


class PerCaller(Generic[V]):
    """Of each caller, one thing for each name."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[object, WeakValueDictionary[str, V]] = WeakKeyDictionary()

    def note(self, caller: object, tag: str, value: V) -> None:
        """The caller has this from now on. Whoever runs outside of any task is nobody that could be asked again."""
        if caller is not None:
            self._of.setdefault(caller, WeakValueDictionary())[tag] = value

    def find(self, caller: object, tag: str) -> V | None:
        """What the caller has of that name."""
        mine = None if caller is None else self._of.get(caller)
        return None if mine is None else mine.get(tag)


class ReentrantHold:
    """A reentrant lock as one caller holds it: one holding, and the leases that share it, the last of which ends it."""

    __slots__ = ("__weakref__", "_owner", "holding", "leases")

    def __init__(self, caller: object, holding: LeaseState) -> None:
        self._owner = ref(caller)
        self.holding = holding
        self.leases: WeakKeyDictionary[object, Attempt | None] = WeakKeyDictionary()

    @property
    def goes_on(self) -> bool:
        """Whether there are leases left that share it."""
        return bool(self.leases) and not self.holding.given_up

    def forget(self, attempt: Attempt) -> None:
        """A lease that was made for this attempt never came to its caller, however long it lives on in a traceback."""
        for lease in [lease for lease, of in list(self.leases.items()) if of is attempt]:
            self.leases.pop(lease, None)

    @property
    def caller(self) -> object | None:
        """Who acquired it; None when that one is gone for good."""
        return self._owner()
