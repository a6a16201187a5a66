"""The protocol of debouncing against scripted replies and a clock of the test: no server, no sleep."""

from __future__ import annotations

from math import inf

import pytest

from handfast import ServerRefused
from handfast._engine.effects import Answer, GrantMessage, Park, Waking
from handfast._engine.keys import KeySet
from handfast._engine.objects import ObjectRequest
from handfast._protocol.acquire import MAX_POLL_S
from handfast._protocol.asking import ObjectAttempt
from handfast._protocol.debouncing import EARLY_S, wait
from tests._support.helpers import performed

TOKEN = b"t" * 32
REQUEST = ObjectRequest(KeySet("hf", "debounce", "a"), quiet_ms=100, at_most_ms=inf)
TICKET = 1_000_000
ENTER = REQUEST.call("enter", TOKEN, left_us=100_000, ticket=0)
SUPERSEDED = Waking(100.05, GrantMessage(0, 1_000_050, 1))


@pytest.fixture
def attempt():
    return ObjectAttempt(REQUEST, TOKEN, 100.0)


def perform(attempt, *script):
    return performed(wait(attempt), *script, attempt=attempt)


def answer(at, tag, *numbers, again=False):
    return Answer(at, [tag, *numbers], again)


def waits(at, due_in_us=100_000, **options):
    return answer(at, b"waits", 1_000_000, 1_000_000 + due_in_us, TICKET, **options)


def asks(left_s):
    """The call that asks again, with so many seconds left."""
    return REQUEST.call("enter", TOKEN, left_us=round(left_s * 1e6), ticket=TICKET)


def test_a_call_asks_at_its_time_and_runs(attempt):
    effects, runs = perform(attempt, waits(100.0), Waking(100.1005, None), answer(100.2, b"runs"))
    assert effects == [ENTER, Park(TOKEN, pytest.approx(100.1 + EARLY_S)), asks(-EARLY_S)]
    assert runs is True


def test_a_message_ends_it_without_a_further_call(attempt):
    effects, runs = perform(attempt, waits(100.0), SUPERSEDED)
    assert (len(effects), runs) == (2, False)


@pytest.mark.parametrize(
    "script", [(answer(100.0, b"superseded"),), (waits(100.0), Waking(100.2, None), answer(100.2, b"superseded"))]
)
def test_one_that_asks_learns_that_it_was_superseded(attempt, script):
    assert perform(attempt, *script)[1] is False


def test_one_that_comes_too_early_waits_on(attempt):
    script = waits(100.0), Waking(100.2, None), waits(100.2, 50_000), Waking(100.3, None), answer(100.3, b"runs")
    effects, runs = perform(attempt, *script)
    assert effects[2:] == [asks(-0.1), Park(TOKEN, pytest.approx(100.25 + EARLY_S)), asks(-0.05)]
    assert runs


def test_where_its_connection_has_broken_it_says_where_it_is(attempt):
    script = waits(100.0), Waking(100.01, None), waits(100.02, 80_000), SUPERSEDED
    assert perform(attempt, *script)[0][2] == asks(0.09)


def test_one_that_waits_long_asks_three_times_a_minute(attempt):
    script = waits(100.0, 10**12), Waking(100.0 + MAX_POLL_S, None), waits(120.0, 10**12), SUPERSEDED
    effects, _ = perform(attempt, *script)
    assert effects == [
        ENTER,
        Park(TOKEN, 100.0 + MAX_POLL_S),
        asks(10**6 - MAX_POLL_S),
        Park(TOKEN, 120.0 + MAX_POLL_S),
    ]


@pytest.mark.parametrize(
    ("changed_nothing", "script", "needs_undo"),
    [
        (True, (), False),
        (False, (), True),
        (True, (waits(100.0), Waking(100.01, None)), True),
    ],
)
def test_what_a_refusal_leaves_behind_is_withdrawn(attempt, changed_nothing, script, needs_undo):
    with pytest.raises(ServerRefused):
        perform(attempt, *script, ServerRefused("no", name="a", changed_nothing=changed_nothing))
    assert attempt.needs_undo == needs_undo


def test_a_call_that_was_sent_twice_is_noted(attempt):
    perform(attempt, waits(100.0, again=True), SUPERSEDED)
    assert attempt.copies
