"""lib/reset.lua: a name whose holders expired with their key starts anew; only the limit of an operator stays."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TTL_MS, TTL_US, holding, refused


@pytest.mark.parametrize("limit", [0, 3])
def test_records_of_holders_that_never_released_are_dropped(make, raw, limit):
    engine = make()
    if limit:
        engine.resize(limit)
    for token in ("old1", "old2"):
        engine.acquire(token)
    raw.delete(engine.key("holders"))
    raw.config_set("maxmemory", 1)
    with refused(engine):
        engine.acquire("new")
    raw.config_set("maxmemory", 0)
    assert engine.acquire("new") == ["granted", NOW_US + 2, TTL_US]
    engine.has(
        holders={"new": NOW_US + TTL_US},
        new=holding("new", 1, 5, TTL_MS, fence=NOW_US + 2),
        used=1,
        fence=NOW_US + 2,
        **({"limit": limit} if limit else {}),
    )
    assert not limit or engine.acquire("large", limit + 1) == ["exceeds_limit", limit]


@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize("lost", ["a", "b", "ab"])
def test_records_of_holders_of_several_names_are_dropped(both, raw, limit, lost):
    for engine in both.engines:
        if limit:
            engine.resize(limit)
    both.acquire("old")
    for engine, name in zip(both.engines, "ab", strict=True):
        if name in lost:
            raw.delete(engine.key("holders"))
        else:
            engine.release("old")
    raw.config_set("maxmemory", 1)
    with refused(both):
        both.acquire("new")
    raw.config_set("maxmemory", 0)
    assert both.acquire("new") == ["granted", NOW_US + 1, TTL_US]
    for engine in both.engines:
        assert engine.dump()["holders"] == [("new", NOW_US + TTL_US)]
        assert engine.dump()["tokens"] == {
            "new": holding("new", 1, 1, TTL_MS, fence=NOW_US + 1),
            "used": "1",
            "fence": str(NOW_US + 1),
        } | ({"limit": str(limit)} if limit else {})
