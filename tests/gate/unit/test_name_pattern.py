"""Patterns of names: what the server is asked for, and what is kept of the reply."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._engine.keys import KeySet
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


@given(TEXTS)
def test_an_escaped_name_has_no_wildcards(name):
    from glob import escape

    assert NamePattern("hf", escape(name), ALL).exact == name


@pytest.mark.parametrize("key", ["{hf:autocomplete:a}:state", "{hf:lock:}:state", "{hf:x:lock:a}:state"])
def test_keys_that_only_look_like_those_of_a_name_are_left_out(key):
    assert NamePattern("hf", "*", ALL).found([key.encode()]) == []


@given(TEXTS, TEXTS, st.sampled_from(NAMESPACES), st.sampled_from(NAMESPACES))
def test_two_names_or_namespaces_never_share_a_key(one, other, first, second):
    keys = [KeySet(space, "lock", name).key("state") for space, name in ((first, one), (second, other))]
    assert (keys[0] == keys[1]) == ((first, one) == (second, other))


@pytest.mark.parametrize("key", ["{bank}:autocomplete:a:state", "{bank}:lock::state", "{bank}:x:lock:a:state"])
def test_keys_that_only_look_like_those_of_a_namespace_in_braces_are_left_out(key):
    assert NamePattern("{bank}", "*", ALL).found([key.encode()]) == []


def test_another_namespace_is_encoded():
    place = KeySet("a:b{*", "rwlock", "x")
    (found,) = NamePattern("a:b{*", "*", ["rwlock"]).found([place.key("state").encode()])
    assert found.place.tag == place.tag
