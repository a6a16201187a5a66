"""Rates as callers write them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum, StrEnum

import pytest

from handfast import AsyncHandfast, Handfast, Rate
from handfast._engine.keys import KeySet
from handfast._engine.limits import Limit, Window, pack_limits, read_limits
from handfast._engine.rates import rates_text, read_metrics, read_rates, read_text
from handfast._engine.validate import key_parts

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ("10/s", [(10, SECOND)]),
        ("1/100ms", [(1, 100)]),
        ("10/s; 500/min", [(10, SECOND), (500, MINUTE)]),
        ("500/min;10/s", [(10, SECOND), (500, MINUTE)]),
        ("5/h, 9/d", [(5, HOUR), (9, DAY)]),
        ("5/minute;100/hour", [(5, MINUTE), (100, HOUR)]),
        ("10 per hour", [(10, HOUR)]),
        ("10 per 2 hours", [(10, 2 * HOUR)]),
        ("10/2hours|3/second", [(3, SECOND), (10, 2 * HOUR)]),
        (" 7 / 30 Days ", [(7, 30 * DAY)]),
        ("1/month", [(1, 30 * DAY)]),
        ("1 PER 15 Min", [(1, 15 * MINUTE)]),
        ("1/2mins;1/3secs;1/4milliseconds;1/5seconds", [(1, 4), (1, 3000), (1, 5000), (1, 120_000)]),
        ("1000000000/31d", [(10**9, 31 * DAY)]),
        (Rate(500, per=60.0), [(500, MINUTE)]),
        (Rate(1, 0.001), [(1, 1)]),
        (Rate(3, timedelta(days=31)), [(3, 31 * DAY)]),
        (Rate(3, 0.0001 + 0.1), [(3, 101)]),
        ([Rate(9, 2), "3/s"], [(3, SECOND), (9, 2000)]),
        (("1/s;2/min", Rate(3, 3600)), [(1, SECOND), (2, MINUTE), (3, HOUR)]),
        (iter(["1/s"]), [(1, SECOND)]),
    ],
)
def test_rates_are_read_and_put_in_the_order_of_their_periods(rates, found):
    assert read_rates(rates) == tuple(Limit(*rate) for rate in found)


@pytest.mark.parametrize(
    ("rates", "error", "words"),
    [
        ("", ValueError, "'' is no rate; write '10/s'"),
        ("10", ValueError, "'10' is no rate"),
        ("10/s;", ValueError, "'' is no rate"),
        ("ten/s", ValueError, "'ten/s' is no rate"),
        ("10/fortnight", ValueError, "'10/fortnight' is no rate"),
        ("1.5/s", ValueError, "is no rate"),
        ("-1/s", ValueError, "is no rate"),
        ("10/s per day", ValueError, "is no rate"),
        ("10/m", ValueError, "is no rate"),
        ("1٣/s", ValueError, "is no rate"),
        ("0/s", ValueError, "the limit of a rate must be from 1 to 1,000,000,000, not 0"),
        ("1000000001/s", ValueError, "the limit of a rate must be"),
        ("99999999999/s", ValueError, "is no rate"),
        ("1/0s", ValueError, "the period of a rate must be from 1 ms to 31 days, and that of '1/0s' is not"),
        ("1/32d", ValueError, "from 1 ms to 31 days"),
        ("1/2678400001ms", ValueError, "from 1 ms to 31 days"),
        ("1/year", ValueError, "is no rate"),
        ("1/s;2/1000ms", ValueError, "two rates with a period of 1 s"),
        ("1/s;1/min;1/h;1/d;1/2d", ValueError, "the number of rates must be from 1 to 4, not 5"),
        ([], ValueError, "the number of rates must be from 1 to 4, not 0"),
        (Rate(0, 1), ValueError, "limit must be from 1"),
        (Rate(1.0, 1), TypeError, "limit must be an int"),
        (Rate(True, 1), TypeError, "limit must be an int"),
        (Rate(1, 0), ValueError, "per must be at least a millisecond"),
        (Rate(1, "s"), TypeError, "per must be seconds"),
        (Rate(1, timedelta(days=32)), ValueError, "from 1 ms to 31 days"),
        (10, TypeError, "rates must be a text such as '10/s; 500/min', a Rate, or several of these, not 10"),
        (b"10/s", TypeError, "rates must be a text"),
        (None, TypeError, "rates must be a text"),
        ([10], TypeError, "rates must be texts such as '10/s' or Rates, not 10"),
        ([["1/s"]], TypeError, "rates must be texts"),
    ],
)
def test_what_is_no_rate_is_refused(rates, error, words):
    with pytest.raises(error, match=words):
        read_rates(rates)


@pytest.mark.parametrize("client", [Handfast, AsyncHandfast])
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rates": "nonsense"}, ValueError, "is no rate"),
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"on_limit": "skip"}, ValueError, "on_limit must be 'wait' or 'raise', not 'skip'"),
        ({"on_limit": "raise", "timeout": 5}, ValueError, "timeout has no use with on_limit='raise'"),
        ({"timeout": "5"}, TypeError, "timeout must be seconds"),
        ({"max_waiters": 0}, ValueError, "max_waiters must be from 1"),
    ],
)
def test_a_limiter_checks_its_arguments_without_a_server(client, options, error, words):
    hf = client("redis://127.0.0.1:1")
    with pytest.raises(error, match=words):
        hf.limiter(**{"name": "a", "rates": "1/s"} | options)


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ("10 per second", "10/s"),
        ("500/60s;10/1500ms", "10/1500ms; 500/min"),
        ("1/36h; 2/48h; 3/90min", "3/90min; 1/36h; 2/2d"),
    ],
)
def test_rates_are_written_as_they_may_be_read(rates, text):
    assert rates_text(read_rates(rates)) == text
    assert read_rates(text) == read_rates(rates)


# --- keys


@pytest.mark.parametrize("namespace", ["hf", "a:b", "{bank}"])
def test_different_parts_never_share_a_key(namespace):
    place = KeySet(namespace, "limiter", "a")
    tags = {
        place.keyed(parts).tag
        for parts in (("a:b",), ("a", "b"), ("a|b",), ("a%7Cb",), ("a", "b", "c"), ("a}b",), ("é",), ("1",), ("a", "1"))
    }
    names = {KeySet(namespace, "limiter", name).tag for name in ("a", "a|b", "a|a|b", "a%7Cb", "a:b")}
    assert len(tags | names) == 14
    assert all(tag.count("{") == 1 for tag in tags)


def test_parts_are_added_to_those_that_are_there():
    place = KeySet("hf", "limiter", "a b")
    assert place.keyed(("x", "y/z")).tag == place.keyed(("x",)).keyed(("y/z",)).tag == "{hf:limiter:a%20b|x|y/z}"
    assert place.keyed(("x", "y")).name == "a b|x|y"


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ((), TypeError, "a key must have at least one part"),
        ((1.0,), TypeError, "a part of a key must be a str, an int, a bool, a UUID, a date, or an Enum .* not 1.0"),
        ((None,), TypeError, "a part of a key must be a str"),
        ((b"x",), TypeError, "a part of a key must be a str"),
        (("",), ValueError, "a part of a key must not be empty"),
        (("x" * 16385,), ValueError, "at most 16384 bytes"),
        (("\ud800",), ValueError, "valid Unicode"),
    ],
)
def test_what_is_no_part_of_a_key_is_refused(parts, error, words):
    with pytest.raises(error, match=words):
        key_parts(parts)


def test_what_stands_for_a_text_is_a_part():
    ids = uuid.UUID(int=7), date(2026, 11, 27), datetime(2026, 11, 27, 8, 30, tzinfo=UTC), True, Plan.FREE, Size.LARGE
    assert key_parts(ids) == (
        "00000000-0000-0000-0000-000000000007",
        "2026-11-27",
        "2026-11-27T08:30:00+00:00",
        "True",
        "free",
        "3",
    )
    assert key_parts((Text.ONE, "one")) == ("one", "one")
    with pytest.raises(TypeError, match=r"not <Nothing.HERE: None>"):
        key_parts((Nothing.HERE,))


class Plan(Enum):
    FREE = "free"


class Size(IntEnum):
    LARGE = 3


class Text(StrEnum):
    ONE = "one"


class Nothing(Enum):
    HERE = None


def test_a_number_and_its_text_are_the_same_part():
    assert key_parts((1, "1", -5, "x")) == ("1", "1", "-5", "x")


# --- metrics

TWO = (Limit(500, MINUTE, "requests"), Limit(200_000, MINUTE, "tokens"), Limit(9_000_000, DAY, "tokens"))


def test_metrics_are_read_and_put_in_order():
    found = read_metrics({"tokens": ["9000000/d", Rate(200_000, per=60)], "requests": "500/min"})
    assert found == TWO
    assert [str(rate.window) for rate in found] == ["requests:60000", "tokens:60000", "tokens:86400000"]


MOST = tuple(Limit(10**9, period * DAY, letter * 20) for letter in "abcd" for period in (1, 31))


@pytest.mark.parametrize("rates", [TWO, TWO[:1], MOST, (Limit(1, 1),), ()])
def test_packed_rates_are_read_again_with_their_metrics(rates):
    packed = pack_limits(rates)
    assert tuple(read_limits(packed)) == rates
    assert len(packed) <= 255, "one byte has its length"


@pytest.mark.parametrize("packed", [b"x", b";requests", pack_limits(TWO) + b"!", pack_limits(TWO)[8:]])
def test_what_are_no_packed_rates_is_refused(packed):
    with pytest.raises(ValueError, match=r"are no rates|zip"):
        read_limits(packed)


def test_rates_with_metrics_are_written_as_a_command_reads_them():
    text = "requests: 500/min; tokens: 200000/min; 9000000/d"
    assert rates_text(TWO) == text
    assert read_metrics(read_text(text)) == TWO
    assert read_text("10/s; 5/min") == "10/s; 5/min"
    with pytest.raises(ValueError, match="'5/s' stands before the first metric; write 'tokens: 5/s'"):
        read_text("5/s; tokens: 5/min")


@pytest.mark.parametrize(
    ("rates", "error", "words"),
    [
        ({}, ValueError, "the number of metrics must be from 1 to 4, not 0"),
        (dict.fromkeys("abcde", "1/s"), ValueError, "the number of metrics must be from 1 to 4, not 5"),
        (dict.fromkeys("abc", "1/s; 1/min; 1/h"), ValueError, "the number of rates must be from 1 to 8, not 9"),
        ({"Tokens": "1/s"}, ValueError, "a-z, 0-9 and _, and no digit first; not 'Tokens'"),
        ({"2tokens": "1/s"}, ValueError, "no digit first"),
        ({"t" * 21: "1/s"}, ValueError, "1 to 20 characters"),
        ({"tokens\n": "1/s"}, ValueError, "1 to 20 characters"),
        ({1: "1/s"}, TypeError, "the name of a metric must be a str, not 1"),
        ({"tokens": {"x": "1/s"}}, TypeError, "rates with metrics stand alone"),
        ({"tokens": 5}, TypeError, "rates must be a text"),
        ({"tokens": "5"}, ValueError, "'5' is no rate"),
    ],
)
def test_bad_metrics_are_refused(rates, error, words):
    with pytest.raises(error, match=words):
        read_metrics(rates)
    with pytest.raises(error, match=words):
        Handfast("redis://127.0.0.1:1").limiter("a", rates)


def test_a_text_with_a_metric_is_refused_with_the_right_form():
    with pytest.raises(ValueError, match=r"write metrics as a mapping: \{'tokens': '200000/min'\}"):
        Handfast("redis://127.0.0.1:1").limiter("a", "tokens: 5/min")


def test_a_window_is_read_from_its_key():
    for window in (Window("", 60_000), Window("tokens", 1)):
        assert Window.read(str(window)) == window
    with pytest.raises(ValueError, match="is no window"):
        Window.read("tokens:soon")
