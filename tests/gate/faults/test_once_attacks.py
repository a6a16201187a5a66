"""Runs of a key that lose their lease, are cut short or fail in odd ways: what is recorded of them, and what the others get."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import handfast
from handfast import AsyncHandfast, KeyReused, LeaseLost, NotCompleted
from handfast.testing import cancel_everywhere, interrupt_everywhere
from tests._support.apis import ASYNCIO
from tests._support.helpers import eventually, eventually_async

OURS = Path(handfast.__file__).parent

KEEP_S = 60.0
SUSPENDED_S = 31.0
"""Longer than the ttl: the lease is lost by the local clock, and the server, whose clock has not moved, still has
it."""


async def until_idle(once):
    """Wait until no one runs it. Return the status then."""

    async def is_idle():
        status = await once.status()
        return status.held_by is None and status

    return await eventually_async(is_idle)


# A run that was lost by the local clock, and whose lease the server still has


@pytest.mark.parametrize("how", ["to its end", "with an error"])
async def test_a_block_that_was_lost_records_nothing(suspend, here, how):
    once = here.once("a", keep_failure=KEEP_S)
    with pytest.raises(LeaseLost):
        async with once as run:
            suspend(SUSPENDED_S)
            if how == "with an error":
                run.check()
    assert (await until_idle(once)).state == "idle"


async def test_a_run_that_was_lost_while_its_result_was_encoded_is_not_recorded(suspend, here):
    def dumps(value):
        suspend(SUSPENDED_S)
        return value

    run = await here.once("a", dumps=dumps, loads=bytes).acquire()
    with pytest.raises(LeaseLost):
        await run.finish(b"late")
    assert not run.done
    assert (await until_idle(here.once("a"))).state == "idle"


async def test_a_block_that_a_loss_has_cut_off_is_run_again(suspend, server, raw):
    """Of asyncio: in a thread the block runs to its end."""
    async with AsyncHandfast(server.url) as client:
        once = client.once("a")
        with pytest.raises(LeaseLost):
            async with once:
                suspend(SUSPENDED_S)
                await asyncio.Event().wait()
        await until_idle(once)
        assert await once.run(ASYNCIO.function(lambda: "whole")) == "whole"


# Runs that are not repeated


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
async def test_what_was_begun_has_the_fingerprint_of_its_call(here, there, verb):
    once = here.once("a", rerun=False)
    run = await getattr(once, verb)(fingerprint="one")
    with pytest.raises(KeyReused):
        await there.once("a").try_acquire(fingerprint="another")
    assert await there.once("a").try_acquire(fingerprint="one") is None
    await run.finish()


async def test_a_cancelled_block_that_did_not_begin_may_run_again(server, raw):
    """Its beginning was recorded before the block began."""
    states = set()
    async with AsyncHandfast(server.url) as mine, AsyncHandfast(server.url) as other:
        once, seen = mine.once("a", rerun=False), other.once("a")

        async def use():
            entered.clear()
            async with once as run:
                entered.append(True)
                await run.finish("made")

        entered = []
        await use()
        await seen.forget()
        async for run in cancel_everywhere(use, twice=True):
            assert run.how != "failed", run
            status = await until_idle(seen)
            assert status.state == ("done" if entered else "idle"), run
            states.add(status.state)
            await seen.forget()
    assert states == {"done", "idle"}


def test_an_interrupted_block_that_did_not_begin_may_run_again(hf, other):
    entered, states = [], set()
    once, seen = hf.once("a", rerun=False), other.once("a")

    def use():
        with once as run:
            entered.append(run)  # its finalizer is no place for an interrupt
            run.finish("made")

    use()
    entered.clear()
    seen.forget()
    for run in interrupt_everywhere(use, within=OURS, every=3):
        assert run.how != "failed", run
        eventually(lambda: seen.status().held_by is None)
        status = seen.status()
        assert status.state in (("begun", "done") if entered else ("idle",)), run
        states.add(status.state)
        entered.clear()
        seen.forget()
    assert states >= {"done", "idle"}


def test_what_is_not_repeated_is_not_refreshed(hf):
    """The beginning of a refresh would take the place of the old result, and so would its failure."""
    with pytest.raises(ValueError, match="refresh"):
        hf.once("a", refresh=1.0, rerun=False)


# Results and errors that are odd


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("has no text")


async def test_an_exception_without_a_text_counts_like_any_other(here):
    once = here.once("a", keep_failure=KEEP_S)
    with pytest.raises(Unspeakable):
        async with once:
            raise Unspeakable
    with pytest.raises(NotCompleted, match="Unspeakable"):
        await once.try_acquire()


async def test_a_result_that_cannot_be_stored_with_an_error_without_a_text_was_done(here):
    def dumps(_value):
        raise Unspeakable

    once = here.once("a", dumps=dumps, loads=bytes)
    run = await once.acquire()
    with pytest.raises(Unspeakable):
        await run.finish(1)
    assert (await once.status()).state == "unstored"


@pytest.mark.parametrize("value", [3, None, "text", [1, 2]])
async def test_bytes_store_nothing_but_bytes(here, value):
    once = here.once("a", dumps=bytes)
    run = await once.acquire()
    with pytest.raises(TypeError, match="must be bytes"):
        await run.finish(value)
    assert (await once.status()).state == "unstored"


async def test_an_error_tells_nothing_of_how_a_record_was_found(here):
    once = here.once("a", keep_failure=KEEP_S)
    with pytest.raises(ValueError, match="first"):
        async with once:
            raise ValueError("first")
    with pytest.raises(NotCompleted) as raised:
        await once.acquire()
    assert raised.value.__context__ is None


async def test_a_run_that_is_done_can_be_entered(here):
    async with here.once("a") as run:
        await run.finish("made")
    run = await here.once("a").acquire()
    async with run as entered:
        assert (entered.done, entered.result) == (True, "made")
    async with here.once("a").acquire() as entered:
        assert entered.result == "made"
    assert (run.done, run.result) == (True, "made")
