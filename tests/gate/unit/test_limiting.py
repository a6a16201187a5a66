"""The protocol of a limiter against scripted replies and a clock of the test: no server, no sleep."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from handfast import HandfastError, LimitExceeded, QueueFull, ServerRefused
from handfast._engine.effects import Answer, GrantMessage, Park, Waking
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit, LimitRequest
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._protocol.acquire import MAX_POLL_S, POLL_STAGGER_S, UNHEARD_POLL_S, cancel
from handfast._protocol.limiting import EARLY_S, TAKEOVER_S, Decision, LimitAttempt, acquire, settle, status
from handfast.records import LimiterStatus, RateStatus
from tests._support.helpers import performed

TOKEN = b"t" * 32
TICKET = 900_000


def request(cost=1, rates=((10, 1000),), **options):
    place = KeySet("hf", "limiter", "a")
    return LimitRequest(place, [Limit(*rate) for rate in rates], max_waiters=9, timeout=None, cost=cost, **options)


def new(**options):
    return LimitAttempt(request(**options), TOKEN, 100.0)


def perform(attempt, until, *script):
    """Run an acquire: each item of the script is what the driver sends back. Gives the effects and the result."""
    return performed(acquire(attempt, until), *script, attempt=attempt)


def answer(at, tag, *numbers, again=False):
    return Answer(at, [tag, *numbers], again)


def queued(at, position=0, due_us=5_000_000, now_us=1_000_000):
    return answer(at, b"queued", now_us, position, due_us, TICKET)


def told(when_us, now_us=2_000_000):
    return GrantMessage(when_us, now_us, 0)


ADMITTED = answer(110.0, b"admitted", 7, 3)
SETTLED = answer(120.0, b"settled", 0)


def parks(effects):
    return [effect for effect in effects if isinstance(effect, Park)]


def test_one_that_fits_is_one_call():
    attempt = new(cost=4)
    effects, decision = perform(attempt, 105.5, ADMITTED)
    assert effects == [attempt.request.acquire(TOKEN, 5.5)]
    assert bulk(doubles(60_000, 5_500_000, 9, 0)) in effects[0].packed
    assert effects[0].wants.startswith(doubles(0, 4) + b"\x10" + doubles(10, 1000))
    assert effects[0].waiter == TOKEN
    assert decision == Decision(True, 3, 0.0)
    assert attempt.needs_undo, "until its caller has it"


@pytest.mark.parametrize(("until", "patience_us"), [(inf, inf), (100.0, 0), (99.0, 0)])
def test_a_caller_says_how_long_it_may_wait(until, patience_us):
    effects, decision = perform(new(), until, answer(100.0, b"refused", 2_500_000, 4))
    assert bulk(doubles(60_000, patience_us, 9, 0)) in effects[0].packed
    assert decision == Decision(False, 4, 2.5)


def test_a_refusal_leaves_nothing_to_undo_unless_a_copy_may_arrive():
    for again in (False, True):
        attempt = new()
        _, decision = perform(attempt, 100.0, answer(100.0, b"refused", 0, 4, again=again))
        assert decision == Decision(False, 4, 0.001), "never at once"
        assert attempt.needs_undo == again


def test_a_full_queue_is_reported():
    attempt = new()
    with pytest.raises(QueueFull, match="9 are already waiting for 'a'") as full:
        perform(attempt, inf, answer(100.0, b"full", 9))
    assert full.value.waiting == 9
    assert not attempt.needs_undo


def test_where_more_has_lapsed_than_one_call_drops_it_is_sent_again():
    effects, decision = perform(new(), inf, answer(100.0, b"more"), answer(100.0, b"more"), ADMITTED)
    assert len(effects) == 3
    assert decision.admitted


def test_a_refusal_of_the_server_is_raised_and_undone_only_if_it_may_have_written():
    for changed_nothing in (True, False):
        attempt = new()
        with pytest.raises(ServerRefused):
            perform(attempt, inf, ServerRefused("no", name="a", changed_nothing=changed_nothing))
        assert attempt.needs_undo != changed_nothing


def test_one_that_was_cancelled_meanwhile_says_so():
    with pytest.raises(HandfastError, match="cancelled while it waited"):
        perform(new(), inf, answer(100.0, b"finished"))


# --- waiting


def test_the_first_waiter_asks_when_its_time_has_come_and_brings_its_ticket():
    attempt = new()
    effects, decision = perform(attempt, inf, queued(100.0), Waking(105.1, None), ADMITTED)
    (park,) = parks(effects)
    assert park == Park(TOKEN, pytest.approx(105 + EARLY_S), None, pytest.approx(105 + UNHEARD_POLL_S))
    assert bulk(doubles(60_000, inf, 9, TICKET)) in effects[2].packed
    assert decision == Decision(True, 3, 0.0)
    assert attempt.position == 0


@pytest.mark.parametrize(
    ("position", "due_us", "seconds"),
    [
        (1, 5_000_000, 5 + TAKEOVER_S + POLL_STAGGER_S),
        (7, 0, TAKEOVER_S + 7 * POLL_STAGGER_S),
        (1, 60_000_000, MAX_POLL_S),
        (0, 60_000_000, MAX_POLL_S),
        (5000, 0, MAX_POLL_S),
    ],
)
def test_others_ask_later_the_further_they_are_and_at_least_every_third_of_the_wait_lease(position, due_us, seconds):
    effects, _ = perform(new(), inf, queued(100.0, position, due_us), Waking(101.0, None), ADMITTED)
    (park,) = parks(effects)
    assert park.until == pytest.approx(100 + seconds)
    assert park.poll_at == pytest.approx(100 + due_us / 1e6 + UNHEARD_POLL_S + position * POLL_STAGGER_S)


def test_one_that_is_admitted_by_another_does_not_ask_again():
    attempt = new()
    effects, decision = perform(attempt, inf, queued(100.0, 3), Waking(101.0, GrantMessage(4, 2_000_000, 1)))
    assert len(effects) == 2
    assert decision == Decision(True, 4, 0.0)
    assert attempt.needs_undo, "until its caller has it"


def test_one_that_becomes_the_first_waits_until_its_time_and_asks_no_earlier():
    # Asked at 100.0 here and 1.0 there; its time is 4.0 there.
    effects, _ = perform(new(), inf, queued(100.0, 3), Waking(101.2, told(4_000_000)), Waking(103.1, None), ADMITTED)
    first, second = parks(effects)
    assert first.until > 104
    assert second == Park(TOKEN, pytest.approx(103 + EARLY_S))


def test_its_time_may_change_while_it_waits():
    script = [queued(100.0, 3), Waking(101.2, told(4_000_000)), Waking(102.0, told(9_000_000, 3_000_000))]
    effects, _ = perform(new(), inf, *script, Waking(108.1, None), ADMITTED)
    assert [park.until for park in parks(effects)][1:] == pytest.approx([103 + EARLY_S, 108 + EARLY_S])


def test_a_server_whose_clock_was_set_in_between_is_asked_no_later_than_in_the_time_that_it_said():
    for asked_us in (1_000_000, 10**15):  # ahead, and back
        script = [queued(100.0, 3, 0, asked_us), Waking(101.0, told(10**12 + 2_000_000, 10**12))]
        effects, _ = perform(new(), inf, *script, *([Waking(103.1, None)] * (asked_us == 1_000_000)), ADMITTED)
        assert [park.until for park in parks(effects)][1:] == pytest.approx([103 + EARLY_S][: asked_us == 1_000_000])


@pytest.mark.parametrize("when_us", [2_200_000, 1])
def test_one_whose_time_has_come_asks_at_once(when_us):
    effects, _ = perform(new(), inf, queued(100.0, 3), Waking(101.2, told(when_us)), ADMITTED)
    assert len(parks(effects)) == 1


def test_a_wait_that_ends_without_a_reason_asks_again_at_once():
    effects, _ = perform(new(), inf, queued(100.0, 3), Waking(100.5, None), ADMITTED)
    assert len(effects) == 3


# --- giving up


def gives_up(*script, until):
    attempt = new()
    effects, decision = perform(attempt, until, *script, SETTLED)
    assert effects[-1] == attempt.request.cancel(TOKEN)
    assert not attempt.may_be_there
    assert not decision.admitted
    return effects, decision


def test_one_that_is_certain_to_wait_too_long_gives_up_before_it_waits():
    effects, decision = gives_up(queued(100.0, 0, 5_000_000), until=105.0)
    assert parks(effects) == []
    assert decision == Decision(False, 0, 5.0)


def test_one_that_learns_that_it_will_wait_too_long_gives_up_then():
    effects, decision = gives_up(queued(100.0, 3, 0), Waking(101.0, told(9_000_000)), until=104.0)
    assert len(parks(effects)) == 1
    assert decision.retry_after == pytest.approx(7.0)


def test_one_that_waited_too_long_gives_up():
    effects, decision = gives_up(queued(100.0, 3, 0), Waking(101.0, None), until=101.0)
    assert parks(effects)[0].until == 101.0
    assert decision.retry_after == 0.001


def test_a_timeout_that_ends_between_two_calls_is_patience_for_the_rest():
    attempt = new()
    steps = acquire(attempt, 110.0)
    next(steps)
    steps.send(queued(100.0, 3, 0))
    assert steps.send(Waking(104.0, None)) == attempt.request.acquire(TOKEN, 6.0, TICKET)


# --- settling


@pytest.mark.parametrize("copies", [False, True])
def test_an_admission_is_settled_with_what_is_known_of_copies(copies):
    attempt = new(cost=3)
    perform(attempt, inf, answer(100.0, b"admitted", 7, 3, again=copies))
    effects, _ = performed(settle(attempt, 5), answer(120.0, b"settled", 1), SETTLED)
    assert effects == [attempt.request.settle(TOKEN, 5, copies=copies)] * 2
    assert bulk(doubles(3, 5, copies)) in effects[0].packed


def test_a_cancel_goes_on_while_more_is_left():
    attempt = new(cost=3)
    perform(attempt, inf, ADMITTED)
    effects, _ = performed(cancel(attempt), answer(120.0, b"settled", 1), SETTLED)
    assert effects == [attempt.request.settle(TOKEN, 0, copies=True)] * 2


def test_a_status_has_each_rate():
    shown = [7, 500_000, 25, 3_000_000]
    reply = Answer(100.0, [b"state", 5_000_000, 4, 250_000, b"", b"", shown, 3_500_000, doubles(1, 1)])
    _, found = performed(status(request(rates=((10, 1000), (20, 60_000)))), reply)
    rates = RateStatus(10, 1.0, 7, 3, 0.5), RateStatus(20, 60.0, 25, 0, 3.0)
    assert found == LimiterStatus(rates, 4, 0.25, None, 1.5, datetime(1970, 1, 1, 0, 0, 5, 250_000, UTC))


# --- rates that an operator has set

SET = doubles(3, 1000, 90, 60_000)


def test_one_that_hears_of_other_rates_asks_again_under_those_and_says_that_they_are_not_its_own():
    attempt = new(cost=3)
    own = attempt.request
    effects, decision = perform(attempt, 105.0, answer(100.0, b"rates", SET), ADMITTED)
    assert decision.admitted
    assert attempt.request.rates == (Limit(3, 1000), Limit(90, 60_000))
    assert effects == [own.acquire(TOKEN, 5.0), attempt.request.acquire(TOKEN, 5.0)]
    assert bulk(doubles(60_000, 5_000_000, 9, 0)) in effects[1].packed
    assert b"window:60000" in effects[1].packed
    assert effects[1].wants.startswith(doubles(1, 3) + b"\x20" + SET)


def test_one_that_hears_that_none_are_set_any_more_asks_under_its_own_and_keeps_its_place():
    attempt = new()
    own = attempt.request
    attempt.request = own.under([Limit(3, 1000)])
    script = queued(100.0), Waking(105.1, None), answer(105.1, b"rates", b""), ADMITTED
    effects, decision = perform(attempt, inf, *script)
    assert decision.admitted
    assert attempt.request.rates == own.rates
    assert effects[-1] == own.acquire(TOKEN, inf, TICKET)


def test_a_cost_above_the_limit_that_was_set_is_an_error_and_undone_under_the_new_rates():
    attempt = new(cost=4)
    with pytest.raises(LimitExceeded, match=r"'a' has a limit of 3 \(set by resize\(\)\), less than the 4") as caught:
        perform(attempt, inf, answer(100.0, b"rates", SET))
    assert (caught.value.limit, caught.value.requested) == (3, 4)
    assert attempt.needs_undo


def test_a_request_for_another_cost_or_another_key_stays_under_what_it_was_told_or_begins_with_its_own():
    told = request().under([Limit(3, 1000)])
    assert told.with_cost(2).rates == told.rates
    assert told.keyed(("x",)).rates == request().rates
    own, first = (one.acquire(TOKEN, 1.0)._replace(joining=None) for one in (told.under(()), request()))
    assert own == first


def test_a_status_is_that_of_the_rates_that_count_and_says_who_has_set_them():
    said = doubles(1_000_000) + b"resize ann%20b 3/s; 90/min"
    script = [Answer(100.0, [b"state", 1, 0, 0, said, SET, [1, 1000] * windows, 0, b""]) for windows in (1, 2)]
    effects, found = performed(status(request()), *script)
    assert effects == [request().call("inspect"), request().under([Limit(3, 1000), Limit(90, 60_000)]).call("inspect")]
    assert [(rate.limit, rate.per) for rate in found.rates] == [(3, 1.0), (90, 60.0)]
    assert (found.last.what, found.last.by, found.last.why) == ("resize", "ann b", "3/s; 90/min")
    assert found.last.at.timestamp() == 1


def test_one_that_does_not_enforce_says_so_whatever_its_timeout_and_hears_what_it_exceeds():
    for until in (100.0, inf):
        attempt = LimitAttempt(request(enforce=False).with_cost(2), TOKEN, 100.0)
        effects, decision = perform(attempt, until, answer(100.0, b"exceeded", 1_500_000, 0))
        assert bulk(doubles(60_000, -1, 9, 0)) in effects[0].packed
        assert decision == Decision(True, 0, 1.5, exceeded=True)
