"""Helpers of several folders: wait for a condition, call the engine's scripts by hand, cut a script off."""

from __future__ import annotations

import asyncio
import inspect
import os
import time

import pytest
import redis

from handfast._engine.keys import KeySet
from handfast._engine.script import load

TTL_MS = 30_000
WAIT_MS = 60_000


def eventually(condition, within=10.0):
    """Wait until the condition is true and return its value. Fails after ``within`` seconds."""
    until = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < until, f"still false after {within} s"
        time.sleep(0.002)
    return value


def without_coverage():
    """Return this environment for a process that is interrupted at random, which would strike the measuring, too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def until_alone(raw):
    """Wait until the server has noticed that all other connections are closed."""
    eventually(lambda: len(raw.client_list()) == 1)


async def eventually_async(condition, within=10.0):
    """Do what `eventually` does, in a coroutine. The condition may be a coroutine function."""
    until = time.monotonic() + within
    while not (value := await settled(condition())):
        assert time.monotonic() < until, f"still false after {within} s"
        await asyncio.sleep(0.002)
    return value


async def settled(value):
    """Await the value if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def slow_only(*values):
    """Mark values of a parameter as slow: more of the same kind. A tuple is a set of several parameters."""
    return [pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.slow) for value in values]


def quick_ends(options):
    """Mark all but the first and the last combination of options as slow: each value of each option stays quick."""
    return [options[0], *slow_only(*options[1:-1]), options[-1]]


CUT = """local left, server = %d, redis
local redis = {error_reply = server.error_reply, status_reply = server.status_reply}
for _, name in ipairs({'call', 'pcall'}) do
  redis[name] = function(...)
    if left == 0 then
      error('cut off')
    end
    left = left - 1
    return server[name](...)
  end
end
"""


def runs_through(client, source, keys, argv, calls):
    """Run a script that fails in place of its call number ``calls`` + 1. Return whether it reached its end before."""
    try:
        client.execute_command("EVAL", CUT % calls + source, len(keys), *keys, *argv)
    except redis.ResponseError as error:
        if "cut off" not in str(error):
            raise
        return False
    return True


class Engine:
    """The scripts of one name, called with the argument names of their headers."""

    def __init__(self, client, name="a", *, limit=1, kind="lock"):
        self.client = client
        self.place = KeySet("hf", kind, name)
        self.limit = limit
        self.next_start = "-inf"
        """The cursor of the last `revoke`: where the next one continues."""

    def run(self, verb, **args):
        """Run a script with arguments by name. Return the reply, a list that begins with its tag."""
        script = load(f"permit_{verb}")
        keys = [self.place.key(part) for part in script.header.keys if part != "more"]
        argv = [args.pop(name) for name in script.header.args]
        assert not args
        reply = self.client.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert reply[0] in script.header.replies
        assert len(reply) == 1 + len(script.header.replies[reply[0]])
        return reply

    def acquire(
        self,
        token,
        weight=1,
        *,
        limit=None,
        ttl=TTL_MS,
        claim=None,
        wait=WAIT_MS,
        inbox=None,
        max_waiters=1000,
        label="me",
    ):
        """Request permits. A waiter's inbox is ``inbox:<token>`` by default."""
        return self.run(
            "acquire",
            token=token,
            limit=limit or self.limit,
            weight=weight,
            ttl_ms=ttl,
            claim_ms=ttl if claim is None else claim,
            wait_ms=wait,
            max_waiters=max_waiters,
            owner=f"{inbox or 'inbox:' + token} control:{token} {label}",
        )

    def release(self, token):
        return self.run("release", token=token)

    def cancel(self, token):
        return self.run("cancel", token=token)

    def renew(self, token, ttl=TTL_MS):
        return self.run("renew", token=token, ttl_ms=ttl)

    def revoke(self, up_to_fence, reason="test", start="-inf"):
        *answer, self.next_start = self.run("revoke", up_to_fence=up_to_fence, reason=reason, **{"from": start})
        return answer

    def lower(self, token, weight):
        return self.run("lower", token=token, weight=weight)

    def resize(self, limit):
        return self.run("resize", limit=limit)

    def inspect(self, max_shown=100):
        return self.run("inspect", max_shown=max_shown)

    def key(self, part):
        return self.place.key(part)

    def holders(self):
        return self.client.zrange(self.key("holders"), 0, -1)

    def queue(self):
        return self.client.zrange(self.key("queue"), 0, -1)

    def field(self, name):
        """Return a field of ``tokens``: the record of a token, ``used``, ``fence`` or ``limit``."""
        return self.client.hget(self.key("tokens"), name)

    def dump(self):
        """Return everything stored for the name, without the TTLs."""
        found = {}
        for part in ("holders", "queue", "tokens", "tombstones"):
            kind = self.client.type(self.key(part))
            read = {
                "zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
                "hash": self.client.hgetall,
                "string": self.client.get,
                "none": lambda _: None,
            }[kind]
            found[part] = read(self.key(part))
        return found


def wall_clock():
    """Return a lower and an upper bound of the wall clock's lead over the monotonic clock, in seconds."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return (wall - after) / 1e9, (wall - before) / 1e9
