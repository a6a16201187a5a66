"""The one session of a loop against a server that is played by the test: orders, pieces, silence and strangers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from functools import partial

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast import ServerRefused, ServerUnsupported
from handfast._drivers.aio.pending import PendingCall
from handfast._drivers.aio.session import BATCH, Session
from handfast._drivers.aio.transport import FrameTransport
from handfast._drivers.clock import monotonic
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import GrantMessage, Park
from handfast._engine.keys import KeySet
from handfast._engine.messages import Subscription
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import INCOMPLETE, ErrorReply, Reader, bulk
from handfast._engine.script import load
from tests._support.connector import ScriptedConnector
from tests._support.helpers import eventually_async

TOKEN = b"t" * 32

PERMITS = PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1000))
CONFIRM = PermitRequest(PERMITS.place, LeaseOptions(30_000)).confirm(TOKEN)

LOCKS = [PermitRequest(KeySet("hf", "lock", name), LeaseOptions(1000)) for name in "bc"]

QUEUED = b"*4\r\n$6\r\nqueued\r\n:1000\r\n:0\r\n:5000\r\n"

NOSCRIPT = b"-NOSCRIPT No matching script.\r\n"

SUBSCRIBED = b">3\r\n" + bulk("subscribe") + bulk("inbox") + b":1\r\n"

COUNTED = b"*2\r\n" + bulk("inbox") + b":1\r\n"

RESP2 = b"*3\r\n" + bulk("subscribe") + bulk("inbox") + b":1\r\n"
"""How a subscription is confirmed where HELLO 3 had no effect."""


def push(message):
    return b">3\r\n" + bulk("message") + bulk(b"inbox") + bulk(message)


GRANTED = push(b"granted " + TOKEN + b" " + doubles(7, 2000, 3000))

OLDER = push(b"granted " + TOKEN + b" " + doubles(6, 9000, 3000))

REVOKED = push(b"revoked " + TOKEN + b" too slow")


def number(value):
    return b"*2\r\n$6\r\nnumber\r\n:%d\r\n" % value


def call(value=0):
    """A script about a token of its own."""
    return PERMITS.release(b"%032d" % value)


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader, writer):
        self.writer = writer
        self._stream = reader
        self._reader = Reader()
        self.heard = []

    def say(self, *pieces):
        self.writer.write(b"".join(pieces))

    async def hear(self, count=1):
        """The next commands."""
        while len(self.heard) < count:
            data = await asyncio.wait_for(self._stream.read(2**20), 10)
            assert data, "the client hung up"
            self._reader.feed(data)
            self.heard += iter(self._reader.frame, INCOMPLETE)
        commands, self.heard = self.heard[:count], self.heard[count:]
        return commands

    async def hangs_up(self):
        """Whether the client closes the connection."""
        while await asyncio.wait_for(self._stream.read(2**16), 10):
            pass
        return True

    async def greet(self):
        subscribe, count = await self.hear(2)
        assert subscribe == [b"SUBSCRIBE", b"inbox"]
        assert count == [b"PUBSUB", b"NUMSUB", b"inbox"]
        self.say(SUBSCRIBED, COUNTED)


class Stage:
    """A session, and each connection that it makes."""

    def __init__(self):
        self.connector = ScriptedConnector(self.connect)
        self.peers = asyncio.Queue()
        self.all = []
        self.count = 0
        self.handshake_timeout = 5.0
        self.refuse = None
        self.revoked, self.gaps = [], []
        self.session = Session(self.connector, partial(Subscription, ("inbox",), "inbox control label"), 3.0)
        self.session.on_told = self.on_told
        self.session.on_break = lambda _: self.gaps.append(True)

    def on_told(self, token, reason):
        self.revoked.append((token, reason))
        self.session.inbox.note_told(token, reason)

    async def connect(self):
        if self.refuse is not None:
            raise self.refuse
        self._time_out_after(self.handshake_timeout)
        ours, theirs = socket.socketpair()
        self.count += 1
        try:
            peer = Peer(*await asyncio.open_connection(sock=theirs))
            self.all.append(peer)
            self.peers.put_nowait(peer)
            return (await asyncio.open_connection(sock=ours))[1]
        except asyncio.CancelledError:  # nothing else closes what no connection was made of yet
            ours.close()
            theirs.close()
            raise

    def _time_out_after(self, seconds):
        self.connector.response_timeout = self.session._silence._timeout = seconds

    async def meet(self):
        """The next connection, after its handshake."""
        peer = await asyncio.wait_for(self.peers.get(), 10)
        await peer.greet()
        return peer

    async def open(self, response_timeout=5.0):
        """The first connection, and after how many seconds without a word it is given up."""
        first = self.session.send(call())
        peer = await self.meet()
        self._time_out_after(response_timeout)
        await peer.hear()
        peer.say(number(0))
        await first
        return peer

    async def introduce(self, peer, one):
        """Let the session find that the server knows a script."""
        future = self.session.send(one)
        await peer.hear()
        peer.say(number(0))
        await future


@contextlib.asynccontextmanager
async def played():
    stage = Stage()
    try:
        yield stage
    finally:
        stage.session.end(RedisConnectionError("the test is over"))
        for peer in stage.all:
            peer.writer.transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
    assert stage.session._connection.opening is None


@pytest.fixture
async def stage():
    async with played() as stage:
        yield stage


def send(stage, *values):
    return [stage.session.send(call(value)) for value in values]


async def replies(futures):
    """What the futures get, as the numbers that the server said."""
    return [answer.reply[1] for answer in await asyncio.wait_for(asyncio.gather(*futures), 10)]


# --- orders


async def test_replies_reach_their_requests_though_one_in_between_was_cancelled(stage):
    peer = await stage.open()
    futures = send(stage, *range(5))
    await peer.hear(5)
    futures[1].cancel()
    futures[3].cancel()
    peer.say(*map(number, range(5)))
    assert await replies(futures[::2]) == [0, 2, 4]
    assert futures[1].cancelled()
    assert futures[3].cancelled()
    assert stage.session.is_idle
    assert stage.count == 1


async def test_a_request_withdrawn_before_it_is_sent_is_never_sent(stage):
    peer = await stage.open()
    futures = send(stage, *range(4))  # the first one leaves at once
    futures[1].cancel()
    futures[3].cancel()
    commands = await peer.hear(2)
    assert [int(command[-1]) for command in commands] == [0, 2]
    peer.say(number(0), number(2))
    assert await replies(futures[::2]) == [0, 2]
    assert stage.session.is_idle


async def test_a_request_that_is_withdrawn_while_connecting_is_forgotten(stage):
    (future,) = send(stage, 1)
    await asyncio.sleep(0)
    future.cancel()
    peer = await stage.meet()
    await eventually_async(lambda: stage.session.is_open)
    await eventually_async(lambda: stage.session.is_idle, within=2)
    (future,) = send(stage, 2)
    ((*_, token),) = await peer.hear()
    assert int(token) == 2
    peer.say(number(2))
    assert await replies([future]) == [2]


async def test_the_requests_of_one_turn_of_the_loop_leave_in_one_write(stage, monkeypatch):
    peer = await stage.open()
    writes, write = [], FrameTransport.write
    monkeypatch.setattr(FrameTransport, "write", lambda line, data: (writes.append(data), write(line, data)))
    futures = send(stage, *range(100))
    await peer.hear(100)
    assert len(writes) == 2, "the first one on a quiet connection, and the rest"
    futures += send(stage, *range(100, 200))
    await peer.hear(100)
    assert len(writes) == 3
    peer.say(*map(number, range(200)))
    assert await replies(futures) == list(range(200))
    futures = send(stage, *range(2 * BATCH + 2))
    await peer.hear(2 * BATCH + 2)
    assert len(writes) == 3 + 1 + 3
    peer.say(*map(number, range(2 * BATCH + 2)))
    assert await replies(futures) == list(range(2 * BATCH + 2))


async def test_replies_that_come_byte_by_byte_are_read(stage):
    peer = await stage.open()
    futures = send(stage, *range(3))
    await peer.hear(3)
    for byte in b"".join(map(number, range(3))):
        peer.say(bytes([byte]))
        await asyncio.sleep(0)
    assert await replies(futures) == [0, 1, 2]


async def test_error_replies_are_outcomes(stage):
    peer = await stage.open()
    futures = send(stage, 1, 2)
    await peer.hear(2)
    peer.say(b"-OOM no\r\n", number(2))
    assert await futures[0] == ErrorReply("OOM no")
    assert (await futures[1]).reply == [b"number", 2]


# --- back-pressure


async def test_writing_pauses_while_the_server_does_not_read_and_nothing_is_lost(stage):
    peer = await stage.open()
    transport = stage.session._connection.transport._transport
    big = PERMITS.revoke(0, "x" * 2000)
    await stage.introduce(peer, big)
    futures, largest = [], 0
    for _ in range(60):
        futures += [stage.session.send(big) for _ in range(50)]
        await asyncio.sleep(0)
        largest = max(largest, transport.get_write_buffer_size())
    assert stage.session._connection.transport.paused
    assert largest < 64 * 1024 + BATCH * 3000, "one batch beyond what the transport takes by itself"
    assert len(stage.session._outbox) > 1000
    for future in futures[1::2]:
        future.cancel()
    unsent = sum(not request.future.done() for request in stage.session._outbox)
    sent = len(stage.session.exchange.due)
    commands = await peer.hear(sent + unsent)
    assert len(commands) < len(futures)
    assert all(command[-4] == b"x" * 2000 for command in commands)
    await eventually_async(lambda: not stage.session._outbox)
    assert not stage.session._connection.transport.paused
    peer.say(*map(number, range(sent + unsent)))
    answered = await replies(futures[::2])
    assert answered == sorted(set(answered))
    assert stage.session.is_idle
    assert stage.count == 1


# --- rings


@pytest.mark.parametrize("older", [OLDER, OLDER + REVOKED, REVOKED], ids=["rung", "rung and taken away", "taken away"])
async def test_a_message_that_came_before_the_reply_is_dropped(stage, older):
    """Its grant was over by then, whatever the time of it says: the server's clock may have jumped back meanwhile."""
    peer = await stage.open()
    inbox = stage.session.inbox
    inbox.register(TOKEN)
    for answer in (QUEUED, QUEUED, b"*3\r\n$7\r\ngranted\r\n:7\r\n:3000\r\n"):
        coming = stage.session.send(PERMITS.acquire(TOKEN))
        await peer.hear()
        peer.say(older + answer)
        await coming
        assert (await inbox.park(Park(TOKEN, monotonic() + 0.02))).grant is None
    assert inbox.unregister(TOKEN) is None


