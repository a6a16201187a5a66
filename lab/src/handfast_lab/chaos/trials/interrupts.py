"""R9: interrupt the sync API anywhere, as a Ctrl-C or a raising signal handler does; check that nothing is left.

Each operation is first interrupted at every point at which CPython may run a signal handler, as far as these points can
be counted. Then it is interrupted many times at random by a real signal, which also strikes while a call waits for the
server. Afterwards the caller gives back what it was given: an interrupted acquire returned nothing, an interrupted
release is called again. No holder and no waiter may remain then, and at the end no extra thread and no extra
connection.

One case cannot be guarded in Python. While a ``with`` block is being left, an interrupt can come before any code of the
library runs, and the caller does not call release again. Such a lease is no longer renewed and expires. The trial
counts these cases separately.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from typing import Any, NamedTuple

import redis

from handfast import AcquireTimeout, Handfast
from handfast.testing import ServerController, run_in_subprocess
from handfast.testing.injection import Run, interrupt_after, interrupt_at
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals import is_left
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import LEASE

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R9",)
COUNT = 10_000
"""Interrupts at random moments, and the maximum number at counted points, of which there are fewer."""

NEVER = 1 << 30
"""A step number beyond the last point of any operation."""

TTL = 2.0
"""Lease duration for Handfast, in seconds. A lease that is no longer renewed expires soon after the trial."""

LONGEST = 0.0008
"""Latest moment of a random interrupt, in seconds after the start: longer than most operations take."""

WAIT = 0.0015
"""Seconds that an acquire waits while another client holds the lock."""

REST = 1.0
"""Seconds that background cleanup may take."""

OURS = ("handfast._api", "handfast._drivers", "handfast._protocol", "handfast._engine", "handfast.records", "redis")
"""Packages interrupted for Handfast: all code of the library and of redis-py, but not the trial."""

PACKAGES = {
    "redis": ("redis",),
    "python-redis-lock": ("redis_lock", "redis"),
    "pottery": ("pottery", "redis"),
    "py-redis-semaphore": ("redis_semaphore", "redis"),
}
"""Packages interrupted for each rival, by distribution."""


def applies(contender: Contender) -> bool:
    """Return True if the contender has a sync API. Asyncio turns an interrupt into a cancellation: see `cancellations`."""
    return contender.sync is not None


class Notes(NamedTuple):
    """Results of one way to interrupt."""

    struck: int
    points: dict[str, int]
    """Number of points by operation, where they were counted."""
    left: list[str]
    """Leases and queue entries left behind."""
    leaving: list[str]
    """Leases left behind by an interrupt while a block was being left, the known limit."""
    immortal: list[str]
    """Those of `left` and `leaving` that remain after the ttl."""
    threads: int
    connections: int


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Interrupt each operation at every point, then `count` times at random."""
    figures = []
    for what, chance in (("interrupt at every point", None), ("interrupt at random", seed)):
        with ServerController() as server:
            notes: Notes = run_in_subprocess(_interrupt, contender, server.url, count, chance, on_progress=tell)
        figures.append(_figure(what, contender, notes, seed))
    return figures


def _figure(what: str, contender: Contender, notes: Notes, seed: int) -> Figure:
    measured: dict[str, float | str] = {
        **({"operations": len(notes.points)} if notes.points else {}),
        "left to run out while a block was left": len(notes.leaving),
        "still there after that time": len(notes.immortal),
        "threads left": notes.threads,
        "connections left": notes.connections,
    }
    bad = len(notes.left) + len(notes.immortal) + notes.threads + notes.connections
    return Figure(
        "R9",
        what,
        contender.name,
        notes.struck,
        bad,
        "leaks",
        measured,
        seed,
        examples_of(notes.left + notes.immortal),
        {f"points in {name}": points for name, points in notes.points.items()},
    )


# --- in the process that is interrupted


class Act(NamedTuple):
    """One call to interrupt, on one name."""

    call: Callable[[], Any]
    """A Python function, so that no interrupt falls between the end of the operation and the return to its caller."""
    give_back: Callable[[Any], object]
    """Called with the result of the call, or None. Afterwards nothing may remain on the server."""
    leaves: Callable[[], bool] = bool
    """Return whether the block had been entered, so that the interrupt may have come while it was left."""


class Operation(NamedTuple):
    """An operation to interrupt."""

    name: str
    begin: Callable[[str], Act]
    """Prepare the operation on the given name."""
    settled: bool = True
    """Whether each run takes the same steps, so that its points can be counted."""


