"""What a table is made of: clients that do one thing again and again, and what is counted of them.

A table measures one job of the listings (take a lock, complete a prefix, buy something) as each of its contenders does
it. Whoever adds a table writes an `ListingClient` for each contender and a `Table` that knows them; how clients become
processes, take turns and are counted is the same for all (`handfast_lab.bench.classic.runner`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from handfast_lab.bench.contenders import Contended

__all__ = [
    "FIRST",
    "LUA",
    "OURS",
    "Closing",
    "Conn",
    "Contenders",
    "ListingClient",
    "MeasuredScene",
    "Table",
    "Waiting",
]

FIRST, LUA, OURS = "classic-first", "classic-lua", "handfast"
"""The listings' two forms, and the modern one. The first form is what the others are compared with."""


Conn: TypeAlias = Any
"""A ``redis.Redis``, whose replies its library types as if it could be asynchronous."""


class MeasuredScene(NamedTuple):
    """Where one measurement takes place."""

    url: str
    name: str
    """Of the lock, the guild and so on: no other measurement has it."""
    contender: str
    clients: int


class Closing(Protocol):
    """What an actor works with: at least it can be closed. Its ``retries`` count, where it has any."""

    def close(self) -> object:
        """Close the connections."""


class ListingClient(ABC):
    """One client. Made in a process of its own, which then calls `act` until the time is over."""

    def __init__(self, client: Closing) -> None:
        self._client = client
        self.acquired, self.released = array("d"), array("d")
        """When what it holds was certainly its own, on the machine-wide monotonic clock; empty where it holds nothing."""
        self._tries = 0

    @property
    def tries(self) -> int:
        """How often it has asked so far."""
        return self._tries

    @property
    def retries(self) -> int:
        """How many WatchErrors made it start over so far."""
        return int(getattr(self._client, "retries", 0))

    @abstractmethod
    def act(self) -> bool:
        """Do it once; False when it did not succeed."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Waiting(ListingClient):
    """A client of ``bench lock`` or ``bench semaphore``, which waits until it has what it wants."""

    def __init__(self, client: Contended) -> None:
        super().__init__(client)
        self._contended = client

    @property
    def tries(self) -> int:
        """How often it asked: a poller does so again and again."""
        return self._contended.tries

    def act(self) -> bool:
        """Take it and release it."""
        self._contended.acquire()
        self.acquired.append(monotonic())
        self.released.append(monotonic())
        self._contended.release()
        return True


Contenders: TypeAlias = Mapping[str, Callable[[MeasuredScene, int], ListingClient]]
"""By name, in the order of the table. Each makes the client of that number, from 0."""


class Table(ABC):
    """One job, who does it, and what is said of it."""

    name: ClassVar[str]
    title: ClassVar[str]
    success: ClassVar[str]
    """What is counted when it succeeds, in the plural."""
    about: ClassVar[str]
    """What a client does, for the report."""
    effort: ClassVar[Literal["tries", "retries"]]
    """What shows how much was in vain."""
    contenders: ClassVar[Contenders]
    limit: ClassVar[int | None] = None
    """How many may hold it at once, where it is something to hold."""
    lenient: ClassVar[frozenset[str]] = frozenset()
    """Contenders that are known to let in more: told, but no failure."""

    def refusal(self, conn: Conn) -> str:  # noqa: ARG002 -- hardly any table minds
        """Why this server can't be used, in words; empty where it can."""
        return ""

    def prepare(self, scene: MeasuredScene, conn: Conn) -> None:  # noqa: B027 -- not every table has something to prepare
        """Put there what the clients will find."""

    def inspect(self, scene: MeasuredScene, conn: Conn) -> list[str]:  # noqa: ARG002 -- not every table can be inspected
        """What is wrong with what they left, in words."""
        return []

    @abstractmethod
    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Leave nothing behind."""
