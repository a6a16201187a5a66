"""The limiter through both APIs, and over the connection that threads share.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import os
import random
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

from handfast import Handfast, LimiterStatus, QueueFull, RateLimited, RateStatus
from tests._support.apis import until_queued
from tests._support.family import scripts_run
from tests._support.helpers import eventually_async
from tests._support.limits import LimitScripts
from tests.gate.api import test_limiter as gate
from tests.gate.api.test_limiter import ACQUIRE, HISTORY, NEVER, SETTLE, history, wait

proxy = gate.proxy
far = gate.far

# --- forks and threads


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is just what is tested
def test_a_forked_child_uses_the_limiter_with_connections_of_its_own(hf, raw):
    limiter = hf.limiter("a", NEVER)
    assert limiter.try_acquire()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if not limiter.try_acquire() and limiter.keyed("child").acquire(timeout=5) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not limiter.try_acquire()
    assert not limiter.keyed("child").try_acquire()


def most_within(admissions, period_us):
    """Return the largest cost of a half-open interval of that length."""
    most, total, first = 0, 0, 0
    for at, cost in admissions:
        total += cost
        while admissions[first][0] <= at - period_us:
            total -= admissions[first][1]
            first += 1
        most = max(most, total)
    return most


async def test_no_interval_has_more_than_any_of_the_rates_admits(here, there, raw):
    chance = random.Random(1)
    costs = [chance.choice([1, 1, 1, 2, 5]) for _ in range(60)]
    rates = f"12/60ms; 25/200ms; {HISTORY}"
    limiters = [client.limiter("a", rates) for client in (here, there)]
    await asyncio.gather(*(limiters[n % 2].acquire(cost=cost, timeout=30) for n, cost in enumerate(costs)))
    admissions = history(raw)
    assert sorted(cost for _, cost in admissions) == sorted(costs)
    assert most_within(admissions, 60_000) <= 12
    assert most_within(admissions, 200_000) <= 25
    assert raw.exists("{hf:limiter:a}:queue") == 0


async def test_a_waiter_of_a_process_that_died_is_skipped(here, raw):
    dead = LimitScripts(raw, (1, 200), name="a")
    limiter = here.limiter("a", "1/200ms")
    await limiter.acquire()
    dead.acquire("gone", inbox="of no one")
    admission = await limiter.acquire(timeout=10)
    assert admission.waited >= 0.1
    assert "gone 1" not in dead.window()
    assert raw.exists("{hf:limiter:a}:queue") == 0


async def test_many_wait_with_few_calls(here, raw):
    """Each asks once to stand in the queue; those that come free at once are admitted by messages."""
    limiter = here.limiter("a", "20/200ms")
    await limiter.acquire(cost=20)
    before = scripts_run(raw)
    await asyncio.gather(*(limiter.acquire(timeout=30) for _ in range(40)))
    assert scripts_run(raw) - before <= 4 * 40


async def test_a_status_has_all_rates_and_the_waiters(here):
    limiter = here.limiter("a", "5/min; 2/100ms")
    assert await limiter.status() == LimiterStatus((RateStatus(2, 0.1, 0, 2, 0.0), RateStatus(5, 60.0, 0, 5, 0.0)), 0)
    await limiter.acquire(cost=2)
    _, rate = (await limiter.status()).rates
    assert (rate.used, rate.remaining) == (2, 3)
    assert 0 < rate.reset_after <= 60


async def test_the_timeout_of_the_object_holds_unless_the_call_has_one(here, raw):
    limiter = here.limiter("a", "1/300ms", timeout=0.001)
    await limiter.acquire()
    with pytest.raises(RateLimited):
        await limiter.acquire()
    assert await limiter.acquire(timeout=inf)


async def test_one_that_waited_too_long_leaves_nothing(here, there, raw):
    """A waiter before it has nothing to lose, and stays."""
    limiter = here.limiter("a", "10/500ms")
    await limiter.acquire(cost=10)
    scripts = LimitScripts(raw, (10, 500))
    first = asyncio.create_task(wait(there.limiter("a", "10/500ms"), cost=10, timeout=30))
    await until_queued(limiter)
    (token,) = scripts.queue()
    with pytest.raises(RateLimited) as limited:
        await limiter.acquire(timeout=0.6)
    assert 0 < limited.value.retry_after < 10
    assert await first
    assert [*scripts.window()] in ([f"{token} 10"], [])
    assert raw.exists("{hf:limiter:a}:queue") == 0


async def test_a_full_queue_takes_no_one_else(here, raw):
    limiter = here.limiter("a", "1/500ms", max_waiters=1)
    await limiter.acquire()
    waiter = asyncio.create_task(wait(limiter, timeout=30))
    await until_queued(limiter)
    with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
        await limiter.acquire()
    assert await waiter


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_a_lost_cancel_leaves_no_waiter(far, here, proxy, raw, what):
    limiter = here.limiter("a", "10/400ms")
    await limiter.acquire(cost=10)
    waiter = asyncio.create_task(wait(limiter, cost=10, timeout=30))
    await until_queued(limiter)
    fault = getattr(proxy, what)(SETTLE)
    with pytest.raises(RateLimited):
        await far.limiter("a", "10/400ms").acquire(timeout=0.5)
    assert fault.spent
    assert await waiter
    assert raw.exists("{hf:limiter:a}:queue") == 0


async def test_a_waiter_whose_connection_is_cut_keeps_its_place(far, here, proxy, raw):
    limiter = here.limiter("a", ["10/500ms", HISTORY])
    await limiter.acquire(cost=10)
    waiter = asyncio.create_task(wait(far.limiter("a", ["10/500ms", HISTORY]), cost=7, timeout=30))
    await until_queued(limiter)
    for _ in range(3):
        seen = len(proxy.commands)
        proxy.cut()
        await eventually_async(lambda seen=seen: any(map(ACQUIRE, proxy.commands[seen:])))
    second = asyncio.create_task(wait(limiter, cost=4, timeout=30))
    await asyncio.gather(waiter, second)
    assert [cost for _, cost in history(raw)] == [10, 7, 4]


def test_many_threads_share_one_limiter(server, raw):
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(12) as threads:
        limiter = hf.limiter("a", ["20/100ms", HISTORY])
        done = [threads.submit(limiter.acquire, cost=1 + number % 3, timeout=30) for number in range(60)]
        assert all(one.result(40) for one in done)
    assert len(history(raw)) == 60
    assert most_within(history(raw), 100_000) <= 20
