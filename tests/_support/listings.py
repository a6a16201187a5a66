"""What the tests of the classic listings share: clients, both forms, and ways to make the bad moment happen.

A flaw that needs a certain order of events is forced, not waited for: a `Meddled` client stops before a command of its
choice and lets others go first, or dies there; clocks and pauses of the listings are set by the test.
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

LUA = Path(classic.__file__).parent / "lua"


@pytest.fixture(params=[False, True], ids=["bytes", "str"])
def conn(request, server, raw):
    """A client as a user of the listings has it, with decode_responses off and on. The server knows the Lua forms."""
    with redis.Redis.from_url(server.url, decode_responses=request.param) as client:
        for path in LUA.glob("*.lua"):
            client.script_load(path.read_text())
        yield client


@pytest.fixture(params=[watch, classic], ids=["first", "lua"])
def form(request):
    """The package with the first forms, and the one with the Lua forms."""
    return request.param


@pytest.fixture
def proxy(server, raw):
    """What stands between `resending` and the server."""
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def resending(proxy):
    """A client that asks once more when a reply was lost, as redis-py does by default since version 6."""
    retry = Retry(NoBackoff(), 1)
    with redis.Redis.from_url(proxy.url, retry=retry, retry_on_error=[redis.ConnectionError]) as client:
        yield client


class Crash(BaseException):
    """The end of a process, at a moment of our choice."""


def crash():
    raise Crash


class Meddled(redis.Redis):
    """A client to which something happens before it sends certain commands: one act each time, until they are used up.

    ``sent`` has its round trips, by the first word of each; a transaction is the word EXEC.
    """

    def __init__(self, conn, **acts):
        super().__init__(connection_pool=conn.connection_pool)
        self.sent = []
        self.acts = {command: list(ones) for command, ones in acts.items()}

    def execute_command(self, *args, **options):
        self.meet(args[0])
        return super().execute_command(*args, **options)

    def pipeline(self, transaction=True, shard_hint=None):  # noqa: FBT002 -- redis-py's signature
        pipe = MeddledPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        pipe.client = self
        return pipe

    def meet(self, command):
        self.sent.append(command)
        if self.acts.get(command):
            self.acts[command].pop(0)()


class MeddledPipeline(redis.client.Pipeline):
    def immediate_execute_command(self, *args, **options):
        self.client.meet(args[0])
        return super().immediate_execute_command(*args, **options)

    def execute(self, raise_on_error=True):  # noqa: FBT002 -- redis-py's signature
        self.client.meet("EXEC")
        return super().execute(raise_on_error)


def commands(raw):
    """How often the server ran each command since CONFIG RESETSTAT, those within scripts included."""
    return {name.removeprefix("cmdstat_"): found["calls"] for name, found in raw.info("commandstats").items()}
