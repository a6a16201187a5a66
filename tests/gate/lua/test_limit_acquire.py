"""limit_acquire.lua: who is admitted, who waits, and for how long."""

from __future__ import annotations

import pytest

from tests._support.engine import NOW_US, WAIT_MS, WAIT_US, unchanged
from tests._support.limits import SECOND_US, messages

# --- one rate


def test_as_much_as_the_limit_is_admitted_and_then_as_much_as_lapses(limits, clock):
    a = limits((3, 1000))
    for number, token in enumerate(("t1", "t2", "t3")):
        clock.now_us = NOW_US + number
        assert a.attempt(token) == ["admitted", NOW_US + number, 2 - number]
    clock.now_us += 1
    assert a.attempt("t4") == ["refused", SECOND_US - 3, 0]
    clock.now_us = NOW_US + SECOND_US - 1
    assert a.attempt("t4") == ["refused", 1, 0]
    clock.now_us = NOW_US + SECOND_US
    assert a.attempt("t4") == ["admitted", NOW_US + SECOND_US, 0]
    assert a.attempt("t5") == ["refused", 1, 0]
    assert [*a.window()] == ["t2 1", "t3 1", "t4 1"]


@pytest.mark.parametrize(("cost", "reply"), [(1, "admitted"), (4, "admitted"), (5, "refused"), (10, "refused")])
def test_a_cost_fits_as_a_whole_or_not_at_all(limits, cost, reply):
    a = limits((10, 1000))
    a.attempt("t1", 6)
    assert a.attempt("t2", cost)[0] == reply
    assert a.used() == (6 + cost if reply == "admitted" else 6)


def test_what_is_due_is_when_enough_of_the_oldest_has_lapsed(limits, clock):
    a = limits((10, 1000))
    for token, cost in (("t1", 2), ("t2", 3), ("t3", 5)):
        a.attempt(token, cost)
        clock.now_us += 100
    for cost, due_us in ((1, 0), (2, 0), (3, 100), (5, 100), (6, 200), (10, 200)):
        assert a.attempt("t4", cost) == ["refused", SECOND_US - 300 + due_us, 0]


def test_of_costs_that_are_all_1_it_is_known_exactly_however_many_have_to_lapse(limits):
    a = limits((300, 1000))
    a.fill(300, NOW_US - 300)
    for cost in (1, 101, 150, 300):
        assert a.attempt("t1", cost) == ["refused", SECOND_US - 300 + cost - 1, 0]


def test_of_costs_that_differ_the_oldest_hundred_tell_a_time_that_may_be_too_early(limits, clock):
    a = limits((1000, 1000))
    a.fill(200, NOW_US, cost=2)
    a.fill(600, NOW_US + 1000)
    clock.now_us += 2000
    assert a.attempt("t1", 200) == ["refused", SECOND_US - 2000 + 99, 0]
    assert a.attempt("t1", 202)[1] == SECOND_US - 2000 + 99, "the 101st would be in time"
    clock.now_us = NOW_US + SECOND_US + 99
    assert a.attempt("t1", 202) == ["refused", 1, 200]


def test_a_clock_that_was_set_ahead_lets_windows_lapse(limits, clock):
    a = limits((2, 1000))
    for token in ("t1", "t2"):
        a.attempt(token)
    clock.now_us += 3600 * SECOND_US
    assert a.attempt("t3") == ["admitted", clock.now_us, 1]


@pytest.mark.parametrize("cost", [1, 2])
def test_a_clock_that_was_set_back_makes_no_one_wait_longer_than_a_period(limits, clock, cost):
    a = limits((6, 1000))
    for token in ("t1", "t2", "t3"):
        a.attempt(token, 2)
        clock.now_us += 10
    clock.now_us = NOW_US - 3600 * SECOND_US
    assert a.attempt("t4", cost) == ["refused", SECOND_US, 0]
    assert set(a.window().values()) == {clock.now_us}, "all of it counts from now on"
    clock.now_us += SECOND_US - 1
    assert a.attempt("t4", cost) == ["refused", 1, 0]
    clock.now_us += 1
    assert a.attempt("t4", cost)[0] == "admitted"


