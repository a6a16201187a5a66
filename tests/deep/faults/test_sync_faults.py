"""Replies lost, requests lost, connections cut, interrupts, forks: nothing is left behind, and no caller is misled.

These tests need real time, processes or chance; the others are in the gate.
"""

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
from handfast.embedded import PrivateServer
from handfast.testing import ServerController, calm, interrupt_at
from tests._support.engine import Engine
from tests._support.helpers import eventually, kill_waiter, more, without_coverage
from tests.gate.faults import test_sync_faults as gate
from tests.gate.faults.test_sync_faults import CALLS, nothing_left

proxy = gate.proxy
far = gate.far


def test_a_timeout_is_kept_while_the_server_is_silent_and_the_request_cancelled_when_it_replies(raw):
    with PrivateServer() as server, Handfast(server.url) as hf, redis.Redis.from_url(server.url) as behind:
        hf.lock("a").acquire().release()
        os.kill(server.pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(redis.TimeoutError, match="the server did not answer"):
            hf.lock("a").acquire(timeout=0.3)
        assert time.monotonic() - started < 5, "the response timeout is longer than the caller's"
        os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: not hf._driver._here.renewer._cleanups)
        assert nothing_left(behind)
        with hf.lock("a").acquire(timeout=5):
            pass


def test_a_closed_client_goes_on_with_its_cleanups_for_a_moment():
    with ServerController(persistent=True) as server, ThreadPoolExecutor(1) as threads:
        hf, held = Handfast(server.url), Engine(server.admin)
        held.acquire("other")
        waiter = threads.submit(lambda: hf.lock("a").acquire(timeout=0.2))
        eventually(held.queue)
        server.kill()
        with pytest.raises((AcquireTimeout, redis.ConnectionError)):
            waiter.result(20)
        eventually(lambda: hf._driver._here.renewer._cleanups)
        closing = threads.submit(hf.close)
        eventually(lambda: hf._driver._here.renewer._stopping)
        server.restart(keep_data=True)
        closing.result(20)
        assert (held.holders(), held.queue()) == (["other"], [])


# --- interrupts


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
        assert len(hf._driver._here.renewer._cleanups) == 1
        server.resume()
        eventually(lambda: not hf._driver._here.renewer._cleanups)
        assert other.lock("a").try_acquire().release()


def test_a_block_left_without_a_server_starts_one_cleanup(monkeypatch):
    monkeypatch.setattr(renewer, "UNDO_WAIT", 0.05)
    with ServerController() as server, Handfast(server.url, retry_for=0.05) as hf:
        with pytest.raises(redis.ConnectionError):
            with hf.lock("a"):
                server.kill()
        assert len(hf._driver._here.renewer._cleanups) == 1


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
    with pytest.raises(ClientClosed, match="this client was closed; 'with' opens it again"):
        hf.lock("a").acquire()
    eventually(lambda: not threads())
    assert open_files() <= before


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


INTERRUPTED = """
import random, sys
from handfast import AcquireTimeout, Handfast
from handfast._api.sync.scope import PrimitiveScope
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
        lock._blocks._entered.clear()
    elif status.waiters or status.holders:
        print("left behind in round", round, status, run)
        sys.exit(1)
print("struck", struck)
"""


@pytest.mark.parametrize("seed", [1, *more(2)])
def test_an_interrupt_anywhere_in_acquire_or_a_block_leaves_nothing_behind(server, raw, seed):
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", INTERRUPTED, server.url, str(seed), "400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=without_coverage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50


def test_an_acquire_is_not_sent_again_after_its_timeout(far, proxy):
    """A server that says nothing costs the caller its own timeout, and not the time that taking back may take."""
    before = len(proxy.commands)
    held = proxy.delay(CALLS["acquire"], seconds=5)
    with pytest.raises(redis.TimeoutError, match="the server did not answer"):
        far.lock("a").acquire(timeout=0.05)
    asked = [command for command in proxy.commands[before:] if CALLS["acquire"](command)]
    assert len(asked) == 1
    held.clear()
