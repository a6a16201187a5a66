"""The interface between the trials and a library: how to open it, what it sends, and what it stores on the server.

Each contender keeps its own API: `Contender.sync` or `Contender.aio` opens a client of it. `Contender.client` opens a
blocking client for either API.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
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
    "keys",
    "microseconds",
    "text",
]


@dataclass(frozen=True, slots=True)
class Wire:
    """The commands that a contender sends, by name, and its scripts, by digest."""

    takes: frozenset[str]
    """Those that acquire a lock."""
    gives: frozenset[str]
    extends: frozenset[str] = frozenset()
    """Those that extend or renew a lease."""
    permits: frozenset[str] = frozenset()
    """Those that acquire a permit of a semaphore."""

    @staticmethod
    def match(words: frozenset[str]) -> Match:
        """Return a predicate for the proxy's faults: whether a command is one of these."""

        def is_one(asked: Command) -> bool:
            if asked.name in words:
                return True
            if asked.name not in ("EVAL", "EVALSHA") or not asked.args:
                return False
            return (_digest(asked.args[0]) if asked.name == "EVAL" else text(asked.args[0])) in words

        return is_one


@dataclass(frozen=True)
class Contender:
    """One library with one API."""

    name: str
    distribution: str
    """Name of the distribution on the package index."""
    wire: Callable[[], Wire]
    """Returns what it sends; called only if the library is installed."""
    left: Callable[[redis.Redis], list[str]]
    """Returns the keys of its holders and waiters on that server. After all leases are released, these keys are
    orphans.
    """
    remaining: Callable[[redis.Redis, str], float]
    """Returns for how many more milliseconds the server keeps the lock of that name; 0 if it is free."""
    sync: Callable[[str], AbstractContextManager[Client]] | None = None
    aio: Callable[..., AbstractAsyncContextManager[AioClient]] | None = None
    """The asyncio version of `sync`. The optional second argument is the largest number of connections the client may
    open.
    """
    extends: Literal["to", "by", "again", ""] = ""
    """What ``extend(seconds)`` does: "to" lets the lease end that long from now, "by" adds that much to its remaining
    time, "again" restores its initial duration and ignores the argument; "" means that there is no such call.
    """
    has: frozenset[str] = frozenset()
    """Further features: ``semaphore``, ``renewal``, ``fence``, ``rwlock``, ``lock_all``."""
    shortest_wait: float = 0.001
    """Shortest timeout that it supports, in seconds."""
    shortest_ttl: float = 0.012
    """Shortest lease that it supports, in seconds."""
    remarks: tuple[str, ...] = ()
    """Notes for readers of its figures."""

    @property
    def api(self) -> Literal["sync", "asyncio"]:
        """The API of the contender."""
        return "asyncio" if self.sync is None else "sync"

    @property
    def is_ours(self) -> bool:
        """Whether it is Handfast, which supports more trials than the rivals."""
        return self.distribution == "handfast"

    @property
    def version(self) -> str | None:
        """The installed version; None if it is not installed."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    @contextlib.contextmanager
    def client(self, url: str) -> Iterator[Client]:
        """Open a blocking client, whatever the API."""
        if self.sync is not None:
            with self.sync(url) as client:
                yield client
        elif self.aio is not None:
            with OnLoop(self.aio(url)) as face:
                yield face
        else:
            raise TypeError(f"{self.name} opens no client")


def text(value: bytes | str) -> str:
    """Return the value as a string."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _digest(source: bytes | str) -> str:
    return hashlib.sha1(source.encode() if isinstance(source, str) else source, usedforsecurity=False).hexdigest()


def digests(*sources: bytes | str) -> frozenset[str]:
    """Return the SHA-1 digests by which servers identify these scripts."""
    return frozenset(map(_digest, sources))


def keys(admin: redis.Redis) -> list[str]:
    """Return the names of all keys on the server."""
    return [text(key) for key in admin.scan_iter(count=1000)]


def microseconds(admin: redis.Redis) -> int:
    """Return the time of the server in microseconds."""
    seconds, rest = admin.time()
    return int(seconds) * 1_000_000 + int(rest)
