"""Replies lost, requests lost, connections cut, interrupts, forks: nothing is left behind, and no caller is misled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

import handfast
from handfast import AcquireTimeout, ClientClosed, Handfast, LeaseLost
from handfast._drivers.sync import driver, renewer
from handfast._drivers.sync.driver import SyncDriver
from handfast.embedded import PrivateServer, find_binary, supervisor
from handfast.testing import FaultProxy, ServerController, calm, containing, interrupt_at, script
from tests._support.engine import Engine
from tests._support.helpers import eventually, kill_waiter, slow_only, without_coverage

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


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("verb", ["acquire", "release"])
def test_a_lost_acquire_or_release_is_sent_again_and_happens_once(far, proxy, raw, verb, what):
    fences = []
    for _ in range(ROUNDS):
        fault = getattr(proxy, what)(CALLS[verb])
        lease = far.lock("a").acquire(timeout=5)
        assert len(Engine(raw).holders()) == 1
        assert lease.release() is True
        assert fault.spent
        assert nothing_left(raw)
        fences.append(lease.fence)
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
def test_a_lost_try_is_sent_again(far, proxy, raw, what):
    getattr(proxy, what)(CALLS["acquire"])
    lease = far.lock("a").try_acquire()
    assert Engine(raw).holders() == [lease.token]
    getattr(proxy, what)(CALLS["acquire"])
    assert far.lock("a").try_acquire() is None
    assert lease.release() is True


def test_a_lost_extension_does_not_add_up(far, proxy, raw):
    lease = far.lock("a", ttl=1.0).acquire()
    for _ in range(ROUNDS):
        proxy.lose_reply(CALLS["renew"])
        lease.extend(10)
        (holder,) = far.lock("a").status().holders
        assert lease.remaining() <= holder.remaining <= 10
    assert lease.release() is True


def test_an_extension_that_is_answered_after_the_loss_was_found_says_that_it_is_lost(far, proxy):
    lease = far.lock("a", renew=False).acquire()
    found = proxy.before(
        CALLS["renew"], lambda _: far._driver._renewer.lose(lease._state, "its time was over"), times=1
    )
    with pytest.raises(LeaseLost):
        lease.extend(30)
    assert found.spent
    assert lease.lost
    assert lease.release() is False


@pytest.mark.slow
def test_a_lost_renewal_is_made_up_for(far, proxy, raw):
    with far.lock("a", ttl=0.6) as lease:
        for _ in range(3):
            fault = proxy.lose_reply(CALLS["renew"])
            eventually(lambda fault=fault: fault.spent)
        time.sleep(0.6)
        assert not lease.lost


def test_a_lost_cancel_leaves_no_queue_entry(far, proxy, raw, hf):
    with hf.lock("a") as lease:
        for what in ("lose_reply", "lose_request") * 5:
            fault = getattr(proxy, what)(CALLS["cancel"])
            with pytest.raises(AcquireTimeout):
                far.lock("a").acquire(timeout=0.01)
            assert fault.spent
            assert Engine(raw).queue() == []
        assert Engine(raw).holders() == [lease.token]


def test_a_waiter_whose_connection_is_cut_keeps_its_queue_entry(far, proxy, raw, hf):
    with ThreadPoolExecutor(1) as threads:
        lease = hf.lock("a").acquire()
        waiter = threads.submit(lambda: far.lock("a").acquire(timeout=20))
        (token,) = eventually(lambda: Engine(raw).queue())
        for _ in range(5):
            seen = len(proxy.commands)
            proxy.cut()
            eventually(lambda seen=seen: any(map(CALLS["acquire"], proxy.commands[seen:])))
        assert Engine(raw).queue() == [token]
        lease.release()
        assert waiter.result(20).release() is True


def test_a_grant_whose_message_is_lost_is_found_by_polling(far, proxy, raw, hf):
    with ThreadPoolExecutor(1) as threads:
        lease = hf.lock("a").acquire()
        waiter = threads.submit(lambda: far.lock("a").acquire(timeout=20))
        (token,) = eventually(lambda: Engine(raw).queue())
        Engine(raw).run("release", token=lease.token)
        proxy.cut()
        assert waiter.result(20).token == token
        assert waiter.result().release() is True
    assert lease.release() is False, "another was granted it since, and no copy of this release was sent"


def test_a_server_that_never_was_there_is_reported_at_once(tmp_path):
    with Handfast(f"unix://{tmp_path}/missing") as hf:
        for ask in (hf.lock("a").acquire, hf.lock("a").try_acquire, hf.lock("a").status):
            with pytest.raises(redis.ConnectionError):
                ask()


def test_a_server_that_comes_back_is_waited_for():
    with PrivateServer() as server:
        path = server.socket
        hf = Handfast(server.url)
        lease = hf.lock("a").acquire()
    folder = Path(path).parent
    folder.mkdir(0o700)
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(lambda: hf.lock("b").acquire(timeout=20))
        again = supervisor.SupervisedServer(find_binary(), str(folder), remove_dir=True)
        try:
            assert waiter.result(20).release() is True
            assert lease.release() is False, "a server that forgot everything has no lease to give up"
            assert lease.lost
        finally:
            hf.close()
            again.end()


def test_a_timeout_is_kept_while_the_server_is_silent_and_the_request_cancelled_when_it_replies(raw):
    with PrivateServer() as server, Handfast(server.url) as hf, redis.Redis.from_url(server.url) as behind:
        hf.lock("a").acquire().release()
        os.kill(server.pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(redis.TimeoutError, match="the server did not answer"):
            hf.lock("a").acquire(timeout=0.3)
        assert time.monotonic() - started < 5, "the response timeout is longer than the caller's"
        os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: not hf._driver._renewer._cleanups)
        assert nothing_left(behind)
        with hf.lock("a").acquire(timeout=5):
            pass


def test_an_acquire_is_not_sent_again_after_its_timeout(far, proxy):
    """A server that says nothing costs the caller its own timeout, and not the time that taking back may take."""
    before = len(proxy.commands)
    held = proxy.delay(CALLS["acquire"], seconds=5)
    with pytest.raises(redis.TimeoutError, match="the server did not answer"):
        far.lock("a").acquire(timeout=0.05)
    asked = [command for command in proxy.commands[before:] if CALLS["acquire"](command)]
    assert len(asked) == 1
    held.clear()


def test_a_closed_client_goes_on_with_its_cleanups_for_a_moment():
    with ServerController(persistent=True) as server, ThreadPoolExecutor(1) as threads:
        hf, held = Handfast(server.url), Engine(server.admin)
        held.acquire("other")
        waiter = threads.submit(lambda: hf.lock("a").acquire(timeout=0.2))
        eventually(held.queue)
        server.kill()
        with pytest.raises((AcquireTimeout, redis.ConnectionError)):
            waiter.result(20)
        eventually(lambda: hf._driver._renewer._cleanups)
        closing = threads.submit(hf.close)
        eventually(lambda: hf._driver._renewer._stopping)
        server.restart(keep_data=True)
        closing.result(20)
        assert (held.holders(), held.queue()) == (["other"], [])


# --- interrupts

INTERRUPTED = """
import random, sys
from handfast import AcquireTimeout, Handfast
from handfast._drivers.sync.scope import PrimitiveScope
from handfast.testing import interrupt_after

