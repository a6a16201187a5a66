"""Attack rate limiters: lose replies, let processes ask under several rates, kill waiters, and set clocks.

    R38  The reply of a call is lost. A caller that gets an error asks again. Counted: admissions that the server counts and no
         caller knows of, and calls that were refused though there was room for all.
    R39  Processes ask at random moments for random costs, some of them waiting, under one to three rates. Counted: windows above a
         limit, by the instants at which the server admitted.
    R40  Some of the waiters are killed, the first in the queue among them. Counted: survivors that were served before an
         earlier one, and times for which the rate was left unused.
    R41  The clocks of the clients are an hour apart. Counted: admissions beyond the limit, and missing ones.

Contenders that do not promise exact windows let a burst in besides their rate, which R39 and R41 count as well.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

import redis

from handfast.testing import Command, FaultProxy, ServerController
from handfast_lab.bench.crowd import inversions
from handfast_lab.chaos.figures import Figure, Tally, duration
from handfast_lab.chaos.limiter_users import LimiterUser, LimiterUsers, Load, admissions_of
from handfast_lab.chaos.trials import Progress, Tick, one_by_one
from handfast_lab.checker.windows import largest_window, windows_above
from handfast_lab.children import ChildProcess, ProcessFailed
from handfast_lab.rivals.limiters.contender import LimiterContender, Rate

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R38", "R39", "R40", "R41")
COUNT = 1_000
"""Calls whose reply is lost. A tenth as many seconds of load are divided among the rates, a fiftieth as many queues
lose waiters, and so many groups of clients have clocks that differ."""

ROOM = Rate(1_000_000, 30 * 86400.0)
"""A rate that admits all calls of R38, and of which nothing lapses meanwhile, also where it is refilled all the
time."""

RATES = (
    (Rate(60, 1.0),),
    (Rate(60, 1.0), Rate(100, 2.0)),
    (Rate(20, 0.2), Rate(60, 1.0), Rate(100, 2.0)),
)
"""The rates of R39, as many of them at a time as the contender has, in steps of its shortest period."""

PROCESSES, MOST_COST, LONGEST_PAUSE_S = 10, 3, 0.02
"""Who asks in R39, for how much, and how often."""

WAIT_S = 20.0
"""Timeout of calls that wait: longer than any of them has to."""

BLUR_S = 0.005
"""How exactly the moment is known at which a server executed a command of a rival; Handfast's are exact."""

WAITERS, KILLED = 8, 3
"""Waiters of a queue in R40, and how many of them are killed."""

PACE = Rate(1, 1.0)
"""The rate for which they wait: slow enough that all are in the queue before the first one is served."""

IDLE_S = 1.1
"""Seconds for which a dead waiter may leave the rate unused."""

SETTLE_S = 0.03
"""Seconds after which a waiter is taken to be queued, where the server does not show it."""

LONGEST_S = 60.0
"""Seconds after which R40 makes no further queue."""

CLOCKS = 0.0, 3600.0, -3600.0
"""Seconds by which the clocks of the clients are ahead in R41."""

LIMITED = Rate(10, 60.0)
"""The rate of R41; each client asks as often as it admits."""

RETRY_FOR_S = 40.0
"""Seconds that the trial waits for a process."""


