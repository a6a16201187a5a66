"""The scripts that keep data, each alone on a real server: every reply, sent twice, late, out of memory, on wrong keys."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from handfast._engine.keys import KeySet
from handfast._engine.script import load

OUT_OF_MEMORY = "used memory > 'maxmemory'"
SCAN, WALK, FEW = 500, 1000, 50
"""How many names one call of names_best looks at, how many ranks it walks, and how many it sorts itself."""


class Shelf:
    """The keys of one name, and the scripts on them: the keys as the header names them, the arguments in its order."""

    def __init__(self, client):
        self.client = client
        self.place = KeySet("hf", "autocomplete", "a")

    def run(self, name, *args):
        script = load(name)
        keys = [self.key(part) for part in script.header.keys]
        tag, *fields = reply = self.client.eval(script.source, len(keys), *keys, *args)
        assert len(fields) == len(script.header.replies[tag])
        return reply

    def key(self, part):
        return self.place.key(part)

    def dump(self):
        """Everything stored, byte for byte, but for the TTLs."""
        return {key: self.client.dump(key) for key in sorted(self.client.scan_iter())}

    def fill(self, ranks):
        """Rank names, as many as there are."""
        pairs = list(ranks.items())
        for start in range(0, len(pairs), 500):
            piece = pairs[start : start + 500]
            assert self.run("names_rank", "set", *(part for name, rank in piece for part in (name, rank))) == ["ranked"]

    def names(self):
        return self.client.zrange(self.key("names"), 0, -1, withscores=True)

    def ranks(self):
        return self.client.zrange(self.key("ranks"), 0, -1, withscores=True)

    def best(self, prefix, limit, way="any", start=0, after=""):
        return self.run("names_best", prefix, limit, way, start, after)

    def scan(self, prefix, limit, after=""):
        """One piece: the names in the order of their ranks, and the last one of the piece."""
        tag, matching, found, last = self.best(prefix, limit, "scan", 0, after)
        assert (tag, matching) == ("scanned", self.client.zlexcount(self.key("names"), f"[{prefix}", f"[{prefix}~"))
        return sorted(found[::2], key=dict(zip(found[::2], map(float, found[1::2]), strict=True)).get), last


@pytest.fixture
def shelf(raw):
    return Shelf(raw)


# --- names_rank


def test_names_are_ranked_in_both_sets(shelf):
    assert shelf.run("names_rank", "set", "b", "-2.5", "a", "0.0") == ["ranked"]
    assert shelf.names() == [("a", 0.0), ("b", 0.0)]
    assert shelf.ranks() == [("b", -2.5), ("a", 0.0)]


def test_to_keep_leaves_ranks_that_are_there_and_to_set_does_not(shelf):
    shelf.run("names_rank", "set", "a", "-2.5")
    assert shelf.run("names_rank", "keep", "a", "0", "b", "0") == ["ranked"]
    assert shelf.ranks() == [("a", -2.5), ("b", 0.0)]
    assert shelf.run("names_rank", "set", "a", "7") == ["ranked"]
    assert shelf.ranks() == [("b", 0.0), ("a", 7.0)]


@pytest.mark.parametrize("how", ["set", "keep"])
def test_ranking_twice_is_the_same_and_a_late_one_puts_back_what_was_removed(shelf, how):
    rank = partial(shelf.run, "names_rank", how, "a", "-1", "b", "-2")
    rank()
    before = shelf.dump()
    assert rank() == ["ranked"]
    assert shelf.dump() == before
    shelf.run("names_unrank", "a")
    rank()
    assert shelf.dump() == before


# --- names_unrank


def test_names_are_taken_out_of_both_sets_and_twice_is_the_same(shelf):
    shelf.fill({"a": -1, "b": -2, "c": -3})
    assert shelf.run("names_unrank", "a", "c", "never there") == ["unranked"]
    assert shelf.names() == [("b", 0.0)]
    assert shelf.ranks() == [("b", -2.0)]
    before = shelf.dump()
    assert shelf.run("names_unrank", "a", "c", "never there") == ["unranked"]
    assert shelf.dump() == before
    shelf.run("names_unrank", "b")
    assert shelf.dump() == {}


# --- names_best


def numbered(letter, numbers):
    return [f"{letter}{number:04}" for number in numbers]


@pytest.fixture
def many(shelf):
    """Names in the order of their ranks: 1,100 z, then a and b by turns, then the other a, and 100 c."""
    order = numbered("z", range(1100))
    order += [name for number in range(600) for name in (f"a{number:04}", f"b{number:04}")]
    order += numbered("a", range(600, 1200)) + numbered("c", range(100))
    shelf.fill({name: place for place, name in enumerate(order)})
    return shelf


def commands(shelf, *ask, **options):
    """What the server did to answer: which commands, and the reply."""
    shelf.client.config_resetstat()
    reply = shelf.best(*ask, **options)
    done = {name.removeprefix("cmdstat_") for name in shelf.client.info("commandstats")}
    return done & {"zrangebylex", "zmscore", "zrange", "zrank"}, reply


def test_few_that_match_are_all_looked_at(many):
    done, reply = commands(many, "c", 2)
    assert reply == ["scanned", 100, ["c0000", "2900", "c0001", "2901"], ""]
    assert done == {"zrangebylex", "zmscore"}
    tag, matching, found, last = many.best("c", FEW + 1)
    assert (tag, matching, last) == ("scanned", 100, "")
    assert found[::2] == numbered("c", range(100)), "so many are not sorted here"
    assert [float(rank) for rank in found[1::2]] == list(range(2900, 3000))


def test_those_whom_a_walk_would_find_late_are_all_looked_at(many):
    done, (tag, matching, _, last) = commands(many, "b", 200)
    assert (tag, matching, last) == ("scanned", 600, "b0499")
    assert done == {"zrangebylex", "zmscore"}


def test_a_scan_goes_on_after_the_last_one_to_the_end(many):
    assert many.scan("a", 3) == (numbered("a", range(3)), "a0499")
    assert many.scan("a", 3, "a0499") == (numbered("a", range(500, 503)), "a0999")
    assert many.scan("a", 3, "a0999") == (numbered("a", range(1000, 1003)), "")
    found, last = many.scan("a", 9999, "a0499")
    assert (found, last) == (numbered("a", range(500, 1000)), "a0999")
    many.run("names_unrank", "a0499", "a0500")
    assert many.scan("a", 3, "a0499") == (numbered("a", range(501, 504)), "a1000")


def test_a_scan_whose_one_piece_is_full_is_at_its_end_and_a_further_full_one_goes_on_to_an_empty_one(shelf):
    shelf.fill(dict.fromkeys(numbered("a", range(SCAN)), 1))
    assert shelf.scan("a", 1) == (["a0000"], "")
    shelf.fill(dict.fromkeys(numbered("a", range(SCAN + 1)), 1))
    assert shelf.scan("a", 1) == (["a0000"], "a0499")
    assert shelf.scan("a", 1, "a0499") == (["a0500"], "")
    shelf.fill(dict.fromkeys(numbered("a", range(2 * SCAN)), 1))
    assert shelf.scan("a", 1) == (["a0000"], "a0499")
    assert shelf.scan("a", 1, "a0499") == (["a0500"], "a0999")
    assert shelf.scan("a", 1, "a0999") == ([], "")


def test_where_many_match_the_best_are_walked_to(many):
    done, reply = commands(many, "z", 3)
    assert done == {"zrange"}
    assert reply == ["walked", 1100, ["z0000", "z0001", "z0002"], 3, "z0002"], "it goes on where it stopped"
    assert many.best("", 2)[:3] == ["walked", 3000, ["z0000", "z0001"]]


def test_a_walk_that_finds_too_few_says_where_to_go_on(many):
    done, reply = commands(many, "a", 5)
    assert reply == ["walked", 1200, [], 25, "z0024"]
    assert done == {"zrange"}
    assert many.best("a", 5, "walk", 25, "z0024") == ["walked", 1200, [], 25 + WALK, "z1024"], "in larger steps"
    done, reply = commands(many, "z", 9999, "walk", 25, "z0024")
    assert reply == ["walked", 1100, numbered("z", range(25, 1025)), 25 + WALK, "z1024"]
    assert done == {"zrank", "zrange"}
    assert many.best("a", 5, "walk", 1100, "z1099")[:3] == ["walked", 1200, numbered("a", range(5))]


def test_a_walk_to_the_very_end_gives_what_there_is_and_says_so(many):
    assert many.best("c", 9999, "walk", 2500, "a0999") == ["walked", 100, numbered("c", range(100)), 0, "c0099"]
    assert many.best("c", 9999, "walk", 2000)[3:] == [3000, "c0099"], "a full piece may have more behind it"
    assert many.best("c", 9999, "walk", 3000, "c0099") == ["walked", 100, [], 0, ""]
    assert many.best("c", 3, "walk", 2900, "a1199")[2:] == [numbered("c", range(3)), 2903, "c0002"], "not the end"


def test_a_walk_goes_on_behind_the_last_one_wherever_that_stands_now(many):
    *_, start, last = many.best("a", 5)
    many.run("names_unrank", *numbered("z", range(20)))
    assert many.best("z", 3, "walk", start, last)[2] == numbered("z", range(25, 28)), "none was passed over"
    many.fill(dict.fromkeys(numbered("y", range(70)), -1))
    assert many.best("z", 3, "walk", start, last)[2] == numbered("z", range(25, 28)), "and none comes twice"
    many.run("names_unrank", last)
    assert many.best("z", 3, "walk", 95, last)[2] == numbered("z", range(46, 49)), "if it is gone, its place must do"


def test_as_few_as_can_be_sorted_are_sorted_and_no_more_are_given(many):
    assert many.best("c", FEW)[2][::2] == numbered("c", range(FEW))
    assert len(many.best("c", FEW + 1)[2]) == 2 * 100


def test_of_two_ways_that_are_as_long_the_one_that_is_sure_to_end_is_taken(many, shelf):
    assert many.best("b", 120)[0] == "scanned", "600 to look at, and 600 likely steps"
    assert many.best("b", 119)[0] == "walked"
    shelf.client.flushall()
    shelf.fill(dict.fromkeys(numbered("a", range(SCAN)), 1))
    assert shelf.best("a", 1)[0] == "scanned", "one piece has them all"


def test_a_walk_takes_no_more_steps_than_a_piece_has(many):
    assert many.best("b", 115)[3] == WALK, "though 1,150 are likely to do"


def test_a_walk_is_as_long_as_the_ranks_that_are_left_make_likely(many):
    many.client.zremrangebyrank(many.key("ranks"), 1500, -1)
    assert many.best("a", 5)[3] == 13
    many.client.zremrangebyrank(many.key("ranks"), 10, -1)
    assert many.best("a", 5)[2:] == [[], 5, "z0004"], "as many as are wanted at least"


def test_a_walk_that_ends_before_the_last_one_goes_on_there(many):
    assert many.best("c", 99, "walk", 2900, "a1199")[2:] == [numbered("c", range(99)), 2999, "c0098"]
    assert many.best("c", 1, "walk", 2999, "c0098")[2:] == [numbered("c", [99]), 0, "c0099"]


@pytest.mark.parametrize("limit", [1, 7, FEW, FEW + 1, 2000])
def test_equal_ranks_stand_in_the_order_of_their_names(shelf, limit):
    ranks = {f"a{n:03}": n * 7 % 5 for n in range(150)} | {f"b{n}": -1 for n in range(2)}
    shelf.fill(ranks)
    right = sorted((name for name in ranks if name[0] == "a"), key=lambda name: (ranks[name], name))
    assert shelf.scan("a", limit)[0][:limit] == right[:limit]
    assert shelf.best("a", limit, "walk", 2)[2] == right[: min(limit, 150)]


@pytest.mark.parametrize("limit", [1, 2, FEW, FEW + 1])
def test_the_best_are_given_wherever_among_the_names_they_stand(shelf, limit):
    for order in (lambda n: n, lambda n: -n, lambda n: n * 37 % 101, lambda n: -1.5 if n == 50 else 0):
        ranks = {f"a{n:03}": order(n) for n in range(101)}
        shelf.fill(ranks)
        assert shelf.scan("a", limit)[0][:limit] == sorted(ranks, key=lambda name: (ranks[name], name))[:limit]


def test_looking_twice_is_the_same_and_changes_nothing_and_needs_no_memory(many, raw):
    before = many.dump()
    raw.config_set("maxmemory", 1)
    for ask in (("a", 5), ("z", 9999, "walk", 25, "z0024"), ("b", 9999, "scan", 0, "b0499"), ("nobody", 5), ("", 5)):
        assert many.best(*ask) == many.best(*ask)
    raw.config_set("maxmemory", 0)
    assert many.dump() == before


@pytest.mark.parametrize("way", ["any", "scan"])
def test_nothing_is_found_where_nothing_is(shelf, way):
    assert shelf.best("a", 5, way) == ["scanned", 0, [], ""]
    assert shelf.best("", 500, way) == ["scanned", 0, [], ""]
    shelf.fill({"b": 1})
    assert shelf.best("a", 5, way) == ["scanned", 0, [], ""]
    assert shelf.best("a", 5, "walk") == ["walked", 0, [], 0, "b"]
    assert shelf.best("c", 5, "walk", 1, "b") == ["walked", 0, [], 0, ""]


@pytest.mark.parametrize("limit", [5, FEW + 1])
def test_names_whose_ranks_were_lost_are_found_after_the_others(shelf, limit):
    shelf.fill({"a1": 1, "a2": 2, "a3": 3})
    shelf.client.zrem(shelf.key("ranks"), "a1")
    assert shelf.scan("a", limit) == (["a2", "a3", "a1"], "")
    assert shelf.scan("a", 2)[0] == ["a2", "a3"]
    shelf.client.delete(shelf.key("ranks"))
    assert shelf.scan("a", limit) == (["a1", "a2", "a3"], "")


# --- scores_advance


@pytest.fixture
def advance(shelf):
    """Advance with a fresh answer for every call, or with one of that name."""
    calls = iter(range(1000))

    def call(*pairs, answer=None):
        script = load("scores_advance")
        keys = shelf.key("scores"), shelf.key(f"answer:{answer or next(calls)}")
        reply = shelf.client.eval(script.source, 2, *keys, *pairs)
        assert len(reply) == 1 + len(script.header.replies[reply[0]])
        return reply

    return call


def scores(shelf):
    return dict(shelf.client.zrange(shelf.key("scores"), 0, -1, withscores=True))


def test_members_are_added_moved_or_stale(shelf, advance):
    assert advance("1", "a", "2", "b") == ["advanced", 2, 0, 0]
    assert advance("1.5", "a", "2", "b", "1", "c", "-3", "d") == ["advanced", 2, 1, 1]
    assert advance("1", "a", "1.5", "a") == ["advanced", 0, 0, 2]
    assert scores(shelf) == {"a": 1.5, "b": 2, "c": 1, "d": -3}


def test_advancing_twice_has_the_same_answer_and_is_remembered_for_some_seconds(shelf, advance):
    first = advance("1", "a", "2", "b", answer="x")
    before = shelf.dump()
    assert advance("1", "a", "2", "b", answer="x") == first == ["advanced", 2, 0, 0]
    assert shelf.dump() == before
    assert 0 < shelf.client.pttl(shelf.key("answer:x")) <= 20_000
    assert shelf.client.pttl(shelf.key("scores")) == -1


def test_a_late_one_moves_nothing_back_though_its_answer_is_forgotten(shelf, advance):
    advance("1", "a", answer="x")
    advance("5", "a")
    assert advance("1", "a", answer="x") == ["advanced", 1, 0, 0], "the answer of then"
    shelf.client.delete(shelf.key("answer:x"))
    assert advance("1", "a", answer="x") == ["advanced", 0, 0, 1]
    assert scores(shelf) == {"a": 5}


# --- out of memory


@pytest.mark.parametrize("how", ["set", "keep"])
def test_at_maxmemory_ranking_is_refused_and_changes_nothing_while_the_rest_works(shelf, raw, how):
    shelf.fill({"a": 1, "b": 2})
    before = shelf.dump()
    raw.config_set("maxmemory", 1)
    for names in (("c", "3"), ("a", "3")):
        with pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
            shelf.run("names_rank", how, *names)
    assert shelf.dump() == before
    assert shelf.scan("", 5) == (["a", "b"], "")
    assert shelf.run("names_unrank", "a") == ["unranked"]
    assert shelf.scan("", 5) == (["b"], "")


def test_at_maxmemory_advancing_is_refused_and_changes_nothing_but_an_answer_is_given_again(shelf, raw, advance):
    first = advance("1", "a", answer="x")
    before = shelf.dump()
    raw.config_set("maxmemory", 1)
    for pairs in (("2", "a"), ("1", "b"), ("0", "a")):
        with pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
            advance(*pairs)
    assert advance("1", "a", answer="x") == first
    assert shelf.dump() == before


# --- what should not be there


@pytest.mark.parametrize("kind", ["string", "hash"])
@pytest.mark.parametrize("part", ["names", "ranks"])
@pytest.mark.parametrize(
    "call",
    [("names_rank", "set", "c", "3"), ("names_rank", "keep", "c", "3"), ("names_unrank", "a")],
    ids=["set", "keep", "unrank"],
)
def test_a_key_of_another_type_is_an_error_that_changes_nothing(shelf, call, part, kind):
    shelf.fill({"a": 1, "b": 2})
    shelf.client.delete(shelf.key(part))
    if kind == "string":
        shelf.client.set(shelf.key(part), "not ours")
    else:
        shelf.client.hset(shelf.key(part), "not", "ours")
    before = shelf.dump()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        shelf.run(*call)
    assert shelf.dump() == before


@pytest.mark.parametrize("part", ["names", "ranks"])
def test_looking_at_a_key_of_another_type_is_an_error(shelf, part):
    shelf.fill({"a": 1, "b": 2})
    shelf.client.delete(shelf.key(part))
    shelf.client.set(shelf.key(part), "not ours")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        shelf.best("a", 5)


@pytest.mark.parametrize("part", ["scores", "answer:x"])
def test_advancing_in_a_key_of_another_type_is_an_error_that_changes_nothing(shelf, advance, part):
    advance("1", "a")
    shelf.client.delete(shelf.key(part))
    shelf.client.hset(shelf.key(part), "not", "ours")
    before = shelf.dump()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        advance("2", "a", answer="x")
    assert shelf.dump() == before
    shelf.client.delete(shelf.key(part))


def test_a_score_that_is_no_number_is_an_error_that_changes_nothing(shelf, advance):
    shelf.fill({"a": 1})
    advance("1", "a")
    before = shelf.dump()
    for how in ("set", "keep"):
        with pytest.raises(redis.ResponseError, match="not a valid float"):
            shelf.run("names_rank", how, "c", "3", "d", "much")
    with pytest.raises(redis.ResponseError, match="not a valid float"):
        advance("2", "a", "much", "b")
    assert shelf.dump() == before
