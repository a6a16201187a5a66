"""Count the Python frames of Handfast that calls of a warm client enter when no other client wants anything.

    python -m handfast_lab.bench.frames            the counts
    python -m handfast_lab.bench.frames --list     every frame, in the order of entry

A frame counts if its code is in the package's folder; frames of redis-py, asyncio and the standard library do not
count. It counts each time that it is entered; a generator or coroutine also when it is resumed. Unlike timings the
counts have no noise, so an additional layer shows here first.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import handfast
from handfast import AsyncHandfast, Handfast
from handfast.embedded import PrivateServer

__all__ = ["count_asyncio", "count_sync", "main"]

PACKAGE = str(Path(handfast.__file__).parent)
WARM_UP = 20
"""Calls of each kind; the last call counts. Earlier calls load scripts, open connections and fill caches."""


@contextmanager
def recording() -> Iterator[list[str]]:
    """Collect the frames of the package that this thread enters in the block, as "file:function"."""
    frames: list[str] = []

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            frames.append(f"{code.co_filename[len(PACKAGE) + 1 :]}:{code.co_qualname}")

    sys.setprofile(on_event)
    try:
        yield frames
    finally:
        sys.setprofile(None)


def count_sync(client: Handfast) -> dict[str, list[str]]:
    """Return the frames of each call, in the calling thread."""
    lock, limiter, once = client.lock("frames"), client.limiter("frames", "1000000/h"), client.once("frames", keep=60)

    def work() -> str:
        return ""

    def block() -> None:
        with lock:
            pass

    calls = _calls(block, limiter, once, work)
    counts: dict[str, list[str]] = {}
    for _ in range(WARM_UP):
        with recording() as counts["acquire"]:
            lease = lock.acquire()
        with recording() as counts["release"]:
            lease.release()
        for name, call in calls.items():
            with recording() as counts[name]:
                call()
    return counts


async def count_asyncio(client: AsyncHandfast) -> dict[str, list[str]]:
    """Return the frames of each call, including callbacks of the event loop."""
    lock, limiter, once = client.lock("frames"), client.limiter("frames", "1000000/h"), client.once("frames", keep=60)

    async def work() -> str:
        return ""

    async def block() -> None:
        async with lock:
            pass

    calls = _calls(block, limiter, once, work)
    counts: dict[str, list[str]] = {}
    for _ in range(WARM_UP):
        with recording() as counts["acquire"]:
            lease = await lock.acquire()
        with recording() as counts["release"]:
            await lease.release()
        for name, call in calls.items():
            with recording() as counts[name]:
                await call()
    return counts


def _calls(block: Callable[[], Any], limiter: Any, once: Any, work: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Return the calls that are counted as a whole, by their names."""
    return {"with": block, "limiter": limiter.try_acquire, "once, found": lambda: once.run(work)}


def main(argv: list[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every frame")
    options = parser.parse_args(argv)

    async def on_loop(url: str) -> dict[str, list[str]]:
        async with AsyncHandfast(url) as client:
            return await count_asyncio(client)

    with PrivateServer() as server, Handfast(server.url) as client:
        apis = {"sync": count_sync(client), "asyncio": asyncio.run(on_loop(server.url))}
    for api, counts in apis.items():
        for call, frames in counts.items():
            tell(f"{api:<8} {call:<12} {len(frames):>3}")
            for number, frame in enumerate(frames if options.list else (), 1):
                tell(f"    {number:>2}  {frame}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
