"""Mistakes planted in the engine, each of which the simulation must detect: this tests the checks.

A planted mistake replaces one text of one file by another: in a script, in a protocol or in the asyncio driver. Seeds run
from 0 on until one has a finding; their number shows how strong the checks are.
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
"""Number of schedules after which a mistake counts as not caught."""

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
    """The result of a planted mistake."""

    planted: Planted
    schedules: int
    """Number of schedules until it was caught; 0 if it was not."""
    finding: str


PLANTED = (
    # --- grants and leases
    Planted(
        "a release without a token check",
        "permit_release",
        "redis.call('ZREM', holders, token) == 1",
        "redis.call('DEL', holders) == 1",
        "a release without a token check releases the leases of others",
    ),
    Planted(
        "a renewal revives an expired lease",
        "permit_renew",
        "if deadline <= now then",
        "if false then",
        "a late renewal makes a holder of a client without a lease",
    ),
    Planted(
        "renew adds to the deadline",
        "permit_renew",
        "math.max(deadline, now + ttl_ms * 1000)",
        "deadline + ttl_ms * 1000",
        "each repeated renewal extends the lease again",
    ),
    Planted(
        "one permit too many",
        "permit_acquire",
        "if not last[1] and s.used + weight <= limit_in_force then",
        "if not last[1] and s.used + weight <= limit_in_force + 1 then",
        "a new request is granted although one permit is missing",
    ),
    Planted(
        "one permit too many for the queue",
        "scripts",
        "local fits = alive and s.used + waiter.weight <= limit_in_force",
        "local fits = alive and s.used + waiter.weight <= limit_in_force + 1",
        "waiters are granted one permit more than there are",
    ),
    Planted(
        "an operator's limit is ignored for waiters",
        "scripts",
        "local limit_in_force = waiter and (s.limit or waiter.limit)",
        "local limit_in_force = waiter and waiter.limit",
        "a waiter is granted by its own limit, not by the one that an operator has set",
    ),
    Planted(
        "used ignores releases",
        "permit_release",
        "s.used = s.used - weight_of(s.record)",
        "s.used = s.used - 0",
        "released permits stay counted, so fewer remain",
    ),
    Planted(
        "used ignores expired leases",
        "scripts",
        "s.used = s.used - weight_of(record)\n    end",
        "s.used = s.used - 0\n    end",
        "expired permits stay counted, so fewer remain",
    ),
    Planted(
        "expired leases are not removed",
        "scripts",
        "if next_expiry and next_expiry <= now then",
        "if false then",
        "the permits of a dead holder never become free",
    ),
    Planted(
        "records of expired leases stay",
        "scripts",
        "    redis.call('HDEL', s.tokens, unpack(expired))\n",
        "",
        "each expired lease leaves a record",
    ),
    Planted(
        "force_release takes newer leases",
        "permit_revoke",
        "if not record or record.fence <= up_to_fence then",
        "if true then",
        "a repeated force_release takes the leases granted after it",
    ),
    # --- repeated calls
    Planted(
        "no tombstones",
        "scripts",
        "  redis.call('ZADD', tombstones, now + TOMBSTONE_US + (is_lost and LOST_MARK or 0), token)\n"
        "  redis.call('PEXPIRE', tombstones, KEY_TTL_MS)\n",
        "",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "a release leaves no tombstone",
        "permit_release",
        "    add_tombstone(tombstones, token)\n",
        "",
        "a repeated release is answered with lost",
    ),
    Planted(
        "tombstones are ignored",
        "permit_acquire",
        "if redis.call('ZSCORE', tombstones, token) then",
        "if false then",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "a repeated acquire is granted again",
        "permit_acquire",
        "  if deadline > now then\n    return {'granted', record.fence, deadline - now}\n  end\n",
        "",
        "a repeated acquire gets a second grant instead of the first",
    ),
    Planted(
        "a cancel leaves the grant",
        "permit_cancel",
        "if redis.call('ZREM', holders, token) == 1 then",
        "if false then",
        "a grant that came together with the timeout stays without an owner",
    ),
    Planted(
        "a cancel leaves the queue entry",
        "permit_cancel",
        "redis.call('ZREM', queue, token)\n  if",
        "if",
        "a cancelled request is still in the queue",
    ),
    Planted(
        "a cancel of several locks leaves the queue entries",
        "permit_cancel",
        "  redis.call('ZREM', queue, token)\n",
        "  if #KEYS == 4 then\n    redis.call('ZREM', queue, token)\n  end\n",
        "a cancelled request for several locks is still in their queues",
    ),
    # --- the queue
    Planted(
        "new requests overtake waiters",
        "permit_acquire",
        "if not last[1] and s.used + weight <= limit_in_force then",
        "if s.used + weight <= limit_in_force then",
        "a new request is granted before the waiters if a permit is free",
    ),
    Planted(
        "a repeated acquire loses the position",
        "permit_acquire",
        "  if not place then\n    redis.call('ZADD', queue, since, token)",
        "  if true then\n    redis.call('ZADD', queue, now, token)",
        "a waiter that repeats its request moves to the end of the queue",
    ),
    Planted(
        "waiters have no tickets",
        "handfast._protocol.acquire",
        "call = request.acquire(token, ticket)",
        "call = request.acquire(token)",
        "a waiter whose connection was remade at a release is queued behind those who came later",
    ),
    Planted(
        "several names have a score for each queue",
        "multi_acquire",
        "redis.call('ZADD', s.queue, 'NX', since, token)",
        "redis.call('ZADD', s.queue, 'NX', math.max(now, (tonumber(redis.call('ZRANGE', s.queue, -1, -1, 'WITHSCORES')[2]) "
        "or 0) + 1), token)",
        "two requests stand in different orders in two queues, and wait for each other",
    ),
    Planted(
        "a dead first waiter stays",
        "scripts",
        "if has_to_wait and not my_ttl_ms and s.used >= limit_in_force then",
        "if has_to_wait then",
        "a dead writer that is first in the queue blocks all readers",
    ),
    Planted(
        "the wait-lease is ignored",
        "scripts",
        "local alive = waiter and waiter.wait_until >= now",
        "local alive = waiter",
        "a waiter that was silent for a minute keeps its position",
    ),
    Planted(
        "the wait-lease is not renewed",
        "permit_acquire",
        "string.format('%.0f', now + wait_ms * 1000)",
        "string.format('%.0f', since + wait_ms * 1000)",
        "a waiter is removed after a minute, alive or not",
    ),
    Planted(
        "a release makes no handoff",
        "permit_release",
        "more = more == 0 and hand_over(s) or more",
        "more = 0",
        "released permits stay free until the next request",
    ),
    Planted(
        "a lower makes no handoff",
        "permit_lower",
        "local more = hand_over(s)",
        "local more = 0",
        "readers wait although the writer has become a reader",
    ),
    Planted(
        "no message is sent",
        "scripts",
        "    publish_grant(head, waiter.inbox, fence, lease_ms .. '000')\n",
        "",
        "a grant without a message expires before its waiter polls",
    ),
    Planted(
        "waiters without a listener are granted",
        "scripts",
        "return redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0",
        "return true",
        "permits are granted to dead waiters, one claim window each",
    ),
    Planted(
        "a grant is published and then taken back",
        "scripts",
        "  if not (alive and fits) then\n",
        "  if fits and not alive then\n"
        "    publish_grant(head, waiter.inbox, now_text, waiter.claim_ms .. '000')\n"
        "  end\n"
        "  if not (alive and fits) then\n",
        "a waiter that is connected to the old primary hears it, and holds beside the next one",
    ),
    Planted(
        "all connections of a client have the same inbox",
        "handfast._drivers.aio.loop_context",
        "inbox_channel(namespace, client_id, next(numbers))",
        "inbox_channel(namespace, client_id, 1)",
        "what an older state of the server has in its queue is granted, one claim window each",
    ),
    # --- fences
    Planted(
        "the fence does not grow",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(s.fence, now, min_fence or 0)",
        "after the clock is set back, two grants have the same fence",
    ),
    Planted(
        "the fence is a counter",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(s.fence + 1, min_fence or 0)",
        "a server that lost its data starts counting again",
    ),
    Planted(
        "the fence is the time",
        "scripts",
        "fence = math.max(s.fence + 1, now, min_fence or 0)",
        "fence = math.max(now, min_fence or 0)",
        "after the clock is set back, fences decrease",
    ),
    Planted(
        "the fence loses digits",
        "scripts",
        "local fence_text = fence == now and now_text or string.format('%.0f', fence)",
        "local fence_text = tostring(fence)",
        "tostring keeps 14 digits",
    ),
    Planted(
        "several locks have the fence of the first",
        "multi_acquire",
        "  min_fence = math.max(min_fence, s.fence + 1)\nend",
        "end",
        "one of the names has had that fence before",
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
        "a key expires before the lease in it",
    ),
    # --- replies and messages
    Planted(
        "a grant message states too long a lease",
        "scripts",
        "lease_ms .. '000')\n",
        "lease_ms .. '0000')\n",
        "the holder's lease is ten times as long as the server's",
    ),
    Planted(
        "a repeated reply states too long a lease",
        "permit_acquire",
        "return {'granted', record.fence, deadline - now}",
        "return {'granted', record.fence, ttl_ms * 1000}",
        "a client that repeats its acquire assumes a whole ttl",
    ),
    # --- memory
    Planted(
        "removing expired leases permits a grant at maxmemory",
        "scripts",
        "    require_memory(s.holders)\n    local expired",
        "    local expired",
        "an acquire that first removes expired leases is granted at maxmemory",
    ),
    Planted(
        "a renewal needs memory",
        "permit_renew",
        "    allow_at_maxmemory(holders)\n",
        "",
        "at maxmemory leases expire although their holders live",
    ),
    # --- several locks
    Planted(
        "several locks are granted while one is held",
        "multi_acquire",
        "if position == 0 then",
        "if position <= 1 then",
        "all locks are granted while one of them is held",
    ),
    Planted(
        "a release of several locks releases the first only",
        "permit_release",
        "for k = 1, #KEYS, 4 do",
        "for k = 1, 4, 4 do",
        "the other names stay held",
    ),
    Planted(
        "a renewal of several locks renews the first only",
        "permit_renew",
        "for k = 1, #KEYS, 4 do\n  local holders",
        "for k = 1, 4, 4 do\n  local holders",
        "the other leases expire, and their holder assumes that it has them",
    ),
    # --- protocols
    Planted(
        "a lease starts at its message",
        "handfast._protocol.acquire",
        "granted_at = min(sent_at + (message.granted_us - asked_us) / 1e6, woke_at)",
        "granted_at = woke_at",
        "the holder's deadline is later than the server's, by the travel time of the message",
    ),
    Planted(
        "an error reply is not undone",
        "handfast._protocol.acquire",
        "            if error.changed_nothing:\n                attempt.apply(REFUSE)\n",
        "            attempt.state = NEW\n",
        "a waiter whose last request fails stays in the queue",
    ),
    Planted(
        "a try_acquire is not undone",
        "handfast._protocol.acquire",
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token)\n",
        "        attempt.state = NEW\n        answer: Answer = yield attempt.request.try_acquire(attempt.token)\n"
        "        attempt.state = SENT\n",
        "a try_acquire whose reply was lost holds a lease without an owner",
    ),
    Planted(
        "a renewal starts at its reply",
        "handfast._protocol.lease",
        "lease.renewed(answer.sent_at, answer.reply[1])",
        "lease.renewed(answer.sent_at + 0.05, answer.reply[1])",
        "the holder's deadline is later than the server's, by the round trip",
    ),
    Planted(
        "a duplicate request is ignored",
        "handfast._protocol.acquire",
        "    if again:\n        attempt.apply(DUPLICATE)\n    if reply",
        "    if reply",
        "a try_acquire that was sent twice and refused is granted without an owner when its first copy arrives",
    ),
    # --- the asyncio driver
    Planted(
        "the driver does not undo a cancelled acquire",
        "handfast._drivers.aio.driver",
        "        if not attempt.needs_undo or not self._connector.reached or context is None:\n",
        "        if True:\n",
        "a cancelled acquire leaves its queue entry, or its lease",
    ),
    Planted(
        "the driver does not report a request that was sent twice",
        "handfast._drivers.aio.driver",
        "return outcome if session.breaks == breaks else outcome._replace(again=True)",
        "return outcome",
        "a try_acquire whose first copy arrives after the reply to the second is granted without an owner",
    ),
    Planted(
        "the driver renews a released lease",
        "handfast._drivers.aio.loop_context",
        "        self.leases.pop(lease.token, None)\n        if lease.token in",
        "        if not lease.request.renew:\n            self.leases.pop(lease.token, None)\n        if lease.token in",
        "renewals continue after the release has returned",
    ),
    Planted(
        "a lease starts at its reply",
        "handfast._drivers.aio.session",
        "answer = Answer(request.sent_at, frame)",
        "answer = Answer(monotonic(), frame)",
        "the holder's deadline is later than the server's, by the travel time of the reply",
    ),
    Planted(
        "a grant is not confirmed",
        "handfast._drivers.aio.inbox",
        "self._confirm(confirm) if confirm is not None and message.lease_us else None",
        "None",
        "a holder that blocks its event loop right after a handoff loses its lease after the claim window",
    ),
    Planted(
        "replies that have arrived are not read before a lease is called lost",
        "handfast._drivers.aio.loop_context",
        "            self.session.receive()",
        "            pass",
        "a holder that blocked its event loop after a handoff takes its lease for lost although it was confirmed",
    ),
    Planted(
        "the driver expects no reply to a cancelled request",
        "handfast._drivers.aio.session",
        "                request = sent.popleft()\n",
        "                while len(sent) > 1 and sent[0].future.done():\n                    sent.popleft()\n"
        "                request = sent.popleft()\n",
        "the reply to a cancelled request is taken for the reply to the next one",
    ),
    # --- the well-known listings
    Planted(
        "a lock is acquired without a check",
        "classic/lock_acquire",
        "if redis.call('EXISTS', lock) == 0 then",
        "if true then",
        "two clients hold it",
    ),
    Planted(
        "a lock is released without a check",
        "classic/lock_release",
        "if redis.call('GET', lock) == identifier then",
        "if true then",
        "a release after the deadline releases the lease of another client",
    ),
    Planted(
        "a lock without a TTL",
        "classic/lock_acquire",
        "redis.call('SETEX', lock, lock_seconds, identifier)",
        "redis.call('SET', lock, identifier)",
        "a dead client holds it without end",
    ),
    Planted(
        "a semaphore grants one place too many",
        "classic/semaphore_acquire",
        "< limit then",
        "<= limit then",
        "one client more than the limit holds",
    ),
    Planted(
        "places of dead clients stay",
        "classic/semaphore_acquire",
        "redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', oldest)\n",
        "",
        "a dead client keeps its place without end",
    ),
    Planted(
        "a lost place is refreshed",
        "classic/semaphore_refresh",
        "if redis.call('ZSCORE', semaphore, identifier) then",
        "if true then",
        "a client that lost its place returns, as one too many",
    ),
)


def catch(planted: Planted, most: int = MOST, first: int = 0) -> Caught:
    """Run seeds until one has a finding, which it must not have without the mistake."""
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
    """Run all mistakes, in order."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(partial(catch, most=most), PLANTED)