@pytest.mark.parametrize("parked", [False, True], ids=["about to wait", "waiting"])
async def test_a_grant_that_is_revoked_before_its_waiter_saw_it_is_reported(stage, parked):
    peer = await stage.open()
    inbox = stage.session.inbox
    inbox.register(TOKEN)
    coming = stage.session.send(PERMITS.acquire(TOKEN))
    await peer.hear()
    peer.say(QUEUED)
    await coming
    parking = inbox.park(Park(TOKEN, monotonic() + 30))
    if parked:
        parking = asyncio.create_task(parking)
        await asyncio.sleep(0)
    peer.say(GRANTED + REVOKED)
    await eventually_async(lambda: stage.revoked)
    assert (await asyncio.wait_for(parking, 10)).grant == GrantMessage(7, 2000, 3000)
    assert inbox.unregister(TOKEN) == "too slow"


async def test_each_of_many_waiters_gets_its_own_message(stage):
    peer = await stage.open()
    session, tokens = stage.session, [b"%032d" % value for value in range(50)]
    for token in tokens:
        session.inbox.register(token)
    parked = [asyncio.create_task(session.inbox.park(Park(token, monotonic() + 30))) for token in tokens]
    await asyncio.sleep(0)
    parked[7].cancel()
    for value in reversed(range(50)):
        peer.say(push(b"granted %032d " % value + doubles(value, 2000, 3000)))
    wakings = await asyncio.wait_for(asyncio.gather(*parked, return_exceptions=True), 10)
    for value, waking in enumerate(wakings):
        if value == 7:
            assert isinstance(waking, asyncio.CancelledError)
        else:
            assert waking.grant.fence == value


