"""The scripts of one name with weights: limits that differ or are set, weights made smaller, large requests that wait."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.calls import MAX_PERMITS
from handfast._engine.script import load
from tests._support.helpers import Engine, eventually, runs_through

DAY_MS = 86_400_000
OUT_OF_MEMORY = "used memory > 'maxmemory'"


class Weighted(Engine):
    """The scripts of one name; each request may bring a limit of its own."""

    def ask(self, token, weight=1, *, limit=None, **kwargs):
        usual, self.limit = self.limit, limit or self.limit
        try:
            return self.acquire(token, weight=weight, **kwargs)
        finally:
            self.limit = usual

    def lower(self, token, weight):
        return self.run("lower", token=token, weight=weight)

    def resize(self, limit):
        return self.run("resize", limit=limit)

    def record(self, token):
        return self.client.hget(self.key("tokens"), token)

    def field(self, name):
        return self.client.hget(self.key("tokens"), name)

    def end_lease(self, token):
        """Let a lease be over, as if its time had come."""
        assert self.client.zadd(self.key("holders"), {token: 1}, xx=True, ch=True)

    def end_wait(self, token):
        """Let a wait-lease be over, as if its time had come."""
        weight, limit, claim, _, rest = self.record(token).split(" ", 4)
        self.client.hset(self.key("tokens"), token, f"{weight} {limit} {claim} 1 {rest}")


@pytest.fixture
def make(raw):
    """Makes the scripts of a semaphore with that limit."""
    return lambda limit, client=raw: Weighted(client, limit=limit, kind="semaphore")


@pytest.fixture
def rw(raw):
    return Weighted(raw, limit=MAX_PERMITS, kind="rwlock")


@pytest.fixture
def listening(raw):
    """Subscribe to inboxes, so that their waiters count as alive until what is given is closed."""
    subscribers = []

    def listen(*tokens):
        pubsub = raw.pubsub(ignore_subscribe_messages=True)
        subscribers.append(pubsub)
        pubsub.subscribe(*(f"inbox:{token}" for token in tokens))
        eventually(lambda: all(count for _, count in raw.pubsub_numsub(*(f"inbox:{token}" for token in tokens))))
        return pubsub

    yield listen
    for pubsub in subscribers:
        pubsub.close()


def hang_up(raw, pubsub, token):
    """The process of a waiter is gone."""
    pubsub.close()
    eventually(lambda: raw.pubsub_numsub(f"inbox:{token}")[0][1] == 0)


def grants(pubsub, count):
    """The rings that came, as (token, fence, lease_us)."""
    rings = []
    while len(rings) < count:
        message = eventually(lambda: pubsub.get_message(timeout=1))
        kind, token, fence, _, lease_us = message["data"].split()
        assert kind == "granted"
        rings.append((token, int(fence), int(lease_us)))
    return rings


# --- readers and writers


def test_readers_that_stand_side_by_side_are_let_in_together_and_phases_follow_the_order_of_arrival(rw, listening):
    """A reader behind a waiting writer waits for it, however many readers hold."""
    listening("r1", "r2", "w2", "r3", "r4", "w3", "w4", "r5")
    rw.ask("w1", MAX_PERMITS)
    for token in ("r1", "r2", "w2", "r3", "r4", "w3", "w4", "r5"):
        assert rw.ask(token, MAX_PERMITS if token[0] == "w" else 1)[0] == "queued"
    phases = []
    while holders := rw.holders():
        phases.append(holders)
        for token in holders:
            assert rw.release(token) == ["released", 0]
    assert phases == [["w1"], ["r1", "r2"], ["w2"], ["r3", "r4"], ["w3"], ["w4"], ["r5"]]
    assert rw.queue() == []


def test_a_writer_waits_for_the_last_reader_and_is_then_alone(rw, listening):
    listening("w", "late")
    for token in ("r1", "r2", "r3"):
        assert rw.ask(token)[0] == "granted"
    rw.ask("w", MAX_PERMITS)
    rw.ask("late")
    for token in ("r1", "r2"):
        rw.release(token)
        assert rw.queue() == ["w", "late"]
    rw.release("r3")
    assert rw.holders() == ["w"]
    assert rw.field("used") == str(MAX_PERMITS)
    assert rw.inspect()[4] == MAX_PERMITS


def test_neither_a_reader_nor_a_try_passes_a_writer_that_waits(rw, listening):
    listening("w", "r2")
    rw.ask("r1")
    rw.ask("w", MAX_PERMITS)
    before = rw.dump()
    tag, retry_us = rw.ask("try", wait=0)
    assert tag == "busy"
    assert retry_us > 0
    assert rw.ask("try", MAX_PERMITS, wait=0)[0] == "busy"
    assert rw.dump() == before
    assert rw.ask("r2")[::2] == ["queued", 1]
    assert rw.holders() == ["r1"]


def test_a_crowd_of_readers_is_let_in_a_hundred_a_call(rw, listening):
    crowd = [f"r{number:03}" for number in range(250)]
    inboxes = listening(*crowd)
    rw.ask("w", MAX_PERMITS)
    for token in crowd:
        rw.ask(token)
    for expected in (["released", 1], ["released", 1], ["released", 0]):
        assert rw.release("w") == expected
    assert rw.holders() == crowd
    assert rw.field("used") == "250"
    fences = [fence for _, fence, _ in grants(inboxes, 250)]
    assert fences == sorted(set(fences))


def test_a_crowd_behind_a_lease_that_is_over_gets_in_by_asking(rw, listening):
    crowd = [f"r{number:03}" for number in range(150)]
    listening(*crowd)
    rw.ask("w", MAX_PERMITS)
    for token in crowd:
        rw.ask(token)
    rw.end_lease("w")
    assert rw.ask("r000")[0] == "granted"
    assert rw.holders() == crowd[:100]
    assert rw.ask("r149")[0] == "granted"
    assert rw.holders() == crowd


# --- a weight made smaller


def test_a_writer_that_goes_on_as_a_reader_lets_the_readers_behind_it_in_and_no_writer(rw, listening):
    inboxes = listening("r1", "r2", "w2", "r3")
    _, fence, _ = rw.ask("w", MAX_PERMITS)
    deadline = rw.client.zscore(rw.key("holders"), "w")
    for token in ("r1", "r2", "w2", "r3"):
        rw.ask(token, MAX_PERMITS if token == "w2" else 1)
    assert rw.lower("w", 1) == ["lowered", 0]
    assert sorted(rw.holders()) == ["r1", "r2", "w"]
    assert rw.queue() == ["w2", "r3"]
    assert rw.field("used") == "3"
    assert [token for token, *_ in grants(inboxes, 2)] == ["r1", "r2"]
    assert rw.client.zscore(rw.key("holders"), "w") == deadline
    assert rw.ask("w", MAX_PERMITS)[:2] == ["granted", fence]
    for token in ("r1", "r2", "w"):
        assert rw.release(token) == ["released", 0]
    assert rw.holders() == ["w2"]


def test_to_lower_twice_or_upwards_changes_nothing(make):
    engine = make(5)
    engine.ask("t1", 4)
    assert engine.lower("t1", 2) == ["lowered", 0]
    before = engine.dump()
    assert engine.lower("t1", 2) == ["lowered", 0]
    assert engine.lower("t1", 3) == ["lowered", 0]
    assert engine.dump() == before
    assert engine.field("used") == "2"
    assert engine.ask("t2", 3, wait=0)[0] == "granted"


def test_to_lower_what_is_no_lease_any_more_is_lost(rw, listening):
    listening("waits")
    assert rw.lower("never", 1) == ["lost"]
    rw.ask("w", MAX_PERMITS)
    rw.ask("waits")
    before = rw.dump()
    assert rw.lower("waits", 1) == ["lost"]
    assert rw.dump() == before
    rw.release("w")
    before = rw.dump()
    assert rw.lower("w", 1) == ["lost"]
    assert rw.dump() == before


def test_a_lease_that_is_over_and_not_swept_up_yet_is_not_lowered(rw):
    rw.ask("w", MAX_PERMITS)
    rw.end_lease("w")
    before = rw.dump()
    assert rw.lower("w", 1) == ["lost"]
    assert rw.dump() == before
    assert rw.ask("r")[0] == "granted"
    assert rw.field("used") == "1"


@pytest.mark.parametrize("label", ["", "me", "two  words ", "lines\nand 7 7 7", "ümläut \\ % {x}"])
def test_a_lowered_lease_keeps_all_else_that_is_known_of_it(rw, label):
    rw.ask("w", MAX_PERMITS, label=label)
    weight, rest = rw.record("w").split(" ", 1)
    assert (weight, rest.endswith(f"inbox:w control:w {label}")) == (str(MAX_PERMITS), True)
    rw.lower("w", 1)
    assert rw.record("w") == f"1 {rest}"
    assert rw.revoke(rw.inspect()[2])[1] == 1


def test_to_lower_goes_on_after_a_hundred(rw, listening):
    crowd = [f"r{number:03}" for number in range(150)]
    listening(*crowd)
    rw.ask("w", MAX_PERMITS)
    for token in crowd:
        rw.ask(token)
    assert rw.lower("w", 1) == ["lowered", 1]
    assert rw.lower("w", 1) == ["lowered", 0]
    assert rw.field("used") == "151"


# --- large requests


def test_a_large_request_that_waits_is_not_overtaken_and_gets_permits_as_they_come_free(make, listening):
    engine = make(4)
    listening("large", "small")
    for token in ("a", "b", "c"):
        engine.ask(token)
    engine.ask("large", 3)
    assert engine.ask("small")[::2] == ["queued", 1]
    engine.release("a")
    assert engine.queue() == ["large", "small"]
    engine.release("b")
    assert engine.holders() == ["c", "large"]
    assert engine.queue() == ["small"]
    engine.release("c")
    assert engine.holders() == ["large", "small"]


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "end"])
def test_a_lease_gives_back_as_many_permits_as_it_has(make, listening, verb):
    engine = make(7)
    listening("next", "last")
    fences = [engine.ask(token, weight)[1] for token, weight in (("a", 3), ("b", 2), ("c", 2))]
    engine.ask("next", 3)
    engine.ask("last", 1)
    if verb == "end":
        engine.end_lease("a")
        engine.cancel("stranger")
    elif verb == "revoke":
        assert engine.revoke(fences[0]) == ["revoked", 1, 0]
    else:
        assert engine.run(verb, token="a")[1] == 0
    assert sorted(engine.holders()) == ["b", "c", "next"]
    assert engine.queue() == ["last"]
    assert engine.field("used") == "7"


def unchanged(engine):
    engine.cancel("stranger")


SERVING = {
    "release": lambda engine: engine.release("extra"),
    "cancel": unchanged,
    "lower": lambda engine: engine.lower("held", 1),
    "resize": lambda engine: engine.resize(0),
    "revoke": lambda engine: engine.revoke(0),
    "acquire": lambda engine: engine.ask("alive"),
    "newcomer": lambda engine: engine.ask("newcomer"),
    "try": lambda engine: engine.ask("try", wait=0),
}
"""What looks at the line of a name in which something is free, and frees too little for its head."""


@pytest.fixture(params=[4, MAX_PERMITS], ids=["semaphore", "rwlock"])
def waiting(request, make, listening):
    """A head that does not fit, and one behind it that would; how to end the head's process."""
    engine = make(request.param)
    head, _ = listening("head"), listening("alive")
    engine.ask("held", 2)
    engine.ask("extra")
    engine.ask("head", min(3, request.param) if request.param == 4 else MAX_PERMITS)
    engine.ask("alive")
    assert engine.queue() == ["head", "alive"]
    return engine, lambda: hang_up(engine.client, head, "head")


