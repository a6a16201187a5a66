"""permit_adopt: a status shows the new client, a revocation reaches it, and all else of the lease stays."""

from __future__ import annotations

import pytest

from handfast._engine.records import encode_label
from tests._support.engine import CLAIM_MS, NOW_US, TTL_US, unchanged


@pytest.mark.parametrize("token", ["t1", "t2"], ids=["in the state", "beside it"])
@pytest.mark.parametrize("label", ["me", "two  words ", "lines\nand 7 7 7", "ümläut \\ % {x}", "x" * 200])
def test_only_who_keeps_the_lease_changes(make, listening, token, label):
    engine = make(5)
    listening("w1")
    fences = {name: engine.acquire(name, weight)[1] for name, weight in (("t1", 2), ("t2", 3))}
    engine.acquire("w1", 4)
    before, weight = engine.stored(), {"t1": 2, "t2": 3}[token]
    for _ in range(2):
        assert engine.adopt(token, "control:new", label) == ["adopted", 0]
    shown = f"inbox:{token} control:new {encode_label(label)}"
    changed = {token: f"fence {fences[token]} {weight} 5 {CLAIM_MS} {shown}"}
    assert engine.stored() == before._replace(records=before.records | changed)


def test_a_revocation_reaches_the_client_that_adopted(make, subscribe):
    engine, control = make(), subscribe("control:new")
    engine.acquire("t1")
    engine.adopt("t1")
    engine.revoke(NOW_US, "moved on")
    message = control.get_message(ignore_subscribe_messages=True, timeout=5)
    assert (message["channel"], message["data"]) == (b"control:new", b"revoked t1 moved on")


def test_what_holds_nothing_is_lost(make, clock, listening):
    engine = make(1)
    listening("w1")
    engine.acquire("t1")
    engine.acquire("w1")
    for token in ("unknown", "w1"):
        with unchanged(engine):
            assert engine.adopt(token) == ["lost"]
    engine.release("t1")
    with unchanged(engine):
        assert engine.adopt("t1") == ["lost"], "a copy that comes late"
    clock.now_us += TTL_US
    with unchanged(engine):
        assert engine.adopt("w1") == ["lost"], "expired, though not yet swept"


def test_it_works_at_maxmemory_however_long_the_label(make, raw):
    engine = make(2)
    engine.acquire("t1")
    engine.acquire("t2")
    raw.config_set("maxmemory", 1)
    for token in ("t1", "t2"):
        assert engine.adopt(token, "control:new", "x" * 200) == ["adopted", 0]
