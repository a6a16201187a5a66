"""What a Sentinel tells, frame by frame, and what is made of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from redis.exceptions import ResponseError

from handfast._drivers.primary_watch import News
from handfast._engine.resp import ErrorReply, Push
from handfast._engine.sentinel import address_in


def told(words, channel=b"+switch-master"):
    return Push([b"message", channel, words])


def connector_to(*primaries):
    return SimpleNamespace(service="orders", switches=0, primaries=set(primaries))


@pytest.mark.parametrize(
    ("frame", "address"),
    [
        (told(b"orders 10.0.0.1 6379 10.0.0.2 6380"), "10.0.0.2:6380"),
        (told(b"other 10.0.0.1 6379 10.0.0.2 6380"), None),
        (told(b"orders 10.0.0.1 6379"), None),
        (Push([b"subscribe", b"+switch-master", 1]), None),
        ([b"10.0.0.1", b"6379"], "10.0.0.1:6379"),
        ([b"10.0.0.1", 6379], None),
        (b"PONG", None),
    ],
)
def test_the_primary_is_named_by_messages_about_the_service_and_by_answers(frame, address):
    assert address_in(frame, "orders") == address


def test_a_message_and_another_answer_than_before_are_a_switch():
    connector = connector_to()
    news = News(connector)
    news.greet()
    assert not news.has_answered
    frames = {
        "the first answer": ([b"a", b"1"], False),
        "the same again": ([b"a", b"1"], False),
        "a message": (told(b"orders a 1 b 2"), True),
        "an answer that says so, too": ([b"b", b"2"], False),
        "a message about another service": (told(b"other b 2 c 3"), False),
        "another answer": ([b"a", b"1"], True),
        "the message that follows it": (told(b"orders b 2 a 1"), True),
    }
    assert {what: news.is_switch(frame) for what, (frame, _) in frames.items()} == {
        what: switch for what, (_, switch) in frames.items()
    }
    assert connector.switches == 3
    assert news.has_answered


@pytest.mark.parametrize(
    ("primaries", "switch"), [([], False), (["a:1"], False), (["b:2"], True), (["a:1", "b:2"], True)]
)
def test_the_first_answer_is_a_switch_if_a_connection_was_made_to_another_primary(primaries, switch):
    connector = connector_to(*primaries)
    news = News(connector)
    assert news.is_switch([b"a", b"1"]) is switch
    assert news.is_switch([b"a", b"1"]) is False
    assert connector.primaries == (set() if switch else set(primaries))


@pytest.mark.parametrize(("frame", "said"), [(ErrorReply("NOPERM no"), "NOPERM no"), (None, "does not know 'orders'")])
def test_a_sentinel_that_tells_nothing_is_left(frame, said):
    news = News(connector_to())
    with pytest.raises(ResponseError, match=said):
        news.is_switch(frame)


def test_that_no_sentinel_tells_anything_is_logged_once_with_all_reasons(caplog):
    news = News(connector_to())
    with caplog.at_level(logging.WARNING, "handfast.sentinel"):
        for _ in range(2):
            for reason in ("refused", "silent", "refused"):
                news.note_failure(OSError(reason))
            news.warn()
        assert [record.args for record in caplog.records] == [("orders", "refused; silent")]
        news.is_switch([b"a", b"1"])
        news.warn()
    assert len(caplog.records) == 2
