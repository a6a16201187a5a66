"""Fixtures: real servers of our own, and a scan after every test that no key was left without a TTL."""

from __future__ import annotations

import re

import pytest
import redis

from handfast import Handfast
from handfast.embedded import PrivateServer
from tests._support.actor import Actors, lock_user
from tests._support.apis import ASYNCIO, SYNC
from tests._support.least_privilege import LEAST, LEFT_OUT, confine, employ, operators, refused

DATA = re.compile(r"(?!\{[^:}]+:\w+:)|\{[^:]+:(?:autocomplete|scores):[^}]*\}:(?!answer:)")
"""Keys that stay because they are data: those of others, and what the modern forms of some listings keep."""


def pytest_collection_modifyitems(items):
    """Leave out what can't be done as a user with the least rights, if that is the user."""
    for item in items if LEAST else ():
        name = f"{item.module.__name__.rpartition('.')[2]}::{item.originalname}"
        if name in LEFT_OUT:
            item.add_marker(pytest.mark.skip(reason=LEFT_OUT[name]))


@pytest.fixture(scope="session")
def server():
    """One server for all tests of a worker that leave it running."""
    with PrivateServer() as server:
        if LEAST:
            employ(server.url)
        yield server


@pytest.fixture(scope="module", autouse=True)
def rights(request):
    """What this module's clients may do on the server: everything, or the least."""
    if LEAST:
        confine(request.getfixturevalue("server").url, request.module.__name__.rpartition(".")[2])


@pytest.fixture
def raw(server):
    """A plain client, to look behind the scenes. Afterwards: invariant 5, and an empty server."""
    client = redis.Redis.from_url(operators(server.url), decode_responses=True)
    client.flushall()
    if LEAST:
        refused(client)
    yield client
    assert not LEAST or not refused(client)
    immortal = [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1 and not DATA.match(key)]
    assert not immortal, f"keys without a TTL: {immortal}"
    client.flushall()
    client.config_set("maxmemory", 0)
    client.close()


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, for what is true of both."""
    return request.param


@pytest.fixture
async def here(api, server, raw):
    """A client of either API."""
    async with api.client(server.url) as client:
        yield client


@pytest.fixture
async def there(api, server, raw):
    """A second client of that API, as another process would be."""
    async with api.client(server.url) as client:
        yield client


@pytest.fixture
def hf(server, raw):
    """A client of the sync API."""
    with Handfast(server.url) as client:
        yield client


@pytest.fixture
def other(server, raw):
    """A second client of the sync API."""
    with Handfast(server.url) as client:
        yield client


@pytest.fixture
def actors(server, raw):
    """Makes processes that use locks, and ends them."""
    with Actors(lock_user, server.url) as actors:
        yield actors
