"""Cancellation: wherever it strikes, nothing is left behind; and it feels as it does with `asyncio.Lock`.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time

import pytest

from handfast import AsyncHandfast
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast.testing import ServerController
from tests._support.cancelling import (
    OPERATIONS,
    Scene,
    context_of,
    settled,
    try_at_random,
    try_every_point,
)
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, more
from tests._support.running import line_of
from tests.gate.faults import test_aio_cancel as gate
from tests.gate.faults.test_aio_cancel import is_free

scene = gate.scene
lock = gate.lock

ROUNDS = 300
"""Cancellations at random moments, for each seed; ``python -m tests._support.cancelling --rounds`` goes further."""

RACES = 60


def test_a_cancellation_at_any_suspension_on_uvloop(server, raw):
    uvloop = pytest.importorskip("uvloop")

    async def everything():
        async with Scene(server.url, raw) as scene:
            return [await try_every_point(scene, operation) for operation in OPERATIONS]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tallies = runner.run(everything())
    assert [tally.orphans for tally in tallies if tally.orphans] == []
    assert sum(tally.points for tally in tallies) > 100


@pytest.mark.parametrize("seed", [1, *more(2)])
async def test_cancellations_at_random_moments_leave_nothing_behind(scene, seed):
    tally = await try_at_random(scene, ROUNDS, seed)
    assert tally.orphans == []
    assert tally.points == ROUNDS


# --- timeouts that race with success


@pytest.mark.parametrize("way", ["wait_for", "timeout", "ours"])
async def test_a_timeout_that_races_with_the_grant_gives_a_lease_or_leaves_nothing(scene, way):
    async def acquire(seconds):
        lock = scene.lock
        if way == "ours":
            return await lock.acquire(timeout=seconds)
        if way == "wait_for":
            return await asyncio.wait_for(lock.acquire(), seconds)
        async with asyncio.timeout(seconds):
            return await lock.acquire()

    chance = random.Random(7)
    got, late = 0, 0
    for number in range(RACES):
        held = await scene.other.lock("a").acquire()
        seconds = (20, 0.001, chance.uniform(0.001, 0.003))[number % 3]
        waiter = asyncio.create_task(acquire(seconds))
        if number % 3 == 1:  # it cannot be had in time
            await asyncio.wait((waiter,))
        else:
            await asyncio.sleep(chance.uniform(0, 0.002))
        await held.release()
        try:
            lease = await waiter
        except TimeoutError:
            late += 1
        else:
            got += 1
            assert scene.engine.holders() == [lease.token]
            assert await lease.release() is True
        assert await scene.complaints() == []
    assert got >= RACES / 3
    assert late >= RACES / 3


# --- as with asyncio.Lock


async def block(lock, entered, seconds=60.0):
    async with lock:
        entered.append(asyncio.current_task())
        await asyncio.sleep(seconds)


async def waiting(lock, scene, count):
    """Wait until that many tasks are queued."""
    await asyncio.sleep(0)
    if not isinstance(lock, asyncio.Lock):
        await eventually_async(lambda: len(scene.engine.queue()) == count)


async def test_a_cancelled_waiter_is_cancelled_and_the_next_one_gets_in(lock, scene):
    entered = []
    tasks = [asyncio.create_task(block(lock, entered)) for _ in range(3)]
    await eventually_async(lambda: entered)
    await waiting(lock, scene, 2)
    assert tasks[1].cancel() is True
    await asyncio.wait((tasks[1],))
    assert tasks[1].cancelled()
    tasks[0].cancel()
    await eventually_async(lambda: len(entered) == 2)
    assert entered == [tasks[0], tasks[2]]
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert await is_free(lock)


async def test_a_waiter_that_is_cancelled_while_it_is_granted_passes_the_grant_on(lock, scene):
    entered = []
    for _ in range(20):
        tasks = [asyncio.create_task(block(lock, entered)) for _ in range(3)]
        await eventually_async(lambda tasks=tasks: tasks[0] in entered)
        await waiting(lock, scene, 2)
        tasks[0].cancel()
        await asyncio.wait((tasks[0],))
        tasks[1].cancel()  # its turn has come, and it may know that or not
        await eventually_async(lambda tasks=tasks: tasks[2] in entered)
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
    assert await is_free(lock)


async def test_a_task_that_is_cancelled_before_it_began_never_asks(lock, scene):
    entered = []
    task = asyncio.create_task(block(lock, entered))
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert entered == []
    assert await is_free(lock)


async def test_a_sibling_that_fails_ends_those_who_wait_and_those_who_hold(lock, scene):
    entered = []

    async def fail():
        await eventually_async(lambda: entered)
        await waiting(lock, scene, 2)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(block(lock, entered)) for _ in range(3)]
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    assert entered == [tasks[0]]
    assert all(task.cancelled() for task in tasks)
    assert await is_free(lock)


async def test_a_group_may_wait_for_locks_and_hand_them_on(lock, scene):
    entered = []
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(block(lock, entered, 0.001))
    assert len(entered) == 5
    assert await is_free(lock)


async def test_an_undo_that_is_cancelled_goes_on_and_is_not_begun_again():
    with ServerController() as server:
        async with AsyncHandfast(server.url) as client:
            await client.lock("a").status()
            driver, renewer = client._driver, context_of(client).renewer
            attempt = driver.attempt(PermitRequest(KeySet("hf", "lock", "a"), LeaseOptions(1000)))
            attempt.may_be_there = True
            server.pause()
            undo = asyncio.create_task(driver.undo(attempt))
            await eventually_async(lambda: renewer._cleanups)
            undo.cancel()
            with pytest.raises(asyncio.CancelledError):
                await undo
            await driver.undo(attempt)
            assert len(renewer._cleanups) == 1
            server.resume()
            await eventually_async(lambda: not attempt.may_be_there)


async def test_a_release_that_is_cancelled_is_finished_in_the_background(scene):
    lease = await scene.lock.acquire()
    context_of(scene.mine).session._connection.transport.pause_writing()  # so that it cannot be released at once
    task = asyncio.create_task(lease.release())
    for _ in range(2):  # the second time while it cleans up
        await asyncio.sleep(0.01)
        task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert scene.engine.holders() == [lease.token]
    context_of(scene.mine).session._connection.transport.resume_writing()
    await settled(scene.mine)
    assert scene.engine.holders() == []
    assert await lease.release() is True, "it was given up, and by this lease"


# --- an interrupt from the keyboard


INTERRUPTED = """
import asyncio, sys
from handfast import AsyncHandfast

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    hf = AsyncHandfast(sys.argv[2])
    locks = {name: hf.lock(name) if sys.argv[1] == "handfast" else asyncio.Lock() for name in "abc"}

    async def hold(name):
        async with locks[name]:
            await asyncio.sleep(60)

    async def wait(name):
        await locks[name].acquire()

    tasks = [asyncio.create_task(how(name)) for how, name in zip((hold, hold, wait, hold, wait), "abaab")]
    await asyncio.sleep(0.05)
    async with locks["c"]:
        print("ready", flush=True)
        await (asyncio.sleep(60) if sys.argv[3] == "holds" else locks["a"].acquire())

asyncio.run(main())
"""


def interrupt(server, raw, library, what):
    """How a program ends that is interrupted: its exit code, and what stands at the left edge of its stderr."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", INTERRUPTED, library, server.url, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert line_of(process) == "ready\n"
            if library == "handfast":
                line = 3 if what == "waits" else 2
                eventually(lambda: [len(Engine(raw, name).queue()) for name in "abc"] == [line, 1, 0])
                eventually(lambda: [len(Engine(raw, name).holders()) for name in "abc"] == [1, 1, 1])
            time.sleep(
                0.1
            )  # a signal right before an event loop falls asleep does not wake it: that is asyncio's affair
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    return process.returncode, [line for line in errors.splitlines() if not line.startswith(" ")]


@pytest.mark.parametrize("what", ["holds", "waits"])
def test_an_interrupt_from_the_keyboard_ends_a_program_as_with_asyncios_locks(server, raw, what):
    ended = interrupt(server, raw, "handfast", what)
    assert ended[1][-1] == "KeyboardInterrupt"
    assert ended == interrupt(server, raw, "asyncio", what)
    for name in "abc":
        assert Engine(raw, name).holders() == Engine(raw, name).queue() == []
