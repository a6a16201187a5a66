"""Mistakes in the engine, each of which the simulation must detect: this tests the checks.

Most mistakes are mutants of a script, by the names that ``handfast_lab.mutants`` gives them; ``python -m
handfast_lab.mutants --show NAME`` prints the change. The others replace a function of a protocol or of the asyncio
driver. Seeds run from 0 on until one has a finding; their number shows how strong the checks are. One or two mistakes
for each check are enough: whether the tests notice each mistake that a script may have is what all mutants show.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from handfast._engine.script import load, lua_texts
from handfast._protocol.limiting import Decision
from handfast.errors import ServerRefused
from handfast_lab.mutants.making import mutants_of
from handfast_lab.simulator.hunt import hunt
from handfast_lab.simulator.server import ENGINE_SCRIPTS

__all__ = ["PLANTED", "Caught", "Planted", "broken", "catch", "catch_all", "planting"]

MOST = 50_000
"""Number of schedules after which a mistake counts as not caught."""

CHUNK = 25
"""Seeds that are run before the first finding among them counts."""

KINDS = {
    "budget_": "budget",
    "debounce_": "debounce",
    "election_": "election",
    "group_": "group",
    "lib/watchers": "election",
    "latch_": "latch",
    "limit_": "limiter",
    "once_": "once",
    "lib/account": "budget",
    "lib/outcome": "once",
    "lib/turns": "limiter",
    "lib/window": "limiter",
}
"""The kinds of plans that run a script, by the start of its name."""

Change = Callable[..., Any]
"""Stands in for a function: it gets that function and its arguments."""

C = TypeVar("C", bound=Change)


class Planted(NamedTuple):
    """One mistake."""

    name: str
    """The name of a mutant of a script; or what a change of a function does."""
    why: str
    """What it breaks."""
    kind: str = ""
    """The kind of the plans that show it; empty for the kind that `KINDS` has for it, or else for locks."""
    setting: str = "server"
    """The setting of the schedules that show it."""
    function: str = ""
    """The function that is changed; empty for a mutant."""
    change: Any = None
    """What stands in for it: a `Change`, or a value."""

    @property
    def where(self) -> str:
        """The script or the function."""
        return self.function or self.name.partition(": ")[0]

    @property
    def plans(self) -> str:
        """The kind of the plans that are tried."""
        return self.kind or next((kind for start, kind in KINDS.items() if self.where.startswith(start)), "permits")


class Caught(NamedTuple):
    """The result of a planted mistake."""

    planted: Planted
    schedules: int
    """Number of schedules until it was caught; 0 if it was not."""
    finding: str


MUTANTS = """
permit_release: if holder == token and length == 0 and not options then: holder == token and length == 0 -> length == 0
    A release takes the lease of another.
permit_acquire: if length == 0 and is_out + weight <= limit_in_force then: length == 0 and is_out + weight <= limit_in_force -> length == 0
    A request is granted although no permit is free.
lib/grant: out = out - weight_of(its_record): left out
    Released permits stay counted, so fewer remain.
lib/sweep: if out > 0 and soonest <= now then: out > 0 and soonest <= now -> false
    The permits of a dead holder never become free.
permit_release: local rests_until = holder == token and math.min((struct.unpack('<d', record)), ...: ack('<d', record)), now) + at_least_us -> -
    A lock that is released early does not rest.
permit_acquire: if its_record and its_end > now then: its_record and its_end > now -> false
    A repeated acquire gets a second grant.
permit_cancel: if not drop_lease(token) and ticket_of(token) then: not drop_lease(token) and ticket_of(token) -> ticket_of(token)
    A grant that came together with the timeout stays.
permit_cancel: leave_queue(token): left out
    A cancelled request is still in the queue.
