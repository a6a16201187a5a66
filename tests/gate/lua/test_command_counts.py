"""How many commands each call runs on the server. A script that runs more says so here."""

from __future__ import annotations

from tests._support.engine import Several

COUNTS = {
    "a free lock": 6,
    "the same again": 1,
    "the first waiter": 4,
    "the next waiter": 3,
    "a waiter that asks again": 5,
    "a try": 2,
    "a look at it": 5,
    "a renewal": 2,
    "a waiter that cancels": 8,
    "a release with a handoff": 8,
    "the same release again": 4,
    "a release without waiters": 2,
    "a lock that is free again": 4,
    "a look at a lock alone": 2,
    "a holder that cancels": 4,
    "a free semaphore": 6,
    "a permit beside another": 4,
    "a permit beside several": 4,
    "a renewal beside other holders": 5,
    "a lease that is lowered": 4,
    "a release beside other holders": 2,
    "a release by one beside another": 6,
    "a release by the last holder": 6,
    "a new limit": 7,
    "two free locks": 43,
    "the same two again": 2,
    "the first waiter for two": 17,
    "a waiter for two that asks again": 14,
    "a try of two": 33,
    "a renewal of two": 4,
    "a release of two": 16,
    "two locks at the waiter's turn": 24,
    "the first waiter for one of them": 3,
    "a release of two with a waiter for one": 10,
    "the release of that waiter": 2,
    "two locks that are free again": 4,
    "a release of two without waiters": 4,
    "two locks that are free once more": 4,
}


def test_no_call_runs_more_commands_than_it_needs(raw, a, make, clock, listening):
    clock.now_us += 1
    listening("t3", "t4")
    semaphore, both = make(5, "b"), Several(clock, "cd")

    def renew(locks):
        clock.now_us += 1
        locks.renew("t1")

    def count(call):
        raw.config_resetstat()
        call()
        stats = raw.info("commandstats")
        own = ("cmdstat_eval", "cmdstat_evalsha", "cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info")
        return sum(found["calls"] for name, found in stats.items() if name not in own)

    assert {
        "a free lock": count(lambda: a.acquire("t1")),
        "the same again": count(lambda: a.acquire("t1")),
        "the first waiter": count(lambda: a.acquire("t2")),
        "the next waiter": count(lambda: a.acquire("t3")),
        "a waiter that asks again": count(lambda: a.acquire("t3")),
        "a try": count(lambda: a.acquire("try", wait=0)),
        "a look at it": count(lambda: a.inspect(2)),
        "a renewal": count(lambda: renew(a)),
        "a waiter that cancels": count(lambda: a.cancel("t2")),
        "a release with a handoff": count(lambda: a.release("t1")),
        "the same release again": count(lambda: a.release("t1")),
        "a release without waiters": count(lambda: a.release("t3")),
        "a lock that is free again": count(lambda: a.acquire("t4")),
        "a look at a lock alone": count(a.inspect),
        "a holder that cancels": count(lambda: a.cancel("t4")),
        "a free semaphore": count(lambda: semaphore.acquire("t1", 3)),
        "a permit beside another": count(lambda: semaphore.acquire("t2")),
        "a permit beside several": count(lambda: semaphore.acquire("t3")),
        "a renewal beside other holders": count(lambda: semaphore.renew("t2")),
        "a lease that is lowered": count(lambda: semaphore.lower("t1", 1)),
        "a release beside other holders": count(lambda: semaphore.release("t1")),
        "a release by one beside another": count(lambda: semaphore.release("t3")),
        "a release by the last holder": count(lambda: semaphore.release("t2")),
        "a new limit": count(lambda: semaphore.resize(3)),
        "two free locks": count(lambda: both.acquire("t1")),
        "the same two again": count(lambda: both.acquire("t1")),
        "the first waiter for two": count(lambda: both.acquire("t3")),
        "a waiter for two that asks again": count(lambda: both.acquire("t3")),
        "a try of two": count(lambda: both.acquire("try", wait=0)),
        "a renewal of two": count(lambda: renew(both)),
        "a release of two": count(lambda: both.release("t1")),
        "two locks at the waiter's turn": count(lambda: both.acquire("t3")),
        "the first waiter for one of them": count(lambda: both.engines[0].acquire("t4")),
        "a release of two with a waiter for one": count(lambda: both.release("t3")),
        "the release of that waiter": count(lambda: both.engines[0].release("t4")),
        "two locks that are free again": count(lambda: both.acquire("t5")),
        "a release of two without waiters": count(lambda: both.release("t5")),
        "two locks that are free once more": count(lambda: both.acquire("t6")),
    } == COUNTS