def test_what_was_admitted_before_the_clock_was_set_back_is_redated_only_where_it_does_not_fit(limits, clock):
    a = limits((2, 1000))
    a.attempt("t1")
    clock.now_us -= 5000
    assert a.attempt("t2") == ["admitted", NOW_US - 5000, 0]
    assert a.window() == {"t2 1": NOW_US - 5000, "t1 1": NOW_US}
    assert a.attempt("t3") == ["refused", SECOND_US, 0]
    assert a.window() == {"t1 1": NOW_US - 5000, "t2 1": NOW_US - 5000}


def test_more_of_it_than_one_call_redates_is_redated_by_the_next_ones(limits, clock):
    a = limits((1200, 1000))
    a.fill(1200, NOW_US)
    clock.now_us -= 10 * SECOND_US
    for redated in (500, 1000, 1200):
        assert a.attempt("t1", 1200) == ["refused", SECOND_US, 0], "what is later than now counts from now on"
        assert sum(at == clock.now_us for at in a.window().values()) == redated
    assert a.attempt("t1", 1200) == ["refused", SECOND_US, 0]


def test_what_lapsed_is_dropped_500_a_call_and_no_one_is_refused_for_the_rest(limits, clock):
    a = limits((10_000, 1000))
    a.fill(9_000, NOW_US - 2 * SECOND_US)
    assert a.attempt("t1") == ["admitted", NOW_US, 1499]
    assert len(a.window()) == 8_501
    for left in (8_000, 7_500):
        assert a.attempt("t2", 9_000) == ["more"]
        assert a.used() == left + 1
    for _ in range(13):
        assert a.attempt("t2", 9_000) == ["more"]
    assert a.attempt("t2", 9_999)[0] in ("more", "admitted")


def test_exactly_as_much_as_one_call_drops_leaves_nothing_to_be_asked_for(limits):
    a = limits((500, 1000))
    a.fill(500, NOW_US - SECOND_US - 500)
    assert a.attempt("t1", 500) == ["admitted", NOW_US, 0]
    b = limits((501, 2000))
    b.fill(500, NOW_US - 3 * SECOND_US)
    b.fill(1, NOW_US)
    assert b.attempt("t1", 501) == ["refused", 2 * SECOND_US, 500]


# --- several rates


def test_under_several_rates_all_admit_or_none(limits, clock):
    a = limits((2, 100), (3, 1000))
    assert a.attempt("t1") == ["admitted", NOW_US, 1]
    assert a.attempt("t2") == ["admitted", NOW_US, 0]
    assert a.attempt("t3") == ["refused", 100_000, 0]
    clock.now_us += 100_000
    assert a.attempt("t3") == ["admitted", clock.now_us, 0], "the longer window is the tighter one"
    assert a.attempt("t4") == ["refused", 900_000, 0]
    assert (a.used(100), a.used(1000)) == (1, 3)


def test_a_window_that_was_evicted_counts_anew_and_the_other_does_not(limits):
    a = limits((1, 100), (3, 1000))
    a.attempt("t1")
    a.client.delete(a.window_key(100))
    assert a.attempt("t2") == ["admitted", NOW_US, 0]
    assert (a.used(100), a.used(1000)) == (1, 2)


def test_a_copy_finds_its_admission_in_the_window_that_is_left(limits):
    """The one that was evicted gets it again, so that it has what was admitted."""
    a = limits((1, 100), (3, 1000))
    a.attempt("t1")
    a.client.delete(a.window_key(100))
    assert a.attempt("t1") == ["admitted", NOW_US, 0]
    assert (a.window(100), a.window(1000)) == ({"t1 1": NOW_US}, {"t1 1": NOW_US})


def test_it_gets_it_again_until_the_admission_has_lapsed_there(limits, clock):
    a = limits((1, 100), (3, 1000))
    a.attempt("t1")
    for later_us, has_it in ((99_999, True), (1, False)):
        clock.now_us += later_us
        a.client.delete(a.window_key(100))
        assert a.attempt("t1")[:2] == ["admitted", NOW_US]
        assert a.window(100) == ({"t1 1": clock.now_us} if has_it else {})


def test_what_its_caller_may_know_of_is_not_taken_back_where_another_has_its_place_by_now(limits):
    a = limits((1, 100), (3, 1000))
    a.attempt("t1")
    a.client.delete(a.window_key(100))
    a.attempt("t2")
    assert a.attempt("t1") == ["admitted", NOW_US, 0]
    assert a.window(100) == a.window(1000) == {"t1 1": NOW_US, "t2 1": NOW_US}


