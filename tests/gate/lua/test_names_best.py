"""names_best: the best names with a prefix, by looking at all that match or by walking through the ranks."""

from __future__ import annotations

import pytest
import redis

from tests._support.engine import unchanged

SCAN, WALK, FEW = 500, 1000, 50
"""How many names one call looks at, how many ranks it walks through, and how many names it sorts itself."""


def numbered(letter, numbers):
    return [f"{letter}{number:04}" for number in numbers]


@pytest.fixture
def many(index):
    """Rank 1,100 z first, then a and b by turns, then the other a, and 100 c."""
    order = numbered("z", range(1100))
    order += [name for number in range(600) for name in (f"a{number:04}", f"b{number:04}")]
    order += numbered("a", range(600, 1200)) + numbered("c", range(100))
    index.fill({name: place for place, name in enumerate(order)})
    return index


def commands(index, *ask, **options):
    """Return the commands that the server ran to answer, and the reply."""
    index.client.config_resetstat()
    reply = index.best(*ask, **options)
    done = {name.removeprefix("cmdstat_") for name in index.client.info("commandstats")}
    return done & {"zrangebylex", "zmscore", "zrange", "zrank"}, reply


def test_all_of_a_few_matches_are_looked_at(many):
    done, reply = commands(many, "c", 2)
    assert reply == ["scanned", 100, ["c0000", "2900", "c0001", "2901"], ""]
    assert done == {"zrangebylex", "zmscore"}
    tag, matching, found, last = many.best("c", FEW + 1)
    assert (tag, matching, last) == ("scanned", 100, "")
    assert found[::2] == numbered("c", range(100)), "so many are not sorted here"
    assert [float(rank) for rank in found[1::2]] == list(range(2900, 3000))


def test_all_matches_that_a_walk_would_find_late_are_looked_at(many):
    done, (tag, matching, _, last) = commands(many, "b", 200)
    assert (tag, matching, last) == ("scanned", 600, "b0499")
    assert done == {"zrangebylex", "zmscore"}


def test_a_scan_continues_after_its_last_name_until_the_end(many):
    assert many.scan("a", 3) == (numbered("a", range(3)), "a0499")
    assert many.scan("a", 3, "a0499") == (numbered("a", range(500, 503)), "a0999")
    assert many.scan("a", 3, "a0999") == (numbered("a", range(1000, 1003)), "")
    found, last = many.scan("a", 9999, "a0499")
    assert (found, last) == (numbered("a", range(500, 1000)), "a0999")
    many.run("names_unrank", "a0499", "a0500")
    assert many.scan("a", 3, "a0499") == (numbered("a", range(501, 504)), "a1000")


def test_a_scan_ends_after_its_first_piece_or_after_a_piece_that_is_not_full(index):
    index.fill(dict.fromkeys(numbered("a", range(SCAN)), 1))
    assert index.scan("a", 1) == (["a0000"], "")
    index.fill(dict.fromkeys(numbered("a", range(SCAN + 1)), 1))
    assert index.scan("a", 1) == (["a0000"], "a0499")
    assert index.scan("a", 1, "a0499") == (["a0500"], "")
    index.fill(dict.fromkeys(numbered("a", range(2 * SCAN)), 1))
    assert index.scan("a", 1) == (["a0000"], "a0499")
    assert index.scan("a", 1, "a0499") == (["a0500"], "a0999")
    assert index.scan("a", 1, "a0999") == ([], "")


def test_with_many_matches_a_walk_finds_the_best(many):
    done, reply = commands(many, "z", 3)
    assert done == {"zrange"}
    assert reply == ["walked", 1100, ["z0000", "z0001", "z0002"], 3, "z0002"], "the next call continues there"
    assert many.best("", 2)[:3] == ["walked", 3000, ["z0000", "z0001"]]


def test_a_walk_that_finds_too_few_says_where_to_continue(many):
    done, reply = commands(many, "a", 5)
    assert reply == ["walked", 1200, [], 25, "z0024"]
    assert done == {"zrange"}
    assert many.best("a", 5, "walk", 25, "z0024") == ["walked", 1200, [], 25 + WALK, "z1024"], "in larger steps"
    done, reply = commands(many, "z", 9999, "walk", 25, "z0024")
    assert reply == ["walked", 1100, numbered("z", range(25, 1025)), 25 + WALK, "z1024"]
    assert done == {"zrank", "zrange"}
    assert many.best("a", 5, "walk", 1100, "z1099")[:3] == ["walked", 1200, numbered("a", range(5))]


def test_a_walk_to_the_end_returns_what_it_found_and_says_so(many):
    assert many.best("c", 9999, "walk", 2500, "a0999") == ["walked", 100, numbered("c", range(100)), 0, "c0099"]
    assert many.best("c", 9999, "walk", 2000)[3:] == [3000, "c0099"], "a full piece may have more behind it"
    assert many.best("c", 9999, "walk", 3000, "c0099") == ["walked", 100, [], 0, ""]
    assert many.best("c", 3, "walk", 2900, "a1199")[2:] == [numbered("c", range(3)), 2903, "c0002"], "not the end"


