"""The scripts for several locks at once: each alone on a real server, and random walks with bundles and single locks."""

from __future__ import annotations

import random
import time

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from tests._support.helpers import TTL_MS, WAIT_MS, Engine, eventually, runs_through, slow_only

OVER_US = 2_000
"""How long a test waits for leases of a millisecond to be over."""


class Several:
    """The scripts of several names, called by the words of their headers."""

    def __init__(self, client, names):
        self.client = client
        self.names = names
        self.engines = [Engine(client, name) for name in names]

    def run(self, verb, **args):
        script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
        keys = [engine.key(part) for engine in self.engines for part in PARTS]
        argv = [args.pop(name) for name in script.header.args]
        assert not args
        reply = self.client.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert reply[0] in script.header.replies
        assert len(reply) == 1 + len(script.header.replies[reply[0]])
        return reply

    def acquire(self, token, *, ttl=TTL_MS, wait=WAIT_MS, inbox=None, max_waiters=1000):
        owner = f"{inbox or 'inbox:' + token} control:{token} me"
        return self.run("acquire", token=token, ttl_ms=ttl, wait_ms=wait, max_waiters=max_waiters, owner=owner)

    def release(self, token):
        return self.run("release", token=token)

    def cancel(self, token):
        return self.run("cancel", token=token)

    def renew(self, token, ttl=TTL_MS):
        return self.run("renew", token=token, ttl_ms=ttl)

    def holders(self):
        return [engine.holders() for engine in self.engines]

    def queues(self):
        return [engine.queue() for engine in self.engines]

    def fences(self, token):
        """What the records say."""
        return [int(self.client.hget(engine.key("tokens"), token).split()[4]) for engine in self.engines]

    def dump(self):
        return [engine.dump() for engine in self.engines]


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


@pytest.fixture
def a(raw):
    return Engine(raw, "a")


@pytest.fixture
def b(raw):
    return Engine(raw, "b")


@pytest.fixture
def both(raw):
    return Several(raw, ["a", "b"])


def heard(pubsub):
    """The next ring, as words, without the time in it."""
    kind, token, *rest = eventually(lambda: pubsub.get_message(timeout=1))["data"].split()
    return (kind, token, rest[0], rest[2]) if kind == "granted" else (kind, token, *rest)


def silent(pubsub):
    """Whether nothing rang."""
    return pubsub.get_message(timeout=0.05) is None


def over(engine):
    """Wait until the leases of a millisecond are over."""
    start = engine.inspect()[1]
    eventually(lambda: engine.inspect()[1] - start > OVER_US)


def lapse(engine, *tokens):
    """Let the wait-lease of waiters be over, without waiting for it."""
    for token in tokens:
        words = engine.client.hget(engine.key("tokens"), token).split(" ")
        engine.client.hset(engine.key("tokens"), token, " ".join([*words[:3], "1", *words[4:]]))


# --- acquire


def test_free_names_are_granted_at_once_with_one_fence_above_all_that_they_had(raw, both, a, b):
    a.acquire("t1")
    a.release("t1")
    raw.hset(b.key("tokens"), "fence", "3000000000000000")
    raw.pexpire(b.key("tokens"), 60_000)
    tag, fence, lease_us = both.acquire("t2", ttl=5000)
    assert (tag, fence, lease_us) == ("granted", 3_000_000_000_000_001, 5_000_000)
    assert both.holders() == [["t2"], ["t2"]]
    assert both.queues() == [[], []]
    assert both.fences("t2") == [fence, fence]
    assert [engine.inspect()[2] for engine in (a, b)] == [fence, fence]


def test_acquire_twice_is_the_same_grant_and_changes_nothing(both):
    _, fence, lease_us = both.acquire("t1")
    before = both.dump()
    tag, again, left_us = both.acquire("t1")
    assert (tag, again) == ("granted", fence)
    assert 0 < left_us <= lease_us
    assert both.dump() == before


def test_a_bundle_that_waits_stands_in_every_line_and_holds_nothing(both, a, b, listening):
    listening("t2", "t3", "t4")
    a.acquire("t1", ttl=5000)
    tag, now_us, position, retry_us = both.acquire("t2")
    assert (tag, position) == ("queued", 0)
    assert 0 < retry_us <= 5_000_000
    assert now_us > 0
    assert both.holders() == [["t1"], []]
    assert both.queues() == [["t2"], ["t2"]]
    assert b.acquire("t3", wait=0) == ["busy", -1]
    assert b.acquire("t3")[:3:2] == ["queued", 1]
    assert both.acquire("t4")[2] == 1, "the last place of all its places counts"
    before = both.queues()
    assert both.acquire("t2")[2] == 0
    assert both.queues() == before == [["t2", "t4"], ["t2", "t3", "t4"]]


