"""One session against a server that is played by the test: pieces, orders and strangers."""

from __future__ import annotations

import socket
from functools import partial
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast import ServerUnsupported
from handfast._drivers.clock import monotonic
from handfast._drivers.sync.session import Session
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Park
from handfast._engine.keys import KeySet
from handfast._engine.messages import Subscription
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import ErrorReply, bulk
from handfast._engine.script import load
from tests._support.connector import ScriptedConnector

TOKEN = b"t" * 32

QUEUED = b"*4\r\n$6\r\nqueued\r\n:1000\r\n:0\r\n:5000\r\n"

CALL = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1000)).acquire(TOKEN)


SUBSCRIBE = partial(Subscription, ("inbox",), "inbox control label")


def push(message, channel=b"inbox"):
    return b">3\r\n" + bulk("message") + bulk(channel) + bulk(message)


OPENED = b">3\r\n" + bulk("subscribe") + bulk("inbox") + b":1\r\n*2\r\n" + bulk("inbox") + b":1\r\n"
"""What the server replies to a session that opens."""

RESP2 = b"*3\r\n" + bulk("subscribe") + bulk("inbox") + b":1\r\n"
"""How a subscription is confirmed where HELLO 3 had no effect."""


@pytest.fixture
def stage():
    """A session, and the server's end of its socket."""
    ours, theirs = socket.socketpair()
    connection = SimpleNamespace(_sock=ours, disconnect=ours.close)
    connector = ScriptedConnector(lambda _: connection)
    revoked = []
    session = Session(connector, SUBSCRIBE, on_told=lambda *message: revoked.append(message))
    theirs.sendall(OPENED)
    session.open()
    theirs.recv(4096)
    yield session, theirs, revoked
    session.close()
    theirs.close()


def park(session, seconds=30.0):
    return session.park(Park(TOKEN, monotonic() + seconds)).grant


def test_a_reply_without_a_call_closes_the_connection(stage):
    session, server, _ = stage
    server.sendall(b"+OK\r\n")
    with pytest.raises(RedisConnectionError, match="a reply without a request: b'OK'"):
        session.listen()
    assert not session.is_open


def test_grants_that_no_caller_waits_for_do_not_pile_up(stage):
    session, server, _ = stage
    for _ in range(100):
        server.sendall(b"".join(push(b"granted %032d " % number + doubles(7, 2000, 3000)) for number in range(20)))
        session.listen()
    assert not session._grants


@pytest.mark.parametrize("replies", [0, 1])
def test_a_revocation_in_one_segment_with_a_reply_is_delivered_at_once(replies):
    """No poll of the socket would report it: the renewer would notice at the next renewal, ten seconds later by default."""
    ours, theirs = socket.socketpair()
    revoked = []
    connector = ScriptedConnector(lambda _: SimpleNamespace(_sock=ours, disconnect=ours.close))
    session = Session(connector, SUBSCRIBE, on_told=lambda *message: revoked.append(message))
    behind = push(b"revoked abc deploy")
    theirs.sendall(OPENED + (b"" if replies else behind))
    session.open()
    sent = session.send([CALL] * replies, sources=False, within=1)
    if replies:
        theirs.sendall(b"*2\r\n$7\r\nrenewed\r\n:1000\r\n" + behind)
    session.listen()
    assert [called.outcome.reply for called in sent] == [[b"renewed", 1000]] * replies
    assert revoked == [(b"abc", "deploy")]
    session.close()
    theirs.close()


@pytest.mark.parametrize("reply", [b"*2\r\n" + bulk("inbox") + b":0\r\n", b"+PONG\r\n", RESP2])
def test_a_connection_that_no_message_can_reach_is_closed(reply):
    ours, theirs = socket.socketpair()
    connector = ScriptedConnector(lambda _: SimpleNamespace(_sock=ours, disconnect=ours.close))
    session = Session(connector, SUBSCRIBE)
    theirs.sendall(reply)
    with pytest.raises(ServerUnsupported, match="PUBSUB NUMSUB"):
        session.open()
    assert not session.is_open
    theirs.close()


def test_a_message_for_another_waiter_is_not_taken(stage):
    session, server, _ = stage
    server.sendall(push(b"granted other " + doubles(7, 2000, 3000)))
    assert park(session, 0.05) is None


def test_a_connection_that_breaks_ends_a_wait_early(stage):
    session, server, _ = stage
    server.close()
    assert park(session) is None
    assert not session.is_open


def test_the_source_of_a_forgotten_script_is_sent(stage):
    session, server, _ = stage
    server.sendall(b"-NOSCRIPT No matching script.\r\n" + QUEUED)
    assert session.call(CALL, 5.0).reply[0] == b"queued"
    sent = b""
    while load(CALL.prefix.name).source.encode() not in sent:
        sent += server.recv(65536)
    assert sent.count(bulk("EVALSHA")) == 1
    assert sent.count(bulk("EVAL")) == 1


LARGE = CALL._replace(args=CALL.args + bytes(20_000_000), waiter=b"")
"""More than the system takes at once."""


def test_a_server_that_takes_no_bytes_is_found_silent(stage):
    session, _, _ = stage
    with pytest.raises(RedisTimeoutError):
        session.call(LARGE, 0.05)
    assert not session.is_open


def test_error_replies_are_returned_and_errors_of_the_network_raised(stage):
    session, server, _ = stage
    server.sendall(b"-OOM no\r\n")
    assert session.call(CALL, 5.0) == ErrorReply("OOM no")
    with pytest.raises(RedisTimeoutError):
        session.call(CALL, 0.05)
    assert not session.is_open


def test_a_reply_that_is_cut_short_is_an_error(stage):
    session, server, _ = stage
    server.sendall(QUEUED[:10])
    server.close()
    with pytest.raises(RedisConnectionError):
        session.call(CALL, 5.0)
