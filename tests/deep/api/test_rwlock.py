"""The read-write lock through both APIs, and with processes that are killed.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests._support.actor import Actors, family_user
from tests._support.family import Holders
from tests._support.helpers import eventually, kill_waiter
from tests.gate.api.test_rwlock import SIDES, engine_of, letters, nothing_left, shape, side_of


@pytest.fixture
def crew(server, raw):
    with Actors(family_user, server.url) as actors:
        yield lambda *ahead: actors.start(*((seconds,) for seconds in ahead))


# --- holding


async def test_readers_and_writers_never_overlap_and_fences_grow_with_every_grant(here, there, raw):
    chance, readers, writers, seen, fences = random.Random(3), [], [], set(), []

    async def work(client):
        for _ in range(8):
            side = chance.choice(("read", "read", "write"))
            async with side_of(client.rwlock("a"), side).acquire(timeout=20) as lease:
                inside = readers if side == "read" else writers
                inside.append(lease.fence)
                fences.append(lease.fence)
                assert not writers or (writers == [lease.fence] and not readers)
                await asyncio.sleep(0.0005)
                seen.add((len(readers) > 1, len(writers)))
                inside.remove(lease.fence)

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(work((here, there)[number % 2]))
    assert len(set(fences)) == 64
    assert {(True, 0), (False, 1)} <= seen, "readers overlapped, and writers acquired"
    assert nothing_left(raw)


# --- downgrading


async def test_no_writer_acquires_between_a_downgrade_and_the_release(here, there, raw):
    mine, yours = here.rwlock("a"), there.rwlock("a")
    lease = await mine.write().acquire()
    async with asyncio.TaskGroup() as tasks:
        holders = Holders(tasks, mine)
        await holders.queue("writer", yours.write())
        await holders.queue("reader", yours.read())
        await lease.downgrade()
        assert await shape(mine) == ("r", "wr"), "the reader stays behind the writer in the queue"
        assert engine_of(raw).holders() == [lease.token]
        await asyncio.sleep(0.02)
        assert holders.current == []
        assert await mine.read().try_acquire() is None
        assert await lease.release() is True
        await holders.become("writer")
        await holders.release("writer")
        await holders.become("reader")
        await holders.release("reader")
    assert holders.fences["writer"] < holders.fences["reader"]


# --- renewal and loss


async def test_read_write_and_downgraded_leases_are_renewed(here, there):
    sides = {"reader": "read", "writer": "write", "downgraded": "write"}
    leases = [await side_of(here.rwlock(name, ttl=0.3), side).acquire() for name, side in sides.items()]
    once = await here.rwlock("o", ttl=0.3, renew=False).write().acquire()
    await leases[2].downgrade()
    await once.downgrade()
    await asyncio.sleep(0.7)
    for lease in leases:
        lease.check()
        assert await there.rwlock(lease.name).write().try_acquire() is None
        assert await lease.release() is True
    assert once.lost
    assert await once.release() is False
    async with there.rwlock("o").write().acquire(timeout=5):
        pass


# --- processes


def test_a_killed_holder_blocks_others_for_its_ttl_and_no_longer(hf, crew, raw):
    *doomed, alive = crew(0, 0, 0)
    rwlock = hf.rwlock("a")
    for dead, kind in zip(doomed, SIDES, strict=True):
        fence = dead.ask("acquire", kind=kind, ttl=0.3)
        alive.tell("acquire", kind="write")
        eventually(lambda: rwlock.status().waiting == 1)
        dead.kill()
        assert all(holder.remaining <= 0.3 for holder in rwlock.status().holders)
        assert alive.answer() > fence
        assert alive.ask("release") is True
    assert nothing_left(raw)


def test_a_killed_waiting_writer_blocks_readers_only_until_the_next_request(hf, other, crew, raw):
    *doomed, alive = crew(0, 0, 0)
    rwlock = hf.rwlock("a")
    for dead in doomed:
        with rwlock.read() as held:
            for position, (actor, kind) in enumerate(((dead, "write"), (alive, "read")), 1):
                actor.tell("acquire", kind=kind)
                eventually(lambda position=position: rwlock.status().waiting == position)
            kill_waiter(dead, raw)
            if dead is doomed[0]:
                with other.rwlock("a").read():
                    status = rwlock.status()
                    assert (letters(status.holders), letters(status.waiters)) == ("rrr", "")
            assert alive.answer() > held.fence, "without another request, the waiter has polled"
            assert letters(rwlock.status().holders) == "rr"
            held.check()
            assert alive.ask("release") is True
    assert nothing_left(raw)
