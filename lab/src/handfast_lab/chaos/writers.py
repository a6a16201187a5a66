"""Processes that write under a lock and may be stopped while they do.

Each increments two counters on the server by reading and writing: one guarded by the fence of its lease and one
unguarded. The unguarded counter loses an update when two processes hold the lock at once. The guarded one refuses the
late write.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import redis

from handfast import AcquireTimeout
from handfast.fencing import StaleFence, advance_fence, set_if_newer
from handfast_lab.chaos.apis import api_of, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.killable import LockUser, LockUsers
from handfast_lab.children import ChildProcess, ProcessFailed
from handfast_lab.rivals.contender import Contender

__all__ = ["FENCED", "PLAIN", "WRITERS", "Task", "WriteCount", "Writer", "write"]

FENCED, PLAIN = "counter:fenced", "counter:plain"

TURN = 5.0
"""Timeout of one acquire in seconds, after which the writer checks the time."""


WRITERS = 3
"""Processes that write."""


def _nothing(_writers: Sequence[ChildProcess]) -> None:
    """Leave the writers alone."""


@dataclass(frozen=True)
class Task:
    """How processes write."""

    seconds: float
    ttl: float
    """Lease duration in seconds."""
    retry_for: float
    """Seconds that a process may take longer than it should."""
    prepare: Callable[[list[ChildProcess]], object] = _nothing
    """Called before the processes write."""
    disturb: Callable[[list[ChildProcess]], object] = _nothing
    """Called while they write."""


@dataclass
class WriteCount:
    """What writers did."""

    fenced: int = 0
    plain: int = 0
    refused: int = 0
    """Late writes that the fence refused."""
    lost: int = 0
    """Leases that were lost before they were released."""
    longest_wait: float = 0.0
    """Longest wait for the lock, in seconds."""
    errors: int = 0
    error: str = ""
    """The last error."""
    fenced_lost: int = 0
    """Fenced updates that the counter lacks at the end."""
    plain_lost: int = 0
    """The same without a fence."""
    failures: list[str] = field(default_factory=list)
    """What kept the writers from writing."""

    def add(self, other: WriteCount) -> None:
        """Add what another writer did."""
        self.fenced += other.fenced
        self.plain += other.plain
        self.refused += other.refused
        self.lost += other.lost
        self.longest_wait = max(self.longest_wait, other.longest_wait)
        self.errors += other.errors
        self.error = other.error or self.error

    def figure(self, contender: Contender, row: str, what: str, **measured: float) -> Figure:
        """Return the figure that compares the fenced updates with the counter."""
        lost = [f"{self.fenced_lost} of {self.fenced} fenced updates were lost"] if self.fenced_lost else []
        errors = [f"{self.errors} errors, the last of them {self.error}"] if self.errors else []
        return Figure(
            id=row,
            what=what,
            contender=contender.name,
            tried=self.fenced,
            bad=abs(self.fenced_lost) + len(errors) + len(self.failures),
            unit="lost updates",
            measured={
                **measured,
                "late writes refused by their fence": self.refused,
                "updates lost without a fence": self.plain_lost,
                "leases lost": self.lost,
                "longest wait for the lock, s": round(self.longest_wait, 2),
            },
            examples=examples_of([*self.failures, *lost, *errors]),
        )


class Writer(LockUser):
    """A client of Handfast that writes under a lock, or watches its lease, as ordered."""

    def begin(self, stack: contextlib.ExitStack) -> None:  # noqa: ARG002 -- each order opens a client of its own
        """Register the orders; each opens a client of its own."""
        self._api = api_of(self.contender)
        self.orders = {"write": self.write, "watch": self.watch, "set the clock": self.set_clock}

    def set_clock(self, ahead: float) -> None:
        """Shift this process's wall clock by `ahead` seconds."""
        wall, nanoseconds = time.time, time.time_ns
        time.time = lambda: wall() + ahead
        time.time_ns = lambda: nanoseconds() + round(ahead * 1e9)
        self.report("set")

    def write(self, name: str, ttl: float, until: float) -> None:
        """Write until the given moment of the monotonic clock, in seconds."""
        count = WriteCount()
        with redis.Redis.from_url(self.url) as conn:
            self._api.run(self._write(conn, name, ttl, until, count))
        self.report("written", count)

    async def _write(self, conn: redis.Redis, name: str, ttl: float, until: float, count: WriteCount) -> None:
        async with self._api.client(self.url) as client:
            lock = client.lock(name, ttl=ttl)
            while monotonic() < until:
                asked = monotonic()
                try:
                    lease = await settled(lock.acquire(timeout=TURN))
                    count.longest_wait = max(count.longest_wait, monotonic() - asked)
                    self._increment(conn, lease.fence, count)
                    count.lost += not await settled(lease.release())
                except AcquireTimeout:
                    pass
                except Exception as error:  # noqa: BLE001 -- any error is counted
                    count.errors += 1
                    count.error = f"{type(error).__name__}: {error}"

    def _increment(self, conn: redis.Redis, fence: int, count: WriteCount) -> None:
        plain: Any = conn.get(PLAIN)
        with contextlib.suppress(StaleFence):
            count.refused += 1
            advance_fence(conn, FENCED, fence)  # from here on an older fence cannot write
            fenced: Any = conn.get(FENCED)
            set_if_newer(conn, FENCED, int(fenced or 0) + 1, fence)
            count.refused -= 1
            count.fenced += 1
        conn.set(PLAIN, int(plain or 0) + 1)
        count.plain += 1

    def watch(self, name: str, ttl: float) -> None:
        """Hold a lease until this process has been stopped for longer than the ttl, then report `lost`."""
        self._api.run(self._watch(name, ttl))

    async def _watch(self, name: str, ttl: float) -> None:
        async with self._api.client(self.url) as client:
            lease = await settled(client.lock(name, ttl=ttl).acquire(timeout=TURN))
            self.report("acquired")
            seen = monotonic()
            while (now := monotonic()) - seen < ttl:
                seen = now
                await self._api.sleep(0.001)
            begun = monotonic()
            lost = lease.lost
            took = monotonic() - begun
            self.report("woke", {"lost": lost, "took": took})
            self.report("released", await settled(lease.release()))


def write(users: LockUsers, contender: Contender, task: Task) -> WriteCount:
    """Let processes write, and compare what they have written with the counters."""
    total = WriteCount()
    try:
        writers = users.new(contender, WRITERS)
        task.prepare(writers)
        until = monotonic() + task.seconds
        for writer in writers:
            writer.order("write", "counter", task.ttl, until)
        task.disturb(writers)
        for writer in writers:
            total.add(writer.expect("written", task.seconds + task.retry_for).value)
    except ProcessFailed as error:
        return WriteCount(failures=[str(error)])
    with redis.Redis.from_url(users.url) as conn:
        fenced, plain = (int(conn.get(key) or 0) for key in (FENCED, PLAIN))
    total.fenced_lost, total.plain_lost = total.fenced - fenced, total.plain - plain
    if not total.plain:
        total.failures.append("nothing was written")
    return total
