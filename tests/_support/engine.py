"""The engine's scripts, called by hand: for one name and for several; with a clock that a test sets, or cut off."""

from __future__ import annotations

import contextlib
from hashlib import sha1
from math import inf
from struct import Struct, unpack, unpack_from
from typing import NamedTuple

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles, read_reply
from handfast._engine.records import encode_label
from handfast._engine.script import load
from tests._support.helpers import eventually

NOW_US = 1_700_000_000_123_456
"""The first time that the clock shows."""

TTL_MS, CLAIM_MS, WAIT_MS = 300_000, 200_000, 700_000
"""The usual durations. They differ by more than a slow machine may lose while a test runs."""
TTL_US, CLAIM_US, WAIT_US = TTL_MS * 1000, CLAIM_MS * 1000, WAIT_MS * 1000

TOMBSTONE_US, TOMBSTONES_TTL_MS = 20_000_000, 80_000

MINUTE_MS, HOUR_MS, MONTH_MS = 60_000, 3_600_000, 30 * 86_400_000

CALLER = 7
"""The number of the thread that makes all requests."""

QUEUED, FINISHED = -(2**52), 2**52
"""What is added to a ticket and to the end of a tombstone, for their scores."""

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

    def execute_command(self, name, source, *rest, **options):
        if name != "EVAL":
            return self._client.execute_command(name, source, *rest, **options)
        source = SET_CLOCK % divmod(self.now_us, 10**6) + source
        try:
            return self._client.execute_command("EVALSHA", sha1(source.encode()).hexdigest(), *rest, **options)
        except redis.exceptions.NoScriptError:
            return self._client.execute_command("EVAL", source, *rest, **options)


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
        client.execute_command("EVAL", CUT % calls + source, len(keys), *keys, *argv, NEVER_DECODE=True)
    except redis.ResponseError as error:
        if "cut off" not in str(error):
            raise
        return False
    return True