@pytest.mark.parametrize("verb", SERVING)
def test_a_head_that_does_not_fit_and_died_does_not_hold_up_the_line(waiting, verb):
    engine, end_head = waiting
    end_head()
    SERVING[verb](engine)
    assert "alive" in engine.holders()
    assert "head" not in engine.queue()
    assert engine.record("head") is None


@pytest.mark.parametrize("verb", SERVING)
def test_a_head_that_does_not_fit_and_lives_keeps_its_place(waiting, verb):
    engine, _ = waiting
    SERVING[verb](engine)
    assert engine.queue()[:2] == ["head", "alive"]


@pytest.mark.parametrize("verb", SERVING)
def test_a_head_that_does_not_fit_and_whose_wait_lease_lapsed_does_not_hold_up_the_line(waiting, verb):
    engine, _ = waiting
    engine.end_wait("head")
    SERVING[verb](engine)
    assert "alive" in engine.holders()
    assert engine.record("head") is None


@pytest.mark.parametrize("verb", ["cancel", "lower", "resize", "revoke"])
def test_a_head_whose_connection_is_made_anew_keeps_its_place_while_nothing_is_free(make, raw, listening, verb):
    engine = make(4)
    head = listening("head")
    engine.ask("held", 1)
    engine.ask("extra", 3)
    engine.ask("head", 2)
    engine.ask("behind", 1)
    hang_up(raw, head, "head")
    SERVING[verb](engine)
    assert engine.queue() == ["head", "behind"]


