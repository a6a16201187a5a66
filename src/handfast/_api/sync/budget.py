# Generated from _api/aio/budget.py by tools/unasync.py: edit that file and run the tool.
"""Budgets: an amount is held before a call, and settled when the cost is known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from handfast._api import foreign
from handfast._api.sync.object import Object, undoing
from handfast._drivers import log
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.budgets import KEEP, MAX_ACCOUNTS, UNSET, AccountRequest, BudgetRequest
from handfast._engine.money import Amount, as_decimal, millionths
from handfast._engine.validate import check_int, check_reason, key_parts, milliseconds, reply_seconds
from handfast._naming import name_publicly
from handfast._objects import BlockOnly, Named
from handfast._protocol import budgeting
from handfast.arguments import Duration, KeyPart
from handfast.errors import ClientClosed

if TYPE_CHECKING:
    from handfast.records import BudgetStatus

__all__ = ["Budget", "BudgetOfAll", "Reservation"]


class Reservation(Named):
    """An amount of a budget, held for a single call.

    It is settled once: by `settle`, by `give_back`, or at the end of the block, where the held amount counts.
    """

    _request: BudgetRequest

    def __init__(self, driver: SyncDriver, attempt: budgeting.ReserveAttempt, left: Decimal) -> None:
        self._driver = driver
        self._request = attempt.request
        self._left = left
        self._settlement = budgeting.Settlement(attempt, self._given_up)
        self._settled: Decimal | None = None
        self._is_sent = False

    def __repr__(self) -> str:
        how = f"{self.amount} held" if self._settled is None else f"settled with {self._settled}"
        return f"<{type(self).__name__} of {self.name!r}: {how}>"

    @property
    def amount(self) -> Decimal:
        """The reserved amount."""
        return as_decimal(self._request.amount)

    @property
    def left(self) -> Decimal:
        """The rest of the budget right after; of several accounts the least."""
        return self._left

    @property
    def settled(self) -> Decimal | None:
        """The cost of the call; None until it is settled, 0 if it was given back."""
        return self._settled

    def settle(self, amount: Amount) -> bool:
        """Settle the reserved amount with the cost of the call, once.

        An outage raises nothing: the paid answer is worth more. The client logs a WARNING and goes on for 20 seconds in
        the background; if that fails, it logs an ERROR with the amount. Then the held amount counts until the period
        ends, or with a ``ttl`` nothing does.

        A hold which is gone, since the ``ttl`` is over or the server has lost it, is charged all the same. An amount
        above the reserved amount may exceed the limit: then nothing fits until the next period.

        Args:
            amount: A Decimal, a text such as "0.42" or an int, from 0 to 4,503,599,627.370496; rounded up to six decimals.

        Returns:
            True if the server has it; False if the client goes on in the background.

        Raises:
            RuntimeError: It was settled before.
            TypeError: ``amount`` is a float, or of another type.
            ValueError: ``amount`` is out of range.
        """
        number = millionths(amount, "amount", rounds_up=True)
        if self._settled is not None:
            raise RuntimeError(f"{self!r} counts once; reserve another amount for another call")
        self._settlement.amount, self._settled = number, as_decimal(number)
        return self._send()

    def give_back(self) -> bool:
        """Give the amount back: the call was not made, or was free. As `settle` with 0.

        Returns:
            True if the server has it; False if the client goes on in the background.

        Raises:
            RuntimeError: It was settled before.
        """
        return self.settle(0)

    def _end(self, error: BaseException | None) -> None:
        """Let the held amount count, unless the block has settled. It may be called again."""
        if not self._is_sent:
            self._settled = as_decimal(self._settlement.amount)
            self._send(error)

    def _send(self, error: BaseException | None = None) -> bool:
        trouble: Exception | None = None
        try:
            self._driver.finish(self._settlement.begin, self.name, error)
        except OWN_ERRORS as refusal:  # any other exception is an interrupt: the end of the block sends it again
            trouble = refusal
        self._is_sent = True
        if isinstance(trouble, ClientClosed):
            self._given_up()
        elif trouble is not None:
            log.settles_later(self.name, str(self._settled), trouble)
        return trouble is None

    def _given_up(self) -> None:
        log.unsettled(self.name, str(self._settled))


class Reserving(BlockOnly, Named):
    """A block for which an amount is held, for one caller and once. Made by ``reserve()``."""

    _attempts = budgeting.ReserveAttempt
    _instead = "reserve the amount there"
    _request: BudgetRequest

    def __init__(self, driver: SyncDriver, request: BudgetRequest) -> None:
        self._driver, self._request = driver, request
        self._entries = iter((True,))
        self._reservation: Reservation | None = None

    @undoing
    def __enter__(self, attempt: budgeting.ReserveAttempt, /) -> Reservation:
        if not next(self._entries, False):  # atomic, whichever caller comes first
            raise RuntimeError(f"the block of {self!r} was entered before; reserve() makes another one")
        left = self._driver.run(budgeting.reserve(attempt), self._request.name, attempt)
        self._reservation = Reservation(self._driver, attempt, left)
        return self._reservation

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._leave(error)
        except BaseException as interrupt:
            self._leave(interrupt)
            raise

    def _leave(self, error: BaseException | None) -> None:
        if self._reservation is not None:
            self._reservation._end(error)  # noqa: SLF001 -- its own class


class BudgetOfAll(Named):
    """Several accounts of a budget, of which an amount is held in all or in none. Made by `Budget.all_of`."""

    _elsewhere = foreign.BUDGETS
    _instead = "make it there with all_of()"
    _request: BudgetRequest

    def __init__(self, driver: SyncDriver, request: BudgetRequest, by: tuple[str, ...] = ()) -> None:
        self._driver = driver
        self._request = request
        self._by = by

    def reserve(self, amount: Amount, *, ttl: Duration | None = None) -> AbstractContextManager[Reservation]:
        """Return a block for which an amount is held: it begins if the amount fits, and never waits. No I/O.

        Left without a settlement, also by an exception, the amount counts as spent: the call may have been paid. If the
        process dies, it counts until the period ends, or until the ``ttl`` is over.

        Example:
            with budget.reserve("0.42") as held:
                answer = ask(question)
                held.settle(price_of(answer))

        Args:
            amount: The most that the call may cost: a Decimal, a text such as "0.42" or an int, from 0 to
                4,503,599,627.370496; rounded up to six decimals.
            ttl: Seconds (a number or a timedelta), from 0.001 s to 366 days, after which the amount is given back
                unless it is settled. Choose it longer than the call takes: a later settlement is charged all the same,
                and may exceed the limit then. None holds it until the period ends.

        Returns:
            A context manager for one ``with``; the value is the `Reservation`. Beginning the block raises BudgetExceeded if the
            amount does not fit, BudgetMismatch if another client has made the budget with another period, and as
            every call ServerRefused and redis-py's connection errors. Then nothing is held.

        Raises:
            TypeError: ``amount`` is a float or of another type, or ``ttl`` neither a number nor a timedelta.
            ValueError: ``amount`` or ``ttl`` is out of range.
        """
        ttl_ms = 0 if ttl is None else milliseconds(ttl, "ttl")
        return Reserving(self._driver, self._request.of(millionths(amount, "amount", rounds_up=True), ttl_ms))


class Budget(BudgetOfAll, Object):
    """A budget: an amount that may be spent in a period of the calendar. Made by the client's ``budget()``.

    The spent and the held sum together never exceed the limit, in however many processes, but for settlements above the
    reserved amount, and late ones. The clock of the server says which period it is. An amount belongs to the period
    in which it was held, also if it is settled in the next one.

    The budget is a brake, not a ledger: a server that loses its data, or the last moments of them in a failover, has
    less on record than was spent. `at_least_spent` sets that right.

    Where clients bring different limits, each amount is held under the limit of the calling client. After `set_limit`,
    the new limit counts for all. Threads or tasks may share the object. Every method may raise ServerRefused and
    redis-py's connection errors.

    Example:
        budget = hf.budget("llm", "100.00/month", zone="Europe/Berlin")

        with budget.keyed("acme").reserve("0.42") as held:
            answer = ask(question)
            held.settle(price_of(answer))
    """

    _request: BudgetRequest

    def all_of(self, *keys: KeyPart | Iterable[KeyPart]) -> BudgetOfAll:
        """Return several accounts of the budget: an amount is held in all of them, or in none. No I/O.

        Each has the limit of this object, or the limit set for it by `set_limit`.

        Example:
            budget.all_of("acme", ("acme", "team-7"), ("acme", "team-7", "ann")).reserve("0.42")

        Args:
            keys: 1 to 16 accounts: for each the parts as for `keyed`, in a tuple, or a single part; an empty tuple is this
                object itself.

        Returns:
            The accounts.

        Raises:
            TypeError: A part is of another type.
            ValueError: A part is out of range, an account stands twice, or there are none or too many.
        """
        own = self._request.accounts[0]
        accounts = []
        for key in keys:
            parts: tuple[Any, ...] = (key,)
            if isinstance(key, Iterable) and not isinstance(key, str | bytes):
                parts = tuple(key)
            accounts.append(own.keyed(key_parts(parts)) if parts else own)
        check_int(len(accounts), "the number of accounts", MAX_ACCOUNTS)
        names = [account.name for account in accounts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the account {twice!r} stands twice, and an amount is held once in each")
        return BudgetOfAll(self._driver, BudgetRequest(accounts, self._request.terms))

    def status(self, *, timeout: Duration | None = None) -> BudgetStatus:
        """Return the spent and the held sum, the limit, and when the next period begins. Takes a round trip.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for. None
                takes the ``socket_timeout`` of the client's settings.
        """
        return self._driver.look(budgeting.status(self._account()), self.name, reply_seconds(timeout))

    def set_limit(self, limit: Amount | None, *, reason: str | None = None) -> None:
        """Set the limit for all clients, whatever limits they bring, from now on and in later periods.

        The limit may be below the spent and the held sum: then nothing fits. Each key of `keyed` has a separate limit.
        The server forgets it 32 days after the last period in which something was held, and where it loses its data.

        Args:
            limit: As ``amount`` of `reserve`, with at most six decimals. None lets the limits of the clients count
                again.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8, or None.

        Raises:
            BudgetMismatch: The budget was made with another period, zone or begin.
            TypeError: ``limit`` is a float or of another type, or ``reason`` no str.
            ValueError: ``limit`` or ``reason`` is out of range.
        """
        number = UNSET if limit is None else millionths(limit, "limit")
        text = "of each client" if limit is None else str(as_decimal(number))
        self._set("resize", number, 0, text, reason)

    def at_least_spent(self, amount: Amount, *, reason: str | None = None) -> None:
        """Raise the spent sum of this period to an amount, such as the provider's bill. The sum is never lowered.

        Args:
            amount: As for `reserve`, with at most six decimals.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8, or None.

        Raises:
            BudgetMismatch: The budget was made with another period, zone or begin.
            TypeError: ``amount`` is a float or of another type, or ``reason`` no str.
            ValueError: ``amount`` or ``reason`` is out of range.
        """
        number = millionths(amount, "amount")
        self._set("raise", KEEP, number, f"{as_decimal(number)} spent", reason)

    def forget(self) -> bool:
        """Delete the account: the sum, the limit that was set, the holds and the definition.

        A hold that is settled later is charged to a new account.

        Returns:
            True if there was an account.
        """
        return self._driver.run(budgeting.forget(self._account()), self.name)

    def _account(self) -> AccountRequest:
        return AccountRequest(self._request.accounts[0], self._request.terms)

    def _set(self, what: str, limit: int, least_spent: int, text: str, reason: str | None) -> None:
        why = text if reason is None else f"{text}: {check_reason(reason)}"
        steps = budgeting.set_account(self._account(), limit, least_spent, what, self._driver.label, why)
        self._driver.run(steps, self.name)


name_publicly(globals(), "handfast")
