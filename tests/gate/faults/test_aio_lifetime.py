"""Clients come and go, and so do loops: whatever ends first, it ends without a word and leaves nothing open.

What is to be silent runs as a program of its own, with every warning an error and asyncio's debug mode on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from handfast import AsyncHandfast, ClientClosed, HandfastError
from tests._support.cancelling import connections_since, context_of, newest, settled
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async

CYCLES = 50

CROWD = 500


def nothing_left(raw, names="ab"):
    return all(Engine(raw, name).holders() == Engine(raw, name).queue() == [] for name in names)


# --- closing


@pytest.fixture
async def mine(server, raw):
    client = AsyncHandfast(server.url)
    await client.lock("warm").locked()
    yield client
    await client.close()


@pytest.fixture
async def other(server, raw):
    async with AsyncHandfast(server.url) as client:
        yield client


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 50])
async def test_closing_fails_the_waiters_and_cancels_their_requests(mine, other, raw, turns):
    lease = await other.lock("a").acquire()
    waiters = [asyncio.create_task(mine.lock("a").acquire()) for _ in range(10)]
    waiters += [asyncio.create_task(mine.lock("a").acquire(timeout=30)) for _ in range(10)]
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns == 50:
        await eventually_async(lambda: len(Engine(raw).queue()) == 20)
    await mine.close()
    for outcome in await asyncio.gather(*waiters, return_exceptions=True):
        assert type(outcome) is ClientClosed
        assert outcome.name == "a"
    assert Engine(raw).queue() == []
    assert Engine(raw).holders() == [lease.token]
    assert await lease.release() is True
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_while_grants_arrive_loses_none(mine, other, raw):
    for turn in range(20):
        client = AsyncHandfast(mine._driver._connector)
        waiters = [asyncio.create_task(client.lock(f"n{number}").acquire()) for number in range(10)]
        for _ in range(turn):
            await asyncio.sleep(0)
        await client.close()
        for number, outcome in enumerate(await asyncio.gather(*waiters, return_exceptions=True)):
            holders = Engine(raw, f"n{number}").holders()
            if isinstance(outcome, HandfastError):
                assert holders == []
            else:
                assert holders == [outcome.token], "who has a lease has it"
                Engine(raw, f"n{number}").release(outcome.token)
                outcome._state.let_go(0.0)


async def test_a_closed_client_says_so(mine, raw):
    lock = mine.lock("a")
    lease = await lock.acquire()
    await mine.close()
    for ask in (lock.acquire, lock.try_acquire, lock.status, lock.locked, lock.force_release, lock.__aenter__):
        with pytest.raises(ClientClosed, match="this client was closed; 'with' opens it again"):
            await ask()
    with pytest.raises(ClientClosed, match="this client was closed; 'with' opens it again"):
        await lease.release()
    assert Engine(raw).holders() == [lease.token], "closing gives nothing up: it runs out"
    assert Engine(raw).release(lease.token) == ["released", 0]


async def test_a_client_may_be_closed_as_clients_of_other_libraries_are(server, raw):
    async with contextlib.aclosing(AsyncHandfast(server.url)) as client:
        await (await client.lock("a").acquire()).release()
    with pytest.raises(ClientClosed):
        await client.lock("a").acquire()


# --- growth


def open_files():
    """How many files this process has open, where the system tells."""
    listing = Path("/proc/self/fd")
    return sum(1 for _ in listing.iterdir()) if listing.exists() else 0


def test_loops_that_come_and_go_leave_no_files_or_contexts(server, raw):
    hf = AsyncHandfast(server.url)
    known = newest(raw)

    async def use():
        async with hf.lock("a"):
            pass

    asyncio.run(use())
    files = open_files()
    for _ in range(CYCLES):
        asyncio.run(use())
    assert len(hf._driver._contexts) <= 1
    assert open_files() <= files
    eventually(lambda: not connections_since(known, raw))


async def test_a_crowd_that_waits_has_one_connection(server, raw, other):
    lease = await other.lock("a").acquire()
    known = newest(raw)
    hf = AsyncHandfast(server.url)
    waiters = [asyncio.create_task(hf.lock("a").acquire()) for _ in range(CROWD)]
    await eventually_async(lambda: len(Engine(raw).queue()) == CROWD)
    assert len(connections_since(known, raw)) == 1
    for waiter in waiters[10:]:
        waiter.cancel()
    await asyncio.wait(waiters[10:])
    await lease.release()
    for waiter in waiters[:10]:
        assert await (await waiter).release() is True
    assert len(connections_since(known, raw)) == 1
    await settled(hf)
    assert not context_of(hf).session.inbox
    assert nothing_left(raw)
    await hf.close()


async def test_a_client_does_not_keep_records_of_released_leases(mine, raw):
    lock = mine.lock("a")

    def remembered():
        context = context_of(mine)
        session, renewer = context.session, context.renewer
        return [
            len(book)
            for book in (session.inbox, session.exchange.due, session._outbox, session.inbox._told, renewer.renewals)
        ] + [len(context.leases.all()), len(renewer._cleanups), len(lock._blocks)]

    for _ in range(20):
        async with lock:
            waiter = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.wait((waiter,))
    await settled(mine)
    assert remembered() == [0] * 8


async def test_tasks_are_numbered_as_they_come_and_leave_nothing_of_themselves(mine, other):
    async def number(name):
        async with mine.lock(name):
            first = (await other.lock(name).status()).holders[0].owner
        async with mine.lock(name):
            assert (await other.lock(name).status()).holders[0].owner == first
        return int(first.rpartition(".")[2])

    numbers = [await asyncio.create_task(number(f"n{turn}")) for turn in range(5)]
    await asyncio.sleep(0)  # the loop lets go of the last one
    gc.collect()
    assert numbers == [*range(numbers[0], numbers[0] + 5)]
    assert not mine._driver._tasks
