"""Clients that use limiters at random and record their operations, and what the server counts meanwhile.

The server's instants are not part of what callers see, so an observer reads them from the windows about every
millisecond. An admission stays there for its period, so few are missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import redis

from handfast import HandfastError, QueueFull, RateLimited
from handfast._engine.keys import KeySet
from handfast._engine.rates import read_rates
from handfast_lab.chaos.apis import Api, settled
from handfast_lab.chaos.background import repeating
from handfast_lab.chaos.queue_observer import EVERY, QueueTimes
from handfast_lab.chaos.recording import HistoryPlan, Recording, SharedClient
from handfast_lab.checker import RateSpec
from handfast_lab.checker.history import Kind, Operation, Outcome

__all__ = ["RATES", "SPECS", "LimitedWorker", "WindowTimes", "observing_windows"]

RATES = {"a": "6/30ms", "b": "5/20ms; 40/250ms"}
"""The rates of each name: less than the workers ask for."""

SPECS = {
    name: [RateSpec(rate.limit, 1000 * rate.per_ms) for rate in read_rates(rates)] for name, rates in RATES.items()
}
"""The same for the checker."""

MOST = 3
"""The largest cost that a call asks for, or is settled with."""


class LimitedWorker:
    """One thread or task and its operations."""

    def __init__(self, api: Api, plan: HistoryPlan, number: int, recording: Recording, client: SharedClient) -> None:
        self._api, self._plan, self._recording, self._client = api, plan, recording, client
        self._name = f"{api.name}-{number}"
        self._chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311 -- test data, not security
        self._attempts = 0
        client.enter()

    async def run(self) -> None:
        """Run until enough operations were done."""
        try:
            while len(self._recording.operations) < self._plan.operations and monotonic() < self._plan.until:
                if self._plan.pause:
                    await settled(self._api.sleep(self._chance.uniform(0, 2 * self._plan.pause)))
                await self._ask()
        except Exception as error:  # noqa: BLE001 -- any other exception is a finding
            self._recording.faults.append(f"{type(error).__name__}: {error}")
        finally:
            await self._client.leave()

    async def _ask(self) -> None:
        """Be admitted or not, and perhaps settle what it cost."""
        chance, name = self._chance, self._chance.choice(self._plan.names)
        limiter, cost = self._client.client.limiter(name, RATES[name]), chance.choice((1, 1, 1, 2, MOST))
        self._attempts += 1
        lease, waits = f"{self._name}/{self._attempts}", chance.random() < 0.8
        operation = self._begin("acquire" if waits else "try_acquire", name, lease, cost)
        outcome: Outcome = "failed"
        admission = None
        try:
            if waits:
                timeout = chance.choice((None, None, 5.0, 0.05, 0.005))
                admission = await self._awaited(limiter.acquire(cost=cost, timeout=timeout))
            else:
                admission = await settled(limiter.try_acquire(cost=cost))
            outcome = "granted" if admission else "refused"
        except RateLimited as error:
            outcome = "failed" if error.__cause__ else "timeout"
        except QueueFull:
            outcome = "refused"
        except (redis.RedisError, HandfastError, asyncio.CancelledError):
            pass
        if admission:
            self._recording.tokens[lease] = admission._attempt.token.decode()  # noqa: SLF001 -- users have no token
        self._end(operation, outcome)
        if admission and chance.random() < 0.3:
            await settled(self._api.sleep(chance.uniform(0, 0.03)))
            await self._settle(admission, name, lease, chance.randint(0, MOST))

    async def _settle(self, admission: Any, name: str, lease: str, cost: int) -> None:
        operation = self._begin("settle", name, lease, cost)
        outcome: Outcome = "failed"
        try:
            await settled(admission.settle(cost=cost))
            outcome = "done"
        except (redis.RedisError, HandfastError):
            pass
        finally:
            self._end(operation, outcome)

    async def _awaited(self, acquiring: Any) -> Any:
        """Await the acquire, or cancel it at a random moment if the worker has the habit ``cancel``."""
        if not inspect.isawaitable(acquiring) or "cancel" not in self._plan.habits or self._chance.random() < 0.5:
            return await settled(acquiring)
        task = asyncio.ensure_future(settled(acquiring))
        asyncio.get_running_loop().call_later(self._chance.uniform(0, 0.02), task.cancel)
        await asyncio.wait((task,))
        return task.result()

    def _begin(self, kind: Kind, name: str, lease: str, cost: int) -> Operation:
        return Operation(self._name, kind, (name,), lease, monotonic(), None, "pending", weight=cost)

    def _end(self, operation: Operation, outcome: Outcome) -> None:
        self._recording.operations.append(replace(operation, returned=monotonic(), outcome=outcome))


@dataclass
class WindowTimes:
    """What the observer saw."""

    queues: QueueTimes = field(default_factory=QueueTimes)
    counted: dict[str, set[int]] = field(default_factory=dict)
    """By token, the instants of the server at which it was admitted."""

    def instants(self, token: str | None) -> tuple[int, ...]:
        """Return the instants at which a token was admitted."""
        return tuple(sorted(self.counted.get(token or "", ())))


@contextmanager
def observing_windows(admin: redis.Redis, namespace: str) -> Iterator[WindowTimes]:
    """Observe the windows and the queues of all limiters while the block runs."""
    places = {name: KeySet(namespace, "limiter", name) for name in RATES}
    windows = [place.key(f"window:{spec.per_us // 1000}") for name, place in places.items() for spec in SPECS[name]]
    queues = [place.key("queue") for place in places.values()]
    times = WindowTimes()

    def read() -> None:
        with contextlib.suppress(redis.RedisError):  # the server is down or refuses the read: skip this one
            pipe = admin.pipeline(transaction=True)
            for key in windows:
                pipe.zrange(key, 1, -1, withscores=True)
            for key in queues:
                pipe.zrange(key, 0, -1)
            found = pipe.execute()
            times.queues.record(zip(queues, found[len(windows) :], strict=True), monotonic())
            for members in found[: len(windows)]:
                for member, at_us in members:
                    times.counted.setdefault(member.partition(" ")[0], set()).add(int(at_us))

    with repeating(read, lambda: EVERY):
        yield times
