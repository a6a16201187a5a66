"""names_unrank: names are removed from both sorted sets. Keys of other types are in test_names_rank.py."""

from __future__ import annotations

from tests._support.engine import unchanged


def test_names_are_removed_from_both_sets_and_twice_is_once(index):
    index.fill({"a": -1, "b": -2, "c": -3})
    assert index.run("names_unrank", "a", "c", "never there") == ["unranked"]
    assert index.scores_of("names") == [("b", 0.0)]
    assert index.scores_of("ranks") == [("b", -2.0)]
    with unchanged(index):
        assert index.run("names_unrank", "a", "c", "never there") == ["unranked"]
    index.run("names_unrank", "b")
    assert index.dump() == {}
