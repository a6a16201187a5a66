"""A workload for each primitive that covers all its operations and so every command of its scripts.

The outcome of each operation is recorded, so that two runs can be compared: as a user with all the rights of the
primitive, and as a user who lacks one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

import redis

from handfast import AcquireTimeout, LeaseLost, ScriptError, ServerRefused
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from handfast.compat import AsyncRedisLock, RedisLock
from handfast.fencing import advance_fence, delete_if_newer, hset_if_newer, latest_fence, set_if_newer
from handfast_lab.chaos.apis import Api, Started, settled

__all__ = ["KEYS", "TTL", "WORKLOADS", "Note", "Workload"]

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
class Note:
    """The outcome of one operation."""

    what: str
    outcome: str
    """``done`` or another outcome: ``refused`` is a clear error about a missing right, ``unclear`` any other error."""
    words: str = ""
    """The error text."""
    wrote: bool = False
    """Whether the refused operation had already changed keys."""


class Workload:
    """Two clients of one user, and an administrator who checks the keys."""

    def __init__(self, api: Api, admin: Any, one: Any, other: Any) -> None:
        self.api, self.admin, self.one, self.other = api, admin, one, other
        self.notes: list[Note] = []

    async def does(self, what: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call an operation and record its outcome. Return its result, or None on an error."""
        before = self._state()
        try:
            given = await settled(call(*args, **options))
        except AcquireTimeout:
            self._note(what, "timed out")
        except LeaseLost:
            self._note(what, "lost")
        except (ServerRefused, ScriptError, redis.ResponseError) as error:
            words = str(error)
            is_clear = bool(_RIGHTS.search(words)) and (not isinstance(error, ServerRefused) or "ACL SETUSER" in words)
            self._note(what, "refused" if is_clear else "unclear", words, wrote=self._state() != before)
        except Exception as error:  # noqa: BLE001 -- any other error does not report a missing right
            self._note(what, "unclear", f"{type(error).__name__}: {error}")
        else:
            self._note(what, "done" if given is not False else "no")
            return given
        return None

    def starts(self, what: str, wanted: Any) -> Started:
        """Start a task or thread that acquires `wanted` and releases it at once."""

        async def waits() -> None:
            lease = await self.does(what, wanted.acquire, timeout=RETRY_FOR)
            if lease is not None:
                await self.does(f"{what}: release", lease.release)

        return self.api.start(waits)

    async def ends(self, *started: Started) -> None:
        """Wait for the started tasks or threads, and record those that do not end."""
        for late in await self.api.late(started, 2 * RETRY_FOR):
            self._note(repr(late), "never came to an end")

    async def in_line(self, key: str, count: int) -> None:
        """Poll until the queue has `count` waiters, for a short time only: they may have been refused instead."""
        await self.api.eventually(lambda: self.admin.zcard(key) >= count, SOON)

    def plant(
        self, kind: str, name: str, token: str, *, ttl: float = TTL, claim: float = TTL, wait: float = 0.0
    ) -> None:
        """Request the only permit of a name for a client that does not exist, as if it had died since."""
        script, place = load("permit_acquire"), KeySet("hf", kind, name)
        values = (
            token,
            1,
            1,
            *(round(seconds * 1000) for seconds in (ttl, claim, wait)),
            10,
            "hf:inbox:gone hf:control:gone x",
        )
        keys = [place.key(part) for part in script.header.keys]
        self.admin.execute_command("EVAL", script.source, len(keys), *keys, *values)

    def _note(self, what: str, outcome: str, words: str = "", *, wrote: bool = False) -> None:
        self.notes.append(Note(what, outcome, words, wrote))

    def _state(self) -> dict[str, Any]:
        return {key: self.admin.dump(key) for key in self.admin.scan_iter(count=1000)}


async def _leases(workload: Workload, kind: str, make: Callable[..., Any]) -> None:
    """Run what all primitives with leases share; ``make`` takes a client and a name."""
    mine, yours = make(workload.one, "a"), make(workload.other, "a")
    line = KeySet("hf", kind, "a").key("queue")
    lease = await workload.does("acquire", mine.acquire, timeout=RETRY_FOR)
    await workload.does("try", yours.try_acquire)
    await workload.does("status", mine.status)
    if lease is not None:
        await workload.does("extend", lease.extend, TTL)
    first = workload.starts("wait", yours)
    await workload.in_line(line, 1)
    second = workload.starts("wait behind", mine)
    await workload.in_line(line, 2)
    if lease is not None:
        await workload.does("release", lease.release)
    await workload.ends(first, second)

    workload.plant(kind, "b", "over", ttl=SHORT)
    await workload.ends(workload.starts("wait for a lease that runs out", make(workload.one, "b")))

    # A queued waiter whose client is gone. A user who may not check for subscribers takes it to be alive for a while.
    workload.plant(kind, "c", "held")
    workload.plant(kind, "c", "gone", claim=0, wait=4 * SOON)
    workload.admin.zrem(KeySet("hf", kind, "c").key("holders"), "held")
    lease = await workload.does("pass somebody who is gone", make(workload.one, "c").acquire, timeout=SOON)
    if lease is not None:
        await workload.does("release", lease.release)

    # The permit was never released here, and the server has lost the record of its holder.
    workload.plant(kind, "f", "held")
    workload.admin.delete(KeySet("hf", kind, "f").key("holders"))
    lease = await workload.does("begin afresh", make(workload.one, "f").acquire, timeout=RETRY_FOR)
    if lease is not None:
        await workload.does("release", lease.release)

    lease = await workload.does("acquire", make(workload.one, "d").acquire, timeout=RETRY_FOR)
    await workload.does("force_release", make(workload.other, "d").force_release)
    if lease is not None:
        await workload.does("release what was taken away", lease.release)


