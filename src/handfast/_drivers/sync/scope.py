"""The scopes of threads: ``with`` blocks that hold a lease, and that release it even if entering or leaving is interrupted.

An interrupt is a KeyboardInterrupt, or any other exception raised by a signal handler. It can come between any two
instructions, and Python calls an ``__exit__`` only once. So an interrupt during ``__exit__`` counts as one inside the
block: the block is left again, with the interrupt as the error that ended it. To release a lease twice changes nothing.

Python has no guard for the first instructions of an ``__exit__``, before its ``try`` is entered; nor, if a lease is acquired
and entered on one line, for those of its ``__enter__``.
"""

from __future__ import annotations

import contextlib
import sys
from types import FrameType, TracebackType
from typing import Generic, Self, TypeVar

from handfast._drivers.sync.driver import OWN_ERRORS
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["LeaseScope", "PrimitiveScope"]

L = TypeVar("L", bound="LeaseScope")


class LeaseScope:
    """The part of a lease that makes it a context manager."""

    __slots__ = ("_on_lost", "_state")

    def __init__(self, state: LeaseState, on_lost: OnLost) -> None:
        self._state = state
        self._on_lost = on_lost

    def __enter__(self) -> Self:
        try:
            self.check()
            return self._begin()
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            self._leave_interrupted(interrupt)
            raise

    def _begin(self) -> Self:
        """Enter the block of a lease that was just acquired."""
        self._on_enter()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self._released and not self._leave(exc):
                self._report_loss()
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            self._leave_interrupted(interrupt)
            raise

    def _leave_interrupted(self, interrupt: BaseException) -> None:
        """Leave the block as if the interrupt had ended it. Errors of the release are dropped: the interrupt is raised."""
        if not self._released:
            with contextlib.suppress(*OWN_ERRORS):
                self._leave(interrupt)

    @property
    def _released(self) -> bool:
        return self._state.is_released

    def check(self) -> None:
        """Raise an error unless the lease is held."""
        raise NotImplementedError

    def _on_enter(self) -> None:
        """Called when a block begins that holds the lease."""

    def _leave(self, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error. Return False if the loss is to be reported."""
        raise NotImplementedError

    def _report_loss(self) -> None:
        raise NotImplementedError


class PrimitiveScope(Generic[L]):
    """The part of a primitive that leaves its blocks, each of which has a lease of its own."""

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope = None
        try:
            scope = self._current_scope(sys._getframe(1))  # noqa: SLF001 -- documented, and nothing else tells blocks apart
            if scope is not None:
                caller, lease = scope
                self._forget_scope(caller, lease)
                lease.__exit__(exc_type, exc, traceback)
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            scope = scope or self._current_scope(sys._getframe(1))  # noqa: SLF001 -- as above
            if scope is not None:
                caller, lease = scope
                self._forget_scope(caller, lease)
                lease.__exit__(type(interrupt), interrupt, interrupt.__traceback__)
            raise
        if scope is None:
            raise self._unbalanced_exit()

    def _current_scope(self, frame: FrameType) -> tuple[object, L] | None:
        """Return the block that is being left in that frame: the caller that entered it, and its lease."""
        raise NotImplementedError

    def _unbalanced_exit(self) -> Exception:
        """Return the error for an exit without an enter."""
        raise NotImplementedError

    def _forget_scope(self, caller: object, lease: L) -> None:
        """Remove a block from the books. A second call changes nothing."""
        raise NotImplementedError
