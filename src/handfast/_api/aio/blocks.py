"""The ``with`` blocks of an object that threads or tasks share: which lease each of them has."""

from __future__ import annotations

from types import FrameType
from typing import TypeVar

from handfast._api.aio.lease import AsyncLease
from handfast._api.uncopied import Uncopied
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.aio.scope import AsyncPrimitiveScope
from handfast._drivers.failures import unbalanced_exit

__all__ = ["AsyncBlocks"]

L = TypeVar("L", bound=AsyncLease)


class AsyncBlocks(Uncopied, AsyncPrimitiveScope[L]):
    """An object that each caller may enter, for a lease of its own."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._entered: dict[object, list[tuple[FrameType, L]]] = {}
        """The ``with`` blocks that each caller has entered, in order: the frame that entered, and the lease."""

    def _enter(self, frame: FrameType, lease: L) -> L:
        """Enter a block in that frame, with a lease that was just acquired."""
        self._entered.setdefault(self._driver.caller(), []).append((frame, lease))
        return lease._begin(frame)  # noqa: SLF001 -- as above

    def _current_scope(self, frame: FrameType) -> tuple[object, L] | None:
        """Return the block that is being left in that frame: the caller that entered it, and its lease.

        A framework may leave a block in another thread or task than the one that entered it: a generator's, for example,
        whose frame stays the same. An exit stack enters and leaves in frames of its own: then it is the caller's latest
        block, or else that of the only other caller; of several, none can be chosen without the risk that it is the wrong
        one.
        """
        mine = self._driver.caller()
        for caller in (mine, *self._entered):
            for entered_in, lease in reversed(self._entered.get(caller, ())):
                if entered_in is frame:
                    return caller, lease
        if blocks := self._entered.get(mine):
            return mine, blocks[-1][1]
        foreign = [(caller, blocks[0][1]) for caller in self._foreign_scopes() if (blocks := self._entered.get(caller))]
        return foreign[0] if len(foreign) == 1 else None

    def _unbalanced_exit(self) -> Exception:
        return unbalanced_exit(self, others=len(self._entered) > 1)

    def _forget_scope(self, caller: object, lease: L) -> None:
        blocks = self._entered.get(caller, [])
        for block in blocks:
            if block[1] is lease:
                blocks.remove(block)
                break
        if not blocks:
            self._entered.pop(caller, None)

    def _foreign_scopes(self) -> list[object]:
        """Return the callers whose blocks another caller may leave."""
        return list(self._entered)
