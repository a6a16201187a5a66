"""The parts of the two locks that are written twice: who may change the token, how a block is entered, and cleanup.

- A lock may be shared by threads, and an interrupt (a KeyboardInterrupt, or any exception of a signal handler) can come
  between any two instructions of a thread. A task is cancelled only where it awaits.
- An undo goes on in the background if it takes longer than UNDO_WAIT seconds: in a thread, or in a task.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Self

from redis.exceptions import LockError

from handfast._protocol.retry import UNDO_WAIT
from handfast.compat._shared import Token

__all__ = ["AsyncLockScope", "LockScope"]

_cleanups: set[asyncio.Task[None]] = set()
"""Running cleanups: an event loop has only weak references to its tasks."""


class _Local(threading.local):
    """Thread-local storage with a token.

    In redis-py's class, threads other than the maker's have no attribute at all.
    """

    token: bytes | None = None


def _storage(*, thread_local: bool) -> Any:
    return _Local() if thread_local else SimpleNamespace(token=None)


def _not_acquired(name: Any) -> LockError:
    return LockError("Unable to acquire lock within the time specified", lock_name=name)


class AsyncLockScope:
    """The parts of `AsyncRedisLock`."""

    name: Any
    local: Any
    acquire: Any

    def _set_up(self, *, thread_local: bool) -> None:
        self.local = _storage(thread_local=thread_local)

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise _not_acquired(self.name)

    def _remember(self, token: Token) -> None:
        self.local.token = token

    def _forget(self, token: bytes) -> None:
        """Drop this token, but not a later token acquired by another task."""
        if self.local.token is token:
            self.local.token = None

    @abstractmethod
    async def _undo(self, token: Token, error: BaseException) -> None:
        """Give up the lock that an acquire with this token may have taken."""

    @staticmethod
    async def _clean_up(work: Callable[[], Coroutine[Any, Any, None]], error: BaseException) -> None:
        """Do this work in a task that no cancellation reaches, and wait for it for UNDO_WAIT seconds."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the coroutine is closed by the garbage collector after its loop has ended
            return
        task = loop.create_task(work())
        _cleanups.add(task)
        task.add_done_callback(_cleanups.discard)
        if not isinstance(error, GeneratorExit):  # a coroutine that is being closed may not await
            await asyncio.wait((task,), timeout=UNDO_WAIT)


class LockScope:
    """The parts of `RedisLock`."""

    name: Any
    local: Any
    acquire: Any

    def _set_up(self, *, thread_local: bool) -> None:
        self.local = _storage(thread_local=thread_local)
        self._guard = threading.Lock()
        self._latest: Any = _Local()
        """The token that this thread acquired last, whichever thread may release it."""

    def __enter__(self) -> Self:
        before = self._latest.token
        try:
            if self.acquire():
                return self
        except BaseException as error:
            if self._latest.token is not before:  # interrupted after it was acquired
                self._undo(self._latest.token, error)
            raise
        raise _not_acquired(self.name)

    def _remember(self, token: Token) -> None:
        with self._guard:
            self.local.token = self._latest.token = token

    def _forget(self, token: bytes) -> None:
        """Drop this token, but not a later token acquired by another thread."""
        with self._guard:
            if self.local.token is token:
                self.local.token = None

    @abstractmethod
    def _undo(self, token: Token, error: BaseException) -> None:
        """Give up the lock that an acquire with this token may have taken."""

    @staticmethod
    def _clean_up(work: Callable[[], None], error: BaseException) -> None:  # noqa: ARG004 -- only a task may have to skip the wait
        """Do this work in a thread, and wait for it for UNDO_WAIT seconds."""
        thread = threading.Thread(target=work, name="handfast-cleanup", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, for example while the interpreter shuts down
            work()
        else:
            thread.join(UNDO_WAIT)
