"""Fixtures: a real server for each worker, and after every test a scan for keys without a TTL."""

from __future__ import annotations

import gc
import re
import signal
import sys

import pytest
import redis
from hypothesis import HealthCheck, settings

from handfast import Handfast
from handfast._drivers import clock
from handfast._drivers.log import LoggerApart
from handfast._drivers.sync import renewer
from handfast._protocol import loops
from handfast.embedded import PrivateServer
from tests._support.actor import Actors, lock_user
from tests._support.apis import ASYNCIO, SYNC
from tests._support.forked import end_server
from tests._support.helpers import THOROUGH, settled, until_alone
from tests._support.least_privilege import confine, employ, operators, refused, used_by

DATA = re.compile(r"(?!\{[^:}]+:\w+:)|\{[^:]+:(?:autocomplete|scores):[^}]*\}:(?!answer:)")
"""Keys that are data and may have no TTL: those of other programs, indexes of names, scores."""

SUSPENDED_S = []
"""For how long `suspend` has suspended this process, in seconds."""

# The gate tries the same examples in every run, a thorough run new ones.
settings.register_profile(
    "gate",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("gate"), max_examples=100, derandomize=False)
settings.load_profile("thorough" if THOROUGH else "gate")


def pytest_configure():
    """Take back the signals that a shell lets its background jobs ignore: the commands under test would ignore them, too."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_unconfigure():
    """End what this worker has started for all tests."""
    end_server()


def pytest_collection_finish():
    """Keep the collected tests out of garbage collection: many tests collect, and each would look through all of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server():
    """The server of all tests of a worker that do not stop it."""
    with PrivateServer() as server:
        employ(server.url)
        yield server


@pytest.fixture(scope="module", autouse=True)
def rights(request):
    """Give this module's clients their rights on the server: all, or the least. Return whether it is the least."""
    module = request.module.__name__
    if used_by(module) is None:
        yield False
    else:
        with confine(request.getfixturevalue("server").url, module):
            yield True


@pytest.fixture(autouse=True)
def records_at_once(monkeypatch):
    """Have records handled where they are made, so that a test finds them in ``caplog``.

    Return what does so for users.
    """
    handle = LoggerApart.handle
    monkeypatch.setattr(LoggerApart, "handle", lambda self, record: self._logger.handle(record))
    return handle


@pytest.fixture
def wait_for_others():
    """Wait for the connections of clients that tests have dropped.

    Where other libraries keep theirs, it is overridden.
    """
    return until_alone


@pytest.fixture
def raw(server, rights, wait_for_others):
    """A client of redis-py that sees everything. Afterwards it checks invariant 5 and empties the server."""
    with redis.Redis.from_url(operators(server.url), decode_responses=True) as client:
        if len(client.client_list()) > 1:
            wait_for_others(client)  # a dropped client would disturb this test until it is collected
        client.flushall()
        if rights:
            refused(client)
        yield client
        assert not rights or not refused(client)
        immortal = [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1 and not DATA.match(key)]
        assert not immortal, f"keys without a TTL: {immortal}"
        client.flushall()
        client.config_set("maxmemory", 0)


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn."""
    return request.param


@pytest.fixture
async def here(api, server, raw):
    """A client of either API."""
    async with api.client(server.url) as client:
        yield client


@pytest.fixture
async def there(api, server, raw):
    """A second client of that API: another process, as far as the server can tell."""
    async with api.client(server.url) as client:
        yield client


@pytest.fixture
async def plain(api, server, raw):
    """A client of either API as its users have it: only the asyncio one is awaited."""
    client = api.handfast(server.url)
    yield client
    await settled(client.close())


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
def short_ticks(monkeypatch):
    """Let the renewal thread of the sync API look at its leases 20 times a second instead of twice: losses are seen sooner."""
    monkeypatch.setattr(renewer, "TICK_S", 0.05)


@pytest.fixture
def short_pauses(monkeypatch):
    """Let loops go on 10 ms after a failure, and double that."""
    monkeypatch.setattr(loops, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def suspend():
    """Return a function that suspends this process for some seconds: the clock goes on, the timers of its loops do not.

    The clock is never set back, since threads of closed clients may still look at it.
    """
    if not SUSPENDED_S:
        real = clock.monotonic
        for name, module in list(sys.modules.items()):
            if name.startswith(("handfast._", "tests.")) and getattr(module, "monotonic", None) is real:
                module.monotonic = lambda: real() + sum(SUSPENDED_S)
        SUSPENDED_S.append(0)
    return SUSPENDED_S.append


@pytest.fixture
def actors(server, raw):
    """A function that starts processes which use locks; they are ended afterwards."""
    with Actors(lock_user, server.url) as actors:
        yield actors
