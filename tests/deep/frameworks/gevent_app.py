"""The sync API under gevent. Each part of the program prints its name when all that it asserts was so."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402 -- after the patch, as in every program that uses gevent
import signal  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402

from handfast import AcquireCancelled, AcquireTimeout, ClientClosed, Handfast  # noqa: E402
from tests.deep.frameworks.protected import URL, conn, counted  # noqa: E402

GREENLETS = 20


def all_of(function, count=GREENLETS):
    greenlets = [gevent.spawn(function, number) for number in range(count)]
    gevent.joinall(greenlets, timeout=30, raise_error=True)
    return [one.value for one in greenlets if one.ready()]


def until(condition):
    with gevent.Timeout(20):
        while not condition():
            gevent.sleep(0.002)


def waiting(lock, count=1):
    until(lambda: lock.status().waiting == count)


def is_refused(lock, timeout):
    try:
        lock.acquire(timeout=timeout)
    except AcquireTimeout:
        return True
    return False


def contention(hf):
    """Half of them by seats of the shared connection, since there are more greenlets than sessions."""

    def use(number):
        with hf.lock("gevent", ttl=3600) as lease, counted("gevent"):
            return lease.fence

    before = len(conn.client_list())
    with hf.lock("gevent", ttl=3600):
        users = gevent.spawn(all_of, use)
        waiting(hf.lock("gevent"), GREENLETS)
        assert len(conn.client_list()) - before <= SESSIONS + 2, "one for all beyond, and that of renewals"
    fences = users.get(timeout=30)
    assert len(set(fences)) == GREENLETS


def order(hf):
    served = []

    def use(number):
        with hf.lock("order"):
            served.append(number)

    with hf.lock("order"):
        greenlets = []
        for number in range(GREENLETS):
            greenlets.append(gevent.spawn(use, number))
            waiting(hf.lock("order"), number + 1)
    gevent.joinall(greenlets, timeout=30, raise_error=True)
    assert served == [*range(GREENLETS)]


def timeouts(hf):
    with hf.lock("taken"):
        assert all_of(lambda _: is_refused(hf.lock("taken"), 0.05)) == [True] * GREENLETS
        assert hf.lock("taken").try_acquire() is None
    assert hf.lock("taken").status().waiting == 0


def cancelling(hf):
    cancel = threading.Event()

    def use(number):
        try:
            hf.lock("taken").acquire(cancel=cancel)
        except AcquireCancelled:
            return number

    with hf.lock("taken"):
        users = gevent.spawn(all_of, use)
        waiting(hf.lock("taken"), GREENLETS)
        cancel.set()
        assert users.get(timeout=30) == [*range(GREENLETS)]
    assert hf.lock("taken").status().waiting == 0


def killed(hf):
    """A greenlet that is killed while it waits, or that a `gevent.Timeout` ends, leaves the queue; one in a block releases."""

    def impatient(number):
        with gevent.Timeout(0.05, False), hf.lock("taken"):
            return None
        return number

    with hf.lock("taken"):
        greenlets = [gevent.spawn(hf.lock("taken").acquire) for _ in range(GREENLETS)]
        waiting(hf.lock("taken"), GREENLETS)
        gevent.killall(greenlets, timeout=30)
        assert hf.lock("taken").status().waiting == 0
        assert all_of(impatient) == [*range(GREENLETS)]
        assert hf.lock("taken").status().waiting == 0

    def hold():
        with hf.lock("held", ttl=3600):
            gevent.sleep(3600)

    holder = gevent.spawn(hold)
    until(hf.lock("held").locked)
    holder.kill(timeout=30)
    assert not hf.lock("held").locked()


def renewal(hf):
    with hf.lock("renewed", ttl=0.3) as lease:
        gevent.sleep(1)
        lease.check()
        assert hf.lock("renewed").force_release()
        assert lease.lost_event.wait(20)
        lease.release()


def loop_goes_on(hf):
    """What waits for a lock or for the server keeps no other greenlet from running."""
    ticks = []

    def tick():
        while True:
            ticks.append(time.monotonic())
            gevent.sleep(0.01)

    ticker = gevent.spawn(tick)
    with hf.lock("taken"):
        before = len(ticks)
        assert gevent.spawn(is_refused, hf.lock("taken"), 0.5).get(timeout=30)
        assert len(ticks) - before > 10
    ticker.kill()


def reentrance(hf):
    """A reentrant lock belongs to a greenlet, also where no thread stands for it."""

    def hold():
        with hf.rlock("mine"), hf.rlock("mine"):
            assert all_of(lambda _: hf.rlock("mine").try_acquire() is None, 3) == [True] * 3

    gevent.spawn(hold).get(timeout=30)
    assert not hf.lock("mine").locked()


def interrupt(hf):
    """Ctrl-C ends a wait of the main greenlet, which leaves the queue."""
    with Handfast(URL) as other, other.lock("taken"):
        pool = gevent.get_hub().threadpool  # a thread: where a greenlet sends it, it also strikes that
        gevent.spawn(lambda: (waiting(other.lock("taken")), pool.spawn(os.kill, os.getpid(), signal.SIGINT)))
        try:
            hf.lock("taken").acquire(timeout=20)
        except KeyboardInterrupt:
            assert hf.lock("taken").status().waiting == 0
        else:
            raise AssertionError("not interrupted")


def fork(hf):
    with hf.lock("the parent's", ttl=3600) as lease:
        pid = os.fork()
        if not pid:
            with hf.lock("the child's"):
                os._exit(10 + (lease.lost and hf.lock("the parent's").try_acquire() is None))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 11
        lease.check()


def closing(hf):
    def use(number):
        try:
            hf.lock("kept").acquire()
        except ClientClosed:
            return number

    kept = hf.lock("kept", ttl=3600).acquire()
    users = gevent.spawn(all_of, use)
    waiting(hf.lock("kept"), GREENLETS)
    hf.close(release=True)
    assert users.get(timeout=30) == [*range(GREENLETS)]
    assert kept.lost
    with Handfast(URL) as other:
        assert not other.lock("kept").locked()
        assert other.lock("kept").status().waiting == 0


SESSIONS = 4

if __name__ == "__main__":
    with Handfast(URL, max_sessions=SESSIONS) as client:
        for part in (
            contention,
            order,
            timeouts,
            cancelling,
            killed,
            renewal,
            loop_goes_on,
            reentrance,
            interrupt,
            fork,
            closing,
        ):
            with gevent.Timeout(60):
                part(client)
            print(part.__name__, flush=True)
