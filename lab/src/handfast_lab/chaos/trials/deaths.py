"""Kill processes with SIGKILL: holders and waiters.

    R12  A holder dies while a client waits. Measured: the time from the end of its lease, as the server knows it, to the
         next hold. No client may hold the lock earlier. The lease is renewed until the kill, or not at all.
    R13  Several of the waiters die, always including the first in the queue. Checked: whether the others acquire in
         order of arrival, and for how long the lock was free with waiters in the queue.

Each client is a process of its own. The server is asked for the end of the dead holder's lease after the kill. The
waiter reports its acquire on the machine's monotonic clock. The time of one round trip counts against the contender.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic

from handfast._engine.constants import CLAIM_MS
from handfast.testing import ServerController
from handfast_lab.bench.crowd import inversions
from handfast_lab.chaos.background import repeating
from handfast_lab.chaos.figures import Figure, duration, durations, examples_of
from handfast_lab.chaos.killable import LockUsers, without_renewal
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.children import ChildProcess, ProcessFailed
from handfast_lab.rivals.contender import Contender
from handfast_lab.stored import read_stored

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R12", "R13")
COUNT = 400
"""Holders that are killed, half of them renewed until then. A quarter as many queues lose some of their waiters. Rivals
take far longer per kill and are tried a tenth as often."""

LONGEST = 60.0
"""Seconds after which each of the three parts starts no further round. Some rivals need half a minute per kill."""

LANES = 4
"""Holders that are killed in parallel, each with a lock and a waiter of its own."""

ATTEMPTS = 3
"""Kills tried for one measurement, where the lease ends before its remaining time can be read."""

TTL, QUEUE_TTL = 0.3, 2.0
"""Lease durations in seconds: of holders that are killed, and in queues that lose waiters."""

SLACK = 0.05
"""Tolerance in seconds, after the end of a dead holder's lease or the permitted cost of a dead waiter."""

WAITERS = 8
"""Waiters in a queue, of which some are killed."""

SETTLE = 0.03
"""Seconds after which a client is taken to be queued, where the server does not show it."""

NAP = 0.02
"""Sleep that measures how late this machine wakes a thread, in seconds."""

