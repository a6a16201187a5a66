"""Find all names that are held, among the keys of strangers: the time that it takes, and what it costs the server.

Two servers hold the same names; one has many other keys besides. Both are looked through in turn, so that a slow minute
affects both: by `Handfast.names` in this process, and by ``handfast ls --json`` in one of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import redis

from handfast import AsyncHandfast, Handfast

__all__ = ["WAYS", "Look", "LookRow", "fill", "measure", "options", "summarize"]

TTL_S = 3600.0
"""Duration of the leases, in seconds: they outlast the run and are not renewed."""

BATCH = 10_000
"""Keys of strangers that are made in one call."""

LONG_US = 1000
"""Microseconds from which a command on the server counts as long."""

POPULATE = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'stranger:' .. i, string.rep('x', 64)) end"


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all names."""

    round: int
    strangers: int
    way: str
    found: int
    seconds: float
    server_s: float
    """Seconds of the server's CPU time."""
    calls: int
    """Commands that the server ran for it: SCANs, and calls that inspect several names."""
    long: int
    """Commands that took longer than a millisecond."""


@dataclass(frozen=True, slots=True)
class LookRow:
    """The medians of all rounds."""

    strangers: int
    way: str
    found: int
    seconds: float
    server_s: float
    calls: int
    long: int


def options() -> tuple[str, ...]:
    """Return the server options with which `measure` counts long commands."""
    return "--slowlog-log-slower-than", str(LONG_US), "--slowlog-max-len", "100000"


def fill(url: str, names: int, strangers: int) -> None:
    """Let one client hold that many locks, and make that many keys of strangers."""

    async def hold() -> None:
        async with AsyncHandfast(url) as hf:
            await asyncio.gather(*(hf.lock(f"order:{n}", ttl=TTL_S, renew=False).acquire() for n in range(names)))

    asyncio.run(hold())
    with redis.Redis.from_url(url) as client:
        for start in range(0, strangers, BATCH):
            client.eval(POPULATE, 0, start + 1, min(start + BATCH, strangers))


def measure(urls: Mapping[int, str], rounds: int) -> Iterator[Look]:
    """Look through each server in each way. ``urls`` are the servers by their numbers of strangers."""
    for number in range(rounds):
        for strangers, url in urls.items():
            for way, look in WAYS.items():
                with redis.Redis.from_url(url) as client:
                    client.config_resetstat()
                    client.slowlog_reset()
                    before, begin = _cpu(client), perf_counter()
                    found = look(url)
                    seconds, server_s = perf_counter() - begin, _cpu(client) - before
                    stats: Any = client.info("commandstats")
                    calls = sum(stats[f"cmdstat_{name}"]["calls"] for name in ("scan", "evalsha"))
                    yield Look(number, strangers, way, found, seconds, server_s, calls, int(client.slowlog_len()))


def summarize(looks: Sequence[Look]) -> list[LookRow]:
    """Return the medians for each server and each way."""
    groups: dict[tuple[int, str], list[Look]] = {}
    for one in looks:
        groups.setdefault((one.strangers, one.way), []).append(one)
    return [
        LookRow(
            strangers,
            way,
            min(one.found for one in group),
            median(one.seconds for one in group),
            median(one.server_s for one in group),
            round(median(one.calls for one in group)),
            round(median(one.long for one in group)),
        )
        for (strangers, way), group in groups.items()
    ]


def _cpu(client: redis.Redis) -> float:
    found: Any = client.info("cpu")
    return float(found["used_cpu_user"] + found["used_cpu_sys"])


def _names(url: str) -> int:
    with Handfast(url) as hf:
        return sum(1 for _ in hf.names())


def _command(url: str) -> int:
    command = [sys.executable, "-m", "handfast", "ls", "--json", "--url", url]
    return len(subprocess.run(command, capture_output=True, check=True).stdout.splitlines())


WAYS: dict[str, Callable[[str], int]] = {"hf.names()": _names, "handfast ls --json": _command}
"""The ways to look, each with a function that returns how many names it found."""
