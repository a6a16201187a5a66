"""Client processes that can be killed and frozen at any moment: each holds one client of a contender and does as it is told.

Orders and words travel through a pipe; every word carries the moment at which it was said, on the monotonic clock that all
processes of the machine share. They are forked from a process that has everything imported and nothing begun, so there can
be many new ones a second. When the pipe ends, so does the process, whatever it is at: nobody outlives the trial.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

from handfast import AsyncHandfast, Handfast
from handfast_lab.chaos.contender import LEASE, AioClient, Client, Contender, Lock

__all__ = ["Life", "Mortal", "Mortals", "Silent", "Word", "unrenewed"]

PRELOADED = [__name__, "handfast_lab.chaos.contenders", "handfast_lab.chaos.writers"]
"""What is imported once for all of them, however many there are."""

BIRTH = 20.0
"""Seconds for a process to be there and connected."""


class Word(NamedTuple):
    """What a process says."""

    what: str
    """``ready``; ``asks`` before an acquire, then ``in`` or ``out of time``; ``given`` after a release; ``failed``; or
    whatever a `Life` of another kind has to say."""
    at: float
    note: str = ""
    facts: dict[str, Any] = {}  # noqa: RUF012 -- nobody writes to it


class Silent(Exception):
    """A process did not say what it was to say in time, or is gone."""


class Mortal:
    """One process. Made by `Mortals`."""

    def __init__(self, context: Any, life: type[Life], contender: Contender, url: str) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_live, args=(life, contender, url, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._ending = threading.RLock()

    def tell(self, order: str, *args: Any, **options: Any) -> None:
        """Give an order. Orders are carried out one after the other."""
        with contextlib.suppress(OSError):  # it is gone, as whoever listens to it will hear
            self._pipe.send((order, args, options))

    def hear(self, within: float) -> Word:
        """What it says next. Raises Silent after that many seconds, and when it is dead."""
        try:
            if self._pipe.poll(max(0.0, within)):
                word: Word = self._pipe.recv()
                return word
        except (EOFError, OSError):
            raise Silent("a process ended by itself, or was killed") from None
        raise Silent(f"a process said nothing for {within:g} s")

    def expect(self, what: str, within: float) -> Word:
        """The same, where only this word will do. Raises Silent with what it said instead."""
        word = self.hear(within)
        if word.what != what:
            raise Silent(f"a process said {word.what!r} instead of {what!r}: {word.note}")
        return word

    def kill(self) -> None:
        """SIGKILL; when this returns it is gone, and its sockets are closed."""
        with self._ending:
            if self._process is not None:
                self._process.kill()  # also a frozen one
                self._process.join()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Let nothing be left of it."""
        with self._ending:
            self.kill()
            if self._process is not None:
                self._process.close()
                self._process = None
                self._pipe.close()

    def _signal(self, number: int) -> None:
        os.kill(self._process.pid, number)


class Mortals:
    """All processes of a trial, which lead lives of that kind: ended at the end of its ``with`` block."""

    def __init__(self, url: str, life: type[Life] | None = None) -> None:
        self._url = url
        self._life = life or Life
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._born: set[Mortal] = set()

    def new(self, contender: Contender, count: int = 1) -> list[Mortal]:
        """So many more, all ready. Raises Silent."""
        born = [Mortal(self._context, self._life, contender, self._url) for _ in range(count)]
        self._born.update(born)
        for mortal in born:
            mortal.expect("ready", BIRTH)
        return born

    def bury(self, mortal: Mortal) -> None:
        """Have one killed, and forget it."""
        self._born.discard(mortal)
        mortal.end()

    def kill_all(self) -> None:
        """Kill all that there are. Whoever waits for a word of theirs, in another thread, gets Silent."""
        for mortal in list(self._born):
            mortal.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for mortal in list(self._born):
            self.bury(mortal)


class Life:
    """What a process does: each of its `orders` takes a lock, or gives it up."""

    def __init__(self, contender: Contender, url: str, say: Callable[..., None]) -> None:
        self.contender = contender
        self.url = url
        self.say = say
        self._locks: dict[str, Lock] = {}
        self.orders: dict[str, Callable[..., None]] = {
            "acquire": self.acquire,
            "release": self.release,
            "pass": self.through,
        }

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Get ready. What is put on the stack ends with the life, should that ever be asked to end."""
        self._client: Client = stack.enter_context(self.contender.client(self.url))

    def acquire(self, name: str, ttl: float, *, renew: bool = False) -> None:
        """Wait for a lock and keep it."""
        lock = self._locks[name] = self._client.lock(name, ttl, renew=renew)
        self.say("asks")
        self.say("in" if lock.acquire() else "out of time")

    def release(self, name: str) -> None:
        """Give it up."""
        given = self._locks.pop(name).release()
        self.say("given", "" if given else "it had been lost")

    def through(self, name: str, ttl: float) -> None:
        """Wait for a lock, and give it up as soon as it is there."""
        self.acquire(name, ttl)
        self.release(name)


def _live(kind: type[Life], contender: Contender, url: str, pipe: Connection) -> None:
    """Carry out orders for as long as somebody is there to give them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the parent alone
    logging.disable(logging.CRITICAL)  # leases are lost here by design
    orders: SimpleQueue[tuple[str, tuple[Any, ...], dict[str, Any]]] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, orders), daemon=True).start()

    def say(what: str, note: str = "", **facts: Any) -> None:
        pipe.send(Word(what, monotonic(), note, facts))

    with contextlib.ExitStack() as stack:
        life = kind(contender, url, say)
        life.begin(stack)
        say("ready")
        while True:
            order, args, options = orders.get()
            try:
                life.orders[order](*args, **options)
            except Exception as error:  # noqa: BLE001 -- whatever a contender raises is part of the result
                say("failed", f"{type(error).__name__}: {error}")


def _listen(pipe: Connection, orders: SimpleQueue[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(pipe.recv())
    os._exit(0)


# --- a holder of ours that does not renew


class _Doomed:
    """A lock of ours that is taken and never given up. In asyncio it answers with what is to be awaited."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def acquire(self, timeout: float | None = None) -> Any:
        return self._lock.acquire(timeout=timeout)


class _Unrenewed:
    """A client of ours, of either colour, whose leases are renewed only where that is asked for."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, name: str, ttl: float = LEASE, *, renew: bool = False) -> Any:
        return _Doomed(self._client.lock(name, ttl=ttl, renew=renew))

    def semaphore(self, name: str, limit: int, ttl: float = LEASE) -> Any:
        raise NotImplementedError(name, limit, ttl)


@contextlib.contextmanager
def _sync_unrenewed(url: str) -> Iterator[Client]:
    with Handfast(url) as client:
        yield _Unrenewed(client)


@contextlib.asynccontextmanager
async def _aio_unrenewed(url: str) -> AsyncIterator[AioClient]:
    async with AsyncHandfast(url) as client:
        yield _Unrenewed(client)


def unrenewed(contender: Contender) -> Contender:
    """Ours, but a client takes locks that are not renewed, and never gives them up."""
    if contender.sync is not None:
        return replace(contender, sync=_sync_unrenewed)
    return replace(contender, aio=_aio_unrenewed)
