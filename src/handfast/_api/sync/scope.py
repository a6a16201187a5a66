"""The blocks that hold a lease, in threads: whatever strikes while one is entered or left, nothing stays held.

An interrupt, which is a KeyboardInterrupt or whatever else a signal handler raises, can strike between any two
instructions, and nobody leaves a block again that has begun to be left. So an interrupt there is as good as one within
the block: the block is left once more, with the interrupt as what ended it. To give a lease up twice changes nothing.

What Python has no guard for is the very beginning of an ``__exit__``, before its ``try`` is entered; and where a lease is
entered that was acquired in the same line, that of its ``__enter__``.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Generic, Self, TypeVar

from handfast._drivers.sync.driver import OWN_ERRORS
from handfast._protocol.lease import LeaseState
from handfast.records import OnLost

__all__ = ["LeaseScope", "PrimitiveScope"]

L = TypeVar("L", bound="LeaseScope")


class LeaseScope:
    """What a lease has to do with the blocks that hold it."""

    __slots__ = ("_holding", "_on_lost")

    def __init__(self, holding: LeaseState, on_lost: OnLost) -> None:
        self._holding = holding
        self._on_lost = on_lost

    def __enter__(self) -> Self:
        try:
            self._enter()
            return self
        except BaseException as interrupt:
            self._leave_by(interrupt)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self._given_up and not self._leave(exc):
                self._tell_loss()
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            self._leave_by(interrupt)
            raise

    def _leave_by(self, interrupt: BaseException) -> None:
        """Leave the block as if this had ended it. Nothing is said to that: the interrupt is what comes out."""
        if not self._given_up:
            with contextlib.suppress(*OWN_ERRORS):
                self._leave(interrupt)

    @property
    def _given_up(self) -> bool:
        return self._holding.given_up

    def _enter(self) -> None:
        """A block that holds it begins: for those that want to know."""

    def _leave(self, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error; False when the caller is to hear of a loss."""
        raise NotImplementedError

    def _tell_loss(self) -> None:
        """Let the caller hear of a loss."""
        raise NotImplementedError


class PrimitiveScope(Generic[L]):
    """The blocks of what gives each of them a lease of its own."""

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block = None
        try:
            block = self._left()
            if block is not None:
                caller, lease = block
                self._take_out(caller, lease)
                lease.__exit__(exc_type, exc, traceback)
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            block = block or self._left()
            if block is not None:
                caller, lease = block
                self._take_out(caller, lease)
                lease.__exit__(type(interrupt), interrupt, interrupt.__traceback__)
            raise
        if block is None:
            raise self._not_entered()

    def _left(self) -> tuple[object, L] | None:
        """The block that is being left: who entered it, and the lease that it holds."""
        raise NotImplementedError

    def _not_entered(self) -> Exception:
        """What is to be said when there is none."""
        raise NotImplementedError

    def _take_out(self, caller: object, lease: L) -> None:
        """Count this block no longer as entered. To do that twice changes nothing."""
        raise NotImplementedError
