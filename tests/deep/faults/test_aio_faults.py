"""Replies lost, requests lost, connections cut, silent servers, forks: the asyncio API leaves nothing behind either.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import redis

from handfast import AcquireTimeout, AsyncHandfast, LeaseLost, ServerRefused
from handfast._drivers.aio.session import Session
from handfast._protocol.loss import EXPIRED
from handfast.embedded import PrivateServer
from tests._support.cancelling import connections_since, context_of, newest, session_of, settled
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, kill_waiter
from tests.gate.faults import test_aio_faults as gate
from tests.gate.faults.test_aio_faults import CALLS, CROWD, nothing_left

proxy = gate.proxy
near = gate.near
far = gate.far

STORM = 1.5
"""Seconds of everything at once."""


async def test_an_extension_that_is_answered_after_the_loss_was_found_says_that_it_is_lost(far, proxy):
    lease = await far.lock("a", renew=False).acquire()
    loop, context = asyncio.get_running_loop(), lease._state.owner

    def find(_):
        loop.call_soon_threadsafe(context.lose, lease._state, EXPIRED)
        time.sleep(0.05)

    found = proxy.before(CALLS["renew"], find, times=1)
    with pytest.raises(LeaseLost):
        await lease.extend(30)
    assert found.spent
    assert await lease.release() is False


async def test_a_server_that_forgets_its_scripts_with_a_crowd_in_flight_grants_each_once(near, raw):
    async def work(number):
        fences = []
        for _ in range(5):
            lease = await near.lock(f"n{number}").acquire(timeout=20)
            fences.append(lease.fence)
            assert Engine(raw, f"n{number}").holders() == [lease.token]
            assert await lease.release() is True
        return fences

    async def forget():
        while True:
            raw.script_flush()
            await asyncio.sleep(0.001)

    forgetting = asyncio.create_task(forget())
    for fences in await asyncio.gather(*map(work, range(CROWD))):
        assert fences == sorted(set(fences))
    forgetting.cancel()
    await asyncio.wait((forgetting,))
    for number in range(CROWD):
        engine = Engine(raw, f"n{number}")
        assert engine.holders() == engine.queue() == []


async def test_a_server_that_stays_away_fails_all_calls_after_the_retry_time(monkeypatch):
    monkeypatch.setattr(Session.send, "__defaults__", (0.3, None))
    with PrivateServer() as server:
        hf = AsyncHandfast(server.url)
        lease = await hf.lock("a", ttl=0.5).acquire()
        waiters = [asyncio.create_task(hf.lock("a").acquire()) for _ in range(3)]
        await eventually_async(lambda: len(session_of(hf).inbox) == 3 and not session_of(hf).exchange.due)
    for outcome in await asyncio.gather(*waiters, return_exceptions=True):
        assert isinstance(outcome, redis.ConnectionError)
    await eventually_async(lambda: lease.lost)
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(redis.ConnectionError):
        await hf.lock("a").status()
    await hf.close()


async def test_a_timeout_is_kept_while_the_server_is_silent_and_the_request_cancelled_when_it_replies():
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        async with AsyncHandfast(server.url) as hf:
            await (await hf.lock("a").acquire()).release()
            os.kill(server.pid, signal.SIGSTOP)
            started = time.monotonic()
            waiters = [asyncio.create_task(hf.lock("a").acquire(timeout=0.3)) for _ in range(3)]
            for waiter in waiters:
                with pytest.raises(redis.TimeoutError, match="the server did not answer"):
                    await waiter
            assert time.monotonic() - started < 5, "the response timeout is longer than the caller's"
            assert not context_of(hf).renewer.is_idle
            os.kill(server.pid, signal.SIGCONT)
            await settled(hf)
            assert nothing_left(behind)
            async with hf.lock("a").acquire(timeout=5):
                pass


async def test_a_cancellation_does_not_wait_for_a_silent_server():
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        async with AsyncHandfast(server.url) as hf:
            await (await hf.lock("a").acquire()).release()
            os.kill(server.pid, signal.SIGSTOP)
            waiter = asyncio.create_task(hf.lock("a").acquire())
            await eventually_async(lambda: session_of(hf).exchange.due)
            waiter.cancel()
            await asyncio.wait((waiter,), timeout=4)  # the response timeout is 5 s
            assert waiter.cancelled()
            os.kill(server.pid, signal.SIGCONT)
            await settled(hf)
            assert nothing_left(behind)


async def test_a_primary_that_stays_a_replica_fails_after_the_retry_time():
    with PrivateServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as behind:
        async with AsyncHandfast(server.url) as hf:
            await hf.lock("a").locked()
            behind.replicaof("127.0.0.1", 1)
            with pytest.raises(ServerRefused, match="replica"):
                await hf.lock("a").acquire(timeout=0.2)
            behind.replicaof("no", "one")
            await settled(hf)
            assert nothing_left(behind)


@pytest.mark.parametrize("state", ["unsent", "unanswered"])
async def test_a_renewal_on_its_way_is_withdrawn_by_the_release(far, proxy, raw, state):
    lease = await far.lock("a", ttl=0.9).acquire()
    session = session_of(far)
    with contextlib.ExitStack() as trouble:
        if state == "unsent":
            session._connection.transport.pause_writing()
            await eventually_async(lambda: session._outbox)
        else:
            trouble.enter_context(proxy.black_hole("to server"))
            await eventually_async(lambda: session.exchange.due and any(map(CALLS["renew"], proxy.commands)))
        assert context_of(far).renewer.renewals
        seen = len(proxy.commands)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0.01)
    if state == "unsent":
        session._connection.transport.resume_writing()
    else:
        proxy.cut()
    assert await releasing is True
    assert any(map(CALLS["release"], proxy.commands[seen:]))
    assert not any(map(CALLS["renew"], proxy.commands[seen:]))
    assert nothing_left(raw)


class Storm:
    """Tasks that use a few locks and are cancelled at random, while the network and the server misbehave."""

    def __init__(self, clients, proxy, raw, seed):
        self.clients, self.proxy, self.raw = clients, proxy, raw
        self.chance = random.Random(seed)
        self.known = newest(raw)
        self.until = time.monotonic() + STORM
        self.inside, self.fences = {}, {}
        self.cancelled = 0

    async def acquire(self):
        lock = self.chance.choice(self.clients).lock(self.chance.choice("abc"), renew=self.chance.random() < 0.7)
        how = self.chance.choice(["wait", "wait", "timeout", "try"])
        if how == "wait":
            return await lock.acquire()
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):  # there was no connection for so long
            return await (
                lock.try_acquire() if how == "try" else lock.acquire(timeout=self.chance.uniform(0.001, 0.05))
            )
        return None

    async def use(self):
        lease = await self.acquire()
        if lease is None:
            return
        async with lease:
            assert lease.name not in self.inside, "two of them hold the same lock"
            assert lease.fence > self.fences.get(lease.name, 0)
            self.inside[lease.name], self.fences[lease.name] = lease, lease.fence
            try:
                if self.chance.random() < 0.3:
                    await lease.extend(50)
                await asyncio.sleep(self.chance.uniform(0, 0.002))
            finally:
                del self.inside[lease.name]

    async def work(self):
        while time.monotonic() < self.until:
            task = asyncio.create_task(self.use())
            for _ in range(self.chance.choice([0, 0, 0, 1, 1, 2])):
                asyncio.get_running_loop().call_later(self.chance.uniform(0, 0.02), task.cancel)
            await asyncio.wait((task,))
            if task.cancelled():
                self.cancelled += 1
            elif not isinstance(task.exception(), AcquireTimeout | LeaseLost | None):  # a release may be late
                await task

    async def disturb(self):
        while time.monotonic() < self.until:
            await asyncio.sleep(self.chance.uniform(0, 0.02))
            match self.chance.choice(["cut", "forget", "pause", "kill"]):
                case "cut":
                    self.proxy.cut()
                case "forget":
                    self.raw.script_flush()
                case "pause":
                    self.raw.client_pause(5)
                case "kill":
                    for client in connections_since(self.known, self.raw):
                        self.raw.client_kill_filter(_id=client["id"])


@pytest.mark.parametrize("seed", [1])
async def test_cuts_kills_pauses_forgotten_scripts_and_cancellations_at_once(far, near, proxy, raw, seed):
    storm = Storm([far, far, near], proxy, raw, seed)
    async with asyncio.TaskGroup() as group:
        group.create_task(storm.disturb())
        for _ in range(40):
            group.create_task(storm.work())
    for client in (far, near):
        await settled(client)
    assert storm.cancelled > 0
    assert set(storm.fences) == set("abc")
    assert all(nothing_left(raw, name) for name in "abc")


# --- forks


async def in_child(action):
    """Run it in a forked child; its exit code, 0 when it returned True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() is True else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is just what is tested
