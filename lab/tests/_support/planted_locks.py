"""Faulty locks as contenders of the trials. They are pickled for child processes, which import this module."""

from __future__ import annotations

import contextlib
import time

import redis

from handfast_lab.rivals.contender import Contender, Wire

__all__ = ["kept", "planted", "polled", "stolen"]


class Polled:
    """A lock that is acquired by polling. The first waiter has the longest poll interval."""

    def __init__(self, conn, name, ttl):
        self._conn, self._name, self._ttl = conn, name, ttl

    def pause(self):
        return 0.8 / self._conn.incr(f"{self._name}:came")

    def acquire(self):
        pause, begun = self.pause(), time.monotonic()
        while not self._conn.set(self._name, "x", nx=True, px=round(self._ttl * 1000)):
            time.sleep(pause)
            self.lose_patience(time.monotonic() - begun)
        return True

    def lose_patience(self, waited):
        pass

    def release(self):
        self._conn.delete(self._name)
        return True


class Stolen(Polled):
    """Is stolen shortly before it is free."""

    def pause(self):
        return 0.01

    def lose_patience(self, waited):
        if waited > 0.18:
            self._conn.delete(self._name)


class Kept(Polled):
    """Is never released."""

    def __init__(self, conn, name, _ttl):
        super().__init__(conn, name, 600)

    def release(self):
        return True


class Planted:
    def __init__(self, conn, kind):
        self._conn, self._kind = conn, kind

    def lock(self, name, ttl=600.0, **_):
        return self._kind(self._conn, name, ttl)


@contextlib.contextmanager
def polled(url):
    with redis.Redis.from_url(url) as conn:
        yield Planted(conn, Polled)


@contextlib.contextmanager
def stolen(url):
    with redis.Redis.from_url(url) as conn:
        yield Planted(conn, Stolen)


@contextlib.contextmanager
def kept(url):
    with redis.Redis.from_url(url) as conn:
        yield Planted(conn, Kept)


def remaining(admin, name):
    return max(0, admin.pttl(name))


def planted(opening):
    """Return a contender that opens its client in this way."""
    return Contender(opening.__name__, "none", Wire, list, remaining, sync=opening)
