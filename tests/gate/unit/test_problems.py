"""What is wrong, in sentences: one case for each that there is, and their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from handfast import (
    BudgetStatus,
    Hold,
    Holder,
    LimiterStatus,
    LockStatus,
    OperatorAction,
    RateStatus,
    ServerFinding,
    Waiter,
)
from handfast._watch.live import Row, View
from handfast._watch.problems import find_problems, verdict_of
from handfast._watch.results import Result, Results
from handfast.cli.operate.words import text_of as sentence

NOW = 100_000.0


def holder(held_for, *, remaining=25.0, ttl=30.0, **other):
    common = {"released": False, "lock_all": False, "exclusive": True, "owner": "c.1", **other}
    return Holder("t", 1, 1, remaining, held_for, "batch-2", ttl=ttl, **common)


def waiter(waited_for, *, silent_for=0.0):
    return Waiter("t", 1, 0, waited_for, "web-1", True, "c.2", False, silent_for=silent_for)


def lock(*, holders=(), waiters=(), waiting=None, granted_ago=None, hold=None):
    count = len(waiters) if waiting is None else waiting
    return LockStatus(holders, waiters, 7, len(holders), count, 1, 0, 3, 1.0, None, granted_ago, hold)


def limiter(used, *, limit=500, per=60.0, waiting=0, paused_for=0.0):
    pause = OperatorAction(datetime.now(UTC), "pause", "web-9", "") if paused_for else None
    return LimiterStatus((RateStatus(limit, per, used, 0, 1.0),), waiting, paused_for, pause)


def budget(spent, held=0):
    return BudgetStatus(Decimal(spent), Decimal(held), Decimal(100), None, 3600.0, Decimal(), "month")


KINDS = {LimiterStatus: "limiter", BudgetStatus: "budget"}


def found_in(status, *, findings=(), at=NOW, **other):
    kind = KINDS.get(type(status), "lock")
    rows = () if status is None else (Row(kind, "a", status, at, **other),)
    found = find_problems(View(NOW, 0.0, rows, findings, is_whole=True))
    return [(one.level, sentence(one.says, NOW), sentence(one.means, NOW)) for one in found]


HOLD = Hold(datetime.now(UTC), 3600.0, "ops", "migration")

STUCK = (
    "batch-2 renews its lease, so its process lives: it hangs, or its work is long. The first waits for 2m00s; 1 of them "
    "is silent."
)

CASES = {
    "stuck": (
        lock(holders=(holder(7200.0),), waiters=(waiter(120.0), waiter(60.0, silent_for=40.0))),
        "urgent",
        "a has been held for 2h00m, and 2 are waiting",
        STUCK,
    ),
    "waits": (
        lock(holders=(holder(90.0),), waiters=(waiter(80.0),), granted_ago=90.0),
        "warning",
        "a keeps 1 waiting for 1m20s",
        "It is held by batch-2 for 1m30s.",
    ),
    "waits for long": (
        lock(waiters=(waiter(700.0),), granted_ago=900.0),
        "urgent",
        "a keeps 1 waiting for 11m40s",
        "It is free.",
    ),
    "silent": (
        lock(holders=(holder(9.0),), waiters=(waiter(5.0, silent_for=30.0), waiter(5.0))),
        "warning",
        "a has 1 silent of 2 waiters",
        "Their processes have ended or are frozen. They are passed over when their turn comes.",
    ),
    "unrenewed": (
        lock(holders=(holder(60.0, remaining=8.0),)),
        "warning",
        "The lease of a ends in 8.0s unless it is renewed",
        "batch-2 has missed at least one renewal.",
    ),
    "on hold": (lock(hold=HOLD), "note", "a is on hold for 1h00m more", "By ops: migration. No one waits."),
    "on hold and waited for": (
        lock(hold=HOLD, waiters=(waiter(5.0),)),
        "warning",
        "a is on hold for 1h00m more",
        "By ops: migration. 1 is waiting.",
    ),
    "full": (limiter(450, waiting=3), "warning", "a has used 450 of 500 in 60 s", "3 are waiting."),
    "nearly spent": (
        budget("90.5"),
        "note",
        "a has used 90% of its budget: 90.50/100 this month",
        "Calls that need more than is left are refused. The next period begins in 1h00m.",
    ),
    "spent": (
        budget(99, held=7),
        "warning",
        "a has used 106% of its budget: 106/100 this month",
        "Calls are refused. The next period begins in 1h00m.",
    ),
    "paused": (limiter(5, paused_for=60.0), "note", "a is paused for 1m00s more", "By web-9. No one waits."),
}


@pytest.mark.parametrize("case", CASES)
def test_there_is_a_sentence(case):
    status, *expected = CASES[case]
    assert found_in(status) == [tuple(expected)]


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (holder(7200.0), "batch-2 renews its lease, so its process lives: it hangs, or its work is long."),
        (
            holder(2000.0, ttl=3600.0, remaining=2800.0),
            "batch-2 renews its lease, so its process lives: it hangs, or its work is long.",
        ),
        (
            holder(2000.0, ttl=14_400.0, remaining=12_400.0),
            "batch-2 has not renewed its lease since the grant, so its process may have ended. The lease ends in 3h26m.",
        ),
        (
            holder(4000.0, ttl=3600.0, remaining=1200.0),
            "batch-2 has missed a renewal, so its process may have ended. The lease ends in 20m00s.",
        ),
        (
            holder(2000.0, remaining=1600.0, released=True),
            "batch-2 has released it, and it stays taken for 26m40s more: at_least.",
        ),
    ],
    ids=["renewed", "renewed once", "never renewed", "not renewed of late", "at_least"],
)
def test_a_process_lives_only_where_its_lease_is_renewed(held, says):
    status = lock(holders=(held,), waiters=(waiter(120.0),))
    assert [means for level, _, means in found_in(status) if level == "urgent"] == [
        f"{says} The first waits for 2m00s."
    ]


def test_keys_that_cannot_be_read_are_a_note():
    for count, keys in ((1, "1 key"), (2, "2 keys")):
        (found,) = find_problems(View(NOW, 0.0, (), (), is_whole=True, passed_over=count))
        assert (found.level, sentence(found.says, NOW)) == ("note", f"{keys} of this namespace can't be read")


def test_a_queue_that_grows_has_a_sentence():
    status = lock(holders=(holder(5.0),), waiters=(waiter(5.0),), waiting=9)
    says = "The queue of a grows: 2 a minute ago, 9 now"
    assert found_in(status, before=2, rate=0.5, mean=4.0) == [
        ("warning", says, "0.5 grants a second, after a mean wait of 4.0 s.")
    ]
    assert found_in(status, before=5) == found_in(status) == []


def test_what_is_no_news_has_none():
    held = holder(86_400.0)
    for status in (
        lock(holders=(held,)),  # and wanted by no one
        lock(holders=(holder(5.0),), waiters=(waiter(80.0),), granted_ago=5.0),  # the queue moves
        lock(holders=(holder(20.0, remaining=8.0),)),  # it may be one without renewals
        lock(holders=(holder(60.0, remaining=8.0, released=True),)),
        lock(holders=(holder(60.0, remaining=8.0, wanted=3.0),)),
        limiter(450, per=1.0),  # full by design
        limiter(450, limit=0),
        limiter(449),
        limiter(500),  # and no one waits
    ):
        assert found_in(status) == []
    assert found_in(lock(holders=(holder(60.0, remaining=8.0),)), at=NOW - 5) == [], "it was not looked at in this step"


def test_the_worst_comes_first():
    names = {"waits": "b", "stuck": "c", "on hold": "d", "full": "e"}
    rows = [Row("limiter" if case == "full" else "lock", name, CASES[case][0], NOW) for case, name in names.items()]
    findings = (
        ServerFinding("failure", "eviction", "maxmemory-policy is allkeys-lru"),
        ServerFinding("failure", "rights", "the user lacks rights", "give them", "ACL SETUSER"),
        ServerFinding("warning", "persistence", "a restart forgets it: there is no file", "have one", "CONFIG SET"),
        ServerFinding("info", "x", "y"),
    )
    found = find_problems(View(NOW, 0.0, tuple(rows), findings, is_whole=True))
    assert [one.id for one in found] == [
        "stuck lock c",
        "server eviction",
        "server rights",
        "waits lock b",
        "full limiter e",
        "server persistence",
        "stopped lock d",
    ]
    assert [sentence(one.says, NOW) for one in found if one.id.startswith("server")] == [
        "maxmemory-policy is allkeys-lru",
        "The user lacks rights",
        "A restart forgets it",
    ]
    assert (sentence(found[2].means, NOW), found[2].command) == ("Give them.", "ACL SETUSER")
    assert sentence(found[5].means, NOW) == "There is no file. Have one."


def test_of_two_names_that_are_stuck_the_one_with_more_time_lost_comes_first():
    waits = {"a": (1, 800.0), "b": (300, 700.0), "c": (20, 7000.0)}
    rows = [
        Row(
            "lock",
            name,
            lock(holders=(holder(8000.0),), waiters=(waiter(wait),), waiting=count, granted_ago=9000.0),
            NOW,
        )
        for name, (count, wait) in waits.items()
    ]
    view = View(NOW, 0.0, tuple(rows), is_whole=True)
    found = find_problems(view)
    assert [one.where[1] for one in found if one.is_stuck] == ["b", "c", "a"]
    assert verdict_of(view, found)[:2] == ("urgent", "3 names are stuck, and 321 requests wait for them")


@pytest.mark.parametrize(
    ("holders", "means"),
    [
        ([holder(8000.0)], "The holder renews its lease, so its process lives."),
        ([holder(8000.0), holder(8000.0)], "All holders renew, so their processes live."),
        (
            [holder(8000.0), holder(8000.0, remaining=5.0)],
            "1 of 2 holders has missed renewals: the process may have ended.",
        ),
        ([None], "None of them is held."),
    ],
)
def test_the_verdict_says_whether_the_holders_live(holders, means):
    rows = [
        Row(
            "lock",
            str(place),
            lock(holders=(one,) if one else (), waiters=(waiter(700.0),), granted_ago=9000.0),
            NOW - 9,
        )
        for place, one in enumerate(holders)
    ]
    view = View(NOW, 0.0, tuple(rows), is_whole=True)
    assert sentence(verdict_of(view, find_problems(view)).means, NOW) == f"The longest has waited for 11m49s. {means}"


def verdict(*rows, findings=()):
    view = View(NOW, 0.0, rows, findings, is_whole=True)
    return verdict_of(view, find_problems(view)).text


def test_the_verdict_is_one_sentence():
    stuck = Row("lock", "a", CASES["stuck"][0], NOW)
    fine, full = Row("lock", "b", lock(holders=(holder(5.0),)), NOW), Row("limiter", "c", CASES["full"][0], NOW)
    evicts = ServerFinding("failure", "eviction", "x")
    assert verdict() == "No one holds anything yet"
    assert verdict(fine) == "Nothing is wrong"
    assert verdict(fine, full) == "Nothing is stuck; 1 thing to know about"
    assert (
        verdict(fine, full, findings=(evicts,))
        == "Nothing is stuck; 1 setting of the server breaks what the locks promise"
    )
    assert verdict(fine, full, stuck, findings=(evicts,)) == "1 name is stuck, and 2 requests wait for it"


def test_the_candidates_of_an_election_stand_by():
    status = lock(holders=(holder(7200.0),), waiters=(waiter(7000.0),), waiting=20)
    row = Row("election", "a", status, NOW, before=2)
    assert find_problems(View(NOW, 0.0, (row,), is_whole=True)) == []
    assert len(find_problems(View(NOW, 0.0, (replace(row, kind="lock"),), is_whole=True))) == 2


def test_runs_of_once_that_failed_or_did_not_end():
    found = [
        Result("pay", "pay|1", "left", NOW - 60, ""),
        Result("pay", "pay|2", "left", NOW - 30, ""),
        Result("pay", "pay|3", "running", NOW - 10, ""),
        Result("mail", "mail|1", "failed", NOW - 90, "ValueError: no address"),
        Result("mail", "mail|2", "done", NOW - 5, ""),
    ]
    view = View(NOW, 0.0, (), is_whole=True, results=Results(tuple(found)))
    said = [(one.level, one.where, sentence(one.says, NOW), sentence(one.means, NOW)) for one in find_problems(view)]
    assert said == [
        ("warning", ("once", "pay"), "2 keys of pay began and did not end", "The latest, pay|2, began 30s ago."),
        ("warning", ("once", "mail"), "1 key of mail failed", "The latest, mail|1, 1m30s ago: ValueError: no address"),
    ]


def test_two_findings_of_one_topic_are_two_problems():
    findings = [ServerFinding("warning", "replicas", text) for text in ("one lags", "another lags")]
    found = find_problems(View(NOW, 0.0, (), tuple(findings), is_whole=True))
    assert len({one.id for one in found}) == 2