@pytest.mark.parametrize("verb", SERVING)
def test_who_may_not_ask_who_listens_believes_the_head_until_its_wait_lease_lapses(waiting, server, raw, verb):
    """Scripts run with the rights of their caller, and PUBSUB may not be among them."""
    engine, end_head = waiting
    raw.execute_command("ACL", "SETUSER", "plain", "on", ">x", "~*", "&*", "+@all", "-pubsub")
    client = redis.Redis.from_url(server.url, username="plain", password="x", decode_responses=True)
    try:
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.pubsub_numsub("inbox:head")
        end_head()
        engine.client = client
        SERVING[verb](engine)
        assert engine.queue()[:2] == ["head", "alive"]
        engine.end_wait("head")
        SERVING["cancel"](engine)
        assert "alive" in engine.holders()
    finally:
        client.close()
        raw.execute_command("ACL", "DELUSER", "plain")


@pytest.mark.parametrize("verb", SERVING)
def test_a_lease_that_is_over_is_swept_up_by_whatever_looks_at_the_line(make, listening, verb):
    engine = make(6)
    listening("head", "alive")
    for token, weight in (("held", 2), ("extra", 1), ("over", 3), ("head", 3), ("alive", 1)):
        engine.ask(token, weight)
    engine.end_lease("over")
    SERVING[verb](engine)
    assert {"head", "held"} <= set(engine.holders())
    assert engine.record("over") is None
    assert engine.field("used") == str(engine.inspect()[4])


