"""Each script alone on a real server: every reply it has, sent twice, arriving late, out of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

import handfast._engine
from handfast._engine.script import load
from tests._support.helpers import Engine, eventually

LUA = Path(handfast._engine.__file__).parent / "lua"


@pytest.fixture
def engine(raw):
    return Engine(raw)


@pytest.fixture
def listening(raw):
    """Subscribe to inboxes, so that their waiters count as alive."""
    subscribers = []

    def listen(*tokens):
        pubsub = raw.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(*(f"inbox:{token}" for token in tokens), *(f"control:{token}" for token in tokens))
        subscribers.append(pubsub)
        eventually(lambda: all(count for _, count in raw.pubsub_numsub(*(f"inbox:{token}" for token in tokens))))
        return pubsub

    yield listen
    for pubsub in subscribers:
        pubsub.close()


def heard(pubsub):
    message = eventually(lambda: pubsub.get_message(timeout=1))
    return message["data"]


# --- acquire


def test_a_free_name_is_granted_for_the_whole_ttl(engine):
    tag, fence, lease_us = engine.acquire("t1", ttl=5000)
    assert (tag, lease_us) == ("granted", 5_000_000)
    assert fence == int(engine.client.hget(engine.key("tokens"), "fence"))


def test_acquire_twice_is_the_same_grant_and_the_same_fence(engine):
    _, fence, lease_us = engine.acquire("t1")
    before = engine.dump()
    tag, again, left_us = engine.acquire("t1")
    assert (tag, again) == ("granted", fence)
    assert 0 < left_us <= lease_us
    assert engine.dump() == before


def test_a_second_request_stands_in_line_and_twice_is_the_same_place(engine):
    engine.acquire("t1")
    tag, now_us, position, retry_us = engine.acquire("t2")
    assert (tag, position) == ("queued", 0)
    assert 0 < retry_us <= 30_000_000
    assert engine.acquire("t3")[2] == 1
    assert engine.acquire("t2")[2] == 0
    assert engine.queue() == ["t2", "t3"]
    assert now_us > 0


def test_a_try_leaves_nothing_behind(engine):
    engine.acquire("t1")
    before = engine.dump()
    tag, retry_us = engine.acquire("t2", wait=0)
    assert tag == "busy"
    assert retry_us > 0
    assert engine.dump() == before


def test_a_line_that_is_full_takes_no_more(engine):
    engine.acquire("t1")
    engine.acquire("t2", max_waiters=1)
    before = engine.dump()
    assert engine.acquire("t3", max_waiters=1) == ["full", 1]
    assert engine.acquire("t2", max_waiters=1)[0] == "queued"
    assert engine.dump()["queue"] == before["queue"]


def test_a_line_full_of_waiters_that_lapsed_has_room(engine):
    engine.acquire("t1")
    engine.acquire("lapsed", wait=1)
    start = engine.inspect()[1]
    eventually(lambda: engine.inspect()[1] - start > 2000)
    assert engine.acquire("t2", max_waiters=1)[0] == "queued"
    assert engine.queue() == ["t2"]
    assert not engine.client.hexists(engine.key("tokens"), "lapsed")
    assert engine.acquire("t3", max_waiters=1) == ["full", 1]


@pytest.mark.parametrize("verb", ["release", "cancel"])
def test_an_acquire_that_arrives_after_its_end_changes_nothing(engine, verb):
    engine.acquire("t1")
    getattr(engine, verb)("t1")
    before = engine.dump()
    assert engine.acquire("t1") == ["finished"]
    assert engine.dump() == before


def test_an_acquire_that_arrives_after_its_cancel_though_never_seen_before_changes_nothing(engine):
    engine.cancel("t1")
    assert engine.acquire("t1") == ["finished"]
    assert engine.holders() == []


def test_a_lease_that_is_over_is_swept_up_by_the_next_request(engine):
    engine.acquire("t1", ttl=1)
    _, fence, _ = eventually(lambda: (reply := engine.acquire("t2", wait=0))[0] == "granted" and reply)
    assert engine.holders() == ["t2"]
    assert engine.release("t1") == ["lost"]
    assert engine.renew("t1") == ["lost"]
    assert engine.holders() == ["t2"]
    assert fence > 0


def test_a_token_whose_lease_is_over_may_ask_afresh(engine):
    _, first, _ = engine.acquire("t1", ttl=1)
    again = eventually(lambda: (reply := engine.acquire("t1"))[1] != first and reply)
    assert again[0] == "granted"
    assert again[1] > first
    assert engine.client.hget(engine.key("tokens"), "used") == "1"


# --- release and hand over


def test_release_twice_is_still_released(engine):
    engine.acquire("t1")
    assert engine.release("t1") == ["released", 0]
    before = engine.dump()
    assert engine.release("t1") == ["released", 0]
    assert engine.dump() == before


def test_a_release_of_what_is_lost_is_lost_twice_and_no_late_copy_of_its_acquire_is_granted(engine):
    assert [engine.release("late"), engine.release("late")] == [["lost"], ["lost"]]
    before = engine.dump()
    assert engine.acquire("late") == ["finished"]
    assert engine.dump() == before


def test_a_release_of_what_an_older_state_has_in_line_takes_it_out(engine):
    engine.acquire("t1")
    engine.acquire("t2")
    assert engine.release("t2") == ["lost"]
    assert (engine.holders(), engine.queue()) == (["t1"], [])
    assert "t2" not in engine.client.hkeys(engine.key("tokens"))


@pytest.mark.parametrize("token", ["holds", "waits"])
def test_a_cancel_leaves_no_record(engine, token):
    engine.acquire("holds")
    engine.acquire("waits")
    engine.cancel(token)
    assert token not in engine.client.hkeys(engine.key("tokens"))


def test_a_release_of_what_was_lost_before_changes_nothing(engine):
    """It does not even sweep up: whatever is to be done for the line was done when it got lost."""
    engine.acquire("over", ttl=1)
    assert engine.release("lost") == ["lost"]
    eventually(lambda: engine.inspect()[5] == 0)
    before = engine.dump()
    assert engine.release("lost") == ["lost"]
    assert engine.dump() == before


def test_a_holder_whose_record_was_evicted_begins_anew_with_a_fence_that_grows(engine):
    fence = engine.acquire("t1")[1]
    engine.client.delete(engine.key("tokens"))
    tag, newer, _ = engine.acquire("t1")
    assert (tag, engine.holders(), engine.queue()) == ("granted", ["t1"], [])
    assert newer > fence


def test_release_grants_the_head_itself_and_rings_its_inbox(engine, listening):
    engine.acquire("t1")
    inbox = listening("t2")
    engine.acquire("t2", claim=2000)
    engine.acquire("t3")
    assert engine.release("t1") == ["released", 0]
    assert engine.holders() == ["t2"]
    assert engine.queue() == ["t3"]
    kind, token, fence, _granted_us, lease_us = heard(inbox).split()
    assert (kind, token, lease_us) == ("granted", "t2", "2000000")
    assert engine.acquire("t2")[:2] == ["granted", int(fence)]


def test_a_waiter_that_nobody_hears_is_skipped_in_the_same_release(engine, listening):
    engine.acquire("t1")
    engine.acquire("dead")
    listening("t3")
    engine.acquire("t3")
    engine.release("t1")
    assert engine.holders() == ["t3"]
    assert engine.queue() == []
    assert not engine.client.hexists(engine.key("tokens"), "dead")


def test_a_waiter_whose_wait_lease_lapsed_is_skipped_though_its_inbox_is_there(engine, listening):
    listening("silent", "t3")
    engine.acquire("t1")
    engine.acquire("silent", wait=1)
    engine.acquire("t3")
    start = engine.inspect()[1]
    eventually(lambda: engine.inspect()[1] - start > 2000)
    engine.release("t1")
    assert engine.holders() == ["t3"]


def test_more_than_a_hundred_dead_waiters_take_more_than_one_call(engine, listening):
    engine.acquire("t1")
    for number in range(150):
        engine.acquire(f"dead{number}")
    listening("alive")
    engine.acquire("alive")
    assert engine.release("t1") == ["released", 1]
    assert engine.holders() == []
    assert engine.release("t1") == ["released", 0]
    assert engine.holders() == ["alive"]


@pytest.mark.slow
def test_more_than_a_hundred_expired_holders_are_counted_out_step_by_step(raw):
    engine = Engine(raw, limit=150, kind="semaphore")
    for number in range(150):
        engine.acquire(f"t{number}", ttl=1000)
    assert len(engine.holders()) == 150
    eventually(lambda: engine.inspect()[5] == 0)
    assert engine.acquire("new", weight=150, wait=0)[0] == "busy"
    assert engine.acquire("new", weight=150, wait=0)[0] == "granted"


# --- weights


def test_weights_never_exceed_the_limit_and_a_heavy_head_is_not_overtaken(raw, listening):
    engine = Engine(raw, limit=3, kind="semaphore")
    listening("heavy", "light")
    engine.acquire("t1", weight=2)
    assert engine.acquire("heavy", weight=2)[0] == "queued"
    assert engine.acquire("light", weight=1)[0] == "queued"
    assert engine.acquire("try", weight=1, wait=0)[0] == "busy"
    assert engine.queue() == ["heavy", "light"]
    engine.release("t1")
    assert engine.holders() == ["heavy", "light"]


def test_cancelling_a_heavy_head_lets_those_behind_it_in(raw, listening):
    engine = Engine(raw, limit=3, kind="semaphore")
    listening("light")
    engine.acquire("t1", weight=2)
    engine.acquire("heavy", weight=2)
    engine.acquire("light", weight=1)
    assert engine.cancel("heavy") == ["cancelled", 0]
    assert sorted(engine.holders()) == ["light", "t1"]


# --- cancel


def test_cancel_takes_back_a_place_in_line(engine):
    engine.acquire("t1")
    engine.acquire("t2")
    assert engine.cancel("t2") == ["cancelled", 0]
    assert engine.cancel("t2") == ["cancelled", 0]
    assert engine.queue() == []
    assert engine.holders() == ["t1"]


def test_cancel_takes_back_a_grant_and_passes_it_on(engine, listening):
    listening("t2")
    engine.acquire("t1")
    engine.acquire("t2")
    engine.cancel("t1")
    assert engine.holders() == ["t2"]


# --- renew


def test_renew_sets_the_deadline_and_never_adds_to_it(engine):
    engine.acquire("t1", ttl=1000)
    for _ in range(3):
        tag, lease_us = engine.renew("t1", 5000)
        assert (tag, lease_us) == ("renewed", 5_000_000)


def test_renew_never_shortens_a_lease(engine):
    engine.acquire("t1", ttl=10_000)
    assert engine.renew("t1", 1000)[1] > 9_000_000


def test_renew_brings_no_lease_back(engine):
    engine.acquire("t1")
    engine.release("t1")
    before = engine.dump()
    assert engine.renew("t1") == ["lost"]
    assert engine.dump() == before


# --- revoke


def test_revoke_takes_what_was_granted_so_far_tells_the_holder_and_passes_on(engine, listening):
    home = listening("t1")
    listening("t2")
    _, fence, _ = engine.acquire("t1")
    engine.acquire("t2")
    assert engine.revoke(fence, "too slow") == ["revoked", 1, 0]
    assert heard(home) == "revoked t1 too slow"
    assert engine.holders() == ["t2"]
    assert engine.release("t1") == ["lost"]


def test_revoke_twice_spares_whoever_came_next(engine):
    _, fence, _ = engine.acquire("t1")
    engine.revoke(fence)
    engine.acquire("t2")
    assert engine.revoke(fence) == ["revoked", 0, 0]
    assert engine.holders() == ["t2"]


# --- inspect


def test_inspect_shows_who_holds_and_waits_but_no_whole_token(engine):
    token = "0123456789abcdef"
    _, fence, _ = engine.acquire(token, label="odd label\nwith lines")
    engine.acquire("t2")
    before = engine.dump()
    tag, _now, last_fence, limit, out, holding, waiting, held_by, waited_by = engine.inspect()
    assert (tag, last_fence, limit, out, holding, waiting) == ("state", fence, 0, 1, 1, 1)
    assert held_by[0] == token[:8]
    assert held_by[2].endswith("odd label\nwith lines")
    assert waited_by[0] == "t2"
    assert engine.dump() == before


# --- invariants that every script keeps


def test_an_emptied_name_leaves_no_holder_no_line_and_no_records(engine):
    engine.acquire("t1")
    engine.acquire("t2")
    engine.cancel("t2")
    engine.release("t1")
    assert engine.holders() == engine.queue() == []
    assert engine.client.hkeys(engine.key("tokens")) == ["fence"]


def test_what_nobody_gave_up_leaves_no_record_when_the_name_is_used_again_much_later(engine):
    """Who crashed leaves a record. When its lease is forgotten too, the next one begins afresh; the fence grows on."""
    fence = engine.acquire("a")[1]
    engine.client.delete(engine.key("holders"))  # as if two hours had gone by
    assert engine.acquire("b")[1] > fence
    assert set(engine.client.hkeys(engine.key("tokens"))) == {"b", "used", "fence"}
    engine.release("b")
    assert engine.client.hkeys(engine.key("tokens")) == ["fence"]


def test_the_holders_outlive_the_line_so_that_somebody_sweeps_up_what_ran_out(engine):
    engine.acquire("a", ttl=1)
    engine.acquire("b")
    holders, queue = (engine.client.pttl(engine.key(part)) for part in ("holders", "queue"))
    assert holders > queue + 1_000_000


@pytest.mark.parametrize("ttl", [1, 1000, 86_400_000])
def test_every_key_outlives_the_lease_and_dies(engine, ttl):
    engine.acquire("t1", ttl=ttl)
    engine.acquire("t2", ttl=1000)
    engine.renew("t1", ttl)
    for key in engine.client.scan_iter():
        assert engine.client.pttl(key) > 0
    for part in ("holders", "tokens"):
        assert engine.client.pttl(engine.key(part)) >= ttl


def test_at_maxmemory_acquire_is_refused_and_changes_nothing_while_the_rest_works(engine, listening, raw):
    listening("t2")
    engine.acquire("t1")
    engine.acquire("t2")
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.acquire("t3")
    assert engine.acquire("t3", wait=0)[0] == "busy"
    assert engine.dump() == before
    assert engine.renew("t1")[0] == "renewed"
    assert engine.acquire("t2")[0] == "queued"
    assert engine.release("t1")[0] == "released"
    assert engine.holders() == ["t2"]
    assert engine.cancel("t2")[0] == "cancelled"
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.acquire("t4")
    assert engine.dump() == before


def test_at_maxmemory_what_is_lost_is_buried_all_the_same(engine, raw):
    engine.acquire("t1")
    engine.acquire("t2")
    raw.config_set("maxmemory", 1)
    assert engine.release("late") == engine.release("t2") == ["lost"]
    assert (engine.holders(), engine.queue()) == (["t1"], [])
    raw.config_set("maxmemory", 0)
    assert engine.acquire("late") == engine.acquire("t2") == ["finished"]


def test_at_maxmemory_an_acquire_does_not_slip_in_behind_its_own_sweeping(engine, raw):
    engine.acquire("t1", ttl=1)
    eventually(lambda: engine.inspect()[5] == 0)
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.acquire("t2")
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.acquire("t1")
    assert engine.dump() == before


@pytest.mark.parametrize("part", ["holders", "queue", "tokens", "tombstones"])
def test_losing_any_one_key_never_grants_a_permit_too_many(raw, listening, part):
    engine = Engine(raw, limit=3, kind="semaphore")
    listening("w1", "w2")
    engine.acquire("h1", weight=2)
    engine.acquire("h2", weight=1)
    engine.acquire("w1", weight=1)
    raw.delete(engine.key(part))
    engine.acquire("n1", weight=1, wait=0)
    engine.acquire("w2", weight=1)
    if part == "holders":  # an eviction of the holders is an unlock: nothing can tell
        assert engine.release("h1") == ["lost"]
    else:
        assert set(engine.holders()) == {"h1", "h2"}
        assert engine.release("h1") == ["released", 0]
        assert engine.release("h2") == ["released", 0]
    engine.acquire("w3", weight=3)
    for token in ("n1", "w1", "w2", "w3"):
        engine.cancel(token)
    assert engine.acquire("last", weight=3)[0] == "granted"


def test_fences_grow_through_expiry_flushall_and_the_loss_of_their_key(engine, raw):
    fences = []

    def grant(token):
        fences.append(engine.acquire(token, wait=0)[1])

    grant("t1")
    engine.release("t1")
    grant("t2")
    raw.flushall()
    grant("t3")
    raw.script_flush()
    engine.release("t3")
    raw.hdel(engine.key("tokens"), "fence")
    grant("t4")
    engine.release("t4")
    raw.hset(engine.key("tokens"), "fence", fences[-1] + 10**9)  # as after the clock stepped back
    grant("t5")
    assert fences == sorted(set(fences))
    assert fences[-1] == fences[-2] + 10**9 + 1


def test_the_digests_are_these():
    """A digest that changes is a new script on every server: say so in the changelog and change it here."""
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == KNOWN_DIGESTS


KNOWN_DIGESTS = {
    "multi_acquire": "3c2b73881e53e88da127e48b45d9e18af2dee191",
    "names_best": "c9fd1830ffb294154096233ef9913917c1f97ecb",
    "names_rank": "f0fe118637f4ac5ad1a41f932bea99ec8388bef8",
    "names_unrank": "1c981a266ea229979879a54df72e4abde5f871f7",
    "permit_acquire": "bf90fcb148499488fa1c034bee2161bd73c4a19f",
    "permit_cancel": "e446bcf780a0823c6ceca9e2a48472d2cc1907f2",
    "permit_inspect": "07bdb85101354ce333914301511113c69eaf1cbd",
    "permit_lower": "fc215d5bf189275dab134db597b3c09c21d0849b",
    "permit_release": "d9bad768c301755d7388e77a277dfe3aac6ae93d",
    "permit_renew": "2910c289d073c5cfed56ff89efa3995aec1be52f",
    "permit_resize": "153ee19ede6cc1d07078baa6c293679f19474f76",
    "permit_revoke": "53f71d8e6e8ca365642966d0449b6d22af182bd5",
    "scores_advance": "9d78e0a33400d13e0e1eea78eca2608fbddae243",
}
