"""How many commands each call runs on the server. A script that runs more says so here."""

from __future__ import annotations

from tests._support.engine import Several
from tests._support.once import OnceScripts

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
    "a renewal beside other holders": 4,
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


LIMIT_COUNTS = {
    "a first admission": 6,
    "another one": 5,
    "the same again": 4,
    "one that does not fit": 6,
    "the first waiter": 10,
    "the next waiter": 22,
    "a waiter that asks again": 20,
    "a look": 9,
    "an admission that is settled": 15,
    "the first one at its turn": 28,
    "a try behind no one": 8,
    "an admission that is given back": 12,
    "a waiter that cancels": 11,
    "an admission under two rates": 11,
    "rates that are set": 9,
    "one that hears of them": 7,
    "an admission under them": 16,
}


def test_no_call_of_a_limiter_runs_more_commands_than_it_needs(raw, limits, clock, listening):
    a, b = limits((2, 1000)), limits((5, 1000), (9, 5000))
    b.place = b.place.renamed("b")
    a_as_b = b.under((2, 1000))
    listening("w1", "w2")

    def count(call, later_us=0):
        clock.now_us += later_us
        raw.config_resetstat()
        call()
        stats = raw.info("commandstats")
        own = ("cmdstat_eval", "cmdstat_evalsha", "cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info")
        return sum(found["calls"] for name, found in stats.items() if name not in own)

    assert {
        "a first admission": count(lambda: a.attempt("t1")),
        "another one": count(lambda: a.attempt("t2")),
        "the same again": count(lambda: a.attempt("t2")),
        "one that does not fit": count(lambda: a.attempt("t3")),
        "the first waiter": count(lambda: a.acquire("w1")),
        "the next waiter": count(lambda: a.acquire("w2")),
        "a waiter that asks again": count(lambda: a.acquire("w2", ticket=a.tickets["w2"])),
        "a look": count(a.inspect),
        "an admission that is settled": count(lambda: a.settle("t1", 1, 2)),
        "the first one at its turn": count(lambda: a.acquire("w1"), 1_000_000),
        "a try behind no one": count(lambda: a.attempt("t4")),
        "an admission that is given back": count(lambda: a.settle("w1", 1, 0)),
        "a waiter that cancels": count(lambda: a.cancel("w2")),
        "an admission under two rates": count(lambda: b.attempt("t1")),
        "rates that are set": count(b.resize),
        "one that hears of them": count(lambda: a_as_b.attempt("t2")),
        "an admission under them": count(lambda: b.attempt("t2")),
    } == LIMIT_COUNTS


ONCE_COUNTS = {
    "a first run": 7,
    "a try": 2,
    "the first waiter": 6,
    "the next waiter": 6,
    "a waiter that asks again": 5,
    "that it begins": 4,
    "its result, for two who wait": 17,
    "the same again": 2,
    "a result that is found": 2,
    "a run that makes it anew": 6,
    "a result beside that run": 2,
    "a failure that leaves the old result": 5,
    "a result for no one": 5,
}


def test_no_call_of_once_runs_more_commands_than_it_needs(raw, keyed, clock, listening):
    clock.now_us += 1
    listening("w1", "w2")
    other = OnceScripts(clock, "b")

    def count(call):
        raw.config_resetstat()
        call()
        stats = raw.info("commandstats")
        own = ("cmdstat_eval", "cmdstat_evalsha", "cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info")
        return sum(found["calls"] for name, found in stats.items() if name not in own)

    found = {
        "a first run": count(lambda: keyed.acquire("t1")),
        "a try": count(lambda: keyed.acquire("try", wait=0)),
        "the first waiter": count(lambda: keyed.acquire("w1")),
        "the next waiter": count(lambda: keyed.acquire("w2")),
        "a waiter that asks again": count(lambda: keyed.acquire("w2")),
        "that it begins": count(lambda: keyed.end("t1", "begun")),
        "its result, for two who wait": count(lambda: keyed.end("t1")),
        "the same again": count(lambda: keyed.end("t1")),
        "a result that is found": count(lambda: keyed.acquire("w1")),
    }
    keyed.age(2000)
    other.acquire("t1")
    assert (
        found
        | {
            "a run that makes it anew": count(lambda: keyed.acquire("t2", refresh=1)),
            "a result beside that run": count(lambda: keyed.acquire("t3", refresh=1)),
            "a failure that leaves the old result": count(lambda: keyed.end("t2", "failed")),
            "a result for no one": count(lambda: other.end("t1")),
        }
        == ONCE_COUNTS
    )