def test_a_try_leaves_nothing_behind(both, a, listening):
    listening("t2")
    a.acquire("t1")
    before = both.dump()
    tag, retry_us = both.acquire("t2", wait=0)
    assert tag == "busy"
    assert 0 < retry_us <= TTL_MS * 1000
    assert both.dump() == before
    a.acquire("t3")
    a.cancel("t3")
    before = both.dump()
    assert both.acquire("t2", wait=0)[0] == "busy"
    assert both.dump() == before


def test_a_line_that_is_full_takes_no_more_and_nothing_is_left_in_the_others(both, a, b):
    a.acquire("t1")
    both.acquire("t2", max_waiters=1)
    before = both.dump()
    assert both.acquire("t3", max_waiters=1) == ["full", 1]
    assert both.dump() == before
    assert both.acquire("t2", max_waiters=1)[0] == "queued"
    assert Several(b.client, ["c", "b"]).acquire("t3", max_waiters=1) == ["full", 1]
    assert Engine(b.client, "c").queue() == []


def test_a_waiter_with_a_part_of_its_places_is_never_told_that_a_line_is_full(both, a, b, listening):
    listening("t2", "t3", "t4")
    a.acquire("t1")
    both.acquire("t2", max_waiters=1)
    lapse(b, "t2")
    b.acquire("t3")
    b.acquire("t4")
    assert both.queues() == [["t2"], ["t4"]]
    assert both.acquire("t2", max_waiters=1)[0] == "queued"
    assert both.queues() == [["t2"], ["t4", "t2"]]


def test_a_line_full_of_waiters_that_lapsed_has_room(both, a, listening):
    listening("lapsed")
    a.acquire("t1")
    a.acquire("lapsed")
    lapse(a, "lapsed")
    assert both.acquire("t2", max_waiters=1)[0] == "queued"
    assert both.acquire("t3", max_waiters=1) == ["full", 1]


def test_all_leases_that_are_over_are_swept_up_by_the_request(both, a, b):
    a.acquire("t1", ttl=1)
    b.acquire("t2", ttl=1)
    over(a)
    tag, fence, _ = both.acquire("t3", wait=0)
    assert tag == "granted"
    assert both.holders() == [["t3"], ["t3"]]
    assert both.fences("t3") == [fence, fence]
    assert [set(raw) for raw in (a.dump()["tokens"], b.dump()["tokens"])] == [{"t3", "used", "fence"}] * 2


def test_a_bundle_whose_lease_is_over_may_ask_afresh(both):
    _, first, _ = both.acquire("t1", ttl=1)
    tag, fence, _ = eventually(lambda: (reply := both.acquire("t1"))[1] != first and reply)
    assert tag == "granted"
    assert fence > first
    assert [raw["tokens"]["used"] for raw in both.dump()] == ["1", "1"]


def test_an_acquire_that_arrives_after_its_end_changes_nothing(both):
    for verb in ("release", "cancel"):
        both.acquire(verb)
        getattr(both, verb)(verb)
        before = both.dump()
        assert both.acquire(verb) == ["finished"]
        assert both.dump() == before


def test_an_acquire_that_arrives_after_its_cancel_though_never_seen_before_changes_nothing(both):
    assert both.cancel("t1") == ["cancelled", 0]
    assert both.acquire("t1") == ["finished"]
    assert both.holders() == both.queues() == [[], []]


def test_an_acquire_that_arrives_after_the_release_of_what_was_left_changes_nothing(both, a):
    both.acquire("t1")
    a.revoke(a.inspect()[2])
    assert both.release("t1") == ["lost"]
    assert both.acquire("t1") == ["finished"]
    assert both.holders() == both.queues() == [[], []]


def test_a_dead_head_that_was_skipped_does_not_split_the_fence(both, a):
    a.acquire("t1")
    a.acquire("dead1")
    a.acquire("dead2")
    a.client.delete(a.key("holders"))
    tag, fence, _ = both.acquire("t2")
    assert tag == "granted"
    assert both.fences("t2") == [fence, fence]
    assert both.acquire("t2")[:2] == ["granted", fence]


def test_one_who_lost_a_name_before_it_heard_of_its_grant_gets_all_or_waits_for_all(both, a, b, listening):
    _, first, _ = both.acquire("t1")
    a.revoke(a.inspect()[2])
    tag, fence, _ = both.acquire("t1")
    assert tag == "granted"
    assert fence > first
    assert both.fences("t1") == [fence, fence]

    listening("t2", "t3")
    b.acquire("t3")
    a.revoke(a.inspect()[2])
    a.acquire("t2")
    assert both.acquire("t1")[0] == "queued"
    assert both.holders() == [["t2"], ["t3"]], "what it still had went to those who waited for it"
    assert both.queues() == [["t1"], ["t1"]]


# --- handing over