def applies(contender: LimiterContender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: all that is tried here is for rate limiters."""
    return True


def trial(contender: LimiterContender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run all parts that the contender has calls for."""
    tick = one_by_one(progress)
    chance = random.Random(seed)  # noqa: S311 -- test data
    with ServerController() as server:
        test = _Test(contender, server, chance, seed, tick)
        figures = [test.lost_replies(count), *test.windows(count / 10)]
        if contender.waits:
            figures += test.killed_waiters(max(1, count // 50))
        return [*figures, test.clocks(max(1, count // 50))]


def _is_script(sent: Command) -> bool:
    return sent.name in ("EVAL", "EVALSHA")


def _is_of_network(error: BaseException | None) -> bool:
    """Return whether it is a network error of redis-py, or one that a library has wrapped."""
    return error is not None and (
        isinstance(error, redis.ConnectionError | redis.TimeoutError) or _is_of_network(error.__cause__)
    )


@dataclass(frozen=True)
class _Test:
    contender: LimiterContender
    server: ServerController
    chance: random.Random
    seed: int
    tick: Tick
    kind: type[LimiterUser] = LimiterUser

    def users(self) -> LimiterUsers:
        return LimiterUsers(self.contender, self.server.url, self.kind)

    def figure(self, tally: Tally, row: str, what: str, unit: str) -> Figure:
        return tally.figure(row, what, self.contender.name, unit, seed=self.seed)

    # --- R38

    def lost_replies(self, count: int) -> Figure:
        """Lose the replies of calls, half of which wait where the contender has such a call."""
        tally, known, name = Tally(), 0, "lossy"
        tally.measured = dict.fromkeys(("network errors", "calls that sent nothing to lose"), 0)
        with (
            FaultProxy(self.server.url, record=False) as proxy,
            self.contender.open(proxy.url) as make,
            self.contender.open(self.server.url) as make_direct,
        ):
            limiter, direct = make(name, [ROOM]), make_direct(name, [ROOM])
            known += limiter.try_acquire()  # loads the script
            for number in range(count):
                fault = proxy.lose_reply(_is_script)
                is_admitted = None
                while is_admitted is None:
                    try:
                        waits = self.contender.waits and number % 2
                        is_admitted = limiter.acquire(1, WAIT_S) if waits else limiter.try_acquire()
                    except Exception as error:
                        if not _is_of_network(error):
                            raise
                        tally.count("network errors")
                fault.clear()
                known += is_admitted
                tally.count("calls that sent nothing to lose", not fault.happened)
                tally.check(is_admitted, "call {} was refused", number)
                self.tick()
            tally.wrong += ["counted, and no caller knows of it"] * (direct.used() - known)
        return self.figure(tally, "R38", "lost reply of a limiter's call", "admissions counted twice or denied")

    # --- R39

    def windows(self, seconds: float) -> Iterator[Figure]:
        """Let processes ask under each set of rates for its share of the time."""
        for rates in self._sets_of_rates():
            yield self._windows(rates, seconds / len(RATES))

    def _sets_of_rates(self) -> Iterator[tuple[Rate, ...]]:
        for rates in RATES:
            if (
                len(rates) <= self.contender.most_rates
                and min(one.per for one in rates) >= self.contender.shortest_period
            ):
                yield rates

    def _windows(self, rates: Sequence[Rate], seconds: float) -> Figure:
        tally, name = Tally(), f"windows-{len(rates)}"
        blur = 0.0 if self.contender.is_ours else BLUR_S
        with admissions_of(self.contender, self.server.admin) as admissions:
            answered = self._load(name, rates, seconds, tally)
        tally.tried = len(admissions)
        if answered != len(admissions):
            tally.wrong.append(f"{answered} calls were answered as admitted, of {len(admissions)} admissions")
        for rate in rates:
            for used in windows_above(admissions, rate.limit, rate.per - blur):
                tally.wrong.append(f"{used} within {rate.per:g} s, where {rate.limit} are allowed")
            tally.measured[f"largest window of {rate.per:g} s"] = largest_window(admissions, rate.per - blur)
        what = f"{len(rates)} rate{'s' if len(rates) > 1 else ''}, random costs, {PROCESSES} processes"
        return self.figure(tally, "R39", what, "windows above the limit")

    def _load(self, name: str, rates: Sequence[Rate], seconds: float, tally: Tally) -> int:
        """Let the processes ask; return how many calls were answered as admitted."""
        timeout, answered = WAIT_S if self.contender.waits else 0.0, 0
        with self.users() as users:
            try:
                processes = users.new(PROCESSES)
                for number, process in enumerate(processes):
                    seed = f"{self.seed}/{name}/{number}"
                    process.order("load", Load(name, rates, seconds, MOST_COST, LONGEST_PAUSE_S, timeout, seed))
                for process in processes:
                    answered += process.expect("loaded", seconds + RETRY_FOR_S).value
                    self.tick()
            except ProcessFailed as error:
                tally.wrong.append(str(error))
        return answered

    # --- R40

    def killed_waiters(self, queues: int) -> list[Figure]:
        """Kill waiters of that many queues."""
        order, idle = Tally(), Tally()
        idles: list[float] = []
        until = monotonic() + LONGEST_S
        with self.users() as users:
            for number in range(queues):
                if monotonic() > until:
                    break
                try:
                    idles += self._kill_some(f"queue-{number}", users, order)
                except ProcessFailed as error:
                    idle.wrong.append(f"queue-{number}: {error}")
                self.tick()
        for seconds in idles:
            idle.check(seconds <= IDLE_S, "the rate was left unused for {} s", round(seconds, 3))
        idle.measured = {
            "longest, s": duration(idles, 1.0, "s"),
            "median, ms": duration(idles, 0.5, "ms"),
        }
        what = f"{KILLED} of {WAITERS} waiters of a limiter killed"
        return [
            self.figure(order, "R40", f"{what}: order", "served before an earlier one"),
            self.figure(idle, "R40", f"{what}: rate left unused", f"times beyond {IDLE_S:g} s"),
        ]

    def _kill_some(self, name: str, users: LimiterUsers, order: Tally) -> Iterator[float]:
        """Run one queue; yield for how long the rate was left unused before each admission."""
        waiters = users.new(WAITERS)
        try:
            with self.contender.open(self.server.url) as make:
                make(name, [PACE]).try_acquire()  # the others wait for a period at least
                used_at = monotonic()
            for place, waiter in enumerate(waiters):
                self._queue(waiter, name, place + 1)
            killed = {0, *self.chance.sample(range(1, WAITERS), KILLED - 1)}
            for place in killed:
                users.discard(waiters[place])
            survivors = [place for place in range(WAITERS) if place not in killed]
            admitted = []
            for place in survivors:
                report = waiters[place].expect("admitted", RETRY_FOR_S)
                admitted.append((report.at, place))
            admitted.sort()
            found = inversions(place for _, place in admitted)
            order.tried += len(survivors)
            order.wrong += [f"{name}: admitted in the order {[place for _, place in admitted]}"] * found
            moments = [used_at, *(at for at, _ in admitted)]
            yield from (after - before - PACE.per for before, after in pairwise(moments))
        finally:
            for waiter in waiters:
                users.discard(waiter)

    def _queue(self, waiter: ChildProcess, name: str, waiting: int) -> None:
        """Let a process wait. Return when the queue has so many waiters; for a rival, after `SETTLE_S`."""
        waiter.order("acquire", name, [PACE], WAIT_S)
        waiter.expect("acquiring", RETRY_FOR_S)
        if not self.contender.is_ours:
            time.sleep(SETTLE_S)
            return
        until = monotonic() + RETRY_FOR_S
        while self.server.admin.zcard(f"{{hf:limiter:{name}}}:queue") < waiting:
            if monotonic() > until:
                raise ProcessFailed(f"a waiter was not queued within {RETRY_FOR_S:g} s")
            time.sleep(0.001)

    # --- R41

    def clocks(self, groups: int) -> Figure:
        """Let clients whose clocks differ ask for the same limiter, that many times."""
        tally = Tally()
        with self.users() as users:
            try:
                clients = users.new(len(CLOCKS))
                for client, ahead in zip(clients, CLOCKS, strict=True):
                    client.order("set the clock", ahead)
                    client.expect("set", RETRY_FOR_S)
                for number in range(groups):
                    admitted = 0
                    for client in self.chance.sample(clients, len(clients)):
                        client.order("try", f"clocks-{number}", [LIMITED], LIMITED.limit)
                        admitted += client.expect("tried", RETRY_FOR_S).value
                    tally.check(admitted == LIMITED.limit, "{} were admitted", admitted)
                    tally.measured["most admitted"] = max(admitted, tally.measured.get("most admitted", 0))
                    self.tick()
            except ProcessFailed as error:
                tally.wrong.append(str(error))
        return self.figure(tally, "R41", "client clocks 1 h ahead and behind: a limit of 10", "other numbers admitted")
