"""The engine's scripts, called by hand: for one name and for several; with a clock that a test sets, or cut off."""

from __future__ import annotations

import contextlib
from hashlib import sha1

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from tests._support.helpers import eventually

NOW_US = 1_700_000_000_123_456
"""The first time that the clock shows."""

TTL_MS, CLAIM_MS, WAIT_MS = 300_000, 200_000, 700_000
"""The usual durations. They differ by more than a slow machine may lose while a test runs."""
TTL_US, CLAIM_US, WAIT_US = TTL_MS * 1000, CLAIM_MS * 1000, WAIT_MS * 1000

TOMBSTONE_US, TOMBSTONES_TTL_MS = 20_000_000, 80_000

MINUTE_MS, HOUR_MS, MONTH_MS = 60_000, 3_600_000, 30 * 86_400_000

GRACE_MS = {"holders": 2 * HOUR_MS, "queue": HOUR_MS, "tokens": HOUR_MS}
"""How much longer than their contents keys live. The scripts add up to a minute, which makes a raise rare."""

LIMIT_GRACE_MS = MONTH_MS - HOUR_MS
"""How much longer ``tokens`` lives where an operator has set a limit."""

LATE_MS = 25_000
"""How much later than its script a test may read a TTL."""

OUT_OF_MEMORY = "used memory > 'maxmemory'"

SET_CLOCK = """local server, seconds, micros = redis, '%d', '%d'
local redis = {pcall = server.pcall}
function redis.call(name, ...)
  if name == 'TIME' then
    return {seconds, micros}
  end
  return server.call(name, ...)
end
"""


class Clock:
    """A client whose scripts read this clock instead of the server's. It stands still until a test moves it."""

    def __init__(self, client):
        self._client = client
        self.now_us = NOW_US

    def __getattr__(self, name):
        return getattr(self._client, name)

    def execute_command(self, name, source, *rest):
        assert name == "EVAL"
        source = SET_CLOCK % divmod(self.now_us, 10**6) + source
        try:
            return self._client.execute_command("EVALSHA", sha1(source.encode()).hexdigest(), *rest)
        except redis.exceptions.NoScriptError:
            return self._client.execute_command("EVAL", source, *rest)


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


class Scripts:
    """Calls scripts with the argument names of their headers. A subclass's ``run`` knows the script and the keys of a verb."""

    def call(self, script, keys, args):
        """Run a script. Return the reply, a list that begins with its tag, and check it against the header.

        The last field of `queued`, the token's ticket, is kept in ``tickets`` instead.
        """
        token = args.get("token")
        argv = [args.pop(name) for name in script.header.args]
        assert not args
        reply = self.client.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert reply[0] in script.header.replies
        assert len(reply) == 1 + len(script.header.replies[reply[0]])
        if reply[0] == "queued":
            self.tickets[token] = reply.pop()
        return reply

    def release(self, token):
        return self.run("release", token=token)

    def cancel(self, token):
        return self.run("cancel", token=token)

    def renew(self, token, ttl=TTL_MS):
        return self.run("renew", token=token, ttl_ms=ttl)


