"""What the tests of the classic listings share: clients, both forms, and ways to force a race.

A flaw that needs a certain order of events is forced: an `Interrupted` client acts before a chosen command, so that
other clients go first or this one dies there. The test also sets the clocks and pauses of the listings.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
import redis.client
from redis.backoff import NoBackoff
from redis.retry import Retry

from handfast import classic
from handfast.classic import watch
from handfast.testing import FaultProxy
from tests._support.helpers import more

LUA = Path(classic.__file__).parent / "lua"


@pytest.fixture(params=[False, *more(True)], ids={False: "bytes", True: "str"}.get)
def conn(request, server, raw):
    """A client of redis-py, with decode_responses off and on. The Lua forms are loaded on the server."""
    with redis.Redis.from_url(server.url, decode_responses=request.param) as client:
        for path in LUA.glob("*.lua"):
            client.script_load(path.read_text())
        yield client


@pytest.fixture(params=[watch, classic], ids=["first", "lua"])
def form(request):
    """The package of the WATCH forms, and that of the Lua forms."""
    return request.param


@pytest.fixture
def proxy(server, raw):
    """The proxy between `resending` and the server."""
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def resending(proxy):
    """A client that retries once when a reply is lost, as redis-py does by default since version 6."""
    retry = Retry(NoBackoff(), 1)
    with redis.Redis.from_url(proxy.url, retry=retry, retry_on_error=[redis.ConnectionError]) as client:
        yield client


class Crash(BaseException):
    """Stands for the death of a process at a chosen moment."""


def crash():
    raise Crash


class Interrupted(redis.Redis):
    """A client that runs an act before certain commands: one act for each call, until there are none left.

    ``sent`` lists its round trips by the first word of each; a transaction is listed as EXEC.
    """

    def __init__(self, conn, **acts):
        super().__init__(connection_pool=conn.connection_pool)
        self.sent = []
        self.acts = {command: list(ones) for command, ones in acts.items()}

    def execute_command(self, *args, **options):
        self.record(args[0])
        return super().execute_command(*args, **options)

    def pipeline(self, transaction=True, shard_hint=None):  # noqa: FBT002 -- redis-py's signature
        pipe = InterruptedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.client = self
        return pipe

    def record(self, command):
        self.sent.append(command)
        if self.acts.get(command):
            self.acts[command].pop(0)()


class InterruptedPipeline(redis.client.Pipeline):
    def immediate_execute_command(self, *args, **options):
        self.client.record(args[0])
        return super().immediate_execute_command(*args, **options)

    def execute(self, raise_on_error=True):  # noqa: FBT002 -- redis-py's signature
        self.client.record("EXEC")
        return super().execute(raise_on_error)


def commands(raw):
    """Return how often the server ran each command since CONFIG RESETSTAT, commands inside scripts included."""
    return {name.removeprefix("cmdstat_"): found["calls"] for name, found in raw.info("commandstats").items()}
