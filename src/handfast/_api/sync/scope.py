"""The scopes of threads, ``with`` blocks that hold a lease, and release it even if entering or leaving is interrupted.

An interrupt is a KeyboardInterrupt, or any other exception raised by a signal handler. It can come between any two
instructions, and Python calls an ``__exit__`` only once. So an interrupt during ``__exit__`` counts as an interrupt
inside the block: the block is left again, with the interrupt as the error that ended it. Releasing a lease twice
changes nothing.

Python has no guard for the first instructions of an ``__exit__``, before the ``try`` is entered; nor, if a lease is
acquired and entered on one line, for those of the ``__enter__``.
"""

from __future__ import annotations

import contextlib
import sys
from abc import abstractmethod
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, Self, TypeVar

from handfast._api.blocks import Blocks
from handfast._drivers.failures import OWN_ERRORS, no_decorator
from handfast._drivers.sync.driver import SyncDriver
from handfast._drivers.sync.entries import Entry
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["LeaseScope", "PrimitiveScope"]


class Scoped(Protocol):
    """The object held by a block: a lease, or several leases."""

    def _begin(self, frame: FrameType, caller: object, /) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


L = TypeVar("L", bound=Scoped)


class LeaseScope:
    """The part of a lease that makes it a context manager."""

    __slots__ = ("_driver", "_on_lost", "_state")

    _driver: SyncDriver
    _on_lost: OnLost
    _state: LeaseState

    def __enter__(self) -> Self:
        try:
            self._check_entry()
            return self._begin(sys._getframe(1), None)  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            self._leave_interrupted(interrupt)
            raise

    def _begin(self, frame: FrameType, _caller: object) -> Self:
        """Enter the block of a lease just acquired, in this frame."""
        self._state.block = self._state.block or Entry.of(frame)
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

    if not TYPE_CHECKING:  # type checkers refuse the call by themselves

        def __call__(self, *_args: object, **_options: object) -> NoReturn:
            """Raise TypeError: an ``acquire()`` stands above a function."""
            raise no_decorator()

    def _leave_interrupted(self, interrupt: BaseException) -> None:
        """Leave the block as if the interrupt had ended it.

        Errors of the release are dropped: the interrupt is raised.
        """
        if not self._released:
            with contextlib.suppress(*OWN_ERRORS):
                self._leave(interrupt)

    @property
    def _released(self) -> bool:
        return self._state.is_released

    def _suspended(self) -> bool:
        """Return whether the block belongs to a generator which another thread may resume."""
        entry: Entry | None = self._state.block
        return entry is not None and entry.is_suspended()

    @abstractmethod
    def check(self) -> None:
        """Raise an error unless the lease is held."""

    def _check_entry(self) -> None:
        """Raise an error unless a block may begin."""
        self.check()

    def _on_enter(self) -> None:
        """Called when a block with the lease begins."""

    def _leave(self, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error. Return False if the loss is to be reported."""
        return self._driver.leave(self._state, error)

    @abstractmethod
    def _report_loss(self) -> None:
        """Raise LeaseLost, or warn of the loss."""


class PrimitiveScope(Generic[L]):
    """The part of a primitive that leaves its blocks, each of which has a separate lease."""

    _blocks: Blocks[L]

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope = None
        try:
            scope = self._blocks.left_in(sys._getframe(1))  # noqa: SLF001 -- documented, and nothing else tells blocks apart
            if scope is not None:
                caller, lease = scope
                self._blocks.forget(caller, lease)
                lease.__exit__(exc_type, exc, traceback)
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            scope = scope or self._blocks.left_in(sys._getframe(1))  # noqa: SLF001 -- as above
            if scope is not None:
                caller, lease = scope
                self._blocks.forget(caller, lease)
                lease.__exit__(type(interrupt), interrupt, interrupt.__traceback__)
            raise
        if scope is None:
            raise self._blocks.unbalanced_exit(self)
