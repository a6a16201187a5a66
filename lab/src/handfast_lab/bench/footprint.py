"""Measure the server's memory for names, holders, waiters, finished tokens and connections. Run with ``-m``.

    python -m handfast_lab.bench.footprint
    python -m handfast_lab.bench.footprint --server /usr/bin/redis-server --number 100000

A private server gets the calls of the drivers for very many of each. Its ``used_memory`` grows, and the growth divided
by their number is the result, in bytes: keys, values, the table of keys and that of TTLs, with the waste of the
allocator. Every case begins with an empty server. A connection is subscribed to an inbox of its own and has sent one
call; the kernel's memory for it is not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from handfast._engine.keys import KeySet
from handfast._engine.once import NEVER, OnceRequest
from handfast._engine.options import LeaseOptions
from handfast._engine.script import load
from handfast.embedded import find_binary
from handfast.testing import ServerController
from handfast_lab.bench.instructions import Connection, loads, pack_command, packed, permits, tokens

__all__ = ["CASES", "measure", "measure_connection"]

BATCH = 500
"""Calls sent before their replies are read."""

RESULT = b"x" * 100
"""What is recorded of each key of once."""

LIMIT = 1_000_000
"""Permits of the semaphore whose holders are counted."""

MOST_CONNECTIONS = 500
"""More are not opened: most systems let a process have 1,024 files."""

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


def once(key: int) -> OnceRequest:
    """Return what asks for a key of once."""
    place = KeySet("hf", "once", "order").keyed((str(key),))
    return OnceRequest(place, LeaseOptions(30_000, max_waiters=1), keep_ms=86_400_000, refresh_ms=NEVER)


def done_keys(number: int) -> Steps:
    """Do something once for each of these keys."""
    tokens_of_keys = [(key, b"%022d" % key) for key in range(number)]
    yield [packed(once(key).acquire(token)) for key, token in tokens_of_keys]
    yield [packed(once(key).ending_as("done", RESULT).release(token)) for key, token in tokens_of_keys]


def kept_results(number: int) -> Steps:
    """What is left of them when the server has forgotten their fences."""
    yield from done_keys(number)
    yield [pack_command("DEL", once(key).place.key("state")) for key in range(number)]


CASES = {
    "name, held": held_names,
    "name, released": released_names,
    "holder of a semaphore": holders,
    "waiter": waiters,
    "finished token": finished,
    "key of once, done": done_keys,
    "key of once, an hour later": kept_results,
}


def measure(case: str, number: int, binary: str) -> float:
    """Return the bytes for each of so many."""
    lock = permits("lock")
    with ServerController(binary=binary) as server, Connection(Path(server.socket)) as connection:
        connection.ask(loads(lock.acquire(b""), lock.release(b"")))
        connection.ask([packed(lock.try_acquire(b"warm")), packed(lock.release(b"warm"))])
        connection.ask(loads(once(0).acquire(b""), once(0).ending_as("done", b"").release(b"")))
        server.admin.flushall()
        before = used(server)
        for commands in CASES[case](number):
            for begin in range(0, len(commands), BATCH):
                connection.ask(commands[begin : begin + BATCH])
        return (used(server) - before) / number


def measure_connection(number: int, binary: str) -> float:
    """Return the bytes for each of so many connections."""
    call = permits("lock").acquire(b"t")
    with ServerController(binary=binary) as server, ExitStack() as stack:
        server.admin.script_load(load(call.prefix.name).source)
        before = used(server)
        for inbox in range(number):
            connection = stack.enter_context(Connection(Path(server.socket)))
            connection.ask(
                [pack_command("HELLO", "3"), pack_command("SUBSCRIBE", f"hf:inbox:{inbox:032}:0"), packed(call)]
            )
        return (used(server) - before) / number


def used(server: ServerController) -> int:
    """Return the bytes that the server has in use."""
    return int(server.admin.info("memory")["used_memory"])


def main() -> int:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description="Measure the server's memory for what it keeps.")
    parser.add_argument(
        "--server", default=find_binary(), help="the server's binary (default: as for handfast.embedded)"
    )
    parser.add_argument("--number", type=int, default=10_000, help="how many of each (default: 10,000)")
    options = parser.parse_args()
    for case in CASES:
        print(f"{case:<32}{measure(case, options.number, options.server):>8,.0f}", flush=True)
    found = measure_connection(min(options.number, MOST_CONNECTIONS), options.server)
    print(f"{'connection':<32}{found:>8,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
