"""Test once_acquire, once_record and once_cancel: a record answers, and only a run that holds its key records."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.packing import doubles
from handfast._engine.script import load

KEYS = "{once}:state", "{once}:tokens", "{once}:result"

WANTS = doubles(1, 1, 2000, 7)

TTL_MS = 30_000


class Once:
    """The scripts of one key. Its waiters hear on the channel ``inbox``."""

    def __init__(self, raw):
        self.raw = raw

    def acquire(self, token, *, wait_ms=60_000, refresh_ms=-1, fingerprint=b""):
        request = doubles(TTL_MS, wait_ms, 100, refresh_ms, 0, 0)
        source = load("once_acquire").source
        return self.raw.eval(source, 3, *KEYS, token, request, fingerprint, WANTS + b"inbox control label")

    def record(self, token, outcome="done", *, value=b"v", fingerprint=b"", keep_ms=60_000, copies=0):
        source = load("once_record").source
        return self.raw.eval(source, 3, *KEYS, token, outcome, doubles(keep_ms, copies, 0), fingerprint, value)

    def cancel(self, token):
        return self.raw.eval(load("once_cancel").source, 3, *KEYS, token)

    def release(self, token):
        return self.raw.eval(load("permit_release").source, 2, *KEYS[:2], token)

    def forget(self):
        self.raw.delete(KEYS[2])


@pytest.fixture
def once(raw):
    pool = raw.connection_pool
    settings = {**pool.connection_kwargs, "decode_responses": False}
    connected = redis.Redis(connection_pool=redis.ConnectionPool(pool.connection_class, **settings))
    listener = connected.pubsub()
    listener.subscribe("inbox")
    listener.get_message(timeout=5)
    yield Once(connected)
    listener.close()
    connected.close()


def state_of(reply):
    return reply[:2] if isinstance(reply, list) else reply.split(b" ")[0]


RECORDED = b"recorded " + doubles(0)


def test_a_record_answers_with_the_very_bytes(once):
    assert isinstance(once.acquire("a"), int)
    assert once.record("a", value=b"x\r\n\0y") == RECORDED
    tag, state, _, _, value = once.acquire("b")
    assert (tag, state, value) == (b"done", b"done", b"x\r\n\0y")


def test_waiters_are_sent_to_find_the_record(once):
    once.acquire("a")
    assert state_of(once.acquire("b")) == b"queued"
    assert once.record("a") == RECORDED
    assert once.raw.zrange(KEYS[1], 0, -1) == [b""]
    assert state_of(once.acquire("b")) == [b"done", b"done"]


def test_more_than_a_hundred_waiters_are_woken_by_several_calls(once):
    once.acquire("a")
    for number in range(100):
        once.acquire(f"w{number}")
    assert once.record("a") == RECORDED
    once.forget()
    once.acquire("a2")
    for number in range(100):
        once.acquire(f"v{number}")
    source = load("once_acquire").source
    once.raw.eval(
        source, 3, *KEYS, "last", doubles(TTL_MS, 60_000, 1000, -1, 0, 0), b"", WANTS + b"inbox control label"
    )
    assert once.record("a2") == b"recorded " + doubles(1)
    assert once.record("a2") == RECORDED


def test_a_handover_behind_a_record_is_given_up(once):
    once.acquire("a")
    once.record("a", "done")
    stored = once.raw.get(KEYS[2])
    once.forget()
    once.acquire("b")
    once.acquire("c")
    once.raw.set(KEYS[2], stored, px=60_000)
    once.cancel("b")  # hands over to c, which finds the record
    assert state_of(once.acquire("c")) == [b"done", b"done"]
    assert once.record("c") == b"lost "


def test_what_was_begun_is_not_run_again_after_a_handover(once):
    once.acquire("a")
    assert once.record("a", "begun") == RECORDED
    assert state_of(once.acquire("b")) == b"queued"
    once.release("a")
    assert state_of(once.acquire("b")) == [b"done", b"begun"]


def test_a_run_that_lost_its_lease_records_nothing(once):
    once.acquire("a")
    once.cancel("a")
    assert once.record("a") == b"lost "
    assert not once.raw.exists(KEYS[2])


def test_a_record_sent_twice_and_after_forget_changes_nothing(once):
    once.acquire("a")
    assert once.record("a") == once.record("a", value=b"other") == RECORDED
    assert once.acquire("b")[4] == b"v"
    once.forget()
    once.record("a")
    assert not once.raw.exists(KEYS[2])


def test_another_fingerprint_is_refused(once):
    once.acquire("a", fingerprint=b"f")
    once.record("a", fingerprint=b"f")
    assert once.acquire("b", fingerprint=b"g") == b"reused "
    assert state_of(once.acquire("b", fingerprint=b"f")) == [b"done", b"done"]


def test_with_copies_a_late_acquire_finds_its_tombstone(once):
    once.acquire("a")
    once.record("a", copies=1)
    assert once.acquire("a") == b"finished "


def test_every_key_has_a_ttl(once):
    once.acquire("a")
    once.acquire("b")
    once.record("a", copies=1)
    assert all(once.raw.pttl(key) > 0 for key in KEYS)


def test_a_record_sent_twice_makes_no_state_anew(once):
    once.acquire("a")
    once.record("a")
    once.raw.delete(*KEYS[:2])
    assert once.record("a") == RECORDED
    assert once.raw.keys() == [KEYS[2].encode()]


def test_a_cancel_takes_back_that_its_run_has_begun(once):
    once.acquire("a")
    once.record("a", "begun")
    once.acquire("b")
    assert once.cancel("a") == once.cancel("a") == b"cancelled " + doubles(0)
    assert once.record("a", "begun") == b"lost "
    assert state_of(once.acquire("b")) == b"granted"


def test_a_cancel_leaves_the_record_of_another_run_and_a_result(once):
    for outcome in ("begun", "done"):
        once.forget()
        once.acquire("a")
        once.record("a", outcome)
        once.cancel("b" if outcome == "begun" else "a")
        assert once.raw.exists(KEYS[2])
        once.release("a")


def test_at_maxmemory_a_cancel_passes(once):
    once.acquire("a")
    once.record("a", "begun")
    once.raw.config_set("maxmemory", 1)
    assert once.cancel("a") == b"cancelled " + doubles(0)
    assert not once.raw.exists(KEYS[2])


def test_a_lost_run_with_copies_leaves_a_tombstone(once):
    once.acquire("a")
    once.raw.delete(*KEYS[:2])  # the server has lost its lease
    assert once.record("a", copies=1) == b"lost "
    assert state_of(once.acquire("a")) == b"finished", "a copy of its acquire arrives"


def test_a_run_that_has_recorded_leaves_its_tombstone_also_where_it_was_cut_off(once):
    once.acquire("a")
    assert once.record("a", copies=0) == RECORDED
    assert once.record("a", copies=1) == RECORDED
    once.forget()
    assert state_of(once.acquire("a")) == b"finished"


def test_a_lost_run_leaves_the_queue_of_an_older_state(once):
    once.acquire("a")
    assert state_of(once.acquire("b")) == b"queued"
    assert once.record("b", "begun") == b"lost "
    assert once.raw.zscore(KEYS[1], "b") is not None
    assert once.record("b") == b"lost "
    assert once.raw.zscore(KEYS[1], "b") is None
    assert state_of(once.acquire("c")) == b"queued"


def test_a_late_run_is_lost_also_where_its_beginning_is_recorded(once):
    once.acquire("a")
    assert once.record("a", "begun") == RECORDED
    once.raw.delete(*KEYS[:2])  # the server has lost its lease
    assert once.record("a", "begun") == RECORDED
    assert once.record("a") == b"lost "
    assert state_of(once.acquire("b")) == [b"done", b"begun"]


def test_a_record_that_is_sent_again_leaves_no_key_without_a_ttl(once):
    once.acquire("a")
    assert once.record("a") == RECORDED
    once.raw.delete(*KEYS[:2])  # the server has lost its lease
    assert once.record("a") == RECORDED
    assert once.raw.keys() == [KEYS[2].encode()]
