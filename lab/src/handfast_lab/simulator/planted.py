"""Broken variants of the engine, each of which the simulation must catch: a check that finds nothing must be able to.

A variant is one text of one file replaced by another: in a script, in a protocol or in the asyncio driver. Seeds are run
from 0 on until something is found; how many that took is the strength of the checks.
"""

from __future__ import annotations

import importlib
import multiprocessing
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from statistics import median
from typing import Any, NamedTuple

from handfast_lab.simulator.classic import ClassicSimulation, classic_scripts
from handfast_lab.simulator.hunt import ENGINE, hunt
from handfast_lab.simulator.server import ENGINE_SCRIPTS, SimulatedServer

__all__ = ["PLANTED", "Caught", "Planted", "broken", "catch", "planting", "show"]

MOST = 50_000
"""Schedules after which a variant counts as not caught."""

CHUNK = 25


class Planted(NamedTuple):
    """One mistake."""

    name: str
    where: str
    """A script, ``scripts`` for all that have the text, ``classic/`` and a listing, or a module."""
    old: str
    new: str
    why: str
    """What it breaks."""


class Caught(NamedTuple):
    """How it ended."""

    planted: Planted
    schedules: int
    """How many it took; 0 if it was not caught."""
    finding: str


PLANTED = (
    # --- who may hold
    Planted(
        "release takes whatever is held",
        "permit_release",
        "redis.call('ZREM', holders, token) == 1",
        "redis.call('DEL', holders) == 1",
        "a release without a look at the token gives up what others hold",
    ),
    Planted(
        "renew brings back what was lost",
        "permit_renew",
        "if deadline <= now then",
        "if false then",
        "a renewal that comes late makes a holder of one who holds nothing",
    ),
    Planted(
        "renew adds to the deadline",
        "permit_renew",
        "math.max(deadline, now + ttl_ms * 1000)",
        "deadline + ttl_ms * 1000",
        "each renewal that is sent again prolongs the lease once more",
    ),
    Planted(
        "one permit too many",
        "permit_acquire",
        "if not last[1] and s.used + weight <= limit_in_force then",
        "if not last[1] and s.used + weight <= limit_in_force + 1 then",
        "a newcomer is let in where one permit is missing",
    ),
    Planted(
        "one permit too many for the line",
        "scripts",
        "local fits = alive and s.used + waiter.weight <= limit_in_force",
        "local fits = alive and s.used + waiter.weight <= limit_in_force + 1",
        "the line is handed one permit more than there are",
    ),
    Planted(
        "an operator's limit is not for the line",
        "scripts",
        "local limit_in_force = waiter and (s.limit or waiter.limit)",
        "local limit_in_force = waiter and waiter.limit",
        "who waits is let in by its own limit, whatever an operator has set",
    ),
    Planted(
        "used does not sink",
        "permit_release",
        "s.used = s.used - weight_of(s.record)",
        "s.used = s.used - 0",
        "what is given up stays counted, so permits get fewer",
    ),
    Planted(
        "used does not sink with what is over",
        "scripts",
        "s.used = s.used - weight_of(record)\n    end",
        "s.used = s.used - 0\n    end",
        "what ran out stays counted, so permits get fewer",
    ),
    Planted(
        "what is over is not swept up",
        "scripts",
        "if next_expiry and next_expiry <= now then",
        "if false then",
        "the permits of a dead holder never come back",
    ),
    Planted(
        "records of what is over stay",
        "scripts",
        "    redis.call('HDEL', s.tokens, unpack(expired))\n",
        "",
        "each lease that runs out leaves something behind",
    ),
    Planted(
        "force takes newer leases, too",
        "permit_revoke",
        "if not record or record.fence <= up_to_fence then",
        "if true then",
        "a force_release that is sent again hits those who came after it",
    ),
    # --- once and again
    Planted(
        "no tombstones",
        "scripts",
        "  redis.call('ZADD', tombstones, now + TOMBSTONE_US + (is_lost and LOST_MARK or 0), token)\n"
        "  redis.call('PEXPIRE', tombstones, KEY_TTL_MS)\n",
        "",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "a release is forgotten",
        "permit_release",
        "    add_tombstone(tombstones, token)\n",
        "",
        "a release that is sent again is answered with lost",
    ),
    Planted(
        "tombstones are not looked at",
        "permit_acquire",
        "if redis.call('ZSCORE', tombstones, token) then",
        "if false then",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "granted anew each time",
        "permit_acquire",
        "  if deadline > now then\n    return {'granted', record.fence, deadline - now}\n  end\n",
        "",
        "an acquire that is sent again is no second look, but a second grant",
    ),
    Planted(
        "cancel leaves what was granted",
        "permit_cancel",
        "if redis.call('ZREM', holders, token) == 1 then",
        "if false then",
        "a grant that came together with the timeout stays without an owner",
    ),
    Planted(
        "cancel leaves the place in line",
        "permit_cancel",
        "redis.call('ZREM', queue, token)\n  if",
        "if",
        "who has given up still stands in line",
    ),
    Planted(
        "bundles keep their part of the places",
        "permit_cancel",
        "  redis.call('ZREM', queue, token)\n",
        "  if #KEYS == 4 then\n    redis.call('ZREM', queue, token)\n  end\n",
        "who has given up several locks still stands in their lines",
    ),
    # --- the line
    Planted(
        "newcomers overtake",
        "permit_acquire",
        "if not last[1] and s.used + weight <= limit_in_force then",
        "if s.used + weight <= limit_in_force then",
        "who comes while something is free gets in before those who wait",
    ),
    Planted(
        "asking again costs the place",
        "permit_acquire",
        "if not place then\n    redis.call('ZADD', queue",
        "if true then\n    redis.call('ZADD', queue",
        "each waiter that asks again stands at the end of the line",
    ),
    Planted(
        "a dead head stays",
        "scripts",
        "return redis.pcall('PUBSUB', 'NUMSUB', inbox)[2] ~= 0",
        "return true",
        "a writer that died at the head of the line keeps all readers out",
    ),
    Planted(
        "the wait-lease means nothing",
        "scripts",
        "local alive = waiter and waiter.wait_until >= now",
        "local alive = waiter",
        "who said nothing for a minute still keeps its place",
    ),
    Planted(
        "the wait-lease is not renewed",
        "permit_acquire",
        "string.format('%.0f', now + wait_ms * 1000)",
        "string.format('%.0f', since + wait_ms * 1000)",
        "who waits for more than a minute is dropped, alive or not",
    ),
    Planted(
        "a release hands nothing over",
        "permit_release",
        "more = more == 0 and hand_over(s) or more",
        "more = 0",
        "what is given up stays free until a client asks",
    ),
    Planted(
        "lowering hands nothing over",
        "permit_lower",
        "local more = hand_over(s)",
        "local more = 0",
        "readers wait though the writer has become one of them",
    ),
    Planted(
        "no message is sent",
        "scripts",
        "if redis.call('PUBLISH', waiter.inbox, message) > 0 then",
        "if true then",
        "a grant that its waiter does not hear of is over before it asks",
    ),
    Planted(
        "those who do not hear are let in",
        "scripts",
        "if redis.call('PUBLISH', waiter.inbox, message) > 0 then",
        "if redis.call('PUBLISH', waiter.inbox, message) >= 0 then",
        "permits are handed to the dead, one claim window each",
    ),
    # --- fences
    Planted(
        "the fence does not grow",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(s.fence, now, min_fence or 0)",
        "when the clock steps back, two grants have one fence",
    ),
    Planted(
        "the fence is a count",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(s.fence + 1, min_fence or 0)",
        "a server that forgets begins to count anew",
    ),
    Planted(
        "the fence is the time",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(now, min_fence or 0)",
        "when the clock steps back, fences fall",
    ),
    Planted(
        "the fence loses digits",
        "scripts",
        "local fence_text = fence == now and now_text or string.format('%.0f', fence)",
        "local fence_text = tostring(fence)",
        "tostring keeps 14 digits",
    ),
    Planted(
        "a bundle has the fence of its first name",
        "multi_acquire",
        "  min_fence = math.max(min_fence, s.fence + 1)\nend",
        "end",
        "of two names of a bundle one has had that fence before",
    ),
    # --- keys
    Planted(
        "a TTL is missing",
        "scripts",
        "  raise_ttl(s.holders, lease_ms + HOLDERS_GRACE_MS, used == weight)\n",
        "",
        "the holders of a name that is not used any more never expire",
    ),
    Planted(
        "a TTL is too short",
        "scripts",
        "redis.call('PEXPIRE', key, ms + SLACK_MS)",
        "redis.call('PEXPIRE', key, 100)",
        "a key ends before the lease that is in it",
    ),
    # --- what the server answers
    Planted(
        "a ring promises too much",
        "scripts",
        "claim_ms .. '000'\n",
        "claim_ms .. '0000'\n",
        "a holder believes ten times as long as the server",
    ),
    Planted(
        "a second answer promises too much",
        "permit_acquire",
        "return {'granted', record.fence, deadline - now}",
        "return {'granted', record.fence, ttl_ms * 1000}",
        "who asks again believes in a whole ttl",
    ),
    # --- memory
    Planted(
        "sweeping opens the door",
        "scripts",
        "    require_memory(s.holders)\n    local expired",
        "    local expired",
        "an acquire that sweeps first is let in at maxmemory",
    ),
    Planted(
        "renewing needs memory",
        "permit_renew",
        "    allow_at_maxmemory(holders)\n",
        "",
        "at maxmemory leases end though their holders live",
    ),
    # --- several locks
    Planted(
        "a bundle takes what is not free",
        "multi_acquire",
        "if position == 0 then",
        "if position <= 1 then",
        "all locks are granted where one of them is held",
    ),
    Planted(
        "a bundle gives up its first name only",
        "permit_release",
        "for k = 1, #KEYS, 4 do",
        "for k = 1, 4, 4 do",
        "the other names stay held",
    ),
    Planted(
        "a bundle renews its first name only",
        "permit_renew",
        "for k = 1, #KEYS, 4 do\n  local holders",
        "for k = 1, 4, 4 do\n  local holders",
        "the other names end, and their holder believes in them",
    ),
    # --- protocols
    Planted(
        "a lease counts from the ring",
        "handfast._protocol.acquire",
        "granted_at = min(sent_at + (message.granted_us - asked_us) / 1e6, woke_at)",
        "granted_at = woke_at",
        "a holder believes longer than the server, by the time that the ring travelled",
    ),
    Planted(
        "an error leaves nothing to undo",
        "handfast._protocol.acquire",
        "            if error.changed_nothing:\n                attempt.apply(REFUSE)\n",
        "            attempt.state = NEW\n",
        "a waiter that the server refuses at last stays in line",
    ),
    Planted(
        "a try leaves nothing to undo",
        "handfast._protocol.acquire",
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token)\n",
        "        attempt.state = NEW\n        answer: Answer = yield attempt.request.try_acquire(attempt.token)\n"
        "        attempt.state = SENT\n",
        "a try whose reply was lost holds what its caller never got",
    ),
    Planted(
        "a renewal counts from its reply",
        "handfast._protocol.lease",
        "lease.renewed(answer.sent_at, answer.reply[1])",
        "lease.renewed(answer.sent_at + 0.05, answer.reply[1])",
        "a holder believes longer than the server, by the way there and back",
    ),
    Planted(
        "what went astray is forgotten",
        "handfast._protocol.acquire",
        "    if again:\n        attempt.apply(DUPLICATE)\n    if reply",
        "    if reply",
        "a try that was sent twice and refused is granted without an owner when the first copy arrives",
    ),
    # --- the asyncio driver
    Planted(
        "the driver does not undo",
        "handfast._drivers.aio.driver",
        "        if not attempt.needs_undo or not self._connector.reached or context is None:\n",
        "        if True:\n",
        "a cancelled acquire leaves its place, or its lease",
    ),
    Planted(
        "a request that was sent twice counts as sent once",
        "handfast._drivers.aio.driver",
        "return outcome if session.breaks == breaks else outcome._replace(again=True)",
        "return outcome",
        "a try whose first copy arrives after the answer to the second is granted without an owner",
    ),
    Planted(
        "the driver renews what is released",
        "handfast._drivers.aio.loop_context",
        "        self.leases.pop(lease.token, None)\n        if lease.token in",
        "        if not lease.request.renew:\n            self.leases.pop(lease.token, None)\n        if lease.token in",
        "renewals go on when the release has returned",
    ),
    Planted(
        "a lease counts from its reply",
        "handfast._drivers.aio.session",
        "request.future.set_result(Answer(request.sent_at, frame))",
        "request.future.set_result(Answer(monotonic(), frame))",
        "a holder believes longer than the server, by the way back",
    ),
    Planted(
        "a cancelled request is owed no reply",
        "handfast._drivers.aio.session",
        "                request = sent.popleft()\n",
        "                while len(sent) > 1 and sent[0].future.done():\n                    sent.popleft()\n"
        "                request = sent.popleft()\n",
        "the reply to a request that was cancelled is taken for that to the next one",
    ),
    # --- the well-known listings
    Planted(
        "a lock is taken without a look",
        "classic/lock_acquire",
        "if redis.call('EXISTS', lock) == 0 then",
        "if true then",
        "two hold it",
    ),
    Planted(
        "a lock is released without a look",
        "classic/lock_release",
        "if redis.call('GET', lock) == identifier then",
        "if true then",
        "a release after the end of one's own time gives up what another holds",
    ),
    Planted(
        "a lock without a TTL",
        "classic/lock_acquire",
        "redis.call('SETEX', lock, lock_seconds, identifier)",
        "redis.call('SET', lock, identifier)",
        "a client that dies holds it for all time",
    ),
    Planted(
        "a place too many",
        "classic/semaphore_acquire",
        "< limit then",
        "<= limit then",
        "one more than the limit holds",
    ),
    Planted(
        "places of the dead are kept",
        "classic/semaphore_acquire",
        "redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', oldest)\n",
        "",
        "a client that dies keeps its place for all time",
    ),
    Planted(
        "a lost place is refreshed",
        "classic/semaphore_refresh",
        "if redis.call('ZSCORE', semaphore, identifier) then",
        "if true then",
        "who was thrown out comes back, as one too many",
    ),
)