def test_a_copy_does_not_count_again_where_it_had_lapsed_before_the_clock_was_set_back(limits, clock):
    a = limits((1, 20), (5, 100))
    a.attempt("t1")
    clock.now_us += 20_000
    a.attempt("t2")
    clock.now_us -= 3 * SECOND_US
    assert a.attempt("t1")[:2] == ["admitted", NOW_US]
    assert [*a.window(20)] == ["t2 1"]


def test_what_was_left_out_of_a_window_is_there_from_now_on(limits, clock):
    """A script that was cut off left it out: the window has it when it is completed, not before."""
    a = limits((5, 100), (5, 1000))
    a.attempt("t1")
    a.client.delete(a.window_key(1000))
    clock.now_us += 50_000
    assert a.attempt("t1") == ["admitted", NOW_US, 4]
    assert (a.window(100), a.window(1000)) == ({"t1 1": NOW_US}, {"t1 1": clock.now_us})


@pytest.mark.parametrize("age_us", [99_950, 100_000, 100_050, 300_000])
def test_what_was_left_out_counts_from_now_on_where_it_has_lapsed_too(limits, clock, age_us):
    a = limits((5, 100), (5, 1000))
    a.attempt("t1")
    a.client.delete(a.window_key(1000))
    clock.now_us += age_us
    a.attempt("t1")
    assert a.window(1000) == {"t1 1": clock.now_us}
    assert a.window(100) == {"t1 1": NOW_US if age_us < 100_000 else clock.now_us}


@pytest.mark.parametrize(("limit", "counts"), [(1, False), (2, True)])
def test_it_counts_there_only_if_it_fits(limits, clock, limit, counts):
    a = limits((limit, 100), (5, 1000), (5, 5000))
    a.attempt("t1")
    a.client.delete(a.window_key(5000))
    clock.now_us += 200_000
    a.attempt("t2")
    assert a.attempt("t1")[:2] == ["admitted", NOW_US]
    assert (a.used(100), a.used(1000), a.used(5000)) == (1 + counts, 2, 2)


@pytest.mark.parametrize("left_out", [1000, 5000])
def test_it_counts_where_its_window_has_expired_as_a_whole(limits, clock, left_out):
    a = limits((5, 100), (5, 1000), (5, 5000))
    a.attempt("t1")
    a.client.delete(a.window_key(100), a.window_key(left_out))
    clock.now_us += 200_000
    assert a.attempt("t1")[:2] == ["admitted", NOW_US]
    assert a.window(100) == a.window(left_out) == {"t1 1": clock.now_us}


def test_the_latest_of_all_windows_says_when_to_come(limits):
    for rates in [(1, 1000), (1, 100)], [(1, 100), (1, 1000)]:
        a = limits(*rates)
        a.client.flushall()
        a.attempt("t1")
        assert a.attempt("t2") == ["refused", SECOND_US, 0]


def test_one_that_may_exceed_is_counted_where_more_waiters_are_gone_than_one_call_drops(limits):
    a = limits((1, 1000))
    a.pause(5000)
    for number in range(110):
        a.acquire(f"w{number}")
    a.client.delete(a.key("settings"))
    assert a.acquire("t1", patience=-1) == ["exceeded", 0, 0]
    assert a.used() == 1


def test_a_copy_renews_the_ttl_that_a_script_which_was_cut_off_has_left_out(limits):
    a = limits((5, 1000))
    a.attempt("t1")
    a.client.pexpire(a.windows[0], 50)
    assert a.attempt("t1")[0] == "admitted"
    assert a.client.pttl(a.windows[0]) > 1000


def test_a_copy_does_not_count_again_where_its_admission_has_lapsed(limits, clock):
    a = limits((1, 100), (3, 1000))
    a.attempt("t1")
    clock.now_us += 100_000
    a.attempt("t2")
    assert a.attempt("t1") == ["admitted", NOW_US, 0]
    assert (a.window(100), a.used(1000)) == ({"t2 1": clock.now_us}, 2)


def test_another_rate_of_a_name_is_a_window_of_its_own(limits):
    a = limits((1, 1000))
    b = a.under((2, 1000))
    c = a.under((1, 2000))
    assert a.attempt("t1")[0] == "admitted"
    assert a.attempt("t2")[0] == "refused"
    assert b.attempt("t2") == ["admitted", NOW_US, 0], "each request counts by its own limit"
    assert c.attempt("t3")[0] == "admitted"


# --- the sum of a window