async def test_a_message_for_a_waiter_that_left_is_not_kept(stage):
    peer = await stage.open()
    stage.session.inbox.register(TOKEN)
    stage.session.inbox.unregister(TOKEN)
    peer.say(GRANTED, push(b"revoked abc so that we know"))
    await eventually_async(lambda: stage.revoked)
    assert stage.session.is_idle
    assert not stage.session.inbox._told


# --- scripts that the server does not know, or has forgotten


async def test_calls_of_a_script_that_is_new_wait_for_the_first_one(stage):
    peer = await stage.open()
    calls = [PERMITS.revoke(value, "") for value in range(3)]
    futures = [stage.session.send(one) for one in calls]
    others = send(stage, 3)
    commands = await peer.hear(2)
    assert [(command[0], command[1]) for command in commands] == [
        (b"EVALSHA", one.prefix.digest.encode()) for one in (calls[0], call())
    ]
    peer.say(NOSCRIPT, number(3))
    commands = await peer.hear(3)
    assert [command[0] for command in commands] == [b"EVAL", b"EVALSHA", b"EVALSHA"]
    assert [command[-5] for command in commands] == [b"0", b"1", b"2"]
    peer.say(*map(number, range(3)))
    assert await replies([*futures, *others]) == [0, 1, 2, 3]


