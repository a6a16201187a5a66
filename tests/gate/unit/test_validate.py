"""Validation of arguments, and the errors."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast import (
    AcquireTimeout,
    HandfastError,
    LeaseLost,
    LimitExceeded,
    NoServer,
    NotHeld,
    NotOwner,
    QueueFull,
    ScriptError,
    ServerRefused,
    WouldDeadlock,
)
from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.validate import check_choice, milliseconds
from handfast.arguments import OnLost


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (1, 1000),
        (0.001, 1),
        (0.0011, 2),
        (0.003, 3),
        (1.1, 1100),
        (timedelta(minutes=1), 60_000),
        (366 * 86400, 31_622_400_000),
    ],
)
def test_durations_become_whole_milliseconds_rounded_up(value, ms):
    assert milliseconds(value, "ttl") == ms


@given(st.floats(min_value=0.001, max_value=366 * 86400))
def test_a_duration_is_never_cut_short(seconds):
    assert seconds * 1000 - 1e-5 <= milliseconds(seconds, "ttl") <= seconds * 1000 + 1


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -1, 0.0009, math.nan, math.inf, -math.inf, 1e300, 10**400, timedelta(0), timedelta(microseconds=999)],
)
def test_durations_that_make_no_sense_are_refused(value):
    with pytest.raises(ValueError, match="ttl must be"):
        milliseconds(value, "ttl")


@pytest.mark.parametrize("value", ["1", None, True, b"1", [1]])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(TypeError, match="ttl must be seconds"):
        milliseconds(value, "ttl")


def slot(key):
    """The hash slot's input, after the rule of the cluster specification."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            return key[start + 1 : end]
    return key


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=10), st.sampled_from(["lock", "semaphore"]))
def test_no_name_breaks_out_of_its_tag(name, namespace, kind):
    place = KeySet(namespace, kind, name)
    keys = [place.key(part) for part in PARTS]
    assert {slot(key) for key in keys} == {place.tag[1:-1]}
    assert all(key.isascii() and key.isprintable() and " " not in key for key in keys)
    assert unquote(place.tag[1:-1].split(":", 2)[2]) == name


@given(st.lists(st.tuples(st.text(min_size=1, max_size=6), st.text(min_size=1, max_size=6)), unique=True, min_size=2))
def test_no_two_names_share_a_key(pairs):
    keys = [KeySet(namespace, "lock", name).key(part) for namespace, name in pairs for part in PARTS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("", ValueError, "must not be empty"),
        ("x" * (16 * 1024 + 1), ValueError, "at most 16384 bytes"),
        ("\ud800", ValueError, "valid Unicode"),
        (b"bytes", TypeError, "must be a str"),
        (None, TypeError, "must be a str"),
    ],
)
def test_names_that_cannot_be_are_refused(name, error, words):
    with pytest.raises(error, match=words):
        KeySet("hf", "lock", name)


def test_every_error_carries_its_name_and_says_what_to_do():
    errors = [
        AcquireTimeout("a", 5.0),
        QueueFull("a", 3),
        LeaseLost("a", 7, "too late"),
        LimitExceeded("a", 2, 3),
        NotHeld("a"),
        NotOwner("a"),
        WouldDeadlock("a", "leave the block first"),
    ]
    for error in errors:
        assert isinstance(error, HandfastError)
        assert error.name == "a"
        assert "'a'" in str(error)
        assert ";" in str(error), "the part after the semicolon says what to do"
    assert isinstance(errors[0], TimeoutError)


def test_a_limit_error_gives_both_numbers():
    text = str(LimitExceeded("gpu", 2, 3))
    assert text.startswith("'gpu' has a limit of 2 (set by resize()), less than the 3 requested;")
    assert "limit of 1 (set by resize()), less than requested;" in str(LimitExceeded("gpu", 1))


@pytest.mark.parametrize("on_lost", ["ignore", "", None, True])
def test_an_unknown_reaction_to_a_loss_is_refused(on_lost):
    with pytest.raises(ValueError, match="on_lost must be 'raise' or 'warn'"):
        check_choice(on_lost, "on_lost", OnLost)


@pytest.mark.parametrize(
    "error",
    [
        AcquireTimeout("a", 1.5),
        QueueFull("a", 3),
        LeaseLost("a", 7, "why"),
        NotHeld("a"),
        LimitExceeded("a", 3),
        NotOwner("a"),
        WouldDeadlock("a", "wait elsewhere"),
        NoServer("none", name="a"),
        ScriptError("a", 2, "x()", "boom"),
        ServerRefused("no", name="a", changed_nothing=True, reply="OOM"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