def test_more_than_a_hundred_dead_heads_that_do_not_fit_take_more_than_one_call(rw, raw, listening):
    listening("alive")
    dead = [f"dead{number}" for number in range(150)]
    crowd = listening(*dead)
    rw.ask("held")
    for token in dead:
        rw.ask(token, MAX_PERMITS)
    rw.ask("alive")
    crowd.close()
    eventually(lambda: not any(count for _, count in raw.pubsub_numsub(*(f"inbox:{token}" for token in dead))))
    assert rw.cancel("stranger") == ["cancelled", 1]
    assert len(rw.queue()) == 51
    assert rw.cancel("stranger") == ["cancelled", 0]
    assert sorted(rw.holders()) == ["alive", "held"]


def test_one_of_more_than_a_hundred_that_asks_again_is_told_to_come_back_at_once(rw, raw, listening):
    listening("alive")
    dead = [f"dead{number}" for number in range(120)]
    crowd = listening(*dead)
    rw.ask("held")
    for token in dead:
        rw.ask(token, MAX_PERMITS)
    rw.ask("alive")
    crowd.close()
    eventually(lambda: not any(count for _, count in raw.pubsub_numsub(*(f"inbox:{token}" for token in dead))))
    tag, _, position, retry_us = rw.ask("alive")
    assert (tag, position, retry_us) == ("queued", 20, 0)
    assert rw.ask("alive")[0] == "granted"


# --- limits that are set


def test_a_request_for_more_than_there_are_is_told_so_and_leaves_nothing_behind(make):
    engine = make(4)
    engine.resize(2)
    before = engine.dump()
    assert engine.ask("t1", 3) == ["exceeds_limit", 2]
    assert engine.ask("t1", 3) == ["exceeds_limit", 2]
    assert engine.ask("t1", 3, wait=0) == ["exceeds_limit", 2]
    assert engine.dump() == before
    engine.ask("t2", 2)
    before = engine.dump()
    assert engine.ask("t1", 3) == ["exceeds_limit", 2]
    assert engine.dump() == before


def test_a_request_for_more_than_its_own_limit_is_told_so(make):
    engine = make(2)
    assert engine.ask("t1", 3) == ["exceeds_limit", 2]
    assert engine.client.keys() == []


def test_a_smaller_limit_rings_the_head_that_became_impossible_out_of_the_line(make, listening):
    engine = make(4)
    inbox = listening("large")
    listening("small")
    engine.ask("held")
    engine.ask("large", 4)
    engine.ask("small")
    assert engine.resize(2) == ["resized", 0]
    assert grants(inbox, 1) == [("large", 0, 0)]
    assert sorted(engine.holders()) == ["held", "small"]
    assert engine.queue() == []
    assert engine.record("large") is None
    before = engine.dump()
    assert engine.ask("large", 4) == ["exceeds_limit", 2]
    assert engine.dump() == before


def test_a_request_further_behind_that_became_impossible_is_rung_out_when_its_turn_comes(make, listening):
    engine = make(4)
    inboxes = listening("first", "large", "last")
    engine.ask("held", 4)
    for token, weight in (("first", 2), ("large", 3), ("last", 1)):
        engine.ask(token, weight)
    engine.resize(2)
    assert engine.queue() == ["first", "large", "last"]
    engine.release("held")
    assert engine.queue() == ["large", "last"]
    engine.release("first")
    rings = grants(inboxes, 3)
    assert [token for token, *_ in rings] == ["first", "large", "last"]
    assert [fence > 0 for _, fence, _ in rings] == [True, False, True]
    assert engine.holders() == ["last"]


def test_a_waiter_that_became_impossible_and_asks_before_its_turn_leaves_the_line(make, listening):
    engine = make(4)
    listening("first", "large", "last")
    engine.ask("held", 4)
    for token, weight in (("first", 2), ("large", 3), ("last", 1)):
        engine.ask(token, weight)
    engine.resize(2)
    assert engine.ask("large", 3) == ["exceeds_limit", 2]
    assert engine.queue() == ["first", "last"]
    assert engine.record("large") is None
    before = engine.dump()
    assert engine.ask("large", 3) == ["exceeds_limit", 2]
    assert engine.dump() == before


def test_a_waiter_that_became_impossible_and_leaves_lets_those_behind_it_in(make, listening):
    engine = make(4)
    listening("first", "large", "last")
    engine.ask("held", 4)
    for token, weight in (("first", 2), ("large", 3), ("last", 1)):
        engine.ask(token, weight)
    engine.resize(2)
    engine.end_wait("first")
    engine.end_lease("held")
    assert engine.ask("large", 3) == ["exceeds_limit", 2]
    assert engine.holders() == ["last"]
    assert engine.queue() == []


