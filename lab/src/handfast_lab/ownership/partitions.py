"""A partition while workers come, die and go.

Some processes work on many items. Every few seconds a process is killed, joins, or goes, in turn. The rival is tooz, where it is installed:
each member looks at a separate hash ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import redis

from handfast import AsyncHandfast
from handfast.testing import FaultProxy
from handfast_lab.children import ChildProcess, Parent, ProcessGroup
from handfast_lab.ownership.spans import Ledger, Span, doubles, spread

__all__ = ["CONTENDERS", "installed", "measure"]


def handfast_worker(parent: Parent, url: str, items: list[str], ttl: float, me: str) -> None:
    """Serve items until the parent says something, and go then."""

    async def serve(item: str, lease: Any) -> None:
        began = time.monotonic() - lease.held_for
        parent.report("began", (item, lease.fence))
        try:
            await asyncio.Event().wait()
        finally:
            ended = began + lease.held_for if lease.lost else time.monotonic()
            parent.report("ended", (item, lease.fence, ended))

    async def run() -> None:
        async with AsyncHandfast(url, label=me) as hf:
            working = asyncio.create_task(hf.partition("bench", items, ttl=ttl).run(serve))
            await asyncio.to_thread(parent.receive)
            working.cancel()
            await asyncio.wait([working])
        parent.report("gone")

    asyncio.run(run())


def tooz_worker(parent: Parent, url: str, items: list[str], ttl: float, me: str) -> None:
    """Work on what a hash ring of tooz says, looking ten times a ttl."""
    from tooz import coordination  # type: ignore[import-not-found]  # where it is installed
    from tooz.hashring import UnknownNode  # type: ignore[import-not-found]

    options = f"timeout={ttl:g}&lock_timeout={ttl:g}&membership_timeout={ttl:g}"
    coordinator = coordination.get_coordinator(f"{url}{'&' if '?' in url else '?'}{options}", me.encode())
    coordinator.start(start_heart=True)
    ring = coordinator.join_partitioned_group(b"bench")
    mine: dict[str, int] = {}
    fences = itertools.count(1)
    while True:
        if parent.has_sent:
            coordinator.leave_group(b"bench").get()
            coordinator.stop()
            for item, fence in mine.items():
                parent.report("ended", (item, fence, time.monotonic()))
            parent.report("gone")
            parent.receive()
        with contextlib.suppress(UnknownNode):  # a member that has left before it was seen
            coordinator.run_watchers()
        now = {item for item in items if ring.belongs_to_self(item)}
        for item in mine.keys() - now:
            parent.report("ended", (item, mine.pop(item), time.monotonic()))
        for item in now - mine.keys():
            mine[item] = next(fences)
            parent.report("began", (item, mine[item]))
        time.sleep(ttl / 10)


def installed() -> list[str]:
    """Return the installed contenders."""
    return [name for name in CONTENDERS if name != "tooz" or find_spec("tooz")]


CONTENDERS: dict[str, Callable[..., None]] = {"handfast": handfast_worker, "tooz": tooz_worker}


def measure(
    contender: str, url: str, *, items: int, processes: int, ttl: float, seconds: float, every: float = 5.0
) -> dict[str, Any]:
    """Let workers come and go for so long. Return figures."""
    listed = [f"item-{number}" for number in range(items)]
    ledger, numbers = Ledger(), itertools.count(1)
    killed: list[tuple[float, list[str]]] = []
    left: list[tuple[float, list[str]]] = []
    joined: list[tuple[float, int]] = []
    with (
        FaultProxy(url, tcp=True, record=False) as proxy,
        ProcessGroup(preload=["handfast_lab.ownership.partitions"]) as group,
    ):
        address = url if contender == "handfast" else proxy.url  # tooz needs a port
        children: list[ChildProcess] = []

        def start() -> None:
            name = f"w{next(numbers)}"
            children.append(group.start(CONTENDERS[contender], address, listed, ttl, name, name=name))

        def follow(duration: float) -> None:
            until = time.monotonic() + duration
            while time.monotonic() < until:
                for child, report in group.receive(0.01):
                    if report.word == "failed":
                        raise RuntimeError(report.value)
                    if report.word == "gone":
                        ledger.died(child, report.at)
                        group.discard(child)
                    else:
                        ledger.note(child, report)

        for _ in range(processes):
            start()
        follow(10 + 2 * ttl)
        calls = _calls(url)
        rest_at = time.monotonic()
        follow(5.0)
        rate = (_calls(url) - calls) / (time.monotonic() - rest_at) / processes
        began = time.monotonic()
        for number in itertools.count():
            if time.monotonic() > began + seconds:
                break
            at, what = time.monotonic(), number % 4
            if what == 0:
                victim = children.pop(0)
                killed.append((at, ledger.owned(victim)))
                victim.kill()
                ledger.died(victim, time.monotonic())
                group.discard(victim)
            elif what == 2:
                victim = children.pop(0)
                left.append((at, ledger.owned(victim)))
                victim.send("go")
            else:
                joined.append((at, len(children)))
                start()
            follow(every)
        follow(10 + 2 * ttl)
        balance = [len(ledger.owned(child)) for child in children]
        spans = ledger.close(time.monotonic())
    moved = [_moved(spans, at, every) * (count + 1) / items for at, count in joined]
    return {
        "contender": contender,
        "ttl": ttl,
        "kills": len(killed),
        "goings": len(left),
        "joins": len(joined),
        "doubles": len(doubles(spans)),
        "idle_after_kill_ms": spread(_idle(spans, killed)),
        "idle_after_leave_ms": spread(_idle(spans, left)),
        "idle_of_planned_moves_ms": spread(_planned(spans, joined, every)),
        "moved_per_ideal": round(sum(moved) / len(moved), 2) if moved else None,
        "calls_a_second_per_worker": round(rate, 2),
        "of_these_renewals": round(3 * items / processes / ttl, 2),
        "items_at_the_end": balance,
    }


def _calls(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        stats: dict[str, dict[str, int]] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def _starts(spans: list[Span]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for span in spans:
        found.setdefault(span.thing, []).append(span.began)
    return found


def _idle(spans: list[Span], events: list[tuple[float, list[str]]]) -> list[float]:
    """Return for how long each item had no worker after the end of a worker."""
    starts = _starts(spans)
    return [
        min(later) - at
        for at, items in events
        for item in items
        if (later := [one for one in starts[item] if one > at])
    ]


def _planned(spans: list[Span], joins: list[tuple[float, int]], every: float) -> list[float]:
    """Return the seconds between two workers of moved items after a join."""
    found, last = [], dict[str, Span]()
    for span in sorted(spans, key=lambda one: one.began):
        before = last.get(span.thing)
        if before and any(at < before.ended < at + every and at < span.began < at + every for at, _ in joins):
            found.append(span.began - before.ended)
        last[span.thing] = span
    return found


def _moved(spans: list[Span], at: float, every: float) -> int:
    return len({span.thing for span in spans if at < span.began < at + every})
