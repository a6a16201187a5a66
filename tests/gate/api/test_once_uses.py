"""What `once` is used for, through both APIs: idempotency keys, results for all who ask, results that are made anew, payments."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AlreadyRunning, KeyReused, LeaseLost, NotCompleted
from tests._support.apis import ASYNCIO
from tests._support.helpers import eventually_async

BOUND = 20.0
"""Seconds that a call waits at most."""


async def until_waiting(once, count=1):
    """Wait until that many wait for the one that runs."""

    async def is_so():
        return (await once.status()).waiting == count

    await eventually_async(is_so)


async def acquired(once):
    """Wait for a run: for a task of its own, which needs a coroutine."""
    return await once.acquire(timeout=BOUND)


async def found(once, **options):
    """Return what others have recorded."""
    run = await once.acquire(timeout=BOUND, **options)
    assert run.done
    return run.result


async def test_one_runs_and_all_others_get_its_result(here, there, api):
    ran, everyone = [], 2 if api is ASYNCIO else 19  # tasks of a client take turns

    async def ask(client):
        async with client.once("a", timeout=BOUND) as run:
            if not run.done:
                ran.append(run.fence)
                await until_waiting(here.once("a"), everyone)
                await run.finish({"fence": run.fence})
        return run.result

    answers = await asyncio.gather(*(ask((here, there)[number % 2]) for number in range(20)))
    assert answers == [{"fence": ran[0]}] * 20
    assert len(ran) == 1
    assert (await here.once("a").status()).state == "done"


async def test_a_run_that_fails_is_followed_by_that_of_the_first_waiter(here, there):
    once = here.once("a")
    with pytest.raises(ZeroDivisionError):
        async with once as failing:
            waiter = asyncio.create_task(acquired(there.once("a")))
            await until_waiting(once)
            raise ZeroDivisionError
    async with await waiter as run:
        assert not run.done
        assert run.fence > failing.fence
        await run.finish("second")
    assert await found(once) == "second"


async def test_a_key_is_bound_to_what_was_requested(here, there):
    charges = here.once("charge").keyed("k1")
    async with charges.acquire(fingerprint=b"10 euros") as run:
        await run.finish("charged")
    assert await found(there.once("charge").keyed("k1"), fingerprint=b"10 euros") == "charged"
    with pytest.raises(KeyReused, match=r"'charge\|k1'"):
        await charges.acquire(fingerprint=b"20 euros")
    async with here.once("charge").keyed("k2").acquire(fingerprint=b"20 euros") as another:
        assert not another.done


async def test_a_caller_that_does_not_wait_learns_who_runs_it(here, there):
    run = await here.once("a").acquire()
    with pytest.raises(AlreadyRunning) as caught:
        await there.once("a", on_running="raise").acquire()
    assert caught.value.holder.fence == run.fence
    assert await there.once("a").try_acquire() is None
    assert await run.release() is True


async def test_a_payment_that_began_is_not_repeated_until_it_is_forgotten(here, there, raw):
    payment = here.once("pay", rerun=False)
    run = await payment.acquire()
    await there.once("pay").force_release()
    await eventually_async(lambda: run.lost)
    assert (await payment.status()).state == "begun"
    with pytest.raises(NotCompleted) as caught:
        await there.once("pay", rerun=False).acquire()
    assert caught.value.state == "begun"
    assert await payment.forget() is True
    assert await payment.forget() is False
    async with payment as repeated:
        assert not repeated.done


async def test_a_run_that_was_taken_away_records_nothing(here, there):
    once = here.once("a")
    run = await once.acquire()
    assert await there.once("a").force_release() == 1
    await eventually_async(lambda: run.lost)
    with pytest.raises(LeaseLost):
        await run.finish("late")
    assert (await once.status()).state == "idle"


async def test_an_old_result_is_served_while_one_caller_makes_it_anew(here, there):
    old, young = here.once("a", keep=60, refresh=0.001), there.once("a", keep=60, refresh=0.001)
    async with old as run:
        await run.finish("old")
    refreshing = await eventually_async(lambda: next_run(old))
    assert await found(young) == "old"
    await refreshing.finish("new")
    assert await found(there.once("a")) == "new"


async def next_run(once):
    """Return a run that is to make a result anew, once it is old enough."""
    run = await once.try_acquire()
    return None if run.done else run