def test_a_larger_limit_lets_in_who_fits_in_their_order_and_at_once(make, listening):
    engine = make(2)
    inboxes = listening("a", "b", "c", "d")
    engine.ask("held", 2)
    for token, weight in (("a", 1), ("b", 2), ("c", 2), ("d", 1)):
        engine.ask(token, weight)
    assert engine.resize(5) == ["resized", 0]
    assert [token for token, *_ in grants(inboxes, 2)] == ["a", "b"]
    assert sorted(engine.holders()) == ["a", "b", "held"]
    assert engine.queue() == ["c", "d"]
    assert engine.inspect()[3:7] == [5, 5, 3, 2]


def test_a_smaller_limit_throws_nobody_out_and_lets_nobody_in_until_enough_came_back(make, listening):
    engine = make(4)
    listening("next")
    for token in ("a", "b", "c", "d"):
        engine.ask(token)
    engine.ask("next")
    assert engine.resize(2) == ["resized", 0]
    assert engine.holders() == ["a", "b", "c", "d"]
    assert engine.renew("a")[0] == "renewed"
    assert engine.ask("b")[0] == "granted"
    for token in ("a", "b"):
        assert engine.release(token) == ["released", 0]
        assert engine.queue() == ["next"]
    assert engine.ask("try", wait=0)[0] == "busy"
    engine.release("c")
    assert engine.holders() == ["d", "next"]


def test_what_is_set_counts_for_everybody_until_it_is_forgotten(make, listening):
    engine = make(2)
    listening("c")
    engine.resize(3)
    assert engine.ask("a", limit=1)[0] == "granted"
    assert engine.ask("b", limit=1)[0] == "granted"
    assert engine.ask("big", 4, limit=9) == ["exceeds_limit", 3]
    assert engine.ask("c", 2, limit=9)[0] == "queued"
    assert engine.resize(0) == ["resized", 0]
    assert sorted(engine.holders()) == ["a", "b", "c"]
    assert engine.inspect()[3] == 0
    assert engine.ask("d", limit=4, wait=0)[0] == "busy"
    assert engine.ask("d", limit=5, wait=0)[0] == "granted"


def test_to_set_twice_is_to_set_once_and_the_last_to_arrive_counts(make):
    engine = make(1)
    engine.ask("t1")
    for limit in (4, 0):
        engine.resize(limit)
        before = engine.dump()
        assert engine.resize(limit) == ["resized", 0]
        assert engine.dump() == before
    for limit in (4, 2, 4):
        assert engine.resize(limit) == ["resized", 0]
        assert engine.inspect()[3] == limit


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "lower"])
def test_what_is_given_back_goes_to_the_line_within_the_limit_that_is_set(make, listening, verb):
    engine = make(4)
    listening("next")
    _, fence, _ = engine.ask("first", 3 if verb == "lower" else 2)
    engine.ask("second", 1 if verb == "lower" else 2)
    engine.ask("next", 2)
    engine.resize(3)
    {
        "release": lambda: engine.release("first"),
        "cancel": lambda: engine.cancel("first"),
        "revoke": lambda: engine.revoke(fence),
        "lower": lambda: engine.lower("first", 1),
    }[verb]()
    assert engine.field("used") == "2"
    assert engine.queue() == ["next"]
    engine.release("second")
    assert "next" in engine.holders()


def test_a_larger_limit_lets_a_crowd_in_a_hundred_a_call(make, listening):
    crowd = [f"t{number:03}" for number in range(150)]
    engine = make(1)
    listening(*crowd)
    engine.ask("held")
    for token in crowd:
        engine.ask(token)
    assert engine.resize(1000) == ["resized", 1]
    assert engine.resize(1000) == ["resized", 0]
    assert engine.field("used") == "151"


def test_a_limit_of_a_name_that_nobody_uses_is_there_for_30_days(make):
    engine = make(1)
    assert engine.resize(7) == ["resized", 0]
    assert engine.client.keys() == [engine.key("tokens")]
    assert 30 * DAY_MS <= engine.client.pttl(engine.key("tokens")) <= 31 * DAY_MS


@pytest.mark.parametrize("queued", [False, True])
def test_each_use_puts_the_end_of_a_limit_off(make, queued):
    engine = make(1)
    engine.ask("t0")
    engine.resize(1 if queued else 2)
    tokens = engine.key("tokens")
    engine.client.pexpire(tokens, 2 * 3_600_000)
    assert engine.ask("t1", ttl=1000)[0] == ("queued" if queued else "granted")
    assert engine.client.pttl(tokens) >= 30 * DAY_MS


def test_a_renewal_puts_the_end_of_a_limit_off(make):
    engine = make(4)
    engine.resize(3)
    engine.ask("t1", 2)
    tokens = engine.key("tokens")
    engine.client.pexpire(tokens, 2 * 3_600_000)
    engine.renew("t1")
    assert engine.client.pttl(tokens) >= 30 * DAY_MS


def test_a_name_without_a_limit_of_its_own_is_forgotten_after_an_hour(make):
    engine = make(1)
    engine.ask("t1", ttl=1000)
    assert 3_600_000 <= engine.client.pttl(engine.key("tokens")) <= 2 * 3_600_000


