"""A day of each primitive: all that its users do, in such a way that no command of its scripts goes unused.

What becomes of each thing that is done is noted, so that two days can be compared: one of a user who may do everything, and
one of a user who lacks a right.
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
from handfast_lab.chaos.colours import Colour, Started, settled

__all__ = ["DAYS", "KEYS", "TTL", "Day", "Note"]

TTL, SHORT = 1.0, 0.05
"""Seconds of a lease, and of one that is to end by itself."""

RETRY_FOR, SOON = 5.0, 0.4
"""Seconds that somebody waits for what must come, and for what may not."""

KEYS = {"compat": "report", "fencing": "page:*"}
"""The keys of a user's own that are locked and fenced."""

MANY = 3_000
"""Names in an index: so many that a server looks at a piece of them at a time."""

_RIGHTS = re.compile(r"no permissions|NOPERM|ACL failure|executing the script can't")
"""How servers say that somebody lacks a right."""


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one thing that was done."""

    what: str
    outcome: str
    """``done``, or a word for what else: ``refused`` is a clear error of the server's will, ``unclear`` any other."""
    words: str = ""
    """Of the error."""
    wrote: bool = False
    """Whether a refusal came when something had been written."""


class Day:
    """Two clients of one user, and an operator who looks on."""

    def __init__(self, colour: Colour, admin: Any, one: Any, other: Any) -> None:
        self.colour, self.admin, self.one, self.other = colour, admin, one, other
        self.notes: list[Note] = []

    async def does(self, what: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do it, and note what became of it. What it gives, or None."""
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
        except Exception as error:  # noqa: BLE001 -- whatever it is, it says nothing of rights
            self._note(what, "unclear", f"{type(error).__name__}: {error}")
        else:
            self._note(what, "done" if given is not False else "no")
            return given
        return None

    def starts(self, what: str, wanted: Any) -> Started:
        """Have somebody wait for it, and give it back at once."""

        async def waits() -> None:
            lease = await self.does(what, wanted.acquire, timeout=RETRY_FOR)
            if lease is not None:
                await self.does(f"{what}: release", lease.release)

        return self.colour.start(waits)

    async def ends(self, *started: Started) -> None:
        """Wait for those who were started."""
        for late in await self.colour.late(started, 2 * RETRY_FOR):
            self._note(repr(late), "never came to an end")

    async def in_line(self, key: str, count: int) -> None:
        """Wait until so many stand in that line. They may have been refused instead."""
        await self.colour.eventually(lambda: self.admin.zcard(key) >= count, SOON)

    def plant(
        self, kind: str, name: str, token: str, *, ttl: float = TTL, claim: float = TTL, wait: float = 0.0
    ) -> None:
        """A stranger asks for all permits of a name, and its clients are gone before the answer."""
        script, place = load("permit_acquire"), KeySet("hf", kind, name)
        values = (
            token,
            1,
            1,
            *(round(seconds * 1000) for seconds in (ttl, claim, wait)),
            10,
            "hf:inbox:gone hf:home:gone x",
        )
        keys = [place.key(part) for part in script.header.keys]
        self.admin.execute_command("EVAL", script.source, len(keys), *keys, *values)

    def _note(self, what: str, outcome: str, words: str = "", *, wrote: bool = False) -> None:
        self.notes.append(Note(what, outcome, words, wrote))

    def _state(self) -> dict[str, Any]:
        return {key: self.admin.dump(key) for key in self.admin.scan_iter(count=1000)}


async def _leases(day: Day, kind: str, make: Callable[..., Any]) -> None:
    """What is the same for all that is held with a lease; ``make`` takes a client and a name, and maybe ``max_waiters``."""
    mine, yours = make(day.one, "a"), make(day.other, "a")
    line = KeySet("hf", kind, "a").key("queue")
    lease = await day.does("acquire", mine.acquire, timeout=RETRY_FOR)
    await day.does("try", yours.try_acquire)
    await day.does("status", mine.status)
    if lease is not None:
        await day.does("extend", lease.extend, TTL)
    first = day.starts("wait", yours)
    await day.in_line(line, 1)
    second = day.starts("wait behind", mine)
    await day.in_line(line, 2)
    if lease is not None:
        await day.does("release", lease.release)
    await day.ends(first, second)

    day.plant(kind, "b", "over", ttl=SHORT)
    await day.ends(day.starts("wait for a lease that runs out", make(day.one, "b")))

    # A stranger stands in line, who is alive for a while to those that may not ask who listens.
    day.plant(kind, "c", "held")
    day.plant(kind, "c", "gone", claim=0, wait=4 * SOON)
    day.admin.zrem(KeySet("hf", kind, "c").key("holders"), "held")
    lease = await day.does("pass somebody who is gone", make(day.one, "c").acquire, timeout=SOON)
    if lease is not None:
        await day.does("release", lease.release)

    # Nobody has given back what was held here, and the server has forgotten who held it.
    day.plant(kind, "f", "held")
    day.admin.delete(KeySet("hf", kind, "f").key("holders"))
    lease = await day.does("begin afresh", make(day.one, "f").acquire, timeout=RETRY_FOR)
    if lease is not None:
        await day.does("release", lease.release)

    lease = await day.does("acquire", make(day.one, "d").acquire, timeout=RETRY_FOR)
    await day.does("force_release", make(day.other, "d").force_release)
    if lease is not None:
        await day.does("release what was taken away", lease.release)


async def _lock(day: Day) -> None:
    await _leases(day, "lock", lambda client, name: client.lock(name, ttl=TTL))


async def _semaphore(day: Day) -> None:
    await _leases(day, "semaphore", lambda client, name: client.semaphore(name, 1, ttl=TTL))
    semaphore = day.one.semaphore("e", 2, ttl=TTL)
    await day.does("resize", semaphore.resize, 3)
    await day.does("resize again", semaphore.resize, None)


async def _rwlock(day: Day) -> None:
    await _leases(day, "rwlock", lambda client, name: _Side(client.rwlock(name, ttl=TTL)))
    lease = await day.does("write", day.one.rwlock("e", ttl=TTL).write().acquire, timeout=RETRY_FOR)
    if lease is not None:
        await day.does("downgrade", lease.downgrade)
        await day.ends(day.starts("read", day.other.rwlock("e", ttl=TTL).read()))
        await day.does("release", lease.release)


class _Side:
    """The writing side, with what belongs to both."""

    def __init__(self, rwlock: Any) -> None:
        side = rwlock.write()
        self.acquire, self.try_acquire = side.acquire, side.try_acquire
        self.status, self.force_release = rwlock.status, rwlock.force_release


async def _lock_all(day: Day) -> None:
    await _leases(day, "lock", lambda client, name: client.lock_all([name, f"{name}-too"], ttl=TTL))


async def _autocomplete(day: Day) -> None:
    plain = day.one.autocomplete("plain")
    await day.does("add", plain.add, ["ann", "bob"])
    await day.does("complete", plain.complete, "a")
    await day.does("size", plain.size)
    await day.does("remove", plain.remove, ["ann"])
    await day.does("clear", plain.clear)
    ranked = day.one.autocomplete("ranked", ranked=True)
    # The prefix is that of a third, whose ranks are the worst: the best of them are looked for in several pieces.
    names = {f"{'b' if number < MANY * 2 // 3 else 'a'}{number}": float(MANY - number) for number in range(MANY)}
    await day.does("add with scores", ranked.add, names)
    await day.does("add without", ranked.add, ["zoe"])
    await day.does("complete by rank", ranked.complete, "a", limit=1)
    await day.does("complete a few by rank", ranked.complete, "z")
    await day.does("size by rank", ranked.size)
    await day.does("remove from ranks", ranked.remove, ["zoe"])
    await day.does("clear ranks", ranked.clear)


async def _scores(day: Day) -> None:
    scores = day.one.scores("a")
    await day.does("advance", scores.advance, {"ann": 1.0, "bob": 2.0})
    await day.does("oldest", scores.oldest)
    await day.does("newest", scores.newest)
    await day.does("since", scores.since, 1.0)
    await day.does("size", scores.size)
    await day.does("remove", scores.remove, ["ann"])
    await day.does("clear", scores.clear)


async def _compat(day: Day) -> None:
    key = KEYS["compat"]
    new = RedisLock if day.colour.name == "sync" else AsyncRedisLock
    for options in ({}, {"token": "given"}):
        lock = new(day.one, key, timeout=TTL)
        if await day.does("acquire", lock.acquire, blocking=False, **options):
            await day.does("owned", lock.owned)
            await day.does("locked", lock.locked)
            await day.does("extend", lock.extend, 1.0)
            await day.does("reacquire", lock.reacquire)
            await day.does("release", lock.release)
    mine, yours = new(day.one, key, timeout=2 * RETRY_FOR), new(day.other, key, timeout=TTL, sleep=2 * RETRY_FOR)
    if not await day.does("acquire", mine.acquire, blocking=False):
        return
    began = monotonic()

    async def waits() -> None:
        # In this time it asks at the beginning and at the end, unless it is woken.
        if await day.does("wait", yours.acquire, blocking_timeout=4 * SOON):
            day.notes.append(Note("wake up", "done" if monotonic() - began < 3 * SOON else "too late"))
            await day.does("release", yours.release)

    waiting = day.colour.start(waits)
    await day.colour.eventually(lambda: day.admin.pubsub_numsub(f"{key}:handfast")[0][1], SOON)
    await day.does("release", mine.release)
    await day.ends(waiting)


async def _fencing(day: Day) -> None:
    value, fields = "page:1", "page:2"
    await day.does("set", set_if_newer, day.one, value, "x", 1)
    await day.does("set with a ttl", set_if_newer, day.one, value, "x", 2, ttl=TTL, guard_ttl=TTL)
    await day.does("delete", delete_if_newer, day.one, value, 3)
    await day.does("set fields", hset_if_newer, day.one, fields, {"x": "y"}, 4)
    await day.does("advance", advance_fence, day.one, fields, 5)
    await day.does("latest", latest_fence, day.one, fields)


Living: TypeAlias = Callable[[Day], Awaitable[None]]

DAYS: dict[str, Living] = {
    "lock": _lock,
    "semaphore": _semaphore,
    "rwlock": _rwlock,
    "lock_all": _lock_all,
    "autocomplete": _autocomplete,
    "scores": _scores,
    "compat": _compat,
    "fencing": _fencing,
}
"""By the names of `handfast.acl.USES`. The clients of the last two are those of redis-py."""