def show(tell: Callable[[str], object], processes: int = 1, most: int = MOST) -> int:
    """Run all mistakes and report each. Return 1 if one was not caught."""
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
"""Returns the first seed with a finding, and its text."""


@contextmanager
def planting(planted: Planted) -> Iterator[dict[str, str]]:
    """Yield the scripts with the mistake in them or in a module. Raises LookupError if its text is not found."""
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
    """Return the scripts with the mistake. Raises LookupError if its text is not found."""
    names = list(scripts) if planted.where == "scripts" else [planted.where]
    changed = {name: scripts[name].replace(planted.old, planted.new) for name in names if planted.old in scripts[name]}
    if not changed:
        raise LookupError(f"{planted.name!r}: its text is not in {planted.where} any more")
    return scripts | changed


@contextmanager
def _replaced(planted: Planted) -> Iterator[None]:
    """Give the functions of a module the code with the mistake, wherever they are imported."""
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
    """Yield the functions of a module and of its classes, with their counterparts."""
    for name, value in list(mine.items()):
        if getattr(value, "__module__", None) != module or name not in theirs:
            continue
        if isinstance(value, types.FunctionType) and not value.__closure__:
            yield value, theirs[name]
        elif isinstance(value, type):
            yield from _functions(vars(value), vars(theirs[name]), module)