class Scripts:
    """Calls scripts with the argument names of their headers.

    A subclass's ``run`` knows the script and the keys of a verb.
    """

    load = staticmethod(load)

    def call(self, script, keys, args):
        """Run a script. Return the reply, a list that begins with its tag, and check it against the header.

        The last field of `queued`, the token's ticket, is kept in ``tickets`` instead.
        """
        token = args.get("token")
        options = args.pop("options", ())
        header = script.header
        argv = [args.pop(name) for name in header.args[: len(header.args) - header.more_args]] + [*options]
        assert not args
        raw = self.client.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True)
        tag, *values = read_reply(raw, getattr(self, "ttl_ms", 0))
        tag = tag.decode()
        assert tag in script.header.replies
        assert len(values) == len(script.header.replies[tag])
        if tag == "queued":
            self.tickets[token] = values.pop()
        return [tag, *values]

    def release(self, token, *, copies=False, at_least_us=0):
        options = ("copies" * copies, at_least_us) if copies or at_least_us else ()
        return self.run("release", token=token, options=options)

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
        self.next_start = 0
        """The cursor of the last `revoke`: where the next one continues."""
        self.lost = False
        """Whether `lose` has deleted a key."""

    @property
    def engines(self):
        """The names, as `Several` has them."""
        return [self]

    def run(self, verb, **args):
        return self.call(self.load(f"permit_{verb}"), [self.key(part) for part in PARTS], args)

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
        self.ttl_ms = ttl
        return self.run(
            "acquire",
            token=token,
            request=doubles(ttl, wait, max_waiters, ticket),
            wants=doubles(weight, limit or self.limit, claim, CALLER)
            + f"{inbox or 'inbox:' + token} control:{token} {label}".encode(),
        )

    def revoke(self, up_to_fence, reason="test", start=0, least_fence=0):
        bounds = {"up_to_fence": up_to_fence, "least_fence": least_fence, "from": start}
        *answer, self.next_start = self.run("revoke", reason=reason, by="web-1:7", **bounds)
        return answer

    def adopt(self, token, control="control:new", label="new"):
        return self.run("adopt", token=token, owner=f"{control} {encode_label(label)}")

    def lower(self, token, weight):
        return self.run("lower", token=token, weight=weight)

    def resize(self, limit):
        return self.run("resize", limit=limit, by="web-1:7")

    def inspect(self, max_shown=100):
        """Return the reply, with holders and waiters as flat lists of token, deadline or ticket, and record as text."""
        *numbers, _, _, _, holders, waiters = self.run("inspect", max_shown=max_shown)
        shown = []
        for rows, waits in ((holders, False), (waiters, True)):
            threes = zip(rows[::3], rows[1::3], rows[2::3], strict=True)
            shown.append(
                [
                    item
                    for token, score, record in threes
                    for item in (token.decode(), int(score), record and read_text(record, waits=waits))
                ]
            )
        return [*numbers, *shown]

    def key(self, part):
        return self.place.key(part)

    def stored(self):
        """Return what is stored of the name."""
        return read_stored(self.client, self.place, complete=not self.lost)

    def holders(self):
        """Return the tokens that hold, in the order in which their leases end."""
        return [*self.stored().holders]

    def queue(self):
        return [*self.stored().queue]

    def record(self, token):
        """Return a token's record as `holding` or `waiting` do; None where there is none."""
        return self.stored().records.get(token)

    def dump(self):
        """Return everything stored for the name, without the TTLs."""
        return self.stored()

    def has(self, *, holders=(), queue=(), tombstones=(), used=0, fence=0, limit=0, **records):
        """Assert that exactly this is stored: ends and tickets by token, and records. The counters may be any."""
        found = self.stored()
        counters = found.grants, found.waited
        assert (
            found._asdict()
            == Stored(dict(holders), dict(queue), dict(tombstones), records, used, fence, limit, *counters)._asdict()
        )
        assert [*found.queue] == [*dict(queue)]

    def lives(self, ms, *parts, limited=False):
        """Assert that exactly these keys exist, both by default, and how much longer than its contents each lives.

        It is an hour or two, or 30 days where an operator has set a limit.
        """
        parts, grace_ms = parts or PARTS, MONTH_MS if limited else HOUR_MS
        found = {part: self.client.pttl(self.key(part)) for part in PARTS}
        assert {part for part, left in found.items() if left != -2} == set(parts)
        for part in parts:
            assert ms + grace_ms - LATE_MS < found[part] <= ms + grace_ms + HOUR_MS, part

    def keep_us(self):
        """Return until when the keys live, as the state says."""
        return int(NUMBERS.unpack_from(hget(self.client, self.key("state"), "s"))[2])

    def lose(self, part):
        """Delete a key, as an eviction would."""
        self.client.delete(self.key(part))
        self.lost = True

    def lose_record(self, *tokens):
        """Delete the records of waiters, or of holders beside another, as an eviction would if it took single fields."""
        assert self.client.hdel(self.key("state"), *tokens) == len(tokens)

    def set_fence(self, fence):
        """Let the name have had that fence."""
        stored = hget(self.client, self.key("state"), "s")
        self.client.hset(self.key("state"), "s", stored[:8] + doubles(fence) + stored[16:])

    def lose_places(self, *tokens):
        """Drop waiters from the queue, as a release would whose script found no subscriber of theirs."""
        assert self.client.zrem(self.key("tokens"), *tokens) == len(tokens)
        assert self.client.hdel(self.key("state"), *tokens) == len(tokens)
        self.set_length(0)

    def set_length(self, length):
        """Note another length of the queue in the state."""
        stored = hget(self.client, self.key("state"), "s")
        self.client.hset(self.key("state"), "s", stored[:56] + doubles(length) + stored[64:])

    def end_lease(self, token):
        """Let a lease expire without moving the clock."""
        stored = hget(self.client, self.key("state"), "s")
        if token_of(stored) == token.encode():
            self.client.hset(self.key("state"), "s", doubles(1) + stored[8:])
            return
        assert self.client.zadd(self.key("tokens"), {token: 1}, xx=True, ch=True)
        out, _, *rest = unpack("<4d", hget(self.client, self.key("state"), "q"))
        self.client.hset(self.key("state"), "q", doubles(out, 1, *rest))

    def end_wait(self, *tokens):
        """Let wait-leases lapse without moving the clock."""
        for token in tokens:
            record = hget(self.client, self.key("state"), token)
            self.client.hset(self.key("state"), token, doubles(1) + record[8:])


class Several(Scripts):
    """The scripts of several names, called with the argument names of their headers."""

    def __init__(self, client, names, *, kind="lock"):
        self.client = client
        self.tickets = {}
        self.engines = [Engine(client, name, kind=kind) for name in names]

    def run(self, verb, **args):
        script = self.load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
        keys = [engine.key(part) for engine in self.engines for part in PARTS]
        return self.call(script, keys, args)

    def acquire(self, token, *, ttl=TTL_MS, wait=WAIT_MS, inbox=None, max_waiters=1000, ticket=0):
        self.ttl_ms = ttl
        wants = doubles(1, 1, 0, CALLER) + f"{inbox or 'inbox:' + token} control:{token} me".encode()
        return self.run("acquire", token=token, request=doubles(ttl, wait, max_waiters, ticket), wants=wants)

    def holders(self):
        return [engine.holders() for engine in self.engines]

    def queues(self):
        return [engine.queue() for engine in self.engines]

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
        """Return the reply of inspect, what is stored, and the TTLs."""
        ttls = {part: self.client.pttl(self.key(part)) for part in PARTS}
        assert -1 not in ttls.values(), f"a key has no TTL: {ttls}"
        return self.inspect(), self.stored(), ttls


