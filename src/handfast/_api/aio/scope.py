"""The blocks that hold a lease, in asyncio: a loss ends the block that it strikes.

Nothing else has to be guarded here. Entering and leaving end early only where they wait, and what they wait for is the
driver's, which sees to it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self, TypeVar

from handfast._drivers.aio.guard import Guard, ended_by_loss
from handfast._protocol.lease import LeaseState
from handfast.records import OnLost

__all__ = ["AsyncLeaseScope", "AsyncPrimitiveScope"]

L = TypeVar("L", bound="AsyncLeaseScope")


class AsyncLeaseScope:
    """What a lease has to do with the blocks that hold it."""

    __slots__ = ("_guards", "_holding", "_on_lost")

    def __init__(self, holding: LeaseState, on_lost: OnLost) -> None:
        self._holding = holding
        self._on_lost = on_lost
        self._guards: list[Guard] = []

    async def __aenter__(self) -> Self:
        self._enter()
        self._guards.append(Guard(self._holding, strikes=self._on_lost == "raise"))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        struck = ended_by_loss(self._guards, exc)
        if self._given_up and not struck:
            return
        if not await self._leave(None if struck else exc):
            self._tell_loss()

    @property
    def _given_up(self) -> bool:
        return self._holding.given_up

    def _enter(self) -> None:
        """A block that holds it begins: for those that want to know."""

    async def _leave(self, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error; False when the caller is to hear of a loss."""
        raise NotImplementedError

    def _tell_loss(self) -> None:
        """Let the caller hear of a loss."""
        raise NotImplementedError


class AsyncPrimitiveScope(Generic[L]):
    """The blocks of what gives each of them a lease of its own."""

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block = self._left()
        if block is None:
            raise self._not_entered()
        caller, lease = block
        self._take_out(caller, lease)
        await lease.__aexit__(exc_type, exc, traceback)

    def _left(self) -> tuple[object, L] | None:
        """The block that is being left: who entered it, and the lease that it holds."""
        raise NotImplementedError

    def _not_entered(self) -> Exception:
        """What is to be said when there is none."""
        raise NotImplementedError

    def _take_out(self, caller: object, lease: L) -> None:
        """Count this block no longer as entered. To do that twice changes nothing."""
        raise NotImplementedError
