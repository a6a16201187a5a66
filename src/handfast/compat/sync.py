"""The lock for threads: ``redis.lock.Lock``, with another way to ask, to wait and to let go.

The methods that redis-py's class has for its subclasses, ``do_acquire`` and the like, are used here as there: a
subclass of ours may override them, too.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import weakref
from functools import partial
from math import inf
from time import monotonic
from types import SimpleNamespace, TracebackType
from typing import Any, Literal, Self, cast

import redis.lock
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._engine.replies import Reply
from handfast._protocol.retry import CLEANUP_FOR, PAUSES, UNDO_WAIT
from handfast.compat import shared
from handfast.compat.inbox import Ear
from handfast.compat.shared import Asked, Token
from handfast.errors import ScriptError

__all__ = ["RedisLock"]

logger = logging.getLogger("handfast")
theirs = logging.getLogger(redis.lock.__name__)


class _Local(threading.local):
    """What each thread has for itself. With redis-py's class, only the thread that made the lock has even a None."""

    token: bytes | None = None


class RedisLock(redis.lock.Lock):
    """A drop-in replacement for ``redis.lock.Lock``: ``client.lock("report", timeout=30, lock_class=RedisLock)``.

    The same arguments, attributes, methods and errors, on the same key, so that both classes exclude each other.
    ``handfast.compat`` says what is better and what is not.

    ``timeout`` is how many seconds the server keeps the lock, None without end. ``sleep`` is after how many seconds a
    waiter asks again; a release by this class wakes it before. ``blocking_timeout`` is how many seconds an acquire waits
    at most, None without end. Raises ValueError for a ``timeout`` below 0.001, 0 among them, and for what is no time.
    """

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
        self._guard = threading.Lock()
        self._latest: Any = _Local()
        """The token that this thread acquired last, whoever may give it up."""

    def __enter__(self) -> Self:
        before = self._latest.token
        try:
            if self.acquire():
                return self
        except BaseException:
            if self._latest.token is not before:  # it was acquired, and then something came in between
                self._undo(self._latest.token)
            raise
        raise LockError("Unable to acquire lock within the time specified", lock_name=self.name)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            theirs.warning("Lock was unlocked or no longer owned when exiting context manager.")

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,  # noqa: FBT001 -- redis-py's signature
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock, and say whether it was taken; the arguments override those of the lock.

        ``token`` is the value that the key gets, str or bytes, where others are to know it. Unless this gives True, nothing
        of it is left behind.
        """
        pause = shared.checked_pause(self.sleep if sleep is None else sleep)
        wait = shared.checked_wait(self.blocking_timeout if blocking_timeout is None else blocking_timeout)
        shared.lifetime_ms(self.timeout)
        until = monotonic() + wait if (self.blocking if blocking is None else blocking) else -inf
        mine = Token(None if token is None else shared.encoded(self.redis, token))
        mine.owner = weakref.ref(self)
        try:
            taken = self.do_acquire(mine) or (monotonic() < until and self._wait(mine, pause, until))
            if taken:
                with self._guard:
                    self.local.token = self._latest.token = mine
            return taken
        except BaseException:
            self._undo(mine)
            raise

    def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, with this token; whether the lock is taken."""
        mine = shared.token_of(self.redis, token)
        call = shared.acquire(self.redis, self.name, mine, self.timeout)
        mine.asked = True
        return shared.note(mine, _ask(self.redis, call))

    def release(self) -> None:
        """Give the lock up, and wake those who wait for it with this class.

        Raises LockError if this thread has no token, and LockNotOwnedError if the key has it no more. After any other
        error it may be called again.
        """
        if self.local.token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        token = self.local.token = shared.held(self, self.redis)
        try:
            self.do_release(token)
        except LockNotOwnedError:
            self._forget(token)
            raise
        except BaseException as error:
            if isinstance(error, RedisConnectionError | RedisTimeoutError) or not isinstance(error, Exception):
                self._see_to(shared.release(self.redis, self.name, token))
            raise
        self._forget(token)

    def do_release(self, expected_token: str | bytes) -> None:
        """Give up the lock that has this token. Raises LockNotOwnedError if it has not."""
        token = shared.token_of(self.redis, expected_token)
        if _ask(self.redis, shared.release(self.redis, self.name, token)).tag == "lost":
            raise LockNotOwnedError("Cannot release a lock that's no longer owned", lock_name=self.name)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:  # noqa: FBT001 -- redis-py's signature
        """Add seconds to the TTL, or replace it. Raises ValueError for what is no time, and LockNotOwnedError."""
        token = self.local.token
        call = (
            shared.renew(self.redis, self.name, token, additional_time, "additional_time", even_endless=False)
            if replace_ttl
            else shared.extend(self.redis, self.name, token, additional_time)
        )
        if _ask(self.redis, call).tag == "lost":
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned", lock_name=self.name)
        return True

    def do_reacquire(self) -> Literal[True]:
        """Set the TTL to ``timeout`` again. Raises LockNotOwnedError."""
        call = shared.renew(self.redis, self.name, self.local.token, self.timeout, "timeout", even_endless=True)
        if _ask(self.redis, call).tag == "lost":
            raise LockNotOwnedError("Cannot reacquire a lock that's no longer owned", lock_name=self.name)
        return True

    def _wait(self, token: Token, sleep: float, until: float) -> bool:
        with contextlib.closing(Ear(self.redis, *shared.whereabouts(self.redis, self.name))) as ear:
            while True:
                ear.listen(until - monotonic())
                if self.do_acquire(token):  # what was released before the ear was open, it has not heard
                    return True
                left = until - monotonic()
                if left <= 0:
                    return False
                ear.wait(shared.pause(token, sleep, left))

    def _forget(self, token: bytes) -> None:
        """Without the guard, a lock that threads share might forget the token that another has just got."""
        with self._guard:
            if self.local.token is token:
                self.local.token = None

    def _undo(self, token: Token) -> None:
        """Take back what the acquire of this token may have got."""
        self._forget(token)
        if token.asked:
            self._see_to(shared.cancel(self.redis, self.name, token))

    def _see_to(self, call: Asked) -> None:
        """Have something done for sure: it goes on if it takes longer than the caller may be kept."""
        work = partial(_insist, self.redis, call, self.name)
        thread = threading.Thread(target=work, name="handfast-errand", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are no more threads to be had, as when the interpreter is about to end
            work()
        else:
            thread.join(UNDO_WAIT)


def _ask(client: Any, call: Asked) -> Reply:
    """Run a script. The errors are those of redis-py, as they are for its own class."""
    script, names = call
    try:
        return cast("Reply", script(client, **names))
    except ScriptError as error:
        raise cast("RedisError", error.__cause__) from None


def _insist(client: Any, call: Asked, name: Any) -> None:
    give_up = monotonic() + CLEANUP_FOR
    for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
        time.sleep(pause)
        try:
            _ask(client, call)
        except Exception as error:  # noqa: BLE001 -- there is nobody to tell but the log
            if isinstance(error, RedisConnectionError | RedisTimeoutError) and monotonic() < give_up:
                continue
            logger.warning("could not give up %r, which stays until its timeout, if it has one: %s", name, error)
        return