async def test_the_first_call_of_a_new_script_may_be_withdrawn(stage):
    peer = await stage.open()
    withdrawn, *others = [stage.session.send(PERMITS.revoke(value, "")) for value in range(3)]
    await peer.hear()
    withdrawn.cancel()
    peer.say(NOSCRIPT)
    ((verb, *_),) = await peer.hear()
    assert verb == b"EVALSHA", "the next one is the first"
    peer.say(NOSCRIPT)
    assert [command[0] for command in await peer.hear(2)] == [b"EVAL", b"EVALSHA"]
    peer.say(number(1), number(2))
    assert await replies(others) == [1, 2]


async def test_a_refused_asking_keeps_no_other_call_of_the_script_back(stage):
    peer = await stage.open()
    asking = PendingCall(PERMITS.inspect(), asyncio.get_running_loop().create_future(), 0, None)
    asking.asking = True
    stage.session.adopt(asking)
    others = [stage.session.send(PERMITS.inspect()) for _ in range(2)]
    assert [command[0] for command in await peer.hear(2)] == [b"ASKING", b"EVALSHA"]
    peer.say(b"-NOPERM no asking\r\n", b"-MOVED 1 elsewhere:6379\r\n")
    assert await asking.future == ErrorReply("NOPERM no asking")
    await peer.hear(2)
    peer.say(number(1), number(2))
    assert await replies(others) == [1, 2]


async def test_the_source_of_a_forgotten_script_is_sent_once_for_many_calls(stage):
    peer = await stage.open()
    futures = send(stage, *range(200))
    await peer.hear(200)
    peer.say(NOSCRIPT * 200)
    commands = await peer.hear(200)
    assert [command[0] for command in commands] == [b"EVAL"] + [b"EVALSHA"] * 199
    assert commands[0][1] == load(call().prefix.name).source.encode()
    assert [int(command[-1]) for command in commands] == list(range(200))
    peer.say(*map(number, range(200)))
    assert await replies(futures) == list(range(200))


async def test_the_source_of_each_forgotten_script_is_sent(stage):
    peer = await stage.open()
    release, inspect = call(), PERMITS.inspect()
    await stage.introduce(peer, inspect)
    futures = [stage.session.send(one) for one in (release, inspect, release, inspect)]
    await peer.hear(4)
    peer.say(NOSCRIPT * 4)
    commands = await peer.hear(4)
    assert [command[0] for command in commands].count(b"EVAL") == 2
    assert {command[1] for command in commands if command[0] == b"EVAL"} == {
        load(release.prefix.name).source.encode(),
        load(inspect.prefix.name).source.encode(),
    }
    peer.say(*map(number, range(4)))
    assert sorted(await replies(futures)) == [0, 1, 2, 3]


