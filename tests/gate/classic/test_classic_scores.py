"""`zadd_unless_smaller` behaves as documented, flaws included; `hf.scores` does not have these flaws."""

from __future__ import annotations

import math

import pytest
import redis

from handfast import Advance, Handfast, classic
from handfast.classic.scores import CHUNK
from handfast.testing import command, script
from tests._support import listings
from tests._support.listings import Interrupted, commands

conn, proxy, resending = listings.conn, listings.proxy, listings.resending

MANY = {f"m{number}": number for number in range(CHUNK)}


def test_scores_only_rise_and_added_members_are_counted(conn):
    assert classic.zadd_unless_smaller(conn, "s", {"a": 1, "b": 2.5}) == 2
    assert classic.zadd_unless_smaller(conn, "s", {"a": 3, "b": 2, "c": -1, "d": 0}) == 2
    assert classic.zadd_unless_smaller(conn, "s", {b"a": 3, b"d": 0.5}) == 0
    assert [score for _, score in conn.zrange("s", 0, -1, withscores=True)] == [-1, 0.5, 2.5, 3]
    assert conn.zscore("s", "a") == 3


def test_scores_are_compared_as_numbers_and_keep_their_digits(conn):
    for score in (9, 10, 1e16, 1.7e9 + 0.123456, 1.7e9 + 0.1234563, math.inf):
        conn.zadd("s", {"a": -math.inf})
        classic.zadd_unless_smaller(conn, "s", {"a": 9})
        assert classic.zadd_unless_smaller(conn, "s", {"a": score}) == 0
        assert conn.zscore("s", "a") == score
        classic.zadd_unless_smaller(conn, "s", {"a": math.nextafter(score, 0)})
        assert conn.zscore("s", "a") == score


@pytest.mark.parametrize(("size", "calls"), [(0, 0), (1, 1), (10_000, 1), (10_001, 2)])
def test_large_mappings_are_sent_in_chunks_of_ten_thousand(conn, size, calls):
    client = Interrupted(conn)
    scores = {f"m{number}": number for number in range(size)}
    assert classic.zadd_unless_smaller(client, "s", scores) == size
    assert client.sent == ["EVALSHA"] * calls
    assert conn.zcard("s") == size
    assert classic.zadd_unless_smaller(client, "s", scores) == 0


@pytest.mark.parametrize("wrong", [math.nan, "many", None])
def test_invalid_scores_are_refused_before_anything_is_sent(conn, wrong):
    client = Interrupted(conn)
    with pytest.raises((ValueError, TypeError)):
        classic.zadd_unless_smaller(client, "s", {"a": 1, "b": wrong})
    assert client.sent == []


# --- flaws


def test_flaw_result_counts_neither_raised_nor_stale_scores(conn, hf):
    for scores in ({"a": 1, "b": 5}, {"a": 2, "b": 4, "c": 1}):
        added = classic.zadd_unless_smaller(conn, "s", scores)
        advance = hf.scores("s").advance(scores)
    assert added == 1
    assert advance == Advance(added=1, moved=1, stale=1)


def test_flaw_two_commands_per_member(conn, hf, raw):
    raw.config_resetstat()
    classic.zadd_unless_smaller(conn, "s", MANY)
    ran = commands(raw)
    assert ran["zscore"] == ran["zadd"] == CHUNK
    assert ran["evalsha"] == 1, "the server handled no other command in between"

    raw.config_resetstat()
    assert hf.scores("s").advance(MANY).added == CHUNK
    assert commands(raw)["zadd"] < CHUNK / 100


def test_flaw_more_than_ten_thousand_members_are_not_atomic(conn, hf):
    """`hf.scores` does the same but documents it; the caller of one script does not expect it."""
    seen = []
    client = Interrupted(conn, EVALSHA=[lambda: seen.append(conn.zcard("s"))] * 2)
    classic.zadd_unless_smaller(client, "s", MANY | {"one more": 1})
    assert seen == [0, CHUNK]


def test_flaw_lost_reply_loses_the_count(conn, resending, proxy, hf):
    fault = proxy.lose_reply(command("EVALSHA"))
    assert classic.zadd_unless_smaller(resending, "s", {"a": 1, "b": 2}) == 0
    assert fault.spent
    assert conn.zcard("s") == 2

    hf.scores("s").advance({"a": 1})  # the server knows the script
    hf.scores("s").clear()
    with Handfast(proxy.url) as far:
        fault = proxy.lose_reply(script("scores_advance"))
        assert far.scores("s").advance({"a": 1, "b": 2}) == Advance(added=2, moved=0, stale=0)
        assert fault.spent


def test_zadd_gt_does_the_same(conn):
    assert conn.zadd("s", {"a": 1, "b": 2}, gt=True) == 2
    assert conn.zadd("s", {"a": 3, "b": 1, "c": 1}, gt=True) == 1
    assert classic.zadd_unless_smaller(conn, "t", {"a": 1, "b": 2}) == 2
    assert classic.zadd_unless_smaller(conn, "t", {"a": 3, "b": 1, "c": 1}) == 1
    assert conn.zrange("s", 0, -1, withscores=True) == conn.zrange("t", 0, -1, withscores=True)


def test_key_of_another_type_raises(conn):
    conn.set("s", "no set")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        classic.zadd_unless_smaller(conn, "s", {"a": 1})
