"""R27: renewals that the server executes after the release of the lease has returned.

Such a renewal is wasted at best. At worst it extends the lease of the next holder. The leases are so short that they
are renewed constantly. Each is held for a random time, so that releases race with renewals. Each lock is used once, so
that its name identifies the lease of a renewal.

The order of execution is read from the server with MONITOR. When a release has returned, its caller marks this with an
ECHO, after a round trip that lets everything sent before be executed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count as counting
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from handfast.testing import ServerController, run_in_subprocess
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import AioClient, Client

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R27",)
COUNT = 100_000
"""Releases. Where leases cannot be as short as Handfast's, there are fewer in the same time."""

TTL = 0.03
"""Lease duration in seconds; the lease is renewed about a hundred times a second."""

HANDS = 24
"""Threads or tasks that hold leases at the same time."""

LONGEST = 0.5
"""Longest hold as a fraction of the ttl: longer than the time between two renewals, a third or a quarter of the ttl."""

SLOW_LONGEST = 0.75
"""The same for libraries that renew a lease after two thirds of its ttl."""

RETRY_FOR = 5.0
"""Timeout of an acquire in seconds, and the time after which a task gives up on a release."""

AFTERWARDS = 0.2
"""Seconds for which late renewals are awaited at the end."""

OVER = "renewed-over"


def applies(contender: Contender) -> bool:
    """Return True if the contender renews its leases."""
    return "renewal" in contender.has


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Acquire and release about `count` times, and report late renewals."""
    ttl = max(TTL, contender.shortest_ttl)
    plan = Plan(contender, ttl, max(1, round(count * TTL / ttl)), seed)
    with ServerController() as server, _Monitor(server.url, contender.wire().extends) as monitor:
        lost: int = run_in_subprocess(_hold_and_release, plan, server.url, on_progress=tell)
        monitor.join()
    wrong = [f"renewed-{number:07}: renewed after its release had returned" for number in monitor.late]
    measured: dict[str, float | str] = {
        "renewals in all": monitor.renewals,
        "leases that were renewed": len(monitor.renewed),
        "ttl, s": ttl,
        "lost or stuck": lost,
    }
    late, examples = len(monitor.late), examples_of(wrong)
    what, unit = "renewal after release", "late renewals"
    return [Figure("R27", what, contender.name, plan.tries, late, unit, measured, seed, examples)]


class Plan(NamedTuple):
    """What the holding process does."""

    contender: Contender
    ttl: float
    tries: int
    seed: int

    @property
    def longest(self) -> float:
        """Longest hold in seconds: such that about every second lease is renewed once."""
        return self.ttl * (SLOW_LONGEST if self.ttl > TTL else LONGEST)


# --- what the server executes


class _Monitor:
    """Reads the MONITOR stream and records renewals."""

    def __init__(self, url: str, renewing: frozenset[str]) -> None:
        self._url = url
        self.renewals = 0
        self.renewed: set[int] = set()
        self.late: list[int] = []
        self._released: set[int] = set()
        digests = "|".join(sorted(renewing)).encode()
        self._seen = re.compile(
            rb'"EVALSHA" "(?:%s)"[^\n]*?renewed-(\d{7})|"ECHO" "renewed-(\d{7}|over)"' % digests, re.IGNORECASE
        )
        self._thread = threading.Thread(target=self._listen, name="torture-monitor", daemon=True)

    def __enter__(self) -> Self:
        self._socket = _connect(self._url)
        self._socket.sendall(b"*1\r\n$7\r\nMONITOR\r\n")
        self._socket.recv(64)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def join(self) -> None:
        """Wait until the end of the run was seen in the stream."""
        self._thread.join(60)

    def _listen(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 20):
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline and self._read(lines):
                    return

    def _read(self, lines: bytes) -> bool:
        """Record the renewals in these lines; return True at the end of the run."""
        for found in self._seen.finditer(lines):
            renewal, released = found.groups()
            if released == b"over":
                return True
            if released is not None:
                self._released.add(int(released))
                continue
            number = int(renewal)
            self.renewals += 1
            self.renewed.add(number)
            if number in self._released:
                self.late.append(number)
        return False


def _connect(url: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(urlsplit(url).path)
    return connection


class _Announcer:
    """Marks in the server's order of execution that a release has returned."""

    def __init__(self, url: str) -> None:
        self._socket = _connect(url)

    def say(self, word: str) -> None:
        """Send the mark as an ECHO."""
        # Earlier requests are on their way through other sockets. A reply to PING means that the server has read all
        # sockets that were readable by then.
        self._ask(b"*1\r\n$4\r\nPING\r\n")
        self._ask(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(word), word.encode()))

    def close(self) -> None:
        self._socket.close()

    def _ask(self, request: bytes) -> None:
        self._socket.sendall(request)
        if not self._socket.recv(256):
            raise ConnectionError("the server is gone")


