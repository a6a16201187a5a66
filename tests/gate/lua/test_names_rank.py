"""names_rank: names and their ranks are stored in two sorted sets."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from tests._support.engine import unchanged


def test_names_are_ranked_in_both_sets(index):
    assert index.run("names_rank", "set", "b", "-2.5", "a", "0.0") == ["ranked"]
    assert index.scores_of("names") == [("a", 0.0), ("b", 0.0)]
    assert index.scores_of("ranks") == [("b", -2.5), ("a", 0.0)]


def test_keep_leaves_the_ranks_that_are_there_and_set_does_not(index):
    index.run("names_rank", "set", "a", "-2.5")
    assert index.run("names_rank", "keep", "a", "0", "b", "0") == ["ranked"]
    assert index.scores_of("ranks") == [("a", -2.5), ("b", 0.0)]
    assert index.run("names_rank", "set", "a", "7") == ["ranked"]
    assert index.scores_of("ranks") == [("b", 0.0), ("a", 7.0)]


@pytest.mark.parametrize("how", ["set", "keep"])
def test_twice_is_once_and_a_late_copy_restores_what_was_removed(index, how):
    rank = partial(index.run, "names_rank", how, "a", "-1", "b", "-2")
    rank()
    with unchanged(index):
        assert rank() == ["ranked"]
        index.run("names_unrank", "a")
        rank()


@pytest.mark.parametrize("how", ["set", "keep"])
def test_a_rank_that_is_no_number_is_an_error_that_changes_nothing(index, how):
    index.fill({"a": 1})
    with unchanged(index), pytest.raises(redis.ResponseError, match="not a valid float"):
        index.run("names_rank", how, "c", "3", "d", "much")


@pytest.mark.parametrize("kind", ["string", "hash"])
@pytest.mark.parametrize("part", ["names", "ranks"])
@pytest.mark.parametrize(
    "call",
    [("names_rank", "set", "c", "3"), ("names_rank", "keep", "c", "3"), ("names_unrank", "a")],
    ids=["set", "keep", "unrank"],
)
def test_a_key_of_another_type_is_an_error_that_changes_nothing(index, call, part, kind):
    index.fill({"a": 1, "b": 2})
    index.client.delete(index.key(part))
    if kind == "string":
        index.client.set(index.key(part), "not ours")
    else:
        index.client.hset(index.key(part), "not", "ours")
    with unchanged(index), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        index.run(*call)