def test_a_head_that_wants_several_is_rung_when_its_line_is_free_and_takes_all_at_once(both, a, b, listening):
    inbox = listening("t3")
    a.acquire("t1")
    b.acquire("t2")
    assert both.acquire("t3")[0] == "queued"
    assert a.release("t1") == ["released", 0]
    assert heard(inbox) == ("granted", "t3", "0", "0")
    assert both.holders() == [[], ["t2"]], "nothing is handed over to it"
    assert a.acquire("t4", wait=0)[0] == "busy", "and nobody passes it"
    assert both.acquire("t3")[0] == "queued"
    assert b.release("t2") == ["released", 0]
    assert heard(inbox) == ("granted", "t3", "0", "0")
    tag, fence, _ = both.acquire("t3")
    assert tag == "granted"
    assert both.holders() == [["t3"], ["t3"]]
    assert both.fences("t3") == [fence, fence]


def test_whoever_is_rung_is_not_rung_again_until_it_has_come(both, a, b, listening):
    inbox = listening("t2")
    a.acquire("t1")
    both.acquire("t2")
    a.release("t1")
    assert heard(inbox)[0] == "granted"
    for _ in range(3):
        a.acquire("t3")
    assert silent(inbox)


def test_a_release_hands_each_name_to_the_head_of_its_line(raw, both, a, b, listening):
    inbox = listening("t2", "t3")
    both.acquire("t1")
    a.acquire("t2")
    Several(raw, ["b", "c"]).acquire("t3")
    assert both.release("t1") == ["released", 0]
    assert both.holders() == [["t2"], []]
    assert {heard(inbox)[1:] for _ in range(2)} == {("t2", str(a.inspect()[2]), f"{TTL_MS}000"), ("t3", "0", "0")}


def test_a_bundle_that_nobody_hears_is_skipped_where_its_line_is_free(both, a, b, listening):
    listening("t4")
    a.acquire("t1")
    both.acquire("dead")
    b.acquire("t4")
    assert b.holders() == ["t4"]
    assert both.queues() == [["dead"], []]
    assert not b.client.hexists(b.key("tokens"), "dead")


def test_a_bundle_that_dies_after_it_was_rung_is_skipped_at_once(both, a, b, listening):
    inbox = listening("t2")
    listening("t3")
    a.acquire("t1")
    b.acquire("t0")
    both.acquire("t2")
    a.acquire("t3")
    a.release("t1")
    assert heard(inbox)[0] == "granted"
    inbox.close()
    eventually(lambda: not a.client.pubsub_numsub("inbox:t2")[0][1])
    assert a.acquire("t3")[0] == "granted"


def test_a_dead_bundle_does_not_keep_those_behind_it_waiting(raw, both, a, b, listening):
    listening("t3", "t4")
    a.acquire("t1")
    b.acquire("t2")
    both.acquire("dead")
    both.acquire("t3")
    a.acquire("t4")
    a.release("t1")
    b.release("t2")
    assert both.queues() == [["t3", "t4"], ["t3"]]
    assert both.acquire("t3")[0] == "granted"
    both.release("t3")
    assert both.holders() == [["t4"], []]


def test_a_bundle_whose_wait_lease_lapsed_is_skipped_though_its_inbox_is_there(both, a, b, listening):
    listening("silent", "t3")
    a.acquire("t1")
    both.acquire("silent")
    both.acquire("t3")
    lapse(a, "silent")
    lapse(b, "silent")
    a.release("t1")
    assert both.queues() == [["t3"], ["silent", "t3"]]
    assert both.acquire("t3")[0] == "granted"


def test_a_bundle_that_was_dropped_from_one_line_begins_again_in_all(both, a, b, listening):
    listening("slow", "t2", "t3")
    a.acquire("t1")
    both.acquire("slow")
    both.acquire("t2")
    lapse(b, "slow")
    assert b.acquire("t3", wait=0)[0] == "busy"
    assert both.queues() == [["slow", "t2"], ["t2"]]
    assert both.acquire("slow")[0] == "queued"
    assert both.queues() == [["t2", "slow"], ["t2", "slow"]], "else the two would stand in two different orders"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_bundles_in_a_circle_are_all_served_whoever_asks_first(raw, listening, first):
    listening("t0", "t1", "t2")
    bundles = [Several(raw, names) for names in (["a", "b"], ["b", "c"], ["c", "a"])]
    Several(raw, ["c", "b", "a"]).acquire("all")
    for number in range(3):
        assert bundles[number].acquire(f"t{number}")[0] == "queued"
    Several(raw, ["b", "a", "c"]).release("all")
    served = []
    for turn in range(3):
        for number in ((first + turn) % 3, (first + turn + 1) % 3, (first + turn + 2) % 3):
            if number not in served and bundles[number].acquire(f"t{number}")[0] == "granted":
                served.append(number)
                assert bundles[number].release(f"t{number}")[0] == "released"
    assert served == [0, 1, 2]


