"""lib/grant.lua: each grant of a name has a larger fence (invariant 3), and large numbers keep all their digits."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, TTL_MS, received

GRANTING = {
    "release": lambda engine: engine.release("t1"),
    "cancel": lambda engine: engine.cancel("t1"),
    "lower": lambda engine: engine.lower("t1", 1),
    "resize": lambda engine: engine.resize(9),
    "revoke": lambda engine: engine.revoke(NOW_US),
    "acquire": lambda engine: engine.acquire("t1", limit=9),
}


@pytest.mark.parametrize("verb", GRANTING)
def test_the_fence_of_a_handoff_is_above_all_before_it(make, listening, verb):
    engine = make()
    inbox = listening("t2")
    engine.acquire("t1", 4)
    engine.acquire("t2", 4)
    engine.set_fence(NOW_US + 10**6)
    if verb == "acquire":
        engine.end_lease("t1")
    GRANTING[verb](engine)
    assert received(inbox).startswith(f"granted t2 {NOW_US + 10**6 + 1} {NOW_US} ")
    assert engine.stored().fence == NOW_US + 10**6 + (2 if verb == "acquire" else 1)


def test_fences_grow_through_flushall_script_flush_and_the_loss_of_their_field(a, clock, raw):
    fences = []

    def grant_and_release():
        fences.append(a.acquire("t", wait=0)[1])
        a.release("t")
        a.lose("tombstones")

    grant_and_release()
    grant_and_release()
    assert fences == [NOW_US, NOW_US + 1]
    clock.now_us += 10
    raw.flushall()
    grant_and_release()
    raw.script_flush()
    grant_and_release()
    clock.now_us += 10
    raw.hdel(a.key("tokens"), "fence")
    grant_and_release()
    assert fences[2:] == [NOW_US + 10, NOW_US + 11, NOW_US + 20]
    clock.now_us -= 10**9
    grant_and_release()
    assert fences[-1] == NOW_US + 21, "the clock was set back"


def test_large_numbers_keep_all_their_digits(rw, raw, listening):
    listening("second")
    year_ms = 366 * 86_400_000
    year_us, later = year_ms * 1000, NOW_US + 10**15 + 1
    assert rw.acquire("first", rw.limit - 1, ttl=year_ms, claim=year_ms) == ["granted", NOW_US, year_us]
    assert rw.acquire("second", 2, ttl=year_ms, claim=year_ms)[0] == "queued"
    rw.set_fence(later)  # as after a clock is set back by 30 years
    assert rw.lower("first", rw.limit - 2) == ["lowered", 0]
    assert rw.stored().holders == {"first": NOW_US + year_us, "second": NOW_US + year_us}
    assert rw.stored().used == rw.limit
    assert rw.stored().fence == later + 1
    assert rw.acquire("first", rw.limit)[1] == NOW_US
    assert rw.acquire("second", 2)[1] == later + 1
    for token, weight in (("first", rw.limit - 2), ("second", 2)):
        assert rw.record(token).split()[2:5] == [str(weight), str(rw.limit), str(year_ms)]
    assert raw.pttl(rw.key("tokens")) > year_ms
    assert rw.inspect()[4] == rw.limit


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("short", ["t1", "t2"])
def test_the_next_lease_to_end_is_known_whichever_was_granted_first(make, clock, limited, short):
    """With an operator's limit, no short way is taken."""
    engine = make(3)
    if limited:
        engine.resize(3)
    for token in ("t0", "t1", "t2"):
        engine.acquire(token, ttl=1000 if token == short else TTL_MS)
    clock.now_us += 1_000_000
    assert engine.acquire("t3")[0] == "granted"
    assert engine.holders() == sorted({"t0", "t1", "t2", "t3"} - {short})
