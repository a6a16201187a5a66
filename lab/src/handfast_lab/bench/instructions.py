"""Count the instructions that a server executes for one cycle of each kind of request. Run with ``-m``.

    python -m handfast_lab.bench.instructions
    python -m handfast_lab.bench.instructions --server /usr/bin/redis-server --only "lock, free"
    python -m handfast_lab.bench.instructions --growth

The number of instructions does not depend on the load of the machine, so versions of a script can be compared on a busy
one. A server runs under ``valgrind --tool=callgrind``, receives a number of pipelined cycles through one connection,
and is shut down; a second run has more cycles. The difference divided by the number of additional cycles is the result,
so start-up and preparation cancel out. Results differ by up to 0.5 % between runs: the scripts sweep tombstones at
random, on average every 16th time, and Lua collects garbage at varying times.

``--growth`` counts the same beside 10, 1,000 and 100,000 waiters, names and permits. Another server makes and saves
these first, without valgrind.

A cycle uses the drivers' arguments and the digests of the scripts, so the figures include the parsing of commands. The
second column compares it with a lock without queue, fence and handoff: SET NX PX, and a script that compares and
deletes.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Self

from handfast._engine.calls import MultiRequest, PermitRequest, Request
from handfast._engine.constants import CLAIM_MS, WAIT_MS
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit, LimitRequest
from handfast._engine.objects import ObjectRequest
from handfast._engine.once import NEVER, OnceRequest
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import INCOMPLETE, ErrorReply, Reader
from handfast._engine.script import command, load, pack
from handfast._kinds import MAX_PERMITS
from handfast.embedded import find_binary

__all__ = [
    "CASES",
    "GROWTH",
    "NAIVE",
    "SIZES",
    "Case",
    "Connection",
    "among_names",
    "among_permits",
    "drive",
    "in_line",
    "loads",
    "measure",
    "packed",
    "permits",
    "tokens",
]

TTL_MS = 15 * CLAIM_MS
"""The default lease of 30 s, renewed."""

SHORT = 200
"""Cycles of the shorter run: enough for every growing sorted set to change its encoding."""

SIZES = 10, 1_000, 100_000
"""How many waiters, names or permits there are, to see what grows."""

HOUR_MS = 3_600_000
"""The lease of what is stored before: longer than a run."""

BATCH = 20
"""Cycles sent before their replies are read."""

WAITER = b"hf:inbox:0123456789abcdef:1 hf:control:0123456789abcdef host:4242"
"""The end of the last argument of an acquire: inbox, control channel and label of its client."""

COMPARE_AND_DELETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

Commands = list[bytes]


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of request to measure."""

    name: str
    begin: Commands
    """Commands sent before the cycles."""
    cycles: Callable[[], Iterator[Commands]]
    """Yields the commands of each cycle, without end."""
    more: int = 2000
    """Additional cycles of the longer run."""
    subscribes: bool = False
    """Whether a second connection subscribes to the waiter's inbox, so that releases hand the lock over."""
    stored: Callable[[], Iterator[bytes]] | None = None
    """Yields the commands that make what the server has from its start."""


def main() -> int:
    """Count all cases and print a table."""
    parser = argparse.ArgumentParser(
        description="Count the server's instructions for one cycle of each kind of request."
    )
    parser.add_argument(
        "--server", default=find_binary(), help="the server's binary (default: as for handfast.embedded)"
    )
    parser.add_argument("--only", default="", help="only cases whose names contain this text")
    parser.add_argument("--growth", action="store_true", help="count beside many waiters, names and permits instead")
    options = parser.parse_args()
    naive = measure(NAIVE, options.server)
    print(f"{NAIVE.name:<42}{naive:>12,}", flush=True)
    for case in GROWTH if options.growth else CASES:
        if options.only in case.name:
            found = measure(case, options.server)
            print(f"{case.name:<42}{found:>12,}{found / naive:>8.2f}", flush=True)
    return 0


