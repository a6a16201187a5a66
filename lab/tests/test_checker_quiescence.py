"""The checker of quiescent state reports leftovers on a server, and not the keys that may remain."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.packing import doubles
from handfast_lab.checker import check_permits, check_rest, immortal_keys
from tests._support.engine import Engine

RECORD = doubles(1, 1, 3, 1000, 7) + b"x y z"
LOCK, SEMAPHORE = "{hf:lock:a}", "{hf:semaphore:s}"


def texts(findings):
    return [str(finding) for finding in findings]


@pytest.fixture
def engine(raw):
    """The scripts of a semaphore with 3 permits."""
    return Engine(raw, "s", limit=3, kind="semaphore")


def test_finished_work_leaves_no_state(hf, raw):
    with hf.lock("a").acquire(), hf.semaphore("s", limit=3).acquire(permits=2), hf.rwlock("}:*?[a]").write() as lease:
        assert check_permits(raw) == []
        assert len(check_rest(raw)) == 3
        lease.downgrade()
        assert check_permits(raw) == []
    both = hf.lock_all(["a", "b"]).acquire()
    hf.lock("b").force_release()
    assert check_permits(raw) == []
    assert both.release() is False
    assert raw.dbsize() > 0
    assert check_permits(raw) == check_rest(raw) == []


def test_unreleased_leases_are_detected(engine, raw):
    engine.acquire("holder-1", weight=2)
    engine.acquire("holder-2")
    engine.acquire("waiter-1", weight=2)
    engine.end_lease("holder-2")
    found = [
        f"rest: {SEMAPHORE}: holder-1 still holds it",
        f"rest: {SEMAPHORE}: waiter-1 is still in the queue",
    ]
    assert texts(check_rest(raw)) == found
    assert check_permits(raw) == []
    assert check_rest(raw, "other") == []
    with redis.Redis.from_url(f"unix://{raw.connection_pool.connection_kwargs['path']}") as binary:
        assert texts(check_rest(binary)) == found
    for token in ("waiter-1", "holder-1"):
        engine.run("cancel", token=token)
    assert check_rest(raw) == []


def test_full_tokens_are_not_reported(engine, raw):
    engine.acquire("0123456789abcdef")
    raw.hset(engine.key("state"), "fedcba9876543210", RECORD)
    assert not [text for text in texts(check_rest(raw)) if "01234567" + "8" in text or "fedcba98" + "7" in text]
    assert len(check_rest(raw)) == 2


def test_records_without_an_owner_are_detected(engine, raw):
    engine.acquire("holder")
    engine.release("holder")
    raw.hset(engine.key("state"), "lost", RECORD)
    assert texts(check_rest(raw)) == [f"rest: {SEMAPHORE}: a record of lost, which neither holds nor waits"]


def test_keys_without_a_ttl_are_detected(hf, raw):
    with hf.lock("a").acquire():
        pass
    hf.scores("table").advance({"member": 1})
    raw.set("{hf:scores:table}:answer:1", "1 0 0")
    raw.set("another program's", 1)
    raw.persist(f"{LOCK}:state")
    assert immortal_keys(raw) == [f"{LOCK}:state", "{hf:scores:table}:answer:1"]
    assert texts(check_rest(raw)) == [
        f"rest: {LOCK}:state: a key without a TTL",
        "rest: {hf:scores:table}:answer:1: a key without a TTL",
    ]
    raw.flushall()


WRONG = {
    "miscounted": (
        lambda engine, raw: raw.hset(engine.key("state"), "q", doubles(1, 9e15, 0, 0)),
        [f"rest: {SEMAPHORE}: 2 permits are counted as held, and 3 are held"],
    ),
    "not counted": (
        lambda engine, raw: raw.hdel(engine.key("state"), "q"),
        [f"rest: {SEMAPHORE}: 1 permits are counted as held, and 3 are held"],
    ),
    "without a record": (
        lambda engine, raw: raw.hdel(engine.key("state"), "two"),
        [
            f"rest: {SEMAPHORE}: two holds it without a record of its permits",
            f"rest: {SEMAPHORE}: 3 permits are counted as held, and 1 are held",
        ],
    ),
    "too many": (
        lambda engine, raw: (
            raw.zadd(engine.key("tokens"), {"thief": 4e15}),
            raw.hset(engine.key("state"), mapping={"thief": RECORD, "q": doubles(3, 1, 0, 0)}),
        ),
        [f"rest: {SEMAPHORE}: 4 of 3 permits are held"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_permits_that_are_not_conserved_are_detected(engine, raw, case):
    engine.acquire("one")
    engine.acquire("two", weight=2)
    assert check_permits(raw) == []
    break_it, found = WRONG[case]
    break_it(engine, raw)
    assert texts(check_permits(raw)) == found


def test_a_resized_limit_may_be_below_the_permits_held(engine, raw):
    engine.acquire("one", weight=3)
    engine.resize(1)
    assert check_permits(raw) == []
