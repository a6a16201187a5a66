"""From when on something is worth a color or a sentence: the thresholds of all views. Durations are in seconds."""

from __future__ import annotations

__all__ = [
    "FRESH_S",
    "FULL_FROM_S",
    "FULL_SHARE",
    "GROWN",
    "GROWN_FROM",
    "HELD_LONG_S",
    "LATE_SHARE",
    "LOW_SHARE",
    "RENEWED",
    "SHORT_TTL_S",
    "SILENT_S",
    "SLACK_S",
    "WAITED_LONG_S",
    "WAITED_TOO_LONG_S",
    "of_page",
]

HELD_LONG_S = 1800.0
"""How long a name is held while others wait for it."""

WAITED_LONG_S, WAITED_TOO_LONG_S = 60.0, 600.0
"""How long the first of a queue waits without a grant: a warning, and an alarm."""

SILENT_S = 25.0
"""A waiter that was not heard of for so long is frozen or dead: it asks every 20 s or more often."""

GROWN, GROWN_FROM = 5, 8
"""By how much a queue has grown within a minute, and how long it is."""

FULL_SHARE, FULL_FROM_S = 0.9, 10.0
"""How much of a rate is used, and how long its period is: shorter ones are full by design."""

RENEWED = 1.25
"""Of how many ttls the time from the grant to the end of a lease is, at least, if it was renewed: a lease is renewed after a
third of its ttl, and a grant is confirmed some time after it was made."""

LATE_SHARE, LOW_SHARE = 1 / 2, 1 / 3
"""Below which part of its ttl a lease was not renewed when it should have been: two thirds are left before each renewal. And
below which part at least one renewal was missed."""

SLACK_S, SHORT_TTL_S = 3.0, 5.0
"""How much less than these parts may be left before a color says so: a look, and the rest after it, take less. Leases with a
ttl this short have no color."""

FRESH_S = 1.5
"""How old a row may be for a sentence about a lease that ends soon."""


def of_page() -> dict[str, float]:
    """Return the thresholds that the page applies by itself between two looks."""
    return {
        "held_long": HELD_LONG_S,
        "waited_long": WAITED_LONG_S,
        "waited_too_long": WAITED_TOO_LONG_S,
        "late_share": LATE_SHARE,
        "low_share": LOW_SHARE,
        "slack": SLACK_S,
        "short_ttl": SHORT_TTL_S,
    }
