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
        "if holder == token and length == 0 and not copies then",
        "if text and length == 0 and not copies then",
        "a release without a token check releases the leases of others",
    ),
    Planted(
        "a renewal revives an expired lease",
        "permit_renew",
        "if not text or its_end <= now then",
        "if not text then",
        "a late renewal makes a holder of a client without a lease",
    ),
    Planted(
        "renew adds to the deadline",
        "permit_renew",
        "math.max(lease_end, its_end)",
        "lease_end + ttl_ms * 1000",
        "each repeated renewal extends the lease again",
    ),
    Planted(
        "one permit too many",
        "permit_acquire",
        "if length == 0 and is_out + weight <= limit_in_force then",
        "if length == 0 and is_out + weight <= limit_in_force + 1 then",
        "a new request is granted although one permit is missing",
    ),
    Planted(
        "one permit too many in the short way",
        "permit_acquire",
        "used + weight <= limit and length == 0",
        "used + weight <= limit + 1 and length == 0",
        "a new request is granted although one permit is missing",
    ),
    Planted(
        "the short way sees one holder only",
        "permit_acquire",
        "lease_end <= now and out == 0 and length == 0",
        "lease_end <= now and length == 0",
        "a new request is granted what the other holders have",
    ),
    Planted(
        "one permit too many for the queue",
        "scripts",
        "is_out + weight <= limit, weight > limit",
        "is_out + weight <= limit + 1, weight > limit",
        "waiters are granted one permit more than there are",
    ),
    Planted(
        "an operator's limit is ignored for waiters",
        "scripts",
        "  if set_limit > 0 then\n    limit = set_limit\n  end\n",
        "",
        "a waiter is granted by its own limit, not by the one that an operator has set",
    ),
    Planted(
        "an operator's limit is ignored in the short way",
        "permit_acquire",
        "    and set_limit == 0\n",
        "",
        "a request is granted by its own limit, not by the one that an operator has set",
    ),
    Planted(
        "used ignores releases",
        "scripts",
        "    redis.call('ZREM', tokens, token)\n    out = out - weight_of(its_record)\n",
        "    redis.call('ZREM', tokens, token)\n",
        "released permits stay counted, so fewer remain",
    ),
    Planted(
        "used ignores releases in the short way",
        "permit_release",
        "      out = out - struct.unpack('<d', text, 9)\n",
        "",
        "released permits stay counted, so fewer remain",
    ),
    Planted(
        "used ignores expired leases",
        "scripts",
        "        out = out - weight_of(its_record)\n      end\n",
        "      end\n",
        "expired permits stay counted, so fewer remain",
    ),
    Planted(
        "expired leases are not removed",
        "scripts",
        "if out > 0 and soonest <= now then",
        "if false then",
        "the permits of a dead holder never become free",
    ),
    Planted(
        "records of expired leases stay",
        "scripts",
        "      redis.call('HDEL', state, unpack(expired))\n",
        "",
        "each expired lease leaves a record",
    ),
    Planted(
        "what was swept is not saved",
        "permit_acquire",
        "  if changed then\n    save() -- what is gone",
        "  if false then\n    save() -- what is gone",
        "permits of expired leases stay counted after a reply that grants nothing",
    ),
    Planted(
        "holders are not told that their leases were taken away",
        "permit_revoke",
        "  if its_record then\n    redis.call('PUBLISH'",
        "  if false then\n    redis.call('PUBLISH'",
        "a holder that does not renew relies on its lease to its end",
    ),
    Planted(
        "force_release takes newer leases",
        "permit_revoke",
        "if its_record and struct.unpack('<d', its_record) > up_to_fence then",
        "if false then",
        "a repeated force_release takes the leases granted after it",
    ),
    # --- repeated calls
    Planted(
        "no tombstones",
        "scripts",
        "  put(FINISHED + until_us, token)\n",
        "",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "a release leaves no tombstone",
        "permit_release",
        "        if copies then\n          add_tombstone(token)\n        end\n        sweep()\n",
        "        sweep()\n",
        "an acquire of which a copy arrives after its release is granted without an owner",
    ),
    Planted(
        "tombstones are ignored",
        "permit_acquire",
        "if finished(token) then",
        "if false then",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "tombstones are ignored in the short way",
        "permit_acquire",
        "    and (memory == 0 or memory > now and not redis.call('ZSCORE', KEYS[2], token))\n",
        "",
        "an acquire that arrives after its cancel is granted without an owner",
    ),
    Planted(
        "a repeated acquire is granted again",
        "permit_acquire",
        "if its_record and its_end > now then",
        "if false then",
        "a repeated acquire gets a second grant instead of the first",
    ),
    Planted(
        "a repeated acquire waits for itself",
        "permit_acquire",
        "    is_plain = holder ~= token\n",
        "",
        "a repeated acquire of a holder enters the queue",
    ),
    Planted(
        "a repeated acquire of one of several holders is granted again",
        "permit_acquire",
        "local is_plain = not known\n    and keep",
        "local is_plain = keep",
        "a repeated acquire gets a second grant beside the first",
    ),
    Planted(
        "a repeated release of several locks is lost",
        "permit_release",
        "if lost or is_first and released < #KEYS / 2 then",
        "if lost or released > 0 and released < #KEYS / 2 then",
        "a repeated release is answered with lost, once one of the names has another holder",
    ),
    Planted(
        "a cancel leaves the grant",
        "permit_cancel",
        "if not drop_lease(token) and ticket_of(token) then",
        "if ticket_of(token) then",
        "a grant that came together with the timeout stays without an owner",
    ),
    Planted(
        "a cancel leaves the queue entry",
        "permit_cancel",
        "    leave_queue(token)\n",
        "    changed = true\n",
        "a cancelled request is still in the queue",
    ),
    Planted(
        "a cancel of several locks leaves the queue entries",
        "permit_cancel",
        "if not drop_lease(token) and ticket_of(token) then",
        "if not drop_lease(token) and #KEYS == 2 and ticket_of(token) then",
        "a cancelled request for several locks is still in their queues",
    ),
    # --- the queue
    Planted(
        "new requests overtake waiters",
        "permit_acquire",
        "if length == 0 and is_out + weight <= limit_in_force then",
        "if is_out + weight <= limit_in_force then",
        "a new request is granted before the waiters if a permit is free",
    ),
    Planted(
        "new requests overtake waiters in the short way",
        "permit_acquire",
        "used + weight <= limit and length == 0 and out > 0",
        "used + weight <= limit and out > 0",
        "a new request is granted before the waiters if a permit is free",
    ),
    Planted(
        "new requests overtake waiters of a free lock",
        "permit_acquire",
        "lease_end <= now and out == 0 and length == 0",
        "lease_end <= now and out == 0",
        "a new request is granted before the waiters if the lease of the holder has ended",
    ),
    Planted(
        "a repeated acquire loses the position",
        "permit_acquire",
        "redis.pcall('HSET', KEYS[1], 's', queued, token, its_record) == 1 then",
        "redis.pcall('HSET', KEYS[1], 's', queued, token, its_record) then",
        "a waiter that repeats its request moves to the end of the queue",
    ),
    Planted(
        "a ticket is ignored",
        "permit_acquire",
        "if ticket == 0 then\n  ticket = has_place",
        "if true then\n  ticket = has_place",
        "a waiter whose place was lost comes back at the end of the queue",
    ),
    Planted(
        "waiters have no tickets",
        "handfast._protocol.acquire",
        "yield request.acquire(token, ticket, caller=attempt.caller)",
        "yield request.acquire(token, caller=attempt.caller)",
        "a waiter whose connection was remade at a release is queued behind those who came later",
    ),
    Planted(
        "several names have a ticket for each queue",
        "multi_acquire",
        "  enter_queue(token, ticket, its_record, wait_ms + ttl_ms)",
        "  enter_queue(token, math.max(now, waiting + 1), its_record, wait_ms + ttl_ms)",
        "two requests stand in different orders in two queues, and wait for each other",
    ),
    Planted(
        "a dead first waiter stays",
        "scripts",
        "if head ~= me and (fits or exceeds_limit or my_ttl_ms or is_out < limit) and not has_subscriber(inbox) then",
        "if head ~= me and (fits or exceeds_limit) and not has_subscriber(inbox) then",
        "a dead writer that is first in the queue blocks all readers",
    ),
    Planted(
        "the wait-lease is ignored",
        "scripts",
        "  if wait_until < now then\n",
        "  if not its_record then\n",
        "a waiter that was silent for a minute keeps its position",
    ),
    Planted(
        "the wait-lease is ignored in the short way",
        "permit_release",
        "if wait_until >= now and fits and",
        "if fits and",
        "a waiter that was silent for a minute is granted",
    ),
    Planted(
        "the wait-lease is not renewed",
        "permit_acquire",
        "enter_queue(token, ticket, struct.pack('<d', now + wait_ms * 1000)",
        "enter_queue(token, ticket, struct.pack('<d', (ticket > 0 and ticket or now) + wait_ms * 1000)",
        "a waiter is removed after a minute, alive or not",
    ),
    Planted(
        "a release makes no handoff",
        "permit_release",
        "more = more == 0 and hand_over() or more",
        "save()",
        "released permits stay free until the next request",
    ),
    Planted(
        "a lower makes no handoff",
        "permit_lower",
        "struct.pack('<d', (hand_over()))",
        "struct.pack('<d', 0)",
        "readers wait although the writer has become a reader",
    ),
    Planted(
        "no message is sent",
        "scripts",
        "    publish(head, inbox, fence, lease_ms * 1000)\n",
        "",
        "a grant without a message expires before its waiter polls",
    ),
    Planted(
        "no message is sent in the short way",
        "permit_release",
        "        redis.call('PUBLISH', inbox, ",
        "        tostring('granted ', ",
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
        "waiters without a listener are granted in the short way",
        "permit_release",
        "and redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0 then",
        "then",
        "permits are granted to dead waiters, one claim window each",
    ),
    Planted(
        "a grant is published and then taken back",
        "scripts",
        "not has_subscriber(inbox) then\n    leave_queue(head)\n",
        "not has_subscriber(inbox) then\n    if fits and claim_ms > 0 then\n      publish(head, inbox, now, claim_ms * 1000)\n    end\n    leave_queue(head)\n",
        "a waiter that is connected to the old primary hears it, and holds beside the next one",
    ),
    Planted(
        "a waiter gets the fence of the next one",
        "scripts",
        "head == me and fence\n",
        "head == me and 1\n",
        "a waiter that gets others served behind it gets another fence than it has",
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
        "fence = math.max(fence + 1, now, min_fence or 0)",
        "fence = math.max(fence, now, min_fence or 0)",
        "after the clock is set back, two grants have the same fence",
    ),
    Planted(
        "the fence is a counter",
        "scripts",
        "fence = math.max(fence + 1, now, min_fence or 0)",
        "fence = math.max(fence + 1, min_fence or 0)",
        "a server that lost its data starts counting again",
    ),
    Planted(
        "the fence is the time",
        "scripts",
        "fence = math.max(fence + 1, now, min_fence or 0)",
        "fence = math.max(now, min_fence or 0)",
        "after the clock is set back, fences decrease",
    ),
    Planted(
        "the fence does not grow in the short way",
        "permit_acquire",
        "fence < now and now or fence + 1",
        "math.max(fence, now)",
        "after the clock is set back, two grants have the same fence",
    ),
    Planted(
        "the fence is the time in the short way",
        "permit_release",
        "fence < now and now or fence + 1",
        "now",
        "after the clock is set back, fences decrease",
    ),
    Planted(
        "several locks have the fence of the first",
        "multi_acquire",
        "  min_fence = math.max(min_fence, fence + 1)\n  texts[k]",
        "  texts[k]",
        "one of the names has had that fence before",
    ),
    # --- keys
    Planted(
        "a TTL is missing",
        "scripts",
        "    redis.call('PEXPIRE', state, math.floor((raised - now) / 1000))\n",
        "",
        "the state of a name that is not used any more never expires",
    ),
    Planted(
        "a new sorted set has no TTL",
        "scripts",
        "  if added == 2 and type(redis.pcall('PEXPIRE', tokens,",
        "  if added == 3 and type(redis.pcall('PEXPIRE', tokens,",
        "the waiters of a name that is not used any more never expire",
    ),
    Planted(
        "a TTL is too short",
        "scripts",
        "raised, changed = least + HOUR_US, true",
        "raised, changed = now + 100000, true",
        "a key expires before the lease in it",
    ),
    Planted(
        "an evicted state comes back without a TTL",
        "scripts",
        "      raised = now + left_ms * 1000\n",
        "",
        "the state of a name that is not used any more never expires",
    ),
    # --- replies and messages
    Planted(
        "a grant message states too long a lease",
        "scripts",
        "publish(head, inbox, fence, lease_ms * 1000)",
        "publish(head, inbox, fence, lease_ms * 10000)",
        "the holder's lease is ten times as long as the server's",
    ),
    Planted(
        "a grant message of the short way states too long a lease",
        "permit_release",
        "struct.pack('<ddd', fence, now, claim_ms * 1000)",
        "struct.pack('<ddd', fence, now, claim_ms * 10000)",
        "the holder's lease is ten times as long as the server's",
    ),
    Planted(
        "a repeated reply states too long a lease",
        "permit_acquire",
        "struct.unpack('<d', its_record), its_end - now)",
        "struct.unpack('<d', its_record), ttl_ms * 1000)",
        "a client that repeats its acquire assumes a whole ttl",
    ),
    # --- memory
    Planted(
        "removing expired leases permits a grant at maxmemory",
        "scripts",
        "      require_memory() -- an acquire must not get past maxmemory by the ZREM below\n",
        "",
        "an acquire that first removes expired leases is granted at maxmemory",
    ),
    Planted(
        "a renewal needs memory",
        "permit_renew",
        "    redis.call('HDEL', KEYS[k], '')\n    redis.call('HSET', KEYS[k], 's', text)\n",
        "    redis.call('HSET', KEYS[k], 's', text)\n",
        "at maxmemory leases expire although their holders live",
    ),
    Planted(
        "a release needs memory",
        "permit_release",
        "        redis.call('HDEL', KEYS[k], '')\n",
        "",
        "at maxmemory nothing can be released",
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
        "several locks are granted while one is held, in the short way",
        "multi_acquire",
        "all_free and lease_end <= now and length == 0",
        "all_free and length == 0",
        "all locks are granted while one of them is held",
    ),
    Planted(
        "several locks overtake waiters",
        "multi_acquire",
        "all_free and lease_end <= now and length == 0",
        "all_free and lease_end <= now",
        "a request for several locks is granted before the waiters of one",
    ),
    Planted(
        "a release of several locks releases the first only",
        "permit_release",
        "for k = 1, #KEYS, 2 do\n  -- The short way",
        "for k = 1, 2, 2 do\n  -- The short way",
        "the other names stay held",
    ),
    Planted(
        "a renewal of several locks renews the first only",
        "permit_renew",
        "for k = 1, #KEYS, 2 do\n  local text = texts[k]",
        "for k = 1, 2, 2 do\n  local text = texts[k]",
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
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n",
        "        attempt.state = NEW\n"
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n"
        "        attempt.state = SENT\n",
        "a try_acquire whose reply was lost holds a lease without an owner",
    ),
    Planted(
        "a renewal starts at its reply",
        "handfast._protocol.lease",
        "lease.renewed(outcome.sent_at, numbers[0])",
        "lease.renewed(outcome.sent_at + 0.05, numbers[0])",
        "the holder's deadline is later than the server's, by the round trip",
    ),
    Planted(
        "a duplicate request is ignored",
        "handfast._protocol.acquire",
        "    if again:\n        attempt.apply(DUPLICATE)\n    tag",
        "    tag",
        "a try_acquire that was sent twice and refused is granted without an owner when its first copy arrives",
    ),
    # --- batches
    Planted(
        "a batch grants what is held",
        "locks_acquire",
        "if lease_end <= now and length == 0",
        "if length == 0",
        "two tasks hold one lock, where one of them asked for several at once",
    ),
    Planted(
        "a name that a batch has not released counts as released",
        "handfast._engine.batches",
        "    return map(_RELEASED.get, reply)\n",
        "    return [_RELEASED[49]] * len(reply)\n",
        "a lease that was released is held until it expires, though others wait for it",
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
        "handfast._drivers.aio.session",
        "            request.again = True\n",
        "            request.again = request.call.once\n",
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
        "make_answer((request.sent_at, frame, request.again))",
        "make_answer((monotonic(), frame, request.again))",
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
        "                    self._on_reply(request, frame)\n",
        "                    while sent and request.future.done() and not isinstance(sent[0], _Batch):\n"
        "                        request = sent.popleft()\n"
        "                    self._on_reply(request, frame)\n",
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
