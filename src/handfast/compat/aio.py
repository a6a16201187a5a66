"""The lock for tasks: ``redis.asyncio.lock.Lock``, with another way to ask, to wait and to let go.

The methods that redis-py's class has for its subclasses, ``do_acquire`` and the like, are used here as there: a
subclass of ours may override them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import weakref
from math import inf
from time import monotonic
from types import SimpleNamespace, TracebackType
from typing import Any, Literal, Self, cast

import redis.asyncio.lock
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._engine.replies import Reply
from handfast._protocol.retry import CLEANUP_FOR, PAUSES, UNDO_WAIT
from handfast.compat import shared
from handfast.compat.inbox import AsyncEar
from handfast.compat.shared import Asked, Token
from handfast.errors import ScriptError

__all__ = ["AsyncRedisLock"]

logger = logging.getLogger("handfast")
theirs = logging.getLogger(redis.asyncio.lock.__name__)

_errands: set[asyncio.Task[None]] = set()
"""What goes on in the background. An event loop alone would let go of it."""


class _Local(threading.local):
    """What each thread has for itself. With redis-py's class, only the thread that made the lock has even a None."""

    token: bytes | None = None


class AsyncRedisLock(redis.asyncio.lock.Lock):
    """A drop-in replacement for ``redis.asyncio.lock.Lock``: ``client.lock("report", lock_class=AsyncRedisLock)``.

    The same arguments, attributes, methods and errors, on the same key, so that both classes exclude each other.
    ``handfast.compat`` says what is better and what is not.

    ``timeout`` is how many seconds the server keeps the lock, None without end. ``sleep`` is after how many seconds a
    waiter asks again; a release by this class wakes it before. ``blocking_timeout`` is how many seconds an acquire waits
    at most, None without end. Raises ValueError for a ``timeout`` below 0.001, 0 among them, and for what is no time.
    """

    name: Any  # it is called str where errors carry it

    def __init__(  # noqa: PLR0917 -- redis-py's signature
        self,
        redis: Any,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,  # noqa: FBT001, FBT002 -- redis-py's signature
        blocking_timeout: float | None = None,
        thread_local: bool = True,  # noqa: FBT001, FBT002 -- redis-py's signature
        raise_on_release_error: bool = True,  # noqa: FBT001, FBT002 -- redis-py's signature
    ) -> None:
        shared.lifetime_ms(timeout)
        shared.checked_pause(sleep)
        shared.checked_wait(blocking_timeout)
        super().__init__(
            redis,
            name,
            timeout=timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
        )
        self.raise_on_release_error = raise_on_release_error  # the oldest redis-py does not know it
        self.local: Any = _Local() if self.thread_local else SimpleNamespace(token=None)

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified", lock_name=self.name)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            theirs.warning("Lock was unlocked or no longer owned when exiting context manager.")

    async def acquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001 -- redis-py's signature
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock, and say whether it was taken; the arguments override those of the lock.

        ``token`` is the value that the key gets, str or bytes, where others are to know it. Unless this gives True, nothing
        of it is left behind.
        """
        pause = shared.checked_pause(self.sleep)
        wait = shared.checked_wait(self.blocking_timeout if blocking_timeout is None else blocking_timeout)
        shared.lifetime_ms(self.timeout)
        until = monotonic() + wait if (self.blocking if blocking is None else blocking) else -inf
        mine = Token(None if token is None else shared.encoded(self.redis, token))
        mine.owner = weakref.ref(self)
        try:
            taken = await self.do_acquire(mine) or (monotonic() < until and await self._wait(mine, pause, until))
            if taken:
                self.local.token = mine
            return taken
        except BaseException as error:
            if mine.asked:
                await self._see_to(shared.cancel(self.redis, self.name, mine), error)
            raise

    async def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, with this token; whether the lock is taken."""
        mine = shared.token_of(self.redis, token)
        call = shared.acquire(self.redis, self.name, mine, self.timeout)
        mine.asked = True
        return shared.note(mine, await _ask(self.redis, call))

    async def release(self) -> None:
        """Give the lock up, and wake those who wait for it with this class.

        Raises LockError if there is no token, and LockNotOwnedError if the key has it no more. After any other error it
        may be called again.
        """
        if self.local.token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        token = self.local.token = shared.held(self, self.redis)
        try:
            await self.do_release(token)
        except LockNotOwnedError:
            self._forget(token)
            raise
        except BaseException as error:
            if isinstance(error, RedisConnectionError | RedisTimeoutError) or not isinstance(error, Exception):
                await self._see_to(shared.release(self.redis, self.name, token), error)
            raise
        self._forget(token)

    async def do_release(self, expected_token: str | bytes) -> None:
        """Give up the lock that has this token. Raises LockNotOwnedError if it has not."""
        token = shared.token_of(self.redis, expected_token)
        if (await _ask(self.redis, shared.release(self.redis, self.name, token))).tag == "lost":
            raise LockNotOwnedError("Cannot release a lock that's no longer owned", lock_name=self.name)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:  # noqa: FBT001 -- redis-py's signature
        """Add seconds to the TTL, or replace it. Raises ValueError for what is no time, and LockNotOwnedError."""
        token = self.local.token
        call = (
            shared.renew(self.redis, self.name, token, additional_time, "additional_time", even_endless=False)
            if replace_ttl
            else shared.extend(self.redis, self.name, token, additional_time)
        )
        if (await _ask(self.redis, call)).tag == "lost":
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned", lock_name=self.name)
        return True

    async def do_reacquire(self) -> Literal[True]:
        """Set the TTL to ``timeout`` again. Raises LockNotOwnedError."""
        call = shared.renew(self.redis, self.name, self.local.token, self.timeout, "timeout", even_endless=True)
        if (await _ask(self.redis, call)).tag == "lost":
            raise LockNotOwnedError("Cannot reacquire a lock that's no longer owned", lock_name=self.name)
        return True

    async def _wait(self, token: Token, sleep: float, until: float) -> bool:
        with contextlib.closing(AsyncEar(self.redis, *shared.whereabouts(self.redis, self.name))) as ear:
            while True:
                await ear.listen(until - monotonic())
                if await self.do_acquire(token):  # what was released before the ear was open, it has not heard
                    return True
                left = until - monotonic()
                if left <= 0:
                    return False
                await ear.wait(shared.pause(token, sleep, left))

    def _forget(self, token: bytes) -> None:
        """Meanwhile another task may have got the lock, with a token of its own."""
        if self.local.token is token:
            self.local.token = None

    async def _see_to(self, call: Asked, error: BaseException) -> None:
        """Have something done for sure: no cancellation stops it, and it goes on if it takes longer than this waits."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the coroutine is thrown away when its loop is gone already
            return
        errand = loop.create_task(_insist(self.redis, call, self.name))
        _errands.add(errand)
        errand.add_done_callback(_errands.discard)
        if not isinstance(error, GeneratorExit):  # a coroutine that is closed may wait for nothing
            await asyncio.wait((errand,), timeout=UNDO_WAIT)


async def _ask(client: Any, call: Asked) -> Reply:
    """Run a script. The errors are those of redis-py, as they are for its own class."""
    script, names = call
    try:
        return cast("Reply", await script(client, **names))
    except ScriptError as error:
        raise cast("RedisError", error.__cause__) from None


async def _insist(client: Any, call: Asked, name: Any) -> None:
    give_up = monotonic() + CLEANUP_FOR
    for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
        await asyncio.sleep(pause)
        try:
            await _ask(client, call)
        except Exception as error:  # noqa: BLE001 -- there is nobody to tell but the log
            if isinstance(error, RedisConnectionError | RedisTimeoutError) and monotonic() < give_up:
                continue
            logger.warning("could not give up %r, which stays until its timeout, if it has one: %s", name, error)
        return