async def test_the_source_of_a_script_that_is_forgotten_again_is_sent_again(stage):
    peer = await stage.open()
    for _ in range(3):
        (future,) = send(stage, 1)
        await peer.hear()
        peer.say(NOSCRIPT)
        ((verb, *_),) = await peer.hear()
        assert verb == b"EVAL"
        peer.say(number(1))
        assert await replies([future]) == [1]


async def test_the_source_is_not_sent_for_a_withdrawn_request(stage):
    peer = await stage.open()
    withdrawn, other = send(stage, 1, 2)
    await peer.hear(2)
    withdrawn.cancel()
    peer.say(NOSCRIPT * 2)
    ((verb, *_, token),) = await peer.hear()
    assert verb == b"EVAL"
    assert int(token) == 2
    peer.say(number(2))
    assert await replies([other]) == [2]
    assert stage.session.is_idle


async def parked(stage):
    """A waiter, and the server, which has been asked to confirm its grant early."""
    peer = await stage.open()
    stage.session.inbox.register(TOKEN)
    park = Park(TOKEN, monotonic() + 60, CONFIRM)
    waiter = asyncio.create_task(stage.session.park(park))
    ((verb, *_),) = await peer.hear()
    assert verb == b"EVAL"
    return waiter, peer


NO_SCRIPTS = (
    b"-NOPERM User app has no permissions to run the 'eval' command\r\n",
    b"-NOPERM this user has no permissions to run the 'eval' command or its subcommand\r\n",
    b"-ERR unknown command 'EVAL', with args beginning with: 'x'\r\n",
    b"-ERR unknown command `EVAL`, with args beginning with: `x`, \r\n",
)


@pytest.mark.parametrize("reply", [b"", number(1), b"-LOADING the server is loading\r\n", *NO_SCRIPTS])
async def test_a_grant_is_confirmed_with_the_source_unless_the_server_takes_none(stage, reply):
    waiter, peer = await parked(stage)
    peer.say(reply, GRANTED)
    ((verb, source, *_),) = await peer.hear()
    script = load("permit_confirm")
    assert (verb, source.decode()) == ((b"EVALSHA", script.digest) if reply in NO_SCRIPTS else (b"EVAL", script.source))
    assert (await waiter).grant == GrantMessage(7, 2000, 3000)


async def test_what_the_server_takes_is_tried_once(stage):
    waiter, peer = await parked(stage)
    peer.say(number(1), GRANTED)
    await peer.hear()
    await waiter
    stage.session.inbox.register(TOKEN)
    waiter = asyncio.create_task(stage.session.park(Park(TOKEN, monotonic() + 60, CONFIRM)))
    (asked,) = send(stage, 5)
    ((*_, token),) = await peer.hear()
    assert token == b"%032d" % 5
    peer.say(number(1), number(5))
    assert await replies([asked]) == [5]
    waiter.cancel()


async def test_a_confirmation_that_was_sent_early_is_not_sent_again_for_a_waiter_that_left(stage):
    waiter, peer = await parked(stage)
    waiter.cancel()
    await asyncio.wait((waiter,))
    (asked,) = send(stage, 5)
    await peer.hear()
    peer.writer.transport.abort()
    peer = await stage.meet()
    (command,) = await peer.hear()
    assert command[-1] == b"%032d" % 5, "the first one that is sent again"
    peer.say(number(5))
    assert await replies([asked]) == [5]


# --- batches that the server refuses


