"""The one session of a loop against a server that is played by the test: orders, pieces, silence and strangers.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.clock import monotonic
from handfast._engine.effects import Answer, GrantMessage, Park
from handfast._engine.packing import doubles
from tests.gate.faults import test_aio_session as gate
from tests.gate.faults.test_aio_session import (
    GRANTED,
    NOSCRIPT,
    OLDER,
    PERMITS,
    QUEUED,
    REVOKED,
    TOKEN,
    call,
    number,
    played,
    push,
    replies,
    send,
    test_a_reply_without_a_request_breaks_the_connection,
    test_a_silent_server_is_asked_again_on_a_new_connection,
    test_an_end_with_an_error_fails_the_waiters_present_and_future,
    test_replies_reach_their_requests_though_one_in_between_was_cancelled,
    test_replies_that_come_byte_by_byte_are_read,
    test_requests_without_a_reply_are_sent_again_in_order_unless_withdrawn,
    test_the_source_of_a_forgotten_script_is_sent_once_for_many_calls,
    test_writing_pauses_while_the_server_does_not_read_and_nothing_is_lost,
)

stage = gate.stage


# --- rings


@pytest.mark.parametrize(
    "pieces", [[QUEUED + GRANTED], [QUEUED, GRANTED], [OLDER + QUEUED + GRANTED], [OLDER + REVOKED, QUEUED, GRANTED]]
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_a_grant_message_is_read_in_any_pieces(stage, pieces, size):
    peer = await stage.open()
    session = stage.session
    session.inbox.register(TOKEN)
    coming = session.send(PERMITS.acquire(TOKEN))
    (command,) = await peer.hear()
    wants = doubles(1, 1, 1000, 0) + b"inbox control label ttl=1000"
    assert command[-1] == wants, "an acquire ends with what it wants, and the channels and the label of its client"

    async def play():
        for piece in pieces:
            for start in range(0, len(piece), size):
                peer.say(piece[start : start + size])
                await asyncio.sleep(0)
            await asyncio.sleep(0.005)

    playing = asyncio.create_task(play())
    assert (await coming).reply == [b"queued", 1000, 0, 5000]
    waking = await asyncio.wait_for(session.inbox.park(Park(TOKEN, monotonic() + 30)), 10)
    assert waking.grant == GrantMessage(7, 2000, 3000)
    await playing
    assert session.inbox.unregister(TOKEN) is None
    assert session.is_idle


# --- connections that break


async def test_a_server_that_hangs_up_on_every_script_is_asked_with_growing_pauses(stage):
    future = stage.session.send(call(), 0.5)
    while not future.done():
        with contextlib.suppress(TimeoutError):
            peer = await asyncio.wait_for(stage.peers.get(), 0.1)
            await peer.greet()
            await peer.hear()
            peer.writer.close()
    with pytest.raises(RedisConnectionError):
        await future
    assert 3 < stage.count < 12


# --- silence


async def test_a_server_that_sends_any_bytes_is_not_silent(stage):
    peer = await stage.open(response_timeout=0.1)
    (future,) = send(stage, 1)
    for _ in range(30):
        peer.say(push(b"hello"))
        await asyncio.sleep(0.01)
    peer.say(number(1))
    assert await replies([future]) == [1]
    assert stage.count == 1


async def test_a_quiet_connection_is_not_silent(stage):
    await stage.open(response_timeout=0.05)
    await asyncio.sleep(0.2)
    assert stage.session.is_open
    assert stage.count == 1


async def test_a_blocked_loop_does_not_count_as_a_silent_server(stage):
    peer = await stage.open(response_timeout=0.05)
    (future,) = send(stage, 1)
    await peer.hear()
    for _ in range(4):
        time.sleep(0.1)  # noqa: ASYNC251 -- a loop that is blocked is just what is tested
        for _ in range(2):
            await asyncio.sleep(0)
    peer.say(number(1))
    assert await replies([future]) == [1]
    assert stage.count == 1


# --- ends


async def test_an_end_while_connecting_leaves_no_task(stage):
    (asked,) = send(stage, 1)
    await asyncio.sleep(0.01)
    assert stage.session._connection.opening is not None
    stage.session.end(RedisConnectionError("the end"))
    with pytest.raises(RedisConnectionError, match="the end"):
        await asked
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert stage.session._connection.opening is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_end_while_connecting_leaves_no_connection_though_its_cancellation_is_swallowed(stage):
    """asyncio.wait_for does that before Python 3.12, where what it waits for is done at the same moment."""
    connect = stage.connect

    async def swallowing():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return await connect()

    stage.connector.connect = swallowing
    (asked,) = send(stage, 1)
    await asyncio.sleep(0.01)
    stage.session.end(RedisConnectionError("the end"))
    with pytest.raises(RedisConnectionError, match="the end"):
        await asked
    peer = await stage.peers.get()
    assert await asyncio.wait_for(peer._stream.read(1), 10) == b"", "no handshake was begun"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_has_the_moment_at_which_its_request_was_last_sent(stage):
    peer = await stage.open()
    before = monotonic()
    (future,) = send(stage, 1)
    await peer.hear()
    peer.writer.close()
    peer = await stage.meet()
    between = monotonic()
    await asyncio.sleep(0.01)
    await peer.hear()
    peer.say(NOSCRIPT)
    await peer.hear()
    after = monotonic()
    peer.say(number(1))
    answer = await future
    assert isinstance(answer, Answer)
    assert before < between < answer.sent_at < after


@pytest.mark.parametrize(
    "scenario",
    [
        test_replies_reach_their_requests_though_one_in_between_was_cancelled,
        test_replies_that_come_byte_by_byte_are_read,
        test_writing_pauses_while_the_server_does_not_read_and_nothing_is_lost,
        test_the_source_of_a_forgotten_script_is_sent_once_for_many_calls,
        test_requests_without_a_reply_are_sent_again_in_order_unless_withdrawn,
        test_a_reply_without_a_request_breaks_the_connection,
        test_a_silent_server_is_asked_again_on_a_new_connection,
        test_an_end_with_an_error_fails_the_waiters_present_and_future,
        test_an_end_while_connecting_leaves_no_task,
    ],
    ids=lambda scenario: scenario.__name__.removeprefix("test_"),
)
def test_on_uvloop(scenario):
    uvloop = pytest.importorskip("uvloop")

    async def play():
        async with played() as stage:
            await scenario(stage)
            return True

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(play())
