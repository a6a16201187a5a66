"""Amounts of a budget: exact numbers with six decimals, which scripts have as whole millionths.

A float has no exact decimals, so none is taken: ``0.1 + 0.2`` is not ``0.3``.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TypeAlias

__all__ = ["MAX_MILLIONTHS", "Amount", "as_decimal", "millionths"]

Amount: TypeAlias = "Decimal | int | str"

DECIMALS = 6

MAX_MILLIONTHS = 2**52
"""Upper bound of an amount and of a limit: the sum of two is exact in a double."""


def millionths(amount: Amount, what: str, *, least: int = 0) -> int:
    """Return an amount in millionths.

    Raises TypeError for what is no exact number; ValueError for one out of range or with more than six decimals.
    """
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        why = ": a float is not exact" if isinstance(amount, float) else ""
        raise TypeError(f"{what} must be a Decimal, a text such as '0.42' or an int, not {amount!r}{why}")
    if isinstance(amount, str) and not (amount.isascii() and "_" not in amount):
        raise ValueError(f"{what} must be a number such as '0.42', not {amount!r}")
    try:
        exact = Decimal(amount)
    except InvalidOperation:
        raise ValueError(f"{what} must be a number such as '0.42', not {amount!r}") from None
    if not exact.is_finite() or not Decimal(least) <= exact * 10**DECIMALS <= MAX_MILLIONTHS:
        lowest = as_decimal(least)
        raise ValueError(f"{what} must be from {lowest} to {as_decimal(MAX_MILLIONTHS)}, not {amount!r}")
    if (scaled := exact.scaleb(DECIMALS)) != int(scaled):
        raise ValueError(f"{what} has at most {DECIMALS} decimals, and {amount!r} has more")
    return int(scaled)


def as_decimal(number: int) -> Decimal:
    """Return millionths as a decimal without zeros at its end."""
    whole, part = divmod(abs(number), 10**DECIMALS)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return Decimal(f"-{text}" if number < 0 else text)