def test_more_than_a_hundred_dead_waiters_take_more_than_one_call(both, a, b):
    for engine in (a, b):
        both.acquire("t1")
        for number in range(150):
            engine.acquire(f"dead{number}")
        assert both.release("t1") == ["released", 1]
        assert both.release("t1") == ["released", 0]
        assert both.holders() == both.queues() == [[], []]
        for other in (a, b):
            other.client.delete(other.key("tombstones"))


def test_more_than_a_hundred_dead_waiters_before_it_are_thrown_out_step_by_step(both, a, b):
    a.acquire("t1")
    for number in range(150):
        a.acquire(f"dead{number}")
    a.client.delete(a.key("holders"))
    tag, _, position, retry_us = both.acquire("t2")
    assert (tag, position, retry_us) == ("queued", 49, 0), "it is to ask again at once"
    assert both.acquire("t2")[0] == "granted"


def test_a_waiter_that_connects_anew_keeps_its_place_while_the_lock_is_held(both, a, listening):
    gone = listening("t2")
    listening("t3", "t4")
    a.acquire("t1")
    for token in ("t2", "t3", "t4"):
        a.acquire(token)
    gone.close()
    eventually(lambda: not a.client.pubsub_numsub("inbox:t2")[0][1])
    a.cancel("t4")
    both.acquire("t5", wait=0)
    both.acquire("t6")
    assert a.queue() == ["t2", "t3", "t6"], "nothing is free, so nobody loses anything by its staying"


# --- release, renew, cancel


def test_release_twice_is_still_released(both):
    both.acquire("t1")
    assert both.release("t1") == ["released", 0]
    before = both.dump()
    assert both.release("t1") == ["released", 0]
    assert both.dump() == before


def test_a_release_of_what_is_lost_is_lost_twice_and_no_late_copy_of_its_acquire_is_granted(both, a):
    a.acquire("t1")
    assert [both.release("t2"), both.release("t2")] == [["lost"], ["lost"]]
    a.release("t1")
    before = both.dump()
    assert both.acquire("t2") == ["finished"]
    assert both.dump() == before


def test_a_release_of_what_an_older_state_has_in_line_takes_it_out(both, a, b):
    a.acquire("t1")
    both.acquire("t2")
    assert both.release("t2") == ["lost"]
    assert both.queues() == [[], []]
    assert (a.holders(), b.holders()) == (["t1"], [])


def test_a_release_of_what_an_older_state_has_in_line_lets_those_behind_it_in(both, listening, a, b):
    listening("t3")
    a.acquire("t1")
    both.acquire("t2")
    b.acquire("t3")
    assert both.release("t2") == ["lost"]
    assert (a.holders(), b.holders()) == (["t1"], ["t3"])


def test_a_release_of_what_was_lost_before_changes_nothing(both, a):
    """It does not even sweep up: whatever is to be done for the lines was done when it got lost."""
    a.acquire("over", ttl=1)
    assert both.release("lost") == ["lost"]
    eventually(lambda: a.inspect()[5] == 0)
    before = both.dump()
    assert both.release("lost") == ["lost"]
    assert both.dump() == before


@pytest.mark.parametrize("lost", [0, 1])
def test_what_is_left_of_a_lost_lease_is_given_up(both, listening, lost):
    listening("t2", "t3")
    both.acquire("t1")
    engine, rest = both.engines[lost], both.engines[1 - lost]
    engine.revoke(engine.inspect()[2])
    engine.acquire("t2")
    rest.acquire("t3")
    for _ in range(2):
        assert both.release("t1") == ["lost"]
        assert engine.holders() == ["t2"]
        assert rest.holders() == ["t3"]


def test_renew_sets_the_deadline_of_all_and_never_shortens_it(both):
    both.acquire("t1", ttl=5000)
    for ttl, least in ((20_000, 19_000_000), (20_000, 19_000_000), (1000, 19_000_000)):
        tag, lease_us = both.renew("t1", ttl)
        assert tag == "renewed"
        assert least < lease_us <= 20_000_000
    (first,), (second,) = (raw["holders"] for raw in both.dump())
    assert first == second


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lease_that_lost_a_name_is_renewed_no_more(both, lost):
    both.acquire("t1", ttl=5000)
    engine = both.engines[lost]
    engine.revoke(engine.inspect()[2])
    before = both.dump()
    assert both.renew("t1", 60_000) == ["lost"]
    assert both.dump() == before


def test_renew_brings_no_lease_back(both, a):
    both.acquire("t1", ttl=1)
    over(a)
    both.acquire("t2")
    both.release("t2")
    for token in ("t1", "t2", "nobody"):
        before = both.dump()
        assert both.renew(token) == ["lost"]
        assert both.dump() == before


def test_cancel_takes_back_every_place_and_lets_the_lines_go_on(both, a, b, listening):
    listening("t2", "t3")
    a.acquire("t1")
    both.acquire("t2")
    b.acquire("t3")
    assert both.cancel("t2") == ["cancelled", 0]
    assert both.queues() == [[], []]
    assert both.holders() == [["t1"], ["t3"]]
    assert both.cancel("t2") == ["cancelled", 0]
    assert both.holders() == [["t1"], ["t3"]]


