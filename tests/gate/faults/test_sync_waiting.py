"""Threads that wait: their places survive every interrupt, and the end of their client ends their wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from handfast import AcquireCancelled, AcquireTimeout, ClientClosed, Handfast, HandfastError
from handfast._drivers.sync import driver, performing, pool, session, shared
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.shared import Seat, _WakeUp
from handfast.testing import interrupt_everywhere
from tests._support.engine import Engine
from tests._support.helpers import eventually, more
from tests._support.listings import commands

OURS = [driver, performing, pool, shared]


def nothing_left(raw, name="a"):
    engine = Engine(raw, name)
    return engine.holders() == engine.queue() == []


# --- many threads


@pytest.mark.parametrize("most", [1, 3])
def test_threads_that_find_no_session_share_one_connection_and_keep_their_order(server, raw, hf, most):
    """Also the thread that calls while all others wait, and those that call at the same time."""
    served, before = [], len(raw.client_list())
    with Handfast(server.url, max_sessions=most) as crowd, ThreadPoolExecutor(30) as threads:
        held = hf.lock("a").acquire()

        def use(number):
            with crowd.lock("a", ttl=60):
                served.append(number)

        waiters = []
        for number in range(20):
            waiters.append(threads.submit(use, number))
            eventually(lambda count=number + 1: hf.lock("a").status().waiting == count)
        assert len(raw.client_list()) - before <= most + 3  # the one of hf and those that listen for both clients
        assert crowd.lock("b").try_acquire().release()
        assert len(set(threads.map(lambda _: crowd.lock("c").acquire().release(), range(50)))) == 1
        assert len(raw.client_list()) - before <= most + 3
        held.release()
        for waiter in waiters:
            waiter.result(10)
    assert served == list(range(20))


def test_of_connections_that_are_needed_no_more_a_few_stay_open(server, raw, hf, monkeypatch):
    mine = redis.Redis(unix_socket_path=server.socket, client_name="crowd")
    with Handfast(mine) as client, ThreadPoolExecutor(8) as threads:

        def connections():
            return sum(one["name"] == "crowd" for one in raw.client_list())

        def crowd():
            """Have eight threads wait at once. Return how many connections they have."""
            with hf.lock("a"):
                waiters = [threads.submit(lambda: client.lock("a").acquire().release()) for _ in range(8)]
                eventually(lambda: hf.lock("a").status().waiting == 8)
                found = connections()
            assert all(waiter.result(20) for waiter in waiters)
            return found

        assert crowd() == 8
        client.lock("b").acquire().release()
        assert connections() >= 8
        monkeypatch.setattr(pool, "IDLE_S", -1.0)
        client.lock("b").acquire().release()
        eventually(lambda: connections() in {pool.KEPT, pool.KEPT + 1})  # a renewal thread has one, if it had to renew
        monkeypatch.undo()
        assert crowd() in {8, 9}


def test_a_thread_of_other_names_is_served_while_all_others_wait(server, hf):
    """They once took turns in trying: one that wanted a name which others want, too, had no place in its queue."""
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(4) as threads:
        held = [hf.lock(name).acquire() for name in "ab"]
        first = [threads.submit(lambda: crowd.lock("a").acquire().release()) for _ in range(2)]
        eventually(lambda: hf.lock("a").status().waiting == 2)
        late = threads.submit(crowd.lock("b").acquire)
        eventually(lambda: hf.lock("b").status().waiting == 1)
        held[1].release()
        late.result(10).release()
        held[0].release()
        assert all(waiter.result(10) for waiter in first)


@pytest.mark.parametrize("points", ["signals", *more("bytecodes")])
@pytest.mark.parametrize("timeout", [60, *more(0.005)])
def test_no_interrupt_of_a_thread_at_the_shared_connection_costs_the_others_anything(server, raw, hf, points, timeout):
    """Neither of one that times out nor of one that is granted what it waits for."""
    runs = []
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(2) as threads:
        held = hf.lock("held").acquire()
        waiters = [threads.submit(lambda: crowd.lock("held").acquire().release()) for _ in range(2)]
        eventually(lambda: hf.lock("held").status().waiting == 2)

        def acquire():
            if timeout == 60:
                with crowd.lock(f"n{len(runs)}", timeout=timeout):
                    return
            with pytest.raises(AcquireTimeout):
                crowd.lock("held").acquire(timeout=timeout)

        for run in interrupt_everywhere(acquire, within=OURS, points=points):
            assert run.how != "failed", run
            runs.append(run)
        eventually(lambda: hf.lock("held").status().waiting == 2)
        held.release()
        for waiter in waiters:
            assert waiter.result(10)
        eventually(lambda: nothing_left(raw, "held") and not [key for key in raw.keys("*") if "holders" in key])
    assert len(runs) > 10


def sharing():
    """Return the threads of shared connections."""
    return [thread for thread in threading.enumerate() if thread.name == "handfast-connection"]


def test_a_connection_that_breaks_costs_no_thread_at_it_its_lease(server, raw, hf):
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(10) as threads:
        held = hf.lock("a").acquire()

        def use(_):
            with crowd.lock("a") as lease:
                return lease.fence

        waiters = [threads.submit(use, number) for number in range(10)]
        eventually(lambda: hf.lock("a").status().waiting == 10)
        for _ in range(5):
            raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            eventually(lambda: hf.lock("a").status().waiting == 10)
        held.release()
        assert len({waiter.result(10) for waiter in waiters}) == 10
    assert nothing_left(raw)


def test_scripts_that_the_server_lost_are_sent_again_at_the_shared_connection(server, raw, hf):
    with Handfast(server.url, max_sessions=1) as crowd, ThreadPoolExecutor(5) as threads:
        held = hf.lock("a").acquire()
        waiters = [threads.submit(lambda: crowd.lock("a").acquire().release()) for _ in range(2)]
        eventually(lambda: hf.lock("a").status().waiting == 2)
        raw.script_flush()
        assert all(threads.map(lambda n: crowd.lock(f"b{n}").acquire().release(), range(20)))
        raw.script_flush()
        held.release()
        assert all(waiter.result(10) for waiter in waiters)


# --- a wait that is cancelled


@pytest.mark.parametrize("places", [16, 1])
@pytest.mark.parametrize("timeout", [None, 60])
def test_a_wait_ends_when_its_event_is_set(server, raw, hf, places, timeout):
    held, cancel = hf.lock("a").acquire(), threading.Event()
    with Handfast(server.url, max_sessions=places) as client, ThreadPoolExecutor(3) as threads:
        waiters = [threads.submit(client.lock("a").acquire, timeout=timeout, cancel=cancel) for _ in range(3)]
        eventually(lambda: hf.lock("a").status().waiting == 3)
        cancel.set()
        for waiter in waiters:
            with pytest.raises(
                AcquireCancelled, match="the wait for 'a' ended because its cancel= was set"
            ) as cancelled:
                waiter.result(10)
            assert cancelled.value.name == "a"
        assert Engine(raw).queue() == []
        held.release()
        client.lock("a").acquire(cancel=threading.Event()).release()


@pytest.mark.parametrize("timeout", [None, 0, 1])
def test_a_call_whose_event_is_set_already_sends_nothing(hf, raw, timeout):
    cancel = threading.Event()
    cancel.set()
    raw.config_resetstat()
    with pytest.raises(AcquireCancelled):
        hf.lock("a").acquire(timeout=timeout, cancel=cancel)
    assert "evalsha" not in commands(raw)


@pytest.mark.parametrize("cancel", [5, True, threading.Lock(), threading.Event])
def test_what_cannot_be_asked_whether_it_is_set_is_no_event(hf, raw, cancel):
    raw.config_resetstat()
    with pytest.raises(TypeError, match=r"cancel must be an event, such as a threading\.Event, or None, not "):
        hf.lock("a").acquire(cancel=cancel)
    assert "evalsha" not in commands(raw)


def test_waits_of_all_kinds_can_be_cancelled(hf, other, raw):
    kinds = [
        lambda client: client.semaphore("s", 1),
        lambda client: client.rwlock("rw").write(),
        lambda client: client.lock_all(["b", "c"]),
        lambda client: client.rlock("r"),
    ]
    for kind in kinds:
        with kind(other), ThreadPoolExecutor(1) as threads:
            cancel = threading.Event()
            waiter = threads.submit(kind(hf).acquire, cancel=cancel)
            eventually(lambda: len(raw.keys("*}:tokens")))
            cancel.set()
            with pytest.raises(AcquireCancelled):
                waiter.result(10)
        with kind(hf).acquire(timeout=0):
            pass
        raw.flushall()


def test_a_wait_that_is_cancelled_as_it_is_granted_gives_the_lease_back(hf, other, raw, monkeypatch):
    """The grant arrives while the event is looked at: its message is not read any more."""
    held = other.lock("a").acquire()
    looks = []

    class Cancel:
        def is_set(self):
            looks.append(1)
            if len(looks) == 3:
                held.release()
                eventually(lambda: Engine(raw).holders())
            return len(looks) == 3

    with pytest.raises(AcquireCancelled):
        hf.lock("a").acquire(cancel=Cancel())
    assert nothing_left(raw)


def test_looking_at_an_event_sends_nothing(hf, other, raw):
    """Only the first request, and what polls: not every look at the event."""
    held, looks = other.lock("a").acquire(), []

    class Cancel:
        def is_set(self):
            looks.append(1)
            return len(looks) > 12

    raw.config_resetstat()
    with pytest.raises(AcquireCancelled):
        hf.lock("a").acquire(cancel=Cancel())
    assert len(looks) == 13
    assert commands(raw)["evalsha"] <= 4, "it asks, primes its confirmation, polls, and cancels"
    held.release()


# --- the end of the client


@pytest.mark.parametrize("places", [16, 2])
def test_closing_a_client_ends_the_waits_of_its_threads(server, raw, hf, places):
    with ThreadPoolExecutor(5) as threads, hf.lock("a") as lease:
        client = Handfast(server.url, max_sessions=places)
        waiters = [threads.submit(client.lock("a").acquire) for _ in range(5)]
        eventually(lambda: hf.lock("a").status().waiting == 5)
        client.close()
        for waiter in waiters:
            with pytest.raises(ClientClosed, match="this client was closed; 'with' opens it again"):
                waiter.result(10)
        assert Engine(raw).queue() == []
        assert Engine(raw).holders() == [lease.token]
        eventually(lambda: not sharing())


@pytest.mark.parametrize("at", [(step, seat) for step in range(1, 12) for seat in (False, True)])
def test_a_client_that_closes_at_any_step_of_a_wait_ends_it(server, raw, hf, monkeypatch, at):
    """Another thread closes the client while one is about to wait, in the driver, the pool, the session or its seat."""
    step, is_shared = at
    client, held = Handfast(server.url, max_sessions=1), hf.lock("a").acquire()
    reached, waiting = 0, None
    taken = client._driver._here.pool.take() if is_shared else None
    real = [
        (session.Session, "park"),
        (session.Session, "take_frames"),
        (session.Session, "receive"),
        (Seat, "call"),
        (Seat, "park"),
        (_WakeUp, "wait"),
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
    assert (taken is not None) is is_shared
    assert isinstance(outcome[0], HandfastError)
    assert "closed" in str(outcome[0])
    assert nothing_left(raw)