@pytest.mark.parametrize("lapsed", [0, 2])
def test_a_window_without_its_sum_is_added_up(limits, lapsed):
    a = limits((10, 1000))
    a.fill(lapsed, NOW_US - SECOND_US - 5, cost=2)
    a.fill(3, NOW_US, cost=2)
    a.client.zrem(a.windows[0], "=")
    assert a.inspect() == (0, [(6, SECOND_US + 2)])
    assert a.attempt("t1", 5)[0] == "refused"
    assert a.used() == 6
    a.client.zrem(a.windows[0], "=")
    assert a.attempt("t1", 4) == ["admitted", NOW_US, 0]


# --- the queue


def test_those_who_do_not_fit_are_queued_in_their_order(limits, clock):
    a = limits((1, 1000))
    a.attempt("t1")
    for position, token in enumerate(("t2", "t3", "t4")):
        assert a.acquire(token) == ["queued", NOW_US, position, SECOND_US]
    assert a.tickets == {"t2": NOW_US, "t3": NOW_US + 1, "t4": NOW_US + 2}
    clock.now_us += 500
    assert a.acquire("t5") == ["queued", clock.now_us, 3, SECOND_US - 500]
    assert a.tickets["t5"] == clock.now_us
    assert a.queue() == ["t2", "t3", "t4", "t5"]


