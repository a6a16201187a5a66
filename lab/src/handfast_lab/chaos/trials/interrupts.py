"""R9: a Ctrl-C, or a signal handler that raises, anywhere in the sync API: whatever was under way leaves nothing behind.

Each operation is first interrupted at every point at which CPython lets a signal handler run, as far as these can be counted
through, then many times at random by a real signal, which also strikes while a call waits for the server. Afterwards its
caller gives back what it was given: an acquire that was interrupted gave nothing, a release that was interrupted is called
again. Then nothing is to be held and nobody to stand in line, and at the end no thread and no connection is to be left.

One thing cannot be guarded in Python: while a ``with`` block is being left, an interrupt can come before any code of ours, and
nobody calls again. The lease is then renewed no more and runs out by itself. How often that happened is counted apart.
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
"""Interrupts at random moments, and at most so many at points that can be counted: there are fewer of these."""

NEVER = 1 << 30
"""A point that no operation comes to."""

TTL = 2.0
"""Seconds of a lease of ours: what is not renewed any more is gone soon after the trial."""

LONGEST = 0.0008
"""Seconds after which a random interrupt comes at the latest: longer than most operations take."""

WAIT = 0.0015
"""Seconds that a caller waits for what others hold."""

REST = 1.0
"""Seconds that what goes on in the background is given to clean up."""

OURS = ("handfast._api", "handfast._drivers", "handfast._protocol", "handfast._engine", "handfast.records", "redis")
"""What of ours is interrupted: everything but the trials themselves."""

PACKAGES = {
    "redis": ("redis",),
    "python-redis-lock": ("redis_lock", "redis"),
    "pottery": ("pottery", "redis"),
    "py-redis-semaphore": ("redis_semaphore", "redis"),
}
"""What of a rival is."""


def applies(contender: Contender) -> bool:
    """In asyncio an interrupt arrives as a cancellation: see `cancellations`."""
    return contender.sync is not None


class Notes(NamedTuple):
    """What came of one way to interrupt."""

    struck: int
    points: dict[str, int]
    """How many points each operation has, where that is known."""
    left: list[str]
    """What was left behind."""
    leaving: list[str]
    """The same, where a block was interrupted while it was left: there it is known."""
    immortal: list[str]
    """Of all that, what is still there after the lease's time."""
    threads: int
    connections: int


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Interrupt each operation everywhere, and then so often at random."""
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
    """What is interrupted, about one name."""

    call: Callable[[], Any]
    """A function in Python, so that nothing is interrupted between its return and whoever called it."""
    give_back: Callable[[Any], object]
    """Called with what it gave, or with None: now nothing is to be left."""
    leaves: Callable[[], bool] = bool
    """Whether it had come to where a block is being left."""


class Operation(NamedTuple):
    """Something to be interrupted."""

    name: str
    begin: Callable[[str], Act]
    """Makes everything ready, about the name that is given."""
    settled: bool = True
    """Whether it goes the same way each time, so that its points can be counted through."""


def _interrupt(contender: Contender, url: str, times: int, seed: int | None, tell: Tell) -> Notes:
    """So often at random; everywhere, if there is no seed."""
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        cast = _Cast(contender, admin, tell)
        with _operations_of(contender, url) as operations:
            for operation in operations:  # once, so that connections, scripts and threads are there
                cast.play(operation, _calmly)
            threads, connections = threading.active_count(), len(admin.client_list())
            if seed is None:
                cast.everywhere([operation for operation in operations if operation.settled], times)
            else:
                cast.at_random(operations, times, random.Random(seed))  # noqa: S311 -- moments are no secrets
            return cast.notes(threads, connections)


def _calmly(call: Callable[[], Any]) -> Run[Any]:
    try:
        return Run((), 0, 0, "finished", call())
    except AcquireTimeout as error:
        return Run((), 0, 0, "failed", None, error)


@dataclass
class _Cast:
    """Plays operations, and looks at what they leave."""

    contender: Contender
    admin: redis.Redis
    tell: Tell
    numbers: Iterator[int] = field(default_factory=counting)
    struck: int = 0
    left: dict[str, str] = field(default_factory=dict)
    """By name, what was struck and where."""
    leaving: dict[str, str] = field(default_factory=dict)
    points: dict[str, int] = field(default_factory=dict)

    def everywhere(self, operations: list[Operation], most: int) -> None:
        """At every point, or at so many that lie evenly over all of them."""
        packages = OURS if self.contender.is_ours else PACKAGES[self.contender.distribution]
        within = [importlib.import_module(name) for name in packages]
        for operation in operations:
            points = self.play(operation, partial(interrupt_at, step=NEVER, within=within)).reached
            self.points[operation.name] = points
            for step in range(1, points + 1, max(1, -(-points * len(operations) // most))):
                self.play(operation, partial(interrupt_at, step=step, within=within))

    def at_random(self, operations: list[Operation], count: int, chance: random.Random) -> None:
        """At random moments, until it struck so often."""
        while self.struck < count:
            self.play(chance.choice(operations), partial(interrupt_after, seconds=chance.uniform(1e-5, LONGEST)))

    def play(self, operation: Operation, strike: Callable[[Callable[[], Any]], Run[Any]]) -> Run[Any]:
        """Once."""
        name = f"interrupted-{next(self.numbers)}"
        act = operation.begin(name)
        run = strike(act.call)
        place = f"{operation.name}, at {_short(run.place)}"
        with contextlib.suppress(Exception):  # whatever a contender says: it is what is left that counts
            act.give_back(run.result)
        self.struck += run.struck
        for _ in range(2):  # whatever reached its sockets before, the server has executed by the second answer
            self.admin.ping()
        leaves = act.leaves()
        if self._holds(name) and not self._comes_true(lambda: not self._holds(name), 0.1 if leaves else REST):
            (self.leaving if leaves else self.left)[name] = place
            if not self.contender.is_ours:
                self.admin.flushall()  # so that it is counted once
        self.tell(self.struck)
        return run

    def notes(self, threads: int, connections: int) -> Notes:
        """What is known in the end. Nobody has the leases any more that were left."""
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
        """Whether there is a lease of that name, or somebody in line for it."""
        return is_left(self.contender, self.admin, name)

    def _comes_true(self, condition: Callable[[], bool], within: float = REST) -> bool:
        """Whether it does, as time goes by. Only ours cleans up in the background."""
        until = time.monotonic() + (within if self.contender.is_ours else 0)
        while not condition():
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True


def _short(place: str | None) -> str:
    """A place without the folders of this machine."""
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
            time.sleep(0.1)  # whatever renews has its connection by now
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
    """The library's own verbs, with nothing of ours around them that could be interrupted."""
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(contender.client(url))

        def native(name: str, *, taken: bool = False) -> Any:
            """A lock of a client that works. One that has lost all connections that it may have is left as it is."""
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