def test_a_walk_continues_behind_its_last_name_at_the_present_rank_of_that_name(many):
    *_, start, last = many.best("a", 5)
    many.run("names_unrank", *numbered("z", range(20)))
    assert many.best("z", 3, "walk", start, last)[2] == numbered("z", range(25, 28)), "none was passed over"
    many.fill(dict.fromkeys(numbered("y", range(70)), -1))
    assert many.best("z", 3, "walk", start, last)[2] == numbered("z", range(25, 28)), "and none comes twice"
    many.run("names_unrank", last)
    assert many.best("z", 3, "walk", 95, last)[2] == numbered("z", range(46, 49)), (
        "if the name is gone, by its former rank"
    )


def test_up_to_fifty_names_are_sorted_and_cut_to_the_limit(many):
    assert many.best("c", FEW)[2][::2] == numbered("c", range(FEW))
    assert len(many.best("c", FEW + 1)[2]) == 2 * 100


def test_of_two_ways_of_the_same_length_the_one_that_surely_ends_is_taken(many, index):
    assert many.best("b", 120)[0] == "scanned", "600 to look at, and 600 likely steps"
    assert many.best("b", 119)[0] == "walked"
    index.client.flushall()
    index.fill(dict.fromkeys(numbered("a", range(SCAN)), 1))
    assert index.best("a", 1)[0] == "scanned", "one piece has them all"


def test_a_walk_has_at_most_a_thousand_steps(many):
    assert many.best("b", 115)[3] == WALK, "though 1,150 are likely to do"


def test_the_length_of_a_walk_follows_from_the_number_of_ranks(many):
    many.client.zremrangebyrank(many.key("ranks"), 1500, -1)
    assert many.best("a", 5)[3] == 13
    many.client.zremrangebyrank(many.key("ranks"), 10, -1)
    assert many.best("a", 5)[2:] == [[], 5, "z0004"], "as many as are wanted at least"


def test_a_walk_that_ends_before_the_last_rank_continues_there(many):
    assert many.best("c", 99, "walk", 2900, "a1199")[2:] == [numbered("c", range(99)), 2999, "c0098"]
    assert many.best("c", 1, "walk", 2999, "c0098")[2:] == [numbered("c", [99]), 0, "c0099"]


@pytest.mark.parametrize("limit", [1, 7, FEW, FEW + 1, 2000])
def test_names_with_equal_ranks_come_in_their_own_order(index, limit):
    ranks = {f"a{n:03}": n * 7 % 5 for n in range(150)} | {f"b{n}": -1 for n in range(2)}
    index.fill(ranks)
    right = sorted((name for name in ranks if name[0] == "a"), key=lambda name: (ranks[name], name))
    assert index.scan("a", limit)[0][:limit] == right[:limit]
    assert index.best("a", limit, "walk", 2)[2] == right[: min(limit, 150)]


@pytest.mark.parametrize("limit", [1, 2, FEW, FEW + 1])
def test_the_best_are_found_wherever_they_are_among_the_names(index, limit):
    for order in (lambda n: n, lambda n: -n, lambda n: n * 37 % 101, lambda n: -1.5 if n == 50 else 0):
        ranks = {f"a{n:03}": order(n) for n in range(101)}
        index.fill(ranks)
        assert index.scan("a", limit)[0][:limit] == sorted(ranks, key=lambda name: (ranks[name], name))[:limit]


def test_twice_is_the_same_changes_nothing_and_needs_no_memory(many, raw):
    raw.config_set("maxmemory", 1)
    with unchanged(many):
        for ask in (("a", 5), ("z", 9999, "walk", 25, "z0024"), ("b", 9999, "scan", 0, "b0499"), ("none", 5), ("", 5)):
            assert many.best(*ask) == many.best(*ask)


@pytest.mark.parametrize("way", ["any", "scan"])
def test_no_match_is_found_where_there_is_none(index, way):
    assert index.best("a", 5, way) == ["scanned", 0, [], ""]
    assert index.best("", 500, way) == ["scanned", 0, [], ""]
    index.fill({"b": 1})
    assert index.best("a", 5, way) == ["scanned", 0, [], ""]
    assert index.best("a", 5, "walk") == ["walked", 0, [], 0, "b"]
    assert index.best("c", 5, "walk", 1, "b") == ["walked", 0, [], 0, ""]


@pytest.mark.parametrize("limit", [5, FEW + 1])
def test_names_whose_ranks_were_lost_are_found_after_the_others(index, limit):
    index.fill({"a1": 1, "a2": 2, "a3": 3})
    index.client.zrem(index.key("ranks"), "a1")
    assert index.scan("a", limit) == (["a2", "a3", "a1"], "")
    assert index.scan("a", 2)[0] == ["a2", "a3"]
    index.client.delete(index.key("ranks"))
    assert index.scan("a", limit) == (["a1", "a2", "a3"], "")


@pytest.mark.parametrize("part", ["names", "ranks"])
def test_a_key_of_another_type_is_an_error(index, part):
    index.fill({"a": 1, "b": 2})
    index.client.delete(index.key(part))
    index.client.set(index.key(part), "not ours")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        index.best("a", 5)
