"""The scopes of threads, ``with`` blocks that hold a lease, and release it even if entering or leaving is interrupted.

An interrupt is a KeyboardInterrupt, or any other exception raised by a signal handler. It can come between any two
instructions, and Python calls an ``__exit__`` only once. So an interrupt during ``__exit__`` counts as one inside the
block: the block is left again, with the interrupt as the error that ended it. To release a lease twice changes nothing.

Python has no guard for the first instructions of an ``__exit__``, before its ``try`` is entered; nor, if a lease is
acquired and entered on one line, for those of its ``__enter__``.
"""

from __future__ import annotations

import contextlib
import sys
from functools import lru_cache
from opcode import opmap
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, Self, TypeVar

from handfast._drivers.blocks import Blocks
from handfast._drivers.failures import OWN_ERRORS, no_decorator
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["LeaseScope", "PrimitiveScope"]

L = TypeVar("L", bound="LeaseScope")

_BEFORE_WITH, _LOAD_SPECIAL = opmap.get("BEFORE_WITH"), opmap.get("LOAD_SPECIAL")
"""What enters a ``with`` block up to Python 3.13, and from 3.14 on."""


@lru_cache(1024)
def _is_with(code: CodeType, offset: int) -> bool:
    """Return whether that instruction enters a ``with`` block, which only its own frame can leave.

    Other calls of ``__enter__``, such as those of exit stacks and of threads that work for others, leave their frame
    behind.
    """
    instructions = code.co_code
    return instructions[offset] == _BEFORE_WITH or (offset >= 2 and instructions[offset - 2] == _LOAD_SPECIAL)


class LeaseScope:
    """The part of a lease that makes it a context manager."""

    __slots__ = ("_on_lost", "_state")

    def __init__(self, state: LeaseState, on_lost: OnLost) -> None:
        self._state = state
        self._on_lost = on_lost

    def __enter__(self) -> Self:
        try:
            self._check_entry()
            return self._begin(sys._getframe(1))  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:
            self._leave_interrupted(interrupt)
            raise

    def _begin(self, frame: FrameType) -> Self:
        """Enter the block of a lease that was just acquired, in that frame."""
        code = frame.f_code
        self._state.block = self._state.block or (_is_with(code, frame.f_lasti) and (id(frame), code, get_ident()))
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
        """Return whether no call of this thread runs in the frame that entered the block: it is a generator's, for another to resume.

        False where the block was not entered by a ``with`` statement, whose frame is not known.
        """
        block, ident = self._state.block, get_ident()
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- as above
        while block and frame is not None:
            if block == (id(frame), frame.f_code, ident):
                return False
            frame = frame.f_back
        return bool(block)

    def check(self) -> None:
        """Raise an error unless the lease is held."""
        raise NotImplementedError

    def _check_entry(self) -> None:
        """Raise an error unless a block may begin."""
        self.check()

    def _on_enter(self) -> None:
        """Called when a block begins that holds the lease."""

    def _leave(self, error: BaseException | None) -> bool:
        """Release at the end of a block that ended with this error. Return False if the loss is to be reported."""
        raise NotImplementedError

    def _report_loss(self) -> None:
        raise NotImplementedError


class PrimitiveScope(Generic[L]):
    """The part of a primitive that leaves its blocks, each of which has a lease of its own."""

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
