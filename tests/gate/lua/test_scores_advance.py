"""scores_advance: scores only grow, and the answer of a call is remembered for some seconds."""

from __future__ import annotations

import pytest
import redis

from tests._support.engine import unchanged


def test_members_are_added_moved_or_stale(index):
    assert index.advance("1", "a", "2", "b", answer="x") == ["advanced", 2, 0, 0]
    assert index.advance("1.5", "a", "2", "b", "1", "c", "-3", "d", answer="y") == ["advanced", 2, 1, 1]
    assert index.advance("1", "a", "1.5", "a", answer="z") == ["advanced", 0, 0, 2]
    assert dict(index.scores_of("members")) == {"a": 1.5, "b": 2, "c": 1, "d": -3}


def test_twice_has_the_same_answer_which_is_remembered_for_some_seconds(index):
    index.advance("3", "c", "1", "d", answer="w")
    pairs = ("1", "a", "2", "b", "1", "c", "2", "d")
    first = index.advance(*pairs, answer="x")
    with unchanged(index):
        assert index.advance(*pairs, answer="x") == first == ["advanced", 2, 1, 1]
    assert 0 < index.client.pttl(index.key("answer:x")) <= 20_000
    assert index.client.pttl(index.key("members")) == -1


def test_a_late_copy_moves_nothing_back_even_when_its_answer_is_forgotten(index):
    index.advance("1", "a", answer="x")
    index.advance("5", "a", answer="y")
    assert index.advance("1", "a", answer="x") == ["advanced", 1, 0, 0], "the first answer"
    index.client.delete(index.key("answer:x"))
    assert index.advance("1", "a", answer="x") == ["advanced", 0, 0, 1]
    assert index.scores_of("members") == [("a", 5)]


@pytest.mark.parametrize("part", ["members", "answer:x"])
def test_a_key_of_another_type_is_an_error_that_changes_nothing(index, part):
    index.advance("1", "a", answer="y")
    index.client.delete(index.key(part))
    index.client.hset(index.key(part), "not", "ours")
    with unchanged(index), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        index.advance("2", "a", answer="x")
    index.client.delete(index.key(part))


def test_a_score_that_is_no_number_is_an_error_that_changes_nothing(index):
    index.advance("1", "a", answer="x")
    with unchanged(index), pytest.raises(redis.ResponseError, match="not a valid float"):
        index.advance("2", "a", "much", "b", answer="y")
