"""Fixtures: the scripts of one name, of several names and of an index, under a clock that stands still."""

from __future__ import annotations

import pytest
import redis

from handfast._kinds import MAX_PERMITS
from tests._support.engine import Clock, Engine, Several
from tests._support.fixtures import operators
from tests._support.index import Index
from tests._support.limits import LimitScripts
from tests._support.once import OnceScripts


@pytest.fixture
def clock(raw):
    return Clock(raw)


@pytest.fixture
def make(clock):
    """Return a function that returns the scripts of a semaphore with a limit."""
    return lambda limit=5, name="a": Engine(clock, name, limit=limit, kind="semaphore")


@pytest.fixture
def limits(clock):
    """Return a function that returns the scripts of a limiter under rates, each ``(limit, per_ms)``."""
    return lambda *rates: LimitScripts(clock, *rates)


@pytest.fixture
def keyed(clock):
    """The scripts of a key of once."""
    return OnceScripts(clock)


@pytest.fixture
def rw(clock):
    """The scripts of a read-write lock."""
    return Engine(clock, limit=MAX_PERMITS, kind="rwlock")


@pytest.fixture
def both(clock):
    """The scripts of two locks at once."""
    return Several(clock, "ab")


@pytest.fixture
def a(both):
    """The scripts of the first of the two locks alone."""
    return both.engines[0]


@pytest.fixture
def b(both):
    """The scripts of the second of the two locks alone."""
    return both.engines[1]


@pytest.fixture(params=["one", "two"])
def locks(request, a, both):
    """The scripts of one lock, and those of two locks at once."""
    return a if request.param == "one" else both


@pytest.fixture
def index(raw):
    return Index(raw)


@pytest.fixture
def subscribe(server):
    """Return a function that subscribes to channels. The subscriptions end with the test."""
    pubsubs = []
    client = redis.Redis.from_url(operators(server.url))  # messages are bytes

    def subscribe(*channels, sharded=False):
        pubsub = client.pubsub()
        pubsubs.append(pubsub)
        (pubsub.ssubscribe if sharded else pubsub.subscribe)(*channels)
        for _ in channels:
            assert pubsub.get_message(timeout=10)["type"] == ("ssubscribe" if sharded else "subscribe")
        return pubsub

    yield subscribe
    for pubsub in pubsubs:
        pubsub.close()
    client.close()


@pytest.fixture
def listening(subscribe):
    """Return a function that subscribes to the inboxes and control channels of tokens, so that they count as alive."""
    return lambda *tokens: subscribe(*(f"{kind}:{token}" for token in tokens for kind in ("inbox", "control")))


@pytest.fixture
def sharded(subscribe, raw):
    """Return a function that subscribes to sharded channels."""
    if raw.info("server")["redis_version"] < "7.0":
        pytest.skip("sharded channels came with Redis 7.0")
    return lambda *channels: subscribe(*channels, sharded=True)


@pytest.fixture
def live(subscribe):
    """A subscription to the inbox ``live``."""
    return subscribe("live")
