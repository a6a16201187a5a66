"""Scores through both APIs: counts, order, lost replies and invalid arguments. A score only increases."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from math import inf
from types import MappingProxyType

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from handfast import Advance, Scored, ServerRefused
from handfast._protocol.asking import BATCH
from handfast.testing import FaultProxy, command, script
from tests._support.family import NOWHERE
from tests._support.helpers import eventually_async

CALL = script("scores_advance")

KEY = "{hf:scores:seen}:members"

ODD = ["a b", "a}{b", "{a}", "a:b", "}", "a\0b", "a\nb", "ä", "😀", "%7B", "a/b@c", "members", "answer:x"]
"""Names that could end a hash tag early, or collide with the keys of another name."""

ENDS = ("oldest", "newest")


@pytest.fixture
def seen(here):
    """Return the scores that most tests use."""
    return here.scores("seen")


def pairs(found):
    """Return the members and scores as pairs."""
    assert all(type(each) is Scored for each in found)
    return tuple((each.member, each.score) for each in found)


def answers(raw):
    """Return the keys that record the replies of earlier calls."""
    return list(raw.scan_iter("*:answer:*"))


# --- advance


async def test_advance_counts_members_as_added_moved_or_stale(seen):
    assert await seen.advance({"a": 1, "b": 2}) == Advance(added=2, moved=0, stale=0)
    assert await seen.advance({"a": 1.5, "b": 2, "c": 0}) == Advance(added=1, moved=1, stale=1)
    assert await seen.advance({"a": 1.25}) == Advance(added=0, moved=0, stale=1)
    assert pairs(await seen.oldest()) == (("c", 0), ("a", 1.5), ("b", 2))


async def test_a_score_never_decreases(seen):
    for score, moved in ((5, 0), (4.999, 0), (-5, 0), (5, 0), (5.001, 1), (0, 0)):
        assert (await seen.advance({"a": score})).moved == moved
    assert pairs(await seen.oldest()) == (("a", 5.001),)


async def test_advance_takes_any_mapping(seen):
    assert await seen.advance(Counter("aab")) == Advance(2, 0, 0)
    assert await seen.advance(MappingProxyType({"a": 3})) == Advance(0, 1, 0)
    assert pairs(await seen.newest()) == (("a", 3), ("b", 1))


async def test_a_removed_member_starts_over(seen):
    await seen.advance({"a": 5, "b": 5, "c": 5})
    assert await seen.remove("a") is None
    await seen.remove(member for member in ("b", "never there"))
    assert await seen.size() == 1
    assert await seen.advance({"a": 1, "b": 2}) == Advance(2, 0, 0)
    assert pairs(await seen.oldest()) == (("a", 1), ("b", 2), ("c", 5))


async def test_a_single_string_is_one_member_rather_than_an_iterable_of_letters(seen):
    await seen.advance({"ab": 1, "a": 2, "b": 3})
    await seen.remove("ab")
    assert pairs(await seen.oldest()) == (("a", 2), ("b", 3))


async def test_clear_removes_all_members(seen, raw):
    await seen.advance({"a": 5, "b": 6})
    assert await seen.clear() is None
    assert await seen.size() == 0
    assert await seen.oldest() == await seen.newest() == await seen.since(0) == ()
    assert not raw.exists(KEY)
    assert await seen.advance({"a": 1}) == Advance(1, 0, 0)


async def test_unused_scores_are_empty(seen):
    assert await seen.oldest() == await seen.newest() == await seen.since(-1) == ()
    assert await seen.size() == 0
    assert await seen.remove("a") is None
    assert await seen.clear() is None


async def test_clients_of_one_namespace_share_scores(here, there, api, server):
    await here.scores("a").advance({"m": 1})
    assert await there.scores("a").advance({"m": 2}) == Advance(0, 1, 0)
    assert await there.scores("b").size() == 0
    async with api.client(server.url, namespace="billing") as billing:
        assert await billing.scores("a").size() == 0
    assert pairs(await here.scores("a").oldest()) == (("m", 2),)


async def test_any_text_is_a_member(seen):
    odd = [
        "{",
        "}",
        "a b",
        " ",
        "\n",
        "a\r\nb",
        "\0",
        "a\0",
        "é",
        "e\u0301",
        "日本語",
        "\ufeff",
        "\uffff",
        "\U0010ffff",
        "😀",
    ]
    odd += ["A", "a", "x" * 16_384, "1", "-inf", "NX", "GT"]
    scores = {member: place for place, member in enumerate(odd)}
    assert await seen.advance(scores) == Advance(len(odd), 0, 0)
    assert pairs(await seen.oldest(limit=100)) == tuple(scores.items())
    assert await seen.advance(scores) == Advance(0, 0, len(odd))
    await seen.remove(odd)
    assert await seen.size() == 0


# --- numbers


async def test_every_number_is_returned_exactly(seen):
    numbers = [
        0.1,
        0.1 + 0.2,
        1 / 3,
        1e-300,
        5e-324,
        1.7976931348623157e308,
        123456789.12345679,
        2**53,
        -(2**53),
        10**22,
        2**80,
    ]
    numbers += [-0.5, -1e308, 1_763_729_675_123_456, 1_763_729_675.123456, 0, 17]
    await seen.advance({f"m{place:02}": number for place, number in enumerate(numbers)})
    found = dict(pairs(await seen.oldest(limit=100)))
    assert [found[f"m{place:02}"] for place in range(len(numbers))] == numbers
    assert {type(score) for score in found.values()} == {float}


async def test_adjacent_floats_compare_exactly(seen):
    for number in (1.0, 2.0**52, -1e-300, 1_763_729_675.123456):
        await seen.clear()
        await seen.advance({"a": number})
        assert await seen.advance({"a": number}) == Advance(0, 0, 1)
        assert await seen.advance({"a": number - abs(number) * 2**-52}) == Advance(0, 0, 1)
        assert await seen.advance({"a": number + abs(number) * 2**-52}) == Advance(0, 1, 0)


async def test_negative_zero_equals_zero(seen):
    assert await seen.advance({"a": 0, "b": -0.0}) == Advance(2, 0, 0)
    assert await seen.advance({"a": -0.0, "b": 0.0}) == Advance(0, 0, 2)
    assert pairs(await seen.since(-0.0)) == pairs(await seen.since(0)) == (("a", 0), ("b", 0))


async def test_negative_scores_increase_towards_zero(seen):
    await seen.advance({"a": -5, "b": -0.25})
    assert await seen.advance({"a": -4.5, "b": -1}) == Advance(0, 1, 1)
    assert pairs(await seen.oldest()) == (("a", -4.5), ("b", -0.25))


# --- reading


async def test_oldest_reads_from_the_smallest_score_and_newest_from_the_largest(seen):
    await seen.advance({"d": 4, "b": 2, "a": 1, "c": 3})
    assert pairs(await seen.oldest(limit=3)) == (("a", 1), ("b", 2), ("c", 3))
    assert pairs(await seen.newest(limit=3)) == (("d", 4), ("c", 3), ("b", 2))
    assert pairs(await seen.oldest(limit=1)) == (("a", 1),)
    assert pairs(await seen.newest(limit=1)) == (("d", 4),)
    assert await seen.newest(limit=10_000) == tuple(reversed(await seen.oldest(limit=10_000)))


async def test_equal_scores_sort_by_member(seen):
    await seen.advance({"b": 1, "a": 1, "B": 1, "ä": 1, "0": 2})
    in_order = (("B", 1), ("a", 1), ("b", 1), ("ä", 1), ("0", 2))
    assert pairs(await seen.oldest()) == pairs(await seen.since(1)) == in_order
    assert pairs(await seen.newest()) == in_order[::-1]


async def test_since_is_inclusive(seen):
    await seen.advance({f"m{number}": number / 2 for number in range(10)})
    assert pairs(await seen.since(4)) == (("m8", 4), ("m9", 4.5))
    assert pairs(await seen.since(4.1)) == (("m9", 4.5),)
    assert pairs(await seen.since(4.5)) == (("m9", 4.5),)
    assert await seen.since(4.6) == ()
    assert pairs(await seen.since(-100, limit=2)) == (("m0", 0), ("m1", 0.5))
    assert await seen.since(-inf, limit=2) == await seen.since(-1e308, limit=2)
    assert len(await seen.since(-inf)) == 10


async def test_reads_have_a_default_limit(seen):
    await seen.advance({f"m{number:04}": number for number in range(1500)})
    assert [len(await getattr(seen, end)()) for end in ENDS] == [10, 10]
    assert len(await seen.since(0)) == 1000
    assert [len(await getattr(seen, end)(limit=10_000)) for end in ENDS] == [1500, 1500]
    assert len(await seen.since(0, limit=10_000)) == 1500


async def test_all_members_are_read_by_continuing_from_the_last_score(seen):
    await seen.advance({f"m{number:03}": number // 3 for number in range(100)})
    found, start = {}, -1
    while True:
        page = await seen.since(start, limit=7)
        found |= dict(pairs(page))
        if page[-1].score == start:
            break
        start = page[-1].score
    assert list(found) == [f"m{number:03}" for number in range(100)]


# --- against a model


MEMBERS = st.sampled_from("abcde") | st.text(st.characters(codec="utf-8"), min_size=1, max_size=3)

SCORES = (
    st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 2**53, 0.5])
)

CHANGES = st.one_of(
    *[st.tuples(st.just("advance"), st.dictionaries(MEMBERS, SCORES, max_size=6))] * 3,
    st.tuples(st.just("remove"), st.lists(MEMBERS, max_size=2)),
    st.tuples(st.just("clear")),
)


class Model:
    """A model of the scores in plain Python."""

    def __init__(self):
        self.scores = {}

    def advance(self, scores):
        added = [member for member in scores if member not in self.scores]
        moved = [member for member in scores.keys() & self.scores if scores[member] > self.scores[member]]
        self.scores |= {member: scores[member] for member in [*added, *moved]}
        return Advance(len(added), len(moved), len(scores) - len(added) - len(moved))

    def remove(self, members):
        for member in members:
            self.scores.pop(member, None)

    def clear(self):
        self.scores.clear()

    def since(self, score=float("-inf")):
        found = sorted(self.scores.items(), key=lambda pair: (pair[1], pair[0]))
        return tuple(pair for pair in found if pair[1] >= score)


@given(changes=st.lists(st.tuples(CHANGES, SCORES, st.integers(1, 5)), min_size=1, max_size=10))
async def test_scores_agree_with_their_model(seen, changes):
    model = Model()
    await seen.clear()
    for (change, *args), score, limit in changes:
        assert await getattr(seen, change)(*args) == getattr(model, change)(*args)
        assert pairs(await seen.oldest(limit=100)) == model.since()
        assert pairs(await seen.oldest(limit=limit)) == model.since()[:limit]
        assert pairs(await seen.newest(limit=limit)) == model.since()[::-1][:limit]
        assert pairs(await seen.since(score, limit=limit)) == model.since(score)[:limit]
        assert await seen.size() == len(model.scores)


# --- batches


async def test_many_members_are_sent_in_batches_and_counted_together(seen, raw):
    await seen.advance({f"m{number:05}": number for number in range(0, 10_000, 4)})
    raw.config_resetstat()
    advance = await seen.advance({f"m{number:05}": number + number % 8 for number in range(10_000)})
    assert raw.info("commandstats")["cmdstat_evalsha"]["calls"] == 10_000 / BATCH
    assert advance == Advance(added=7500, moved=1250, stale=1250)
    assert await seen.size() == 10_000
    found = dict(pairs(await seen.oldest(limit=10_000)))
    assert found == {f"m{number:05}": number + number % 8 for number in range(10_000)}
    assert pairs(await seen.newest(limit=10_000)) == tuple(reversed(pairs(await seen.oldest(limit=10_000))))
    await seen.remove(f"m{number:05}" for number in range(9_999))
    assert pairs(await seen.oldest()) == (("m09999", 10_006),)


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH])
async def test_no_member_is_lost_at_a_batch_boundary(seen, count):
    scores = {f"m{number}": number for number in range(count)}
    assert await seen.advance(scores) == Advance(count, 0, 0)
    assert await seen.size() == count
    assert await seen.advance(scores) == Advance(0, 0, count)


# --- concurrent clients


async def test_concurrent_advances_end_at_the_largest_score(here, there):
    members = [f"m{number}" for number in range(20)]
    chance = random.Random(1)
    rounds = [{member: chance.randint(0, 1000) for member in chance.sample(members, 12)} for _ in range(120)]

    async def work(client, mine):
        return [await client.scores("a").advance(scores) for scores in mine]

    async with asyncio.TaskGroup() as tasks:
        workers = [
            tasks.create_task(work(client, rounds[number::4]))
            for number, client in enumerate((here, here, there, there))
        ]
    advances = [advance for worker in workers for advance in worker.result()]
    assert dict(pairs(await here.scores("a").oldest(limit=100))) == {
        member: max(scores.get(member, 0) for scores in rounds) for member in members
    }
    assert sum(each.added for each in advances) == len(members)
    assert sum(each.added + each.moved + each.stale for each in advances) == sum(map(len, rounds))
    assert all(min(each.added, each.moved, each.stale) >= 0 for each in advances)


async def test_concurrent_large_batches_are_counted_exactly(here, there):
    """Each member is added by the client whose batch arrives first; for the other client it moves or is stale."""
    low, high = await asyncio.gather(
        here.scores("a").advance({f"m{number}": 1 for number in range(5000)}),
        there.scores("a").advance({f"m{number}": 2 for number in reversed(range(5000))}),
    )
    assert low.added + high.added == 5000
    assert (low.moved, high.stale) == (0, 0)
    assert high.moved == low.added
    assert low.stale == high.added
    assert {score for _, score in pairs(await here.scores("a").oldest(limit=10_000))} == {2}


# --- lost replies


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, proxy, here):
    """Yield a connected client behind the proxy, with the script loaded on the server."""
    async with api.client(proxy.url) as client:
        await client.scores("warm").advance({"m": 1})
        yield client


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_call_is_retried_and_counted_once(far, proxy, raw, what):
    scores = far.scores("seen")
    for number in range(10):
        lost = getattr(proxy, what)(CALL)
        assert await scores.advance({"a": number, f"m{number}": 0}) == Advance(
            1 if number else 2, 1 if number else 0, 0
        )
        assert lost.spent
    assert await scores.size() == 11


async def test_a_retried_call_repeats_its_first_reply_after_others_have_advanced(far, proxy, here):
    """The reply is lost after the call was executed, and another client advances all members before the retry."""

    async def executed():
        return await here.scores("seen").size() == 2

    lost = proxy.lose_reply(CALL, times=3)
    late = asyncio.ensure_future(far.scores("seen").advance({"a": 1, "b": 1}))
    await eventually_async(executed)
    assert await here.scores("seen").advance({"a": 2, "b": 2}) == Advance(0, 2, 0)
    assert await late == Advance(2, 0, 0)
    assert lost.spent
    assert pairs(await here.scores("seen").oldest()) == (("a", 2), ("b", 2))


async def test_the_other_calls_are_retried_after_a_loss(far, proxy):
    scores = far.scores("seen")
    await scores.advance({"a": 1, "b": 2})
    for what in ("lose_reply", "lose_request"):
        lost = [
            getattr(proxy, what)(command(verb)) for verb in ("ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZREM", "ZCARD")
        ]
        assert pairs(await scores.oldest()) == pairs(await scores.since(0)) == (("a", 1), ("b", 2))
        assert pairs(await scores.newest()) == (("b", 2), ("a", 1))
        await scores.remove("never there")
        assert await scores.size() == 2
        assert all(fault.spent for fault in lost)
    lost = proxy.lose_reply(command("UNLINK"))
    await scores.clear()
    assert lost.spent
    assert await scores.size() == 0


async def test_the_script_is_loaded_again_after_script_flush(seen, raw):
    await seen.advance({"a": 1})
    raw.script_flush()
    assert await seen.advance({f"m{number}": 1 for number in range(1200)}) == Advance(1200, 0, 0)


# --- keys


async def test_recorded_replies_expire_and_only_the_members_remain(seen, raw):
    await seen.advance({f"m{number}": number for number in range(1200)})
    await seen.advance({"m1": 5})
    assert len(answers(raw)) == len(set(answers(raw))) == 4, "one for each batch"
    assert all(0 < raw.pttl(key) <= 20_000 for key in answers(raw))
    assert {key for key in raw.scan_iter() if raw.pttl(key) == -1} == {KEY}
    await seen.oldest()
    await seen.since(0)
    await seen.remove("m1")
    assert len(answers(raw)) == 4, "only the members remain"


async def test_all_keys_of_scores_share_a_slot(seen, raw):
    await seen.advance({"a": 1})
    keys = list(raw.scan_iter())
    assert len(keys) == 2
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert all(key.startswith("{hf:scores:seen}:") for key in keys)


async def test_scores_with_odd_names_use_distinct_keys(here, raw):
    boards = [here.scores(name) for name in ODD]
    for number, board in enumerate(boards):
        assert await board.advance({"m": number}) == Advance(1, 0, 0)
    assert [pairs(await board.oldest()) for board in boards] == [(("m", number),) for number in range(len(ODD))]
    assert [board.name for board in boards] == ODD
    keys = list(raw.scan_iter())
    assert len(keys) == 2 * len(ODD)
    assert len({key_slot(key.encode()) for key in keys}) == len({key.partition("}")[0] for key in keys}) == len(ODD)
    assert all(key.isascii() and key.isprintable() and key.count("{") == key.count("}") == 1 for key in keys)
    await boards[0].clear()
    assert [await board.size() for board in boards] == [0] + [1] * (len(ODD) - 1)


async def test_at_maxmemory_advance_is_refused_without_effect_and_other_calls_work(seen, raw):
    await seen.advance({"a": 1, "b": 2})
    keys = set(raw.scan_iter())
    raw.config_set("maxmemory", 1)
    for new in ({"c": 1}, {"a": 5}, {"a": 0}):
        with pytest.raises(ServerRefused, match="out of memory") as refused:
            await seen.advance(new)
        assert refused.value.changed_nothing
        assert refused.value.name == "seen"
    assert set(raw.scan_iter()) == keys
    assert pairs(await seen.oldest()) == tuple(reversed(pairs(await seen.newest()))) == (("a", 1), ("b", 2))
    await seen.remove("a")
    assert await seen.size() == 1
    await seen.clear()
    assert await seen.since(0) == ()


async def test_a_key_of_another_type_raises_an_error_and_is_not_changed(seen, raw):
    raw.set(KEY, "not ours")
    for use in (lambda: seen.advance({"a": 1}), seen.oldest, seen.newest, lambda: seen.since(0), seen.size):
        with pytest.raises(ServerRefused, match="WRONGTYPE"):
            await use()
    assert list(raw.scan_iter()) == [KEY]
    assert raw.get(KEY) == "not ours"


# --- invalid arguments


@pytest.mark.parametrize(
    ("scores", "error"),
    [
        ({"a": 1, "b": float("nan")}, ValueError),
        ({"a": inf}, ValueError),
        ({"a": -inf}, ValueError),
        ({"a": 2**53 + 1}, ValueError),
        ({"a": -(2**53) - 1}, ValueError),
        ({"a": 10**400}, ValueError),
        ({"a": "1"}, TypeError),
        ({"a": None}, TypeError),
        ({"a": True}, TypeError),
        ({"a": 1j}, TypeError),
        ({"": 1}, ValueError),
        ({"a" * 16_385: 1}, ValueError),
        ({"\ud800": 1}, ValueError),
        ({b"a": 1}, TypeError),
        ({1: 1}, TypeError),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_invalid_scores_are_refused_before_any_io(api, scores, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            await client.scores("a").advance(scores)
        with pytest.raises(error):
            await client.scores("a").advance(dict.fromkeys(map(str, range(9999)), 1) | scores)


@pytest.mark.parametrize("scores", [[("a", 1)], {"a"}, "a", None, 5])
async def test_advance_refuses_anything_but_a_mapping_before_any_io(api, scores):
    async with api.client(NOWHERE) as client:
        with pytest.raises(TypeError, match="scores must be a mapping"):
            await client.scores("a").advance(scores)


@pytest.mark.parametrize("score", [float("nan"), inf, 2**53 + 1, 10**400, "1", None, True])
async def test_invalid_since_values_are_refused_before_any_io(api, score):
    async with api.client(NOWHERE) as client:
        with pytest.raises((TypeError, ValueError), match="the score of 'since'"):
            await client.scores("a").since(score)


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 1.0, "10", None])
async def test_invalid_limits_are_refused_before_any_io(api, limit):
    async with api.client(NOWHERE) as client:
        scores = client.scores("a")
        for use in (scores.oldest, scores.newest, lambda *, limit: scores.since(0, limit=limit)):
            with pytest.raises((TypeError, ValueError), match="limit must be"):
                await use(limit=limit)


@pytest.mark.parametrize("members", ["", ["a", ""], ["\ud800"], "x" * 16_385, None, 5, b"a", ["a", 5]])
async def test_invalid_members_are_refused_before_any_io(api, members):
    async with api.client(NOWHERE) as client:
        with pytest.raises((TypeError, ValueError)):
            await client.scores("a").remove(members)


@pytest.mark.parametrize(("name", "error"), [("\ud800", ValueError), (None, TypeError)])
async def test_scores_require_a_name(api, name, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error):
            client.scores(name)


async def test_a_call_without_items_sends_no_request(api):
    async with api.client(NOWHERE) as client:
        scores = client.scores("a")
        assert await scores.advance({}) == Advance(0, 0, 0)
        assert await scores.remove([]) is None
        for use in (lambda: scores.advance({"a": 1}), scores.oldest, scores.size, scores.clear):
            with pytest.raises(redis.ConnectionError):
                await use()