permit_acquire: return 'granted ' .. struct.pack('<dd', struct.unpack('<d', its_record), its_end...: its_end - now -> +
    A repeated acquire states too long a lease.
permit_renew: text = struct.pack('<d', math.max(lease_end, its_end)) .. string.sub(text, FENCE...: math.max(lease_end, its_end) -> (lease_end)
    A renewal does not make the lease longer.
permit_hold: local MOST = 1000000000: 1000000000 -> 0
    Requests are granted while an operator holds the name.
multi_acquire: all_free = all_free and lease_end <= now and length == 0 and extra == 0 and keep...: all_free and lease_end <= now and length == 0 -> all_free and lease_end <= now
    A request for several locks is granted before the waiters.
lib/queue: return math.max(1, waiting - head_start_us): waiting - head_start_us -> +
    A head start puts a request behind the others.
lib/ask: local its_end = math.min(known_end, now + grace_ms * 1000): math.min(known_end, now + grace_ms * 1000) -> (now + grace_ms * 1000)
    A later request puts off the end of the grace.
lib/ask: if its_record and not string.find(token, '^%p') then: its_record and not string.find(token, '^%p') -> its_record
    A lock that rests is asked to end.
permit_overtake: local dismissed = redis.call('ZRANGEBYSCORE', tokens, '-inf', before, 'LIMIT', 0...: '-inf' -> '+inf'
    A request that overtakes dismisses no earlier request.
lib/handoff: if head ~= me and (fits or exceeds_limit or my_ttl_ms or is_out < limit) and not...: fits or exceeds_limit or my_ttl_ms or is_out < limit -> fits or exceeds_limit or my_ttl_ms
    A dead writer that is first in the queue blocks all readers.
lib/handoff: if wait_until < now then: wait_until < now -> false
    An entry of the queue without a record ends the script with an error.
lib/handoff: if length > 0 then: length > 0 -> false
    Released permits stay free until the next request.
lib/handoff: publish(head, inbox, fence, lease_ms * 1000): left out
    A grant without a message expires before its waiter polls.
lib/inbox: return redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0: UB', 'NUMSUB', inbox)[2] > 0 -> >=
    Permits are granted to dead waiters.
lib/handoff: return is_out + weight < limit or set_limit == 0 and limit > 1, head == me and f...: head == me and fence -> fence
    A waiter gets the fence of another.
lib/grant: fence = math.max(fence + 1, now, min_fence or 0): math.max(fence + 1, now, min_fence or 0) -> math.max(fence + 1, min_fence or 0)
    A server that lost its data starts counting again.
lib/grant: fence = math.max(fence + 1, now, min_fence or 0): math.max(fence + 1, now, min_fence or 0) -> math.max(now, min_fence or 0)
    After the clock was set back, fences decrease.
lib/state: redis.call('PEXPIRE', state, math.floor((raised - now) / 1000)): left out
    The state of an unused name never expires.
lib/state: raised, changed = least + HOUR_US, true: least + HOUR_US -> -
    A key expires before the lease in it.
permit_release: redis.call('HDEL', KEYS[k], ''): left out
    At maxmemory nothing can be released.
lib/window: if window.used + costs[i] > window.limit then: window.used + costs[i] -> -
    More than the limit is admitted within a period.
limit_batch: local used = -(sum or 0): sum or 0 -> 0
    A batch does not count earlier admissions.
limit_batch: if redis.call('EXISTS', queue, tombstones, settings) == 0 then: queue -> settings
    A batch admits newcomers before the waiters.
limit_acquire: if is_first and fits(costs) then: is_first and fits(costs) -> fits(costs)
    A newcomer that costs less is admitted before the waiters.
limit_acquire: if admitted_at then: admitted_at -> false
    A call whose reply was lost waits although it is admitted.
limit_acquire: elseif served_until then: served_until -> false
    A waiter whose message was lost is counted twice.
limit_acquire: if position > 0 and (is_full or least_us > math.max(patience_us, due_us)) and ev...: position > 0 and (is_full or least_us > math.max(patience_us, due_us)) and evict... -> false
    Calls are refused because of waiters that are gone.
lib/window: window.has_it = window.at or has_lapsed: window.at or has_lapsed -> has_lapsed
    A call whose reply was lost counts twice.
lib/window: if paused_until > now then: paused_until > now -> false
    A call is admitted before the end of a pause.
lib/window: redis.call('PEXPIRE', window.key, window.per_ms + 1000): left out
    The window of an unused limiter never expires.
lib/window: if window.used > 0 or metrics and redis.call('EXISTS', window.key) == 1 then: window.used > 0 or metrics and redis.call('EXISTS', window.key) == 1 -> window.used > 0
    An admission is forgotten where one that costs 0 lapses.
lib/window: when = math.max(when, math.min(at, now) + window.per_ms * 1000): 1000 -> 1001
    A call comes again too late, and what is free stays unused.
lib/turns: local costs = is_alike and metrics and metrics.costs_of(record) or {cost, cost, ...: is_alike and metrics and metrics.costs_of(record) or {cost, cost, cost, cost} -> {cost, cost, cost, cost}
    A waiter of a limiter with metrics costs nothing.
lib/turns: local is_alike = its_rates == rates and they_count: its_rates == rates and they_count -> its_rates == rates
    A waiter is admitted under other rates than those that an operator has set.
lib/turns: local they_count = its_rates == set_rates or not set_rates and follows == 0: not set_rates and follows == 0 -> not set_rates
    A waiter is admitted under rates that were removed.
lib/turns: if comes_at + CLAIM_US < now or frozen[inbox] then: comes_at + CLAIM_US < now or frozen[inbox] -> frozen[inbox]
    A frozen waiter with other rates keeps all others waiting.
lib/turns: if not has_subscriber(inbox) then: not has_subscriber(inbox) -> false
    A dead waiter is admitted.
lib/turns: elseif fits(costs) and not is_last then: fits(costs) and not is_last -> false
    What is given back stays unused until the first waiter asks again.
lib/turns: publish(head, inbox, remaining(), 1, metrics and metrics.rests()): left out
    A waiter that was admitted goes on waiting.
budget_reserve: if account.spent + account.held + amount > most then: account.spent + account.held + amount > most -> false
    An account exceeds its limit.
budget_reserve: if redis.call('ZSCORE', tombstones, token) then: redis.call('ZSCORE', tombstones, token) -> false
    An amount stays held whose call was given up.
budget_settle: elseif charges and math.floor(charge / bit) % 2 == 1 then: charges and math.floor(charge / bit) % 2 == 1 -> charges
    An account that had a hold is charged twice.
lib/account: account.enters, account.end_us, account.held, account.soonest_us = true, end_us,...: 0 -> 1
    A period begins with an amount that no call holds.
budget_reserve: if account.spent + account.held + amount > most then: account.spent + account.held + amount > most -> true
    An amount that fits is refused.
latch_watch: if left <= 0 then: 0 -> 1
    Callers go on before the last part is done.
latch_done: redis.call('ZADD', parts, 'NX', unpack(added)): left out
    A part that is done does not count.
latch_done: return 'done ' .. struct.pack('<dd', left, left == 0 and ring() or 0): left == 0 and ring() or 0 -> 0
    Callers wait for a poll that they may not have the time for.
election_watch: if leads then: leads -> false
    Observers see no leader although there is one.
lib/watchers: if has_subscriber(inbox) then: has_subscriber(inbox) -> false
    Observers see a new leader up to five seconds late.
group_watch: if latest == fence and known == size then: latest == fence and known == size -> latest == fence
    A member that leaves is not seen.
permit_slot: if taken[slot] then: taken[slot] -> false
    Two holders have the number that both prefer.
permit_slot: if not slot then: not slot -> true
    A holder has two numbers, one after the other.
debounce_enter: remember(newest): left out
    A copy that arrives late ends the newest call, and no call runs.
debounce_enter: elseif ran == token then: ran == token -> false
    A call whose reply was lost does not run, and no other call does.
debounce_enter: first = math.min(first or now, now): math.min(first or now, now) -> (now)
    Calls that never stop are never run.
debounce_enter: first = nil: left out
    The call after a dead call runs without a quiet time.
debounce_put: redis.call('ZADD', queue, QUEUED + now, token): left out
    An item is lost.
debounce_put: remember('+' .. token): left out
    An item whose reply was lost is done twice.
debounce_done: remember(token): left out
    A copy takes items for a run that is over.
debounce_take: if last then: last -> false
    A run whose reply was lost gets other items.
debounce_take: for _, member in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT',...: '-inf' -> '+inf'
    A run gets no items.
once_acquire: goes_on = not is_paused(outcome): left out
    A failure to make a result anew is tried again at once.
once_acquire: goes_on = runner_end and runner_end > now: runner_end and runner_end > now -> runner_end
    What a dead process may have done is done again.
once_acquire: goes_on = runner_end and runner_end > now: left out
    A copy of the request of a run finds the beginning of the run as a record.
once_acquire: if length == 0 and not is_held then: length == 0 and not is_held -> not is_held
    A new request runs before the waiters.
once_acquire: local is_reused = fingerprint ~= '' and outcome.fingerprint ~= '' and fingerprin...: fingerprint ~= outcome.fingerprint -> ==
    A caller gets the result of another request.
once_record: local holds, ends = its_record and its_end > now, outcome ~= 'begun': its_record and its_end > now -> its_record
    A run that has lost its lease publishes its result.
once_record: local is_lost = not holds and not has_recorded: not holds and not has_recorded -> not holds
    A run whose reply was lost gets LeaseLost, and has recorded.
once_record: if ends and outcome ~= 'done' and earlier and earlier.state == 'done' then: ends and outcome ~= 'done' and earlier and earlier.state == 'done' -> false
    A failure replaces the earlier result.
once_record: local text = struct.pack('<dd', now, (struct.unpack('<d', its_record))): now -> 0
    A record has the wrong time.
lib/outcome: if length > 0 then: length > 0 -> false
    Waiters get the result only when they ask by themselves.
"""
"""The names of mutants, and what each breaks."""


_changes: list[Planted] = []


def _planted(function: str, why: str, kind: str = "", setting: str = "server") -> Callable[[C], C]:
    """Plant a mistake: the decorated function stands in for the named one, and its docstring says what it does."""

    def add(change: C) -> C:
        _changes.append(Planted((change.__doc__ or "").rstrip("."), why, kind, setting, function, change))
        return change

    return add


@_planted("handfast._engine.calls.PermitRequest.acquire", "A waiter with a new connection loses its place.")
def _drop_ticket(was: Change, request: Any, token: bytes, _ticket: int = 0, *, caller: int = 0) -> Any:
    """Ask for permits without a ticket."""
    return was(request, token, caller=caller)


@_planted("handfast._protocol.acquire.BaseAttempt.answered", "A request arrives late, and is granted without an owner.")
def _forget_copies(was: Change, attempt: Any, call: Any, answer: Any) -> None:
    """Forget that a request was sent twice."""
    if isinstance(answer, ServerRefused):
        was(attempt, call, answer)


@_planted("handfast._protocol.acquire._poll_interval", "Waiters keep the server busy.")
def _poll_always(_was: Change, _position: int, _retry_us: int) -> float:
    """Ask again as soon as a reply is there."""
    return 0.0


@_planted("handfast._protocol.acquire.BaseAttempt.refused", "A waiter whose last request fails stays in the queue.")
def _forget_place(_was: Change, attempt: Any) -> None:
    """Take an error reply for the end of a request."""
    attempt.may_be_there = False


@_planted("handfast._protocol.lease.LeaseState.want", "It relies on its lease after the server has taken it.")
def _keep_deadline(was: Change, lease: Any, wanted: Any, now: float) -> Any:
    """Have a holder that is asked to end rely on its lease as before."""
    deadline = lease.deadline
    is_first = was(lease, wanted, now)
    lease.deadline = deadline
    return is_first


@_planted("handfast._protocol.lease.LeaseState.renewed", "The holder's deadline is later than the server's.")
def _count_renewal_late(was: Change, lease: Any, sent_at: float, lease_us: int) -> None:
    """Count a renewed lease from its reply."""
    was(lease, sent_at + 0.05, lease_us)


@_planted("handfast._drivers.aio.session.Session.deliver", "The holder's deadline is later than the server's.")
def _count_reply_late(was: Change, session: Any, request: Any, *others: Any) -> None:
    """Count a granted lease from its reply."""
    request.sent_at = asyncio.get_running_loop().time()
    was(session, request, *others)


@_planted("handfast._engine.calls.Request.is_acknowledged", "A lease is lost with the primary.", setting="replicas")
def _count_unreplicated(_was: Change, _request: Any, _answer: Any) -> bool:
    """Rely on a lease that no replica has."""
    return True


@_planted("handfast._drivers.aio.driver.AsyncDriver.undo", "A cancelled acquire leaves its queue entry, or its lease.")
async def _undo_nothing(_was: Change, _driver: Any, _attempt: Any, _error: Any = None) -> None:
    """Leave a cancelled acquire as it is."""


@_planted("handfast._drivers.aio.context.Context.remove", "Renewals continue after the release has returned.")
def _keep_renewing(was: Change, context: Any, lease: Any) -> None:
    """Renew a released lease."""
    if not lease.request.renew:
        was(context, lease)


@_planted("handfast._drivers.aio.inbox.Inbox._confirmed", "A holder that blocks its event loop loses its new lease.")
def _confirm_nothing(_was: Change, _inbox: Any, message: Any, _confirm: Any) -> Any:
    """Take a granted lease without a confirmation."""
    return message, None


@_planted(
    "handfast._drivers.aio.session.Session.withdraw", "A call for a former node gets no reply.", setting="cluster"
)
def _drop_calls(was: Change, session: Any) -> list[Any]:
    """Drop the calls for a node that is gone."""
    was(session)
    return []


@_planted(
    "handfast._protocol.limiting.read_message", "A waiter whose turn it is goes on without an admission.", "limiter"
)
def _take_for_admitted(_was: Change, message: Any) -> Decision:
    """Take each message to a waiter of a limiter for an admission."""
    return Decision(True, message[0])


@_planted("handfast._engine.limits.LimitRequest.acquire", "A waiter that lost its place goes to the end.", "limiter")
def _drop_turn(was: Change, request: Any, token: bytes, patience_s: float, _ticket: int = 0) -> Any:
    """Ask a limiter without a ticket."""
    return was(request, token, patience_s)


@_planted("handfast._protocol.assigning.assigned", "Some workers have too much to do.", "partition")
def _favour_first(_was: Change, members: Any, items: Any, _most: int | None = None) -> dict[str, int]:
    """Assign all items to one member."""
    return dict.fromkeys(items, min(members)) if members else {}


@_planted("handfast._api.aio.collecting.AsyncCollecting._leave", "The items of a run that raises are gone.", "debounce")
async def _leave_as_done(was: Change, block: Any, _error: Any) -> None:
    """Count the items of a failed run as done."""
    await was(block, None)


@_planted("handfast._protocol.once.begin", "What a dead process may have done is done again.", "once")
def _begin_unrecorded(_was: Change, _lease: Any) -> Iterator[None]:
    """Begin a run that is not to be repeated without a record."""
    yield from ()


@_planted("handfast_lab.simulator.server.SimulatedServer.run", "What was done is remembered without end.", "once")
def _drop_ttl(was: Change, server: Any, name: bytes, moment_us: int, *call: Any) -> Any:
    """Store a record without a TTL."""
    found = was(server, name, moment_us, *call)
    _, words = call
    record = server.model[b"peek"](words[2], moment_us) if name == b"once_record" else None
    if record is not None:
        record.expires = None
    return found


def _named(table: str) -> Iterator[Planted]:
    """Read `MUTANTS`."""
    lines = iter(table.strip().splitlines())
    return (Planted(name, why.strip()) for name, why in zip(lines, lines, strict=True))


PLANTED = (
    *_named(MUTANTS),
    Planted(
        "lib/inbox: return redis.call('PUBSUB', 'SHARDNUMSUB', inbox)[2] > 0: 'SHARDNUMSUB', inbox)[2] > 0 -> >=",
        "A waiter whose slot has moved is granted at the former node.",
        setting="cluster",
    ),
    Planted(
        "lib/window: window.has_it = window.used + costs[i] > window.limit: left out",
        "What a script that was cut off left out is added, and exceeds the limit.",
        setting="cut off",
    ),
    Planted(
        "lib/watchers: redis.call('ZADD', watchers, now + ms * 1000, token .. ' ' .. inbox): left out",
        "Watchers see members come and go up to five seconds late.",
        kind="group",
    ),
    *_changes,
    Planted(
        "Begin a run by a message",
        "A waiter runs what was recorded since its message was sent.",
        "once",
        function="handfast._engine.once.OnceRequest.trusts_messages",
        change=True,
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


def _find(planted: Planted, first: int, last: int) -> tuple[int, str] | None:
    """Return the first seed with a finding, and its text."""
    with planting(planted) as scripts:
        for start in range(first, last, CHUNK):
            end = min(start + CHUNK, last)
            found = hunt(start, end, scripts=scripts, setting=planted.setting, kind=planted.plans).findings
            if found:
                return min((seed, texts[0]) for seed, texts in found.items())
    return None


@contextmanager
def planting(planted: Planted) -> Iterator[dict[str, str]]:
    """Yield the scripts with the mistake in them or in a function. Raises LookupError for an unknown mutant."""
    if planted.change is None:
        yield broken(planted)
        return
    was, change = resolve_name(planted.function), planted.change
    new = (lambda *arguments, **named: change(was, *arguments, **named)) if callable(change) else change
    with mock.patch(planted.function, new):
        yield dict(ENGINE_SCRIPTS)


def broken(planted: Planted) -> dict[str, str]:
    """Return the scripts with the mistake of a mutant. Raises LookupError for an unknown mutant."""
    text = _mutants(planted.where).get(planted.name)
    if text is None:
        raise LookupError(f"no mutant has the name {planted.name!r}")
    with mock.patch.dict(lua_texts(), {f"{planted.where}.lua": text}):
        return {name: load.__wrapped__(name).source for name in ENGINE_SCRIPTS}


@cache
def _mutants(script: str) -> dict[str, str]:
    """Return the texts of all mutants of a script, by name."""
    return {mutant.name: mutant.text for mutant in mutants_of(script, lua_texts().get(f"{script}.lua", ""))}
