"""Threads that wait: their places survive every interrupt, and the end of their client ends their wait.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast import Handfast, NotReplicated
from handfast._drivers.sync import shared
from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests.gate.faults.test_sync_waiting import sharing

# --- many threads


def test_the_shared_connection_ends_when_it_is_used_no_more_and_is_opened_again(server, raw, hf, monkeypatch):
    monkeypatch.setattr(shared, "IDLE_S", 0.1)
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            held = hf.lock("a").acquire()
            waiters = [threads.submit(lambda: crowd.lock("a").acquire().release()) for _ in range(2)]
            eventually(lambda: hf.lock("a").status().waiting == 2)
            time.sleep(0.3)
            assert sharing()
            held.release()
            assert all(waiter.result(10) for waiter in waiters)
            eventually(lambda: not sharing())


@pytest.mark.timeout(60, method="thread")  # the test needs the signal for itself
@pytest.mark.skipif(
    sys.gettrace() is not None, reason="coverage has a lock that may be held where the handler needs it"
)
def test_a_signal_handler_may_use_the_client_while_its_thread_waits_at_the_shared_connection(server, raw, hf):
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(2) as threads:
        held = hf.lock("a").acquire()
        waiter = threads.submit(crowd.lock("a").acquire)
        eventually(lambda: hf.lock("a").status().waiting == 1)
        handled, numbers = [], itertools.count()

        def handle(*_):
            crowd.lock(f"handled {next(numbers)}").acquire(timeout=10).release()
            handled.append(signal.setitimer(signal.ITIMER_REAL, 0.001))

        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            for _ in range(200):
                with crowd.lock("c"):
                    pass
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the handler sets the timer: it must not run any more
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        held.release()
        waiter.result(10).release()
    assert len(handled) > 1


def test_a_server_that_does_not_answer_fails_the_threads_at_the_shared_connection_and_serves_them_again():
    with (
        ServerController() as server,
        Handfast(f"{server.url}?socket_timeout=0.3", max_sessions=1, retry_for=0) as crowd,
        ThreadPoolExecutor(5) as threads,
    ):
        crowd.lock("a").acquire().release()
        server.pause()
        waiters = [threads.submit(crowd.lock("a").acquire) for _ in range(5)]
        for waiter in waiters:
            with pytest.raises((RedisTimeoutError, RedisConnectionError)):
                waiter.result(10)
        server.resume()
        assert all(threads.map(lambda n: crowd.lock(f"b{n}").acquire().release(), range(20)))


def test_leases_that_replicas_have_do_not_hold_up_the_shared_connection(server, hf):
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(3) as threads:
        held = hf.lock("a").acquire()
        waiter = threads.submit(crowd.lock("a").acquire)
        eventually(lambda: hf.lock("a").status().waiting == 1)
        slow = threads.submit(crowd.lock("b", min_replicas=1, replica_timeout=2, ttl=60).acquire)
        eventually(lambda: hf.lock("b").status().holders)
        for _ in range(5):
            crowd.lock("c").acquire().release()
        assert not slow.done()
        with pytest.raises(NotReplicated):
            slow.result(20)
        held.release()
        waiter.result(10).release()