def test_a_waiter_that_asks_again_keeps_its_place_and_renews_its_wait_lease(limits, clock):
    a = limits((1, 1000))
    a.attempt("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    clock.now_us += 10
    assert a.acquire("t3") == ["queued", clock.now_us, 1, SECOND_US - 10]
    assert a.tickets["t3"] == NOW_US + 1
    assert a.wait_until("t2") == NOW_US + WAIT_US
    assert a.wait_until("t3") == clock.now_us + WAIT_US


def test_the_first_one_is_admitted_when_it_comes_in_time(limits, clock, listening):
    a = limits((1, 1000))
    inbox = listening("t3")
    a.attempt("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    clock.now_us += SECOND_US
    assert a.acquire("t2") == ["admitted", clock.now_us, 0]
    assert a.queue() == ["t3"]
    assert messages(inbox) == [("t3", "come", clock.now_us + SECOND_US)], "the next one learns its time"


@pytest.mark.parametrize("patience", [0, 10 * SECOND_US])
def test_no_newcomer_overtakes_a_waiter_not_even_with_a_smaller_cost(limits, clock, listening, patience):
    a = limits((10, 1000))
    listening("large")
    a.attempt("t1", 5)
    a.acquire("large", 8)
    assert a.acquire("small", patience=patience)[0] in ("refused", "queued")
    assert a.used() == 5
    clock.now_us += SECOND_US - 1
    assert a.attempt("another") == ["refused", 1, 5]
    assert a.used() == 5


def test_a_call_of_anyone_admits_the_waiters_that_fit(limits, clock, listening):
    a = limits((4, 1000))
    inbox = listening("t2", "t3", "t4")
    a.attempt("t1", 4)
    for token, cost in (("t2", 1), ("t3", 2), ("t4", 2)):
        a.acquire(token, cost)
    clock.now_us += SECOND_US
    assert a.attempt("new") == ["refused", SECOND_US, 1]
    assert a.window() == {"t2 1": clock.now_us, "t3 2": clock.now_us}
    assert a.queue() == ["t4"]
    assert messages(inbox) == [
        ("t2", "admitted", 3),
        ("t3", "admitted", 1),
        ("t4", "come", clock.now_us + SECOND_US),
    ]


def test_a_newcomer_is_admitted_behind_waiters_that_all_fit(limits, clock, listening):
    a = limits((4, 1000))
    listening("t2")
    a.attempt("t1", 4)
    a.acquire("t2")
    clock.now_us += SECOND_US
    assert a.attempt("new", 3) == ["admitted", clock.now_us, 0]
    assert a.queue() == []


def test_a_waiter_that_was_admitted_and_missed_the_message_learns_it_when_it_asks(limits, clock, listening):
    a = limits((4, 1000))
    listening("t2")
    a.attempt("t1", 4)
    a.acquire("t2")
    clock.now_us += SECOND_US
    a.attempt("new")
    clock.now_us += 77
    assert a.acquire("t2", ticket=a.tickets["t2"]) == ["admitted", NOW_US + SECOND_US, 2]


@pytest.mark.parametrize("sign", ["no subscriber", "no record", "wait-lease over"])
def test_a_waiter_that_is_gone_is_dropped_in_the_call_that_would_admit_it(limits, clock, listening, sign):
    a = limits((1, 1000))
    inbox = listening("alive", *["gone"] * (sign != "no subscriber"))
    a.attempt("t1")
    for token in ("gone", "alive"):
        a.acquire(token)
    if sign == "no record":
        a.client.hdel(a.key("waiting"), "gone")
    elif sign == "wait-lease over":
        a.lapse("gone")
    clock.now_us += SECOND_US
    assert a.attempt("new")[0] == "refused"
    assert a.window() == {"alive 1": clock.now_us}
    assert a.queue() == []
    assert messages(inbox) == [("alive", "admitted", 0)]


def test_a_waiter_that_is_gone_and_wants_much_does_not_keep_others_from_what_is_left(limits):
    a = limits((10, 1000))
    a.attempt("t1", 5)
    assert a.acquire("gone", 8)[0] == "queued"
    assert a.attempt("t2", 5) == ["admitted", NOW_US, 0]
    assert a.queue() == []


def test_the_wait_lease_of_a_waiter_lasts_as_long_as_it_says(limits, clock, listening):
    a = limits((1, 2 * WAIT_MS))
    listening("waits")
    a.attempt("t1")
    a.acquire("waits")
    clock.now_us += WAIT_US
    a.attempt("new")
    assert a.queue() == ["waits"]
    clock.now_us += 1
    a.attempt("new")
    assert a.queue() == []


def test_a_waiter_that_lost_its_place_has_it_again_by_its_ticket(limits, clock):
    a = limits((1, 1000))
    a.attempt("t1")
    for token in ("z", "y"):
        a.acquire(token)
    a.client.delete(a.key("queue"), a.key("waiting"))
    clock.now_us += 1
    assert a.acquire("y", ticket=a.tickets["y"]) == ["queued", clock.now_us, 0, SECOND_US - 1]
    assert a.acquire("x") == ["queued", clock.now_us, 1, SECOND_US - 1]
    assert a.acquire("z", ticket=a.tickets["z"], max_waiters=1) == ["queued", clock.now_us, 0, SECOND_US - 1]
    assert a.acquire("first", ticket=1)[2] == 0
    assert a.queue() == ["first", "z", "y", "x"]
    assert a.wait_until("z") == clock.now_us + WAIT_US


def test_one_that_comes_back_has_its_place_and_its_record_also_before_all_that_lapsed_is_dropped(limits, listening):
    a = limits((2000, 1000))
    listening("w")
    a.fill(1200, NOW_US - 2 * SECOND_US)
    assert a.acquire("w", 2000, ticket=NOW_US - 5) == ["more"]
    assert a.wait_until("w") == NOW_US + WAIT_US
    assert 0 < a.client.pttl(a.key("queue")) <= WAIT_MS + 60_000
    assert a.acquire("w", 2000, ticket=NOW_US - 5) == ["more"]
    assert a.queue() == ["w"]
    assert a.attempt("new")[0] == "refused", "all of it goes to the waiter"
    assert [*a.window()] == ["w 2000"]


def test_one_that_lost_its_place_and_fits_before_all_others_is_admitted(limits, clock, listening):
    a = limits((1, 1000))
    listening("t2", "t3")
    a.attempt("t1")
    a.acquire("t3", ticket=NOW_US + 5)
    clock.now_us += SECOND_US
    assert a.acquire("t2", ticket=NOW_US + 1) == ["admitted", clock.now_us, 0]
    assert a.queue() == ["t3"]


def test_tickets_grow_where_the_clock_was_set_back(limits, clock):
    a = limits((1, 1000))
    a.attempt("t1")
    a.acquire("t2")
    clock.now_us -= 1000
    a.acquire("t3")
    assert a.tickets["t3"] == NOW_US + 1
    assert a.queue() == ["t2", "t3"]


def test_a_full_queue_takes_no_newcomer(limits, listening):
    a = limits((1, 1000))
    listening("t2", "t3")
    a.attempt("t1")
    for token in ("t2", "t3"):
        assert a.acquire(token, max_waiters=2)[0] == "queued"
    with unchanged(a):
        assert a.acquire("t4", max_waiters=2) == ["full", 2]
    assert a.acquire("t3", max_waiters=2)[0] == "queued"


def test_the_first_newcomer_of_an_empty_queue_may_find_it_full(limits):
    a = limits((1, 1000))
    a.attempt("t1")
    assert a.acquire("t2", max_waiters=0) == ["full", 0]


# --- patience


@pytest.mark.parametrize(
    ("waiting", "cost", "least_us"),
    [(0, 1, SECOND_US), (1, 1, SECOND_US), (2, 1, SECOND_US), (4, 1, 2 * SECOND_US), (6, 1, 3 * SECOND_US)],
)
def test_one_that_is_certain_to_wait_longer_than_it_may_is_refused(limits, listening, waiting, cost, least_us):
    """Of two a second, those before it take (waiting + cost) / 2 periods, but for the first."""
    a = limits((2, 1000))
    listening("t2", *(f"w{number}" for number in range(waiting)))
    a.attempt("t1", 2)
    for number in range(waiting):
        a.acquire(f"w{number}")
    with unchanged(a):
        assert a.acquire("t2", cost, patience=least_us - 1) == ["refused", least_us, 0]
        assert a.attempt("t2", cost) == ["refused", least_us, 0]
    assert a.acquire("t2", cost, patience=least_us)[0] == "queued"


def test_the_tightest_of_several_rates_says_how_long_it_takes_at_least(limits, listening):
    a = limits((1, 100), (3, 1000))
    listening(*(f"w{number}" for number in range(5)))
    a.attempt("t1")
    for number in range(5):
        a.acquire(f"w{number}")
    assert a.acquire("t2", patience=SECOND_US - 1) == ["refused", SECOND_US, 0]


def test_one_that_is_in_the_queue_is_not_refused(limits):
    a = limits((1, 1000))
    a.attempt("t1")
    a.acquire("t2")
    assert a.acquire("t2", patience=1)[0] == "queued"
    assert a.acquire("t2", patience=0)[0] == "queued"


# --- those who are gone, or frozen


@pytest.mark.parametrize("max_waiters", [2, 1000])
@pytest.mark.parametrize("gone", [1, 50, 350])
def test_waiters_that_are_gone_do_not_count_as_a_queue(limits, clock, listening, gone, max_waiters):
    a = limits((1, 1000))
    listening("alive")
    a.attempt("t1")
    for number in range(gone):
        a.acquire(f"gone{number}")
    a.acquire("alive")
    a.client.hdel(a.key("waiting"), "gone0")
    replies = []
    while not replies or replies[-1] == "more":
        replies.append(a.acquire("t2", patience=SECOND_US - 1000, max_waiters=max_waiters)[0])
        clock.now_us += 1
    assert replies[-1] == "refused"
    assert "alive" in a.queue()
    assert a.acquire("t2", patience=2 * SECOND_US, max_waiters=max_waiters)[0] == "queued"
    assert len(replies) <= 8


def test_those_that_are_gone_are_not_counted_in_when_to_try_again(limits):
    a = limits((1, 1000))
    a.attempt("t1")
    for number in range(50):
        a.acquire(f"gone{number}")
    assert [a.attempt("t2"), a.attempt("t2")] == [["more"], ["refused", SECOND_US, 0]]


def test_live_waiters_are_looked_at_only_where_they_keep_one_out(limits, raw, listening):
    a = limits((10, 1000))
    listening("w")
    a.attempt("t1", 10)
    a.acquire("w")
    raw.config_resetstat()
    assert a.acquire("t2", patience=2 * SECOND_US)[0] == "queued"
    assert "cmdstat_hmget" in raw.info("commandstats"), "of the settings"
    assert raw.info("commandstats")["cmdstat_hmget"]["calls"] == 1


def test_a_frozen_head_with_other_rates_is_passed_over_after_the_claim_window_with_its_connection(
    limits, clock, subscribe
):
    a = limits((5, 1000))
    b = a.under((1, 2000))
    inbox = subscribe("frozen", "inbox:t3")
    b.attempt("x")
    for token in ("f1", "f2"):
        b.acquire(token, inbox="frozen")
    clock.now_us += 2 * SECOND_US + 1_999_999
    assert a.acquire("t3") == ["queued", clock.now_us, 2, 0]
    assert messages(inbox) == [], "it was to come by itself, at the end of its period"
    clock.now_us += 2
    assert a.acquire("t3")[0] == "admitted"
    assert a.queue() == []
    assert b.acquire("f1", inbox="frozen", ticket=b.tickets["f1"])[0] == "admitted", "it is back"


def test_a_head_whose_rates_do_not_count_any_more_gets_one_message_and_is_passed_over_after_the_claim_window(
    limits, clock, subscribe
):
    a = limits((1, 4000))
    inbox = subscribe("inbox:frozen")
    a.attempt("x")
    a.acquire("frozen")
    other = a.under((9, 4000))
    other.resize()
    assert messages(inbox) == [("frozen", "come", clock.now_us)]
    other.follows = True
    for later_us in (1, 1_000_000, 999_999):
        clock.now_us += later_us
        assert other.attempt("new") == ["refused", 0, 8]
    other.settle("x", 1, 0)
    assert messages(inbox) == [], "what others give back does not begin its time anew"
    clock.now_us += 1
    assert other.attempt("new")[0] == "admitted"


def test_a_head_with_other_rates_says_when_it_comes_to_those_behind_it(limits, clock, listening):
    a = limits((5, 1000))
    b = a.under((1, 9000))
    inbox = listening("w")
    b.attempt("x")
    b.acquire("w")
    clock.now_us += SECOND_US
    assert a.attempt("new") == ["refused", 8 * SECOND_US, 5]
    assert a.acquire("t2")[3] == 8 * SECOND_US
    assert messages(inbox) == []


def test_a_waiter_that_was_admitted_by_another_is_not_counted_again_when_its_period_is_over(limits, clock, listening):
    a = limits((1, 600))
    listening("t2", "t3")
    a.attempt("t1")
    for token in ("t2", "t3"):
        a.acquire(token)
    clock.now_us += 600_000
    a.attempt("new")
    admitted_us = clock.now_us
    clock.now_us += 19_999_999
    assert a.acquire("t2", ticket=a.tickets["t2"]) == ["admitted", admitted_us, 1]
    assert a.used() == 0
    assert a.settle("t2", 1, 0) == ["settled", 0]
    assert a.acquire("t2", ticket=a.tickets["t2"]) == ["finished"]


def test_those_whose_period_is_longer_than_they_may_be_late_are_not_remembered_apart(limits, clock, listening):
    a = limits((1, 600), (2, 20_001))
    listening("t2")
    a.attempt("t1")
    a.acquire("t2")
    clock.now_us += SECOND_US
    a.attempt("new")
    assert a.used() == 1
    assert a.tombstones() == []


# --- other rates in the queue


def test_a_head_with_other_rates_is_woken_and_admits_itself(limits, clock, listening):
    a = limits((1, 1000))
    b = a.under((1, 2000))
    listening("t2")
    inbox = listening("other", "t3")
    a.attempt("t1")
    b.attempt("x")
    a.acquire("t2")
    b.acquire("other")
    a.acquire("t3")
    clock.now_us += SECOND_US
    assert a.acquire("t2")[0] == "admitted"
    assert messages(inbox) == [("other", "come", clock.now_us)], "this call does not have its windows"
    assert a.attempt("new")[0] == "refused"
    assert messages(inbox) == [], "it has had its message"
    assert b.acquire("other") == ["queued", clock.now_us, 0, SECOND_US]
    clock.now_us += SECOND_US
    assert a.acquire("t3")[0] == "queued", "it stands behind the other one"
    assert b.acquire("other")[0] == "admitted"
    assert messages(inbox) == [("t3", "come", clock.now_us)]
    assert a.acquire("t3")[0] == "admitted"


def test_a_head_with_other_rates_that_is_gone_does_not_stop_those_behind_it(limits, clock, listening):
    a = limits((1, 1000))
    b = a.under((1, 2000))
    listening("t3")
    b.attempt("x")
    b.acquire("gone")
    assert a.acquire("t3")[0] == "admitted"
    assert a.queue() == []


# --- bounded work


def test_100_waiters_are_served_in_one_call_and_the_next_one_goes_on(limits, clock, subscribe):
    a = limits((1000, 1000))
    inbox = subscribe("all")
    a.attempt("t1", 1000)
    for number in range(150):
        a.acquire(f"w{number:03}", inbox="all")
    clock.now_us += SECOND_US
    assert a.attempt("new")[0] == "refused"
    assert (a.used(), len(a.queue())) == (100, 50)
    found = messages(inbox)
    assert found[-1] == ("w100", "come", clock.now_us), "one that lives goes on, also if the caller dies"
    assert [token for token, *_ in found] == [f"w{number:03}" for number in range(101)]
    assert a.acquire("w100", inbox="all")[0] == "admitted"
    assert a.queue() == []


def test_100_waiters_that_are_gone_are_dropped_in_one_call_and_the_caller_goes_on(limits, clock, listening):
    a = limits((1, 1000))
    listening("alive")
    a.attempt("t1")
    for number in range(150):
        a.acquire(f"w{number:03}")
    a.acquire("alive")
    clock.now_us += SECOND_US
    for left, reply in ((51 - 1, "more"), (0, "refused")):
        assert a.attempt("new")[0] == reply
        assert len(a.queue()) == left
    assert [*a.window()] == ["alive 1"]


def test_one_behind_many_that_are_gone_is_admitted_as_soon_as_it_asks(limits, clock, listening):
    a = limits((10, 500))
    listening("alive")
    a.attempt("t1", 10)
    for number in range(350):
        a.acquire(f"w{number:03}")
    a.acquire("alive")
    clock.now_us += SECOND_US
    replies = [a.acquire("alive")[0] for _ in range(4)]
    assert replies == ["more", "more", "more", "admitted"]
    assert (a.queue(), [*a.window()]) == ([], ["alive 1"])


def test_a_head_that_cannot_be_judged_before_more_is_dropped_asks_itself_until_it_can(limits, clock, listening):
    a = limits((2000, 1000))
    listening("w")
    a.fill(2000, NOW_US)
    a.acquire("w", 1800)
    clock.now_us += 2 * SECOND_US
    assert a.attempt("new")[0] == "refused"
    for _ in range(2):
        assert a.acquire("w", 1800) == ["more"]
    assert a.acquire("w", 1800)[0] == "admitted"


# --- messages in a cluster


def test_a_waiter_with_a_sharded_inbox_is_counted_and_reached_there(limits, clock, sharded):
    a = limits((1, 1000))
    inbox = sharded("inbox:{x}w")
    a.attempt("t1")
    a.acquire("gone", inbox="inbox:{x}gone")
    a.acquire("w", inbox="inbox:{x}w")
    clock.now_us += SECOND_US
    a.attempt("new")
    assert a.window() == {"w 1": clock.now_us}
    message = inbox.get_message(timeout=3)
    assert message["data"].startswith(b"granted w ")


# --- calls that do not enforce the rates


def freely(scripts, token, cost=1):
    return scripts.acquire(token, cost, patience=-1)


def test_who_does_not_enforce_is_admitted_and_hears_what_it_exceeds(limits, clock):
    a = limits((2, 1000), (9, 5000))
    assert [freely(a, f"t{number}") for number in range(2)] == [["admitted", NOW_US, 1], ["admitted", NOW_US, 0]]
    clock.now_us += 10
    assert freely(a, "t2") == ["exceeded", SECOND_US - 10, 0]
    assert (a.used(), a.used(5000)) == (3, 3)
    assert a.attempt("t3") == ["refused", SECOND_US - 10, 0], "it counts for those that enforce"


def test_a_window_stores_twice_its_limit_of_what_exceeds_it(limits):
    a = limits((2, 1000), (3, 5000))
    a.attempt("t0")
    assert [freely(a, f"t{number}", 2)[0] for number in range(1, 6)] == ["exceeded"] * 5
    assert (a.used(), a.used(5000)) == (3, 5)
    assert a.settle("t5", 2, 0) == ["settled", 0], "which is not there"


def test_one_that_does_not_enforce_is_admitted_in_a_pause_and_beside_waiters_and_serves_them(limits, clock, subscribe):
    a, inbox = limits((2, 1000)), subscribe("inbox:t1")
    a.pause(300)
    a.acquire("t1")
    assert freely(a, "t2") == ["exceeded", 300_000, 0]
    clock.now_us += 300_000
    assert freely(a, "t3") == ["exceeded", 700_000, 0]
    assert messages(inbox) == [("t1", "admitted", 0)]


def test_one_that_fits_and_is_not_the_first_exceeds_too(limits, listening):
    a = limits((3, 1000))
    listening("t1")
    a.attempt("t0", 2)
    a.acquire("t1", 3)
    assert freely(a, "t2") == ["exceeded", SECOND_US, 0]
    assert a.queue() == ["t1"]


def test_a_copy_of_one_that_does_not_enforce_counts_once(limits):
    a = limits((1, 1000))
    for _ in range(3):
        freely(a, "t1")
        freely(a, "t2")
    assert a.used() == 2
