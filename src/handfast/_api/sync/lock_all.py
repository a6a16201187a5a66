# Made by tools/unasync.py from _api/aio/lock_all.py: edit that one, then run the tool.
"""Several locks at once: all of them or none."""

from __future__ import annotations

from handfast._api.sync.lease import Lease
from handfast._api.sync.primitive import Primitive
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import MultiRequest
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.records import LockStatus, OnLost

__all__ = ["LeaseOfAll", "LockAll"]


class LeaseOfAll(Lease):
    """One lease of several locks. To lose one of them is to lose it; what is left of it is then given up at its end."""

    __slots__ = ("_names",)

    def __init__(self, driver: SyncDriver, holding: LeaseState, on_lost: OnLost, names: tuple[str, ...]) -> None:
        super().__init__(driver, holding, on_lost)
        self._names = names

    @property
    def fences(self) -> dict[str, int]:
        """The fence of each name. They were all granted with the same one, which is larger than any that they had."""
        return dict.fromkeys(self._names, self.fence)


class LockAll(Primitive[LeaseOfAll]):
    """The locks of several names, as one. The object holds nothing itself, and threads may share it.

    All of them are granted in one step, when each is free and this is first in line for each; nothing is held before. Who
    asks for the same names in any other order never waits for it in a circle. It stands in the lines of the single locks,
    first come first served, and keeps those behind it waiting also where only another of its names is taken.
    """

    def __init__(self, driver: SyncDriver, bundle: MultiRequest, on_lost: OnLost) -> None:
        super().__init__(driver, bundle, on_lost)
        self._bundle = bundle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """What is locked, in order."""
        return tuple(part.name for part in self._bundle.parts)

    def locked(self) -> bool:
        """Whether anybody holds any of the locks right now."""
        return any(not status.free for status in self.status().values())

    def status(self) -> dict[str, LockStatus]:
        """Who holds and who waits for each of the locks. One round trip for each; changes nothing."""
        return {part.name: self._driver.ask(admin.status(part), part.name) for part in self._bundle.parts}

    def force_release(self, *, reason: str = "released by force") -> int:
        """Take each of the locks away from whoever holds it now; how many leases of single names that ended.

        The holders learn it at once as LeaseLost with this reason, and the next waiters get in.
        """
        taken = [self._driver.ask(admin.force_release(part, reason), part.name) for part in self._bundle.parts]
        return sum(taken)

    def _lease(self, holding: LeaseState) -> LeaseOfAll:
        return LeaseOfAll(self._driver, holding, self._on_lost, self.names)