RETRY_FOR = 40.0
"""Seconds that the trial waits for a process: one rival polls every 30 s."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: the processes of every contender can die."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Kill `count` holders, and some waiters of a quarter as many queues."""
    kills = count if contender.is_ours else max(1, count // 10)
    kinds = [renew for renew in (True, False) if contender.is_ours or renew == ("renewal" in contender.has)]
    with ServerController() as server, LockUsers(server.url) as users:
        test = _KillTest(contender, server, users, seed, one_by_one(progress))
        holders = [_KilledHolders(test, renew=renew) for renew in kinds]
        for part in holders:
            part.kill(max(1, kills // len(kinds)))
        queues = _KilledWaiters(test)
        queues.kill(max(1, kills // 4))
        return [*(part.figure() for part in holders), queues.order(), queues.stall()]


@dataclass(frozen=True)
class _KillTest:
    contender: Contender
    server: ServerController
    users: LockUsers
    seed: int
    tick: Tick

    def holders(self, name: str) -> dict[str, int]:
        """Return the holders of a lock of Handfast, and when their leases end."""
        return read_stored(self.server.admin, f"{{hf:lock:{name}}}").holders

    def queue(self, waiter: ChildProcess, name: str, ttl: float, waiting: int) -> None:
        """Let a process wait for a lock. Return when the queue has `waiting` entries; for a rival, after `SETTLE`."""
        waiter.order("acquire and release", name, ttl)
        waiter.expect("acquiring", RETRY_FOR)
        if not self.contender.is_ours:
            time.sleep(SETTLE)
            return
        until = monotonic() + RETRY_FOR
        while len(read_stored(self.server.admin, f"{{hf:lock:{name}}}").queue) < waiting:
            if monotonic() > until:
                raise ProcessFailed(f"a waiter was not queued within {RETRY_FOR:g} s")
            time.sleep(0.001)


class _KilledHolders:
    """R12: holders that die."""

    def __init__(self, test: _KillTest, *, renew: bool) -> None:
        self._test = test
        self._renew = renew
        self._ttl = max(TTL, test.contender.shortest_ttl)
        self._holder = test.contender if renew or not test.contender.is_ours else without_renewal(test.contender)
        self._until = 0.0
        self._seconds: list[float] = []
        """From the end of each dead holder's lease to the next hold, in seconds."""
        self._lateness: list[float] = []
        """How late a sleeping thread of this process woke up meanwhile, in seconds."""
        self._early: list[str] = []
        self._failures: list[str] = []

    def kill(self, count: int) -> None:
        """Kill `count` holders, in several parallel lanes."""
        self._until = monotonic() + LONGEST
        numbers = iter(range(count))
        with ThreadPoolExecutor(LANES) as lanes, repeating(partial(_nap, self._lateness), lambda: 0.0):
            try:
                list(lanes.map(partial(self._kill_some, numbers), range(LANES)))
            except BaseException:  # on an interrupt, stop the lanes early
                self._until = 0.0
                self._test.users.kill_all()
                raise

    def _kill_some(self, numbers: Iterator[int], lane: int) -> None:
        users = self._test.users
        chance = random.Random(f"{self._test.seed}/{lane}/{self._renew}")  # noqa: S311 -- timing, not security
        waiter = None
        while monotonic() < self._until and (number := next(numbers, None)) is not None:
            name = f"killed-{self._renew}-{number}"
            try:
                waiter = waiter or users.new(self._test.contender)[0]
                any(self._kill_one(f"{name}-{attempt}", waiter, chance) for attempt in range(ATTEMPTS))
            except ProcessFailed as error:
                self._failures.append(f"{name}: {error}")
                if waiter is not None:
                    users.discard(waiter)
                    waiter = None
            self._test.tick()

    def _kill_one(self, name: str, waiter: ChildProcess, chance: random.Random) -> bool:
        """Kill one holder. Return False if its lease ended before its remaining time could be read."""
        test = self._test
        (holder,) = test.users.new(self._holder)
        try:
            test.users.hold(holder, name, self._ttl, within=RETRY_FOR, renew=self._renew)
            dead = next(iter(test.holders(name)), "")
            test.queue(waiter, name, self._ttl, 1)
            time.sleep(chance.uniform(0, self._ttl * (1 if self._renew else 0.5)))
        finally:
            test.users.discard(holder)
        if self._renew:
            time.sleep(0.01)  # let requests that it had already sent be executed
        asked = monotonic()
        remaining = test.contender.remaining(test.server.admin, name) / 1000
        answered = monotonic()
        is_over = test.contender.is_ours and dead not in test.holders(name)
        entered = waiter.expect("acquired", self._ttl + RETRY_FOR)
        waiter.expect("released", RETRY_FOR)
        if remaining <= 0 or entered.at < answered or is_over:
            return False  # the answer may be about the next holder's lease
        delay = entered.at - (asked + remaining)
        self._seconds.append(delay)
        if delay < 0:
            self._early.append(f"{name}: the next holder came {-delay * 1000:.1f} ms before the lease had ended")
        return True

    def figure(self) -> Figure:
        """Return the figure. One late acquire in a hundred is tolerated."""
        seconds = sorted(self._seconds)
        late = [f"{second * 1000:.1f} ms after the end of the lease" for second in reversed(seconds) if second > SLACK]
        return Figure(
            id="R12",
            what=f"killed holder, {'renewed until then' if self._renew else 'not renewed'}",
            contender=self._test.contender.name,
            tried=len(seconds) + len(self._failures),
            bad=max(0, len(late) - len(seconds) // 100) + len(self._early) + len(self._failures),
            unit="beyond ttl + 50 ms (p99)",
            measured={
                **durations(seconds, "beyond the ttl", "ms"),
                "ttl, s": self._ttl,
                "before the end": len(self._early),
                "later than 50 ms": len(late),
                "a plain sleep on this machine, p99 late, ms": duration(self._lateness, 0.99, "ms"),
            },
            seed=self._test.seed,
            examples=examples_of(self._early + self._failures + late),
        )


def _nap(lateness: list[float]) -> None:
    """Sleep and record how late this thread woke up, as a baseline for this machine."""
    begun = monotonic()
    time.sleep(NAP)
    lateness.append(monotonic() - begun - NAP)


class _KilledWaiters:
    """R13: queues that lose some of their waiters."""

    def __init__(self, test: _KillTest) -> None:
        self._test = test
        self._ttl = max(QUEUE_TTL, test.contender.shortest_ttl)
        self._chance = random.Random(test.seed)  # noqa: S311 -- timing, not security
        self._queues = 0
        self._killed = 0
        self._survivors = 0
        self._inversions = 0
        self._stalls: list[float] = []
        """For each queue, the longest time during which the lock was free, in seconds."""
        self._wrong: list[str] = []
        self._stuck: list[str] = []

    def kill(self, count: int) -> None:
        """Kill some waiters of each of `count` queues."""
        until = monotonic() + LONGEST
        processes: list[ChildProcess] = []
        while self._queues < count and monotonic() < until:
            name = f"queue-{self._queues}"
            try:
                processes += self._test.users.new(self._test.contender, WAITERS + 1 - len(processes))
                processes = self._kill_some(name, processes)
            except ProcessFailed as error:
                self._stuck.append(f"{name}: {error}")
                for user in processes:
                    self._test.users.discard(user)
                processes = []
            self._queues += 1
            self._test.tick()

    def _kill_some(self, name: str, processes: Sequence[ChildProcess]) -> list[ChildProcess]:
        """Run one queue; return the processes that survive."""
        test, chance = self._test, self._chance
        holder, *waiters = processes
        test.users.hold(holder, name, self._ttl, within=RETRY_FOR, renew=True)
        for place, waiter in enumerate(waiters, 1):
            test.queue(waiter, name, self._ttl, place)
        killed = {0, *chance.sample(range(1, WAITERS), chance.randrange(WAITERS - 2))}
        for place in killed:
            test.users.discard(waiters[place])
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.02))))  # the server may not have noticed the kill yet
        free_since = monotonic()
        holder.order("release", name)
        holder.expect("released", RETRY_FOR)
        survivors = [place for place in range(WAITERS) if place not in killed]
        until = monotonic() + RETRY_FOR * (1 + len(killed))  # some rivals detect dead waiters one by one
        passes = []
        for place in survivors:
            entered = waiters[place].expect("acquired", until - monotonic())
            passes.append((entered.at, waiters[place].expect("released", RETRY_FOR).at, place))
        self._killed += len(killed)
        self._survivors += len(survivors)
        longest, order = 0.0, []
        for entered_at, given_at, place in sorted(passes):
            longest = max(longest, entered_at - free_since)
            free_since = given_at
            order.append(place)
        self._stalls.append(longest)
        if found := inversions(order):
            self._inversions += found
            self._wrong.append(f"{name}: arrived as {survivors} and acquired as {order}")
        return [holder, *(waiters[place] for place in survivors)]

    def order(self) -> Figure:
        """Report whether the survivors acquired in order of arrival."""
        return Figure(
            id="R13",
            what="killed waiters, the head among them: order",
            contender=self._test.contender.name,
            tried=self._survivors,
            bad=self._inversions,
            unit="inversions",
            measured={"queues": self._queues, "waiters killed": self._killed, "waiters in each": WAITERS},
            seed=self._test.seed,
            examples=examples_of(self._wrong),
        )

    def stall(self) -> Figure:
        """Report how long the lock was free. A dead waiter may cost Handfast its claim window, a rival one lease."""
        bound = min(self._ttl, CLAIM_MS / 1000) if self._test.contender.is_ours else self._ttl
        stalls = sorted(self._stalls)
        late = [f"the lock was free for {stall:.3f} s" for stall in reversed(stalls) if stall > bound + SLACK]
        return Figure(
            id="R13",
            what="killed waiters, the head among them: stall",
            contender=self._test.contender.name,
            tried=self._queues,
            bad=len(late) + len(self._stuck),
            unit=f"stalls beyond {bound:g} s + 50 ms",
            measured={
                "longest stall, s": duration(stalls, 1.0, "s"),
                "median stall, ms": duration(stalls, 0.5, "ms"),
                "stalls beyond 50 ms": sum(stall > SLACK for stall in stalls),
                "queues that got stuck": len(self._stuck),
            },
            seed=self._test.seed,
            examples=examples_of(self._stuck + late),
        )