def measure(case: Case, server: str) -> int:
    """Return the instructions of one cycle."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        if case.stored:
            _store(case.stored(), [server, *_settings(folder)], Path(folder, "s"))
        return round(
            (_collected(case, server, SHORT + case.more, folder) - _collected(case, server, SHORT, folder)) / case.more
        )


def _settings(folder: str) -> list[str]:
    return [
        "--port",
        "0",
        "--unixsocket",
        f"{folder}/s",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        folder,
        "--hz",
        "1",
    ]


def _store(commands: Iterator[bytes], server: list[str], path: Path) -> None:
    """Let a server execute the commands and save its data, which the next one in its folder loads."""
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as running:
        try:
            with Connection(path) as connection:
                while batch := list(islice(commands, 1000)):
                    connection.ask(batch)
                connection.ask([pack_command("SAVE")])
        finally:
            running.terminate()
    path.unlink(missing_ok=True)


def _collected(case: Case, server: str, cycles: int, folder: str) -> int:
    """Return the instructions of a server from its start to its end, with ``cycles`` cycles in between."""
    path = Path(folder, "s")
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
    with subprocess.Popen([*tool, server, *_settings(folder)], stdout=-3, stderr=subprocess.PIPE) as running:
        try:
            with Connection(path) as connection:
                connection.await_data()
                drive(case, connection, path, cycles)
                connection.send(pack_command("SHUTDOWN", "NOSAVE"))
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    path.unlink(missing_ok=True)
    found = re.search(rb"Collected : (\d+)", said)
    if found is None:
        raise RuntimeError(f"callgrind has counted nothing: {said.decode(errors='replace')}")
    return int(found[1])


def drive(case: Case, connection: Connection, path: Path, cycles: int) -> None:
    """Send the cycles of a case through a connection to the server at ``path``."""
    listener = Connection(path) if case.subscribes else None
    if listener:
        listener.ask([pack_command("SUBSCRIBE", WAITER.split()[0])])
    connection.ask(case.begin)
    sent = case.cycles()
    for _ in range(cycles // BATCH):
        connection.ask([part for _ in range(BATCH) for part in next(sent)])
    if listener:
        listener.close()


class Connection:
    """A socket that sends commands and reads one reply for each."""

    def __init__(self, path: Path) -> None:
        self._reader = Reader()
        self._socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 30
        while self._socket.connect_ex(str(path)):
            if time.monotonic() > deadline:
                raise TimeoutError("the server does not start")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def await_data(self) -> None:
        """Return when the server has loaded its data."""
        while True:
            try:
                self.ask([pack_command("PING")])
            except RuntimeError:
                time.sleep(0.2)
            else:
                break

    def ask(self, commands: Commands) -> None:
        """Send commands and read their replies. Raises RuntimeError for an error reply."""
        self.send(b"".join(commands))
        for _ in commands:
            while (frame := self._reader.frame()) is INCOMPLETE:
                self._reader.feed(self._socket.recv(1 << 16))
            if isinstance(frame, ErrorReply):
                raise RuntimeError(frame)  # noqa: TRY004 -- a reply of the server, not an argument


def pack_command(name: str, *args: str | bytes) -> bytes:
    """Return a command with its arguments as bytes."""
    return command(name, len(args)).evalsha + pack(args)


def packed(call: Call) -> bytes:
    """Return a call as a driver sends it to a server that has loaded the script."""
    return call.prefix.evalsha + call.packed + (call.record(WAITER) if call.waiter else b"")


def loads(*calls: Call) -> Commands:
    """Return the commands that load the scripts of these calls."""
    return [pack_command("SCRIPT", "LOAD", load(call.prefix.name).source) for call in calls]


def tokens() -> Iterator[bytes]:
    """Return an endless iterator of distinct tokens of the usual length."""
    return (b"%032d" % number for number in count())


def permits(kind: str, name: str = "a", limit: int = 1, weight: int = 1) -> PermitRequest:
    """Return a request for permits of one name."""
    return PermitRequest(KeySet("hf", kind, name), LeaseOptions(TTL_MS), limit=limit, weight=weight)


def several(number: int) -> MultiRequest:
    """Return a request for several locks."""
    places = [KeySet("hf", "lock", f"a{place}") for place in range(number)]
    return MultiRequest(places, LeaseOptions(TTL_MS, max_waiters=100_000))


def free(name: str, request: Request, others: int = 0, more: int = 2000) -> Case:
    """Acquire and release, with ``others`` other holders."""
    given = tokens()
    begin = loads(request.acquire(b""), request.release(b"")) + [
        packed(request.acquire(next(given))) for _ in range(others)
    ]

    def cycles() -> Iterator[Commands]:
        for token in tokens():
            yield [packed(request.acquire(b"c" + token)), packed(request.release(b"c" + token))]

    return Case(name, begin, cycles, more)


def handoff(name: str, *, renewed: bool = False) -> Case:
    """Enqueue a waiter for a lock, and let the holder release it, which hands it over; the waiter may renew its lease then."""
    request = permits("lock")

    def cycles() -> Iterator[Commands]:
        given = tokens()
        holder = next(given)
        for waiter in given:
            # A waiter confirms with the source, so that a server which has forgotten the script answers as well.
            confirm = request.confirm(waiter)
            renewal = [confirm.prefix.eval_source + confirm.packed] if renewed and confirm else []
            yield [packed(request.acquire(waiter)), packed(request.release(holder)), *renewal]
            holder = waiter

    begin = loads(request.acquire(b""), request.release(b""))
    return Case(name, [*begin, packed(request.acquire(next(tokens())))], cycles, subscribes=True)


def repeated(name: str, request: Request, others: int = 0) -> Case:
    """Renew the same lease in every cycle, with ``others`` other holders."""
    renew, given = request.renew_for(b"t", TTL_MS), tokens()
    holders = [packed(request.acquire(next(given))) for _ in range(others)]

    def cycles() -> Iterator[Commands]:
        while True:
            yield [packed(renew)]

    return Case(name, [*loads(request.acquire(b""), renew), *holders, packed(request.acquire(b"t"))], cycles)


def cancelled(name: str, request: Request) -> Case:
    """Enqueue a waiter behind a holder, and cancel its request."""

    def cycles() -> Iterator[Commands]:
        for token in tokens():
            yield [packed(request.acquire(token)), packed(request.cancel(token))]

    return Case(name, [*loads(request.acquire(b""), request.cancel(b"")), packed(request.acquire(b"t"))], cycles)


def each(name: str, *calls: Callable[[bytes], Call], before: Sequence[bytes] = (), subscribes: bool = False) -> Case:
    """Make these calls for each token."""

    def cycles() -> Iterator[Commands]:
        for token in tokens():
            yield [packed(call(token)) for call in calls]

    return Case(name, [*loads(*(call(b"") for call in calls)), *before], cycles, subscribes=subscribes)


def limited(name: str, *rates: Limit) -> Case:
    """Ask a limiter under these rates, and do not wait."""
    request = LimitRequest(KeySet("hf", "limiter", "a"), rates, max_waiters=1, timeout=None)
    return each(name, lambda token: request.acquire(token, 0))


def recorded() -> Case:
    """Find what a run has recorded."""
    place = KeySet("hf", "once", "a")
    request = OnceRequest(place, LeaseOptions(TTL_MS, max_waiters=1), keep_ms=HOUR_MS, refresh_ms=NEVER)
    record = request.ending_as("done", b"a result").release(b"t")
    before = [*loads(record), packed(request.acquire(b"t")), packed(record)]
    return each("once, recorded before", request.try_acquire, before=before)


def superseded() -> Case:
    """Take a burst over from the call before."""
    request = ObjectRequest(KeySet("hf", "debounce", "a"), quiet_ms=HOUR_MS, at_most_ms=math.inf)
    call = partial(request.call, "enter", left_us=HOUR_MS * 1000, ticket=0)
    return each("debounce, called and superseded", call, subscribes=True)


def collected() -> Case:
    """Leave an item and take it; then delete it, as the end of a run depends on a reply."""
    request = ObjectRequest(KeySet("hf", "debounce", "a"))
    put = partial(request.call, "put", item=b"an item of 20 bytes.")
    take = partial(request.call, "take", most=1000, within_us=1, until_us=0, first=0)
    gone = [packed(request.command("DEL", part)) for part in ("items", "queue")]

    def cycles() -> Iterator[Commands]:
        for token in tokens():
            yield [packed(put(token)), packed(take(token)), *gone]

    return Case("debounce, an item left and taken", loads(put(b""), take(b"")), cycles)


def naive() -> Case:
    """Acquire and release a lock without queue, fence and handoff, for comparison."""

    def cycles() -> Iterator[Commands]:
        for token in tokens():
            yield [
                pack_command("SET", "naive", token, "NX", "PX", str(TTL_MS)),
                pack_command("EVALSHA", digest, "1", "naive", token),
            ]

    loaded = pack_command("SCRIPT", "LOAD", COMPARE_AND_DELETE)
    digest = hashlib.sha1(COMPARE_AND_DELETE.encode(), usedforsecurity=False).hexdigest()
    return Case("SET NX PX, compare and delete", [loaded], cycles)


def lasting(kind: str, name: str, limit: int = 1) -> PermitRequest:
    """Return a request whose lease lasts for the whole run."""
    place = KeySet("hf", kind, name)
    return PermitRequest(place, LeaseOptions(HOUR_MS, max_waiters=MAX_PERMITS), limit=limit)


def in_line(number: int) -> Case:
    """Enter a queue of that length, and let the holder release the lock, which hands it to the first."""
    request = lasting("lock", "a")

    def stored() -> Iterator[bytes]:
        yield from loads(request.acquire(b""))
        for token in islice(tokens(), number + 1):
            yield packed(request.acquire(token)).replace(doubles(WAIT_MS), doubles(HOUR_MS))

    def cycles() -> Iterator[Commands]:
        newcomers, holders = (b"n" + token for token in tokens()), (b"n" + token for token in tokens())
        for holder, newcomer in zip(chain(islice(tokens(), number + 1), holders), newcomers, strict=True):
            yield [packed(request.acquire(newcomer)), packed(request.release(holder))]

    begin = loads(request.acquire(b""), request.release(b""))
    return Case(f"lock, entered and handed over, {number:,} wait", begin, cycles, subscribes=True, stored=stored)


def among(name: str, request: PermitRequest, others: Callable[[], Iterator[bytes]]) -> Case:
    """Acquire and release beside others."""

    def stored() -> Iterator[bytes]:
        yield from loads(request.acquire(b""))
        yield from others()

    return replace(free(name, request), stored=stored)


def among_names(number: int) -> Case:
    """Acquire and release a lock while so many others are held."""

    def others() -> Iterator[bytes]:
        return (packed(lasting("lock", f"order:{name}").acquire(b"%022d" % name)) for name in range(number))

    return among(f"lock, free, {number:,} other names", permits("lock"), others)


def among_permits(number: int) -> Case:
    """Acquire and release a permit while so many others are held."""

    def others() -> Iterator[bytes]:
        request = lasting("semaphore", "a", MAX_PERMITS)
        return (packed(request.acquire(token)) for token in islice(tokens(), number))

    return among(f"semaphore, {number:,} other permits", permits("semaphore", limit=MAX_PERMITS), others)


def owned() -> tuple[Case, ...]:
    """Return a term with two announcements, a member with two messages, a list of members, and a permit with a slot."""
    leads, joins, holds = permits("election"), permits("group", limit=MAX_PERMITS), permits("semaphore", limit=100)
    terms = ObjectRequest(leads.place)
    group = ObjectRequest(joins.place, latest=-1, known=-1, shown=1000)
    members, holders = ([packed(one.acquire(token)) for token in islice(tokens(), 20)] for one in (joins, holds))

    def announce(token: bytes, ends: int) -> Call:
        return terms.call("announce", fence=int(token[-8:] or 0), ends=ends, keep_ms=HOUR_MS, text="me  ")

    return (
        each("election, a term", leads.acquire, lambda t: announce(t, 0), leads.release, lambda t: announce(t, 1)),
        each(
            "group, joined and left, 20 members",
            *(lambda t: joins.acquire(b"c" + t), lambda _: group.call("ring")),
            *(lambda t: joins.release(b"c" + t), lambda _: group.call("ring")),
            before=members,
        ),
        each(
            "group, 20 members listed",
            lambda t: group.call("watch", t or b"t", wait_ms=0),
            before=[*loads(joins.acquire(b"")), *members],
        ),
        each(
            "semaphore, a permit with a slot, 20 out",
            *(lambda t: holds.acquire(b"c" + t), lambda t: holds.slot(b"c" + t, -1), lambda t: holds.release(b"c" + t)),
            before=holders,
        ),
    )


NAIVE = naive()

CASES = (
    free("lock, free", permits("lock")),
    handoff("lock, entered and handed over"),
    handoff("lock, entered, handed over and renewed", renewed=True),
    free("semaphore, 1 of 100, 20 out", permits("semaphore", limit=100), others=20),
    free("read lock, 20 readers", permits("rwlock", limit=MAX_PERMITS), others=20),
    free("2 locks, free", several(2)),
    free("10 locks, free", several(10), more=300),
    repeated("lock, renewed", permits("lock")),
    repeated("semaphore, renewed beside 20", permits("semaphore", limit=100), others=20),
    repeated("2 locks, renewed", several(2)),
    cancelled("lock, entered and cancelled", permits("lock")),
    cancelled("2 locks, entered and cancelled", several(2)),
    limited("limiter, admitted", Limit(MAX_PERMITS, HOUR_MS)),
    limited("limiter, admitted under 2 rates", Limit(MAX_PERMITS, HOUR_MS), Limit(MAX_PERMITS, 2 * HOUR_MS)),
    limited("limiter, refused", Limit(1, HOUR_MS)),
    limited("limiter of 2 metrics", Limit(MAX_PERMITS, HOUR_MS, "requests"), Limit(MAX_PERMITS, HOUR_MS, "tokens")),
    recorded(),
    superseded(),
    collected(),
    *owned(),
)

GROWTH = tuple(make(number) for make in (in_line, among_names, among_permits) for number in SIZES)


if __name__ == "__main__":
    sys.exit(main())
