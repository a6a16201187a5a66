"""The types of arguments that many methods of Handfast take."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

__all__ = ["Duration", "OnBusy", "OnLost"]

Duration = float | timedelta
"""A length of time: seconds as a number, or a timedelta. From 0.001 s to 366 days; rounded up to whole milliseconds."""

OnBusy = Literal["raise", "skip"]
"""What a decorated function does if its lock is not acquired in time: ``"raise"`` AcquireTimeout, or ``"skip"`` and return None."""

OnLost = Literal["raise", "warn"]
"""What a lost lease does to its ``with`` block: ``"raise"`` LeaseLost, or ``"warn"`` with a RuntimeWarning at its end."""