class Engine(Scripts):
    """The scripts of one name, called with the argument names of their headers, and assertions on what they store."""

    def __init__(self, client, name="a", *, limit=1, kind="lock"):
        self.client = client
        self.place = KeySet("hf", kind, name)
        self.limit = limit
        self.tickets = {}
        self.next_start = "-inf"
        """The cursor of the last `revoke`: where the next one continues."""

    @property
    def engines(self):
        """The names, as `Several` has them."""
        return [self]

    def run(self, verb, **args):
        script = load(f"permit_{verb}")
        keys = [self.place.key(part) for part in script.header.keys if part != "more"]
        return self.call(script, keys, args)

    def acquire(
        self,
        token,
        weight=1,
        *,
        limit=None,
        ttl=TTL_MS,
        claim=CLAIM_MS,
        wait=WAIT_MS,
        inbox=None,
        max_waiters=1000,
        ticket=0,
        label="me",
    ):
        """Request permits. A waiter's inbox is ``inbox:<token>`` by default."""
        return self.run(
            "acquire",
            token=token,
            limit=limit or self.limit,
            weight=weight,
            ttl_ms=ttl,
            claim_ms=claim,
            wait_ms=wait,
            max_waiters=max_waiters,
            ticket=ticket,
            owner=f"{inbox or 'inbox:' + token} control:{token} {label}",
        )

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
        for part in PARTS:
            kind = self.client.type(self.key(part))
            read = {
                "zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
                "hash": self.client.hgetall,
                "string": self.client.get,
                "none": lambda _: None,
            }[kind]
            found[part] = read(self.key(part))
        return found

    def has(self, *, holders=(), queue=(), tombstones=(), **tokens):
        """Assert that exactly this is stored: scores by token, and the fields of ``tokens``."""
        found = self.dump()
        assert found["holders"] == (list(dict(holders).items()) or None)
        assert found["queue"] == (list(dict(queue).items()) or None)
        assert found["tombstones"] == (list(dict(tombstones).items()) or None)
        assert found["tokens"] == ({name: str(value) for name, value in tokens.items()} or None)

    def lives(self, **expected_ms):
        """Assert that exactly these keys exist, and that each outlives its contents, which last so many milliseconds."""
        found = {part: self.client.pttl(self.key(part)) for part in PARTS}
        assert {part for part, ms in found.items() if ms != -2} == set(expected_ms)
        for part, ms in expected_ms.items():
            longest = ms + (GRACE_MS[part] + MINUTE_MS if part in GRACE_MS else 0)
            assert longest - LATE_MS < found[part] <= longest, part

    def lose_record(self, *tokens):
        """Delete records, as an eviction would if it took single fields."""
        assert self.client.hdel(self.key("tokens"), *tokens) == len(tokens)

    def end_lease(self, token):
        """Let a lease expire without moving the clock."""
        assert self.client.zadd(self.key("holders"), {token: 1}, xx=True, ch=True)

    def end_wait(self, *tokens):
        """Let wait-leases lapse without moving the clock."""
        for token in tokens:
            weight, limit, claim_ms, _, rest = self.field(token).split(" ", 4)
            self.client.hset(self.key("tokens"), token, f"{weight} {limit} {claim_ms} 1 {rest}")

    def add_holders(self, count, *, fence=1, ends_us=NOW_US, step_us=0):
        """Store holders of one permit each, as if they had been granted with that fence one after another."""
        tokens = [f"{fence}:{ends_us}:{number:04}" for number in range(count)]
        record = f"1 5 1 0 {fence} 1 inbox control me"
        self.client.hset(self.key("tokens"), mapping=dict.fromkeys(tokens, record))
        self.client.zadd(self.key("holders"), {token: ends_us + n * step_us for n, token in enumerate(tokens)})
        self.client.hincrby(self.key("tokens"), "used", count)
        for part in ("tokens", "holders"):
            self.client.pexpire(self.key(part), HOUR_MS)


class Several(Scripts):
    """The scripts of several names, called with the argument names of their headers."""

    def __init__(self, client, names, *, kind="lock"):
        self.client = client
        self.tickets = {}
        self.engines = [Engine(client, name, kind=kind) for name in names]

    def run(self, verb, **args):
        script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
        keys = [engine.key(part) for engine in self.engines for part in PARTS]
        return self.call(script, keys, args)

    def acquire(self, token, *, ttl=TTL_MS, wait=WAIT_MS, inbox=None, max_waiters=1000, ticket=0):
        args = {"ttl_ms": ttl, "wait_ms": wait, "max_waiters": max_waiters, "ticket": ticket}
        owner = f"{inbox or 'inbox:' + token} control:{token} me"
        return self.run("acquire", token=token, owner=owner, **args)

    def holders(self):
        return [engine.holders() for engine in self.engines]

    def queues(self):
        return [engine.queue() for engine in self.engines]

    def fences(self, token):
        """Return the fence of each name's record."""
        return [fence_of(engine.field(token)) for engine in self.engines]

    def dump(self):
        return [engine.dump() for engine in self.engines]