# --- limits on which clients disagree


def test_each_request_counts_by_its_own_limit(make):
    engine = make(4)
    assert engine.ask("a", 3)[0] == "granted"
    assert engine.ask("b", 2, limit=4, wait=0)[0] == "busy"
    assert engine.ask("b", 2, limit=6, wait=0)[0] == "granted"
    assert engine.ask("c", 1, limit=4, wait=0)[0] == "busy"
    assert engine.ask("c", 1, limit=6, wait=0)[0] == "granted"
    assert engine.ask("d", 1, limit=6, wait=0)[0] == "busy"


def test_a_request_with_a_small_limit_is_not_passed_by_those_with_larger_ones(make, listening):
    engine = make(4)
    listening("small", "large")
    engine.ask("held", 2)
    assert engine.ask("small", 1, limit=2)[0] == "queued"
    assert engine.ask("large", 1, limit=6)[::2] == ["queued", 1]
    assert engine.ask("try", 1, limit=6, wait=0)[0] == "busy"
    engine.release("held")
    assert engine.holders() == ["large", "small"]


@pytest.mark.parametrize(("first", "second"), [(2, 6), (6, 2), (3, 3)])
def test_a_release_lets_in_all_who_fit_by_their_own_limits(make, listening, first, second):
    engine = make(4)
    listening("first", "second")
    engine.ask("held", 4)
    engine.ask("first", 2, limit=first)
    engine.ask("second", 1, limit=second)
    engine.release("held")
    assert engine.holders() == (["first"] if second < 2 + 1 else ["first", "second"])


def test_a_dead_head_that_counts_by_a_small_limit_does_not_hold_up_those_with_larger_ones(make, raw, listening):
    engine = make(5)
    head = listening("head")
    listening("alive")
    engine.ask("held", 2)
    engine.ask("head", limit=2)
    assert engine.ask("alive")[0] == "queued"
    hang_up(raw, head, "head")
    assert engine.ask("alive")[0] == "granted"
    assert engine.record("head") is None


# --- leases and records that get lost


def test_a_grant_that_nobody_hears_is_not_counted(make):
    engine = make(2)
    engine.ask("held")
    engine.ask("extra")
    engine.ask("dead")
    engine.release("extra")
    assert (engine.holders(), engine.queue(), engine.field("used")) == (["held"], [], "1")


def test_a_release_of_what_an_older_state_has_in_line_lets_those_behind_it_in(make, listening):
    engine = make(2)
    listening("behind")
    engine.ask("held")
    engine.ask("back", 2)
    engine.ask("behind")
    assert engine.release("back") == ["lost"]
    assert sorted(engine.holders()) == ["behind", "held"]
    assert engine.field("used") == "2"


@pytest.mark.parametrize("answer", ["busy", "full", "exceeds_limit"])
def test_a_token_whose_lease_is_over_and_that_is_turned_away_leaves_no_record(make, answer):
    engine = make(2)
    engine.ask("t1")
    engine.ask("t2")
    if answer == "full":
        engine.ask("line", 2)
    if answer == "exceeds_limit":
        engine.resize(1)
    engine.end_lease("t2")
    reply = engine.ask("t2", 2, **({"wait": 0} if answer == "busy" else {"max_waiters": 1}))
    assert reply[0] == answer
    assert engine.holders() == ["t1"]
    assert engine.record("t2") is None
    assert engine.field("used") == "1"


def test_what_was_lowered_is_counted_out_by_what_is_left_of_it(rw, listening):
    listening("w2")
    rw.ask("w", MAX_PERMITS)
    rw.lower("w", 1)
    rw.ask("r")
    rw.ask("w2", MAX_PERMITS)
    rw.end_lease("w")
    assert rw.ask("w2", MAX_PERMITS)[0] == "queued"
    assert rw.field("used") == "1"
    rw.release("r")
    assert rw.holders() == ["w2"]
    assert rw.field("used") == str(MAX_PERMITS)


@pytest.mark.parametrize("part", ["holders", "queue", "tokens", "tombstones"])
@pytest.mark.parametrize("verb", ["lower", "resize", "forget", "release", "cancel"])
def test_losing_any_one_key_lets_nobody_in_beside_a_writer(rw, listening, part, verb):
    """But for that of the holders, whose loss is an unlock: nothing can tell."""
    listening("r1", "w2")
    rw.ask("w", MAX_PERMITS)
    rw.ask("r1")
    rw.ask("w2", MAX_PERMITS)
    rw.client.delete(rw.key(part))
    if verb == "lower":
        lowered = rw.lower("w", 1)
        assert lowered == (["lowered", 0] if part in ("queue", "tombstones") else ["lost"])
    elif verb in ("resize", "forget"):
        rw.resize(MAX_PERMITS if verb == "resize" else 0)
    elif verb == "release":
        assert rw.release("w") == (["lost"] if part == "holders" else ["released", 0])
    else:
        rw.cancel("r1")
    rw.ask("n1", wait=0)
    rw.ask("n2", MAX_PERMITS, wait=0)
    weights = {token: int((rw.record(token) or "0").split()[0]) for token in rw.holders()}
    assert sum(weights.values()) <= MAX_PERMITS
    if "w" in weights and not (verb == "lower" and lowered == ["lowered", 0]):
        assert list(weights) == ["w"]
    for token in ("w", "r1", "w2", "n1", "n2"):
        rw.cancel(token)
    assert rw.ask("last", MAX_PERMITS, wait=0)[0] == "granted"


