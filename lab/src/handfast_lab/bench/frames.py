"""Count the Python frames of Handfast that one uncontended acquire and its release enter on a warm client.

    python -m handfast_lab.bench.frames            the four counts
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
"""Acquires before the counted one: they load the script, open the connections and fill the caches."""


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


def count_sync(client: Handfast) -> tuple[list[str], list[str]]:
    """Return the frames of one acquire and of its release, in the calling thread."""
    lock = client.lock("frames")
    for _ in range(WARM_UP):
        lock.acquire().release()
    with recording() as acquire:
        lease = lock.acquire()
    with recording() as release:
        lease.release()
    return acquire, release


async def count_asyncio(client: AsyncHandfast) -> tuple[list[str], list[str]]:
    """Return the frames of one acquire and of its release, including callbacks of the event loop."""
    lock = client.lock("frames")
    for _ in range(WARM_UP):
        await (await lock.acquire()).release()
    with recording() as acquire:
        lease = await lock.acquire()
    with recording() as release:
        await lease.release()
    return acquire, release


def main(argv: list[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every frame")
    options = parser.parse_args(argv)

    async def on_loop(url: str) -> tuple[list[str], list[str]]:
        async with AsyncHandfast(url) as client:
            return await count_asyncio(client)

    with PrivateServer() as server, Handfast(server.url) as client:
        counts = {"sync": count_sync(client), "asyncio": asyncio.run(on_loop(server.url))}
    for api, (acquire, release) in counts.items():
        tell(f"{api}: {len(acquire)} frames for an acquire, {len(release)} for a release")
        for verb, frames in (("acquire", acquire), ("release", release)) if options.list else ():
            for number, frame in enumerate(frames, 1):
                tell(f"  {verb} {number:>2}  {frame}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