class Mixed(Engine):
    """One name that is requested with both permit_acquire and multi_acquire."""

    def __init__(self, client):
        super().__init__(client, kind="semaphore")
        self._multi = Several(client, "a", kind="semaphore")

    def request(self, token, weight, limit, *, multi, ttl=TTL_MS, **options):
        if multi:
            return self._multi.acquire(token, ttl=ttl, **options)
        return self.acquire(token, weight, limit=limit, ttl=ttl, claim=ttl, **options)

    def look(self):
        """Return the reply of inspect, the holders with their deadlines, the queue, the fields of ``tokens``, and all TTLs."""
        pipe = self.client.pipeline()
        pipe.zrange(self.key("holders"), 0, -1, withscores=True)
        pipe.zrange(self.key("queue"), 0, -1)
        pipe.hgetall(self.key("tokens"))
        for part in PARTS:
            pipe.pttl(self.key(part))
        holders, queue, tokens, *ttls = pipe.execute()
        assert -1 not in ttls, f"a key has no TTL: {dict(zip(PARTS, ttls, strict=True))}"
        return self.inspect(), dict(holders), queue, tokens, dict(zip(PARTS, ttls, strict=True))


def fence_of(record):
    return int(record.split()[4])


def holding(token, weight, limit, lease_ms, *, at_us=NOW_US, fence=None):
    """Return the record of a holder that was granted at that time."""
    return f"{weight} {limit} {lease_ms} 0 {fence or at_us} {at_us} inbox:{token} control:{token} me"


def waiting(token, weight, limit, claim_ms, wait_ms=WAIT_MS, *, at_us=NOW_US, since_us=None):
    """Return the record of a waiter that last asked at that time."""
    until_us = at_us + wait_ms * 1000
    return f"{weight} {limit} {claim_ms} {until_us} 0 {since_us or at_us} inbox:{token} control:{token} me"


def waiting_for_several(token, wait_ms=WAIT_MS, **times_us):
    """Return the record of a waiter for several names."""
    return waiting(token, 1, 1, 0, wait_ms, **times_us)


def received(pubsub):
    """Wait for the next message and return its text."""
    message = pubsub.get_message(timeout=3)
    assert message, "no message came"
    return message["data"]


def silent(pubsub):
    """Return whether no message comes."""
    return pubsub.get_message(timeout=0.02) is None


def hang_up(client, pubsub, *tokens):
    """Close a subscription, as the end of the waiters' process would, and wait until the server knows."""
    pubsub.close()
    inboxes = [f"inbox:{token}" for token in tokens]
    eventually(lambda: not any(count for _, count in client.pubsub_numsub(*inboxes)))


def queue_dead_writers(rw, listening, count):
    """Let a reader hold, and queue that many dead writers, which do not fit, and a live reader behind them."""
    listening("alive")
    dead = [f"dead{number}" for number in range(count)]
    pubsub = listening(*dead)
    rw.acquire("held")
    for token in dead:
        rw.acquire(token, rw.limit)
    rw.acquire("alive")
    hang_up(rw.client, pubsub, *dead)


@contextlib.contextmanager
def refused(*states):
    """Assert that the block is refused at maxmemory and that nothing stored changes."""
    before = [state.dump() for state in states]
    with pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
        yield
    assert [state.dump() for state in states] == before


@contextlib.contextmanager
def unchanged(*states):
    """Assert that the block changes nothing stored."""
    before = [state.dump() for state in states]
    yield
    assert [state.dump() for state in states] == before