READ = "return {redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')}"
"""Both keys of a name at one instant of the server."""


NUMBERS = Struct("<8d")
"""The numbers of the field ``s``."""


class Stored(NamedTuple):
    """What is stored of one name. Times are in microseconds."""

    holders: dict
    """The ends of leases by token, in their order; the token that gave its lease up last is none of them."""
    queue: dict
    """The tickets of waiters by token, in their order."""
    tombstones: dict
    """Their ends by token; an odd one says that a lease was taken away."""
    records: dict
    """By token, as `holding` and `waiting` write them."""
    used: int
    fence: int
    limit: int
    grants: int
    waited: int
    """The sum of how long granted tokens had waited."""


def read_stored(client, place, *, complete=True):
    """Read what is stored of one name. Check that its parts agree, if none was lost."""
    state, tokens = client.execute_command("EVAL", READ, 2, *map(place.key, PARTS), NEVER_DECODE=True)
    state = dict(zip(state[::2], state[1::2], strict=True))
    scores = {
        token.decode(): int(float(score)) for token, score in zip(tokens[::2], tokens[1::2], strict=True) if token
    }
    holders = {token: score for token, score in scores.items() if 0 < score < FINISHED}
    queue = {token: score - QUEUED for token, score in scores.items() if score < 0}
    tombstones = {token: score - FINISHED for token, score in scores.items() if score >= FINISHED}
    records = {
        field.decode(): read_text(record, waits=field.decode() in queue)
        for field, record in state.items()
        if field not in (b"s", b"q", b"last", b"over", b"pause")
    }
    out, limit, fence, grants, waited, inline = 0, 0, 0, 0, 0, {}
    if b"s" in state:
        lease_end, fence, _, extra, grants, waited, _, length = map(int, NUMBERS.unpack_from(state[b"s"]))
        assert length == len(queue) or not complete, "the length of the queue is wrong"
        assert (b"q" in state) == bool(extra) or not complete, "the field q is forgotten"
        if extra:
            out, _, limit, _ = unpack("<4d", state[b"q"])
        if lease_end:
            token = token_of(state[b"s"])
            inline = {token.decode(): lease_end}
            record = state[b"s"][NUMBERS.size + 1 + len(token) :]
            records[token.decode()] = read_text(record, waits=False)
            out += unpack_from("<d", record, 8)[0]
    holders = dict(sorted((holders | inline).items(), key=lambda item: item[::-1]))
    return Stored(
        holders, queue, tombstones, records, int(out) if out < inf else inf, fence, int(limit), grants, waited
    )


def hget(client, key, field):
    """Return a field as bytes."""
    return client.execute_command("HGET", key, field, NEVER_DECODE=True)


def token_of(text):
    """Return the token of the holder in the state."""
    return text[NUMBERS.size + 1 :][: text[NUMBERS.size]]


def read_text(record, *, waits):
    mark, weight, limit, claim_ms = map(int, unpack_from("<4d", record))
    return f"{'until' if waits else 'fence'} {mark} {weight} {limit} {claim_ms} {record[40:].decode()}"


def holding(token, weight, limit, claim_ms=CLAIM_MS, *, fence=NOW_US):
    """Return the record of a holder."""
    return f"fence {fence} {weight} {limit} {claim_ms} inbox:{token} control:{token} me"


def waiting(token, weight, limit, claim_ms=CLAIM_MS, wait_ms=WAIT_MS, *, at_us=NOW_US):
    """Return the record of a waiter that last asked at that time."""
    return f"until {at_us + wait_ms * 1000} {weight} {limit} {claim_ms} inbox:{token} control:{token} me"


def fence_of(record):
    return int(record.split()[1])


def weight_of(record):
    return int(record.split()[2])


def received(pubsub):
    """Wait for the next message and return its text."""
    message = pubsub.get_message(timeout=3)
    assert message, "no message came"
    return read_message(message["data"])


def heard(pubsub):
    """Return the messages that were sent until now."""
    pubsub.ping()
    messages = []
    while (message := pubsub.get_message(timeout=10))["type"] != "pong":
        messages.append(read_message(message["data"]))
    return messages


def read_message(data):
    """Return a message as text, with its numbers written out."""
    kind, token, rest = data.split(b" ", 2)
    numbers = " ".join(f"{number:.0f}" for number in unpack("<3d", rest)) if kind == b"granted" else rest.decode()
    return f"{kind.decode()} {token.decode()} {numbers}"


def silent(pubsub):
    """Return whether no message comes."""
    return pubsub.get_message(timeout=0.02) is None


def hang_up(client, pubsub, *tokens):
    """Close a subscription, as the end of the waiters' process would, and wait until the server knows."""
    pubsub.close()
    inboxes = [f"inbox:{token}" for token in tokens]
    eventually(lambda: not any(count for _, count in client.pubsub_numsub(*inboxes)))


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
