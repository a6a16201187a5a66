"""What a trial sees of a library: its verbs, what it sends, what it leaves on the server.

A contender speaks its own API: `Contender.sync` or `Contender.aio` opens a client of it. `Contender.client` opens one
that any trial can call, whatever the API.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import redis

from handfast.testing.commands import Command, Match
from handfast_lab.rivals.loop_thread import OnLoop
from handfast_lab.rivals.verbs import AioClient, Client

__all__ = [
    "Contender",
    "Wire",
    "digests",
    "hushed",
    "keys",
    "microseconds",
    "text",
]


@dataclass(frozen=True, slots=True)
class Wire:
    """What a contender sends: names of commands, and digests of scripts."""

    takes: frozenset[str]
    """What takes a lock."""
    gives: frozenset[str]
    extends: frozenset[str] = frozenset()
    """What extends a lease, and what renews it."""
    permits: frozenset[str] = frozenset()
    """What takes a permit of a semaphore."""

    @staticmethod
    def match(words: frozenset[str]) -> Match:
        """Whether a command off the wire is one of these, for a fault of the proxy's."""

        def is_one(asked: Command) -> bool:
            if asked.name in words:
                return True
            if asked.name not in ("EVAL", "EVALSHA") or not asked.args:
                return False
            return (_digest(asked.args[0]) if asked.name == "EVAL" else text(asked.args[0])) in words

        return is_one


@dataclass(frozen=True)
class Contender:
    """One library in one API."""

    name: str
    distribution: str
    """What it is called where it is installed from."""
    wire: Callable[[], Wire]
    """What it sends; called only where it is installed."""
    left: Callable[[redis.Redis], list[str]]
    """The keys on that server that hold, or wait for, something: what is an orphan once all was given back."""
    remaining: Callable[[redis.Redis, str], float]
    """For how many milliseconds more the server keeps the lock of that name; 0 when nobody holds it."""
    sync: Callable[[str], AbstractContextManager[Client]] | None = None
    aio: Callable[..., AbstractAsyncContextManager[AioClient]] | None = None
    """The same for asyncio. Its second argument, if given, is how many connections the client may open."""
    extends: Literal["to", "by", "again", ""] = ""
    """What ``extend(seconds)`` means: let it last that long from now; that much longer than now; as long as at first,
    whatever is said; or that there is no such thing."""
    has: frozenset[str] = frozenset()
    """What else it has: ``semaphore``, ``renewal``, ``fence``, ``rwlock``, ``lock_all``."""
    shortest_wait: float = 0.001
    """Seconds: the shortest time that it can be told to wait."""
    shortest_ttl: float = 0.012
    """Seconds: the shortest lease that it can be told to give."""
    remarks: tuple[str, ...] = ()
    """What a reader of its figures is to know."""

    @property
    def api(self) -> Literal["sync", "asyncio"]:
        """Which of the two it is."""
        return "asyncio" if self.sync is None else "sync"

    @property
    def is_ours(self) -> bool:
        """Whether it is Handfast, which has more to show than the rivals."""
        return self.distribution == "handfast"

    @property
    def version(self) -> str | None:
        """Which version is installed; None when it is not."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Client]:
        """A client that is called and answers, whatever the API."""
        if self.sync is not None:
            with self.sync(url) as client:
                yield client
        elif self.aio is not None:
            with OnLoop(self.aio(url)) as face:
                yield face
        else:
            raise TypeError(f"{self.name} opens no client")


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """What Handfast has to say of leases that are lost is no news where they are taken away on purpose."""
    logger = logging.getLogger("handfast")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def text(value: bytes | str) -> str:
    """As it reads."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _digest(source: bytes | str) -> str:
    return hashlib.sha1(source.encode() if isinstance(source, str) else source, usedforsecurity=False).hexdigest()


def digests(*sources: bytes | str) -> frozenset[str]:
    """What servers call these scripts."""
    return frozenset(map(_digest, sources))


def keys(admin: redis.Redis) -> list[str]:
    """All there are."""
    return [text(key) for key in admin.scan_iter(count=1000)]


def microseconds(admin: redis.Redis) -> int:
    """What the server's clock says."""
    seconds, rest = admin.time()
    return int(seconds) * 1_000_000 + int(rest)
