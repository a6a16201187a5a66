"""Faulty contenders, one for each fault, to test that a trial detects it.

They are pickled for child processes, so everything here has a module-level name.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from dataclasses import dataclass

from handfast_lab.rivals.base import OneKey, OverRedis
from handfast_lab.rivals.contender import Contender, Wire, digests
from handfast_lab.rivals.verbs import LEASE

TAKE = "if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then return redis.call('INCR', KEYS[1]) end"
GIVE = "return redis.call('DECR', KEYS[1])"
RENEW = "return redis.call('PEXPIRE', KEYS[1], ARGV[1])"
RELEASE = "return redis.call('DEL', KEYS[1])"

KEPT = []
"""The objects that a leaky lock keeps."""


class Lock:
    """A correct lock, the base of the faulty ones."""

    def __init__(self, client, name, ttl):
        self._client, self._name, self._ttl = client, name, round(ttl * 1000)
        self._renew = client.register_script(RENEW)
        self._release = client.register_script(RELEASE)

    def acquire(self, timeout=None):  # noqa: ARG002 -- it never waits
        return bool(self._client.set(self._name, uuid.uuid4().hex, nx=True, px=self._ttl))

    def release(self):
        return bool(self._release([self._name]))

    def extend(self, seconds):
        self._renew([self._name], [round(seconds * 1000)])


class Leaky(Lock):
    """Leaves a key, a connection and some memory behind now and then."""

    releases = itertools.count(1)  # so that two threads never count at the same time

    def release(self):
        number = next(self.releases)
        self._client.set(f"leak:{number}", 1, ex=60)
        KEPT.append(bytes(4096))
        if number % 100 == 0:
            KEPT.append(self._client.connection_pool.make_connection())
            KEPT[-1].connect()
        return super().release()


class Permit:
    """A semaphore that only counts: an acquire that is sent twice takes two permits."""

    def __init__(self, client, name, limit):
        self._client, self._name, self._limit = client, name, limit
        self._take, self._give = client.register_script(TAKE), client.register_script(GIVE)

    def acquire(self, timeout=None):  # noqa: ARG002 -- see above
        return self._take([self._name], [self._limit]) is not None

    def release(self):
        self._give([self._name])
        return True


@dataclass(frozen=True)
class Client:
    redis: object
    kind: type

    def lock(self, name, ttl=LEASE, *, renew=False):  # noqa: ARG002 -- it ignores its options
        return self.kind(self.redis, name, ttl)

    def semaphore(self, name, limit, ttl=LEASE):  # noqa: ARG002 -- its key has no TTL
        return Permit(self.redis, name, limit)


@dataclass(frozen=True)
class Opening:
    kind: type

    @contextlib.contextmanager
    def __call__(self, url):
        with OverRedis(self.client)(url) as client:
            yield client

    def client(self, connection):
        return Client(connection, self.kind)


def wire():
    return Wire(frozenset({"SET"}), digests(RELEASE), digests(RENEW), digests(TAKE))


class Counted(OneKey):
    def left(self, admin):
        """A count of zero means no holder."""
        return [key for key in super().left(admin) if admin.get(key) != "0"]


def planted(kind, *has):
    """Return a contender with that lock."""
    one = Counted()
    return Contender(
        kind.__name__, "redis", wire, one.left, one.remaining, Opening(kind), extends="to", has=frozenset(has)
    )
