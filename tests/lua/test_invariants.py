"""The invariants of the engine, with real processes on a real server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from handfast import AcquireTimeout, Handfast, ServerRefused
from handfast.embedded import PrivateServer
from tests._support.engine import Engine
from tests._support.helpers import eventually, kill_waiter

HOSTILE = [
    "}",
    "{",
    "{}",
    "a:q",
    "a}:holders",
    " ",
    "a b",
    "\0",
    "a\nb",
    "é",
    "🔒",
    "%7B",
    "x" * 10_000,
    ":",
    "*",
    "'",
    "a" * 3,
]


def waiting(hf, name="a"):
    return hf.lock(name).status().waiting


def test_twenty_waiters_are_granted_in_the_order_of_their_arrival(server, hf):
    entered = []

    def wait(number):
        with own.lock("a").acquire(timeout=20) as lease:
            entered.append((number, lease.fence))

    with Handfast(server.url) as own, ThreadPoolExecutor(20) as threads:
        lease = hf.lock("a").acquire()
        for number in range(20):
            threads.submit(wait, number)
            eventually(lambda number=number: waiting(hf) == number + 1)
        lease.release()
    assert [number for number, _ in entered] == list(range(20))
    fences = [fence for _, fence in entered]
    assert fences == sorted(set(fences))


def test_a_newcomer_cannot_overtake(hf, actors):
    (waiter,) = actors()
    lease = hf.lock("a").acquire()
    waiter.tell("acquire")
    eventually(lambda: waiting(hf) == 1)
    lease.release()
    assert hf.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout):
        hf.lock("a").acquire(timeout=0.02)
    waiter.answer()
    assert waiter.ask("release") is True


def test_a_killed_waiter_is_skipped_by_the_release_itself(hf, actors, raw):
    dead, alive = actors(2)
    lease = hf.lock("a").acquire()
    for position, waiter in enumerate((dead, alive), 1):
        waiter.tell("acquire")
        eventually(lambda position=position: waiting(hf) == position)
    kill_waiter(dead, raw)
    lease.release()
    status = hf.lock("a").status()
    assert len(status.holders) == 1
    assert status.waiting == 0
    assert alive.answer() == status.holders[0].fence


@pytest.mark.slow
def test_a_frozen_waiter_costs_its_claim_window_and_not_a_whole_ttl(hf, actors):
    frozen, alive = actors(2)
    lease = hf.lock("a").acquire()
    for position, waiter in enumerate((frozen, alive), 1):
        waiter.tell("acquire", ttl=300)
        eventually(lambda position=position: waiting(hf) == position)
    frozen.freeze()
    lease.release()
    (holder,) = hf.lock("a").status().holders
    assert holder.remaining <= 2
    fence = alive.answer()
    assert fence > holder.fence
    frozen.thaw()
    eventually(lambda: waiting(hf) == 1)  # awake, it finds its grant expired and waits again
    assert alive.ask("release") is True
    assert frozen.answer() > fence


@pytest.mark.slow
def test_a_killed_holder_is_followed_after_its_ttl(hf, actors):
    holder, waiter = actors(2)
    fence = holder.ask("acquire", ttl=0.5)
    waiter.tell("acquire")
    eventually(lambda: waiting(hf) == 1)
    holder.kill()
    assert waiter.answer() > fence


@pytest.mark.slow
def test_a_live_holder_is_renewed_for_as_long_as_it_holds(hf, actors):
    (holder,) = actors()
    fence = holder.ask("acquire", ttl=0.3)
    with pytest.raises(AcquireTimeout):
        hf.lock("a").acquire(timeout=1.2)
    assert [found.fence for found in hf.lock("a").status().holders] == [fence]
    assert holder.ask("release") is True


@pytest.mark.slow
def test_a_holder_frozen_beyond_its_ttl_learns_that_it_lost_the_lease(hf, actors):
    (holder,) = actors()
    fence = holder.ask("acquire", ttl=0.3)
    holder.freeze()
    with hf.lock("a").acquire(timeout=10) as lease:
        assert lease.fence > fence
        holder.thaw()
        assert holder.ask("lost") is True
        assert holder.ask("release") is False
        assert not lease.lost


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_hostile_names_are_locks_like_any_other(hf, other, raw, name):
    others = [hf.lock(other_name).acquire() for other_name in HOSTILE if other_name != name]
    with hf.lock(name) as lease:
        assert other.lock(name).try_acquire() is None
        (holder,) = hf.lock(name).status().holders
        assert holder.fence == lease.fence
    with other.lock(name):
        pass
    for held in others:
        assert held.release() is True


def test_fences_grow_through_flushall_script_flush_and_a_restart_without_persistence():
    fences = []
    for _ in range(2):
        with PrivateServer() as server, Handfast(server.url) as hf, redis.Redis.from_url(server.url) as raw:
            for forget in (raw.flushall, raw.script_flush, raw.flushall):
                with hf.lock("a") as lease:
                    fences.append(lease.fence)
                forget()
    assert fences == sorted(set(fences))


def test_at_maxmemory_a_waiter_is_still_granted_and_a_newcomer_is_refused(hf, other, raw):
    lease = hf.lock("a", ttl=1.0).acquire()
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(lambda: other.lock("a").acquire(timeout=20))
        eventually(lambda: waiting(hf) == 1)
        raw.config_set("maxmemory", 1)
        with pytest.raises(ServerRefused, match="out of memory"):
            hf.lock("b").acquire()
        assert not any(Engine(raw, "b").dump())
        lease.extend(5)
        assert lease.release() is True
        second = waiter.result(10)
    assert second.release() is True


def test_renew_release_and_acquire_survive_a_server_that_forgets_its_scripts(hf, raw):
    stop = threading.Event()

    def forget():
        while not stop.is_set():
            raw.script_flush()

    flushing = threading.Thread(target=forget)
    flushing.start()
    try:
        for _ in range(100):
            with hf.lock("a", ttl=1) as lease:
                lease.extend(2)
    finally:
        stop.set()
        flushing.join()
