"""Child processes that use locks, semaphores and read-write locks on the orders of a test."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time

import redis

from handfast import Handfast
from handfast.fencing import StaleFence, set_if_newer, update_if_newer
from handfast_lab.children import ProcessGroup

PATIENCE = 30
"""Seconds that a test waits at most."""


class Actor:
    """One process. It carries out its orders one after the other and answers each."""

    def __init__(self, process):
        self._process = process
        self.tell, self.ask = process.order, process.ask
        self.kill, self.freeze, self.thaw = process.kill, process.freeze, process.thaw
        assert self.answer() == "ready"

    def answer(self):
        return self._process.expect("done", PATIENCE).value


class Actors:
    """Starts processes of one kind in parallel, and ends them."""

    def __init__(self, target, url):
        self._target, self._url = target, url
        self._group = ProcessGroup()

    def __call__(self, count=1):
        return self.start(*[()] * count)

    def start(self, *args_of_each):
        return [
            Actor(process) for process in [self._group.start(self._target, self._url, *args) for args in args_of_each]
        ]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._group.close()


def lock_user(parent, url):
    """Acquire and release locks by name."""
    leases = {}

    def acquire(name="a", timeout=PATIENCE, **options):
        leases[name] = hf.lock(name, **options).acquire(timeout=timeout)
        return leases[name].fence

    orders = {
        "acquire": acquire,
        "release": lambda name="a": leases.pop(name).release(),
        "lost": lambda name="a": leases[name].lost,
    }
    with Handfast(url) as hf:
        parent.report("done", "ready")
        parent.serve(orders, answer=True)


def family_user(parent, url, ahead=0):
    """Hold permits of the semaphore "a", or either side of the read-write lock "a".

    The clocks of the process are ``ahead`` by that many seconds. Handfast and redis-py are imported again afterwards,
    so that neither has read the real clocks.
    """
    for name in list(sys.modules):
        if name.partition(".")[0] in {"handfast", "redis"} and name != type(parent).__module__:
            del sys.modules[name]
    for name, unit in (("time", 1), ("monotonic", 1), ("time_ns", 10**9), ("monotonic_ns", 10**9)):
        setattr(time, name, _shifted(getattr(time, name), ahead * unit))
    from handfast import Handfast

    leases = {}

    def acquire(kind, limit=1, ttl=30, key="lease", **options):
        wanted = hf.semaphore("a", limit, ttl=ttl) if kind == "semaphore" else getattr(hf.rwlock("a", ttl=ttl), kind)()
        leases[key] = wanted.acquire(timeout=PATIENCE, **options)
        return leases[key].fence

    orders = {
        "acquire": acquire,
        "release": lambda key="lease": leases.pop(key).release(),
        "remaining": lambda key="lease": leases[key].remaining(),
        "time": time.time,
    }
    with Handfast(url) as hf:
        parent.report("done", "ready")
        parent.serve(orders, answer=True)


def fenced_writer(parent, url):
    """Acquire the lock "report", and write with its fence even if the lease is lost."""
    lease = None

    def acquire(**options):
        nonlocal lease
        lease = hf.lock("report", **options).acquire(timeout=PATIENCE)
        return lease.fence

    def in_database(write):
        def order(body, path):
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                write(db, body)

        return order

    def answered(write):
        def order(**options):
            try:
                write(**options)
            except StaleFence as stale:
                return ["stale", stale.fence, stale.newer]
            return "written"

        return order

    orders = {
        "acquire": acquire,
        "set": answered(lambda body: set_if_newer(conn, "report", body, lease.fence)),
        "set unguarded": answered(lambda body: conn.set("report", body)),
        "update": answered(
            in_database(
                lambda db, body: update_if_newer(db, "reports", {"body": body}, lease.fence, where={"id": 7}),
            )
        ),
        "update unguarded": answered(
            in_database(lambda db, body: db.execute("UPDATE reports SET body = ? WHERE id = 7", (body,)))
        ),
    }
    with Handfast(url) as hf, redis.Redis.from_url(url) as conn:
        parent.report("done", "ready")
        parent.serve(orders, answer=True)


def write_late(writers, order, renew, **options):
    """Freeze the first writer while it holds the lock, let the second acquire and write, then let the first write.

    Return the answers of the first and second writer, and their fences.
    """
    first, second = writers
    old = first.ask("acquire", ttl=0.2, renew=renew)
    first.freeze()
    first.tell(order, body="first", **options)
    new = second.ask("acquire", ttl=30)
    seconds = second.ask(order, body="second", **options)
    first.thaw()
    return first.answer(), seconds, old, new


def _shifted(read, by):
    return lambda: read() + by
