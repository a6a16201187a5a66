"""Patterns of names: what the server is asked for, and what is kept of the reply."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from glob import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._engine.keys import KeySet, read_key, read_shown, shown_name
from handfast._engine.names import NamePattern

ALL = ("lock", "semaphore", "rwlock")

TEXTS = st.text(st.sampled_from("ab*?[]!-^ :é{}\n"), min_size=1, max_size=8)


NAMESPACES = "hf", "{bank}", "{a:b}"


def asked(pattern):
    """Return the server's pattern, as a regular expression: it has no other wildcard than ``*``."""
    (glob,) = re.findall(rb"\r\n(\{[^*]*:\*:.*:state)\r\n", pattern.scan(b"0").args)
    return re.compile(".*".join(map(re.escape, glob.decode().split("*")))).fullmatch


@given(TEXTS, TEXTS, st.sampled_from(NAMESPACES))
def test_exactly_the_names_that_match_are_found(text, name, namespace):
    pattern = NamePattern(namespace, text, ALL)
    key = KeySet(namespace, "lock", name).key("state")
    matches = fnmatchcase(name, text)
    found = [(one.place.kind, one.place.name, one.part) for one in pattern.found([key.encode()])]
    assert found == [("lock", name, "state")] * matches
    if pattern.exact is None:
        assert asked(pattern)(key) or not matches
    else:
        assert pattern.scan(b"0") is None
        assert [place.name for place in pattern.places()] == [pattern.exact] * len(ALL)
    assert pattern.exact is None or matches == (name == pattern.exact)


PARTS = st.lists(st.text(st.sampled_from("ab|\\*"), min_size=1, max_size=5), min_size=1, max_size=3)


@given(PARTS, PARTS, st.sampled_from(NAMESPACES))
def test_each_key_has_one_text_and_each_text_one_key(one, other, namespace):
    texts = [shown_name("once", name, parts) for name, *parts in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)
    for (name, *parts), text in zip((one, other), texts, strict=True):
        place = KeySet(namespace, "once", name, tuple(parts))
        assert read_shown("once", text) == (name, tuple(parts))
        assert KeySet.of_shown(namespace, "once", text).tag == place.tag
        read, _ = read_key(namespace, place.key("state"))
        assert (read.tag, read.name) == (place.tag, text)
        pattern = NamePattern(namespace, escape(text), ["once"])
        assert [found.tag for found in pattern.places()] == [place.tag]
        whole = NamePattern(namespace, f"{escape(text)[:-1]}?", ["once"])
        if "*" not in text:
            assert asked(whole)(place.key("state"))
            assert [found.place.tag for found in whole.found([place.key("state").encode()])] == [place.tag]


@given(st.text(st.sampled_from("ab|\\"), max_size=8))
def test_a_text_is_read_as_it_is_written_or_not_at_all(text):
    try:
        name, parts = read_shown("limiter", text)
    except ValueError as error:
        assert "is not the name of a limiter" in str(error)  # noqa: PT017 -- most texts are read
    else:
        assert shown_name("limiter", name, parts) == text


def test_a_name_of_a_kind_without_keys_is_shown_as_it_is():
    assert shown_name("lock", r"C:\a|b") == KeySet("hf", "lock", r"C:\a|b").name == r"C:\a|b"
    assert read_shown("lock", r"C:\a|b") == (r"C:\a|b", ())
    assert read_key("hf", "{hf:lock:a|b}:state") is None


@given(TEXTS)
def test_an_escaped_name_has_no_wildcards(name):
    assert NamePattern("hf", escape(name), ALL).exact == name


@pytest.mark.parametrize("key", ["{hf:autocomplete:a}:state", "{hf:lock:}:state", "{hf:x:lock:a}:state"])
def test_keys_that_only_look_like_those_of_a_name_are_left_out(key):
    assert [*NamePattern("hf", "*", ALL).found([key.encode()])] == []


@given(TEXTS, TEXTS, st.sampled_from(NAMESPACES), st.sampled_from(NAMESPACES))
def test_two_names_or_namespaces_never_share_a_key(one, other, first, second):
    keys = [KeySet(space, "lock", name).key("state") for space, name in ((first, one), (second, other))]
    assert (keys[0] == keys[1]) == ((first, one) == (second, other))


@pytest.mark.parametrize("key", ["{bank}:autocomplete:a:state", "{bank}:lock::state", "{bank}:x:lock:a:state"])
def test_keys_that_only_look_like_those_of_a_namespace_in_braces_are_left_out(key):
    assert [*NamePattern("{bank}", "*", ALL).found([key.encode()])] == []


def test_another_namespace_is_encoded():
    place = KeySet("a:b{*", "rwlock", "x")
    (found,) = NamePattern("a:b{*", "*", ["rwlock"]).found([place.key("state").encode()])
    assert found.place.tag == place.tag