@pytest.mark.parametrize(
    ("refused", "may_have_run"),
    [
        ("READONLY You can't write against a read only replica.", False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("NOPERM User app has no permissions to run the 'evalsha' command", False),
        ("ERR Error running script: attempted to access a non local key in a cluster node", True),
        ("ERR user_script:7: anything else", True),
    ],
)
async def test_a_release_of_a_batch_that_was_refused_whole_has_not_run(stage, refused, may_have_run):
    """So the server that answers its next copy with `unknown` had lost the lease: to take it for released would be silent."""
    peer = await stage.open()
    busy, *others = send(stage, 9), *(stage.session.send(one.release(TOKEN)) for one in LOCKS)
    await peer.hear(2)
    peer.say(number(9), f"-{refused}\r\n".encode())
    assert len(await peer.hear(2)) == 2, "each goes alone"
    peer.say(number(1), number(2))
    answers = await asyncio.wait_for(asyncio.gather(*busy, *others), 10)
    assert [answer.again for answer in answers] == [False, may_have_run, may_have_run]


# --- connections that break


async def test_requests_without_a_reply_are_sent_again_in_order_unless_withdrawn(stage):
    peer = await stage.open()
    futures = send(stage, *range(6))
    await peer.hear(6)
    peer.say(number(0), number(1)[:5])
    assert await replies(futures[:1]) == [0]
    futures[2].cancel()
    stage.session._connection.transport.pause_writing()
    futures += send(stage, 6)
    peer.writer.close()
    peer = await stage.meet()
    commands = await peer.hear(5)
    assert [int(command[-1]) for command in commands] == [1, 3, 4, 5, 6]
    peer.say(*map(number, (1, 3, 4, 5, 6)))
    assert await replies([futures[1], *futures[3:]]) == [1, 3, 4, 5, 6]
    assert stage.count == 2
    assert stage.gaps == [True]


async def test_a_reply_without_a_request_breaks_the_connection(stage):
    peer = await stage.open()
    peer.say(number(9))
    assert await peer.hangs_up()
    assert not stage.session.is_open
    (future,) = send(stage, 1)
    peer = await stage.meet()
    await peer.hear()
    peer.say(number(1))
    assert await replies([future]) == [1]
    assert stage.count == 2


async def test_one_reply_too_many_breaks_the_connection_and_the_rest_is_sent_again(stage):
    peer = await stage.open()
    futures = send(stage, 1, 2)
    await peer.hear(2)
    peer.say(*map(number, (1, 2, 3)))
    assert await replies(futures) == [1, 2]
    assert await peer.hangs_up()


async def test_bytes_that_are_not_resp_break_the_connection_and_all_is_sent_again(stage, caplog):
    peer = await stage.open()
    (future,) = send(stage, 1)
    await peer.hear()
    with caplog.at_level(logging.CRITICAL, "asyncio"):  # the loop tells of it, as it should
        peer.say(b"?what\r\n")
        peer = await stage.meet()
    await peer.hear()
    peer.say(number(1))
    assert await replies([future]) == [1]


async def test_a_broken_connection_wakes_the_waiters_and_those_that_are_about_to_wait(stage):
    peer = await stage.open()
    session, late = stage.session, b"l" * 32
    session.inbox.register(TOKEN)
    session.inbox.register(late)
    parked = asyncio.create_task(session.inbox.park(Park(TOKEN, monotonic() + 30)))
    await asyncio.sleep(0)
    peer.writer.close()
    assert (await asyncio.wait_for(parked, 10)).grant is None
    assert (await asyncio.wait_for(session.inbox.park(Park(late, monotonic() + 30)), 10)).grant is None
    assert stage.gaps == [True]
    assert stage.count == 1, "no request needs a new connection"


async def test_a_handshake_that_breaks_is_retried(stage):
    (future,) = send(stage, 1)
    for _ in range(2):
        peer = await asyncio.wait_for(stage.peers.get(), 10)
        await peer.hear(2)
        peer.say(SUBSCRIBED)
        peer.writer.close()
    peer = await stage.meet()
    await peer.hear()
    peer.say(number(1))
    assert await replies([future]) == [1]
    assert stage.count == 3


async def test_the_retry_time_of_each_request_ends_on_its_own(stage):
    peer = await stage.open()
    stage.refuse = RedisConnectionError("not there")
    short = stage.session.send(call(1), 0.1)
    long = stage.session.send(call(2), 20)
    withdrawn = stage.session.send(call(3), 20)
    await peer.hear(3)
    withdrawn.cancel()
    peer.writer.close()
    with pytest.raises(RedisConnectionError, match="not there"):
        await asyncio.wait_for(short, 10)
    assert not long.done()
    stage.refuse = None
    peer = await stage.meet()
    await peer.hear()
    peer.say(number(2))
    assert await replies([long]) == [2]


async def test_a_server_that_was_never_reached_fails_all_at_once(stage):
    stage.refuse, stage.connector.reached = RedisConnectionError("not there"), False
    outcomes = await asyncio.wait_for(asyncio.gather(*send(stage, *range(5)), return_exceptions=True), 10)
    assert [type(outcome) for outcome in outcomes] == [RedisConnectionError] * 5
    assert len({id(outcome) for outcome in outcomes}) == 5, "each has a traceback of its own"
    assert stage.session.is_idle


async def test_an_error_that_retries_cannot_mend_fails_all_at_once(stage):
    stage.refuse = ValueError("the settings are wrong")
    outcomes = await asyncio.wait_for(asyncio.gather(*send(stage, 1, 2), return_exceptions=True), 10)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 2


# --- silence


async def test_a_silent_server_is_asked_again_on_a_new_connection(stage):
    peer = await stage.open(response_timeout=0.2)
    futures = send(stage, 1, 2)
    await peer.hear(2)
    second = await stage.meet()
    assert await peer.hangs_up()
    commands = await second.hear(2)
    assert [int(command[-1]) for command in commands] == [1, 2]
    second.say(number(1), number(2))
    assert await replies(futures) == [1, 2]
    assert stage.count == 2


async def test_a_server_that_stays_silent_fails_with_a_timeout(stage):
    peer = await stage.open(response_timeout=0.1)
    stage.handshake_timeout = 0.1
    future = stage.session.send(call(1), 0.15)
    await peer.hear()
    with pytest.raises(RedisTimeoutError):
        await asyncio.wait_for(future, 10)
    assert stage.session.is_idle


async def test_a_handshake_without_a_reply_is_a_timeout(stage):
    stage.handshake_timeout = 0.1
    future = stage.session.send(call(1), 0.05)
    peer = await asyncio.wait_for(stage.peers.get(), 10)
    with pytest.raises(RedisTimeoutError):
        await asyncio.wait_for(future, 10)
    assert await peer.hangs_up()


# --- a server that does not let us listen


async def test_a_refused_subscription_fails_all_requests_and_closes_the_connection(stage):
    futures = send(stage, 1, 2)
    peer = await asyncio.wait_for(stage.peers.get(), 10)
    await peer.hear(2)
    peer.say(b"-NOPERM no channels for you\r\n", COUNTED)
    outcomes = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 10)
    assert [type(outcome) for outcome in outcomes] == [ServerRefused] * 2
    assert "inbox" in str(outcomes[0])
    assert await peer.hangs_up()
    assert stage.session.is_idle


