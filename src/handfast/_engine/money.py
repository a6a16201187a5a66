"""Amounts of a budget: exact numbers with six decimals, which scripts have as whole millionths.

A float has no exact decimals, so none is taken: ``0.1 + 0.2`` is not ``0.3``.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TypeAlias

__all__ = ["MAX_MILLIONTHS", "Amount", "as_decimal", "millionths"]

Amount: TypeAlias = "Decimal | int | str"

DECIMALS = 6

EXACTLY = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""In place of the caller's context, which may round to a few digits: with this one no digit is lost."""

MAX_MILLIONTHS = 2**52
"""Upper bound of an amount and of a limit: the sum of two is exact in a double."""


def millionths(amount: Amount, what: str, *, rounds_up: bool = False) -> int:
    """Return an amount in millionths.

    Raises TypeError where the amount is no exact number; ValueError where it is out of range or, unless it is to be rounded up, with more
    than six decimals.
    """
    # A bool is an int, and a float has lost the decimals before it comes here.
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        why = ": a float is not exact" if isinstance(amount, float) else ""
        raise TypeError(f"{what} must be a Decimal, a text such as '0.42' or an int, not {amount!r}{why}")
    # `Decimal` also takes underscores and the digits of other scripts, which is too lenient for money.
    if isinstance(amount, str) and not (amount.isascii() and "_" not in amount):
        raise ValueError(f"{what} must be a number such as '0.42', not {amount!r}")
    try:
        exact = Decimal(amount)
    except InvalidOperation:
        raise ValueError(f"{what} must be a number such as '0.42', not {amount!r}") from None
    # Finiteness first: a comparison with NaN raises an error of the `decimal` module.
    if not exact.is_finite() or not 0 <= exact <= as_decimal(MAX_MILLIONTHS):
        raise ValueError(f"{what} must be from 0 to {as_decimal(MAX_MILLIONTHS)}, not {amount!r}")
    # Not in the caller's context, which may round to fewer digits and hide the rest.
    scaled = EXACTLY.scaleb(exact, DECIMALS)
    whole = int(scaled)
    rest = scaled != whole
    if rest and not rounds_up:
        raise ValueError(f"{what} has at most {DECIMALS} decimals, and {amount!r} has more")
    return whole + rest


def as_decimal(number: int) -> Decimal:
    """Return millionths as a decimal without trailing zeros."""
    whole, part = divmod(abs(number), 10**DECIMALS)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return Decimal(f"-{text}" if number < 0 else text)
