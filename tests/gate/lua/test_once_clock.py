"""Test once_acquire and once_record under a clock that a test sets: leases, records and waiters at the very moment that they end."""

from __future__ import annotations

import pytest

from handfast._engine.packing import doubles
from handfast._engine.script import load
from tests._support.engine import (
    CALLER,
    CLAIM_MS,
    CLAIM_US,
    HOUR_MS,
    LATE_MS,
    NOW_US,
    TOMBSTONE_US,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    heard,
    holding,
    refused,
    runs_through,
    unchanged,
    waiting,
)
from tests._support.once import KEEP_MS, OnceScripts


class Key(OnceScripts):
    """The scripts of a key, and what is recorded of it as it is stored."""

    def forget(self):
        self.client.delete(self.key("result"))

    def bring_back(self, record):
        """Store a record that was there before."""
        self.client.execute_command("SET", self.key("result"), record, "PX", KEEP_MS)

    def read(self):
        return self.client.execute_command("GET", self.key("result"), NEVER_DECODE=True)


@pytest.fixture
def key(clock):
    return Key(clock)


def test_a_run_is_granted_as_a_lock_and_found_again(key, clock):
    assert key.acquire("a") == ["granted", NOW_US, TTL_US]
    key.has(holders={"a": NOW_US + TTL_US}, used=1, fence=NOW_US, a=holding("a", 1, 1))
    clock.now_us += TTL_US - 1
    assert key.acquire("a") == ["granted", NOW_US, 1]
    clock.now_us += 1
    assert key.acquire("a") == ["granted", NOW_US + TTL_US, TTL_US], "the lease is over"


def test_a_run_records_until_its_lease_ends(key, clock):
    key.acquire("a")
    clock.now_us += TTL_US - 1
    assert key.end("a") == ["recorded", 0]
    assert key.acquire("b") == ["done", "done", 0, NOW_US, "v"]
    key.forget()
    key.acquire("b")
    clock.now_us += TTL_US
    assert key.end("b") == ["lost"]
    assert key.read() is None


def test_a_lost_run_gives_up_what_is_left_of_its_lease(key, clock):
    key.acquire("a")
    clock.now_us += TTL_US
    assert key.end("a", "begun") == ["lost"]
    assert key.holders() == ["a"]
    assert key.end("a") == ["lost"]
    clock.now_us -= TTL_US
    assert key.holders() == []
    assert key.acquire("b")[0] == "granted"


def test_an_unknown_run_writes_nothing(key):
    assert key.end("ghost") == ["lost"]
    assert key.client.keys() == []


def test_a_record_has_its_age_and_its_ttl(key, clock):
    key.acquire("a")
    clock.now_us += 5
    key.end("a", fingerprint=b"f")
    assert KEEP_MS - LATE_MS < key.client.pttl(key.key("result")) <= KEEP_MS
    clock.now_us += 7
    assert key.acquire("b") == ["done", "done", 7, NOW_US, "v"]
    clock.now_us -= 9
    assert key.acquire("b") == ["done", "done", 0, NOW_US, "v"], "the clock was set back"


@pytest.mark.parametrize("outcome", ["failed", "unstored"])
def test_other_ends_are_found_and_never_made_anew(key, clock, outcome):
    key.acquire("a")
    key.end("a", "begun")
    assert key.end("a", outcome, value=b"why") == ["recorded", 0]
    clock.now_us += 1_000_000
    assert key.acquire("b", refresh=1) == ["done", outcome, 1_000_000, NOW_US, "why"]


def test_a_failure_is_recorded_where_nothing_was(key):
    key.acquire("a")
    assert key.end("a", "failed", value=b"why") == ["recorded", 0]
    assert key.acquire("b") == ["done", "failed", 0, NOW_US, "why"]


def test_what_is_old_enough_is_made_anew_by_one(key, clock, listening):
    listening("b", "c", "d")
    key.acquire("a")
    key.end("a")
    clock.now_us += 1_000_000 - 1
    assert key.acquire("b", refresh=1000)[0] == "done"
    clock.now_us += 1
    assert key.acquire("b", refresh=-1)[0] == "done"
    assert key.acquire("b", refresh=1000) == ["granted", clock.now_us, TTL_US]
    assert key.acquire("b", refresh=1000) == ["granted", clock.now_us, TTL_US]
    assert key.acquire("c", refresh=1000)[0] == "done", "one runs it"
    clock.now_us += TTL_US - 1
    assert key.acquire("c", refresh=1000)[0] == "done"
    clock.now_us += 1
    assert key.acquire("c", refresh=1000)[0] == "granted", "the lease of the other one is over"
    assert key.end("b") == ["lost"]
    assert key.end("c", value=b"new") == ["recorded", 0]
    assert key.acquire("d", refresh=1000) == ["done", "done", 0, NOW_US + 1_000_000 + TTL_US, "new"]


