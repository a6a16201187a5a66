"""Threads that wait: their places survive every interrupt, and the end of their client ends their wait."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AcquireTimeout, Handfast, HandfastError
from handfast._drivers.sync import driver, pool, session
from handfast._drivers.sync.pool import Pool
from handfast._protocol.acquire import Attempt
from handfast.testing import interrupt_everywhere
from tests._support.engine import Engine
from tests._support.helpers import eventually

OURS = [driver, pool]


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


# --- places


def test_a_place_is_free_again_when_its_attempt_left_or_is_gone():
    places = Pool(lambda: pytest.fail("no session is needed"), 2)
    first, second, third = (Attempt(None, token) for token in (b"1", b"2", b"3"))
    assert places.enter(first)
    assert places.enter(second)
    assert not places.enter(third)
    assert not places.enter(third, 0.001)
    places.leave(third)
    places.leave(first)
    places.leave(first)
    assert places.enter(third)
    assert not places.enter(first)
    del second
    gc.collect()
    assert places.enter(first)
    assert places._left.qsize() <= 2


@pytest.mark.parametrize("points", ["signals", "bytecodes"])
def test_no_interrupt_of_an_acquire_costs_a_place(server, raw, points):
    """With every run kept, and with it the frames of its traceback, so that no garbage collection hides a leak."""
    runs = []
    with Handfast(server.url, max_sessions=1) as hf:

        def use():
            hf.lock(f"n{len(runs)}").acquire().release()

        for run in interrupt_everywhere(use, within=OURS, points=points):
            runs.append(run)
            assert not hf._driver._pool._waiting, run
    assert len(runs) > (10 if points == "signals" else 200)


@pytest.mark.slow
@pytest.mark.parametrize("points", ["signals", "bytecodes"])
def test_no_interrupt_of_an_acquire_that_finds_no_place_costs_one(server, raw, hf, points):
    runs = []
    with Handfast(server.url, max_sessions=1) as crowded, ThreadPoolExecutor(1) as threads:
        held = hf.lock("held").acquire()
        waiter = threads.submit(lambda: crowded.lock("held").acquire(timeout=60))
        eventually(lambda: crowded._driver._pool._waiting)

        def acquire():
            with pytest.raises(AcquireTimeout):
                crowded.lock("held").acquire(timeout=0.005)

        for run in interrupt_everywhere(acquire, within=OURS, points=points):
            runs.append(run)
            assert len(crowded._driver._pool._waiting) == 1, run
        held.release()
        waiter.result().release()
        assert not crowded._driver._pool._waiting
    assert len(runs) > 10


def test_many_more_threads_than_places_are_all_served(server, raw):
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(20) as threads:

        def use(_):
            with hf.lock("a") as lease:
                return lease.fence

        assert len(set(threads.map(use, range(100)))) == 100
        assert not hf._driver._pool._waiting
        assert nothing_left(raw)


# --- the end of the client


@pytest.mark.parametrize("places", [64, 2])
def test_closing_a_client_ends_the_waits_of_its_threads(server, raw, hf, places):
    with ThreadPoolExecutor(5) as threads, hf.lock("a") as lease:
        client = Handfast(server.url, max_sessions=places)
        waiters = [threads.submit(client.lock("a").acquire) for _ in range(5)]
        eventually(lambda: hf.lock("a").status().waiting == min(places, 5))
        client.close()
        for waiter in waiters:
            with pytest.raises(HandfastError, match="closed while the call waited"):
                waiter.result(10)
        assert Engine(raw).queue() == []
        assert Engine(raw).holders() == [lease.token]
        assert not client._driver._pool._waiting


@pytest.mark.parametrize("step", range(1, 12))
def test_a_client_that_closes_at_any_step_of_a_wait_ends_it(server, raw, hf, monkeypatch, step):
    """Another thread closes the client while one is about to wait, in the driver, the session or the pool."""
    client, held = Handfast(server.url), hf.lock("a").acquire()
    reached, waiting = 0, None
    real = [
        (session.Session, "park"),
        (session.Session, "_take_frames"),
        (session.Session, "_await_bytes"),
        (Pool, "take"),
    ]

    def close():
        closing = threading.Thread(target=client.close)
        closing.start()
        closing.join(10)

    def before(function):
        def stepping(*args, **options):
            nonlocal reached
            if threading.current_thread() is waiting:
                reached += 1
                if reached == step:
                    close()
            return function(*args, **options)

        return stepping

    for owner, name in real:
        monkeypatch.setattr(owner, name, before(getattr(owner, name)))
    outcome = []

    def wait():
        try:
            outcome.append(client.lock("a").acquire(timeout=20))
        except HandfastError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: reached >= step or hf.lock("a").status().waiting)
    client.close()
    waiting.join(10)
    assert not waiting.is_alive()
    held.release()
    assert isinstance(outcome[0], HandfastError)
    assert "closed" in str(outcome[0])
    assert nothing_left(raw)
