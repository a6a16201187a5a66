"""Calls to the server of a protected request or task. `price` counts the instructions."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("celery")
pytest.importorskip("django")

from tests.deep.frameworks import price

LOCK, ADMISSION, NEW, AGAIN = (2, 5), (1, 6), (2, 14), (1, 3)
"""Round trips, with one script each, and the commands that these scripts run: as few as without an adapter."""

COSTS = {
    "fastapi": {
        "bare": (0, 0),
        "dependency": (0, 0),
        "locked": LOCK,
        "lock": LOCK,
        "limited": ADMISSION,
        "limiter": ADMISSION,
        "idempotent, new": NEW,
        "idempotent, again": AGAIN,
        "once, new": NEW,
        "once, again": AGAIN,
    },
    "celery": {
        "bare": (0, 0),
        "Exclusive": LOCK,
        "lock": LOCK,
        "Once, new": NEW,
        "Once, again": AGAIN,
        "once, new": NEW,
        "once, again": AGAIN,
    },
    "django": {"bare": (0, 0), "locked": LOCK, "lock": LOCK},
}

CALLS = 10


@pytest.mark.parametrize("framework", COSTS)
def test_an_adapter_asks_no_more_of_the_server_than_the_call_that_it_makes(server, raw, django, framework):
    with price.FRAMEWORKS[framework](server.url) as ways:
        assert {way: cost(raw, repeat) for way, repeat in ways.items()} == COSTS[framework]


def cost(raw, repeat):
    """Return round trips and commands of a call, when the connections are there and the server knows the scripts."""
    repeat(2)
    raw.config_resetstat()
    repeat(CALLS)
    commands = {name: found["calls"] for name, found in raw.info("commandstats").items()}
    trips = raw.info("stats")["total_reads_processed"] - 2  # those of `raw`
    scripts = commands.pop("cmdstat_evalsha", 0)
    assert scripts == trips
    commands = {
        name: calls for name, calls in commands.items() if not name.startswith(("cmdstat_config", "cmdstat_info"))
    }
    return trips / CALLS, sum(commands.values()) / CALLS
