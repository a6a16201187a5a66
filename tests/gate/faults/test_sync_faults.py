"""Replies lost, requests lost, connections cut, interrupts, forks: nothing is left behind, and no caller is misled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import redis

import handfast
from handfast import AcquireTimeout, Handfast, LeaseLost
from handfast._drivers.sync import cleanup, driver
from handfast._protocol.lease import release
from handfast._protocol.loss import EXPIRED
from handfast.testing import FaultProxy, interrupt_at, script
from tests._support.engine import Engine
from tests._support.helpers import eventually

ROUNDS = 30

CALLS = {verb: script(f"permit_{verb}") for verb in ("acquire", "release", "renew", "cancel")}


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy, raw, hf):
    """A client behind the proxy; the server knows all scripts already, and the client was connected once."""
    with hf.lock("warm") as lease:
        lease.extend(1)
    lease = hf.lock("warm").acquire()
    with pytest.raises(AcquireTimeout):
        hf.lock("warm").acquire(timeout=0.001)
    lease.release()
    with Handfast(proxy.url) as client:
        with client.lock("warm"):
            pass
        yield client


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


def test_an_extension_that_is_answered_after_the_loss_was_found_says_that_it_is_lost(far, proxy):
    lease = far.lock("a", renew=False).acquire()
    found = proxy.before(CALLS["renew"], lambda _: far._driver._here.renewer.lose(lease._state, EXPIRED), times=1)
    with pytest.raises(LeaseLost):
        lease.extend(30)
    assert found.spent
    assert lease.lost
    assert lease.release() is False


def test_a_release_that_was_interrupted_may_be_repeated_and_is_no_loss(hf, raw):
    step, lost, run = 0, [], None
    while run is None or run.struck:
        lease = hf.lock("a").acquire()
        lease.add_lost_callback(lambda: lost.append(step))
        run = interrupt_at(lease.release, step := step + 1, within=handfast)
        lease.release()
        assert nothing_left(raw), run
        assert not lease.lost, run
    assert step > 30
    assert not lost


def test_a_second_interrupt_during_the_cleanup_leaves_nothing_behind(hf, raw, monkeypatch):
    real, strikes = driver.run, iter([KeyboardInterrupt("first"), KeyboardInterrupt("second")])

    def interrupted(*args, **options):
        for strike in strikes:
            raise strike
        return real(*args, **options)

    with pytest.raises(KeyboardInterrupt, match="second"):
        with hf.lock("a"):
            for module in (driver, cleanup):
                monkeypatch.setattr(module, "run", interrupted)
    assert next(strikes, None) is None
    assert nothing_left(raw)


def test_an_undo_that_fails_keeps_no_other_from_the_callers_thread(hf, raw, monkeypatch):
    """Those of a cluster go to several primaries, of which one may be away."""
    leases = [hf.lock(name).acquire() for name in "ab"]
    real, failures = cleanup.run, iter([redis.ConnectionError("this primary is away")])

    def failing(*args):
        for error in failures:
            raise error
        return real(*args)

    monkeypatch.setattr(cleanup, "run", failing)
    undos = [partial(release, lease._state, by_holder=False) for lease in leases]
    assert cleanup.clean_up(hf._driver._here, undos, "a, b") == [None, True]
    assert not hf.lock("b").locked()
    eventually(lambda: not hf.lock("a").locked())
    for lease in leases:
        lease.release()


def test_leaving_a_block_that_was_never_entered_raises_that_error_and_no_other(hf):
    with pytest.raises(RuntimeError, match="never entered") as caught:
        hf.lock("a").__exit__(None, None, None)
    assert caught.value.__context__ is None


# --- threads


def test_many_threads_share_one_lock_object(hf, raw):
    lock, inside, most = hf.lock("a"), [], []

    def work():
        for _ in range(20):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work) for _ in range(8)]:
            done.result(50)
    assert max(most) == 1
    assert len(most) == 160
    assert nothing_left(raw)


def test_fewer_sessions_than_threads_neither_deadlock_nor_break_the_timeout(server, raw):
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(8) as threads:
        lease = hf.lock("a").acquire()
        waiters = [threads.submit(lambda: hf.lock("a").acquire(timeout=20).release()) for _ in range(6)]
        eventually(lambda: hf.lock("a").status().waiting == 6)
        with pytest.raises(AcquireTimeout):
            hf.lock("a").acquire(timeout=0.05)
        with hf.lock("b").acquire(timeout=20):
            assert hf.lock("b").try_acquire() is None
        assert lease.release() is True
        assert all(waiter.result(20) for waiter in waiters)


def test_a_lease_may_be_released_by_another_thread(hf, raw):
    lease = hf.lock("a").acquire()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lease.release).result(10) is True
    assert nothing_left(raw)


def test_a_block_may_be_entered_by_one_thread_and_left_by_another(hf, raw):
    lock = hf.lock("a")
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        one.submit(lock.__enter__).result(10)
        two.submit(lock.__exit__, None, None, None).result(10)
    assert nothing_left(raw)
    assert not lock._blocks
    with pytest.raises(RuntimeError, match="never entered"):
        lock.__exit__(None, None, None)


def test_threads_that_nest_two_locks_do_not_block_each_other_out_of_sessions(server, raw):
    with Handfast(server.url, max_sessions=2) as hf, ThreadPoolExecutor(6) as threads:

        def nest():
            for _ in range(5):
                with hf.lock("a").acquire(timeout=40), hf.lock("b").acquire(timeout=40):
                    pass
            return True

        assert all(done.result(50) for done in [threads.submit(nest) for _ in range(6)])
    assert nothing_left(raw)