@pytest.mark.parametrize("end", ["failed", "unstored", "dropped", None])
def test_a_run_that_does_not_make_it_anew_leaves_it_as_it_is_for_a_while(key, clock, end):
    key.acquire("a")
    key.end("a")
    clock.now_us += 1_000_000
    began_us = clock.now_us
    assert key.acquire("b", refresh=1000, pause=5000)[0] == "granted"
    if end is not None:
        clock.now_us += TTL_US - 1
        assert key.end("b", end, value=b"why", pause=5000) == ["recorded", 0]
        assert key.end("b", end, value=b"why", pause=5000) == ["lost"]
        began_us = clock.now_us
    else:
        assert key.release("b") == ["released", 0]
    clock.now_us = began_us + 4_999_999
    assert key.acquire("c", refresh=1000)[:2] == ["done", "done"]
    clock.now_us += 1
    assert key.acquire("c", refresh=1000)[0] == "granted"


def test_the_pause_is_that_of_one_result(key, clock):
    key.acquire("a")
    key.end("a")
    clock.now_us += 1_000_000
    key.acquire("b", refresh=1000, pause=5000)
    assert key.end("b", value=b"new") == ["recorded", 0]
    clock.now_us += 1_000_000
    assert key.acquire("c", refresh=1000)[0] == "granted"


def test_a_clock_that_is_set_back_ends_the_pause(key, clock):
    clock.now_us += 10_000_000
    key.acquire("a")
    key.end("a")
    clock.now_us += 5_000_000
    key.acquire("b", refresh=1000, pause=3_600_000)
    key.end("b", "dropped", pause=3_600_000)
    clock.now_us -= 1
    assert key.acquire("c", refresh=1000)[0] == "granted"


def test_who_is_dropped_without_an_earlier_result_hands_the_key_on(key, clock, listening):
    listening("b", "c")
    for token in ("a", "b", "c"):
        key.acquire(token)
    assert key.end("a", "dropped") == ["recorded", 0]
    assert (key.holders(), key.queue()) == (["b"], ["c"])
    assert key.recorded() is None


def test_refresh_of_zero_makes_each_record_anew(key):
    key.acquire("a")
    key.end("a")
    assert key.acquire("b", refresh=0)[0] == "granted"


def test_an_old_record_answers_while_others_wait(key, clock, listening):
    listening("b", "c")
    key.acquire("a")
    key.end("a")
    record = key.read()
    key.forget()
    key.acquire("b")
    key.acquire("c")
    key.bring_back(record)
    clock.now_us += TTL_US
    assert key.acquire("d", refresh=1) == ["done", "done", TTL_US, NOW_US, "v"]
    assert key.queue() == []


def test_what_was_begun_counts_from_the_end_of_its_run(key, clock, listening):
    listening("b")
    key.acquire("a")
    assert key.end("a", "begun") == ["recorded", 0]
    assert key.acquire("b") == ["queued", NOW_US, 0, TTL_US]
    assert key.acquire("a")[0] == "granted"
    assert key.end("a", "begun") == ["recorded", 0]
    assert key.queue() == ["b"], "it goes on to wait"
    clock.now_us += TTL_US - 1
    assert key.acquire("b") == ["queued", clock.now_us, 0, 1]
    clock.now_us += 1
    assert key.acquire("b") == ["done", "begun", TTL_US, NOW_US, "v"]
    assert key.queue() == []


def test_waiters_are_woken_where_they_are_alive(key, clock, listening):
    inbox = listening("b")
    key.acquire("a")
    for token in ("b", "dead", "unknown"):
        key.acquire(token)
    key.lose_record("unknown")
    clock.now_us += 3
    clock.config_resetstat()
    assert key.end("a") == ["recorded", 0]
    assert heard(inbox) == [f"granted b 0 {clock.now_us} 0"]
    assert clock.info("commandstats")["cmdstat_publish"]["calls"] == 1
    key.has(fence=NOW_US)


