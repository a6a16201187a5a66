"""The local clocks: elapsed seconds, also those in which the machine was suspended (invariant 8).

`time.monotonic` stops while the machine is suspended, on Linux and on macOS; the server's clock does not. So leases are
measured with a clock that goes on. The timers of event loops and of ``poll`` do stop, and expire late after a resume.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["monotonic", "unix_time", "wall_clock"]

if sys.platform == "darwin":
    CLOCK = time.CLOCK_MONOTONIC_RAW
    """macOS: counts sleep, unlike on Linux."""
else:
    CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    """Linux has CLOCK_BOOTTIME. Elsewhere it depends on the system whether CLOCK_MONOTONIC counts a suspend."""

monotonic = partial(time.clock_gettime, CLOCK)
"""Return the seconds since some moment in the past."""


unix_time = time.time
"""Return the seconds since 1970, which no lease depends on."""


def wall_clock() -> datetime:
    """Return the time of day, which no lease depends on."""
    from datetime import UTC, datetime

    return datetime.now(UTC)