hf, other = Handfast(sys.argv[1]), Handfast(sys.argv[1])
random.seed(int(sys.argv[2]))
lock = hf.lock("a")
beginning = PrimitiveScope.__exit__.__code__  # which cannot be guarded in Python
unavoidable = f"{beginning.co_filename}:{beginning.co_firstlineno} in {beginning.co_qualname}"

def block():
    with lock:
        pass

def wait():
    lock.acquire(timeout=0.0015)

block()
struck = 0
for round in range(int(sys.argv[3])):
    held = other.lock("a").acquire() if round % 2 else None
    run = interrupt_after(wait if held else block, random.uniform(1e-5, 6e-4))
    struck += run.how == "stopped"
    if run.how == "failed" and not isinstance(run.error, AcquireTimeout):
        raise run.error
    if held:
        held.release()
    status = other.lock("a").status()
    if status.holders and run.place == unavoidable:
        other.lock("a").force_release()
        lock._entered.clear()
    elif status.waiters or status.holders:
        print("left behind in round", round, status, run)
        sys.exit(1)
print("struck", struck)
"""


@pytest.mark.parametrize("seed", [1, *slow_only(2)])
def test_an_interrupt_anywhere_in_acquire_or_a_block_leaves_nothing_behind(server, raw, seed):
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", INTERRUPTED, server.url, str(seed), "400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=without_coverage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50


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
    real, strikes = SyncDriver._run, iter([KeyboardInterrupt("first"), KeyboardInterrupt("second")])

    def interrupted(*args, **options):
        for strike in strikes:
            raise strike
        return real(*args, **options)

    with pytest.raises(KeyboardInterrupt, match="second"):
        with hf.lock("a"):
            monkeypatch.setattr(SyncDriver, "_run", interrupted)
    assert next(strikes, None) is None
    assert nothing_left(raw)


@pytest.mark.parametrize("after", [2, 7, 12, 17])
def test_a_block_whose_leaving_is_interrupted_waits_no_longer_for_a_silent_server_than_others_do(monkeypatch, after):
    monkeypatch.setattr(driver, "UNDO_WAIT", 0.05)
    ours = [handfast._api, handfast._drivers.sync, handfast._protocol]
    with ServerController() as server, Handfast(server.url) as hf, Handfast(server.url) as other:
        with hf.lock("a"):
            pass
        lock = hf.lock("a")

        def block(within):
            with lock:
                within()

        points = interrupt_at(lambda: block(calm), 1 << 30, within=ours).reached
        run = interrupt_at(lambda: block(server.pause), points + after, within=ours)
        assert (run.how, run.struck) == ("stopped", 1)
        assert len(hf._driver._renewer._cleanups) == 1
        server.resume()
        eventually(lambda: not hf._driver._renewer._cleanups)
        assert other.lock("a").try_acquire().release()


def test_a_block_left_without_a_server_starts_one_cleanup(monkeypatch):
    monkeypatch.setattr(renewer, "UNDO_WAIT", 0.05)
    with ServerController() as server, Handfast(server.url, retry_for=0.05) as hf:
        with pytest.raises(redis.ConnectionError):
            with hf.lock("a"):
                server.kill()
        assert len(hf._driver._renewer._cleanups) == 1


def test_leaving_a_block_that_was_never_entered_raises_that_error_and_no_other(hf):
    with pytest.raises(RuntimeError, match="never entered") as caught:
        hf.lock("a").__exit__(None, None, None)
    assert caught.value.__context__ is None


# --- forks


def in_child(action):
    """Run it in a forked child; its exit code, 0 when it returned True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() is True else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is just what is tested