def test_a_queue_that_was_counted_wrong_is_counted_again(key, listening):
    listening("b")
    key.acquire("a")
    key.acquire("b")
    key.set_length(3)
    assert key.end("a") == ["recorded", 0]
    key.has(fence=NOW_US)


def test_the_hundred_and_first_waiter_is_left_in_the_queue(key):
    key.acquire("a")
    for number in range(101):
        key.acquire(f"w{number:03}")
    assert key.end("a") == ["recorded", 1]
    assert key.queue() == ["w100"]
    assert key.end("a") == ["recorded", 0]
    assert key.queue() == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_tombstone_says_how_the_run_has_ended(key, clock, lost):
    key.acquire("a")
    if lost:
        clock.now_us += TTL_US
    assert key.end("a", copies=True)[0] == ("lost" if lost else "recorded")
    assert key.acquire("a") == ["finished"]
    before = key.stored().tombstones
    clock.now_us += 1_000_000
    assert key.end("a", copies=True)[0] == ("lost" if lost else "recorded")
    assert key.stored().tombstones == before, "it is not renewed"
    assert before == {"a": NOW_US + lost * TTL_US + TOMBSTONE_US + lost}, "an odd time says that it was lost"


def test_a_tombstone_after_a_beginning_is_left_to_its_end(key):
    key.acquire("a")
    key.end("a", "begun", copies=True)
    assert key.stored().tombstones == {}


# What an acquire gives up


def test_a_place_in_the_queue_is_given_up_for_a_record(key, listening):
    listening("b")
    key.acquire("a", fingerprint=b"f")
    key.acquire("b")
    key.end("a", fingerprint=b"f")
    record = key.read()
    key.forget()
    key.acquire("a2")
    inbox = listening("c", "d")
    key.acquire("c", fingerprint=b"g")
    key.acquire("d")
    key.bring_back(record)
    assert key.acquire("c", fingerprint=b"g") == ["reused"]
    assert key.queue() == [], "the others find the record, too"
    assert heard(inbox) == [f"granted d 0 {NOW_US} 0"]
    assert key.holders() == ["a2"]


def test_a_run_is_given_up_for_a_record_also_at_maxmemory(key, raw):
    key.acquire("a")
    key.end("a")
    record = key.read()
    key.forget()
    key.acquire("b")
    key.bring_back(record)
    raw.config_set("maxmemory", 1)
    assert key.acquire("b")[0] == "done"
    key.has(fence=NOW_US + 1)


def test_a_fingerprint_fits_its_own_and_none(key):
    key.acquire("a", fingerprint=b"f")
    key.end("a", fingerprint=b"f")
    assert [key.acquire("b", fingerprint=one)[0] for one in (b"f", b"g", b"")] == ["done", "reused", "done"]
    key.forget()
    key.acquire("c")
    key.end("c")
    assert key.acquire("d", fingerprint=b"g")[0] == "done"


def test_finding_a_record_writes_nothing(key, raw):
    key.acquire("a")
    key.end("a")
    raw.config_set("maxmemory", 1)
    with unchanged(key):
        assert key.acquire("b")[0] == "done"
        assert key.acquire("b", fingerprint=b"g")[0] == "done"
    key.client.delete(*key.keys[:2])
    assert key.acquire("b")[0] == "done"
    assert key.client.keys() == [key.key("result")]


def test_another_fingerprint_is_refused_while_the_run_goes_on(key):
    key.acquire("a", fingerprint=b"f")
    key.end("a", "begun", fingerprint=b"f")
    assert key.acquire("b", fingerprint=b"g") == ["reused"]
    assert key.queue() == []


# Waiting


def test_waiters_are_served_in_their_order(key, clock, listening):
    inboxes = listening("b", "c")
    key.acquire("a")
    assert key.acquire("b") == ["queued", NOW_US, 0, TTL_US]
    assert key.acquire("c") == ["queued", NOW_US, 1, TTL_US]
    assert key.acquire("b") == ["queued", NOW_US, 0, TTL_US]
    assert key.tickets == {"b": NOW_US, "c": NOW_US + 1}
    key.has(
        holders={"a": NOW_US + TTL_US},
        queue={"b": NOW_US, "c": NOW_US + 1},
        used=1,
        fence=NOW_US,
        a=holding("a", 1, 1),
        b=waiting("b", 1, 1),
        c=waiting("c", 1, 1),
    )
    assert key.acquire("n", wait=0) == ["busy", TTL_US]
    clock.now_us += TTL_US
    assert key.acquire("n", wait=0) == ["busy", CLAIM_US], "the first waiter is served"
    assert heard(inboxes) == [f"granted b {clock.now_us} {clock.now_us} {CLAIM_US}"]
    assert key.queue() == ["c"]
    clock.now_us += CLAIM_US
    assert key.acquire("c") == ["granted", clock.now_us, TTL_US]
    assert key.stored().holders == {"c": clock.now_us + TTL_US}
    assert key.queue() == []


