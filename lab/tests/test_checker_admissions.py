"""The checker of limiters detects windows that are too full, waiters that are overtaken, and admissions that count twice."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pytest

from handfast_lab.checker import RateSpec, check_admissions, read_history, write_history
from handfast_lab.checker.history import Operation
from lab.tests._support.histories import did

SECOND = 1_000_000
RATES = {"a": (RateSpec(3, SECOND), RateSpec(5, 10 * SECOND))}


def admitted(lease, invoked, returned, at=None, **fields):
    """Return a request that was admitted, at these seconds of the server's clock."""
    instants = () if at is None else (round(at * SECOND),)
    fields = {"kind": "acquire", "counted": instants} | fields
    return did(lease=lease, invoked=invoked, returned=returned, outcome="granted", **fields)


def settled(lease, invoked, returned, cost, outcome="done"):
    return did("settle", lease, invoked, returned, outcome, weight=cost)


def at_once(*seconds, **fields):
    """Return requests that were admitted at these moments, by both clocks."""
    return [admitted(f"R{number}", at, at + 0.001, at, **fields) for number, at in enumerate(seconds)]


def by_calls(*periods):
    """Return admitted requests whose instants are not known."""
    return [admitted(f"R{number}", *period) for number, period in enumerate(periods)]


WRONG = {
    "one too many": (at_once(0, 0.3, 0.6, 0.99), "windows", "4 of 3 were admitted within 1 s"),
    "one too many at the end of the period": (at_once(0.000001, 0.3, 0.6, 1.0), "windows", "4 of 3"),
    "one too many in the longer period": (at_once(0, 2, 4, 6, 8, 9), "windows", "6 of 5 were admitted within 10 s"),
    "a cost too many": (at_once(0, 0.5, weight=2), "windows", "4 of 3"),
    "in one step": ([admitted(f"R{one}", 0, 1, 0.5) for one in range(4)], "windows", "4 of 3"),
    "by the calls": (by_calls((0, 0.2), (0.1, 0.3), (0.2, 0.9), (0.1, 0.95)), "windows", "4 of 3"),
    "by the calls alone, though they took long": (
        by_calls((0, 0.9), (0, 0.9), (0, 0.9), (0, 0.9)),
        "windows",
        "4 of 3",
    ),
    "of a raised cost": (
        [*at_once(0, 0.3), settled("R0", 0.1, 0.2, 3)],
        "windows",
        "4 of 3",
    ),
    "before its cost was lowered": ([*at_once(0, 0.1, weight=2), settled("R0", 0.2, 0.3, 1)], "windows", "4 of 3"),
    "although the settling was lost and then raised": (
        [*at_once(0, 0.5, weight=2), settled("R0", 0.1, 0.2, 0, "failed"), settled("R0", 0.3, 0.4, 2)],
        "windows",
        "4 of 3",
    ),
    "a newcomer overtakes": (
        [admitted("W", 0, 2, 2, queued=0.1), admitted("N", 0.2, 1, 1)],
        "order",
        "it was admitted before a request that was in the queue since 0.100000: acquire N",
    ),
    "a try overtakes": (
        [admitted("W", 0, 2, 2, queued=0.1), admitted("N", 0.2, 1, 1, kind="try_acquire")],
        "order",
        "try_acquire N",
    ),
    "a later waiter overtakes": (
        [admitted("W", 0, 2, 2, queued=0.1, weight=3), admitted("N", 0.2, 1, 1, queued=0.3)],
        "order",
        "acquire N",
    ),
    "counted twice": ([admitted("R", 0, 1, counted=(0, SECOND // 2))], "once", "it was counted 2 times: acquire R"),
    "counted in two of its windows": ([admitted("R", 0, 5, counted=(0, 9_999_999))], "once", "2 times"),
    "counted twice though it failed": (
        [did("acquire", "R", 0, 1, "failed", counted=(0, SECOND // 2))],
        "once",
        "2 times",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_history_is_refused(case):
    history, checker, text = WRONG[case]
    found = check_admissions(history, RATES)
    assert found
    assert {finding.checker for finding in found} == {checker}
    assert text in str(found[0])
    assert check_admissions(history[::-1], RATES), "the order of the list does not matter"


RIGHT = {
    "nothing": [],
    "a period apart": at_once(0, 0, 0, 1, 1),
    "below every limit": at_once(0, 0.5, 1, 10, 10.5, 11),
    "long calls": by_calls((0, 0.5), (0.1, 0.6), (0.2, 0.9), (0.3, 1.2)),
    "of another name": at_once(0, 0, 0, 0, names=("b",)),
    "refused": [*at_once(0, 0, 0), did("try_acquire", "T", 0, 1, "refused"), did("acquire", "U", 0, 1, "timeout")],
    "given back": [*at_once(0, 0, 0), settled("R0", 0.1, 0.2, 0), admitted("N", 0.3, 0.4, 0.35)],
    "given back perhaps": [*at_once(0, 0, 0), settled("R0", 0.1, None, 0, "pending"), admitted("N", 0.3, 0.4, 0.35)],
    "given back while the next one asked": [
        *at_once(0, 0, 0),
        settled("R0", 0.1, 0.4, 0),
        admitted("N", 0.2, 0.3, 0.25),
    ],
    "raised above the limit": [*at_once(0, 0), settled("R0", 0.1, 0.2, 9), admitted("N", 0.3, 12, 11)],
    "in order": [admitted("W", 0, 2, 1.5, queued=0.1), admitted("N", 0.2, 3, 1.5), admitted("M", 0.2, 3, 2.5)],
    "asked before the other was in the queue": [admitted("W", 0, 2, 2, queued=0.3), admitted("N", 0.2, 1, 1)],
    "since when it was there is not known": [admitted("W", 0, 2, 2), admitted("N", 0.2, 1, 1)],
    "counted again when it was forgotten": [admitted("R", 0, 30, counted=(0, 10 * SECOND, 25 * SECOND))],
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_history_has_no_finding(case):
    assert check_admissions(RIGHT[case], RATES) == []


def play(seed, *, limit=4, per_us=SECOND, count=60):
    """Return the history of a limiter with one rate that serves its queue in order, and whose calls take a while."""
    chance, admissions, history = random.Random(seed), [], []
    asked = at = 0
    for number in range(count):
        asked += round(chance.expovariate(5) * SECOND)
        cost, at = chance.randint(1, limit), max(asked, at)
        while sum(other for before, other in admissions if before > at - per_us) + cost > limit:
            at = min(before for before, _ in admissions if before > at - per_us) + per_us
        admissions.append((at, cost))
        begun, ended = asked / SECOND - 0.001, at / SECOND + chance.random()
        queued = asked / SECOND if chance.random() < 0.5 and at > asked else None
        known = at / SECOND if chance.random() < 0.8 else None
        history.append(admitted(f"L{number}", begun, ended, known, weight=cost, queued=queued))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_right_limiter_have_no_finding_and_one_more_is_one_too_many(seed):
    rates = {"a": (RateSpec(4, SECOND),)}
    history = play(seed)
    assert check_admissions(history, rates) == []
    one = next(operation for operation in history if operation.counted)
    extra = replace(one, lease="extra", weight=4)
    assert {finding.checker for finding in check_admissions([*history, extra], rates)} >= {"windows"}


def test_what_was_counted_is_stored_with_a_history():
    history = at_once(0, 1)
    file = io.StringIO()
    write_history(history, file)
    assert list(read_history(file.getvalue().splitlines())) == history
    old = '{"client":"c","kind":"acquire","names":["a"],"lease":"L","invoked":0,"returned":1,"outcome":"granted"}'
    assert list(read_history([old])) == [Operation("c", "acquire", ("a",), "L", 0, 1, "granted")]
