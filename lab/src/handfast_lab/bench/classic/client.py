"""The parts of a table: clients that repeat one job, and the counts taken from them.

A table measures one job of the listings (take a lock, complete a prefix, buy something) as each of its contenders does
it. A new table needs a `ListingClient` for each contender and a `Table` that lists them; processes, turns and counting
are the same for all tables (`handfast_lab.bench.classic.runner`).
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
"""The two forms of the listings, and Handfast. The others are compared with the first form."""


Conn: TypeAlias = Any
"""A ``redis.Redis``; redis-py types its replies as possibly asynchronous."""


class MeasuredScene(NamedTuple):
    """The setting of one measurement."""

    url: str
    name: str
    """Name of the lock, guild and so on; unique to the measurement."""
    contender: str
    clients: int


class Closing(Protocol):
    """The client object of a listing, which can at least be closed. Its ``retries`` are counted if it has any."""

    def close(self) -> object:
        """Close the connections."""


class ListingClient(ABC):
    """One client. It is created in its own process, which then calls `act` until the end."""

    def __init__(self, client: Closing) -> None:
        self._client = client
        self.acquired, self.released = array("d"), array("d")
        """The times of each certain hold on the machine-wide monotonic clock; empty if the job holds nothing."""
        self._tries = 0

    @property
    def tries(self) -> int:
        """Number of requests so far."""
        return self._tries

    @property
    def retries(self) -> int:
        """Number of WatchErrors so far."""
        return int(getattr(self._client, "retries", 0))

    @abstractmethod
    def act(self) -> bool:
        """Do the job once; return False if it did not succeed."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Waiting(ListingClient):
    """A client of ``bench lock`` or ``bench semaphore``, which waits until it is granted."""

    def __init__(self, client: Contended) -> None:
        super().__init__(client)
        self._contended = client

    @property
    def tries(self) -> int:
        """Number of requests so far; a polling contender sends several for one acquire."""
        return self._contended.tries

    def act(self) -> bool:
        """Acquire and release once."""
        self._contended.acquire()
        self.acquired.append(monotonic())
        self.released.append(monotonic())
        self._contended.release()
        return True


Contenders: TypeAlias = Mapping[str, Callable[[MeasuredScene, int], ListingClient]]
"""By name, in the order of the table. Each value creates the client with the given number, counted from 0."""


class Table(ABC):
    """One job, its contenders, and its descriptions."""

    name: ClassVar[str]
    title: ClassVar[str]
    success: ClassVar[str]
    """The noun for successes, in the plural."""
    about: ClassVar[str]
    """What a client does, for the report."""
    effort: ClassVar[Literal["tries", "retries"]]
    """The count that shows wasted work."""
    contenders: ClassVar[Contenders]
    limit: ClassVar[int | None] = None
    """Largest number of simultaneous holders, if the job holds something."""
    lenient: ClassVar[frozenset[str]] = frozenset()
    """Contenders that are known to exceed the limit: reported, but not a failure."""

    def refusal(self, conn: Conn) -> str:  # noqa: ARG002 -- most tables accept any server
        """Return why this server cannot be used, or an empty string."""
        return ""

    def prepare(self, scene: MeasuredScene, conn: Conn) -> None:  # noqa: B027 -- not every table needs data
        """Create the data that the clients need."""

    def inspect(self, scene: MeasuredScene, conn: Conn) -> list[str]:  # noqa: ARG002 -- not every table has something to check
        """Return descriptions of the errors in the data that the clients left."""
        return []

    @abstractmethod
    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Delete all data of the measurement."""