def test_a_newcomer_is_queued_behind_the_waiter_that_it_serves(key, clock, listening):
    listening("b", "n")
    key.acquire("a")
    key.acquire("b")
    clock.now_us += TTL_US
    assert key.acquire("n") == ["queued", clock.now_us, 0, CLAIM_US]
    assert (key.holders(), key.queue()) == (["b"], ["n"])


def test_a_ticket_gives_its_place_back(key, listening):
    listening("b", "c")
    key.acquire("a")
    key.acquire("c")
    assert key.acquire("b", ticket=NOW_US - 5) == ["queued", NOW_US, 0, TTL_US]
    assert key.tickets["b"] == NOW_US - 5
    assert key.queue() == ["b", "c"]
    assert key.acquire("b", ticket=NOW_US - 5)[0] == "queued"
    assert key.acquire("b", ticket=NOW_US + 50)[0] == "queued"
    assert key.queue() == ["c", "b"], "another ticket is another place"


def test_a_grant_by_ticket_counts_its_wait(key):
    key.acquire("a", ticket=NOW_US - 5)
    assert key.stored().waited == 5
    key.end("a")
    key.forget()
    key.acquire("b")
    assert key.stored().waited == 5


def test_a_full_queue_takes_no_newcomer_but_drops_the_dead(key, listening):
    listening("b")
    key.acquire("a")
    key.acquire("b", max_waiters=1)
    with unchanged(key):
        assert key.acquire("c", max_waiters=1) == ["full", 1]
    assert key.acquire("b", max_waiters=1)[0] == "queued"
    assert key.acquire("c", max_waiters=1, ticket=NOW_US - 1)[0] == "queued", "it was there before"
    key.acquire("dead")
    assert key.acquire("d", max_waiters=2)[0] == "queued"
    assert key.queue() == ["b", "d"]
    assert key.acquire("e", max_waiters=1) == ["full", 1]
    key.has(
        holders={"a": NOW_US + TTL_US},
        queue={"b": NOW_US},
        used=1,
        fence=NOW_US,
        a=holding("a", 1, 1),
        b=waiting("b", 1, 1),
    )


def test_a_try_leaves_the_queue_as_it_is(key, clock):
    key.acquire("a")
    with unchanged(key):
        assert key.acquire("b", wait=0) == ["busy", TTL_US]
    clock.now_us += TTL_US
    assert key.acquire("b", wait=0) == ["granted", clock.now_us, TTL_US]


def test_newcomers_are_refused_at_maxmemory_and_what_is_done_is_recorded(key, clock, listening, raw):
    listening("b")
    key.acquire("a")
    key.acquire("b")
    raw.config_set("maxmemory", 1)
    with refused(key):
        key.acquire("n")
    with unchanged(key):
        assert key.acquire("n", wait=0) == ["busy", TTL_US]
        assert key.acquire("n", max_waiters=1) == ["full", 1]
    assert key.acquire("b")[0] == "queued"
    assert key.acquire("b", ticket=NOW_US)[0] == "queued"
    assert key.end("a", "begun") == ["recorded", 0]
    assert key.end("a") == ["recorded", 0]
    assert key.acquire("b")[0] == "done"
    key.forget()
    with refused(key):
        key.acquire("n")


def test_what_is_lost_is_given_up_at_maxmemory(key, clock, raw):
    key.acquire("a")
    clock.now_us += TTL_US
    with unchanged(key):
        raw.config_set("maxmemory", 1)
    with refused(key):
        key.acquire("n")
    assert key.end("a") == ["lost"]
    assert key.holders() == []


def test_a_waiter_takes_an_expired_lease_at_maxmemory(key, clock, listening, raw):
    listening("b")
    key.acquire("a")
    key.acquire("b")
    raw.config_set("maxmemory", 1)
    clock.now_us += TTL_US
    assert key.acquire("b") == ["granted", clock.now_us, TTL_US]