@pytest.mark.parametrize("reply", [b"*2\r\n" + bulk("inbox") + b":0\r\n", b"+PONG\r\n", RESP2])
async def test_a_connection_that_no_message_can_reach_fails_all_requests(stage, reply):
    futures = send(stage, 1, 2)
    peer = await asyncio.wait_for(stage.peers.get(), 10)
    await peer.hear(2)
    peer.say(SUBSCRIBED, reply)
    outcomes = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 10)
    assert [type(outcome) for outcome in outcomes] == [ServerUnsupported] * 2
    assert "PUBSUB NUMSUB" in str(outcomes[0])
    assert await peer.hangs_up()


async def test_a_subscription_that_is_refused_transiently_is_retried(stage):
    (future,) = send(stage, 1)
    peer = await asyncio.wait_for(stage.peers.get(), 10)
    await peer.hear(2)
    peer.say(b"-LOADING Redis is loading the dataset in memory\r\n")
    peer = await stage.meet()
    await peer.hear()
    peer.say(number(1))
    assert await replies([future]) == [1]
    assert stage.count == 2


# --- ends


async def test_an_end_with_an_error_fails_the_waiters_present_and_future(stage):
    peer = await stage.open()
    session = stage.session
    session.inbox.register(TOKEN)
    parked = asyncio.create_task(session.inbox.park(Park(TOKEN, monotonic() + 30)))
    (asked,) = send(stage, 1)
    await asyncio.sleep(0)
    session.end(RedisConnectionError("the end"))
    for waiting in (parked, asked):
        with pytest.raises(RedisConnectionError, match="the end"):
            await waiting
    with pytest.raises(RedisConnectionError):
        await session.send(call(2))
    assert await peer.hangs_up()
