"""The program that measures outages: each of them is one, and its calls end as the documentation says."""

from __future__ import annotations

import asyncio

import pytest

from handfast_lab.bench.outages import CALLS, OUTAGES, measure_asyncio, measure_sync

ERRORS = {"refused": "ConnectionError", "read-only": "ServerRefused"}


@pytest.mark.parametrize("name", ERRORS)
def test_each_call_raises_what_the_outage_is(name):
    with OUTAGES[name]() as (server, begin):
        found = [measure_sync(server, begin)]
    with OUTAGES[name]() as (server, begin):
        found.append(asyncio.run(measure_asyncio(server, begin)))
    for outcomes in found:
        raised = dict(zip(CALLS, (outcome.split()[1] for outcome in outcomes), strict=True))
        reads = raised.pop("status()")
        assert set(raised.values()) == {ERRORS[name]}
        assert reads == ("ok" if name == "read-only" else ERRORS[name])
