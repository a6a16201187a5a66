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

from handfast._engine.script import as_sent, with_numbers
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
    setting: str = "server"
    """The setting of the schedules that show it."""


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
        "if holder == token and length == 0 and not options then",
        "if text and length == 0 and not options then",
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
    Planted(
        "a lock that is released early does not rest",
        "permit_release",
        "local rests = at_least_us > 0",
        "local rests = at_least_us < 0",
        "a job that is shorter than the clocks of its machines differ runs twice",
    ),
    Planted(
        "a rest begins with the release",
        "permit_release",
        "math.min((struct.unpack('<d', record)), now) + at_least_us",
        "now + at_least_us",
        "the name stays taken for longer than the caller asked for",
    ),
    Planted(
        "a lock rests under the token of its holder",
        "permit_release",
        "holder, changed = rests_until, RESTED .. token, true",
        "holder, changed = rests_until, token, true",
        "a late renewal makes the rest longer",
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
        "            if error.changed_nothing:\n                attempt.refused()\n",
        "            attempt.may_be_there = False\n",
        "a waiter whose last request fails stays in the queue",
    ),
    Planted(
        "a try_acquire is not undone",
        "handfast._protocol.acquire",
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n",
        "        attempt.may_be_there = False\n"
        "        answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n"
        "        attempt.may_be_there = True\n",
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
        "    if again:\n        attempt.copies = True\n    tag",
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
        "make_answer((request.sent_at, frame, request.again, replicas))",
        "make_answer((monotonic(), frame, request.again, replicas))",
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
        "                session.receive()",
        "                pass",
        "a holder that blocked its event loop after a handoff takes its lease for lost although it was confirmed",
    ),
    Planted(
        "the driver expects no reply to a cancelled request",
        "handfast._drivers.aio.session",
        "                    self._on_reply(request, frame)\n",
        "                    while sent and request.future.done() and not isinstance(sent[0], PendingBatch):\n"
        "                        request = sent.popleft()\n"
        "                    self._on_reply(request, frame)\n",
        "the reply to a cancelled request is taken for the reply to the next one",
    ),
    # --- scripts that are cut off
    Planted(
        "a permit is free before its holder has gone",
        "permit_release",
        """    if text and redis.call('HDEL', KEYS[1], token) == 1 and redis.call('ZREM', KEYS[2], token) == 1 then
      out = out - struct.unpack('<d', text, 9)
      redis.call('HSET', KEYS[1], 'q', struct.pack('<dddd', out, soonest, set_limit, memory))
""",
        """    if text then
      out = out - struct.unpack('<d', text, 9)
      redis.call('HSET', KEYS[1], 'q', struct.pack('<dddd', out, soonest, set_limit, memory))
      redis.call('HDEL', KEYS[1], token)
      redis.call('ZREM', KEYS[2], token)
""",
        "a release that is cut off leaves a holder that is not counted",
        "cut off",
    ),
    Planted(
        "a call that was cut off counts as one that never ran",
        "handfast._protocol.retry",
        "self.may_have_run = self.may_have_run or is_cut_off(text)",
        "self.may_have_run = self.may_have_run or False",
        "a release whose script was cut off behind its work, and is sent again, counts as a lost lease",
        "cut off",
    ),
    # --- leases that replicas have
    Planted(
        "a grant counts that no replica has",
        "handfast._protocol.acquire",
        "    if not request.is_acknowledged(answer):\n",
        "    if False:\n",
        "a lease is relied on that is lost with the primary",
        "replicas",
    ),
    Planted(
        "a message of a grant counts for what replicas have",
        "handfast._protocol.acquire",
        'tag == b"queued" and request.trusts_messages and request.acknowledgement is None',
        'tag == b"queued" and request.trusts_messages',
        "a lease that was handed over is relied on, and is lost with the primary",
        "replicas",
    ),
    Planted(
        "a renewal counts that no replica has",
        "handfast._protocol.lease",
        "elif self.request.is_acknowledged(answer):",
        "elif True:",
        "a lease is relied on for longer than a new primary keeps it",
        "replicas",
    ),
    Planted(
        "two primaries are asked without a pause",
        "handfast._protocol.acquire",
        "sent_at + pause_before(disagreements)",
        "sent_at",
        "a caller asks both as fast as they answer, until one of them is gone",
        "replicas",
    ),
    Planted(
        "a try whose lease was lost is not undone",
        "handfast._protocol.acquire",
        "            return None  # the server may still",
        "            attempt.may_be_there = False\n            return None  # the server may still",
        "one of several locks stays held without an owner",
        "replicas",
    ),
    # --- clusters
    Planted(
        "calls for a node that is gone stay there",
        "handfast._drivers.aio.router",
        "            requests += session.withdraw()\n",
        "            session.withdraw()\n",
        "a caller whose call was for a node that was replaced has no reply",
        "cluster",
    ),
    Planted(
        "messages go to subscribers of other nodes",
        "scripts",
        "return redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0",
        "return true",
        "a waiter that is not connected to the node of its name is granted, and takes a claim window each time",
        "cluster",
    ),
    Planted(
        "sharded channels are taken for subscribed",
        "scripts",
        "return redis.call('PUBSUB', 'SHARDNUMSUB', inbox)[2] > 0",
        "return true",
        "a waiter whose slot has moved is granted where it was, and takes a claim window each time",
        "cluster",
    ),
    # --- limiters
    Planted(
        "an admission counts again for each copy of its request",
        "limit_acquire",
        "load_windows(token .. string.format(' %.0f', cost))",
        "load_windows('')",
        "a call whose reply was lost counts twice",
    ),
    Planted(
        "the sum of a window keeps what has lapsed",
        "scripts",
        "      window.used = window.used - costs_of(redis.call('ZRANGE', key, 1, lapsed))\n",
        "",
        "a limiter that is never idle admits less and less",
    ),
    Planted(
        "a window admits one too many",
        "scripts",
        "window.used + cost > window.limit then",
        "window.used + cost > window.limit + 1 then",
        "more than the limit is admitted within a period",
    ),
    Planted(
        "a window forgets too early",
        "scripts",
        "redis.call('ZCOUNT', key, '(0', now - per_ms * 1000)",
        "redis.call('ZCOUNT', key, '(0', now - per_ms * 990)",
        "more than the limit is admitted within a period",
    ),
    Planted(
        "only the shortest period counts",
        "scripts",
        "for i = 1, #rates / NUMBERS do",
        "for i = 1, math.min(1, #rates / NUMBERS) do",
        "the other rates of a limiter limit nothing",
    ),
    Planted(
        "a dead waiter is admitted",
        "scripts",
        "  if not has_subscriber(inbox) then\n    leave_queue(head)\n    return true\n  elseif is_admitted then\n",
        "  if is_admitted then\n",
        "what a dead waiter was admitted for is lost to the others",
    ),
    Planted(
        "newcomers of a limiter overtake waiters",
        "limit_acquire",
        "if is_first and fits(cost) then",
        "if (is_first or not place) and fits(cost) then",
        "a call is admitted before the waiters, if it costs less than the first one",
    ),
    Planted(
        "a call that does not wait overtakes waiters",
        "limit_acquire",
        "if is_first and fits(cost) then",
        "if (is_first or patience_us == 0) and fits(cost) then",
        "a try is admitted before the waiters, if it costs less than the first one",
    ),
    Planted(
        "tombstones of a limiter are ignored",
        "limit_acquire",
        "if is_busy and redis.call('ZSCORE', tombstones, token) then",
        "if false then",
        "a request that arrives after its cancel is admitted without an owner",
    ),
    Planted(
        "a settled call with copies leaves no tombstone",
        "limit_settle",
        "if new_cost == 0 or copies == 1 then",
        "if new_cost == 0 then",
        "a copy of a request that arrives after its settling counts again",
    ),
    Planted(
        "a new cost leaves the old one",
        "scripts",
        "      redis.call('ZREM', window.key, '=', member)\n",
        "      redis.call('ZREM', window.key, '=')\n",
        "a settled call counts for both costs",
    ),
    Planted(
        "a settling admits no waiter",
        "limit_settle",
        "serve(nil, was_first or admitted_at and new_cost < cost)\n",
        "true, now, false\n",
        "what a call gives back stays unused until the first waiter asks again",
    ),
    Planted(
        "a cancelled call stays in the queue of its limiter",
        "limit_settle",
        "[1] == token\nleave_queue(token)\n",
        "[1] == token\n",
        "a waiter that has given up is admitted",
    ),
    Planted(
        "a window has no TTL",
        "scripts",
        "    redis.call('PEXPIRE', window.key, window.per_ms + 1000) -- a second more than it needs\n",
        "",
        "the window of a limiter that is not used any more never expires",
    ),
    Planted(
        "the first waiter comes too late",
        "scripts",
        "math.min(at, now) + window.per_ms * 1000)",
        "math.min(at, now) + window.per_ms * 1100)",
        "what is free stays unused",
    ),
    Planted(
        "waiters are admitted without a message",
        "scripts",
        "    publish(head, inbox, remaining(), 1)\n",
        "",
        "a waiter that was admitted goes on waiting",
    ),
    Planted(
        "waiters are admitted under the rates of the caller",
        "scripts",
        "local is_alike = its_rates == rates",
        "local is_alike = its_rates ~= ''",
        "a waiter is admitted to windows that are not its own",
    ),
    Planted(
        "admissions of a clock that was set back stay",
        "scripts",
        "        redate(window)\n",
        "",
        "after the clock is set back by an hour, no call is admitted for an hour",
    ),
    Planted(
        "dropping what has lapsed permits an admission at maxmemory",
        "scripts",
        "      redis.call('ZADD', key, 'XX', 0, '') -- changes nothing; no request gets past maxmemory by the removal below\n",
        "",
        "a call is admitted at maxmemory if something has lapsed",
    ),
    Planted(
        "a message that calls a waiter counts as an admission",
        "handfast._protocol.limiting",
        "if waking.grant is not None and waking.grant.lease_us:",
        "if waking.grant is not None:",
        "a waiter whose turn it is goes on without an admission",
    ),
    Planted(
        "a copy of a refused call is ignored",
        "handfast._protocol.limiting",
        "        if again:\n            attempt.copies = True\n",
        "",
        "a call that was refused is admitted without an owner when its first copy arrives",
    ),
    Planted(
        "waiters of a limiter have no tickets",
        "handfast._protocol.limiting",
        "yield request.acquire(token, until - now, ticket)",
        "yield request.acquire(token, until - now, 0)",
        "a waiter whose place was lost comes back at the end of the queue",
    ),
    # --- keys of `once`
    Planted(
        "a late run records",
        "once_record",
        "local holds, ends = its_record and its_end > now,",
        "local holds, ends = its_record,",
        "a run that has lost its lease publishes its result",
    ),
    Planted(
        "anyone records",
        "once_record",
        "local its_end, its_record = lease_of(token)",
        "local its_end, its_record = lease_of(holder)",
        "a run that has lost its lease publishes its result beside the one that runs",
    ),
    Planted(
        "a failure replaces what was done",
        "once_record",
        "if outcome ~= 'failed' or not earlier or earlier.state ~= 'done' then",
        "if true then",
        "the old result is gone when making it anew has failed",
    ),
    Planted(
        "a record without a TTL",
        "once_record",
        ", 'PX', string.format('%.0f', keep_ms))",
        ")",
        "what was done is remembered without end",
    ),
    Planted(
        "a record leaves the lease",
        "once_record",
        "if not drop_lease(token) and ticket_of(token) then",
        "if ticket_of(token) then",
        "what is to be made anew waits for the end of a run that has ended",
    ),
    Planted(
        "a record has the wrong fence",
        "once_record",
        "text = struct.pack('<dd', now, (struct.unpack('<d', its_record)))",
        "text = struct.pack('<dd', now, fence + 1)",
        "what refuses old fences refuses the writes of the next run",
    ),
    Planted(
        "a record dismisses no waiter",
        "once_record",
        "return 'recorded ' .. struct.pack('<d', dismiss())",
        "save()\nreturn 'recorded ' .. struct.pack('<d', 0)",
        "waiters get the result only when they ask by themselves",
    ),
    Planted(
        "dismissed waiters are not woken",
        "scripts",
        "        publish(token, inbox, 0, 0)\n",
        "",
        "waiters get the result only when they ask by themselves",
    ),
    Planted(
        "dismissed waiters stay in the queue",
        "scripts",
        "      leave_queue(token)\n      local inbox",
        "      local inbox",
        "a waiter that has its result is granted a run",
    ),
    Planted(
        "a repeated record is lost",
        "once_record",
        "local is_lost = not holds and not has_recorded",
        "local is_lost = not holds",
        "a run whose reply was lost gets LeaseLost, and has recorded",
    ),
    Planted(
        "a run that has begun has recorded its end",
        "once_record",
        " and (earlier.state ~= 'begun' or outcome == 'begun')",
        "",
        "finish() of a late run returns, and others get NotCompleted",
    ),
    Planted(
        "a recorded run leaves no tombstone",
        "once_record",
        "if copies == 1 and",
        "if copies == 2 and",
        "a copy of an acquire that arrives after the record was deleted is granted without an owner",
    ),
    Planted(
        "recording is refused at maxmemory",
        "once_record",
        "  allow_at_maxmemory()\n",
        "",
        "what was done at maxmemory is done again",
    ),
    Planted(
        "what was begun counts while its run goes on",
        "once_acquire",
        "goes_on = runner_end and runner_end > now",
        "goes_on = false",
        "callers get NotCompleted in place of the result",
    ),
    Planted(
        "what was begun is run again",
        "once_acquire",
        "goes_on = runner_end and runner_end > now",
        "goes_on = true",
        "what a dead process may have done is done again",
    ),
    Planted(
        "a record is never made anew",
        "once_acquire",
        "local is_stale = refresh_ms >= 0 and",
        "local is_stale = false and",
        "all get the old result until its end",
    ),
    Planted(
        "a record is made anew too early",
        "once_acquire",
        "now - outcome.at >= refresh_ms * 1000",
        "now - outcome.at >= refresh_ms * 900",
        "a result that counts is made again",
    ),
    Planted(
        "a record that is made anew answers no one",
        "once_acquire",
        "goes_on = is_stale and (has_lease or lease_end <= now and length == 0)",
        "goes_on = is_stale",
        "all wait while one of them makes a result anew",
    ),
    Planted(
        "one that finds a record keeps its run",
        "once_acquire",
        "      drop_lease(token)\n      dismiss()",
        "      dismiss()",
        "a caller that has the result holds the key",
    ),
    Planted(
        "fingerprints are ignored",
        "once_acquire",
        "fingerprint ~= outcome.fingerprint",
        "false",
        "a caller gets the result of another request",
    ),
    Planted(
        "newcomers overtake the waiters of a key",
        "once_acquire",
        "if length == 0 and not is_held then",
        "if not is_held then",
        "a new request runs before the waiters",
    ),
    Planted(
        "a waiter of a key loses its place",
        "once_acquire",
        "  ticket = has_place or math.max(now, waiting + 1)",
        "  ticket = math.max(now, waiting + 1)",
        "a waiter that repeats its request moves to the end of the queue",
    ),
    Planted(
        "a message begins a run",
        "handfast._protocol.acquire",
        'tag == b"queued" and request.trusts_messages and',
        'tag == b"queued" and',
        "a waiter runs what was recorded since its message was sent",
    ),
    Planted(
        "a run that is not to be repeated begins unrecorded",
        "handfast._api.aio.once",
        "if not self._options.reruns:",
        "if False:",
        "what a dead process may have done is done again",
    ),
    Planted(
        "a run begins that was lost before",
        "handfast._protocol.once",
        'if answer.fields[0] == b"lost":',
        "if False:",
        "what is not to be repeated runs although its beginning is not recorded",
    ),
    Planted(
        "a lost run records that it is done",
        "handfast._api.aio.run",
        "if not self.lost:",
        "if True:",
        "a caller gets LeaseLost, and the others an empty result",
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
        if planted.where.startswith("classic/") or not hunt(seed, seed + 1, setting=planted.setting).findings:
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
            yield partial(_engine, scripts, planted.setting)


def _engine(scripts: dict[str, str], setting: str, first: int, last: int) -> tuple[int, str] | None:
    for start in range(first, last, CHUNK):
        findings = hunt(start, min(start + CHUNK, last), scripts=scripts, setting=setting).findings
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
    start = "\n" if planted.old.startswith("  ") else ""  # a whole line, and not the end of one
    old, new = (start + with_numbers(as_sent(text)) for text in (planted.old, planted.new))
    changed = {name: scripts[name].replace(old, new) for name in names if old in scripts[name]}
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
    for mine, theirs in _functions(vars(module), other, {module.__name__, "handfast"}):
        was.append((mine, mine.__code__))
        mine.__code__ = theirs.__code__
    try:
        yield
    finally:
        for mine, code in was:
            mine.__code__ = code


def _functions(mine: Any, theirs: Any, modules: set[str]) -> Iterator[tuple[types.FunctionType, types.FunctionType]]:
    """Yield the functions of a module and of its classes, with their counterparts. ``modules`` are the names by which it is known."""
    for name, value in list(mine.items()):
        if getattr(value, "__module__", None) not in modules or name not in theirs:
            continue
        if isinstance(value, types.FunctionType) and not value.__closure__:
            yield value, theirs[name]
        elif isinstance(value, type):
            yield from _functions(vars(value), vars(theirs[name]), modules)
