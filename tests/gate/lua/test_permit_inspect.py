"""permit_inspect: what it shows of holders and waiters, and that it changes nothing."""

from __future__ import annotations

from handfast._engine.calls import PARTS
from tests._support.engine import NOW_US, TTL_MS, TTL_US, WAIT_US, unchanged


def test_holders_and_waiters_are_listed_without_whole_tokens(make, clock, listening):
    engine = make()
    listening("waiting-1", "waiting-2")
    engine.acquire("holding-1", 2)
    engine.acquire("holding-2", 1, ttl=2 * TTL_MS)
    engine.acquire("holding-3", 1, ttl=3 * TTL_MS, label="odd label\nwith lines")
    engine.acquire("waiting-1", 4)
    engine.acquire("waiting-2", 1)
    clock.now_us += TTL_US
    held = [["holding-", NOW_US + n * TTL_US, engine.record(f"holding-{n}")] for n in (2, 3)]
    assert held[1][2].endswith("odd label\nwith lines")
    queued = [["waiting-", NOW_US + n - 1, engine.record(f"waiting-{n}")] for n in (1, 2)]
    with unchanged(engine):
        shown = ["state", clock.now_us, NOW_US + 2, 0, 2, 2, 2]
        assert engine.inspect() == [*shown, held[0] + held[1], queued[0] + queued[1]]
        assert engine.inspect(1) == [*shown, held[0], queued[0]]
    engine.lose_record("holding-3", "waiting-1")
    *_, held, queued = engine.inspect()
    assert held[3:] == ["holding-", NOW_US + 3 * TTL_US, b""]
    assert queued[:3] == ["waiting-", NOW_US, b""]


def test_waiters_whose_wait_lease_is_over_are_left_out(make, clock, listening):
    engine = make()
    listening("alive", "dead")
    engine.acquire("holding", 4, ttl=3 * TTL_MS)
    for token in ("alive", "dead"):
        engine.acquire(token, 4)
    clock.now_us += WAIT_US
    engine.acquire("alive", 4)
    clock.now_us += 1
    *_, queued = found = engine.inspect()
    assert (found[6], queued[0::3]) == (1, ["alive"])
    assert engine.inspect(0)[6] == 1
    assert len(engine.queue()) == 2, "nothing is changed"


def test_the_holder_in_the_state_is_shown_before_the_others(make):
    engine = make()
    tokens = "first", "second", "third"
    for token in tokens:
        engine.acquire(token)
    shown = [item for token in tokens for item in (token, NOW_US + TTL_US, engine.record(token))]
    for number in range(4):
        assert engine.inspect(number)[-2:] == [shown[: 3 * number], []]
    engine.end_lease("second")
    assert engine.inspect()[-2:] == [shown[:3] + shown[6:], []]
    engine.end_lease("first")
    assert engine.inspect()[-2:] == [shown[6:], []]


def test_several_names_are_shown_in_one_call(make, clock, listening):
    listening("waits")
    held, idle, contended = engines = [make(5, "a"), make(1, "b"), make(1, "c")]
    for token in ("first", "second"):
        held.acquire(token)
        contended.acquire(token if token == "first" else "waits")
    script = held.load("permit_inspect")

    def inspect(*names):
        keys = [name.key(part) for name in names for part in PARTS]
        return clock.execute_command("EVAL", script.source, len(keys), *keys, 1, NEVER_DECODE=True)

    each = [inspect(engine) for engine in engines]
    assert [one[2:7] for one in each] == [[NOW_US + 1, 0, 2, 2, 0], [0] * 5, [NOW_US, 0, 1, 1, 1]]
    assert inspect(*engines) == each
    assert inspect(idle, contended) == each[1:]


def test_expired_leases_count_as_free_and_nothing_changes(make):
    engine = make(6)
    engine.acquire("a", 3)
    engine.acquire("b", 2)
    engine.end_lease("a")
    engine.resize(0)
    engine.acquire("c", 4)
    engine.end_lease("b")
    with unchanged(engine):
        assert engine.inspect()[3:7] == [0, 4, 1, 0]
    engine.acquire("d")
    engine.lose("state")
    holders = engine.holders()
    with unchanged(engine):
        assert engine.inspect()[3:7] == [0, -1, 1, 0], "it is not known how many are out"
    engine.client.zadd(engine.key("tokens"), dict.fromkeys(holders, 1), xx=True)
    with unchanged(engine):
        assert engine.inspect()[3:7] == [0, 0, 0, 0]


def test_a_thousand_expired_leases_count_as_free(make):
    engine = make(5000)
    engine.add_holders(1001)
    engine.client.zadd(engine.key("tokens"), {f"1:{NOW_US}:0000": NOW_US + 1})
    assert engine.inspect(0)[4:] == [1, 1, 0, [], []]
    engine.add_holders(2, ends_us=NOW_US - 1)
    assert engine.inspect(0)[4:] == [3, 1, 0, [], []]


def test_an_unused_name_is_empty(make):
    assert make().inspect() == ["state", NOW_US, 0, 0, 0, 0, 0, [], []]