# --- out of memory


def test_at_maxmemory_a_limit_is_not_set_but_forgotten(make, listening, raw):
    engine = make(2)
    listening("next")
    engine.ask("held", 2)
    engine.ask("next")
    engine.resize(1)
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
        engine.resize(4)
    assert engine.dump() == before
    assert engine.resize(0) == ["resized", 0]
    assert engine.field("limit") is None
    engine.release("held")
    assert engine.holders() == ["next"]


def test_at_maxmemory_a_lease_is_lowered_and_the_rest_handed_over(rw, listening, raw):
    listening("r1", "r2", "w2")
    rw.ask("w", MAX_PERMITS)
    for token in ("r1", "r2", "w2"):
        rw.ask(token, MAX_PERMITS if token == "w2" else 1)
    raw.config_set("maxmemory", 1)
    assert rw.lower("w", 1) == ["lowered", 0]
    assert sorted(rw.holders()) == ["r1", "r2", "w"]
    for token in ("w", "r1", "r2"):
        assert rw.release(token) == ["released", 0]
    assert rw.holders() == ["w2"]


@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize("wait", [0, 60_000])
def test_at_maxmemory_no_request_slips_in_where_something_is_free_or_over(make, listening, raw, weight, wait):
    engine = make(4)
    listening("line")
    engine.ask("a")
    engine.ask("b")
    engine.ask("line", 3)
    engine.end_lease("a")
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    for token in ("new", "a"):
        with pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
            engine.ask(token, weight, wait=wait)
    assert engine.dump() == before
    assert engine.ask("line", 3)[0] == "granted"


# --- in the middle of a script

STEPS = {
    "acquire": ("acquire", {"token": "new", "weight": 2}),
    "acquire again after the lease": ("acquire", {"token": "b", "weight": 1}),
    "try": ("acquire", {"token": "new", "weight": 1, "wait_ms": 0}),
    "release": ("release", {"token": "a"}),
    "release of what is lost": ("release", {"token": "unknown"}),
    "release of what waits": ("release", {"token": "large"}),
    "cancel": ("cancel", {"token": "a"}),
    "lower": ("lower", {"token": "a", "weight": 1}),
    "resize": ("resize", {"limit": 6}),
    "revoke": ("revoke", {"up_to_fence": 1 << 52, "reason": "test", "from": "-inf"}),
}


@pytest.mark.parametrize("step", STEPS)
def test_wherever_a_script_is_cut_off_no_permit_is_out_twice_and_none_is_lost(make, raw, listening, step):
    """Invariant 12. A count may be too high while the name is in use, never too low."""
    listening("new", "w1", "w2", "large")
    verb, special = STEPS[step]
    script = load(f"permit_{verb}")
    engine = make(4)
    for token, weight in (("a", 2), ("b", 1), ("c", 1), ("dead", 2), ("w1", 1), ("large", 4), ("w2", 2)):
        engine.ask(token, weight)
    engine.end_lease("b")
    engine.end_lease("c")
    parts = ("holders", "queue", "tokens")
    for part in parts:
        raw.copy(engine.key(part), f"{engine.key(part)}:before")
    done, calls = False, 0
    while not done:
        raw.delete(engine.key("tombstones"))
        for part in parts:
            raw.copy(f"{engine.key(part)}:before", engine.key(part), replace=True)
        usual = {"limit": 4, "ttl_ms": 30_000, "claim_ms": 30_000, "wait_ms": 60_000, "max_waiters": 100}
        args = usual | {"owner": f"inbox:{special.get('token')} control me"} | special
        keys = [engine.key(part) for part in script.header.keys if part != "more"]
        argv = [args[name] for name in script.header.args]
        done = runs_through(raw, script.source, keys, argv, calls)
        books_are_safe(engine)
        raw.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        books_are_safe(engine)
        for token in ("a", "b", "c", "dead", "w1", "large", "w2", "new"):
            engine.cancel(token)
        assert engine.holders() == engine.queue() == []
        assert set(raw.hkeys(engine.key("tokens"))) <= {"used", "fence", "limit"}
        assert engine.ask("last", int(engine.field("limit") or 4), wait=0)[0] == "granted"
        calls += 1
    assert calls > 8


