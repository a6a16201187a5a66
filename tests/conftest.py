"""Fixtures: real servers of our own, and a scan after every test that no key was left without a TTL."""

from __future__ import annotations

import re

import pytest
import redis

from holdfast import Holdfast
from holdfast.drivers.embedded import PrivateServer
from tests.actor import Actor
from tests.colours import ASYNCIO, SYNC

DATA = re.compile(r"(?!\{[^:}]+:\w+:)|\{[^:]+:(?:autocomplete|scores):[^}]*\}:(?!answer:)")
"""Keys that stay because they are data: those of others, and what the modern forms of some listings keep."""


@pytest.fixture(scope="session")
def server():
    """One server for all tests of a worker that leave it running."""
    with PrivateServer() as server:
        yield server


@pytest.fixture
def raw(server):
    """A plain client, to look behind the scenes. Afterwards: invariant 5, and an empty server."""
    client = redis.Redis.from_url(server.url, decode_responses=True)
    client.flushall()
    yield client
    immortal = [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1 and not DATA.match(key)]
    assert not immortal, f"keys without a TTL: {immortal}"
    client.flushall()
    client.config_set("maxmemory", 0)
    client.close()


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda colour: colour.name)
def colour(request):
    """Each colour in turn, for what is true of both."""
    return request.param


@pytest.fixture
async def here(colour, server, raw):
    """A client of either colour."""
    async with colour.client(server.url) as client:
        yield client


@pytest.fixture
async def there(colour, server, raw):
    """A second client of that colour, as another process would be."""
    async with colour.client(server.url) as client:
        yield client


@pytest.fixture
def hf(server, raw):
    """A client of the sync colour."""
    with Holdfast(server.url) as client:
        yield client


@pytest.fixture
def other(server, raw):
    """A second client of the sync colour."""
    with Holdfast(server.url) as client:
        yield client


@pytest.fixture
def actors(server, raw):
    """Makes processes that use locks, and ends them."""
    made = []

    def make(count=1):
        new = [Actor(server.url) for _ in range(count)]
        made.extend(new)
        return new

    yield make
    for actor in made:
        actor.close()
