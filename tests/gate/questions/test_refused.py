"""A bad name, option or argument is refused with an error that says which, before anything is sent."""

from __future__ import annotations

import inspect
from datetime import timedelta
from math import inf, nan

import pytest

from tests._support.family import NOWHERE
from tests._support.helpers import settled

NO_TIME = (-1, nan, "1", True)

OPTIONS = {
    "ttl": (1, (0, *NO_TIME, inf, timedelta(0), 367 * 86_400)),
    "timeout": (1, (nan, "1", True)),
    "head_start": (1, (*NO_TIME, 86_401)),
    "max_hold": (60, (0, *NO_TIME, inf, 366 * 86_400 + 1)),
    "at_least": (1, (0, *NO_TIME, inf, 1e9)),
    "max_waiters": (1, (0, 1.5, "1")),
    "min_replicas": (0, (-1, 1.5, "1")),
    "on_lost": ("warn", ("ignore", None)),
    "on_limit": ("raise", ("ignore", None)),
    "on_running": ("raise", ("ignore", None)),
    "every": (1, (0, *NO_TIME)),
    "at_most": (1, (0, *NO_TIME)),
    "keep": (1, NO_TIME),
    "value": ("x", (7, None, "x" * 1025)),
    "max_items": (1, (0, True, "1")),
    "permits": (1, (0, -1, 1.5, "1", True)),
    "cost": (1, (-1, 1.5, "1", True)),
}
"""By its name: a good value of an option, and bad ones."""


def applies(row, api):
    return "it is made of items" if row.like == "partition.run" else None


@pytest.fixture
async def nowhere(api):
    """A client that reaches no server: what sends anything raises ConnectionError."""
    client = api.handfast(NOWHERE, retry_for=0)
    yield client
    await settled(client.close())


def takes(row, client, option):
    """Return whether a row has this option."""
    try:
        row.make(client, **{option: OPTIONS[option][0]})
    except TypeError as error:
        if "unexpected keyword" not in str(error) and f"has no option '{option}'" not in str(error):
            raise
        return False
    return True


async def error_of(use, option, wrong):
    """Return the error of a use with that value; None if it was taken."""
    try:
        await settled(use(**{option: wrong}))
    except Exception as error:  # noqa: BLE001 -- the test judges it
        return error
    return None


async def test_refused(nowhere, row):
    uses = [
        (lambda **options: row.make(nowhere, **options), option) for option in OPTIONS if takes(row, nowhere, option)
    ]
    for method in ("acquire", "try_acquire", "wait"):
        use = getattr(row.make(nowhere), method, None)
        uses += [(use, option) for option in OPTIONS if use and option in inspect.signature(use).parameters]
    accepted = []
    for use, option in uses:
        for wrong in OPTIONS[option][1]:
            error = await error_of(use, option, wrong)
            if not isinstance(error, ValueError | TypeError) or option not in str(error):
                accepted.append((use, option, wrong, error))
    assert not accepted
    for name, error in (("", ValueError), (7, TypeError)):
        with pytest.raises(error, match="name must"):
            row.make(nowhere, name)
    with pytest.raises(TypeError, match="no_such_option"):
        row.make(nowhere, no_such_option=1)
