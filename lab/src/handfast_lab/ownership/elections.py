"""Elections while leaders resign, die, freeze and are cut off.

Three processes are candidates of many elections. A leader counts in Redis under the fence of the term: it reads a number, and writes the
next. No accepted write may be missing at the end. An observer in a process of its own sees who leads. The rivals are tooz, where
it is installed, and a loop around ``SET NX``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from math import inf
from typing import Any

import redis
import redis.asyncio

from handfast import AsyncHandfast, LeaseLost
from handfast.fencing import StaleFence, advance_fence, set_if_newer
from handfast.testing import FaultProxy
from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.ownership.spans import Ledger, doubles, idle, spread

__all__ = ["CONTENDERS", "MODES", "installed", "measure"]

MODES = "release", "kill", "freeze", "cut"
PROCESSES = 3
WRITE_S = 0.1
"""Seconds between two writes of a leader."""


# --- processes


def handfast_candidate(parent: Parent, url: str, names: list[str], ttl: float, me: str) -> None:
    """Be a candidate of all elections."""
    resign = {name: asyncio.Event() for name in names}

    async def lead(hf: AsyncHandfast, client: redis.asyncio.Redis, name: str) -> None:
        while True:
            with contextlib.suppress(LeaseLost, redis.RedisError, OSError):
                async with hf.election(name, ttl=ttl, value=me) as term:
                    began = time.monotonic() - term.held_for
                    parent.report("began", (name, term.fence))
                    counting = asyncio.create_task(count(parent, client, name, term.fence))
                    try:
                        resign[name].clear()
                        await resign[name].wait()
                    finally:
                        counting.cancel()
                        ended = began + term.held_for if term.lost else time.monotonic()
                        parent.report("ended", (name, term.fence, ended))

    async def run() -> None:
        threading.Thread(target=listen, args=(asyncio.get_running_loop(),), daemon=True).start()
        async with AsyncHandfast(url, label=me) as hf, redis.asyncio.Redis.from_url(url, protocol=3) as client:
            await asyncio.gather(*(lead(hf, client, name) for name in names))

    def listen(loop: asyncio.AbstractEventLoop) -> None:
        while True:
            loop.call_soon_threadsafe(resign[parent.receive()].set)

    asyncio.run(run())


async def count(parent: Parent, client: redis.asyncio.Redis, name: str, fence: int) -> None:
    """Count under a fence until it is refused."""
    key = f"count:{name}"
    try:
        await advance_fence(client, key, fence)
        while True:
            value = int(await client.get(key) or 0)
            await set_if_newer(client, key, str(value + 1), fence)
            parent.report("wrote", name)
            await asyncio.sleep(WRITE_S)
    except (StaleFence, redis.RedisError, OSError):
        pass


def observer(parent: Parent, url: str, names: list[str]) -> None:
    """Report each leader seen."""

    async def watch(hf: AsyncHandfast, name: str) -> None:
        async for leader in hf.election(name).observe():
            if leader is not None:
                parent.report("saw", (name, leader.fence))

    async def run() -> None:
        async with AsyncHandfast(url) as hf:
            await asyncio.gather(*(watch(hf, name) for name in names))

    asyncio.run(run())


def loop_candidate(parent: Parent, url: str, names: list[str], ttl: float, me: str) -> None:
    """Be a candidate as programs without a library are: ``SET NX``, and an EXPIRE every third of the ttl."""
    fences = itertools.count(1)

    def campaign(name: str) -> None:
        while True:
            with contextlib.suppress(redis.RedisError, OSError), redis.Redis.from_url(url) as client:
                fence = next(fences)
                while not client.set(f"loop:{name}", me, nx=True, px=int(ttl * 1000)):
                    time.sleep(ttl / 3)
                parent.report("began", (name, fence))
                try:
                    while client.get(f"loop:{name}") == me.encode():
                        client.pexpire(f"loop:{name}", int(ttl * 1000))
                        time.sleep(ttl / 3)
                finally:
                    parent.report("ended", (name, fence, time.monotonic()))

    for name in names:
        threading.Thread(target=campaign, args=(name,), daemon=True).start()
    while True:
        parent.receive()


def tooz_candidate(parent: Parent, url: str, names: list[str], ttl: float, me: str) -> None:
    """Be a candidate with tooz, which tells who is elected, and not who is elected no more."""
    from tooz import coordination  # type: ignore[import-not-found]  # where it is installed

    options = f"timeout={ttl:g}&lock_timeout={ttl:g}&membership_timeout={ttl:g}"
    coordinator = coordination.get_coordinator(f"{url}{'&' if '?' in url else '?'}{options}", me.encode())
    coordinator.start(start_heart=True)
    leading: dict[str, int] = {}
    fences = itertools.count(1)

    def elected(event: Any) -> None:
        name = event.group_id.decode()
        if name not in leading:
            leading[name] = next(fences)
            parent.report("began", (name, leading[name]))

    for name in names:
        with contextlib.suppress(coordination.GroupAlreadyExist):
            coordinator.create_group(name.encode()).get()
        coordinator.join_group(name.encode()).get()
        coordinator.watch_elected_as_leader(name.encode(), elected)
    while True:
        coordinator.run_watchers()
        time.sleep(ttl / 10)


def installed() -> list[str]:
    """Return the installed contenders."""
    return [name for name in CONTENDERS if name != "tooz" or find_spec("tooz")]


CONTENDERS: dict[str, Callable[..., None]] = {
    "handfast": handfast_candidate,
    "SET NX loop": loop_candidate,
    "tooz": tooz_candidate,
}


# --- the run


class Run:
    """Candidates of a contender, their proxies and their reports."""

    def __init__(self, contender: str, url: str, group: ProcessGroup, names: list[str], ttl: float) -> None:
        self.ledger = Ledger()
        self.written = dict.fromkeys(names, 0)
        self.seen: dict[tuple[str, int], float] = {}
        self._contender, self._url, self._group, self._names, self._ttl = contender, url, group, names, ttl
        self._number = itertools.count(1)
        self.proxies: dict[ChildProcess, FaultProxy] = {}
        self.started_at: dict[tuple[str, int], float] = {}

    def start(self) -> ChildProcess:
        """Start a candidate."""
        proxy = FaultProxy(self._url, tcp=True, record=False)
        name = f"c{next(self._number)}"
        child = self._group.start(CONTENDERS[self._contender], proxy.url, self._names, self._ttl, name, name=name)
        self.proxies[child] = proxy
        return child

    def observe(self) -> None:
        """Start an observer."""
        self._group.start(observer, self._url, self._names, name="observer")

    def follow(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Take reports for so long, or until something is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            for child, report in self._group.receive(0.01):
                self._take(child, report)

    def all_led(self) -> bool:
        """Whether each election has a leader."""
        return len(self.ledger.owners()) == len(self._names)

    def _take(self, child: ChildProcess, report: Any) -> None:
        self.ledger.note(child, report)
        if report.word == "wrote":
            self.written[report.value] += 1
        elif report.word == "saw":
            self.seen.setdefault(report.value, report.at)
        elif report.word == "began":
            self.started_at[report.value] = report.at
        elif report.word == "failed":
            raise RuntimeError(report.value)

    def end(self, child: ChildProcess) -> None:
        """Kill a candidate."""
        child.kill()
        self.ledger.died(child, time.monotonic())
        self._group.discard(child)
        self.proxies.pop(child).close()


def measure(contender: str, url: str, mode: str, *, names: int, ttl: float, failovers: int) -> dict[str, Any]:
    """Let leaders end until so many elections had to find another leader. Return figures."""
    listed = [f"e{number}" for number in range(names)]
    with ProcessGroup(preload=["handfast_lab.ownership.elections"]) as group:
        run = Run(contender, url, group, listed, ttl)
        children = [run.start() for _ in range(PROCESSES)]
        if contender == "handfast":
            run.observe()
        run.follow(20 + 3 * ttl, run.all_led)
        run.follow(ttl)
        gaps: list[float] = []
        while len(gaps) < failovers:
            victim = max(children, key=lambda child: len(run.ledger.owned(child)))
            led = run.ledger.owned(victim)
            at = time.monotonic()
            if mode == "kill":
                run.end(victim)
                children = [one for one in children if one is not victim]
                run.follow(30 + 3 * ttl, run.all_led)
                children.append(run.start())
            elif mode == "release":
                for name in led:
                    victim.send(name)
                    run.follow(0.02)
            elif mode == "freeze":
                victim.freeze()
                run.follow(ttl + 1.0)
                victim.thaw()
            else:
                with run.proxies[victim].black_hole():
                    run.follow(ttl + 1.0)
            run.follow(20 + 3 * ttl, run.all_led)
            run.follow(1.0 + ttl / 2)
            spans = run.ledger.so_far()
            found = _handoffs(spans, at) if mode == "release" else [gap - ttl for gap in idle(spans, at, led)]
            gaps += found
            if not found:
                break  # a rival that does not notice what it has lost
        written = _finish(run, children, url, listed)
        spans = run.ledger.close(time.monotonic())
        delays = [run.seen[key] - at for key, at in run.started_at.items() if key in run.seen]
        return {
            "contender": contender,
            "mode": mode,
            "ttl": ttl,
            "failovers": len(gaps),
            "doubles": len(doubles(spans)),
            "gap_ms": spread(gaps),
            "observed_ms": spread(delays),
            **written,
        }


def _handoffs(spans: list[Any], after: float) -> list[float]:
    """Return the seconds from the end of each term that ended after a moment to the next."""
    found = []
    for ended in (span for span in spans if span.began < after < span.ended < inf):
        following = [
            one.began for one in spans if one.thing == ended.thing and one.began >= ended.began and one is not ended
        ]
        if following:
            found.append(min(following) - ended.ended)
    return found


def _finish(run: Run, children: list[ChildProcess], url: str, names: list[str]) -> dict[str, int]:
    """End all candidates, and compare the reported writes with the stored numbers."""
    run.follow(1.0)
    for child in children:
        run.end(child)
    with redis.Redis.from_url(url) as client:
        there = [int(value or 0) for value in client.mget([f"count:{name}" for name in names])]
    lost = sum(max(0, run.written[name] - value) for name, value in zip(names, there, strict=True))
    return {"writes": sum(there), "lost_writes": lost}