def test_a_forked_child_owns_nothing_and_has_sessions_of_its_own(hf, raw):
    lock = hf.lock("a", ttl=0.6)
    lease = lock.acquire()
    time.sleep(0.3)  # the renewer lives

    def child():
        def refused():
            try:
                lease.check()
            except LeaseLost:
                return True
            return False

        lease.__exit__(None, None, None)  # leaving a block in the child says and does nothing
        free = hf.lock("b").acquire(timeout=5)
        return lease.release() is False and refused() and lock.try_acquire() is None and free.release()

    assert in_child(child) == 0
    time.sleep(0.8)
    assert not lease.lost
    assert Engine(raw).holders() == [lease.token]
    assert lease.release() is True


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


@pytest.mark.slow
def test_nothing_is_sent_for_a_token_after_its_release_returned(far, proxy, raw):
    for _ in range(60):
        lease = far.lock("a", ttl=0.012).acquire()
        time.sleep(0.004)
        lease.release()
        time.sleep(0.005)  # what was sent before the release returned may take its time through the proxy
        seen = len(proxy.commands)
        time.sleep(0.008)
        token = lease.token.encode()
        assert not any(map(containing(token), proxy.commands[seen:]))


def open_files():
    """How many files this process has open, where the system tells."""
    listing = Path("/proc/self/fd")
    return sum(1 for _ in listing.iterdir()) if listing.exists() else 0


def test_a_closed_client_says_so_and_its_threads_and_files_are_gone(server, raw):
    def threads():
        return [thread for thread in threading.enumerate() if thread.name == "handfast-renewer"]

    before = open_files()
    for _ in range(5):
        with Handfast(server.url) as hf:
            lease = hf.lock("a", ttl=0.1).acquire()
            time.sleep(0.05)
            lease.release()
    with pytest.raises(ClientClosed, match="this client was closed; make a new one"):
        hf.lock("a").acquire()
    eventually(lambda: not threads())
    assert open_files() <= before


@pytest.mark.slow
def test_signals_that_are_handled_do_not_disturb_a_wait(hf, actors):
    (holder,) = actors()
    holder.ask("acquire")
    got = []
    previous = signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        threading.Timer(0.3, holder.tell, ("release",)).start()
        hf.lock("a").acquire(timeout=10).release()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert got


def test_a_block_may_be_entered_by_one_thread_and_left_by_another(hf, raw):
    lock = hf.lock("a")
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        one.submit(lock.__enter__).result(10)
        two.submit(lock.__exit__, None, None, None).result(10)
    assert nothing_left(raw)
    assert not lock._entered
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parents_waiters_alive(server, raw, hf):
    code = """
import os, sys, threading, time
from handfast import Handfast
hf = Handfast(sys.argv[1])
threading.Thread(target=lambda: hf.lock("a").acquire(), daemon=True).start()
while not hf.lock("a").status().waiting:
    time.sleep(0.01)
if os.fork() == 0:
    print("forked", flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
    with hf.lock("a") as lease:
        parent = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code, server.url], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert parent.stdout.readline() == b"forked\n"
            kill_waiter(parent, raw)
            parent.wait()
            lease.release()
            assert nothing_left(raw), "the dead waiter was skipped although its child lives"
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
            parent.stdout.close()


@pytest.mark.slow
def test_the_blocks_own_exception_wins_over_a_server_that_is_gone(caplog):
    with PrivateServer() as server:
        hf = Handfast(server.url)
        lock = hf.lock("a", ttl=1)
        with pytest.raises(KeyError):
            with lock:
                server.close()
                raise KeyError
    assert "the cleanup of 'a' goes on in the background" in caplog.text
    hf.close()
