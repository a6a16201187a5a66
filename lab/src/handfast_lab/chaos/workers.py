"""Clients that use one primitive at random and record their operations.

One worker serves both APIs, as a coroutine that passes each call through `settled`: see `apis`.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import redis
import redis.asyncio

from handfast import AcquireTimeout, Handfast, HandfastError, Lease, LeaseLost
from handfast._kinds import MAX_PERMITS
from handfast_lab.chaos.apis import Api, settled
from handfast_lab.chaos.limiter_workers import LimitedWorker
from handfast_lab.chaos.once_workers import OnceWorker
from handfast_lab.chaos.recording import HistoryPlan, Recording, SharedClient
from handfast_lab.checker.history import Kind, Operation, Outcome

__all__ = ["LIMIT", "LIMITER", "ONCE", "PRIMITIVES", "acquire_all", "force_release", "run_workers"]

PRIMITIVES = "lock", "semaphore", "rwlock", "rlock", "lock_all"
"""What has leases."""

LIMITER = "limiter"
"""What has none: see `handfast_lab.chaos.limiter_workers`."""

ONCE = "once"
"""What has many names: see `handfast_lab.chaos.once_workers`."""

SOCKET_TIMEOUT = 0.5
"""Socket timeout of the clients in seconds, after which a call is retried. It is short, so that lost replies cost
little."""

ABANDONING = ("abandon", 1), ("close", 1), ("overstay", 1)
"""What a worker with the habit ``abandon`` does now and then with a lease, and with which weight."""

PER_CLIENT = 2
"""Threads or tasks that share a client."""

LIMIT = 3
"""Permits of a semaphore."""


class _Target(NamedTuple):
    """A primitive that can be acquired."""

    primitive: Any
    names: tuple[str, ...]
    weight: int = 1
    limit: int = 1


def run_workers(api: Api, plan: HistoryPlan, url: str, namespace: str, timeout: float) -> Recording:
    """Run the workers and return what they recorded."""
    recording = Recording()

    def client() -> Any:
        return api.client_class(
            f"{url}{'&' if '?' in url else '?'}socket_timeout={SOCKET_TIMEOUT}", namespace=namespace
        )

    async def run() -> None:
        clients = [SharedClient(client) for _ in range(-(-plan.workers // PER_CLIENT))]
        kinds: dict[str, type[Any]] = {LIMITER: LimitedWorker, ONCE: OnceWorker}
        make = kinds.get(plan.primitive, _Worker)
        workers = [
            make(api, plan, plan.first + number, recording, clients[number // PER_CLIENT])
            for number in range(plan.workers)
        ]
        if await api.late([api.start(worker.run) for worker in workers], timeout):
            recording.faults.append(f"stuck: a worker was not done {timeout:g} s later")

    api.run(run())
    return recording


def acquire_all(client: Handfast, primitive: str, name: str, timeout: float) -> Lease:
    """Acquire everything under a name, to check that it is available."""
    if primitive == "semaphore":
        return client.semaphore(name, LIMIT).acquire(permits=LIMIT, timeout=timeout)
    if primitive == "rwlock":
        return client.rwlock(name).write().acquire(timeout=timeout)
    return client.lock(name).acquire(timeout=timeout)


def force_release(client: Handfast, primitive: str, name: str) -> None:
    """Take all leases of a name away, as an operator does."""
    if primitive == "semaphore":
        client.semaphore(name, LIMIT).force_release()
    elif primitive == "rwlock":
        client.rwlock(name).force_release()
    else:
        client.lock(name).force_release()


class _Worker:
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
            while self._is_unfinished():
                await self._use_client(self._client.client)
        except Exception as error:  # noqa: BLE001 -- any other exception is a finding
            self._recording.faults.append(f"{type(error).__name__}: {error}")
        finally:
            await self._client.leave()

    async def _use_client(self, client: Any) -> None:
        """Acquire and release until the client is replaced."""
        targets = self._targets(client)
        while self._is_unfinished() and client is self._client.client:
            if self._plan.pause:
                await settled(self._api.sleep(self._chance.uniform(0, 2 * self._plan.pause)))
            target = self._chance.choice(targets)
            if self._plan.primitive == "semaphore":
                target = target._replace(weight=self._chance.randint(1, LIMIT))
            held = await self._acquire(target)
            if held is not None:
                await self._hold(held)

    async def _hold(self, held: _HeldLease) -> None:
        """Use a lease as applications do: hold, downgrade, forget or release it."""
        if self._has("block"):
            held.lease.add_lost_callback(lambda: time.sleep(1.5 * self._plan.ttl))
        action = self._draw(
            *(("none", 70), ("linger", 25), ("lower", 15)),
            *ABANDONING[: 3 * self._has("abandon")],
            *[("stay", 60)][: bool(self._plan.stay)],
        )
        if action in ("abandon", "close"):
            held.attempt.begin("release")
            held.attempt.abandon(held.until())
            del held.lease  # it expires by itself
            if action == "close":
                await self._client.replace()
            return
        if action == "linger":
            await settled(self._api.sleep(self._chance.uniform(0, 0.003)))
        elif action in ("overstay", "stay"):
            mean = self._plan.ttl if action == "overstay" else self._plan.stay
            await settled(self._api.sleep(mean * self._chance.uniform(0.5, 1.5)))
        elif action == "lower" and held.attempt.weight == MAX_PERMITS:
            await self._call(held, "lower", held.lease.downgrade)
        if not held.lease.lost:
            self._recording.believed.add(held.attempt.lease)
        await self._call(held, "release", held.lease.release)

    def _draw(self, *weighted: tuple[str, int]) -> str:
        (drawn,) = self._chance.choices([word for word, _ in weighted], [weight for _, weight in weighted])
        return drawn

    def _has(self, habit: str) -> bool:
        return habit in self._plan.habits

    def _is_unfinished(self) -> bool:
        return len(self._recording.operations) < self._plan.operations and monotonic() < self._plan.until

    def _targets(self, client: Any) -> list[_Target]:
        kind, names = self._plan.primitive, self._plan.names
        renew = self._chance.random() < 0.8 or self._has("block")  # what blocks must keep no lease from being renewed
        options = {"ttl": self._plan.ttl, "renew": renew}
        if kind == "semaphore":
            return [_Target(client.semaphore(name, LIMIT, **options), (name,), limit=LIMIT) for name in names]
        if kind == "rwlock":
            locks = [(client.rwlock(name, **options), (name,)) for name in names]
            reads = [_Target(lock.read(), name, limit=MAX_PERMITS) for lock, name in locks]
            return [*reads, *reads, *(_Target(lock.write(), name, MAX_PERMITS, MAX_PERMITS) for lock, name in locks)]
        make = client.rlock if kind == "rlock" else client.lock
        targets = [_Target(make(name, **options), (name,)) for name in names]
        if kind == "lock_all":
            pairs = [(one, other) for one in names for other in names if one != other]
            targets += [_Target(client.lock_all(pair, **options), pair) for pair in pairs]
        return targets

    async def _acquire(self, target: _Target) -> _HeldLease | None:
        self._attempts += 1
        attempt = _Attempt(self._recording, self._name, f"{self._name}/{self._attempts}", target)
        options = {"permits": target.weight} if self._plan.primitive == "semaphore" else {}
        primitive = target.primitive
        waits = self._draw(("wait", 80), ("try", 20)) == "wait"
        timeout = self._chance.choice((None, None, 5.0, 0.02, 0.002))
        attempt.begin("acquire" if waits else "try_acquire")
        try:
            acquiring = primitive.acquire(timeout=timeout, **options) if waits else primitive.try_acquire(**options)
            lease = await self._awaited(acquiring)
        except AcquireTimeout as error:
            attempt.end("failed" if error.__cause__ else "timeout")
        except (
            LeaseLost
        ):  # of a lock_all in a cluster: one was lost while it waited for another, and it has released them
            attempt.end("timeout")
        except (redis.RedisError, HandfastError, _Cancelled):
            attempt.end("failed")
        except BaseException:
            attempt.end("failed")
            raise
        else:
            if lease is not None:
                held = _HeldLease(lease, attempt)
                self._recording.tokens[attempt.lease] = lease.token
                attempt.end("granted", fences=_fences(lease), deadline=held.until())
                return held
            attempt.end("refused")
        return None

    async def _awaited(self, acquiring: Any) -> Any:
        """Await the acquire, or cancel it at a random moment if the worker has the habit ``cancel``."""
        if not inspect.isawaitable(acquiring) or not self._has("cancel") or self._chance.random() < 0.5:
            return await settled(acquiring)
        task = asyncio.ensure_future(settled(acquiring))
        asyncio.get_running_loop().call_later(self._chance.uniform(0, 0.004), task.cancel)
        await asyncio.wait((task,))
        if task.cancelled():
            raise _Cancelled
        return task.result()

    async def _call(self, held: _HeldLease, kind: Kind, verb: Callable[[], Any]) -> None:
        until = held.until()
        held.attempt.begin(kind)
        outcome: Outcome = "failed"
        try:
            answer = await settled(verb())
            outcome = "done" if kind == "lower" else "released" if answer else "lost"
        except (redis.RedisError, HandfastError):
            pass
        finally:
            held.attempt.end(outcome, deadline=until)


class _Cancelled(Exception):
    """The worker cancelled its own acquire."""


def _fences(lease: Any) -> dict[str, int]:
    """Return the fence of each name."""
    return getattr(lease, "fences", None) or {lease.name: lease.fence}


class _Attempt:
    """Records the operations of one attempt.

    A lease of several slots of a cluster is recorded as a lease of each name, since each has a fence of its own.
    """

    def __init__(self, recording: Recording, client: str, lease: str, target: _Target) -> None:
        self._recording, self._client, self.lease, self._target = recording, client, lease, target
        self.weight = target.weight
        self._kind: Kind = "acquire"
        self._invoked = 0.0
        self._fences: dict[str, int] = {}

    def begin(self, kind: Kind) -> None:
        self._kind = kind
        if kind == "lower":
            self.weight = 1
        self._invoked = monotonic()

    def end(self, outcome: Outcome, *, fences: dict[str, int] | None = None, deadline: float | None = None) -> None:
        self._fences = fences or self._fences
        self._write(monotonic(), outcome, deadline)

    def abandon(self, deadline: float) -> None:
        """Record that the operation never ended."""
        self._write(None, "pending", deadline)

    def _write(self, returned: float | None, outcome: Outcome, deadline: float | None) -> None:
        names, grants = self._target.names, self._fences if outcome == "granted" else {}
        is_one = len(set(self._fences.values())) <= 1
        for share, lease in [(names, self.lease)] if is_one else [((name,), f"{self.lease}/{name}") for name in names]:
            operation = Operation(
                client=self._client,
                kind=self._kind,
                names=share,
                lease=lease,
                invoked=self._invoked,
                returned=returned,
                outcome=outcome,
                weight=self.weight,
                limit=self._target.limit,
                fence=grants.get(share[0]),
                deadline=deadline,
            )
            self._recording.operations.append(operation)


@dataclass
class _HeldLease:
    lease: Any
    attempt: _Attempt
    known: float = 0.0

    def until(self) -> float:
        """Return until when the worker believes to hold the lease. For a lost lease this is the last known end."""
        now = monotonic()
        if remaining := self.lease.remaining():
            self.known = now + remaining
        return self.known
