"""The scopes of asyncio: ``async with`` blocks which hold a lease, and end when it is lost or wanted.

A lost lease ends the block as `asyncio.timeout` does, and so does a later request that asks the holder to end. The task
of the block is cancelled. When the cancellation leaves the block, it is taken off the task and becomes LeaseLost, or
Preempted. A cancellation by another cause wins, and so does any other exception of the block. Timeouts may be nested
inside and around it.

The cancellation comes from a callback of the event loop, so the task is suspended at an await of the block and can't
leave it unnoticed. If the task finds the loss itself, it runs on to the next await and is cancelled there.

Nothing else needs a guard here: entering and leaving can be interrupted only where they await the driver, which undoes
the interrupted attempt.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Generator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

from handfast._api.blocks import Blocks
from handfast._drivers.aio.context import call_on, current_task, runs_here
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.failures import no_decorator
from handfast._objects import AsyncBlockOnly
from handfast._protocol.lease import LeaseState
from handfast.arguments import OnLost

__all__ = ["AcquireContext", "AsyncLeaseScope", "AsyncPrimitiveScope", "Guard", "acquire_context"]

P = ParamSpec("P")


class Scoped(Protocol):
    """The object held by a block: a lease, or several leases."""

    def _begin(self, frame: FrameType | None, task: asyncio.Task[Any] | None, /) -> Self: ...

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]: ...


L = TypeVar("L", bound=Scoped)


class Guard:
    """Watches one block of one task; with ``cancels``, a loss of the lease cancels the block.

    So does a later request that asks the holder to end. Of nested blocks, such a request cancels the outermost. Code
    that cleans up in this block is cancelled only by a loss.
    """

    __slots__ = ("_cancel_requests", "_cancels", "_state", "_task")

    def __init__(self, state: LeaseState, task: asyncio.Task[Any] | None, *, cancels: bool) -> None:
        self._task = task
        self._cancel_requests = 0 if task is None else task.cancelling()
        self._cancels = 0
        self._state = state
        if not cancels:
            return
        state.callbacks.append(self)
        if task is None:
            return
        if state.loss is not None:  # the callbacks have run already
            task.get_loop().call_soon(self)
        elif state.wanted is not None:
            task.get_loop().call_soon(self.on_wanted)

    def leave(self, error: BaseException | None) -> bool:
        """Stop watching.

        Return whether this guard's cancellation, and nothing else, ended the block with this error.
        """
        task, self._task = self._task, None
        try:  # noqa: SIM105 -- every block passes here, and this is a third of the instructions
            self._state.callbacks.remove(self)
        except ValueError:  # it was called
            pass
        if not self._cancels or task is None:
            return False
        left = 0
        for _ in range(self._cancels):
            left = task.uncancel()
        return left <= self._cancel_requests and isinstance(error, asyncio.CancelledError)

    def __call__(self) -> None:
        """Cancel the block, since the lease was lost."""
        self._cancel(self, "the lease was lost")

    def on_wanted(self) -> None:
        """Cancel the block, since a later request asks the holder to end, unless it knows already."""
        self._cancel(self.on_wanted, "a later request asks the holder to end", self._state.claim_yield)

    def _cancel(self, again: Callable[[], object], why: str, claim: Callable[[], bool] = lambda: True) -> None:
        task = self._task
        if task is None:
            return
        loop = task.get_loop()
        if not runs_here(loop):
            call_on(loop, again)
        elif task is asyncio.current_task():
            loop.call_soon(again)
        elif claim():
            self._cancels += task.cancel(why)


class AsyncLeaseScope:
    """The part of a lease that makes it a context manager."""

    __slots__ = ("_driver", "_guards", "_on_lost", "_state")

    _driver: AsyncDriver
    _guards: tuple[Guard, ...]
    _on_lost: OnLost
    _state: LeaseState

    async def __aenter__(self) -> Self:
        self._check_entry()
        return self._begin(None, current_task())

    def _begin(self, _frame: FrameType | None, task: asyncio.Task[Any] | None) -> Self:
        """Enter the block of a lease just acquired by this task."""
        self._state.block = self._state.block or task
        self._on_enter()
        self._guards += (Guard(self._state, task, cancels=self._on_lost == "raise"),)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended_here = False
        if guards := self._guards:
            self._guards = guards[:-1]
            ended_here = guards[-1].leave(exc)
        if self._state.is_released and not ended_here:
            return
        if not await (self._leave_cancelled() if ended_here else self._leave(exc)):
            self._report_loss()
        elif ended_here:
            self._report_wanted()

    if not TYPE_CHECKING:  # type checkers refuse the call by themselves

        def __call__(self, *_args: object, **_options: object) -> NoReturn:
            """Raise TypeError: an ``acquire()`` stands above a function."""
            raise no_decorator()

    @property
    def _released(self) -> bool:
        return self._state.is_released

    def _suspended(self) -> bool:
        """Return False: a task leaves its blocks itself, while a thread may leave blocks of generators to another."""
        return False

    @abstractmethod
    def check(self) -> None:
        """Raise an error unless the lease is held."""

    def _check_entry(self) -> None:
        """Raise an error unless a block may begin."""
        self.check()

    def _on_enter(self) -> None:
        """Called when a block with the lease begins."""

    def _leave(self, error: BaseException | None) -> Coroutine[Any, Any, bool]:
        """Release at the end of a block that ended with this error. Return False if the loss is to be reported."""
        return self._driver.leave(self._state, error)

    def _leave_cancelled(self) -> Coroutine[Any, Any, bool]:
        """Release at the end of a block cancelled by the lease itself, as `_leave` does."""
        return self._leave(None)

    @abstractmethod
    def _report_loss(self) -> None:
        """Raise LeaseLost, or warn of the loss."""

    @abstractmethod
    def _report_wanted(self) -> None:
        """Raise Preempted if a later request has asked the holder to end."""


class AsyncPrimitiveScope(Generic[L]):
    """The part of a primitive that leaves its blocks, each of which has a separate lease."""

    _blocks: Blocks[L]

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        lease = self._blocks.leave(sys._getframe(1))  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        if lease is None:
            raise self._blocks.unbalanced_exit(self)
        return lease.__aexit__(exc_type, exc, traceback)


class AcquireContext(AsyncBlockOnly, Coroutine[Any, Any, L]):
    """The result of ``acquire()`` and ``adopt()`` of asyncio: await it for a lease, or enter it with ``async with``.

    Awaited, it gives the lease, which the caller releases. Entered, it gives the lease and releases it at the end of the
    block. It is a coroutine, so `asyncio.create_task` and `asyncio.wait_for` take it.

    Example:
        async with lock.acquire(timeout=5) as lease:
            ...
    """

    __slots__ = "__name__", "__qualname__", "__weakref__", "_coroutine", "_lease"

    def __init__(self, coroutine: Coroutine[Any, Any, L], name: str) -> None:
        self._coroutine = coroutine
        self.__name__: str = name  # the repr of a task that runs it shows this and the next
        self.__qualname__: str = name

    def __repr__(self) -> str:
        return f"<{self.__qualname__}()>"

    def __await__(self) -> Generator[Any, Any, L]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """Resume the coroutine with a value: part of the coroutine protocol, called by the event loop."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Resume the coroutine with an exception: part of the coroutine protocol, called by the event loop."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine early: part of the coroutine protocol, called by the event loop."""
        self._coroutine.close()

    async def __aenter__(self) -> L:
        self._lease = await self._coroutine
        return self._lease._begin(None, current_task())  # noqa: SLF001 -- of the same module

    def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        return self._lease.__aexit__(exc_type, exc, traceback)

    if not TYPE_CHECKING:  # type checkers refuse the call by themselves

        def __call__(self, *_args: object, **_options: object) -> NoReturn:
            """Raise TypeError: an ``acquire()`` stands above a function."""
            self.close()
            raise no_decorator()


def acquire_context(method: Callable[P, Coroutine[Any, Any, L]]) -> Callable[P, AcquireContext[L]]:
    """Let the result of a method that acquires be awaited or entered."""

    @functools.wraps(method)
    def acquiring(*args: P.args, **kwargs: P.kwargs) -> AcquireContext[L]:
        return AcquireContext(method(*args, **kwargs), method.__qualname__)

    return acquiring