def _interrupt(contender: Contender, url: str, times: int, seed: int | None, tell: Tell) -> Notes:
    """Interrupt at `times` random moments, or at every point if `seed` is None."""
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        cast = _Cast(contender, admin, tell)
        with _operations_of(contender, url) as operations:
            for operation in operations:  # warm up, so that connections, scripts and threads exist
                cast.play(operation, _calmly)
            threads, connections = threading.active_count(), len(admin.client_list())
            if seed is None:
                cast.everywhere([operation for operation in operations if operation.settled], times)
            else:
                cast.at_random(operations, times, random.Random(seed))  # noqa: S311 -- timing, not security
            return cast.notes(threads, connections)


def _calmly(call: Callable[[], Any]) -> Run[Any]:
    try:
        return Run((), 0, 0, "finished", call())
    except AcquireTimeout as error:
        return Run((), 0, 0, "failed", None, error)


@dataclass
class _Cast:
    """Runs operations and checks what they leave behind."""

    contender: Contender
    admin: redis.Redis
    tell: Tell
    numbers: Iterator[int] = field(default_factory=counting)
    struck: int = 0
    left: dict[str, str] = field(default_factory=dict)
    """By lock name: the operation and the point at which it was interrupted."""
    leaving: dict[str, str] = field(default_factory=dict)
    points: dict[str, int] = field(default_factory=dict)

    def everywhere(self, operations: list[Operation], most: int) -> None:
        """Interrupt at every point, or at `most` points spread evenly over all operations."""
        packages = OURS if self.contender.is_ours else PACKAGES[self.contender.distribution]
        within = [importlib.import_module(name) for name in packages]
        for operation in operations:
            points = self.play(operation, partial(interrupt_at, step=NEVER, within=within)).reached
            self.points[operation.name] = points
            for step in range(1, points + 1, max(1, -(-points * len(operations) // most))):
                self.play(operation, partial(interrupt_at, step=step, within=within))

    def at_random(self, operations: list[Operation], count: int, chance: random.Random) -> None:
        """Interrupt at random moments until `count` interrupts have taken effect."""
        while self.struck < count:
            self.play(chance.choice(operations), partial(interrupt_after, seconds=chance.uniform(1e-5, LONGEST)))

    def play(self, operation: Operation, strike: Callable[[Callable[[], Any]], Run[Any]]) -> Run[Any]:
        """Run an operation once, interrupt it, and check what it left."""
        name = f"interrupted-{next(self.numbers)}"
        act = operation.begin(name)
        run = strike(act.call)
        place = f"{operation.name}, at {_short(run.place)}"
        with contextlib.suppress(Exception):  # a contender may raise anything; only leftovers count
            act.give_back(run.result)
        self.struck += run.struck
        for _ in range(2):  # requests sent before are executed by the time of the second reply
            self.admin.ping()
        leaves = act.leaves()
        if self._holds(name) and not self._comes_true(lambda: not self._holds(name), 0.1 if leaves else REST):
            (self.leaving if leaves else self.left)[name] = place
            if not self.contender.is_ours:
                self.admin.flushall()  # count each leftover once
        self.tell(self.struck)
        return run

    def notes(self, threads: int, connections: int) -> Notes:
        """Return the results. By now no client holds the leases that were left."""
        gc.collect()
        immortal: list[str] = []
        if self.contender.is_ours and (self.left or self.leaving):
            time.sleep(1.5 * TTL)
            immortal = [f"for ever: {text}" for name, text in (self.left | self.leaving).items() if self._holds(name)]
        self._comes_true(lambda: len(self.admin.client_list()) <= connections and threading.active_count() <= threads)
        return Notes(
            self.struck,
            self.points,
            list(self.left.values()),
            list(self.leaving.values()),
            immortal,
            max(0, threading.active_count() - threads),
            max(0, len(self.admin.client_list()) - connections),
        )

    def _holds(self, name: str) -> bool:
        """Return whether the name has a holder or a waiter."""
        return is_left(self.contender, self.admin, name)

    def _comes_true(self, condition: Callable[[], bool], within: float = REST) -> bool:
        """Poll until the condition holds; return whether it did in time. Only Handfast cleans up in the background."""
        until = time.monotonic() + (within if self.contender.is_ours else 0)
        while not condition():
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True


def _short(place: str | None) -> str:
    """Shorten a code location to the part below the import root."""
    return re.sub(r"^.*/(?:site-packages|src|python\d[.\d]*)/", "", place or "nowhere")


# --- what is interrupted


def _operations_of(contender: Contender, url: str) -> AbstractContextManager[list[Operation]]:
    return _our_operations(url) if contender.is_ours else _rivals_operations(contender, url)


@contextlib.contextmanager
def _our_operations(url: str) -> Iterator[list[Operation]]:
    with Handfast(url) as hf, Handfast(url) as other:

        def lock(name: str) -> Any:
            return hf.lock(name, ttl=TTL)

        def takes(make: Callable[[str], Any]) -> Callable[[str], Act]:
            def begin(name: str) -> Act:
                thing = make(name)
                return Act(lambda: thing.acquire(), _release)  # noqa: PLW0108 -- see Act.call

            return begin

        def tries(name: str) -> Act:
            thing = lock(name)
            return Act(lambda: thing.try_acquire(), _release)  # noqa: PLW0108 -- see Act.call

        def waits(name: str) -> Act:
            thing, held = lock(name), other.lock(name).acquire()

            def give_back(lease: Any) -> None:
                _release(lease)
                held.release()

            return Act(lambda: thing.acquire(timeout=WAIT), give_back)

        def is_handed(name: str) -> Act:
            thing, held = lock(name), other.lock(name).acquire()

            def hand_over() -> None:
                time.sleep(LONGEST / 2)
                held.release()

            thread = threading.Thread(target=hand_over)
            thread.start()

            def give_back(lease: Any) -> None:
                _release(lease)
                thread.join()

            return Act(lambda: thing.acquire(timeout=5), give_back)

        def gives(name: str) -> Act:
            lease = lock(name).acquire()
            return Act(lambda: lease.release(), lambda _: lease.release())  # noqa: PLW0108 -- see Act.call

        def extends(name: str) -> Act:
            lease = lock(name).acquire()
            return Act(lambda: lease.extend(2 * TTL), lambda _: lease.release())

        def enters(make: Callable[[str], Any]) -> Callable[[str], Act]:
            def begin(name: str) -> Act:
                thing = make(name)

                entered = False

                def block() -> None:
                    nonlocal entered
                    with thing:
                        entered = True

                return Act(block, lambda _: None, lambda: entered)

            return begin

        with hf.lock("warm", ttl=0.1), other.lock("warm too", ttl=0.1):
            time.sleep(0.1)  # by now the renewal thread has its connection
        yield [
            Operation("acquire", takes(lock)),
            Operation("try_acquire", tries),
            Operation("acquire, held", waits),
            Operation("acquire, handed over", is_handed, settled=False),
            Operation("release", gives),
            Operation("extend", extends),
            Operation("with", enters(lock)),
            Operation("acquire of a semaphore", takes(lambda name: hf.semaphore(name, 3, ttl=TTL))),
            Operation("acquire to read", takes(lambda name: hf.rwlock(name, ttl=TTL).read())),
            Operation("acquire to write", takes(lambda name: hf.rwlock(name, ttl=TTL).write())),
            Operation("acquire again and again", takes(lambda name: hf.rlock(name, ttl=TTL))),
            Operation("acquire of two locks", takes(lambda name: hf.lock_all([name, "another"], ttl=TTL))),
        ]


def _release(lease: Any) -> None:
    if lease is not None:
        lease.release()


@contextlib.contextmanager
def _rivals_operations(contender: Contender, url: str) -> Iterator[list[Operation]]:
    """Yield the library's own methods, without a wrapper that could be interrupted."""
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(contender.client(url))

        def native(name: str, *, taken: bool = False) -> Any:
            """Return a lock of a client that works. A client that has lost all its connections is replaced."""
            nonlocal client
            for _ in range(2):
                probe: Any = client.lock("probe", LEASE)
                with contextlib.suppress(Exception):
                    probe.acquire(0)
                    probe.release()
                    break
                client = opened.enter_context(contender.client(url))
            lock: Any = client.lock(name, LEASE)
            made = lock.native
            if taken:
                made.acquire(blocking=False)
            return made

        def tries(name: str) -> Act:
            lock = native(name)
            return Act(lambda: lock.acquire(blocking=False), lambda taken: taken and lock.release())

        def gives(name: str) -> Act:
            lock = native(name, taken=True)
            return Act(lambda: lock.release(), lambda _: lock.release())  # noqa: PLW0108 -- see Act.call

        def extends(name: str) -> Act:
            lock = native(name, taken=True)
            calls: dict[str, Callable[[], Any]] = {
                "redis": lambda: lock.extend(60),
                "python-redis-lock": lambda: lock.extend(60),
                "pottery": lambda: lock.extend(),  # noqa: PLW0108 -- see Act.call
                "py-redis-semaphore": lambda: lock.refresh(),  # noqa: PLW0108 -- see Act.call
            }
            return Act(calls[contender.distribution], lambda _: lock.release())

        yield [Operation("try_acquire", tries), Operation("release", gives), Operation("extend", extends)]
