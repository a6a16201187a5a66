"""Amounts of a budget as people read them. Knows no other module."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = ["amount_text"]


def amount_text(amount: Decimal) -> str:
    """Write an amount: ``1,250``, ``37.50``, ``0.000125``. An amount with decimals has two at least."""
    whole, _, part = f"{amount:f}".partition(".")
    return f"{int(whole):,}{f'.{part:0<2}' if part else ''}"
