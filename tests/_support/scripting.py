"""What the tests of `handfast.Script` share: scripts, clients and pipelines of both APIs, and counters of calls."""

from __future__ import annotations

import contextlib

from handfast import Script
from tests._support.helpers import settled

TAKE = Script(
    """
-- take: part of an amount.
--
-- KEYS account log
-- ARGV amount
-- REPLY taken left
-- REPLY short missing
local account, log = KEYS[1], KEYS[2]
local amount = tonumber(ARGV[1])
local have = tonumber(redis.call('GET', account) or '0')
if have < amount then
  return {'short', amount - have}
end
redis.call('RPUSH', log, amount)
return {'taken', redis.call('DECRBY', account, amount)}
""",
    name="take",
)
COUNT = Script("-- KEYS counter\nreturn redis.call('INCR', KEYS[1])", name="count")
ECHO = Script("return {KEYS, ARGV}", name="echo")
BOOM = Script("-- KEYS counter\nredis.call('INCR', KEYS[1])\nerror('boom')", name="boom")

OPTIONS = [{"decode_responses": decode, "protocol": protocol} for decode in (False, True) for protocol in (2, 3)]


def named(options):
    return f"{'str' if options['decode_responses'] else 'bytes'}-resp{options['protocol']}"


@contextlib.asynccontextmanager
async def made(api, url):
    client = api.handfast(url)
    try:
        yield client
    finally:
        await settled(client.close())


@contextlib.asynccontextmanager
async def pipeline(client, **options):
    """Open a pipeline of a client of either API, also of a cluster client."""
    async with contextlib.AsyncExitStack() as stack:
        pipe = client.pipeline(**options)
        yield await stack.enter_async_context(pipe) if hasattr(pipe, "__aenter__") else stack.enter_context(pipe)


def texts(value):
    """Return a reply with all its strings as bytes."""
    if isinstance(value, list):
        return [texts(item) for item in value]
    return value.encode() if isinstance(value, str) else value


class Sent:
    """Counts the EVAL and EVALSHA calls that the server has seen since this object was made."""

    def __init__(self, raw):
        self._raw = raw
        raw.config_resetstat()

    def __eq__(self, other):
        stats = self._raw.info("commandstats")
        return other == tuple(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))

    __hash__ = None

    def __repr__(self):
        return repr({name: found["calls"] for name, found in self._raw.info("commandstats").items()})