def test_cancel_takes_back_a_grant_or_what_is_left_of_it(both, a, b, listening):
    listening("t2", "t3")
    both.acquire("t1")
    a.revoke(a.inspect()[2])
    a.acquire("t2")
    b.acquire("t3")
    assert both.cancel("t1") == ["cancelled", 0]
    assert both.holders() == [["t2"], ["t3"]]
    assert both.queues() == [[], []]


# --- keys and memory


def test_an_emptied_bundle_leaves_no_holder_no_line_and_no_records(both, a):
    a.acquire("t0")
    both.acquire("t1")
    a.release("t0")
    both.acquire("t1")
    both.release("t1")
    for raw in both.dump():
        assert raw["holders"] is raw["queue"] is None
        assert set(raw["tokens"]) <= {"used", "fence"}


@pytest.mark.parametrize("ttl", [50, 10 * 24 * 3600 * 1000])
def test_every_key_outlives_the_lease_and_dies(raw, both, a, ttl):
    a.acquire("t0", ttl=20)
    for token, times in (("t1", 2), ("t2", 3)):
        for _ in range(times):
            eventually(lambda token=token: both.acquire(token, ttl=ttl)[0] != "queued" or token == "t2")
        both.renew("t1", ttl)
    assert both.holders() == [["t1"], ["t1"]]
    for engine in both.engines:
        for part in ("holders", "tokens", "queue"):
            assert raw.pttl(engine.key(part)) >= ttl, part


def test_at_maxmemory_acquire_is_refused_and_changes_nothing_while_the_rest_works(raw, both, a, b, listening):
    listening("t2")
    both.acquire("t1")
    both.acquire("t2")
    others = Several(raw, ["c", "d"])
    raw.config_set("maxmemory", 1)
    before = both.dump()
    for bundle in (both, others, Several(raw, ["d", "a"])):
        for wait in (WAIT_MS, 0):
            with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
                bundle.acquire("t3", wait=wait)
    assert both.dump() == before
    assert all(set(found.values()) == {None} for found in others.dump())
    assert both.acquire("t1")[0] == "granted"
    assert both.acquire("t2")[0] == "queued"
    assert both.renew("t1")[0] == "renewed"
    assert both.release("t1") == ["released", 0]
    assert both.acquire("t2")[0] == "granted", "whoever is in line takes up nothing new"
    a.revoke(a.inspect()[2])
    assert both.release("t2") == ["lost"]
    assert both.holders() == [[], []]
    assert both.cancel("t4") == ["cancelled", 0]


def test_at_maxmemory_what_is_lost_is_buried_all_the_same(raw, both):
    both.acquire("t1")
    both.acquire("t2")
    raw.config_set("maxmemory", 1)
    assert both.release("late") == both.release("t2") == ["lost"]
    raw.config_set("maxmemory", 0)
    assert both.acquire("late") == both.acquire("t2") == ["finished"]


def test_at_maxmemory_an_acquire_does_not_slip_in_behind_its_own_sweeping(raw, both, a, b):
    a.acquire("t1", ttl=1)
    b.acquire("t2", ttl=1)
    over(a)
    raw.config_set("maxmemory", 1)
    before = both.dump()
    with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
        both.acquire("t3")
    assert both.dump() == before


def test_at_maxmemory_what_is_half_lost_is_not_asked_for_anew(raw, both, a):
    both.acquire("t1")
    a.revoke(a.inspect()[2])
    raw.config_set("maxmemory", 1)
    before = both.dump()
    with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
        both.acquire("t1")
    assert both.dump() == before
    assert both.cancel("t1") == ["cancelled", 0]
    assert both.holders() == [[], []]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lost", [0, 1])
def test_losing_any_one_key_never_lets_two_in_and_never_keeps_all_out(raw, both, listening, part, lost):
    listening("t2", "t3")
    both.acquire("t1")
    both.acquire("t2")
    both.engines[lost].acquire("t3")
    raw.delete(both.engines[lost].key(part))
    replies = {}
    for _ in range(6):
        for token in ("t2", "t3"):
            if replies.get(token) != "finished":
                engine = both if token == "t2" else both.engines[lost]
                replies[token] = engine.acquire(token)[0]
            assert all(len(held) <= 1 for held in both.holders())
            if replies[token] == "granted":
                assert engine.release(token)[0] == "released"
        both.release("t1")
    assert set(replies.values()) == {"finished"}, "everybody was served and is done"
    assert both.holders() == both.queues() == [[], []]


