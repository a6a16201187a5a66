"""R27: renewals of a lease that the server executes after its release has returned.

Such a renewal was sent for a lease that its holder had given up: at best it is a waste, at worst it keeps alive what
somebody else was to have. Leases are so short that they are renewed all the time, and each is held for a random while, so
that releases race with renewals. Each lock is used once, so its name tells whose renewal it is.

What the server executed, and in which order, it says itself (MONITOR). When a release has returned, its caller says so to
the server in words of its own, after a round trip that lets whatever had been sent before come first.
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
"""Releases. Where leases cannot be as short as ours, there are fewer in the same time."""

TTL = 0.03
"""Seconds of a lease: it is renewed a hundred times a second."""

HANDS = 24
"""Threads or tasks that hold at the same time."""

LONGEST = 0.5
"""The longest time for which a lease is held, in leases: longer than what renews it waits, be it a third or a quarter."""

SLOW_LONGEST = 0.75
"""The same where a lease is renewed after two thirds of it."""

RETRY_FOR = 5.0
"""Seconds after which a task gives up on a release, as it does on an acquire."""

AFTERWARDS = 0.2
"""Seconds for which renewals are still waited for at the end."""

OVER = "renewed-over"


def applies(contender: Contender) -> bool:
    """Whether it renews what it holds."""
    return "renewal" in contender.has


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Release so often."""
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
    """What is to be done."""

    contender: Contender
    ttl: float
    tries: int
    seed: int

    @property
    def longest(self) -> float:
        """Seconds for which a lease is held at most: so long that about every second one is renewed once."""
        return self.ttl * (SLOW_LONGEST if self.ttl > TTL else LONGEST)


# --- what the server says


class _Monitor:
    """Listens to what the server executes, and notes renewals."""

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
        """Wait until it has heard all that was done."""
        self._thread.join(60)

    def _listen(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 20):
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline and self._read(lines):
                    return

    def _read(self, lines: bytes) -> bool:
        """Note what is in them; whether that was all."""
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
    """Tells the server that a release has returned, so that it says so in its order."""

    def __init__(self, url: str) -> None:
        self._socket = _connect(url)

    def say(self, word: str) -> None:
        """Say it."""
        # What was sent to the server before is on its way through other sockets. When it has answered a PING, it has looked
        # at all sockets that had something to read by then.
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
    """What all hands share."""

    plan: Plan
    url: str
    tell: Tell
    numbers: Iterator[int] = field(default_factory=counting)
    lost: list[int] = field(default_factory=list)
    """Those that were over before, since the machine was too busy, or that could not be released."""

    def chance(self, hand: int) -> random.Random:
        return random.Random(f"{self.plan.seed}/{hand}")  # noqa: S311 -- how long something is held is no secret


def _hold_and_release(plan: Plan, url: str, tell: Tell) -> int:
    """Do it; how many were lost."""
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
            except Exception:  # noqa: BLE001 -- whatever a contender raises, it has lost it
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
                announcer.say(name)  # the loop waits meanwhile: nothing can be sent before it is said
            else:
                releasing.cancel()  # it has not returned, so whatever is renewed is renewed rightly
            if not releasing.done() or releasing.exception() or not releasing.result():
                work.lost.append(number)
            work.tell(number)