# --- in the process that holds


@dataclass
class _Work:
    """The state that all threads or tasks share."""

    plan: Plan
    url: str
    tell: Tell
    numbers: Iterator[int] = field(default_factory=counting)
    lost: list[int] = field(default_factory=list)
    """Leases that had expired, because the machine was too busy, or could not be released."""

    def chance(self, hand: int) -> random.Random:
        return random.Random(f"{self.plan.seed}/{hand}")  # noqa: S311 -- test data, not security


def _hold_and_release(plan: Plan, url: str, tell: Tell) -> int:
    """Run the plan; return how many leases were lost."""
    work = _Work(plan, url, tell)
    if plan.contender.sync is not None:
        with plan.contender.sync(url) as client:
            _in_threads(work, client)
            time.sleep(AFTERWARDS)
    elif plan.contender.aio is not None:
        asyncio.run(_in_tasks(work, plan.contender.aio(url)))
    _Announcer(url).say(OVER)
    return len(work.lost)


def _in_threads(work: _Work, client: Client) -> None:
    with ThreadPoolExecutor(HANDS) as threads:
        hands = [threads.submit(_release_again_and_again, work, client, hand) for hand in range(HANDS)]
        for hand in hands:
            hand.result()


def _release_again_and_again(work: _Work, client: Client, hand: int) -> None:
    chance, plan = work.chance(hand), work.plan
    with contextlib.closing(_Announcer(work.url)) as announcer:
        while (number := next(work.numbers)) < plan.tries:
            name = f"renewed-{number:07}"
            lock = client.lock(name, plan.ttl, renew=True)
            lock.acquire(RETRY_FOR)
            time.sleep(chance.uniform(0, plan.longest))
            try:
                kept = lock.release()
            except Exception:  # noqa: BLE001 -- a contender may raise anything; the lease is lost
                kept = False
            announcer.say(name)
            if not kept:
                work.lost.append(number)
            work.tell(number)


async def _in_tasks(work: _Work, opening: AbstractAsyncContextManager[AioClient]) -> None:
    async with opening as client:
        async with asyncio.TaskGroup() as group:
            for hand in range(HANDS):
                group.create_task(_release_in_a_task(work, client, hand))
        await asyncio.sleep(AFTERWARDS)


async def _release_in_a_task(work: _Work, client: AioClient, hand: int) -> None:
    chance, plan = work.chance(hand), work.plan
    with contextlib.closing(_Announcer(work.url)) as announcer:
        while (number := next(work.numbers)) < plan.tries:
            name = f"renewed-{number:07}"
            lock = client.lock(name, plan.ttl, renew=True)
            await lock.acquire(RETRY_FOR)
            await asyncio.sleep(chance.uniform(0, plan.longest))
            releasing = asyncio.ensure_future(lock.release())
            await asyncio.wait((releasing,), timeout=RETRY_FOR)
            if releasing.done():
                announcer.say(name)  # blocks the loop, so that nothing is sent in between
            else:
                releasing.cancel()  # it has not returned, so a renewal would be right
            if not releasing.done() or releasing.exception() or not releasing.result():
                work.lost.append(number)
            work.tell(number)