def test_a_hundred_names_are_one_call(raw, listening):
    listening("t2")
    many = Several(raw, [f"n{number}" for number in range(100)])
    tag, fence, _ = many.acquire("t1")
    assert tag == "granted"
    assert set(many.fences("t1")) == {fence}
    assert many.acquire("t2")[:3:2] == ["queued", 0]
    assert many.renew("t1")[0] == "renewed"
    assert many.release("t1") == ["released", 0]
    assert many.acquire("t2")[0] == "granted"
    assert many.cancel("t2") == ["cancelled", 0]
    assert many.holders() == many.queues() == [[]] * 100


# --- in the middle of a script


def nothing(_both, _a, _b):
    """Everything is free."""


def first_in_line(both, a, b):
    a.acquire("h")
    both.acquire("x")
    b.acquire("s")
    both.client.zadd(a.key("holders"), {"h": 1})


def half_lost(both, a, _b):
    both.acquire("x")
    a.acquire("s")
    a.revoke(1 << 52)


def held_and_wanted(both, a, _b):
    both.acquire("x")
    both.acquire("y")
    a.acquire("s")


USUAL = {"token": "x", "ttl_ms": TTL_MS, "wait_ms": WAIT_MS, "max_waiters": 1000, "owner": "inbox:x control:x me"}


