"""The page on a cluster: names of all primaries, records, and acts."""

from __future__ import annotations

import contextlib

import pytest

from handfast import Handfast, LeaseLost
from handfast._watch import live
from handfast.page import ACTS, app, watching
from tests._support.cluster import Cluster
from tests._support.helpers import eventually
from tests.gate.page.test_page import Browser, rows


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        yield cluster


async def test_names_of_all_primaries_are_shown_and_acted_on(cluster, monkeypatch):
    monkeypatch.setattr(watching, "EVERY_S", 0.05)
    monkeypatch.setattr(watching, "LINGER_S", 0.5)
    monkeypatch.setattr(live, "SEARCH_EVERY_S", 0.0)
    with Handfast(cluster.url) as hf, Handfast(cluster.url) as other, contextlib.ExitStack() as stack:
        for number in range(12):
            stack.enter_context(hf.lock(f"name-{number}"))
        hf.once("invoice").keyed("1").run(lambda: 1)
        hf.limiter("mail", "5/min").acquire(cost=5)
        page = Browser(app(hf, allow=ACTS))
        state = await page.until(
            lambda state: len(state["rows"]) >= 13 and state.get("results", {}).get("rows"), kind="lock", name="name-3"
        )
        assert {("lock", f"name-{number}") for number in range(12)} <= rows(state).keys()
        assert [row["state"] for row in state["results"]["rows"]] == ["done"]
        with contextlib.suppress(LeaseLost), other.lock("taken") as lease:
            done = await page.act("release", kind="lock", name="taken", fence=lease.fence)
            assert done.json() == {"done": "taken is released: 1 lease taken"}, done.text
            eventually(lambda: lease.lost)
        assert (await page.act("pause", kind="limiter", name="mail", seconds=60)).status_code == 200
        (record,) = state["results"]["rows"]
        done = await page.act("forget", kind="once", name="invoice|1", version=record["version"])
        assert done.status_code == 200, done.text
        state = await page.until(lambda state: len(state.get("audit", {}).get("entries", ())) == 3)
        assert [one["what"] for one in state["audit"]["entries"]] == ["forget", "pause", "release"]
        await page.http.aclose()
