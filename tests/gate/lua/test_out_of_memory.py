"""The MEMORY lines of the scripts for names and scores. The sessions of the other scripts have a law for theirs."""

from __future__ import annotations

import pytest

from tests._support.engine import refused, unchanged


@pytest.mark.parametrize("how", ["set", "keep"])
def test_names_are_not_ranked_but_found_and_unranked(index, raw, how):
    index.fill({"a": 1, "b": 2})
    raw.config_set("maxmemory", 1)
    for names in (("c", "3"), ("a", "3")):
        with refused(index):
            index.run("names_rank", how, *names)
    assert index.scan("", 5) == (["a", "b"], "")
    assert index.run("names_unrank", "a") == ["unranked"]
    assert index.scan("", 5) == (["b"], "")


def test_scores_are_not_advanced_but_an_answer_is_given_again(index, raw):
    first = index.advance("1", "a", answer="x")
    raw.config_set("maxmemory", 1)
    for number, pair in enumerate((("2", "a"), ("1", "b"), ("0", "a"))):
        with refused(index):
            index.advance(*pair, answer=str(number))
    with unchanged(index):
        assert index.advance("1", "a", answer="x") == first
