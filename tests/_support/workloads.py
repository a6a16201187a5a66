"""A workload for each primitive that covers all its operations and so every command of its scripts, and the outcome of each."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import redis

from handfast import AcquireTimeout, LeaseLost, NotReplicated, RateLimited, ScriptError, ServerRefused
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from handfast._engine.script import load
from handfast.arguments import Kind
from handfast.compat import AsyncRedisLock, RedisLock
from handfast.fencing import advance_fence, delete_if_newer, hset_if_newer, latest_fence, set_if_newer
from handfast_lab.chaos.apis import Api, Started, settled
from handfast_lab.stored import read_stored
from tests._support.objects import OBJECTS

__all__ = ["KEYS", "TTL", "WORKLOADS", "Observation", "Workload"]

TTL, SHORT = 1.0, 0.05
"""Lease durations in seconds: the usual one, and one that is to expire."""

RETRY_FOR, SOON = 5.0, 0.4
"""Timeouts in seconds: for events that must happen, and for events that need not."""

KEYS = {"compat": "report", "fencing": "page:*"}
"""Keys and patterns of the user's own that are locked and fenced."""

MANY = 3_000
"""Names in an index, enough for the server to scan it in several pieces."""

_RIGHTS = re.compile(r"no permissions|NOPERM|ACL failure|executing the script can't")
"""Texts with which a server reports a missing right."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of one operation."""

    what: str
    outcome: str
    """``done`` or another outcome: ``refused`` is a clear error about a missing right, ``unclear`` any other error."""
    error: str = ""
    """The error text."""