async def test_a_forked_child_owns_nothing_and_has_a_connection_of_its_own(near, raw):
    lock = near.lock("a", ttl=1.0)
    lease = await lock.acquire()
    waiter = asyncio.create_task(near.lock("a").acquire())
    await eventually_async(Engine(raw).queue)
    entered = near.lock("c")
    await entered.__aenter__()
    mine = {client["id"] for client in raw.client_list()}

    async def child():
        try:
            lease.check()
        except LeaseLost:
            pass
        else:
            return False
        await lease.__aexit__(None, None, None)  # leaving a block in the child says and does nothing
        async with near.lock("b").acquire(timeout=5):
            return await lease.release() is False and await lock.try_acquire() is None and await entered.locked()

    assert await in_child(lambda: asyncio.run(child()) and asyncio.run(child())) == 0
    await asyncio.sleep(1.1)
    assert not lease.lost
    assert Engine(raw).holders() == [lease.token]
    assert {client["id"] for client in raw.client_list()} == mine, "our connection is the same as before"
    assert await lease.release() is True
    assert await (await waiter).release() is True
    await entered.__aexit__(None, None, None)
    assert nothing_left(raw)
    assert nothing_left(raw, "c")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_child_may_leave_the_blocks_that_it_was_forked_in(near, raw):
    first, second = near.lock("a"), near.lock("b")

    def leave():
        for lock in (second, first):
            try:
                lock.__aexit__(None, None, None).send(None)
            except StopIteration:
                continue
            return False
        return True

    async with first, second:
        assert await in_child(leave) == 0
        assert [len(Engine(raw, name).holders()) for name in "ab"] == [1, 1]
    assert nothing_left(raw, "a")
    assert nothing_left(raw, "b")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_child_does_not_keep_its_parents_waiters_alive(server, raw, near):
    code = """
import asyncio, os, sys, time
from handfast import AsyncHandfast

async def main():
    hf = AsyncHandfast(sys.argv[1])
    waiter = asyncio.create_task(hf.lock("a").acquire())
    while not (await hf.lock("a").status()).waiting:
        await asyncio.sleep(0.01)
    if os.fork() == 0:
        print("forked", flush=True)
        time.sleep(60)
        os._exit(0)
    await waiter

asyncio.run(main())
"""
    lease = await near.lock("a").acquire()
    parent = subprocess.Popen(  # noqa: ASYNC220 -- the loop may wait for that
        [sys.executable, "-W", "ignore", "-c", code, server.url], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert await asyncio.to_thread(parent.stdout.readline) == b"forked\n"
        kill_waiter(parent, raw)
        parent.wait()
        assert await lease.release() is True
        assert Engine(raw).holders() + Engine(raw).queue() == []
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.stdout.close()