async def _lock(workload: Workload) -> None:
    await _leases(workload, "lock", lambda client, name: client.lock(name, ttl=TTL))


async def _semaphore(workload: Workload) -> None:
    await _leases(workload, "semaphore", lambda client, name: client.semaphore(name, 1, ttl=TTL))
    semaphore = workload.one.semaphore("e", 2, ttl=TTL)
    await workload.does("resize", semaphore.resize, 3)
    await workload.does("resize again", semaphore.resize, None)


async def _rwlock(workload: Workload) -> None:
    await _leases(workload, "rwlock", lambda client, name: _Side(client.rwlock(name, ttl=TTL)))
    lease = await workload.does("write", workload.one.rwlock("e", ttl=TTL).write().acquire, timeout=RETRY_FOR)
    if lease is not None:
        await workload.does("downgrade", lease.downgrade)
        await workload.ends(workload.starts("read", workload.other.rwlock("e", ttl=TTL).read()))
        await workload.does("release", lease.release)


class _Side:
    """The writer's side of a read-write lock, with the methods that both sides share."""

    def __init__(self, rwlock: Any) -> None:
        side = rwlock.write()
        self.acquire, self.try_acquire = side.acquire, side.try_acquire
        self.status, self.force_release = rwlock.status, rwlock.force_release


async def _lock_all(workload: Workload) -> None:
    await _leases(workload, "lock", lambda client, name: client.lock_all([name, f"{name}-too"], ttl=TTL))


async def _autocomplete(workload: Workload) -> None:
    plain = workload.one.autocomplete("plain")
    await workload.does("add", plain.add, ["ann", "bob"])
    await workload.does("complete", plain.complete, "a")
    await workload.does("size", plain.size)
    await workload.does("remove", plain.remove, ["ann"])
    await workload.does("clear", plain.clear)
    ranked = workload.one.autocomplete("ranked", ranked=True)
    # A third of the names have this prefix, and the worst ranks: the search for the best takes several pieces.
    names = {f"{'b' if number < MANY * 2 // 3 else 'a'}{number}": float(MANY - number) for number in range(MANY)}
    await workload.does("add with scores", ranked.add, names)
    await workload.does("add without", ranked.add, ["zoe"])
    await workload.does("complete by rank", ranked.complete, "a", limit=1)
    await workload.does("complete a few by rank", ranked.complete, "z")
    await workload.does("size by rank", ranked.size)
    await workload.does("remove from ranks", ranked.remove, ["zoe"])
    await workload.does("clear ranks", ranked.clear)


async def _scores(workload: Workload) -> None:
    scores = workload.one.scores("a")
    await workload.does("advance", scores.advance, {"ann": 1.0, "bob": 2.0})
    await workload.does("oldest", scores.oldest)
    await workload.does("newest", scores.newest)
    await workload.does("since", scores.since, 1.0)
    await workload.does("size", scores.size)
    await workload.does("remove", scores.remove, ["ann"])
    await workload.does("clear", scores.clear)


async def _compat(workload: Workload) -> None:
    key = KEYS["compat"]
    new = RedisLock if workload.api.name == "sync" else AsyncRedisLock
    for options in ({}, {"token": "given"}):
        lock = new(workload.one, key, timeout=TTL)
        if await workload.does("acquire", lock.acquire, blocking=False, **options):
            await workload.does("owned", lock.owned)
            await workload.does("locked", lock.locked)
            await workload.does("extend", lock.extend, 1.0)
            await workload.does("reacquire", lock.reacquire)
            await workload.does("release", lock.release)
    mine, yours = (
        new(workload.one, key, timeout=2 * RETRY_FOR),
        new(workload.other, key, timeout=TTL, sleep=2 * RETRY_FOR),
    )
    if not await workload.does("acquire", mine.acquire, blocking=False):
        return
    began = monotonic()

    async def waits() -> None:
        # Without a wake-up it polls only at the beginning and at the end of this time.
        if await workload.does("wait", yours.acquire, blocking_timeout=4 * SOON):
            workload.notes.append(Note("wake up", "done" if monotonic() - began < 3 * SOON else "too late"))
            await workload.does("release", yours.release)

    waiting = workload.api.start(waits)
    await workload.api.eventually(lambda: workload.admin.pubsub_numsub(f"{key}:handfast")[0][1], SOON)
    await workload.does("release", mine.release)
    await workload.ends(waiting)


async def _fencing(workload: Workload) -> None:
    value, fields = "page:1", "page:2"
    await workload.does("set", set_if_newer, workload.one, value, "x", 1)
    await workload.does("set with a ttl", set_if_newer, workload.one, value, "x", 2, ttl=TTL, guard_ttl=TTL)
    await workload.does("delete", delete_if_newer, workload.one, value, 3)
    await workload.does("set fields", hset_if_newer, workload.one, fields, {"x": "y"}, 4)
    await workload.does("advance", advance_fence, workload.one, fields, 5)
    await workload.does("latest", latest_fence, workload.one, fields)


Living: TypeAlias = Callable[[Workload], Awaitable[None]]

WORKLOADS: dict[str, Living] = {
    "lock": _lock,
    "semaphore": _semaphore,
    "rwlock": _rwlock,
    "lock_all": _lock_all,
    "autocomplete": _autocomplete,
    "scores": _scores,
    "compat": _compat,
    "fencing": _fencing,
}
"""The workloads, by the names of `handfast.acl.USES`. The last two use redis-py's own clients."""
