"""Places in queues: a waiter that the queue has lost takes its place again, by the ticket of its first reply."""

from __future__ import annotations

import pytest

from tests._support.engine import Engine, Several, hang_up

HOUR_US = 3_600_000_000


@pytest.fixture(params=["one name", "two names"])
def waiters(request, a, both):
    """What is asked for, and the queues that it is waited in."""
    return (a, [a]) if request.param == "one name" else (both, both.engines)


def ask_again(asked, token, **options):
    return asked.acquire(token, ticket=asked.tickets[token], **options)


def test_a_waiter_that_was_dropped_takes_its_place_again(waiters, a, clock, listening):
    asked, queues = waiters
    lost, _ = listening("lost"), listening("next", "later", "latest")
    a.acquire("first")
    for token in ("lost", "next", "later"):
        clock.now_us += 1000
        asked.acquire(token)
    hang_up(a.client, lost, "lost")
    a.release("first")
    asked.acquire("next")  # for two names it is woken, and asks
    assert [engine.holders() for engine in queues] == [["next"]] * len(queues)
    asked.acquire("latest")
    listening("lost")
    clock.now_us += 1000
    assert ask_again(asked, "lost")[:3] == ["queued", clock.now_us, 0]
    assert [engine.queue() for engine in queues] == [["lost", "later", "latest"]] * len(queues)


def test_waiters_take_their_places_again_in_any_order_after_all_data_was_lost(waiters, a, clock, raw, listening):
    asked, queues = waiters
    tokens = [f"t{number}" for number in range(6)]
    listening(*tokens)
    a.acquire("first")
    for token in tokens:
        asked.acquire(token)
    raw.flushall()
    for engine in queues:
        engine.acquire("other")
    clock.now_us += 1000
    asked.acquire("newcomer")
    for token in tokens[::-1]:
        ask_again(asked, token)
    assert [engine.queue() for engine in queues] == [[*tokens, "newcomer"]] * len(queues)


def test_a_ticket_does_not_change_while_its_place_does_not(waiters, a, clock, listening):
    asked, _ = waiters
    listening("t1")
    a.acquire("first")
    asked.acquire("t1")
    ticket = asked.tickets["t1"]
    for again in (asked.acquire, lambda token: ask_again(asked, token)):
        clock.now_us += 1000
        again("t1")
        assert asked.tickets["t1"] == ticket


def test_who_has_a_ticket_gets_in_where_newcomers_are_refused(waiters, a, raw, listening):
    asked, queues = waiters
    listening("early", "late")
    a.acquire("first")
    asked.acquire("early")
    raw.flushall()
    a.acquire("first")
    asked.acquire("late")
    assert asked.acquire("newcomer", max_waiters=1) == ["full", 1]
    assert ask_again(asked, "early", max_waiters=1)[0] == "queued"
    assert [engine.queue() for engine in queues] == [["early", "late"]] * len(queues)


def test_newcomers_are_last_where_the_clock_was_set_back(waiters, a, clock, listening):
    asked, queues = waiters
    lost, _ = listening("t0"), listening("t1", "t2")
    a.acquire("first")
    for token in ("t0", "t1", "t2"):
        asked.acquire(token)
        clock.now_us -= HOUR_US
    assert [engine.queue() for engine in queues] == [["t0", "t1", "t2"]] * len(queues)
    hang_up(a.client, lost, "t0")
    for engine in queues:
        engine.cancel("t0")
    ask_again(asked, "t1")
    assert [engine.queue() for engine in queues] == [["t1", "t2"]] * len(queues)


def test_requests_for_several_names_do_not_wait_for_each_other_after_the_clock_was_set_back(clock, listening):
    """Were a score taken for each queue, ``three`` would be before ``two`` in the first queue and behind it in the second."""
    a, b, c = engines = [Engine(clock, name) for name in "abc"]
    two, three = Several(clock, "ab"), Several(clock, "abc")
    blip, _ = listening("three"), listening("two", "far")
    for engine in engines:
        engine.acquire("holder")
    a.acquire("far")  # its score is an hour ahead of what follows
    clock.now_us -= HOUR_US
    two.acquire("two")
    clock.now_us += 1000
    three.acquire("three")
    hang_up(clock, blip, "three")
    c.release("holder")
    assert c.queue() == [], "it has lost one of its places"
    listening("three")
    assert ask_again(three, "three")[0] == "queued"
    a.cancel("far")
    a.release("holder")
    b.release("holder")
    served = []
    for _ in range(2):
        for asked, token in ((two, "two"), (three, "three")):
            if token not in served and ask_again(asked, token)[0] == "granted":
                served.append(token)
                asked.release(token)
    assert served == ["two", "three"]


def test_a_late_copy_of_the_first_request_takes_no_place_away(waiters, a, clock, listening):
    asked, queues = waiters
    lost, _ = listening("lost"), listening("next", "latest")
    a.acquire("first")
    for token in ("lost", "next"):
        clock.now_us += 1000
        asked.acquire(token)
    ticket = asked.tickets["lost"]
    hang_up(a.client, lost, "lost")
    a.release("first")
    asked.acquire("next")
    asked.acquire("latest")
    asked.acquire("lost")
    listening("lost")
    assert [engine.queue() for engine in queues] == [["latest", "lost"]] * len(queues)
    assert asked.acquire("lost", ticket=ticket)[2] == 0
    assert asked.tickets["lost"] == ticket
    assert [engine.queue() for engine in queues] == [["lost", "latest"]] * len(queues)


def test_the_ticket_of_a_newcomer_is_the_time_or_the_next_number(waiters, a, clock, listening):
    asked, _ = waiters
    listening("t1", "t2", "t3")
    a.acquire("first")
    expected = []
    for step_us in (5, 0, -HOUR_US):
        clock.now_us += step_us
        expected.append(max(clock.now_us, expected[-1] + 1) if expected else clock.now_us)
        asked.acquire(f"t{len(expected)}")
    assert list(asked.tickets.values()) == expected


def test_a_holder_of_a_part_of_its_names_is_not_refused_because_of_a_full_queue(both, a, listening):
    listening("holder", "next", "waiter")
    both.acquire("holder")
    a.end_lease("holder")
    a.acquire("next")
    a.acquire("waiter")
    assert both.acquire("holder", max_waiters=1)[0] == "queued"


def test_a_waiter_asks_again_with_its_ticket_at_maxmemory(waiters, a, raw, listening):
    asked, _ = waiters
    listening("t1")
    a.acquire("first")
    asked.acquire("t1")
    raw.config_set("maxmemory", 1)
    assert ask_again(asked, "t1")[0] == "queued"


def test_a_waiter_that_comes_back_takes_no_newcomer_ahead_of_earlier_ones(a, clock, listening):
    """The clock was set back, and the ticket that came back is older than the last one."""
    listening("t1", "back", "t2")
    a.acquire("first")
    clock.now_us += HOUR_US // 100
    a.acquire("t1")
    clock.now_us -= HOUR_US // 100
    a.acquire("back", ticket=5)
    a.acquire("t2")
    assert a.queue() == ["back", "t1", "t2"]


def test_a_handoff_forgets_no_ticket(a, clock, listening):
    listening("t1", "t2", "t3")
    a.acquire("first")
    for token in ("t1", "t2"):
        clock.now_us += 1000
        a.acquire(token)
    a.release("first")
    clock.now_us -= HOUR_US // 100
    a.acquire("t3")
    assert (a.holders(), a.queue()) == (["t1"], ["t2", "t3"])
