"""A limiter of several metrics among processes that are killed, and in which replies are lost."""

from __future__ import annotations

from tests.deep.api.metric_crowd import run


def test_no_instant_of_the_server_has_more_of_any_metric_than_its_limit():
    found = run(6000, 6, 2.0)
    assert found["over"] == []
    assert found["wrong sums"] == []
    assert all(share <= 1 for share in found["any interval"].values())
    assert found["median share of the tightest"] > 0.9
    assert found["kills"] >= 2
    assert found["calls"] >= 5000
