"""Clients that race for keys of `once` at random and record their operations.

All workers use the keys of the same moment, so that each key is raced for. Names of `REPEATED` run again what began and
did not end, the others do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from dataclasses import replace
from time import monotonic
from typing import Any

import redis

from handfast import AcquireTimeout, Handfast, HandfastError, LeaseLost, NotCompleted, QueueFull
from handfast_lab.chaos.apis import Api, settled
from handfast_lab.chaos.recording import HistoryPlan, Recording, SharedClient
from handfast_lab.checker.history import Kind, Operation, Outcome

__all__ = ["REPEATED", "OnceWorker", "ask", "is_repeated"]

REPEATED = "a"
"""The name whose keys are run again after a run that did not end."""

KEEP_S = 3600.0
"""For how long records are kept: longer than a history takes."""

ROUND_S = 0.03
"""For how long the workers use a key at least, in seconds."""


def is_repeated(key: str) -> bool:
    """Return whether a run of this key that began and did not end is repeated."""
    return key.startswith(f"{REPEATED}:")


def ask(client: Handfast, key: str, timeout: float) -> None:
    """Find the result of a key, or run and record none: this also removes waiters that are gone."""
    name, _, number = key.partition(":")
    with contextlib.suppress(NotCompleted):
        run = client.once(name, keep=KEEP_S, rerun=is_repeated(key)).keyed(number).acquire(timeout=timeout)
        if not run.done:
            run.release()


class OnceWorker:
    """One thread or task and its operations."""

    def __init__(self, api: Api, plan: HistoryPlan, number: int, recording: Recording, client: SharedClient) -> None:
        self._api, self._plan, self._recording, self._client = api, plan, recording, client
        self._name = f"{api.name}-{number}"
        self._chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311 -- test data, not security
        self._attempts = 0
        self._known_end = 0.0
        client.enter()

    async def run(self) -> None:
        """Run until enough operations were done."""
        try:
            while len(self._recording.operations) < self._plan.operations and monotonic() < self._plan.until:
                if self._plan.pause:
                    await settled(self._api.sleep(self._chance.uniform(0, 2 * self._plan.pause)))
                await self._use()
        except Exception as error:  # noqa: BLE001 -- any other exception is a finding
            self._recording.faults.append(f"{type(error).__name__}: {error}")
        finally:
            await self._client.leave()

    async def _use(self) -> None:
        """Find the result of a key, or run; now and then let it be forgotten."""
        chance, plan = self._chance, self._plan
        name, number = chance.choice(plan.names), int(monotonic() / (ROUND_S + 4 * plan.pause + plan.stay))
        key = f"{name}:{number}"
        once = self._client.client.once(name, ttl=plan.ttl, keep=KEEP_S, rerun=is_repeated(key)).keyed(number)
        if chance.random() < 0.02:
            await self._forget(once, key)
            return
        self._attempts += 1
        lease = f"{self._name}/{self._attempts}"
        run = await self._acquire(once, key, lease)
        if run is not None:
            await self._end(run, key, lease)

    async def _acquire(self, once: Any, key: str, lease: str) -> Any:
        chance = self._chance
        waits = chance.random() < 0.8
        operation = self._begin("acquire" if waits else "try_acquire", key, lease)
        outcome: Outcome = "failed"
        run = None
        try:
            if waits:
                run = await self._awaited(once.acquire(timeout=chance.choice((None, None, 5.0, 0.02))))
            else:
                run = await settled(once.try_acquire())
            outcome = "refused" if run is None else "found" if run.done else "granted"
        except AcquireTimeout as error:
            outcome = "failed" if error.__cause__ else "timeout"
        except (NotCompleted, QueueFull):
            outcome = "refused"
        except (redis.RedisError, HandfastError, asyncio.CancelledError):
            pass
        if run is None or run.done:
            self._record(operation, outcome, value=None if run is None else run.result)
            return None
        self._recording.tokens[lease] = run.token
        self._record(operation, outcome, fence=run.fence, deadline=self._until(run))
        return run

    async def _end(self, run: Any, key: str, lease: str) -> None:
        """End a run as programs do: with a result, without one, or not at all."""
        chance, plan = self._chance, self._plan
        await settled(self._api.sleep(chance.uniform(0, plan.stay or 0.003)))
        if "abandon" in plan.habits and chance.random() < 0.2:
            operation = self._begin("release", key, lease)
            self._recording.operations.append(replace(operation, deadline=self._until(run)))
            return  # it expires by itself
        operation, until = self._begin("release", key, lease), self._until(run)
        outcome: Outcome = "failed"
        value = None if chance.random() < 0.2 else lease
        try:
            if value is None:
                outcome = "released" if await settled(run.release()) else "lost"
            else:
                await settled(run.finish(value))
                outcome = "released"
        except LeaseLost:
            outcome = "lost"
        except (redis.RedisError, HandfastError):
            pass
        finally:
            self._record(operation, outcome, value=value, deadline=until)

    def _until(self, run: Any) -> float:
        """Return until when the worker believes to run. For a lost run this is the last known end."""
        now = monotonic()
        if remaining := run.remaining():
            self._known_end = now + remaining
        return self._known_end

    async def _forget(self, once: Any, key: str) -> None:
        operation = self._begin("forget", key, "")
        outcome: Outcome = "failed"
        try:
            await settled(once.forget())
            outcome = "done"
        except (redis.RedisError, HandfastError):
            pass
        finally:
            self._record(operation, outcome)

    async def _awaited(self, acquiring: Any) -> Any:
        """Await the acquire, or cancel it at a random moment if the worker has the habit ``cancel``."""
        if not inspect.isawaitable(acquiring) or "cancel" not in self._plan.habits or self._chance.random() < 0.5:
            return await settled(acquiring)
        task = asyncio.ensure_future(settled(acquiring))
        asyncio.get_running_loop().call_later(self._chance.uniform(0, 0.004), task.cancel)
        await asyncio.wait((task,))
        return task.result()

    def _begin(self, kind: Kind, key: str, lease: str) -> Operation:
        return Operation(self._name, kind, (key,), lease, monotonic(), None, "pending")

    def _record(self, operation: Operation, outcome: Outcome, **fields: Any) -> None:
        self._recording.operations.append(replace(operation, returned=monotonic(), outcome=outcome, **fields))
