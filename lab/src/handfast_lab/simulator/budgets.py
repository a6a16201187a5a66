"""Plans and oracle of budgets: amounts that are held and settled over periods of some seconds.

The oracle keeps a ledger of its own, from the calls and the replies alone: the holds of each token, and the spent sum of
each period. It is compared with the stored hashes after every script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from math import inf
from struct import unpack
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast._protocol.acquire import BaseAttempt
from handfast.errors import HandfastError
from handfast_lab.simulator.client import ON_ATTEMPT, Client, leaves_nothing
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import World

__all__ = ["BudgetDrawing", "BudgetWatch", "Reserving"]

ACCOUNTS = ("", "x", "y")
"""The keys of the accounts of each budget; the empty text stands for the budget without a key."""

TOGETHER = (("",), ("x",), ("", "x"), ("x", "y"), ("", "y", "x"))
"""The accounts in which an amount may be held."""

MILLIONTHS = 1_000_000

REMEMBERED_US = 20_000_000
"""For how long the server knows that a token is over, or was charged."""

_ENDS = RedisError, HandfastError, asyncio.CancelledError
"""Exceptions that a call may raise. Any other exception is an error of the library."""

_REFUSABLE = frozenset({b"budget_reserve", b"budget_set"})
"""The scripts that may be refused at maxmemory."""


class ShortPeriods(NamedTuple):
    """Periods of some seconds, in place of those of the calendar."""

    length_us: int

    def __str__(self) -> str:
        return "day UTC 1"

    def at(self, now_us: int) -> tuple[int, int]:
        begin_us = now_us // self.length_us * self.length_us
        return begin_us, begin_us + self.length_us


class BudgetDrawing(Drawing):
    """Draws a plan for a budget or two."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.names = ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        self.period_ms = self._one((300, 2_000, 10_000, 1_000_000_000))
        self.limit = self._one((3, 10, 30))
        self.scale = self._one((0.01, 0.3, 3.0))
        self.cancelling = self._one((0.0, 0.0, 0.3))
        self.lapsing = self._one((0.0, 0.0, 0.3, 0.8))
        self.setting_limits = self._one((0.0, 0.0, 0.1, 0.3))

    def plan(self) -> Plan:
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 2, 3, 4)))]
        kinds, rate = self._faults()
        places = [part + (f":{key}" if key else "") for part in ("account", "past", "ends") for key in ACCOUNTS]
        return Plan(
            *("budget", self.names, tuple(tag("budget", name) for name in self.names), clients),
            *(self._one((0.0002, 0.001, 0.005, 0.03)), kinds, rate, self._one((1, 2, 3, 5, 10))),
            *(self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=False,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=("tombstones", *places),
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        callers = [[self._order() for _ in range(self._one((1, 2, 4)))] for _ in range(self._one((1, 2, 3, 5)))]
        if chance() < 0.04:
            callers[0].append(Order("close", callers[0][0].target, self._seconds(2)))
        return ClientPlan(self._one((0.3, 1.0, 5.0)), 1e5 * chance(), self._one((0.0, 0.0, 0.1, 0.5)), callers)

    def _order(self) -> Order:
        chance = self._chance
        ttl_ms = 1 + int(self._seconds(5_000 * self.scale)) if chance() < self.lapsing else 0
        target = Target("budget", (self._one(self.names),), ttl_ms, False, "raise", self.limit)
        target = target._replace(accounts=self._one(TOGETHER), period_ms=self.period_ms)
        pause = self._seconds(self.scale)
        if chance() < 0.03:
            return Order("status", target, pause)
        if chance() < self.setting_limits:
            return Order(self._one(("limit", "spent")), target, pause, limit=int(chance() * 1.5 * self.limit))
        target = target._replace(weight=int(chance() * self.limit))
        settles = (self._one((0, 0, int(chance() * (target.weight + 1)), target.weight, target.weight + 2)),)
        return Order(
            "reserve",
            *(target, pause),
            hold=self._seconds(3 * self.scale),
            settles=settles if chance() < 0.7 else (),
            end="fail" if chance() < 0.2 else "release",
            cancel_after=self._seconds(self.scale) if chance() < self.cancelling else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
        )


class Reserving:
    """The execution of an order."""

    def __init__(self, world: World, watch: BudgetWatch, client: Client, order: Order) -> None:
        self._world, self._watch, self._client, self._order = world, watch, client, order
        self._attempt: BaseAttempt | None = None

    async def run(self) -> None:
        """Do it."""
        order, target = self._order, self._order.target
        ON_ATTEMPT.set(self._begin)
        if order.verb == "close":
            self._client.closed = True
            await self._client.api.close()
            return
        budget = self._client.api.budget(target.name, (target.limit, "day"))
        budget._request.terms.calendar = ShortPeriods(1000 * target.period_ms)  # type: ignore[assignment]  # noqa: SLF001 -- no period of the calendar is over in a plan
        keys = [(one,) if one else () for one in target.accounts]
        account = budget.keyed(*keys[0]) if keys[0] else budget
        if order.verb == "status":
            await account.status()
        elif order.verb == "limit":
            await account.set_limit(order.limit or None)
        elif order.verb == "spent":
            await account.at_least_spent(order.limit)
        else:
            await self._reserve(budget.all_of(*keys))

    async def _reserve(self, tree: Any) -> None:
        order, target, watch = self._order, self._order.target, self._watch
        paid: int | None = target.weight
        is_known = False
        try:
            async with tree.reserve(target.weight, ttl=target.ttl_ms / 1000 or None) as held:
                assert self._attempt is not None  # noqa: S101 -- the driver begins an attempt for each call
                watch.holds(self._attempt.token)
                await asyncio.sleep(order.hold)
                if order.settles:
                    (paid,) = order.settles
                    is_known = await held.settle(paid)
                if order.end == "fail":
                    raise _Failed
        except _Failed:
            pass
        except _ENDS:
            if self._attempt is not None and watch.fates[self._attempt.token] == "asking":
                watch.ended(self._client, self._attempt.token, certain=leaves_nothing(self._attempt))
            elif self._attempt is not None:
                watch.leaves(self._client, self._attempt.token)
            raise
        assert self._attempt is not None  # noqa: S101 -- as above
        if is_known:
            watch.paid(self._attempt.token, paid or 0)
        watch.leaves(self._client, self._attempt.token)

    def _begin(self, attempt: BaseAttempt) -> None:
        self._attempt = attempt
        self._watch.asks(attempt.token)
        self._client.tokens.append(attempt.token)


class _Failed(Exception):
    """The block ends with an error of its own."""


class Hold(NamedTuple):
    """What a token holds of an account."""

    begin_us: int
    amount: int
    ends_us: float


class Stored(NamedTuple):
    """The numbers of an account, as lua/lib/account.lua describes them."""

    begin_us: float = 0
    end_us: float = 0
    spent: float = 0
    held: float = 0
    limit: float = -1
    told: float = 0
    soonest_us: float = 0


class Ledger:
    """What was held and spent of an account, by the calls and the replies."""

    def __init__(self) -> None:
        self.holds: dict[bytes, Hold] = {}
        self.spent: dict[float, int] = {}
        """By the begin of the period."""
        self.begin_us: float = 0

    def held(self, begin_us: float, now_us: float) -> tuple[int, int]:
        """Return the held sum of a period, and the part of holds that have not lapsed."""
        holds = [one for one in self.holds.values() if one.begin_us == begin_us]
        return sum(one.amount for one in holds), sum(one.amount for one in holds if one.ends_us > now_us)

    def lapse(self, begin_us: float, now_us: float, stored: Container[bytes]) -> None:
        """Forget the holds of a period that have lapsed, and are not stored any more."""
        over = [token for token, one in self.holds.items() if one.begin_us == begin_us and one.ends_us <= now_us]
        gone = [token for token in over if token not in stored]
        for token in gone:
            del self.holds[token]

    def keep(self, *begins: float) -> None:
        """Forget all but these periods."""
        self.holds = {token: one for token, one in self.holds.items() if one.begin_us in begins}
        self.spent = {begin: amount for begin, amount in self.spent.items() if begin in begins}


class BudgetWatch(Watch):
    """Compares the stored budgets with ledgers."""

    def _begin(self, plan: Plan) -> Any:
        suffixes = [f":{key}" if key else "" for key in ACCOUNTS]
        self._ledgers = {f"{one}:account{behind}".encode(): Ledger() for one in plan.tags for behind in suffixes}
        self._over_at: dict[bytes, int] = {}
        """By token that must not hold again, when it was settled."""
        self._charged_at: dict[bytes, float] = {}
        self._counted: dict[bytes, list[int]] = {}
        """By token, the amounts with which accounts were settled: one for each."""
        return {b"after": None, b"belief": None, b"present": self._present, b"finish": lambda *_: None}

    def _present(self, _now_us: int) -> list[bytes]:
        return [key + b" " + token for key in self._ledgers for token in self._holds_of(key)]

    # --- stored hashes

    def _peek(self, key: bytes) -> Any:
        return self._network.server.model[b"peek"](key, self._network.now_us())

    def _state(self, key: bytes) -> Stored:
        found = self._peek(key)
        text = None if found is None else found.fields[b"s"]
        return Stored() if text is None else Stored(*unpack("<7d", text))

    def _holds_of(self, key: bytes) -> dict[bytes, Hold]:
        found, beside = self._peek(key), _beside(key, b"ends")
        ends = None if beside == key else self._peek(beside)  # no hold of the past lapses
        holds = {}
        for field, value in [] if found is None else found.fields.items():
            if field.startswith(b"t:") and len(value) == 16:
                begin_us, amount = unpack("<dd", value)
                lapses = None if ends is None else ends.scores[field[2:]]
                holds[field[2:]] = Hold(int(begin_us), int(amount), inf if lapses is None else lapses)
        return holds

    def _read(self, key: bytes) -> None:
        """Begin the ledger of an account anew, from the stored hashes."""
        ledger = self._ledgers[key] = Ledger()
        for one in (_beside(key, b"past"), key):
            state = self._state(one)
            ledger.spent[state.begin_us] = int(state.spent)
            holds = self._holds_of(one)
            ledger.holds |= {
                token: hold for token, hold in holds.items() if one == key or hold.begin_us == state.begin_us
            }
            ledger.begin_us = state.begin_us

    # --- scripts

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script after the server has run it, before the reply."""
        name = command.name.decode()
        keys = [key for key in command.words[: command.key_count] if key in self._ledgers]
        if isinstance(frame, ErrorReply):
            if is_torn(frame):
                for key in keys:
                    self._read(key)
                self._older.add(command.token)
            elif frame.startswith("ERR"):
                self.find(f"script: {name}: {frame}")
            elif frame.startswith("OOM") and command.name not in _REFUSABLE:
                self.find(f"invariant 11: {name} is refused at maxmemory")
            return
        answer, *numbers = read_reply(frame)
        args = command.words[command.key_count :]
        if command.name == b"budget_reserve" and answer == b"exceeded":
            self._refused(command.token, keys[numbers[0] - 1], unpack("<5d", args[1]), now_us)
        elif command.name == b"budget_reserve" and answer == b"reserved":
            self._reserved(command.token, keys, unpack("<5d", args[1]), now_us)
        elif command.name == b"budget_settle" and answer == b"settled":
            self._settled(command.token, keys, unpack("<7d", args[1]), now_us)
        elif command.name == b"budget_set" and answer == b"set":
            state, ledger = self._state(keys[0]), self._ledgers[keys[0]]
            ledger.spent[state.begin_us] = max(ledger.spent.get(state.begin_us, 0), int(unpack("<5d", args[0])[1]))
        for key in keys:
            if self.damage.stepped_back:  # periods come a second time, and their sums are added up
                self._read(key)
            else:
                self._compare(key, now_us)

    def _refused(self, token: bytes, key: bytes, terms: Sequence[float], now_us: int) -> None:
        amount, *_, own_limit = terms
        state, ledger = self._state(key), self._ledgers[key]
        begin_us = state.begin_us if state.begin_us <= now_us < state.end_us else -1
        used, most = ledger.spent.get(begin_us, 0) + ledger.held(begin_us, now_us)[1], self._most(key, own_limit)
        if used + amount <= most and not self.damage.stepped_back:
            self.find(f"budget: {token.decode()} is refused, and {amount:.0f} fit: {used} of {most:.0f} are used")

    def _reserved(self, token: bytes, keys: list[bytes], terms: Sequence[float], now_us: int) -> None:
        amount, ttl_ms, *_, own_limit = terms
        if self._over_at.get(token, -inf) > now_us - REMEMBERED_US and token not in self._older:
            self.find(f"invariant 55: {token.decode()} holds again after its settlement")
        for key in keys:
            state, ledger = self._state(key), self._ledgers[key]
            was_there, is_current = token in ledger.holds, state.begin_us <= now_us < state.end_us
            is_copy = was_there and not (is_current and ledger.holds[token].begin_us == state.begin_us)
            ledger.lapse(state.begin_us, now_us, self._holds_of(key) if is_copy else ())
            if is_copy or token in ledger.holds:
                continue
            if not is_current:
                self.find(f"invariant 56: {token.decode()} holds in a period that does not have this moment")
            if state.begin_us < ledger.begin_us:
                self._read(key)  # the clock was ahead: its sums count now
                continue
            ledger.holds[token] = Hold(int(state.begin_us), int(amount), now_us + 1000 * ttl_ms if ttl_ms else inf)
            most = self._most(key, own_limit)
            used = ledger.spent.get(state.begin_us, 0) + ledger.held(state.begin_us, now_us)[0]
            if used > most and not self.damage.stepped_back:
                self.find(f"invariant 54: {token.decode()} holds {amount:.0f}, and {used} of {most:.0f} are used")

    def _most(self, key: bytes, own_limit: float) -> float:
        """Return the limit that counts. Behind its rename a script that was cut off has left it in the past."""
        state = self._state(key)
        state = state if state.end_us else self._state(_beside(key, b"past"))
        return state.limit if state.end_us and state.limit >= 0 else own_limit

    def _settled(self, token: bytes, keys: list[bytes], terms: Sequence[float], now_us: int) -> None:
        amount, copies, charge, _, _, _, reserved_us = terms
        charged_at = self._charged_at.get(token, -inf)
        if charge and -inf < charged_at <= now_us - REMEMBERED_US:
            for key in keys:  # the server may know it still
                self._read(key)
            return
        charges = int(charge) if charged_at == -inf else 0
        for number, key in enumerate(keys):
            ledger, hold = self._ledgers[key], self._ledgers[key].holds.pop(token, None)
            begin_us: float | None = None if hold is None else hold.begin_us
            if hold is None and charges >> number & 1 and amount:
                states = self._state(key), self._state(_beside(key, b"past"))
                begin_us = next((one.begin_us for one in states if one.end_us and reserved_us >= one.begin_us), None)
            if hold is not None and begin_us not in self._begins(key):
                begin_us = self._settled_ahead(key, hold)
            if begin_us is not None:
                ledger.spent[begin_us] = ledger.spent.get(begin_us, 0) + int(amount)
                self._counted.setdefault(token, []).append(int(amount))
        if charge:
            self._charged_at[token] = now_us
        if copies:
            self._over_at[token] = now_us
        if self.fates[token] not in ("asking", "over") and (copies or not self._is_present(token)):
            self.fates[token] = "over"

    def _begins(self, key: bytes) -> tuple[float, float]:
        """Return the begins of the periods that are stored."""
        return self._state(key).begin_us, self._state(_beside(key, b"past")).begin_us

    def _settled_ahead(self, key: bytes, hold: Hold) -> float:
        """Take back a hold that counts as spent, since the clock was ahead. Return the period in which it counts."""
        begin_us, ledger = self._state(key).begin_us, self._ledgers[key]
        ledger.spent[begin_us] = max(0, ledger.spent.get(begin_us, 0) - hold.amount)
        return begin_us

    def _is_present(self, token: bytes) -> bool:
        return any(token in ledger.holds for ledger in self._ledgers.values())

    def _compare(self, key: bytes, now_us: int) -> None:
        state, past, ledger = self._state(key), self._state(_beside(key, b"past")), self._ledgers[key]
        if state.begin_us < ledger.begin_us or (state.end_us and now_us < state.begin_us):
            self._read(key)
            return
        ledger.begin_us = state.begin_us
        ledger.keep(state.begin_us, past.begin_us)
        for one in (state, past):
            if not one.end_us:
                continue
            if one is state:
                ledger.lapse(one.begin_us, now_us, self._holds_of(key))
            spent, (held, _) = ledger.spent.get(one.begin_us, 0), ledger.held(one.begin_us, now_us)
            if one.held != held:
                self.find(f"invariant 55: {key.decode()} has {one.held:.0f} held, and the holds are {held}")
            if one.spent != spent:
                self.find(f"invariant 56: {key.decode()} has {one.spent:.0f} spent, and {spent} were spent")

    # --- callers

    def paid(self, token: bytes, amount: int) -> None:
        """Check that a call counts once in each account, with the sum that its caller was told."""
        counted = self._counted.get(token, [])
        if token in self._older or self.damage.lost_data:
            return
        if any(one != amount * MILLIONTHS for one in counted):
            self.find(f"invariant 55: {token.decode()} was settled with {amount}, and counts for {counted}")

    def leaves(self, client: Client, token: bytes) -> None:
        """Record that the block of a token has ended: it is settled by then, or in the background."""
        if client.closed and self.fates[token] != "over":
            self.fates[token] = "dropped"
        elif self.fates[token] != "over":
            self.ended(client, token, certain=False)

    # --- losses, and the end

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """Record a loss of data, of a name or of all."""
        for key in self._ledgers:
            if tag is None or key.startswith(tag.encode()):
                self._read(key)
                found = self._peek(key.partition(b":account")[0] + b":tombstones")
                known = {} if found is None else dict(found.scores.items())
                self._charged_at |= dict.fromkeys(self._charged_at, -inf)
                self._charged_at |= {one[1:]: at - REMEMBERED_US for one, at in known.items() if one.startswith(b"+")}
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """Do nothing: a budget has no fence."""

    def forget_finished(self) -> None:
        """Record a jump of the server's clock: holds and tombstones may have lapsed."""
        self._older.update(self.fates)

    def check_acknowledged(self) -> None:
        """Do nothing: no call waits for replicas."""

    def check_all_expired(self) -> None:
        """Check that all keys left have a TTL."""
        for account in self._ledgers:
            for key in (account, _beside(account, b"past"), _beside(account, b"ends")):
                found = self._peek(key)
                if found is not None and not found.expires and not self.damage.counts.get("cut off"):
                    self.find(f"invariant 5: {key.decode()} has no TTL")

    def idle(self) -> list[tuple[str, bytes]]:
        """Return nothing: no call waits."""
        return []


def _beside(key: bytes, part: bytes) -> bytes:
    """Return another key of an account."""
    return key.replace(b":account", b":" + part, 1)
