"""Measure the server's memory for names, holders, waiters and finished tokens. Run with ``-m``.

    python -m handfast_lab.bench.footprint
    python -m handfast_lab.bench.footprint --server /usr/bin/redis-server --number 100000

A private server gets the calls of the drivers for very many of each. Its ``used_memory`` grows, and the growth divided by their
number is the result, in bytes: keys, values, the table of keys and that of TTLs, with the waste of the allocator. Every case begins
with an empty server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from handfast.embedded import find_binary
from handfast.testing import ServerController
from handfast_lab.bench.instructions import Connection, loads, packed, permits, tokens

__all__ = ["CASES", "measure"]

BATCH = 500
"""Calls sent before their replies are read."""

LIMIT = 1_000_000
"""Permits of the semaphore whose holders are counted."""

Steps = Iterator[list[bytes]]


def held_names(number: int) -> Steps:
    """Hold locks, each under a name of its own."""
    yield [packed(permits("lock", f"order:{name}").acquire(b"%022d" % name)) for name in range(number)]


def released_names(number: int) -> Steps:
    """Hold them and release them: what is left is the fence, and the finished token."""
    yield from held_names(number)
    yield [packed(permits("lock", f"order:{name}").release(b"%022d" % name)) for name in range(number)]


def holders(number: int) -> Steps:
    """Hold permits of one semaphore."""
    yield [packed(permits("semaphore", limit=LIMIT).acquire(token)) for token in islice(tokens(), number)]


def finished(number: int) -> Steps:
    """Hold them and release them: what is left is the finished tokens."""
    yield from holders(number)
    yield [packed(permits("semaphore", limit=LIMIT).release(token)) for token in islice(tokens(), number)]


def waiters(number: int) -> Steps:
    """Wait for one lock."""
    yield [packed(permits("lock").acquire(token)) for token in islice(tokens(), number + 1)]


CASES = {
    "name, held": held_names,
    "name, released": released_names,
    "holder of a semaphore": holders,
    "waiter": waiters,
    "finished token": finished,
}


def measure(case: str, number: int, binary: str) -> float:
    """Return the bytes for each of so many."""
    lock = permits("lock")
    with ServerController(binary=binary) as server, Connection(Path(server.socket)) as connection:
        connection.ask(loads(lock.acquire(b""), lock.release(b"")))
        connection.ask([packed(lock.try_acquire(b"warm")), packed(lock.release(b"warm"))])
        server.admin.flushall()
        before = used(server)
        for commands in CASES[case](number):
            for begin in range(0, len(commands), BATCH):
                connection.ask(commands[begin : begin + BATCH])
        return (used(server) - before) / number


def used(server: ServerController) -> int:
    """Return the bytes that the server has in use."""
    return int(server.admin.info("memory")["used_memory"])


def main() -> int:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description="Measure the server's memory for names, holders, waiters and tokens.")
    parser.add_argument(
        "--server", default=find_binary(), help="the server's binary (default: as for handfast.embedded)"
    )
    parser.add_argument("--number", type=int, default=10_000, help="how many of each (default: 10,000)")
    options = parser.parse_args()
    for case in CASES:
        print(f"{case:<32}{measure(case, options.number, options.server):>8,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
