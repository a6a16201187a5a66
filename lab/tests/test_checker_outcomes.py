"""The checker of `once` detects results that were recorded twice, late or never, and what is run again."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pytest

from handfast_lab.checker import check_outcomes, read_history, write_history
from lab.tests._support.histories import asked, did, gave, took


def found(lease, invoked, returned, value):
    return did("acquire", lease, invoked, returned, "found", value=value)


def forgot(invoked, returned, outcome="done"):
    return did("forget", "", invoked, returned, outcome)


def ran(lease, invoked, *, fence=None, outcome="released"):
    """Return a run of two seconds that records its lease as its result in the second one."""
    times = invoked + 1, None if outcome == "pending" else invoked + 2
    return [took(lease, invoked, invoked + 0.5, fence), gave(lease, *times, outcome, value=lease)]


WRONG = {
    "an unknown result": ([*ran("A", 0), found("B", 3, 4, "C")], "results", "it found 'C', which was not recorded"),
    "a result before its record": ([found("B", 0, 0.5, "A"), *ran("A", 1)], "results", "it found 'A'"),
    "two results": ([*ran("A", 0), *ran("B", 0.1)], "results", "it was recorded after another result"),
    "two results after both were forgotten": ([*ran("A", 0), *ran("B", 0), forgot(3, 4)], "results", "after another"),
    "a late result": (
        [*ran("A", 0, fence=1), *ran("B", 0.2, fence=2, outcome="pending")],
        "late",
        "it was recorded after the grant of another run",
    ),
    "a run of what is done": ([*ran("A", 0), took("B", 3, 4)], "runs", "it was run again"),
    "a run of what was found": (
        [*ran("A", 0, outcome="failed"), found("B", 3, 4, "A"), took("C", 5, 6)],
        "runs",
        "again",
    ),
    "a run of what was forgotten before": ([forgot(0, 1), *ran("A", 2), took("B", 5, 6)], "runs", "it was run again"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_violation_is_detected(case):
    history, checker, text = WRONG[case]
    findings = check_outcomes(history)
    assert checker in {finding.checker for finding in findings}
    assert any(text in finding.text for finding in findings if finding.checker == checker)
    assert all(finding.name == "a" and finding.operations for finding in findings)


RIGHT = {
    "found by all": [*ran("A", 0), found("B", 1.5, 3, "A"), found("C", 0, 5, "A")],
    "a run whose record is not known": [*ran("A", 0, outcome="failed"), *ran("B", 3)],
    "a run whose process died": [*ran("A", 0, outcome="pending"), *ran("B", 3)],
    "a failed run": [took("A", 0, 1), gave("A", 2, 3), *ran("B", 4)],
    "a lost run": [*ran("A", 0, fence=1, outcome="lost"), *ran("B", 0.5, fence=2)],
    "forgotten": [*ran("A", 0), forgot(3, 4), *ran("B", 5)],
    "perhaps forgotten": [*ran("A", 0), forgot(3, 4, "failed"), *ran("B", 5)],
    "forgotten at the same time": [*ran("A", 0), forgot(1.5, 8), *ran("B", 3)],
    "forgotten before the reply to the first one": [
        took("A", 0, 1),
        gave("A", 1, 20, value="A"),
        forgot(3, 4),
        *ran("B", 5),
    ],
    "not granted": [*ran("A", 0), asked("B", 3, 4, "timeout")],
    "a result that was replaced before its record was sent again": [
        *ran("A", 0, outcome="lost"),
        found("B", 1.5, 3, "A"),
    ],
    "a result whose reply was lost": [*ran("A", 0, outcome="failed"), found("B", 1.5, 3, "A")],
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_has_no_finding(case):
    assert check_outcomes(RIGHT[case]) == []


def test_what_began_runs_again_only_where_it_is_repeated():
    history = RIGHT["a run whose process died"]
    assert check_outcomes(history, is_repeated="a".__eq__) == []
    (finding,) = check_outcomes(history, is_repeated="b".__eq__)
    assert (finding.checker, [one.lease for one in finding.operations]) == ("runs", ["B", "A"])


def test_a_server_that_forgets_may_run_again_but_gives_no_other_result():
    assert check_outcomes([*ran("A", 0), *ran("B", 3), found("C", 6, 7, "B")], keeps=False) == []
    assert len(check_outcomes([*ran("A", 0), found("C", 6, 7, "B")], keeps=False)) == 1


# A history of many keys


def played(seed, keys=30):
    """Return a right history: callers ask for keys, run them, fail and forget them."""
    chance = random.Random(seed)
    history, now, fence = [], 0.0, 0
    for key in range(keys):
        recorded = None
        for number in range(chance.randint(1, 8)):
            lease, start, now = f"{key}/{number}", now, now + chance.random()
            names = {"names": (f"k{key}",)}
            if chance.random() < 0.1:
                history.append(did("forget", "", start, now, "done", **names))
                recorded = None
            elif recorded is not None:
                history.append(did("acquire", lease, start, now, "found", value=recorded, **names))
            else:
                fence += 1
                history.append(took(lease, start, now, fence, **names))
                recorded = lease if chance.random() < 0.7 else None
                outcome = chance.choice(("released", "released", "failed")) if recorded else "released"
                history.append(did("release", lease, now, now + 0.1, outcome, value=recorded, **names))
            now += 0.2
    return history


@pytest.mark.parametrize("seed", range(20))
def test_planted_errors_in_a_right_history_are_detected(seed):
    history, chance = played(seed), random.Random(seed)
    assert check_outcomes(history) == []
    file = io.StringIO()
    write_history(history, file)
    assert list(read_history(file.getvalue().splitlines())) == history
    place = chance.choice([n for n, one in enumerate(history) if one.outcome == "found"])
    other = replace(history[place], value="another")
    assert [finding.checker for finding in check_outcomes([*history[:place], other, *history[place + 1 :]])] == [
        "results"
    ]
    recorded = {one.value for one in history if one.outcome == "released"}
    place = chance.choice([n for n, one in enumerate(history) if one.outcome == "found" and one.value in recorded])
    again = replace(history[place], outcome="granted", value=None, fence=10**6)
    assert "runs" in {finding.checker for finding in check_outcomes([*history[:place], again, *history[place + 1 :]])}
