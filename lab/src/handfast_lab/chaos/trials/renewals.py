"""R27: renewals that the server executes after the release of the lease has returned.

Such a renewal is wasted at best. At worst it extends the lease of the next holder. The leases are so short that they
are renewed constantly. Each is held for a random time, so that releases race with renewals. Each lock is used once, so
that its name identifies the lease of a renewal.

The order of execution is read from the server with MONITOR. When a release has returned, its caller marks this with an
ECHO, after a round trip that lets everything sent before be executed first.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, opened, settled
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.children import run_in_subprocess
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R27",)
COUNT = 100_000
"""Releases. Where leases cannot be as short as Handfast's, there are fewer in the same time."""

TTL = 0.03
"""Lease duration in seconds; the lease is renewed about a hundred times a second."""

HOLDERS = 24
"""Threads or tasks that hold leases at the same time."""

LONGEST = 0.5
"""Longest hold as a fraction of the ttl: longer than the time between two renewals, a third or a quarter of the ttl."""

SLOW_LONGEST = 0.75
"""The same for libraries that renew a lease after two thirds of its ttl."""

RETRY_FOR = 5.0
"""Timeout of an acquire in seconds, and the time after which a task gives up on a release."""

AFTERWARDS = 0.2
"""Seconds for which late renewals are awaited at the end."""

TIMEOUT = 3600.0
"""Seconds within which all holders must be done."""

END = "renewed-end"
"""The mark after which the monitor reads no further."""


def applies(contender: Contender) -> bool:
    """Return True if the contender renews its leases."""
    return "renewal" in contender.has


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Acquire and release about `count` times, and report late renewals."""
    ttl = max(TTL, contender.shortest_ttl)
    soak = Soak(contender, max(1, round(count * TTL / ttl)), seed, progress)
    with ServerController() as server, _Monitor(server.url, contender.wire().extends) as monitor:
        load = _Load(contender, soak.count, seed, ttl)
        lost, failed = run_in_subprocess(_hold_and_release, load, server.url, on_progress=progress)
        monitor.join()
    soak.wrong = [f"renewed-{number:07}: renewed after its release had returned" for number in monitor.late] + failed
    measured: dict[str, float | str] = {
        "renewals in all": monitor.renewals,
        "leases that were renewed": len(monitor.renewed),
        "ttl, s": ttl,
        "lost or stuck": lost,
    }
    return [soak.figure("R27", "renewal after release", "late renewals", measured, tried=soak.count)]


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
            rb'"EVALSHA" "(?:%s)"[^\n]*?renewed-(\d{7})|"ECHO" "renewed-(\d{7}|end)"' % digests, re.IGNORECASE
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
            if released == b"end":
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


class _Marker:
    """Marks in the server's order of execution that a release has returned. It blocks, so that nothing is sent between."""

    def __init__(self, url: str) -> None:
        self._socket = _connect(url)

    def mark(self, word: str) -> None:
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


class _Load(NamedTuple):
    contender: Contender
    tries: int
    seed: int
    ttl: float


def _hold_and_release(load: _Load, url: str, progress: Progress) -> tuple[int, list[str]]:
    """Return how many leases were lost, and what else went wrong."""
    holders = _Holders(load, url, progress)
    holders.soak.api.run(holders.run())
    _Marker(url).mark(END)
    return len(holders.lost), holders.soak.wrong


class _Holders:
    """The threads or tasks that hold leases."""

    def __init__(self, load: _Load, url: str, progress: Progress) -> None:
        self.soak = Soak(load.contender, load.tries, load.seed, progress)
        self.lost: list[int] = []
        self._url, self._ttl = url, load.ttl
        self._longest = load.ttl * (SLOW_LONGEST if load.ttl > TTL else LONGEST)

    async def run(self) -> None:
        """Acquire and release until enough was done."""
        async with opened(self.soak.contender, self._url) as client:
            await self.soak.run([partial(self._hold, client, number) for number in range(HOLDERS)], TIMEOUT)
            await self.soak.api.sleep(AFTERWARDS)

    async def _hold(self, client: Any, holder: int) -> None:
        """Hold and release leases, each for a time such that about every second one is renewed once."""
        soak, chance = self.soak, self.soak.chance(holder)
        with contextlib.closing(_Marker(self._url)) as marker:
            while (number := soak.claim()) is not None:
                name = f"renewed-{number:07}"
                lock = client.lock(name, self._ttl, renew=True)
                await settled(lock.acquire(RETRY_FOR))
                await soak.api.sleep(chance.uniform(0, self._longest))
                returned, kept = await _released(soak.api, lock)
                if returned:
                    marker.mark(name)
                if not kept:
                    self.lost.append(number)
                soak.step()


async def _released(api: Api, lock: Any) -> tuple[bool, bool]:
    """Release the lock. Return whether the call returned, and whether the lease was held until then.

    A lease may expire because the machine is too busy. In a release that has not returned, a renewal is right.
    """
    try:
        return True, bool(await api.within(lock.release(), RETRY_FOR))
    except TimeoutError:
        return False, False
    except Exception:  # noqa: BLE001 -- a contender may raise anything; the lease is lost
        return True, False
