"""The calls of a budget: a name, and the accounts under the keys of the name, of which an amount is held."""

from __future__ import annotations

from collections.abc import Sequence

from handfast._engine.calendar import Calendar
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._engine.records import encode_label

__all__ = ["KEEP", "MAX_ACCOUNTS", "UNSET", "AccountRequest", "BudgetRequest", "Terms"]

MAX_ACCOUNTS = 16
"""Upper bound of the accounts that one amount is held in: a script goes through all of them in one step of the server."""

PARTS = ("account", "past", "ends")
"""The keys of an account."""

KEEP, UNSET = -2, -1
"""What stands for a limit that stays, and for one that each client brings."""


class Terms:
    """A client's view of a budget: the limit in millionths, and the present period of the server's clock.

    All objects of a budget share it. The period begins as none: the server sends the time when it needs a period.
    """

    __slots__ = ("calendar", "limit", "period")

    def __init__(self, limit: int, calendar: Calendar) -> None:
        self.limit: int = limit
        self.calendar: Calendar = calendar
        self.period: tuple[int, int] = (0, 0)
        """Begin and end in microseconds."""

    def turn_to(self, now_us: int) -> None:
        """Take the period of a time of the server."""
        self.period = self.calendar.at(now_us)


class BudgetRequest(ObjectRequest):
    """A request to a budget: to hold an amount in each of these accounts, or in none."""

    __slots__ = ("accounts", "amount", "terms", "ttl_ms")

    def __init__(self, accounts: Sequence[KeySet], terms: Terms, amount: int = 0, ttl_ms: int = 0) -> None:
        root = accounts[0].whole
        places = [account.key(part).removeprefix(f"{root.tag}:") for account in accounts for part in PARTS]
        super().__init__(root, accounts=places, definition=str(terms.calendar), limit=terms.limit, ttl_ms=ttl_ms)
        self.accounts: Sequence[KeySet] = accounts
        self.terms: Terms = terms
        self.amount: int = amount
        """In millionths, as all amounts here."""
        self.ttl_ms: int = ttl_ms
        self.name: str = ", ".join(self.names)

    @property
    def names(self) -> list[str]:
        """The names of the accounts."""
        return [account.name for account in self.accounts]

    def keyed(self, parts: tuple[str, ...]) -> BudgetRequest:
        """Return the same request for a name with these parts behind it."""
        return BudgetRequest([account.keyed(parts) for account in self.accounts], self.terms)

    def of(self, amount: int, ttl_ms: int) -> BudgetRequest:
        """Return the request for an amount, which is given back after so long; 0 for the end of the period."""
        return BudgetRequest(self.accounts, self.terms, amount, ttl_ms)

    def reserve(self, token: bytes) -> Call:
        """Hold the amount."""
        begin_us, end_us = self.terms.period
        return self.call("reserve", token, amount=self.amount, begin_us=begin_us, end_us=end_us)

    def settle(self, token: bytes, amount: int, *, copies: bool, charge: int, reserved_us: int) -> Call:
        """Let a hold made at ``reserved_us`` count for ``amount``; 0 gives it back.

        ``copies``: whether a copy of the reserve may still be on the way. ``charge``: the accounts to charge though
        they have no hold, as an earlier reply has them.
        """
        begin_us, end_us = self.terms.period
        return self.call(
            "settle",
            token,
            amount=amount,
            copies=copies,
            charge=charge,
            begin_us=begin_us,
            end_us=end_us,
            reserved_us=reserved_us,
        )

    def cancel(self, token: bytes) -> Call:
        """Undo a reserve, whatever it has reached."""
        return self.settle(token, 0, copies=True, charge=0, reserved_us=0)


class AccountRequest(ObjectRequest):
    """A request to a single account."""

    __slots__ = ("terms",)

    def __init__(self, account: KeySet, terms: Terms) -> None:
        super().__init__(account, definition=str(terms.calendar), own_limit=terms.limit)
        self.terms: Terms = terms

    def inspect(self) -> Call:
        """Read the account."""
        return self.call("inspect")

    def set(self, limit: int, least_spent: int, what: str, by: str, why: str) -> Call:
        """Set the limit for all, and raise the spent sum; `KEEP` leaves the limit, and 0 the sum."""
        begin_us, end_us = self.terms.period
        return self.call(
            "set",
            limit=limit,
            least_spent=least_spent,
            begin_us=begin_us,
            end_us=end_us,
            what=what,
            by=encode_label(by),
            why=why,
        )

    def forget(self) -> Call:
        """Delete the account."""
        keys = [self.place.key(part) for part in PARTS[1:]]
        return self.command("DEL", PARTS[0], *keys)