def catch(planted: Planted, most: int = MOST, first: int = 0) -> Caught:
    """Run seeds until one finds it. One that finds something without the mistake does not count."""
    start, end = first, first + most
    while start < end:
        with _seeds(planted) as seeds:
            found = seeds(start, end)
        if found is None:
            break
        seed, words = found
        if planted.where.startswith("classic/") or not hunt(seed, seed + 1).findings:
            return Caught(planted, seed - first + 1, words)
        start = seed + 1
    return Caught(planted, 0, "")


def catch_all(processes: int = 1, most: int = MOST) -> Iterator[Caught]:
    """Run all variants, one after the other."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(partial(catch, most=most), PLANTED)


def show(tell: Callable[[str], object], processes: int = 1, most: int = MOST) -> int:
    """Run all variants, and say what came of them; 1 if any was not caught."""
    caught = []
    for one in catch_all(processes, most):
        caught.append(one)
        tell(f"{one.schedules or '-':>6}  {one.planted.name:<42} {one.finding:.110}")
    took = [one.schedules for one in caught if one.schedules]
    tell(
        f"{len(took)} of {len(caught)} caught, after {median(took):,.0f} schedules in the median, {max(took):,} at most"
    )
    return int(len(took) < len(caught))


_Seeds = Callable[[int, int], tuple[int, str] | None]
"""The first of the seeds that finds something, and what."""


@contextmanager
def planting(planted: Planted) -> Iterator[dict[str, str]]:
    """The scripts to run, with the mistake in them or in what runs them. Raises LookupError where it has no place."""
    if planted.where.startswith("classic/"):
        yield broken(planted._replace(where=planted.where.removeprefix("classic/")), classic_scripts())
    elif "." in planted.where:
        with _replaced(planted):
            yield dict(ENGINE_SCRIPTS)
    else:
        yield broken(planted, ENGINE_SCRIPTS)


@contextmanager
def _seeds(planted: Planted) -> Iterator[_Seeds]:
    with planting(planted) as scripts:
        if planted.where.startswith("classic/"):
            yield partial(_classic, SimulatedServer(scripts, engine=ENGINE))
        else:
            yield partial(_engine, scripts)


def _engine(scripts: dict[str, str], first: int, last: int) -> tuple[int, str] | None:
    for start in range(first, last, CHUNK):
        findings = hunt(start, min(start + CHUNK, last), scripts=scripts).findings
        if findings:
            return min((seed, texts[0]) for seed, texts in findings.items())
    return None


def _classic(server: SimulatedServer, first: int, last: int) -> tuple[int, str] | None:
    for seed in range(first, last):
        findings = ClassicSimulation(seed, server).run()
        if findings:
            return seed, findings[0]
    return None


def broken(planted: Planted, scripts: dict[str, str]) -> dict[str, str]:
    """The scripts with the mistake in them. Raises LookupError where its text is not found."""
    names = list(scripts) if planted.where == "scripts" else [planted.where]
    changed = {name: scripts[name].replace(planted.old, planted.new) for name in names if planted.old in scripts[name]}
    if not changed:
        raise LookupError(f"{planted.name!r}: its text is not in {planted.where} any more")
    return scripts | changed


@contextmanager
def _replaced(planted: Planted) -> Iterator[None]:
    """A module whose functions have the mistake in them, wherever they have been imported to."""
    module = importlib.import_module(planted.where)
    package, _, name = planted.where.rpartition(".")
    source = (files(package) / f"{name}.py").read_text(encoding="utf-8")
    if planted.old not in source:
        raise LookupError(f"{planted.name!r}: its text is not in {planted.where} any more")
    other: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(planted.old, planted.new), name, "exec"), other)  # noqa: S102 -- our own source
    was = []
    for mine, theirs in _functions(vars(module), other, module.__name__):
        was.append((mine, mine.__code__))
        mine.__code__ = theirs.__code__
    try:
        yield
    finally:
        for mine, code in was:
            mine.__code__ = code


def _functions(mine: Any, theirs: Any, module: str) -> Iterator[tuple[types.FunctionType, types.FunctionType]]:
    """The functions of a module and of its classes, with their counterparts."""
    for name, value in list(mine.items()):
        if getattr(value, "__module__", None) != module or name not in theirs:
            continue
        if isinstance(value, types.FunctionType) and not value.__closure__:
            yield value, theirs[name]
        elif isinstance(value, type):
            yield from _functions(vars(value), vars(theirs[name]), module)