class Workload:
    """Two clients of one user, and an administrator who checks the keys."""

    def __init__(self, api: Api, admin: Any, one: Any, other: Any) -> None:
        self.api, self.admin, self.one, self.other = api, admin, one, other
        self.observations: list[Observation] = []

    async def record(self, what: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call an operation and record its outcome. Return its result, or None on an error."""
        try:
            result = await settled(call(*args, **options))
        except (AcquireTimeout, RateLimited):
            self._observe(what, "timed out")
        except LeaseLost:
            self._observe(what, "lost")
        except NotReplicated:
            self._observe(what, "no")
        except (ServerRefused, ScriptError, redis.ResponseError) as error:
            text = str(error)
            is_clear = bool(_RIGHTS.search(text)) and (not isinstance(error, ServerRefused) or "ACL SETUSER" in text)
            self._observe(what, "refused" if is_clear else "unclear", text)
        except Exception as error:  # noqa: BLE001 -- any other error does not report a missing right
            self._observe(what, "unclear", f"{type(error).__name__}: {error}")
        else:
            self._observe(what, "done" if result is not False else "no")
            return result
        return None

    def start(self, what: str, wanted: Any) -> Started:
        """Start a task or thread that acquires `wanted` and releases it at once."""

        async def wait() -> None:
            lease = await self.record(what, wanted.acquire, timeout=RETRY_FOR)
            if lease is not None:
                await self.record(f"{what}: release", lease.release)

        return self.api.start(wait)

    def start_admission(self, what: str, limiter: Any, cost: int) -> Started:
        """Start a task or thread that waits for a limiter."""

        async def wait() -> None:
            await self.record(what, limiter.acquire, cost=cost, timeout=RETRY_FOR)

        return self.api.start(wait)

    async def wait_for_key(self, queue: str, count: int) -> None:
        """Poll until that sorted set has `count` members, for a short time only."""
        await self.api.eventually(lambda: self.admin.zcard(queue) >= count, SOON)

    async def join(self, *started: Started) -> None:
        """Wait for the started tasks or threads, and record those that do not end."""
        for late in await self.api.late(started, 2 * RETRY_FOR):
            self._observe(repr(late), "did not end")

    async def wait_for_queue(self, place: str, count: int) -> None:
        """Poll until the queue of a name has `count` waiters, for a short time only: they may have been refused instead."""
        await self.api.eventually(lambda: len(read_stored(self.admin, place).queue) >= count, SOON)

    def request_as_dead_client(
        self, kind: str, name: str, token: str, *, ttl: float = TTL, claim: float = TTL, wait: float = 0.0
    ) -> None:
        """Request the only permit of a name for a client that does not exist, as if it had died since."""
        script, key_set = load("permit_acquire"), KeySet("hf", kind, name)
        ttl_ms, claim_ms, wait_ms = (round(seconds * 1000) for seconds in (ttl, claim, wait))
        request = doubles(ttl_ms, wait_ms, 10, 0)
        values = token, request, doubles(1, 1, claim_ms, 0) + b"hf:inbox:gone hf:control:gone x"
        keys = [key_set.key(part) for part in script.header.keys]
        self.admin.execute_command("EVAL", script.source, len(keys), *keys, *values, NEVER_DECODE=True)

    def _observe(self, what: str, outcome: str, error: str = "") -> None:
        self.observations.append(Observation(what, outcome, error))


Script: TypeAlias = Callable[[Workload], Awaitable[None]]

END_LEASE = """local text = redis.call('HGET', KEYS[1], 's')
redis.call('HSET', KEYS[1], 's', struct.pack('<d', 0) .. string.sub(text, 9))"""
"""Ends the lease in the state of a name, without a handoff."""


async def _leases(workload: Workload, kind: str, make: Callable[..., Any]) -> None:
    """Run what all primitives with leases share; ``make`` takes a client, a name and options."""
    mine, theirs = make(workload.one, "a"), make(workload.other, "a")
    queue = KeySet("hf", kind, "a").tag
    lease = await workload.record("acquire", mine.acquire, timeout=RETRY_FOR)
    await workload.record("try", theirs.try_acquire)
    await workload.record("status", mine.status)
    if lease is not None:
        await workload.record("extend", lease.extend, TTL)
    first = workload.start("wait", theirs)
    await workload.wait_for_queue(queue, 1)
    second = workload.start("wait behind", mine)
    await workload.wait_for_queue(queue, 2)
    if lease is not None:
        await workload.record("release", lease.release)
    await workload.join(first, second)

    workload.request_as_dead_client(kind, "b", "expired", ttl=SHORT)
    await workload.join(workload.start("wait for a lease that runs out", make(workload.one, "b")))

    # Its queue is full, of a waiter whose client is gone.
    workload.request_as_dead_client(kind, "e", "expired", ttl=SHORT)
    workload.request_as_dead_client(kind, "e", "gone", claim=0, wait=4 * SOON)
    await workload.join(workload.start("wait in place of one that is gone", make(workload.one, "e", max_waiters=1)))

    # A queued waiter whose client is gone.
    workload.request_as_dead_client(kind, "c", "held")
    workload.request_as_dead_client(kind, "c", "gone", claim=0, wait=4 * SOON)
    workload.admin.eval(END_LEASE, 1, KeySet("hf", kind, "c").key("state"))
    lease = await workload.record("skip a waiter that is gone", make(workload.one, "c").acquire, timeout=SOON)
    if lease is not None:
        await workload.record("release", lease.release)

    # The permit was never released here, and the server has lost the state, but not the queue.
    workload.request_as_dead_client(kind, "f", "held")
    workload.request_as_dead_client(kind, "f", "gone", claim=0, wait=4 * SOON)
    workload.admin.delete(KeySet("hf", kind, "f").key("state"))
    lease = await workload.record("start without the record", make(workload.one, "f").acquire, timeout=RETRY_FOR)
    if lease is not None:
        await workload.record("release", lease.release)

    lease = await workload.record("acquire", make(workload.one, "d").acquire, timeout=RETRY_FOR)
    await workload.record("force_release", make(workload.other, "d").force_release)
    if lease is not None:
        await workload.record("release what was taken away", lease.release)


async def _lock(workload: Workload) -> None:
    await _leases(workload, "lock", lambda client, name, **more: client.lock(name, ttl=TTL, **more))


async def _semaphore(workload: Workload) -> None:
    await _leases(workload, "semaphore", lambda client, name, **more: client.semaphore(name, 1, ttl=TTL, **more))
    semaphore = workload.one.semaphore("g", 2, ttl=TTL)
    lease = await workload.record("acquire", semaphore.acquire)
    if lease is not None:
        await workload.record("slot", lease.slot)
        await workload.record("release", lease.release)
    await workload.record("resize", semaphore.resize, 3)
    await workload.record("resize again", semaphore.resize, None)


async def _rwlock(workload: Workload) -> None:
    await _leases(workload, "rwlock", lambda client, name, **more: _Side(client.rwlock(name, ttl=TTL, **more)))
    lease = await workload.record("write", workload.one.rwlock("g", ttl=TTL).write().acquire, timeout=RETRY_FOR)
    if lease is not None:
        await workload.record("downgrade", lease.downgrade)
        await workload.join(workload.start("read", workload.other.rwlock("g", ttl=TTL).read()))
        await workload.record("release", lease.release)


class _Side:
    """The writer's side of a read-write lock, with the methods that both sides share."""

    def __init__(self, rwlock: Any) -> None:
        side = rwlock.write()
        self.acquire, self.try_acquire = side.acquire, side.try_acquire
        self.status, self.force_release = rwlock.status, rwlock.force_release


async def _election(workload: Workload) -> None:
    """A term that is observed, and the terms of the past."""
    await _leases(workload, "election", lambda client, name, **more: client.election(name, ttl=TTL, **more))

    async def observe() -> None:
        await workload.record("observe", _first_leader, workload.one.election("o"))

    observing = workload.api.start(observe)
    await workload.wait_for_key("{hf:election:o}:watchers", 1)
    lease = await workload.record("lead", workload.other.election("o", ttl=TTL, value="v").acquire)
    await workload.join(observing)
    await workload.record("leader", workload.one.election("o").leader)
    await workload.record("history", workload.one.election("o").history)
    if lease is not None:
        await workload.record("resign", lease.release)


def _first_leader(election: Any) -> Any:
    """Return the first leader that is observed; in asyncio what is awaited for that."""

    async def seen() -> Any:
        async for leader in election.observe():
            if leader is not None:
                return leader
        return None

    observed = election.observe()
    return seen() if hasattr(observed, "__aiter__") else next(one for one in observed if one is not None)


async def _group(workload: Workload) -> None:
    """Members, of which another client hears."""
    group = workload.other.group("o", ttl=TTL)
    one = await workload.record("join", group.join)

    async def watch() -> None:
        await workload.record("watch", _second_of, workload.one.group("o").watch())

    watching = workload.api.start(watch)
    await workload.wait_for_key("{hf:group:o}:watchers", 1)
    two = await workload.record("join", group.join, value="v")
    await workload.join(watching)
    await workload.record("members", workload.one.group("o").members)
    await workload.record("size", workload.one.group("o").size)
    for member in (one, two):
        if member is not None:
            await workload.record("leave", member.release)
    last = await workload.record("join", workload.one.group("p", ttl=TTL).join)
    await workload.record("force_release", workload.other.group("p").force_release)
    if last is not None:
        await workload.record("leave", last.release)


async def _partition(workload: Workload) -> None:
    """Two workers: the second gets items of the first."""
    mine = await workload.record("join", _entered, workload.one.partition("o", ["a", "b"], ttl=TTL, every=SOON).join())
    if mine is None:
        return
    await workload.wait_for_key("{hf:partition:o}:watchers", 1)
    theirs = await workload.record(
        "join", _entered, workload.other.partition("o", ["a", "b"], ttl=TTL, every=SOON).join()
    )
    await workload.record("owners", workload.other.partition("o", ["a", "b"]).owners)
    for one in (mine, theirs):
        if one is not None:
            await workload.record("leave", _left, one)


def _entered(block: Any) -> Any:
    """Enter a block; in asyncio return what is awaited for that."""
    return block.__aenter__() if hasattr(block, "__aenter__") else block.__enter__()


def _left(block: Any) -> Any:
    return block.__aexit__(None, None, None) if hasattr(block, "__aexit__") else block.__exit__(None, None, None)


def _second_of(changes: Any) -> Any:
    """Return the second item; in asyncio what is awaited for that."""

    async def second() -> Any:
        await anext(changes)
        return await anext(changes)

    return second() if hasattr(changes, "__aiter__") else [next(changes), next(changes)][1]


async def _lock_all(workload: Workload) -> None:
    await _leases(
        workload, "lock", lambda client, name, **more: client.lock_all([name, f"{name}-too"], ttl=TTL, **more)
    )


async def _debounce(workload: Workload) -> None:
    """One call takes over from another one, and runs."""
    mine, theirs = workload.one.debounce("a", 0.3), workload.other.debounce("a", 0.3)

    async def wait() -> None:
        await workload.record("wait", mine.wait)

    first = workload.api.start(wait)
    await workload.api.eventually(lambda: workload.admin.exists("{hf:debounce:a}:burst"), SOON)
    await workload.record("take over", theirs.wait)
    await workload.join(first)
    for what, item in (("collect", 1), ("collect again", 2)):
        block = workload.one.debounce("b", 0.01).collect(item)
        if await workload.record(what, _entered, block):
            await workload.record(f"{what}: done", _left, block)


async def _limiter(workload: Workload) -> None:
    """Under a second rate that admits much: what lapses there meanwhile is dropped, and the rest stays."""
    rates = "4/200ms; 5/500ms"
    mine, theirs = workload.one.limiter("a", rates), workload.other.limiter("a", rates)
    admission = await workload.record("acquire", mine.acquire, cost=3)
    await workload.record("status", mine.status)
    if admission is not None:
        await workload.record("settle", admission.settle, cost=4)
    first = workload.start_admission("wait", theirs, 1)
    await workload.wait_for_key("{hf:limiter:a}:queue", 1)
    second = workload.start_admission("wait behind", mine, 4)
    await workload.wait_for_key("{hf:limiter:a}:queue", 2)
    await workload.record("try", mine.try_acquire)
    await workload.join(first, second)
    admission = await workload.record("be admitted at last", theirs.acquire, cost=4, timeout=RETRY_FOR)
    if admission is not None:
        await workload.record("give back", admission.settle, cost=0)

    # Of several metrics: what costs nothing in one of them stays in its window while others lapse.
    both = workload.one.limiter("m", {"requests": "9/100ms", "tokens": "900/100ms"})
    for number in range(2):
        admission = await workload.record(f"acquire {number} of metrics", both.acquire, timeout=RETRY_FOR)
        await workload.record(f"ask {number} for metrics", both.try_acquire, cost={"tokens": 800})
        if admission is not None:
            await workload.record(f"settle {number} of metrics", admission.settle, tokens=900)
            await workload.record(f"settle {number} back", admission.settle, tokens=0)
        await workload.api.sleep(0.06)
    if admission is not None:
        await workload.record("undo", admission.undo)

    # A waiter comes too early, since another was admitted before the clock was set back.
    later = workload.one.limiter("b", "2/400ms")
    await workload.record("acquire", later.acquire, cost=2, timeout=RETRY_FOR)
    waits = workload.start_admission("come too early", later, 2)
    await workload.wait_for_key("{hf:limiter:b}:queue", 1)
    workload.admin.zadd("{hf:limiter:b}:window:400", {"later 1": 2**52, "=": -3})
    workload.admin.pexpire("{hf:limiter:b}:window:400", 60_000)
    await workload.join(waits)


async def _once(workload: Workload) -> None:
    await _leases(workload, "once", lambda client, name, **more: client.once(name, ttl=TTL, **more))
    mine, theirs = workload.one.once("done", ttl=TTL), workload.other.once("done", ttl=TTL)
    run = await workload.record("run", mine.acquire, timeout=RETRY_FOR)
    waits = workload.start("wait for a result", theirs)
    await workload.wait_for_queue("{hf:once:done}", 1)
    if run is not None:
        await workload.record("finish", run.finish, "result")
    await workload.join(waits)
    await workload.record("find a result", theirs.try_acquire)
    await workload.record("status of what is done", mine.status)
    await workload.record("forget", mine.forget)

    payment = workload.one.once("begun", ttl=TTL, rerun=False)
    run = await workload.record("begin", payment.acquire, timeout=RETRY_FOR)
    if run is not None:
        await workload.record("release what has begun", run.release)


async def _budget(workload: Workload) -> None:
    """An account that begins a period, one whose hold has lapsed, and a hold that the server has lost."""
    budget = workload.one.budget("a", "100/total")

    async def reserve(amount: int, **options: Any) -> Any:
        block = budget.all_of("x", ("x", "y")).reserve(amount, **options)
        if workload.api.name == "sync":
            with block as held:
                workload.admin.delete("{hf:budget:a}:account:x")
                return held.settle(amount)
        async with block as held:
            workload.admin.delete("{hf:budget:a}:account:x")
            return await held.settle(amount)

    await workload.record("reserve", reserve, 1)
    await workload.record("reserve with a ttl", reserve, 2, ttl=TTL)
    await workload.record("status", budget.keyed("x").status)
    await workload.record("set_limit", budget.keyed("x").set_limit, 5)
    await workload.record("at_least_spent", budget.keyed("x").at_least_spent, 4)
    await workload.record("forget", budget.keyed("x").forget)


async def _names(workload: Workload) -> None:
    for kind in get_args(Kind):
        workload.request_as_dead_client(kind, "a", "held")
        workload.request_as_dead_client(kind, "a", "gone", claim=0, wait=4 * SOON)
    # The server has lost the state of this one, and the lease in it.
    workload.request_as_dead_client("lock", "b", "held")
    workload.request_as_dead_client("lock", "b", "gone", claim=0, wait=4 * SOON)
    workload.admin.delete(KeySet("hf", "lock", "b").key("state"))
    await workload.record("find all", _listed, workload, "*")
    await workload.record("find one", _listed, workload, "a")
    for name in ("a", "b"):
        await workload.record(f"force_release {name}", workload.one.lock(name).force_release)
    await workload.record("force_release a semaphore", workload.one.semaphore("a", 1).force_release)
    await workload.record("force_release a rwlock", workload.one.rwlock("a").force_release)
    await workload.record("force_release a run", workload.one.once("a").force_release)


async def _listed(workload: Workload, pattern: str) -> list[Any]:
    found = workload.one.names(pattern)
    return list(found) if workload.api.name == "sync" else [one async for one in found]


async def _check_server(workload: Workload) -> None:
    workload.request_as_dead_client("lock", "-", "held")
    workload.request_as_dead_client("lock", "-", "gone", claim=0, wait=4 * SOON)
    await workload.record("check_server", _all_seen, workload)


async def _operate(workload: Workload) -> None:
    await _names(workload)
    await _check_server(workload)
    client = workload.one
    workload.admin.zadd("{hf:limiter:a}:window:1000", {"x 1": 2**40, "=": -1})
    workload.admin.pexpire("{hf:limiter:a}:window:1000", 60_000)
    budget, limiter, semaphore, latch, once = (
        client.budget("a", "1/month"),
        client.limiter("a", "1/s"),
        client.semaphore("a", 1),
        client.latch("a", 2),
        client.once("x"),
    )
    for what, act in {
        "pause": lambda: limiter.pause(60),
        "resume": limiter.resume,
        "resize a limiter": lambda: limiter.resize("5/s"),
        "reset": limiter.reset,
        "see a limiter": limiter.status,
        "resize": lambda: semaphore.resize(2),
        "hold": lambda: client.hold("c", 60, reason="a test"),
        "unhold": lambda: client.unhold("c"),
        "see a budget": budget.status,
        "set the limit of a budget": lambda: budget.set_limit(5),
        "see a latch": latch.status,
        "forget a latch": latch.forget,
        "see a record": once.status,
        "forget a record": once.forget,
        "note": lambda: client.note("release", "a", kind="lock", reason="a test"),
        "audit": client.audit,
        "follow the audit": lambda: client.audit(after="0-0"),
    }.items():
        await workload.record(what, act)


async def _all_seen(workload: Workload) -> bool:
    found = await settled(workload.one.check_server())
    return not any(one.topic in ("rights", "scripts", "messages") for one in found)


async def _autocomplete(workload: Workload) -> None:
    plain = workload.one.autocomplete("plain")
    await workload.record("add", plain.add, ["ann", "bob"])
    await workload.record("complete", plain.complete, "a")
    await workload.record("size", plain.size)
    await workload.record("remove", plain.remove, ["ann"])
    await workload.record("clear", plain.clear)
    ranked = workload.one.autocomplete("ranked", ranked=True)
    # A third of the names have this prefix, and the worst ranks: the search for the best takes several pieces.
    names = {f"{'b' if number < MANY * 2 // 3 else 'a'}{number}": float(MANY - number) for number in range(MANY)}
    await workload.record("add with scores", ranked.add, names)
    await workload.record("add without", ranked.add, ["zoe"])
    await workload.record("complete by rank", ranked.complete, "a", limit=1)
    await workload.record("complete a few by rank", ranked.complete, "z")
    await workload.record("size by rank", ranked.size)
    await workload.record("remove from ranks", ranked.remove, ["zoe"])
    await workload.record("clear ranks", ranked.clear)


async def _scores(workload: Workload) -> None:
    scores = workload.one.scores("a")
    await workload.record("advance", scores.advance, {"ann": 1.0, "bob": 2.0})
    await workload.record("oldest", scores.oldest)
    await workload.record("newest", scores.newest)
    await workload.record("since", scores.since, 1.0)
    await workload.record("size", scores.size)
    await workload.record("remove", scores.remove, ["ann"])
    await workload.record("clear", scores.clear)


def _sample(kind: str) -> Script:
    """Return the workload described by an object's row."""
    sample = OBJECTS[kind]

    async def workload_of(workload: Workload) -> None:
        async def wait() -> None:
            await workload.record("wait", sample.wait, workload.one, "a")

        if sample.wait is None:
            await workload.record("use", sample.use, workload.one, "a")
        else:
            waiting = workload.api.start(wait)
            await workload.wait_for_key(f"{{hf:{kind}:a}}:{sample.waits}", 1)
            await workload.record("use", sample.use, workload.other, "a")
            await workload.record("let go", sample.let_go, workload.other, "a")
            await workload.join(waiting)
        for method in sample.others:
            await workload.record(method, getattr(sample.make(workload.one, "a"), method))

    return workload_of


async def _min_replicas(workload: Workload) -> None:
    """The server has no replicas, so none is granted."""
    await _lock(workload)
    lock = workload.one.lock("replicated", ttl=TTL, min_replicas=1, replica_timeout=0.2)
    await workload.record("acquire where replicas must have it", lock.acquire)


async def _compat(workload: Workload) -> None:
    key = KEYS["compat"]
    new = RedisLock if workload.api.name == "sync" else AsyncRedisLock
    for options in ({}, {"token": "given"}):
        lock = new(workload.one, key, timeout=TTL)
        if await workload.record("acquire", lock.acquire, blocking=False, **options):
            await workload.record("owned", lock.owned)
            await workload.record("locked", lock.locked)
            await workload.record("extend", lock.extend, 1.0)
            await workload.record("reacquire", lock.reacquire)
            await workload.record("release", lock.release)
    mine, theirs = (new(client, key, timeout=TTL, sleep=SOON / 4) for client in (workload.one, workload.other))
    if not await workload.record("acquire", mine.acquire, blocking=False):
        return

    async def wait() -> None:
        if await workload.record("wait", theirs.acquire, blocking_timeout=4 * SOON):
            await workload.record("release", theirs.release)

    waiting = workload.api.start(wait)
    await workload.api.sleep(SOON / 4)
    await workload.record("release", mine.release)
    await workload.join(waiting)


async def _fencing(workload: Workload) -> None:
    value, fields = "page:1", "page:2"
    await workload.record("set", set_if_newer, workload.one, value, "x", 1)
    await workload.record("set with a ttl", set_if_newer, workload.one, value, "x", 2, ttl=TTL, guard_ttl=TTL)
    await workload.record("delete", delete_if_newer, workload.one, value, 3)
    await workload.record("set fields", hset_if_newer, workload.one, fields, {"x": "y"}, 4)
    await workload.record("advance", advance_fence, workload.one, fields, 5)
    await workload.record("latest", latest_fence, workload.one, fields)


WORKLOADS: dict[str, Script] = {
    "lock": _lock,
    "semaphore": _semaphore,
    "rwlock": _rwlock,
    "lock_all": _lock_all,
    "limiter": _limiter,
    "budget": _budget,
    "debounce": _debounce,
    "election": _election,
    "group": _group,
    "partition": _partition,
    "once": _once,
    "names": _names,
    "check_server": _check_server,
    "operate": _operate,
    "min_replicas": _min_replicas,
    "autocomplete": _autocomplete,
    "scores": _scores,
    "compat": _compat,
    "fencing": _fencing,
}
WORKLOADS |= {kind: _sample(kind) for kind in OBJECTS if kind not in WORKLOADS}
"""The workloads, by the names of `handfast.acl.USES`. The last two use redis-py's own clients."""
