"""Mistakes planted in the engine, each of which the simulation must detect: this tests the checks.

A planted mistake replaces one text of one file by another: in a script, in a protocol or in the asyncio driver. Seeds
run from 0 on until one has a finding; their number shows how strong the checks are. One or two mistakes for each check
are enough: whether the tests notice each mistake that a script may have is what its mutants show.
"""

from __future__ import annotations

import importlib
import multiprocessing
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from handfast._engine.script import as_sent, with_numbers
from handfast_lab.simulator.hunt import hunt
from handfast_lab.simulator.server import ENGINE_SCRIPTS

__all__ = ["PLANTED", "Caught", "Planted", "broken", "catch", "catch_all", "planting"]

MOST = 50_000
"""Number of schedules after which a mistake counts as not caught."""

CHUNK = 125
"""Seeds that are run before the first finding among them counts."""


class Planted(NamedTuple):
    """One mistake."""

    name: str
    where: str
    """A script, ``scripts`` for all that have the text, or a module."""
    old: str
    new: str
    why: str
    """What it breaks."""
    setting: str = "server"
    """The setting of the schedules that show it."""
    kind: str = ""
    """The kind of the plans that show it; empty for all, or for those that the name of the script tells."""

    @property
    def plans(self) -> str:
        """The kind of the plans that are tried."""
        kinds = {"budget_": "budget", "limit_": "limiter", "debounce_": "debounce", "latch_": "latch", "once_": "once"}
        kinds |= {"election_": "election", "group_": "group"}
        return self.kind or next((kind for start, kind in kinds.items() if self.where.startswith(start)), "")


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
        "one permit too many",
        "permit_acquire",
        "if length == 0 and is_out + weight <= limit_in_force then",
        "if length == 0 and is_out + weight <= limit_in_force + 1 then",
        "a new request is granted although one permit is missing",
    ),
    Planted(
        "used ignores releases",
        "scripts",
        "    redis.call('ZREM', tokens, token)\n    out = out - weight_of(its_record)\n",
        "    redis.call('ZREM', tokens, token)\n",
        "released permits stay counted, so fewer remain",
    ),
    Planted(
        "expired leases are not removed",
        "scripts",
        "if out > 0 and soonest <= now then",
        "if false then",
        "the permits of a dead holder never become free",
    ),
    Planted(
        "force_release takes newer leases",
        "permit_revoke",
        "token == HOLD or its_fence < least_fence or its_fence > up_to_fence",
        "token == HOLD or its_fence < least_fence",
        "a repeated force_release takes the leases granted after it",
    ),
    Planted(
        "force_release of one lease takes older ones",
        "permit_revoke",
        "token == HOLD or its_fence < least_fence or its_fence > up_to_fence",
        "token == HOLD or its_fence > up_to_fence",
        "of several holders, those who came before the one that hangs lose their leases, too",
    ),
    Planted(
        "a lock that is released early does not rest",
        "permit_release",
        "local rests = at_least_us > 0",
        "local rests = at_least_us < 0",
        "a job that is shorter than the clocks of its machines differ runs twice",
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
        "a repeated acquire is granted again",
        "permit_acquire",
        "if its_record and its_end > now then",
        "if false then",
        "a repeated acquire gets a second grant instead of the first",
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
    # --- the queue
    Planted(
        "new requests overtake waiters",
        "permit_acquire",
        "if length == 0 and is_out + weight <= limit_in_force then",
        "if is_out + weight <= limit_in_force then",
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
        "a head start counts for those behind it as well",
        "scripts",
        "return math.max(1, waiting - head_start_us)",
        "waiting = math.max(1, waiting - head_start_us)\n  return waiting",
        "Of two requests with the same head start, the later one is first after the clock was set back.",
    ),
    Planted(
        "a head start counts twice",
        "scripts",
        "return math.max(1, waiting - head_start_us)",
        "return math.max(1, waiting - 2 * head_start_us)",
        "A request passes those who have waited longer than its head start.",
    ),
    Planted(
        "a later request puts the end of the grace off",
        "permit_overtake",
        "math.min(known_end, now + grace_ms * 1000)",
        "now + grace_ms * 1000",
        "A holder that does not react stays for as long as later requests come.",
    ),
    Planted(
        "a hold is a permit",
        "permit_hold",
        "local MOST = 1000000000",
        "local MOST = 0",
        "Requests are granted while an operator holds the name.",
    ),
    Planted(
        "a holder is revoked when it is asked",
        "permit_overtake",
        "if its_end <= now then",
        "if its_end <= now + 1000000 then",
        "A holder with a grace of a second can't clean up.",
    ),
    Planted(
        "a request that overtakes dismisses no one",
        "permit_overtake",
        "'LIMIT', 0, MAX_DISMISSED",
        "'LIMIT', 0, 0",
        "Older requests are before it.",
    ),
    Planted(
        "a holder that is to end relies on its lease as before",
        "handfast._protocol.lease",
        "self.deadline = min(self.deadline, self.ends_at)",
        "pass",
        "It relies on its lease until after the server has taken it.",
    ),
    Planted(
        "a lock that rests is asked to end",
        "scripts",
        "not string.find(token, '^%p')",
        "true",
        "A lock that is kept by at_least is taken.",
    ),
    Planted(
        "waiters have no tickets",
        "handfast._protocol.acquire",
        "yield request.acquire(token, ticket, caller=attempt.caller)",
        "yield request.acquire(token, caller=attempt.caller)",
        "a waiter whose connection was remade at a release is queued behind those who came later",
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
        "a release makes no handoff",
        "permit_release",
        "more = more == 0 and hand_over() or more",
        "save()",
        "released permits stay free until the next request",
    ),
    Planted(
        "no message is sent",
        "scripts",
        "    publish(head, inbox, fence, lease_ms * 1000)\n",
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
        "a waiter gets the fence of the next one",
        "scripts",
        "head == me and fence\n",
        "head == me and 1\n",
        "a waiter that gets others served behind it gets another fence than it has",
    ),
    # --- fences
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
    # --- replies and messages
    Planted(
        "a grant message states too long a lease",
        "scripts",
        "publish(head, inbox, fence, lease_ms * 1000)",
        "publish(head, inbox, fence, lease_ms * 10000)",
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
        "several locks overtake waiters",
        "multi_acquire",
        "all_free and lease_end <= now and length == 0",
        "all_free and lease_end <= now",
        "a request for several locks is granted before the waiters of one",
    ),
    Planted(
        "a renewal of several locks renews the first only",
        "permit_renew",
        "for k = 1, #KEYS, 2 do\n  local text, its_end = texts[k]",
        "for k = 1, 2, 2 do\n  local text, its_end = texts[k]",
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
        "            if answer.changed_nothing:\n                self.refused()\n",
        "            self.may_be_there = False\n",
        "a waiter whose last request fails stays in the queue",
    ),
    Planted(
        "a try_acquire is not undone",
        "handfast._protocol.acquire",
        "    answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n",
        "    attempt.may_be_there = False\n"
        "    answer: Answer = yield attempt.request.try_acquire(attempt.token, caller=attempt.caller)\n"
        "    attempt.may_be_there = True\n",
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
        "        elif answer.again:",
        "        elif False:",
        "a try_acquire that was sent twice and refused is granted without an owner when its first copy arrives",
    ),
    # --- batches
    Planted(
        "a batch admits past those who wait",
        "limit_batch",
        "redis.call('EXISTS', queue, tombstones, settings) == 0",
        "redis.call('EXISTS', tombstones, settings) == 0",
        "newcomers take what is free from the first waiter of a limiter",
        kind="limiter",
    ),
    Planted(
        "a batch does not count what was admitted",
        "limit_batch",
        "local used = -(sum or 0)",
        "local used = 0",
        "a limiter admits more than its rate",
        kind="limiter",
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
        "        if parts and self._connector.reached and context is not None:\n",
        "        if False and context is not None:\n",
        "a cancelled acquire leaves its queue entry, or its lease",
    ),
    Planted(
        "the driver does not report a request that was sent twice",
        "handfast._drivers.aio.outbox",
        "            request.again = True\n",
        "            request.again = request.call.once\n",
        "a try_acquire whose first copy arrives after the reply to the second is granted without an owner",
    ),
    Planted(
        "the driver renews a released lease",
        "handfast._drivers.aio.context",
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
        "handfast._drivers.aio.context",
        "                session.receive()",
        "                pass",
        "a holder that blocked its event loop after a handoff takes its lease for lost although it was confirmed",
    ),
    Planted(
        "the driver expects no reply to a cancelled request",
        "handfast._drivers.aio.session",
        "                    self.deliver(request, frame)\n",
        "                    while due and request.future.done() and not isinstance(due[0], Aside):\n"
        "                        request = due.popleft()\n"
        "                    self.deliver(request, frame)\n",
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
        "scripts",
        "at = tonumber(at), member = member}",
        "member = member}",
        "a call whose reply was lost counts twice",
        kind="limiter",
    ),
    Planted(
        "a window admits one too many",
        "scripts",
        "window.used + costs[i] > window.limit then",
        "window.used + costs[i] > window.limit + 1 then",
        "more than the limit is admitted within a period",
        kind="limiter",
    ),
    Planted(
        "a pause keeps no one out",
        "scripts",
        "  if paused_until > now then\n    return false\n  end\n",
        "",
        "someone is admitted before the end of a pause",
        kind="limiter",
    ),
    Planted(
        "waiters are admitted under rates that count no more",
        "scripts",
        "its_rates == rates and they_count",
        "its_rates == rates",
        "someone is admitted under other rates than those that an operator has set",
        kind="limiter",
    ),
    Planted(
        "waiters are admitted under rates that were removed",
        "scripts",
        "its_rates == set_rates or not set_rates and follows == 0",
        "its_rates == (set_rates or its_rates)",
        "someone is admitted beyond the rates of its client, which count again",
        kind="limiter",
    ),
    Planted(
        "a dead waiter is admitted",
        "scripts",
        "  if not has_subscriber(inbox) then\n    leave_queue(head)\n    return true\n  elseif not is_alike then\n",
        "  if not is_alike then\n",
        "what a dead waiter was admitted for is lost to the others",
        kind="limiter",
    ),
    Planted(
        "newcomers of a limiter overtake waiters",
        "limit_acquire",
        "if is_first and fits(costs) then",
        "if (is_first or not place) and fits(costs) then",
        "a call is admitted before the waiters, if it costs less than the first one",
    ),
    Planted(
        "a new cost leaves the old one",
        "scripts",
        "      redis.call('ZREM', window.key, '=', window.member)\n",
        "      redis.call('ZREM', window.key, '=')\n",
        "a settled call counts for both costs",
        kind="limiter",
    ),
    Planted(
        "a settling admits no waiter",
        "limit_settle",
        "serve(nil, was_first or admitted_at and is_less)\n",
        "true, now, false\n",
        "what a call gives back stays unused until the first waiter asks again",
    ),
    Planted(
        "a window has no TTL",
        "scripts",
        "    redis.call('PEXPIRE', window.key, window.per_ms + 1000) -- a second more than it needs\n",
        "",
        "the window of a limiter that is not used any more never expires",
        kind="limiter",
    ),
    Planted(
        "the first waiter comes too late",
        "scripts",
        "math.min(at, now) + window.per_ms * 1000)",
        "math.min(at, now) + window.per_ms * 1100)",
        "what is free stays unused",
        kind="limiter",
    ),
    Planted(
        "waiters are admitted without a message",
        "scripts",
        "    publish(head, inbox, remaining(), 1, metrics and metrics.rests())\n",
        "",
        "a waiter that was admitted goes on waiting",
        kind="limiter",
    ),
    Planted(
        "a message that calls a waiter counts as an admission",
        "handfast._protocol.limiting",
        "return Decision(True, number, rests=rests) if is_admitted else Turn(number, sent_us)",
        "return Decision(True, number)",
        "a waiter whose turn it is goes on without an admission",
        kind="limiter",
    ),
    Planted(
        "waiters of a limiter have no tickets",
        "handfast._protocol.limiting",
        "yield attempt.request.acquire(token, until - now, ticket)",
        "yield attempt.request.acquire(token, until - now, 0)",
        "a waiter whose place was lost comes back at the end of the queue",
        kind="limiter",
    ),
    Planted(
        "a frozen waiter with other rates keeps its place",
        "scripts",
        "comes_at + CLAIM_US < now or frozen[inbox]",
        "false",
        "no one is admitted until its wait-lease is over",
        kind="limiter",
    ),
    Planted(
        "dead waiters count as a queue",
        "limit_acquire",
        " and evict_waiters() then",
        " and false then",
        "newcomers are refused because of waiters that are gone",
    ),
    Planted(
        "who was admitted by another call is forgotten",
        "limit_acquire",
        "elseif served_until then",
        "elseif false then",
        "a waiter whose message was lost is counted twice",
    ),
    Planted(
        "every metric costs 1",
        "scripts",
        "costs[#costs + 1] = cost",
        "costs[#costs + 1] = 1",
        "more tokens are admitted than the limit of that metric",
        kind="limiter",
    ),
    Planted(
        "a window of costs that are 0 has no sum",
        "scripts",
        "if window.used > 0 or metrics and redis.call('EXISTS', window.key) == 1 then",
        "if window.used > 0 then",
        "an admission is forgotten where another one lapses, and settling it changes nothing",
        kind="limiter",
    ),
    Planted(
        "what a cut-off script left out is added though it does not fit",
        "scripts",
        "window.has_it = window.used + costs[i] > window.limit --",
        "window.has_it = false --",
        "a window has more than its limit",
        "cut off",
        kind="limiter",
    ),
    # --- budgets
    Planted(
        "a budget looks at its first account only",
        "budget_reserve",
        "    if account.spent + account.held + amount > most then",
        "    if i == 1 and account.spent + account.held + amount > most then",
        "another account exceeds its limit",
    ),
    Planted(
        "what was held in the period before stays held",
        "budget_reserve",
        "  account.enters, account.end_us, account.held, account.soonest_us = true, end_us, 0, 0",
        "  account.enters, account.end_us, account.soonest_us = true, end_us, 0",
        "an amount crosses a period",
    ),
    Planted(
        "a hold that is gone is charged in all accounts",
        "budget_settle",
        "  elseif charges and math.floor(charge / bit) % 2 == 1 then",
        "  elseif charges then",
        "an account that had a hold is charged twice",
    ),
    Planted(
        "a reserve that comes late holds for no one",
        "budget_reserve",
        "if redis.call('ZSCORE', tombstones, token) then",
        "if false then",
        "an amount stays held whose call was given up",
    ),
    # --- latches
    Planted(
        "a latch opens too early",
        "latch_watch",
        "if left <= 0 then",
        "if left <= 1 then",
        "callers go on before the last part is done",
    ),
    Planted(
        "a part counts twice",
        "latch_done",
        "now, ARGV[i]\n",
        "now, ARGV[i] .. now\n",
        "a worker that repeats its part opens the latch",
    ),
    Planted(
        "the last part wakes no one",
        "latch_done",
        "left == 0 and ring() or 0",
        "0",
        "callers wait for a poll that they may not have the time for",
    ),
    # --- elections
    Planted(
        "a leader whose lease has ended leads on",
        "election_watch",
        "local leads = lease_end > now",
        "local leads = lease_end > 0",
        "observers see a leader that is dead",
    ),
    Planted(
        "who knows a leader hears of no other",
        "election_watch",
        "if known == (leads and struct.unpack('<d', record) or 0) then",
        "if known > 0 or known == (leads and struct.unpack('<d', record) or 0) then",
        "observers stay with the first leader that they have seen",
    ),
    Planted(
        "an announcement reaches no one",
        "election_announce",
        "'<d', ring()",
        "'<d', 0",
        "observers see a new leader up to five seconds late",
    ),
    Planted(
        "an observer does not look when the lease ends that it has seen",
        "handfast._protocol.asking",
        "if has_end and numbers[0]:",
        "if False:",
        "observers see a dead leader up to five seconds longer",
        kind="election",
    ),
    # --- groups and slots
    Planted(
        "members whose leases have ended are listed",
        "group_watch",
        "local live = string.format('(%.0f', now)",
        "local live = '(0'",
        "watchers see members that are dead",
    ),
    Planted(
        "the number of members alone tells of a change",
        "group_watch",
        "if latest == fence and known == size then",
        "if known == size then",
        "a member that comes in the place of another is not seen",
    ),
    Planted(
        "the largest fence alone tells of a change",
        "group_watch",
        "if latest == fence and known == size then",
        "if latest == fence then",
        "a member that leaves is not seen",
    ),
    Planted(
        "members that come and go send no message",
        "group_ring",
        "'<d', ring()",
        "'<d', 0",
        "watchers see it up to five seconds late",
    ),
    Planted(
        "a slot that is held is given again",
        "permit_slot",
        "if taken[slot] then\n    slot = 0",
        "if slot < 0 then\n    slot = 0",
        "two holders have the number that both prefer",
        kind="permits",
    ),
    Planted(
        "a slot is asked for again",
        "permit_slot",
        "if not slot then",
        "if true then",
        "a holder has two numbers, one after the other",
        kind="permits",
    ),
    # --- partitions
    Planted(
        "a member has an item more than its share",
        "handfast._protocol.assigning",
        "if len(kept[member]) < room:",
        "if len(kept[member]) <= room:",
        "some workers have too much to do",
        kind="partition",
    ),
    Planted(
        "an item is never given up",
        "handfast._api.aio.worker",
        "if is_waiting or item not in items or monotonic() >= self._move_at:",
        "if is_waiting or item not in items:",
        "workers that join have nothing to do",
        kind="partition",
    ),
    Planted(
        "who has lost the membership does not join again",
        "handfast._api.aio.worker",
        "if member is None or member.lost:",
        "if member is None:",
        "a worker that was away takes part no more",
        kind="partition",
    ),
    # --- debounced names
    Planted(
        "a call that was superseded takes over again",
        "debounce_enter",
        "    remember(newest)\n",
        "",
        "a copy that arrives late ends the newest call, and nothing runs",
    ),
    Planted(
        "who was away takes over again",
        "debounce_enter",
        "ticket <= came or",
        "",
        "a call that was away for longer than tokens are remembered ends the newest call",
    ),
    Planted(
        "who runs is forgotten",
        "debounce_enter",
        "elseif ran == token then\n  return 'runs '\n",
        "",
        "a call whose reply was lost does not run, and no other one does",
    ),
    Planted(
        "each call begins the burst",
        "debounce_enter",
        "first = math.min(first or now, now)",
        "first = now",
        "calls that never stop are never run",
    ),
    Planted(
        "a call whose time has come asks once more",
        "debounce_enter",
        "  take_over()\nend\nif due <= now then",
        "  take_over()\nend\nif due <= now and ticket < now then",
        "calls that come faster than a round trip are never run",
    ),
    Planted(
        "a newcomer takes the run away",
        "debounce_enter",
        "    remember('!' .. newest)\n",
        "",
        "calls that come more slowly than `quiet`, and faster than a round trip, are never run",
    ),
    Planted(
        "a dead call lends its time",
        "debounce_enter",
        "    first = nil -- no one runs: it is frozen or dead\n",
        "",
        "the call after it runs without a quiet time",
    ),
    Planted(
        "a clock that was set back counts",
        "debounce_enter",
        "due = math.min(due, latest)",
        "due = due",
        "a call waits for as long as the clock was set back",
    ),
    Planted(
        "a copy leaves its item once more",
        "debounce_put",
        "  remember('+' .. token)\n",
        "",
        "an item whose reply was lost is done twice, though its first run said that it is done",
    ),
    Planted(
        "a run whose reply was lost takes again",
        "debounce_take",
        "local last = tonumber(redis.call('ZSCORE', queue, me))",
        "local last = nil",
        "the items of the first reply rest until its run counts as dead",
    ),
    Planted(
        "a copy takes for a run that is over",
        "debounce_done",
        "remember(token)\n",
        "",
        "items rest though no process does them",
    ),
    Planted(
        "a dead run keeps its items",
        "debounce_take",
        "queue, '-inf', now, 'LIMIT'",
        "queue, '-inf', 0, 'LIMIT'",
        "the items of a run that died are done by no other one",
    ),
    Planted(
        "dead runs count as items",
        "debounce_take",
        "  return free_items()\n",
        "  return free\n",
        "a run gets fewer items than there are, or none",
    ),
    Planted(
        "items that were handed on are done",
        "debounce_done",
        "queue, until_us, until_us)",
        "queue, 0, until_us)",
        "what another run has, and may fail to do, is forgotten",
    ),
    Planted(
        "what a failed run had is gone",
        "handfast._api.aio.collecting",
        "if error is not None:",
        "if False:",
        "a run that raises has done its items",
        kind="debounce",
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
        "a failure replaces what was done",
        "once_record",
        "if ends and outcome ~= 'done' and earlier and earlier.state == 'done' then",
        "if false then",
        "the old result is gone when making it anew has failed",
    ),
    Planted(
        "a failure to make it anew is tried again at once",
        "once_acquire",
        "goes_on = not is_paused(outcome)",
        "goes_on = true",
        "each caller asks what is down",
    ),
    Planted(
        "a record without a TTL",
        "once_record",
        ", 'PX', string.format('%.0f', keep_ms))",
        ")",
        "what was done is remembered without end",
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
        "a repeated record is lost",
        "once_record",
        "local is_lost = not holds and not has_recorded",
        "local is_lost = not holds",
        "a run whose reply was lost gets LeaseLost, and has recorded",
    ),
    Planted(
        "a recorded run leaves no tombstone",
        "once_record",
        "if copies == 1 and",
        "if copies == 2 and",
        "a copy of an acquire that arrives after the record was deleted is granted without an owner",
    ),
    Planted(
        "what was begun is run again",
        "once_acquire",
        "goes_on = runner_end and runner_end > now",
        "goes_on = true",
        "what a dead process may have done is done again",
    ),
    Planted(
        "a record is made anew too early",
        "once_acquire",
        "now - outcome.at >= refresh_ms * 1000",
        "now - outcome.at >= refresh_ms * 900",
        "a result that counts is made again",
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
)


def catch(planted: Planted, most: int = MOST, first: int = 0) -> Caught:
    """Run seeds until one has a finding, which it must not have without the mistake."""
    start, end = first, first + most
    while start < end:
        found = _find(planted, start, end)
        if found is None:
            break
        seed, words = found
        if not hunt(seed, seed + 1, setting=planted.setting).findings:
            return Caught(planted, seed - first + 1, words)
        start = seed + 1
    return Caught(planted, 0, "")


def catch_all(processes: int = 1, most: int = MOST) -> Iterator[Caught]:
    """Run all mistakes, in order."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(partial(catch, most=most), PLANTED)


@contextmanager
def planting(planted: Planted) -> Iterator[dict[str, str]]:
    """Yield the scripts with the mistake in them or in a module. Raises LookupError if its text is not found."""
    if "." in planted.where:
        with _replaced(planted):
            yield dict(ENGINE_SCRIPTS)
    else:
        yield broken(planted, ENGINE_SCRIPTS)


def _find(planted: Planted, first: int, last: int) -> tuple[int, str] | None:
    """Return the first seed with a finding, and its text."""
    with planting(planted) as scripts:
        for start in range(first, last, CHUNK):
            end = min(start + CHUNK, last)
            found = hunt(start, end, scripts=scripts, setting=planted.setting, kind=planted.plans).findings
            if found:
                return min((seed, texts[0]) for seed, texts in found.items())
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
    """Yield the functions of a module and of its classes, with their counterparts.

    ``modules`` are the names by which it is known.
    """
    for name, value in list(mine.items()):
        if getattr(value, "__module__", None) not in modules or name not in theirs:
            continue
        if isinstance(value, types.FunctionType) and not value.__closure__:
            yield value, theirs[name]
        elif isinstance(value, type):
            yield from _functions(vars(value), vars(theirs[name]), modules)