def books_are_safe(engine):
    now_us = engine.inspect()[1]
    holders = dict(engine.client.zrange(engine.key("holders"), 0, -1, withscores=True))
    weights = {token: int(engine.record(token).split()[0]) for token in holders}
    live = sum(weight for token, weight in weights.items() if holders[token] > now_us)
    assert live <= max(4, int(engine.field("limit") or 0))
    if holders:
        assert int(engine.field("used")) >= sum(weights.values())


# --- revoking a crowd


def crowd_of_holders(engine, count, *, fence, ends_us):
    """Holders of one permit each, as if they had been granted with that fence, a microsecond after another."""
    tokens = [f"{fence}:{number}" for number in range(count)]
    record = f"1 {MAX_PERMITS} 30000 0 {fence} 1 inbox home me"
    engine.client.hset(engine.key("tokens"), mapping=dict.fromkeys(tokens, record))
    engine.client.zadd(engine.key("holders"), {token: ends_us + number for number, token in enumerate(tokens)})
    engine.client.hincrby(engine.key("tokens"), "used", count)
    for part in ("tokens", "holders"):
        engine.client.pexpire(engine.key(part), DAY_MS)


def revoke_all(engine, up_to_fence):
    """How many each call took, until there was no more to do."""
    counts, more, start = [], 1, "-inf"
    while more:
        _, count, more = engine.revoke(up_to_fence, start=start)
        counts.append(count)
        start = engine.next_start
    return counts


def test_a_crowd_is_revoked_step_by_step(rw):
    now_us = rw.inspect()[1]
    crowd_of_holders(rw, 2300, fence=5, ends_us=now_us + 10**9)
    crowd_of_holders(rw, 150, fence=7, ends_us=now_us + 10**8)
    assert revoke_all(rw, 5) == [850, 1000, 450]
    assert len(rw.holders()) == 150
    assert rw.field("used") == "150"
    assert revoke_all(rw, 5) == [0]


def test_a_lease_behind_a_crowd_of_newer_ones_is_revoked(rw):
    now_us = rw.inspect()[1]
    crowd_of_holders(rw, 1500, fence=7, ends_us=now_us + 10**9)
    crowd_of_holders(rw, 1, fence=5, ends_us=now_us + 2 * 10**9)
    assert sum(revoke_all(rw, 5)) == 1
    assert len(rw.holders()) == 1500


# --- numbers


def test_large_numbers_keep_all_their_digits(raw, listening):
    engine = Weighted(raw, limit=MAX_PERMITS, kind="rwlock")
    listening("second")
    year_ms = 366 * DAY_MS
    _, fence, lease_us = engine.ask("first", MAX_PERMITS - 1, ttl=year_ms, claim=year_ms)
    assert lease_us == year_ms * 1000
    assert engine.ask("second", 2, ttl=year_ms, claim=year_ms)[0] == "queued"
    raw.hset(engine.key("tokens"), "fence", fence + 10**15 + 1)  # as after the clock stepped back by 30 years
    assert engine.lower("first", MAX_PERMITS - 2) == ["lowered", 0]
    assert sorted(engine.holders()) == ["first", "second"]
    assert engine.field("used") == str(MAX_PERMITS)
    assert engine.field("fence") == str(fence + 10**15 + 2)
    assert engine.ask("first", MAX_PERMITS)[1] == fence
    assert engine.ask("second", 2)[1] == fence + 10**15 + 2
    for token, weight in (("first", MAX_PERMITS - 2), ("second", 2)):
        assert engine.record(token).startswith(f"{weight} {MAX_PERMITS} {year_ms} 0 ")
        assert engine.client.zscore(engine.key("holders"), token) > fence + year_ms * 1000 - 1
    assert engine.client.pttl(engine.key("tokens")) > year_ms
    assert engine.inspect()[4] == MAX_PERMITS


def test_inspect_counts_what_is_over_as_free_and_changes_nothing(make):
    engine = make(6)
    engine.ask("a", 3)
    engine.ask("b", 2)
    engine.end_lease("a")
    engine.resize(0)
    engine.ask("c", 4)
    engine.end_lease("b")
    before = engine.dump()
    assert engine.inspect()[3:7] == [0, 4, 1, 0]
    engine.client.hdel(engine.key("tokens"), "used")
    assert engine.inspect()[3:7] == [0, -1, 1, 0]
    engine.end_lease("c")
    assert engine.inspect()[3:7] == [0, 0, 0, 0]
    engine.client.hset(engine.key("tokens"), "used", before["tokens"]["used"])
    assert engine.dump()["tokens"] == before["tokens"]


def test_a_limit_that_an_operator_has_set_outlives_a_name_that_begins_afresh(raw):
    engine = Engine(raw, limit=4, kind="semaphore")
    engine.run("resize", limit=2)
    engine.acquire("a", weight=2)
    raw.delete(engine.key("holders"))  # as if it had crashed two hours ago
    assert engine.acquire("b")[0] == "granted"
    assert set(raw.hkeys(engine.key("tokens"))) == {"b", "used", "fence", "limit"}
    assert engine.acquire("c", weight=3)[0] == "exceeds_limit"
