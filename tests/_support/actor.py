"""Processes of their own that do with locks, and with their relatives, what a test tells them to."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time

import redis

from handfast import Handfast
from handfast.fencing import StaleFence, set_if_newer, update_if_newer
from handfast.testing import ProcessGroup

PATIENCE = 30
"""Seconds: no test waits longer."""


class Actor:
    """One process. Orders are carried out in turn, and each is answered."""

    def __init__(self, process):
        self._process = process
        self.tell, self.ask = process.order, process.ask
        self.kill, self.freeze, self.thaw = process.kill, process.freeze, process.thaw
        assert self.answer() == "ready"

    def answer(self):
        return self._process.expect("done", PATIENCE).value


class Actors:
    """Starts processes of one kind side by side, and ends them."""

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
    """Acquires locks by their names, and releases them."""
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
    """Holds permits of the semaphore "a", or the two sides of the read-write lock "a".

    Its clocks are ``ahead`` by so many seconds, and nothing of ours or of the client library has read them before.
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
    """Acquires the lock "report", and writes with the fence that it got, whatever has become of the lease."""
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
    """The first takes the lock and is frozen; the second takes it over and writes; the first goes on and writes.

    What both were answered, and their fences.
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
