"""The lock of redis-py with another way to ask, to wait and to release.

The methods of redis-py's class for its subclasses (``do_acquire``, ``do_release``, ``do_extend``,
``do_reacquire``) are used here in the same way, so a subclass may override them.
"""

from __future__ import annotations

import asyncio
import logging

# sync only: import time
import weakref
from functools import partial
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Literal, cast

import redis.asyncio.lock
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._engine.replies import Reply
from handfast._protocol.retry import CLEANUP_FOR, pauses
from handfast.compat import _shared
from handfast.compat._scopes import AsyncLockScope
from handfast.compat._shared import Token
from handfast.errors import ScriptError

__all__ = ["AsyncRedisLock"]

logger = logging.getLogger("handfast.compat")
redis_logger = logging.getLogger(redis.asyncio.lock.__name__)


class AsyncRedisLock(AsyncLockScope, redis.asyncio.lock.Lock):
    """A drop-in replacement for ``redis.asyncio.lock.Lock``, with the same arguments, attributes, methods and errors.

    It uses the same key, so both classes exclude each other. ``help(handfast.compat)`` lists the improvements and the
    unchanged parts.

    Args:
        redis: The client of redis-py.
        name: The key of the lock.
        timeout: Seconds until the server deletes the key, at least 0.001. None keeps it until it is released.
        sleep: Seconds after which a waiter asks again, 0 or more.
        blocking: Whether `acquire` waits.
        blocking_timeout: Seconds that `acquire` waits at most. None waits indefinitely.
        thread_local: Whether each thread has a token of its own.
        raise_on_release_error: Whether the end of a ``with`` block raises LockError for a lock no longer held.

    Raises:
        ValueError: ``timeout``, ``sleep`` or ``blocking_timeout`` is out of range.

    Example:
        lock = client.lock("report", timeout=30, lock_class=AsyncRedisLock)
        async with lock:
            ...
    """

    name: Any  # redis-py's errors say that it is a str  # asyncio only

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
        _shared.lifetime_ms(timeout)
        _shared.check_sleep(sleep)
        _shared.check_wait(blocking_timeout)
        super().__init__(
            redis,
            name,
            timeout=timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
        )
        self.raise_on_release_error = raise_on_release_error  # the oldest supported redis-py does not have it
        self._set_up(thread_local=thread_local)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            redis_logger.warning("Lock was unlocked or no longer owned when exiting context manager.")

    # sync only, in Args: sleep: Seconds after which to ask again, 0 or more. None takes that of the lock.
    async def acquire(
        self,
        # sync only: sleep: float | None = None,
        blocking: bool | None = None,  # noqa: FBT001 -- redis-py's signature
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquire the lock, and wait while others hold it. The arguments override those of the lock.

        Unless this returns True, nothing of it remains on the server. If the server can't be reached then, the cleanup
        goes on in the background for up to 20 s.

        Args:
            blocking: Whether to wait.
            blocking_timeout: Seconds to wait at most. None takes the lock's own.
            token: The value to set the key to. None makes an unguessable value.

        Returns:
            True if the lock was acquired.

        Raises:
            ValueError: A duration is out of range.
            redis.exceptions.RedisError: The server can't be reached, or refused.
        """
        sleep = _shared.check_sleep(self.sleep)  # asyncio only
        # sync only: sleep = _shared.check_sleep(self.sleep if sleep is None else sleep)
        wait = _shared.check_wait(self.blocking_timeout if blocking_timeout is None else blocking_timeout)
        _shared.lifetime_ms(self.timeout)
        until = monotonic() + wait if (self.blocking if blocking is None else blocking) else -inf
        mine = Token(None if token is None else _shared.encoded(self.redis, token))
        mine.owner = weakref.ref(self)
        try:
            acquired = await self.do_acquire(mine) or (monotonic() < until and await self._wait(mine, sleep, until))
            if acquired:
                self._remember(mine)
            return acquired
        except BaseException as error:
            await self._undo(mine, error)
            raise

    async def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting.

        Args:
            token: The value to set the key to.

        Returns:
            True if the lock was acquired.
        """
        mine = _shared.token_of(self.redis, token)
        call = _shared.acquire(self.redis, self.name, mine, self.timeout)
        mine.asked = True
        return _shared.note(mine, await _ask(self.redis, call))

    async def release(self) -> None:
        """Release the lock.

        After any error except LockNotOwnedError it may be called again.

        Raises:
            LockError: There is no token: the lock was not acquired here, or was released already.
            LockNotOwnedError: The key is gone or has another token.
            redis.exceptions.RedisError: The server can't be reached, or refused.
        """
        if self.local.token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        token = self.local.token = _shared.held(self, self.redis)
        try:
            await self.do_release(token)
        except LockNotOwnedError:
            self._forget(token)
            raise
        except BaseException as error:
            if isinstance(error, RedisConnectionError | RedisTimeoutError) or not isinstance(error, Exception):
                call = _shared.release(self.redis, self.name, token)
                await self._clean_up(partial(_repeat, self.redis, call, self.name), error)
            raise
        self._forget(token)

    async def do_release(self, expected_token: str | bytes) -> None:
        """Release the lock if it has this token.

        Args:
            expected_token: The token.

        Raises:
            LockNotOwnedError: The key is gone or has another token.
        """
        token = _shared.token_of(self.redis, expected_token)
        if (await _ask(self.redis, _shared.release(self.redis, self.name, token))).tag == "lost":
            raise LockNotOwnedError("Cannot release a lock that's no longer owned", lock_name=self.name)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:  # noqa: FBT001 -- redis-py's signature
        """Add seconds to the key's TTL, or replace it.

        Args:
            additional_time: Seconds.
            replace_ttl: Whether to replace the TTL.

        Returns:
            True.

        Raises:
            LockNotOwnedError: The key is gone or has another token.
            ValueError: ``additional_time`` is out of range.
        """
        token = self.local.token
        call = (
            _shared.renew(self.redis, self.name, token, additional_time, "additional_time", even_endless=False)
            if replace_ttl
            else _shared.extend(self.redis, self.name, token, additional_time)
        )
        if (await _ask(self.redis, call)).tag == "lost":
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned", lock_name=self.name)
        return True

    async def do_reacquire(self) -> Literal[True]:
        """Set the key's TTL to ``timeout`` again.

        Returns:
            True.

        Raises:
            LockNotOwnedError: The key is gone or has another token.
        """
        call = _shared.renew(self.redis, self.name, self.local.token, self.timeout, "timeout", even_endless=True)
        if (await _ask(self.redis, call)).tag == "lost":
            raise LockNotOwnedError("Cannot reacquire a lock that's no longer owned", lock_name=self.name)
        return True

    async def _wait(self, token: Token, sleep: float, until: float) -> bool:
        while (left := until - monotonic()) > 0:
            await asyncio.sleep(_shared.poll_interval(token, sleep, left))
            if await self.do_acquire(token):
                return True
        return False

    async def _undo(self, token: Token, error: BaseException) -> None:
        """Take back the lock that the acquire of this token may have got."""
        self._forget(token)
        if token.asked:
            call = _shared.cancel(self.redis, self.name, token)
            await self._clean_up(partial(_repeat, self.redis, call, self.name), error)


async def _ask(client: Any, call: _shared.Call) -> Reply:
    """Run a script. It raises redis-py's errors, as redis-py's own class does."""
    script, values = call
    try:
        return cast("Reply", await script(client, **values))
    except ScriptError as error:
        raise cast("RedisError", error.__cause__) from None


async def _repeat(client: Any, call: _shared.Call, name: Any) -> None:
    """Run a script in the background until the server has answered."""
    give_up_at = monotonic() + CLEANUP_FOR
    for pause in pauses():
        await asyncio.sleep(pause)
        try:
            await _ask(client, call)
        except Exception as error:  # noqa: BLE001 -- no caller waits for it any more
            if isinstance(error, RedisConnectionError | RedisTimeoutError) and monotonic() < give_up_at:
                continue
            logger.warning(
                "could not release %r in time, so it stays locked until its timeout, if it has one: %s",
                name,
                error,
                extra={"lock": name, "reason": str(error)},
            )
        return