def test_a_run_whose_lease_is_over_is_refused_at_maxmemory(key, clock, raw):
    key.acquire("a")
    clock.now_us += TTL_US
    raw.config_set("maxmemory", 1)
    with refused(key):
        key.acquire("a")


def test_a_cancelled_request_is_finished(key):
    key.cancel("a")
    with unchanged(key):
        assert key.acquire("a") == ["finished"]


def test_a_waiter_that_cancels_leaves_the_queue_and_a_holder_hands_over(key, listening):
    listening("b", "c")
    for token in "abc":
        key.acquire(token)
    assert key.cancel("b") == ["cancelled", 0]
    assert (key.holders(), key.queue()) == (["a"], ["c"])
    assert key.cancel("a") == ["cancelled", 0]
    assert (key.holders(), key.queue()) == (["c"], [])


def test_a_cancel_hands_over_also_where_the_lease_is_over_and_at_maxmemory(key, clock, listening, raw):
    listening("b", "c")
    for token in "abc":
        key.acquire(token)
    clock.now_us += TTL_US
    raw.config_set("maxmemory", 1)
    assert key.cancel("x") == ["cancelled", 0]
    assert (key.holders(), key.queue()) == (["b"], ["c"])
    assert key.cancel("b") == ["cancelled", 0]
    assert (key.holders(), key.queue()) == (["c"], [])


def test_a_run_that_makes_a_record_anew_is_found_again_at_maxmemory(key, clock, raw):
    key.acquire("a")
    key.end("a")
    clock.now_us += 10_000
    assert key.acquire("b", refresh=5)[0] == "granted"
    raw.config_set("maxmemory", 1)
    assert key.acquire("c", refresh=5)[0] == "done"
    assert key.acquire("b", refresh=5)[0] == "granted"


def test_keys_outlive_the_longest_wait_and_the_claim_of_a_waiter(key):
    key.acquire("a")
    key.acquire("b", wait=4 * HOUR_MS)
    assert key.keep_us() == NOW_US + 1000 * (6 * HOUR_MS + CLAIM_MS)


def test_a_caller_behind_more_than_a_hundred_dead_waiters_is_to_come_back_at_once(key, clock, listening):
    listening("b")
    key.acquire("a")
    for number in range(201):
        key.acquire(f"dead{number:03}")
    clock.now_us += TTL_US
    assert key.acquire("b", wait=0) == ["busy", 0]
    assert key.acquire("b") == ["queued", clock.now_us, 1, 0]
    assert key.acquire("b")[0] == "granted"


def test_old_tombstones_are_forgotten_by_callers_that_get_nothing(key, clock):
    key.acquire("a")
    key.cancel("x")
    clock.now_us += TOMBSTONE_US + 2
    assert key.acquire("b", wait=0)[0] == "busy"
    key.has(holders={"a": NOW_US + TTL_US}, used=1, fence=NOW_US, a=holding("a", 1, 1))
    assert not key.client.hexists(key.key("state"), "q")


# Cut off


@pytest.mark.parametrize("calls", range(30))
def test_a_record_that_is_cut_off_is_complete_when_it_is_sent_again(key, listening, calls):
    listening("b")
    key.acquire("a")
    key.acquire("b")
    argv = ["a", "done", doubles(KEEP_MS, 1, 0), b"", b"v"]
    runs_through(key.client, load("once_record").source, key.keys, argv, calls)
    assert key.end("a", copies=True) == ["recorded", 0]
    assert key.stored().tombstones.keys() == {"a"}
    assert (key.holders(), key.queue()) == ([], [])
    assert key.acquire("b")[4] == "v"


@pytest.mark.parametrize("calls", range(30))
def test_a_search_that_is_cut_off_finds_the_record_when_it_is_sent_again(key, listening, calls):
    listening("b")
    key.acquire("a")
    key.end("a")
    record = key.read()
    key.forget()
    key.acquire("a2")
    key.acquire("b")
    key.bring_back(record)
    argv = [
        "b",
        doubles(TTL_MS, WAIT_MS, 1000, -1, 0, 0),
        b"",
        doubles(1, 1, CLAIM_MS, CALLER) + b"inbox:b control:b me",
    ]
    runs_through(key.client, load("once_acquire").source, key.keys, argv, calls)
    assert key.acquire("b")[0] == "done"
    assert key.queue() == []
