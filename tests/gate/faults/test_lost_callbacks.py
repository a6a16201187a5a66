"""Lost-callbacks: whatever one does, the renewals, the other callbacks and the replies go on."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from handfast import AsyncHandfast
from handfast._protocol.loss import revoked
from tests._support.family import until_listening
from tests._support.helpers import eventually, eventually_async, forever

pytestmark = pytest.mark.usefixtures("short_ticks")


async def test_a_callback_that_comes_after_the_loss_is_called_at_once(here, raw):
    lease = await here.lock("a").acquire()
    raw.flushall()
    assert await lease.release() is False
    called = []
    lease.add_lost_callback(lambda: called.append(1))
    assert await eventually_async(lambda: called) == [1]


async def test_a_callback_is_called_in_the_context_in_which_it_was_given(here, there, raw):
    request, seen = ContextVar("request"), []
    lease = await here.lock("a").acquire()
    request.set("first")
    lease.add_lost_callback(lambda: seen.append(request.get("none")))
    request.set("second")
    await until_listening(raw)
    assert await there.lock("a").force_release() == 1
    assert await eventually_async(lambda: seen) == ["first"]
    assert await lease.release() is False


# --- only of the sync API: they have a thread of their own


def test_callbacks_are_called_in_order_by_one_thread_that_ends_with_them(hf, other):
    callers, gate = [], threading.Event()
    leases = [hf.lock(f"n{number}").acquire() for number in range(20)]
    for number, lease in enumerate(leases):
        for _ in range(2):
            lease.add_lost_callback(
                lambda number=number: (gate.wait(10), callers.append((number, threading.current_thread())))
            )
    for lease in leases:
        hf._driver._here.renewer.lose(lease._state, revoked("a test took it"))
    gate.set()
    eventually(lambda: len(callers) == 40)
    assert [number for number, _ in callers] == [number for number in range(20) for _ in range(2)]
    (thread,) = {thread for _, thread in callers}
    thread.join(10)
    assert not thread.is_alive()
    leases[0].add_lost_callback(lambda: callers.append((20, threading.current_thread())))
    assert eventually(lambda: callers[40:])[0][0] == 20
    del leases[:], lease


def test_a_callback_that_is_added_while_the_thread_ends_is_called(hf):
    """Many short bursts: each meets the thread in another state."""
    called, callbacks = [], hf._driver.callbacks
    for number in range(2000):
        callbacks.call(lambda number=number: called.append(number), "a")
    eventually(lambda: len(called) == 2000)
    assert called == sorted(called)


# --- only of the asyncio API: they are called by the event loop


def test_an_interrupt_in_a_callback_does_not_delay_the_replies_that_came_with_the_revocation(server, raw):
    requests = []

    def interrupt():
        raise KeyboardInterrupt

    async def lose():
        lease = await hf.lock("a").acquire()
        lease.add_lost_callback(interrupt)
        session = hf._driver._contexts[asyncio.get_running_loop()].session
        take = session.on_frames

        def take_a_revocation_first(frames):
            session.on_told(lease._state.token, "deploy")
            take(frames)

        session.on_frames = take_a_revocation_first
        requests.append(session.send(lease._state.request.renew_for(lease._state.token, 1000)))
        await forever()

    async def answered():
        await asyncio.wait(requests)
        return hf._driver._contexts[asyncio.get_running_loop()].session.breaks

    with asyncio.Runner() as runner:
        hf = AsyncHandfast(server.url)
        with pytest.raises(KeyboardInterrupt):
            runner.run(lose())
        assert runner.run(answered()) == 0
        runner.run(hf.close())
