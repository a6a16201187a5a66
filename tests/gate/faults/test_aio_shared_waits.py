"""Tasks that ask `once` for the same result take turns: few ask the server, all have an answer, and none an old one."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from handfast import AcquireTimeout, AsyncHandfast, HandfastError, QueueFull, WouldDeadlock
from handfast._drivers.aio.shared_waits import SharedWaits
from handfast._drivers.clock import monotonic
from handfast.testing import FaultProxy, script
from tests._support.cancelling import context_of
from tests._support.helpers import eventually_async

MANY = 200
ASKED = script("once_acquire")


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def hf(proxy, raw):
    async with AsyncHandfast(proxy.url, retry_for=0) as client:
        yield client


class Work:
    """What is to be done once. It lasts until ``go`` is set; the first runs fail, as many as ``failures``."""

    def __init__(self, failures=0):
        self.go = asyncio.Event()
        self.runs = 0
        self.failures = failures

    async def __call__(self):
        self.runs += 1
        await self.go.wait()
        if self.runs <= self.failures:
            raise OSError("not yet")
        return self.runs


def start(once, work, count=MANY, **options):
    return [asyncio.create_task(once.run(work, **options)) for _ in range(count)]


async def until_waiting(once, waiting=1):
    async def are_waiting():
        return (await once.status()).waiting == waiting

    await eventually_async(are_waiting)


async def test_few_ask_and_all_have_the_result(hf, proxy):
    once, work = hf.once("a"), Work()
    tasks = start(once, work)
    await until_waiting(once)
    work.go.set()
    assert set(await asyncio.gather(*tasks)) == {1}
    asked = sum(map(ASKED, proxy.commands))
    assert asked <= 8, "one ran; one waited, was woken and asked; one asked for all others; a slow one polls"
    assert not context_of(hf).waits._turns


async def test_after_a_failure_another_one_of_them_runs(hf):
    once, work = hf.once("a"), Work(failures=2)
    tasks = start(once, work, 20)
    await until_waiting(once)
    work.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(map(str, results)) == sorted(["not yet"] * 2 + ["3"] * 18)
    assert (await once.status()).held_by is None


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_one_that_is_cancelled_leaves_the_others(hf, which):
    once, work = hf.once("a"), Work()
    tasks = start(once, work, 10)
    await until_waiting(once)
    tasks[which].cancel()
    await asyncio.wait(tasks[which : which + 1])
    work.go.set()
    others = [task for task in tasks if task is not tasks[which]]
    assert set(await asyncio.gather(*others)) == {2 if which == 0 else 1}
    assert (await once.status()).waiting == 0
    assert not context_of(hf).waits._turns


async def test_time_is_over_for_each_by_itself(hf):
    once, work = hf.once("a"), Work()
    (runner,) = start(once, work, 1)
    await eventually_async(lambda: work.runs)
    short = start(once, work, 5, timeout=0.05)
    long = start(once, work, 5, timeout=30)
    errors = await asyncio.gather(*short, return_exceptions=True)
    assert {type(error) for error in errors} == {AcquireTimeout}
    assert all(error.status.holders for error in errors)
    work.go.set()
    assert set(await asyncio.gather(runner, *long)) == {1}


async def test_an_answer_is_for_those_who_came_before_its_turn_began():
    waits, asked, answers = SharedWaits(), [], [asyncio.Event() for _ in range(3)]

    async def ask():
        number = len(asked)
        asked.append(number)
        await answers[number].wait()
        raise QueueFull("a", number)

    def come():
        return asyncio.create_task(waits.ask("a", monotonic(), inf, lambda: None, ask))

    tasks = [come()]
    await eventually_async(lambda: len(asked) == 1)
    tasks += [come(), come()]  # while the first one's answer is on its way
    await asyncio.sleep(0)
    answers[0].set()
    await eventually_async(lambda: len(asked) == 2)
    answers[1].set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [error.waiting for error in errors] == [0, 1, 1]


@pytest.mark.parametrize("error", [HandfastError("an operator has ended this request"), AcquireTimeout("a", 1.0)])
async def test_what_is_the_callers_own_is_an_answer_for_no_other(error):
    waits, asked = SharedWaits(), []

    async def ask():
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) < 3:
            raise error
        return "granted"

    tasks = [asyncio.create_task(waits.ask("a", monotonic(), inf, lambda: None, ask)) for _ in range(3)]
    assert await asyncio.gather(*tasks, return_exceptions=True) == [error, error, "granted"]


async def test_a_run_that_waits_for_its_own_result_would_deadlock_also_in_turns(hf):
    once, work = hf.once("a"), Work()
    async with once as run:
        (waiter,) = start(once, work, 1)
        await until_waiting(once)
        with pytest.raises(WouldDeadlock):
            await once.run(work)
        await run.finish("mine")
    assert await waiter == "mine"
