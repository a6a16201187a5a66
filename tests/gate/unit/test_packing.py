"""Numbers in requests, replies and messages are packed as doubles, and none loses a digit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast._engine.packing import doubles, read_reply

WHOLE = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)


@given(st.lists(WHOLE, max_size=7))
def test_a_reply_is_a_tag_and_whole_numbers(numbers):
    assert read_reply(b"queued " + doubles(*numbers)) == [b"queued", *numbers]


@given(WHOLE)
def test_a_number_whose_bytes_are_a_space_does_not_end_the_tag(number):
    assert read_reply(b"busy " + doubles(number)) == [b"busy", number]
    assert b" " in doubles(32 * 2**-1074), "there are such bytes"


@pytest.mark.parametrize("tag", [b"lost", b"unknown", b"finished"])
def test_a_reply_without_numbers_is_its_tag(tag):
    assert read_reply(tag + b" ") == [tag]


def test_an_integer_is_the_fence_of_a_grant_for_the_whole_ttl():
    assert read_reply(1_700_000_000_123_456, 30_000) == [b"granted", 1_700_000_000_123_456, 30_000_000]


def test_a_double_is_read_as_the_integer_that_it_is():
    fence, lease_us = read_reply(1_700_000_000_123_456.0, 30_000)[1:]
    assert (type(fence), fence, lease_us) == (int, 1_700_000_000_123_456, 30_000_000)


def test_an_array_is_read_as_it_is():
    assert read_reply([b"state", 1, []]) == [b"state", 1, []]