@pytest.mark.parametrize(
    ("verb", "scene"),
    [
        ("acquire", nothing),
        ("acquire", first_in_line),
        ("acquire", half_lost),
        ("release", held_and_wanted),
        ("release", half_lost),
        ("cancel", held_and_wanted),
        ("cancel", first_in_line),
        ("renew", held_and_wanted),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_wherever_a_script_is_cut_off_nobody_is_in_twice_and_nothing_is_lost(
    raw, both, a, b, listening, *, verb, scene
):
    """Invariant 12: each beginning of a script leaves a state that is safe, and sent again it comes to its end."""
    listening("x", "y", "s")
    script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
    keys = [engine.key(part) for engine in both.engines for part in PARTS]
    argv = [USUAL[name] for name in script.header.args]
    done, calls = False, 0
    while not done:
        raw.flushdb()
        scene(both, a, b)
        done = runs_through(raw, script.source, keys, argv, calls)
        nobody_is_in_twice(a, b)
        reply = raw.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert verb != "acquire" or reply[0] in ("granted", "queued")
        assert verb != "acquire" or scene is not nothing or reply[0] == "granted"
        assert verb != "cancel" or reply == ["cancelled", 0]
        assert verb != "renew" or reply[0] == "renewed"
        nobody_is_in_twice(a, b)
        assert len({"x" in engine.holders() for engine in (a, b)}) == 1, "all or none"
        for token in "xy":
            both.cancel(token)
        for engine in (a, b):
            for token in "hs":
                engine.cancel(token)
            assert engine.holders() == engine.queue() == []
            assert set(raw.hkeys(engine.key("tokens"))) <= {"used", "fence"}
        assert both.acquire("last", wait=0)[0] == "granted"
        calls += 1
    assert calls > 6


def nobody_is_in_twice(*engines):
    for engine in engines:
        now_us = engine.inspect()[1]
        live = engine.client.zrangebyscore(engine.key("holders"), f"({now_us}", "+inf")
        assert len(live) <= 1
        if live:
            assert int(engine.client.hget(engine.key("tokens"), "used")) >= 1


# --- random walks

NAMES = "abcd"
KEYS = [KeySet("hf", "lock", name).key(part) for name in NAMES for part in PARTS]
STEPS = 45
ORDERS = {
    "ask": 6,
    "try": 2,
    "release": 4,
    "cancel": 2,
    "renew": 2,
    "ask again": 5,
    "revoke": 0.7,
    "sleep": 1.5,
}


class Token:
    """One request, for one name or for several."""

    def __init__(self, raw, text, names, *, alone, hears):
        self.text = text
        self.names = names
        self.alone = alone
        self.hears = hears
        self.does = Engine(raw, names[0]) if alone else Several(raw, names)
        self.over = False
        self.whole = False
        """Whether it holds all that it wants, for all that anybody did to it."""

    def ask(self, ttl, wait):
        inbox = "live" if self.hears else "dead"
        options = {"claim": min(ttl, 2000)} if self.alone else {}
        return self.does.acquire(self.text, inbox=inbox, ttl=ttl, wait=wait, **options)


LOOK = """
local clock = redis.call('TIME')
local found = {clock[1] * 1000000 + clock[2]}
for k = 1, #KEYS, 4 do
  found[#found + 1] = redis.call('ZRANGE', KEYS[k], 0, -1, 'WITHSCORES')
  found[#found + 1] = redis.call('ZRANGE', KEYS[k + 1], 0, -1)
  found[#found + 1] = redis.call('HGETALL', KEYS[k + 2])
  for part = k, k + 3 do
    found[#found + 1] = redis.call('PTTL', KEYS[part])
  end
end
return found
"""


class Look:
    """Everything that the server has of the names at one instant."""

    def __init__(self, raw):
        self.now, *found = raw.execute_command("EVAL", LOOK, len(KEYS), *KEYS)
        rows = dict(zip(NAMES, zip(*[iter(found)] * 7, strict=True), strict=True))
        self.deadlines = {
            name: dict(zip(row[0][::2], map(float, row[0][1::2]), strict=True)) for name, row in rows.items()
        }
        self.lines = {name: row[1] for name, row in rows.items()}
        self.records = {name: dict(zip(row[2][::2], row[2][1::2], strict=True)) for name, row in rows.items()}
        self.ttls = [ttl for row in rows.values() for ttl in row[3:]]

    def holders(self, name):
        """Who holds it, unless the lease is over."""
        return [token for token, deadline in self.deadlines[name].items() if deadline > self.now]

    def held_by(self, token):
        return {name for name in self.deadlines if token in self.holders(name)}

    def places_of(self, token):
        return {name for name, line in self.lines.items() if token in line}

    def record(self, name, token):
        _, _, claim_ms, wait_until, fence, *_ = self.records[name][token].split(" ")
        return int(claim_ms), int(wait_until), int(fence)


class Walk:
    """Bundles that overlap and single locks, some of whose inboxes nobody hears, and some of whom never ask again."""

    def __init__(self, raw, seed, *, losing_keys=False):
        self.raw = raw
        self.random = random.Random(seed)
        self.tokens = {}
        self.fences = dict.fromkeys(NAMES, 0)
        self.granted = {}
        self.losing_keys = losing_keys
        self.lost_a_key = False
        self.look = Look(raw)

    def step(self):
        orders = ORDERS | ({"lose a key": 0.8} if self.losing_keys else {})
        order = self.random.choices(list(orders), list(orders.values()))[0]
        if order in ("ask", "try") or not self.tokens:
            token = self.newcomer()
        else:
            token = self.random.choice(list(self.tokens.values()))
        reply = self.perform(order, token)
        self.check(order, token, reply)

    def newcomer(self):
        names = self.random.sample(NAMES, self.random.choice((1, 1, 2, 2, 2, 3)))
        alone = len(names) == 1 and self.random.random() < 0.7
        text = f"t{len(self.tokens)}"
        self.tokens[text] = Token(self.raw, text, names, alone=alone, hears=self.random.random() < 0.8)
        return self.tokens[text]

    def perform(self, order, token):
        if order in ("ask", "try", "ask again"):
            ttl, wait = self.random.choice([2, 5, 30_000, 30_000]), self.random.choice([60_000, 60_000, 60_000, 3])
            return token.ask(ttl, 0 if order == "try" else wait)
        if order == "release":
            token.over = True
            return token.does.release(token.text)
        if order == "cancel":
            token.over = True
            return token.does.cancel(token.text)
        if order == "renew":
            return token.does.renew(token.text, self.random.choice([3, 30_000]))
        if order == "revoke":
            engine = Engine(self.raw, self.random.choice(token.names))
            return engine.revoke(engine.inspect()[2])
        if order == "sleep":
            time.sleep(0.004)
        elif order == "lose a key":
            self.raw.delete(KeySet("hf", "lock", self.random.choice(NAMES)).key(self.random.choice(PARTS)))
            self.lost_a_key = True
        return [order]

    def check(self, order, token, reply):
        before, self.look = self.look, Look(self.raw)
        look = self.look
        assert -1 not in look.ttls, "a key has no TTL"
        for name in NAMES:
            assert len(look.holders(name)) <= 1, "two hold one lock"
            self.check_fence(name, look)
            if not self.lost_a_key:
                assert not set(look.deadlines[name]) & set(look.lines[name])
                assert set(look.records[name]) - {"used", "fence"} == {*look.deadlines[name], *look.lines[name]}
        for other in self.tokens.values():
            self.check_token(other, before, look, mine=other is token and order in ("ask", "try", "ask again"))
        if order in ("ask", "try", "ask again"):
            self.check_reply(token, reply, look)
        if order in ("release", "cancel") and reply[0] != "lost" and not self.lost_a_key:
            for name in token.names:
                self.check_head(name, look)

    def check_fence(self, name, look):
        """They grow with every grant."""
        for holder in look.deadlines[name]:
            if holder in look.records[name]:
                _, _, fence = look.record(name, holder)
                if self.granted.get((name, holder)) != fence:
                    assert fence > self.fences[name]
                    self.granted[name, holder] = self.fences[name] = fence

    def check_token(self, token, before, look, *, mine):
        held, places = look.held_by(token.text), look.places_of(token.text)
        assert not held or not places, "it holds while it waits"
        fences = {look.record(name, token.text)[2] for name in held if token.text in look.records[name]}
        assert len(fences) <= 1, "the names of a bundle have different fences"
        if held and before.held_by(token.text) != held and mine:
            assert held == set(token.names), "it was granted a part"
            self.check_turn(token, before, look)
        if not mine:
            assert places <= before.places_of(token.text), "it was put into a line without asking"
        if self.lost_a_key:
            return
        assert not token.over or not held | places, "it came back"
        for name in before.places_of(token.text) - places:
            if token.text in look.deadlines[name]:  # granted, and perhaps over already
                continue
            _, wait_until, _ = before.record(name, token.text)
            assert token.over or mine or not token.hears or wait_until < look.now, "a live waiter was dropped"

    def check_turn(self, token, before, look):
        """Whoever gets in has passed nobody who is there."""
        for name in token.names:
            line = before.lines[name]
            ahead = line[: line.index(token.text)] if before.places_of(token.text) == set(token.names) else line
            for other in ahead:
                if other != token.text and self.tokens[other].hears and other in before.records[name]:
                    _, wait_until, _ = before.record(name, other)
                    assert wait_until < look.now or other not in look.lines[name], "it overtook a live waiter"

    def check_reply(self, token, reply, look):
        held, places = look.held_by(token.text), look.places_of(token.text)
        if token.over and not self.lost_a_key:
            assert reply == ["finished"]
        if reply[0] == "granted" and (reply[2] > 5_000_000 or held):
            assert held == set(token.names)
            assert {look.record(name, token.text)[2] for name in held} == {reply[1]}
            token.whole = True
        elif reply[0] == "queued":
            assert places == set(token.names)
        elif reply[0] == "busy":
            assert not places
            assert not held

    def check_head(self, name, look):
        """Nobody fits and waits, but one who was rung to come for several."""
        if look.lines[name] and not look.deadlines[name]:
            claim_ms, wait_until, _ = look.record(name, look.lines[name][0])
            assert claim_ms == 0, "the head of the line fits and waits"
            assert wait_until <= look.now + 2_000_000, "the head of a free line was not rung"

    def end(self, *, thawed=True):
        """All who live ask again until they are served. Whoever is frozen does not; the rest gets in all the same."""
        waiting = [token for token in self.tokens.values() if not token.over and token.hears]
        frozen = [] if thawed else self.random.sample(waiting, min(3, len(waiting)))
        for token in self.tokens.values():
            if token.over:
                token.does.cancel(token.text)  # without its key in `tombstones` it may have come back
            elif token.hears and token not in frozen and self.look.held_by(token.text):
                token.does.release(token.text)
        for token in self.tokens.values():  # a grant that nobody can give up would last for its ttl
            for name in self.look.held_by(token.text) if token in frozen or not token.hears else ():
                Engine(self.raw, name).revoke(2**53)
        waiting = [token for token in waiting if token not in frozen and token.ask(30_000, 60_000)[0] != "finished"]
        until = time.monotonic() + (0 if thawed else 10)
        rounds = 0
        while waiting:
            rounds += 1
            served = []
            for token in self.random.sample(waiting, len(waiting)):
                reply = token.ask(30_000, 60_000)
                if reply[0] == "granted":
                    assert token.does.release(token.text)[0] == "released"
                    served.append(token)
                else:
                    assert reply[0] == "queued"
            waiting = [token for token in waiting if token not in served]
            assert served or time.monotonic() < until or rounds < 4, f"nobody gets in any more: {vars(Look(self.raw))}"
            if not served and not thawed:
                time.sleep(0.1)
        return rounds


@pytest.fixture
def ears(raw):
    pubsub = raw.pubsub()
    pubsub.subscribe("live")
    eventually(lambda: raw.pubsub_numsub("live")[0][1])
    yield
    pubsub.close()


def walk(raw, seeds, steps=STEPS, *, thawed=True, **options):
    for seed in seeds:
        raw.flushall()
        walk = Walk(raw, seed, **options)
        for number in range(steps):
            try:
                walk.step()
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {number}")
                raise
        walk.end(thawed=thawed)


@pytest.mark.parametrize("block", [0, *slow_only(1)])
def test_a_walk_keeps_the_books_and_serves_everybody(raw, ears, block):
    walk(raw, range(block * 10, block * 10 + 10))


@pytest.mark.parametrize("block", [0, *slow_only(1)])
def test_a_walk_on_which_keys_get_lost_lets_nobody_in_twice_and_serves_everybody(raw, ears, block):
    walk(raw, range(1000 + block * 10, 1010 + block * 10), losing_keys=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("losing_keys", [False, True])
def test_long_walks(raw, ears, losing_keys):
    walk(raw, range(10_000, 10_050), 120, losing_keys=losing_keys)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_long_walks_on_which_some_freeze(raw, ears):
    walk(raw, range(20_000, 20_006), 80, thawed=False)


def test_what_nobody_gave_up_leaves_no_record_of_any_name_when_they_are_used_again_much_later(both, a, b):
    fence = both.acquire("x")[1]
    both.client.delete(a.key("holders"), b.key("holders"))  # as if it had crashed two hours ago
    assert both.acquire("y")[1] > fence
    for name in (a, b):
        assert set(both.client.hkeys(name.key("tokens"))) == {"y", "used", "fence"}
