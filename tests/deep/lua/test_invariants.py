"""The invariants of the engine, with real processes on a real server.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import threading

import pytest

from handfast import AcquireTimeout
from tests._support.helpers import eventually, kill_waiter
from tests.gate.lua.test_invariants import waiting


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


def test_a_killed_holder_is_followed_after_its_ttl(hf, actors):
    holder, waiter = actors(2)
    fence = holder.ask("acquire", ttl=0.5)
    waiter.tell("acquire")
    eventually(lambda: waiting(hf) == 1)
    holder.kill()
    assert waiter.answer() > fence


def test_a_live_holder_is_renewed_for_as_long_as_it_holds(hf, actors):
    (holder,) = actors()
    fence = holder.ask("acquire", ttl=0.3)
    with pytest.raises(AcquireTimeout):
        hf.lock("a").acquire(timeout=1.2)
    assert [found.fence for found in hf.lock("a").status().holders] == [fence]
    assert holder.ask("release") is True


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
