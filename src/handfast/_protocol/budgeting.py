"""Hold an amount of a budget, and settle it.

A server decides which period a moment is in. A script that needs a period replies with the server's time where the
caller's period does not have this time, and the caller asks again with the right period. So no clock of a client
matters.

A hold may be gone when it is settled: the TTL is over, or the server has lost it. Then it is charged by a second call.
Where a copy of the first call may have had the hold, nothing is charged twice: the second call is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from handfast._engine.budgets import AccountRequest, BudgetRequest, Terms
from handfast._engine.calendar import END_US, Calendar
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.moments import moment
from handfast._engine.money import as_decimal
from handfast._protocol.admin import last_action
from handfast._protocol.asking import ObjectAttempt
from handfast.errors import BudgetExceeded, BudgetMismatch, HandfastError, ServerRefused

if TYPE_CHECKING:
    from handfast.records import BudgetStatus

__all__ = ["ReserveAttempt", "Settlement", "forget", "found", "reserve", "set_account", "status"]


class ReserveAttempt(ObjectAttempt):
    """An attempt to hold an amount, and then the hold."""

    __slots__ = ("reserved_us",)

    request: BudgetRequest
    reserved_us: int
    """When the amount was held, by the server's clock, in microseconds."""


def reserve(attempt: ReserveAttempt) -> Steps[Decimal]:
    """Hold the amount of a request. Return the least that is left. Raises BudgetExceeded and BudgetMismatch."""
    attempt.may_be_there = True
    request = attempt.request
    answer = yield from _ask(attempt, lambda: request.reserve(attempt.token))
    tag, *values = answer.fields
    if tag == b"reserved":
        left, attempt.reserved_us = values
        return as_decimal(left)
    attempt.rejected()
    if tag == b"exceeded":
        number, spent, held, limit, end_us = values
        raise BudgetExceeded(
            request.accounts[number - 1].name,
            amount=as_decimal(request.amount),
            limit=as_decimal(limit),
            spent=as_decimal(spent),
            held=as_decimal(held),
            resets_at=moment(end_us) if end_us < END_US else None,
        )
    if tag == b"differs":
        raise BudgetMismatch(request.accounts[values[0] - 1].name, str(request.terms.calendar), values[1].decode())
    raise HandfastError(f"the reservation of {request.name!r} was given back while it was made", name=request.name)


def _ask(attempt: ReserveAttempt, make_call: Callable[[], Call]) -> Steps[Answer]:
    """Make a call until the reply is a decision."""
    while True:
        try:
            answer: Answer = yield make_call()
        except ServerRefused as error:
            if error.changed_nothing:
                attempt.refused()
            raise
        attempt.copies = attempt.copies or answer.again
        tag, *values = answer.fields
        if tag == b"period":
            attempt.request.terms.turn_to(values[0])
        elif tag != b"more":
            return answer


class Settlement:
    """The settlement of a hold. It may begin again: an earlier copy may have settled it then.

    ``given_up`` is called if the settlement is given up in the background.
    """

    __slots__ = ("_attempt", "_begun", "_given_up", "amount")

    def __init__(self, attempt: ReserveAttempt, given_up: Callable[[], object]) -> None:
        self._attempt = attempt
        self._begun = 0
        self._given_up = given_up
        self.amount: int = attempt.request.amount
        """The cost of the call: the reserved amount until `settle` says another."""

    def begin(self) -> Steps[None]:
        """Settle the hold."""
        self._begun += 1
        return self._settle(is_first=self._begun == 1)

    def _settle(self, *, is_first: bool) -> Steps[None]:
        attempt, charge, again = self._attempt, 0, not is_first
        request = attempt.request
        try:
            while True:
                answer: Answer = yield request.settle(
                    attempt.token, self.amount, copies=attempt.copies, charge=charge, reserved_us=attempt.reserved_us
                )
                tag, number = answer.fields
                again = again or answer.again
                if tag == b"period":
                    request.terms.turn_to(number)
                elif not number or charge or again:
                    return
                else:
                    charge = number
        except GeneratorExit:  # the cleanup was dropped
            if not is_first:
                self._given_up()
            raise


def status(request: AccountRequest) -> Steps[BudgetStatus]:
    """Read an account."""
    answer: Answer = yield request.inspect()
    return read_status(answer.fields, request.terms)


def set_account(request: AccountRequest, limit: int, least_spent: int, *note: str) -> Steps[None]:
    """Set the limit of an account, and raise the spent sum. ``note``: action, label, reason. Raises BudgetMismatch."""
    while True:
        answer: Answer = yield request.set(limit, least_spent, *note)
        tag, *values = answer.fields
        if tag == b"differs":
            raise BudgetMismatch(request.name, str(request.terms.calendar), values[1].decode())
        if tag != b"period":
            return
        request.terms.turn_to(values[0])


def forget(request: AccountRequest) -> Steps[bool]:
    """Delete an account. Return whether there was an account."""
    answer: Answer = yield request.forget()
    return bool(answer.reply) or answer.again


def read_status(fields: list[Any], terms: Terms | None = None) -> BudgetStatus:
    """Make the status of a reply of ``budget_inspect``; with the terms of a client, if there are any."""
    from handfast.records import BudgetStatus

    _, now_us, begin_us, end_us, spent, held, limit, told, defined, noted, was, was_end_us = fields
    definition = defined.decode()
    calendar = terms.calendar if terms is not None else _calendar(definition)
    if now_us >= end_us or now_us < begin_us:  # no one has reserved in this period
        if end_us <= now_us:
            was, was_end_us, spent, held = spent + held, end_us, 0, 0
        else:  # the clock was ahead: what counts now is what `enter_period` of lib/account.lua would count
            spent, held = spent + held + (was if was_end_us > now_us else 0), 0
        begin_us, end_us = (0, 0) if calendar is None else calendar.at(now_us)
    # The limit of this client is what its next reserve brings
    # along, so it goes before that of the latest reserve.
    if terms is not None:
        told = terms.limit
    most = told if limit < 0 else limit
    ends = 0 < end_us < END_US
    period, zone, begins = (definition or str(calendar)).split(" ")
    return BudgetStatus(
        spent=as_decimal(spent),
        held=as_decimal(held),
        limit=as_decimal(most),
        resets_at=moment(end_us) if ends else None,
        resets_in=(end_us - now_us) / 1e6 if ends else None,
        was=as_decimal(was if now_us >= was_end_us >= begin_us > 0 else 0),
        period=period,
        zone=zone,
        begins=int(begins),
        is_set=limit >= 0,
        last=last_action(noted),
    )


def found(fields: list[Any], *_: object) -> BudgetStatus | None:
    """Return the status of an account found by a search; None if the server does not know it."""
    return read_status(fields) if fields[8] else None


def _calendar(definition: str) -> Calendar | None:
    """Read a definition; None if the time zone is unknown to this machine."""
    try:
        return Calendar.read(definition)
    except ValueError:
        return None
