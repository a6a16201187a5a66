"""The scripts to the microsecond: with a clock that a test sets, all that they write and how long their keys live."""

from __future__ import annotations

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.script import load
from tests._support.helpers import Engine, eventually

NOW = 1_700_000_000_123_456
"""Where the clock stands at first, in µs."""

TTL, CLAIM, WAIT = 300_000, 200_000, 700_000
MINUTE, HOUR, MONTH = 60_000, 3_600_000, 30 * 86_400_000
"""In ms. They differ by more than a slow machine may lose."""

LONGER = {"holders": 2 * HOUR, "queue": HOUR, "tokens": HOUR, "tombstones": 0}
"""How much longer than what is in them keys live, in ms; a minute on top makes it a rare write to raise that."""

SLACK = 25_000

STOPPED = """local server, seconds, micros = redis, '%d', '%d'
local redis = {pcall = server.pcall}
function redis.call(name, ...)
  if name == 'TIME' then
    return {seconds, micros}
  end
  return server.call(name, ...)
end
"""


class Stopped:
    """A client for whose scripts time stands still until it is moved."""

    def __init__(self, client):
        self._client = client
        self.now = NOW

    def __getattr__(self, name):
        return getattr(self._client, name)

    def execute_command(self, name, source, *rest):
        assert name == "EVAL"
        return self._client.execute_command(name, STOPPED % divmod(self.now, 10**6) + source, *rest)


class Exact(Engine):
    """The scripts of one name under such a clock, and their arguments as short as can be."""

    def ask(self, token, weight=1, *, limit=None, ttl=TTL, claim=CLAIM, wait=WAIT, max_waiters=1000):
        usual, self.limit = self.limit, limit or self.limit
        try:
            return self.acquire(token, weight=weight, ttl=ttl, claim=claim, wait=wait, max_waiters=max_waiters)
        finally:
            self.limit = usual

    def lower(self, token, weight):
        return self.run("lower", token=token, weight=weight)

    def resize(self, limit):
        return self.run("resize", limit=limit)

    def record(self, token):
        return self.client.hget(self.key("tokens"), token)

    def field(self, name):
        return self.client.hget(self.key("tokens"), name)

    def has(self, *, holders=(), queue=(), tombstones=(), **tokens):
        """That just this is stored; records by their tokens."""
        found = self.dump()
        assert found["holders"] == (list(dict(holders).items()) or None)
        assert found["queue"] == (list(dict(queue).items()) or None)
        assert found["tombstones"] == (list(dict(tombstones).items()) or None)
        assert found["tokens"] == ({name: str(value) for name, value in tokens.items()} or None)

    def lives(self, **expected):
        """That the keys are these, and what is in them lasts so many ms."""
        found = {part: self.client.pttl(self.key(part)) for part in PARTS}
        assert {part for part, ms in found.items() if ms != -2} == set(expected)
        for part, ms in expected.items():
            longest = ms + (LONGER[part] + MINUTE if part != "tombstones" else 0)
            assert longest - SLACK < found[part] <= longest, part


def granted(token, weight, limit, lease_ms, *, at=NOW, fence=None):
    """The record of a grant that was given at that time."""
    return f"{weight} {limit} {lease_ms} 0 {fence or at} {at} inbox:{token} control:{token} me"


def waits(token, weight, limit, claim_ms, wait_ms, *, at=NOW, since=None):
    """The record of a waiter that was last seen at that time."""
    return f"{weight} {limit} {claim_ms} {at + wait_ms * 1000} 0 {since or at} inbox:{token} control:{token} me"


@pytest.fixture
def clock(raw):
    return Stopped(raw)


@pytest.fixture
def make(clock):
    """Makes the scripts of a semaphore with that limit."""
    return lambda limit=5, name="a": Exact(clock, name, limit=limit, kind="semaphore")


@pytest.fixture
def listening(raw):
    """Subscribe to inboxes and homes, so that their waiters count as alive."""
    subscribers = []

    def listen(*tokens):
        pubsub = raw.pubsub(ignore_subscribe_messages=True)
        subscribers.append(pubsub)
        channels = [f"{what}:{token}" for token in tokens for what in ("inbox", "control")]
        pubsub.subscribe(*channels)
        eventually(lambda: all(count for _, count in raw.pubsub_numsub(*channels)))
        return pubsub

    yield listen
    for pubsub in subscribers:
        pubsub.close()


def heard(pubsub):
    """What was rung next, word for word."""
    return eventually(lambda: pubsub.get_message(timeout=1))["data"]


def silent(pubsub):
    """Whether nothing was rung."""
    return pubsub.get_message(timeout=0.02) is None


def commands(raw):
    """How often the server ran each command since CONFIG RESETSTAT, for a script."""
    ran = {name.removeprefix("cmdstat_"): found["calls"] for name, found in raw.info("commandstats").items()}
    return {name: count for name, count in ran.items() if name not in ("eval", "config|resetstat", "config", "info")}


# --- a request that is granted


def test_what_a_grant_of_a_free_name_writes(make):
    engine = make()
    assert engine.ask("t1", 2) == ["granted", NOW, TTL * 1000]
    engine.has(
        holders={"t1": NOW + TTL * 1000},
        t1=granted("t1", 2, 5, TTL),
        used=2,
        fence=NOW,
    )
    engine.lives(holders=TTL, tokens=TTL)
    assert engine.inspect()[:3] == ["state", NOW, NOW]


def test_what_a_grant_beside_another_writes(make, clock):
    engine = make()
    engine.ask("t1", 2)
    assert engine.ask("t2", 1, limit=6, ttl=2 * TTL) == ["granted", NOW + 1, 2 * TTL * 1000]
    clock.now += 1000
    assert engine.ask("t3", 2, ttl=TTL) == ["granted", NOW + 1000, TTL * 1000]
    engine.has(
        holders={"t1": NOW + TTL * 1000, "t3": NOW + TTL * 1000 + 1000, "t2": NOW + 2 * TTL * 1000},
        t1=granted("t1", 2, 5, TTL),
        t2=granted("t2", 1, 6, 2 * TTL, fence=NOW + 1),
        t3=granted("t3", 2, 5, TTL, at=NOW + 1000),
        used=5,
        fence=NOW + 1000,
    )
    engine.lives(holders=2 * TTL, tokens=2 * TTL)


def test_what_a_grant_of_a_name_with_a_set_limit_writes(make):
    engine = make()
    assert engine.resize(3) == ["resized", 0]
    engine.has(limit=3)
    engine.lives(tokens=MONTH - HOUR)
    engine.client.pexpire(engine.key("tokens"), HOUR)
    assert engine.ask("t1", 3) == ["granted", NOW, TTL * 1000]
    engine.has(holders={"t1": NOW + TTL * 1000}, t1=granted("t1", 3, 5, TTL), used=3, fence=NOW, limit=3)
    engine.lives(holders=TTL, tokens=TTL + MONTH - HOUR)


def test_no_call_costs_more_commands_than_it_needs(raw, make, clock, listening):
    """The usual ones; a script that is to do more says so here."""
    clock.now += 1
    listening("t3", "t4")
    engine, other, both = make(1), make(5, "b"), Several(clock)

    def cost(call):
        raw.config_resetstat()
        call()
        return sum(commands(raw).values())

    assert {
        "a free lock": cost(lambda: engine.ask("t1")),
        "the same again": cost(lambda: engine.ask("t1")),
        "the first to wait": cost(lambda: engine.ask("t2")),
        "the next one": cost(lambda: engine.ask("t3")),
        "and one that asks again": cost(lambda: engine.ask("t3")),
        "a try": cost(lambda: engine.ask("try", wait=0)),
        "a renewal": cost(lambda: engine.renew("t1")),
        "a waiter that gives up": cost(lambda: engine.cancel("t2")),
        "a lock handed over": cost(lambda: engine.release("t1")),
        "the same again, too late": cost(lambda: engine.release("t1")),
        "a lock given back": cost(lambda: engine.release("t3")),
        "a free semaphore": cost(lambda: other.ask("t1", 3)),
        "the rest of it": cost(lambda: other.ask("t2", 2)),
        "a few permits given back": cost(lambda: other.lower("t1", 1)),
        "some permits given back": cost(lambda: other.release("t1")),
        "the last permits given back": cost(lambda: other.release("t2")),
        "a limit that is set": cost(lambda: other.resize(3)),
        "two free locks": cost(lambda: both.ask("t1")),
        "the same two again": cost(lambda: both.ask("t1")),
        "the first to wait for two": cost(lambda: both.ask("t3")),
        "and that asks for them again": cost(lambda: both.ask("t3")),
        "a try of two": cost(lambda: both.ask("try", wait=0)),
        "a renewal of two": cost(lambda: both.run("renew", "t1", TTL)),
        "two locks given back": cost(lambda: both.run("release", "t1")),
        "two locks taken in their turn": cost(lambda: both.ask("t3")),
    } == {
        "a free lock": 8,
        "the same again": 3,
        "the first to wait": 11,
        "the next one": 10,
        "and one that asks again": 10,
        "a try": 5,
        "a renewal": 7,
        "a waiter that gives up": 9,
        "a lock handed over": 13,
        "the same again, too late": 5,
        "a lock given back": 5,
        "a free semaphore": 8,
        "the rest of it": 9,
        "a few permits given back": 7,
        "some permits given back": 9,
        "the last permits given back": 5,
        "a limit that is set": 6,
        "two free locks": 18,
        "the same two again": 10,
        "the first to wait for two": 35,
        "and that asks for them again": 31,
        "a try of two": 39,
        "a renewal of two": 11,
        "two locks given back": 22,
        "two locks taken in their turn": 43,
    }


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("limit", [0, 3])
def test_a_name_whose_leases_were_forgotten_begins_afresh(make, clock, raw, several, limit):
    """Nobody gave back what is known of them, and it does not stay for as long as the name is used."""
    engine, both = make(), Several(clock)
    engine = both.engines[0] if several else engine
    if limit:
        engine.resize(limit)
    for token in ("old1", "old2"):
        engine.limit = 5
        engine.ask(token)
    raw.delete(engine.key("holders"))
    asks = (lambda: both.ask("new")) if several else (lambda: engine.ask("new"))
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        asks()
    assert engine.dump() == before
    raw.config_set("maxmemory", 0)
    assert asks() == ["granted", NOW + 2, TTL * 1000]
    engine.has(
        holders={"new": NOW + TTL * 1000},
        new=granted("new", 1, 1 if several else 5, TTL, fence=NOW + 2),
        used=1,
        fence=NOW + 2,
        **({"limit": limit} if limit else {}),
    )


def test_a_holder_whose_record_was_evicted_begins_anew_but_not_at_maxmemory(make, clock, raw):
    engine = make(1)
    engine.ask("t1")
    raw.delete(engine.key("tokens"))
    clock.now += 1
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.ask("t1")
    assert engine.ask("other", wait=0) == ["busy", TTL * 1000 - 1], "to be told no takes no memory"
    assert engine.dump() == before
    raw.config_set("maxmemory", 0)
    assert engine.ask("t1") == ["granted", NOW + 1, TTL * 1000]
    engine.has(
        holders={"t1": NOW + 1 + TTL * 1000},
        t1=granted("t1", 1, 1, TTL, fence=NOW + 1, at=NOW + 1),
        used=1,
        fence=NOW + 1,
    )


def test_a_short_way_is_open_only_where_nobody_holds_and_nobody_waits(make, listening):
    engine = make(1)
    listening("t2")
    engine.ask("t1")
    engine.ask("t2")
    engine.client.delete(engine.key("holders"))
    assert engine.ask("t3", wait=0)[0] == "busy"
    assert engine.holders() == ["t2"]


# --- a request that waits


def test_what_a_request_that_waits_writes_and_hears(make, clock, listening):
    engine = make()
    listening("t2", "t3")
    engine.ask("t1", 4)
    clock.now += 1_000
    assert engine.ask("t2", 2) == ["queued", NOW + 1_000, 0, TTL * 1000 - 1_000]
    clock.now += 1_000
    assert engine.ask("t3", 1, limit=6) == ["queued", NOW + 2_000, 1, TTL * 1000 - 2_000]
    engine.has(
        holders={"t1": NOW + TTL * 1000},
        queue={"t2": 1, "t3": 2},
        t1=granted("t1", 4, 5, TTL),
        t2=waits("t2", 2, 5, CLAIM, WAIT, at=NOW + 1_000),
        t3=waits("t3", 1, 6, CLAIM, WAIT, at=NOW + 2_000),
        used=4,
        fence=NOW,
    )
    engine.lives(holders=TTL, queue=WAIT, tokens=WAIT + CLAIM)


def test_a_waiter_that_asks_again_moves_the_end_of_its_wait_only(make, clock, listening):
    engine = make()
    listening("t2", "t3", "t4")
    engine.ask("t1", 5)
    for token in ("t2", "t3"):
        engine.ask(token)
    clock.now += 5_000_000
    assert engine.ask("t3", wait=WAIT + 1000) == ["queued", NOW + 5_000_000, 1, TTL * 1000 - 5_000_000]
    assert engine.record("t3") == waits("t3", 1, 5, CLAIM, WAIT + 1000, at=NOW + 5_000_000, since=NOW)
    assert engine.ask("t4")[2] == 2
    engine.cancel("t2")
    engine.ask("t3")
    assert engine.ask("t4")[2] == 1
    assert engine.dump()["queue"] == [("t3", 2), ("t4", 3)]


def test_a_line_lives_as_long_as_the_longest_wait_in_it(make):
    engine = make(1)
    engine.ask("t1", ttl=1000)
    engine.resize(1)
    engine.ask("t2", wait=WAIT, claim=CLAIM)
    engine.lives(holders=1000, queue=WAIT, tokens=WAIT + CLAIM + MONTH - HOUR)


@pytest.mark.parametrize("ended", [1, NOW + TTL * 1000])
def test_a_token_whose_lease_is_over_waits_from_then_on(make, clock, listening, ended):
    engine = make(2)
    listening("t1")
    engine.ask("t1")
    engine.ask("t2", ttl=2 * TTL)
    engine.client.zadd(engine.key("holders"), {"t1": ended})
    clock.now += TTL * 1000
    assert engine.ask("t1", 2) == ["queued", clock.now, 0, TTL * 1000]
    engine.has(
        holders={"t2": NOW + 2 * TTL * 1000},
        queue={"t1": 1},
        t1=waits("t1", 2, 2, CLAIM, WAIT, at=clock.now),
        t2=granted("t2", 1, 2, 2 * TTL, fence=NOW + 1),
        used=1,
        fence=NOW + 1,
    )


def test_a_lease_is_over_at_its_last_microsecond_for_whoever_asks(make, clock):
    engine = make(1)
    engine.ask("t1")
    clock.now += TTL * 1000 - 1
    assert engine.ask("t1") == ["granted", NOW, 1]
    assert engine.renew("t1", 1) == ["renewed", 1000]
    assert engine.ask("t2", wait=0) == ["busy", 1000]
    clock.now += 1000
    assert engine.inspect()[4:7] == [0, 0, 0]
    assert engine.renew("t1") == ["lost"]
    assert engine.lower("t1", 1) == ["lost"]
    assert engine.ask("t1") == ["granted", clock.now, TTL * 1000]
    clock.now += TTL * 1000
    assert engine.ask("t2", wait=0) == ["granted", clock.now, TTL * 1000]


def test_a_wait_is_over_behind_its_last_microsecond(make, clock, listening):
    engine = make(1)
    listening("t2", "t3")
    engine.ask("t1", ttl=2 * WAIT)
    engine.ask("t2")
    engine.ask("t3", wait=2 * WAIT)
    clock.now += WAIT * 1000
    assert engine.ask("t4", max_waiters=2) == ["full", 2], "nobody lapsed yet"
    engine.release("t1")
    assert engine.holders() == ["t2"]
    engine.cancel("t2")
    assert engine.holders() == ["t3"]
    engine.ask("t5")
    clock.now += WAIT * 1000 + 1
    engine.release("t3")
    assert engine.holders() == engine.queue() == []


# --- what is answered to those who are turned away


def test_a_try_is_told_when_the_next_lease_ends_and_writes_nothing_down(make, clock, listening):
    engine = make()
    listening("t3")
    engine.ask("t1", 2, ttl=2 * TTL)
    engine.ask("t2", 2)
    clock.now += 1_000
    before = engine.dump()
    assert engine.ask("try", 2, wait=0) == ["busy", TTL * 1000 - 1_000]
    assert engine.dump() == before
    engine.ask("t3", 2)
    before = engine.dump()
    assert engine.ask("try", 1, wait=0) == ["busy", TTL * 1000 - 1_000], "who waits is before it"
    assert engine.dump() == before
    clock.now += TTL * 1000
    assert engine.ask("try", 3, wait=0) == ["busy", CLAIM * 1000], "who waited has its permits now"


def crowd(engine, count, *, weight=1, ends=NOW):
    """Holders whose leases end then, as if they had been granted one by one."""
    tokens = [f"{ends}:{number:03}" for number in range(count)]
    record = f"{weight} 5 1 0 1 1 inbox home me"
    engine.client.hset(engine.key("tokens"), mapping=dict.fromkeys(tokens, record))
    engine.client.zadd(engine.key("holders"), dict.fromkeys(tokens, ends))
    engine.client.hincrby(engine.key("tokens"), "used", count * weight)
    for part in ("tokens", "holders"):
        engine.client.pexpire(engine.key(part), HOUR)


def test_a_hundred_leases_that_are_over_are_swept_up_in_one_call(make):
    engine = make(150)
    crowd(engine, 101, ends=NOW - 5)
    engine.client.copy(engine.key("tokens"), "tokens:before")
    engine.client.copy(engine.key("holders"), "holders:before")
    assert engine.ask("all", 150) == ["queued", NOW, 0, 0], "there are more of them"
    engine.client.delete(engine.key("queue"))
    for part in ("tokens", "holders"):
        engine.client.rename(f"{part}:before", engine.key(part))
    assert engine.ask("all", 150, wait=0) == ["busy", 0], "there are more of them"
    assert len(engine.holders()) == 1
    assert engine.field("used") == "1"
    crowd(engine, 99, ends=NOW - 7)
    assert engine.ask("all", 150, wait=0)[0] == "granted"


def test_a_try_is_told_of_a_lease_that_is_not_over(make, clock):
    engine = make()
    engine.ask("t1", 2)
    engine.ask("t2", 3, ttl=2 * TTL)
    clock.now += TTL * 1000
    assert engine.ask("try", 3, wait=0) == ["busy", TTL * 1000]
    engine.has(
        holders={"t2": NOW + 2 * TTL * 1000}, t2=granted("t2", 3, 5, 2 * TTL, fence=NOW + 1), used=3, fence=NOW + 1
    )


def test_what_is_over_and_lost_its_record_is_nothing_once_nobody_else_holds(make, clock):
    engine = make()
    engine.ask("t1", 4)
    engine.client.hdel(engine.key("tokens"), "t1")
    clock.now += TTL * 1000
    assert engine.ask("t2", 5, wait=0)[0] == "granted"
    assert engine.field("used") == "5"


def test_a_try_behind_a_hundred_who_are_gone_may_come_back_at_once(make):
    engine = make(1)
    engine.ask("t1")
    for number in range(100):
        engine.ask(f"dead{number}")
    engine.client.delete(engine.key("holders"))
    assert engine.ask("try", wait=0) == ["busy", 0]
    assert engine.queue() == engine.holders() == []
    assert engine.record("try") is None
    assert engine.ask("try", wait=0)[0] == "granted"


def test_what_never_fits_is_told_so_and_takes_its_leave(make, clock, listening):
    engine = make()
    listening("t2", "t3")
    engine.ask("t1", 5)
    engine.ask("t2", 4)
    engine.ask("t3", 1)
    engine.resize(3)
    assert engine.ask("t2", 4) == ["exceeds_limit", 3]
    engine.has(
        holders={"t1": NOW + TTL * 1000},
        queue={"t3": 2},
        t1=granted("t1", 5, 5, TTL),
        t3=waits("t3", 1, 5, CLAIM, WAIT),
        used=5,
        fence=NOW,
        limit=3,
    )
    assert engine.ask("t4", 4) == ["exceeds_limit", 3]
    assert engine.ask("t4", 3, max_waiters=1) == ["full", 1]
    assert engine.ask("t4", 3, max_waiters=2)[0] == "queued"


# --- giving back, and handing over


def test_what_a_release_writes_where_nobody_waits(make):
    engine = make()
    engine.ask("t1", 2)
    engine.ask("t2", 3)
    assert engine.release("t1") == ["released", 0]
    engine.has(
        holders={"t2": NOW + TTL * 1000},
        tombstones={"t1": NOW + 20_000_000},
        t2=granted("t2", 3, 5, TTL, fence=NOW + 1),
        used=3,
        fence=NOW + 1,
    )
    engine.lives(holders=TTL, tokens=TTL, tombstones=80_000)
    assert engine.release("t2") == ["released", 0]
    engine.has(tombstones={"t1": NOW + 20_000_000, "t2": NOW + 20_000_000}, fence=NOW + 1)


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "lower"])
def test_what_is_handed_over_and_what_its_next_owner_hears(make, clock, listening, verb):
    engine = make()
    inbox, home, _ = listening("t2"), listening("t1"), listening("t3")
    engine.ask("t1", 4)
    engine.ask("t2", 3, limit=4)
    engine.ask("t3", 3)
    clock.now += 3
    if verb == "revoke":
        assert engine.revoke(NOW, "two words") == ["revoked", 1, 0]
        assert heard(home) == "revoked t1 two words"
    elif verb == "lower":
        assert engine.lower("t1", 1) == ["lowered", 0]
    else:
        assert engine.run(verb, token="t1")[1] == 0
    assert heard(inbox) == f"granted t2 {NOW + 3} {NOW + 3} {CLAIM * 1000}"
    kept = {"t1": NOW + TTL * 1000} if verb == "lower" else {}
    engine.has(
        holders={"t2": NOW + 3 + CLAIM * 1000} | kept,
        queue={"t3": 2},
        tombstones={"t1": NOW + 3 + 20_000_000} if verb in ("release", "cancel") else {},
        **({"t1": granted("t1", 1, 5, TTL)} if verb == "lower" else {}),
        t2=granted("t2", 3, 4, CLAIM, at=NOW + 3),
        t3=waits("t3", 3, 5, CLAIM, WAIT),
        used=4 if verb == "lower" else 3,
        fence=NOW + 3,
    )
    kept = TTL if verb == "lower" else CLAIM
    tombstones = {"tombstones": 80_000} if verb in ("release", "cancel") else {}
    engine.lives(holders=kept, queue=WAIT, tokens=WAIT + CLAIM, **tombstones)


def test_what_is_swept_up_by_whoever_gives_back(make, clock, listening):
    engine = make()
    listening("t4")
    for token, weight in (("t1", 2), ("t2", 1), ("t3", 1)):
        engine.ask(token, weight, ttl=TTL if token == "t1" else 3 * TTL)
    engine.ask("t4", 4, ttl=TTL)
    clock.now += TTL * 1000
    assert engine.release("t2") == ["released", 0]
    engine.has(
        holders={"t4": clock.now + CLAIM * 1000, "t3": NOW + 3 * TTL * 1000},
        tombstones={"t2": clock.now + 20_000_000},
        t3=granted("t3", 1, 5, 3 * TTL, fence=NOW + 2),
        t4=granted("t4", 4, 5, CLAIM, at=clock.now),
        used=5,
        fence=clock.now,
    )


def test_the_shortest_claim_is_one(make, listening):
    engine = make(1)
    inbox = listening("t2")
    engine.ask("t1")
    engine.ask("t2", claim=1)
    engine.release("t1")
    assert heard(inbox) == f"granted t2 {NOW + 1} {NOW} 1000"
    assert engine.dump()["holders"] == [("t2", NOW + 1000)]


def test_a_waiter_that_nobody_hears_leaves_no_permit_behind(make, listening):
    engine = make()
    inbox = listening("t3")
    engine.ask("t0", 1)
    engine.ask("t1", 4)
    engine.ask("t2", 4)
    engine.ask("t3", 3)
    assert engine.release("t1") == ["released", 0]
    assert heard(inbox) == f"granted t3 {NOW + 3} {NOW} {CLAIM * 1000}"
    assert engine.field("used") == "4"
    assert engine.record("t2") is None
    assert engine.holders() == ["t3", "t0"]


def test_a_waiter_who_asks_for_too_much_hears_that_it_should_ask(make, clock, listening):
    engine = make()
    inbox = listening("t2")
    engine.ask("t1", 4)
    engine.ask("t2", 4)
    clock.now += 7
    assert engine.resize(3) == ["resized", 0]
    assert heard(inbox) == f"granted t2 0 {NOW + 7} 0"
    engine.has(holders={"t1": NOW + TTL * 1000}, t1=granted("t1", 4, 5, TTL), used=4, fence=NOW, limit=3)


def test_whoever_asks_is_handed_its_whole_ttl(make, clock, listening):
    engine = make()
    inbox = listening("t2", "t3")
    engine.ask("t1", 5)
    engine.ask("t2", 2)
    engine.ask("t3", 2, limit=4)
    clock.now += TTL * 1000
    assert engine.ask("t3", 2, limit=4, ttl=2 * TTL) == ["granted", clock.now + 1, 2 * TTL * 1000]
    assert heard(inbox) == f"granted t2 {clock.now} {clock.now} {CLAIM * 1000}"
    assert silent(inbox)
    engine.has(
        holders={"t2": clock.now + CLAIM * 1000, "t3": clock.now + 2 * TTL * 1000},
        t2=granted("t2", 2, 5, CLAIM, at=clock.now),
        t3=granted("t3", 2, 4, 2 * TTL, at=clock.now, fence=clock.now + 1),
        used=4,
        fence=clock.now + 1,
    )


def test_a_hundred_heads_are_served_in_one_call(make, listening):
    engine = make(1)
    engine.ask("t1")
    for number in range(100):
        engine.ask(f"dead{number}")
    listening("t2")
    engine.ask("t2")
    assert engine.release("t1") == ["released", 1]
    assert engine.queue() == ["t2"]
    assert engine.release("t1") == ["released", 0]
    assert engine.holders() == ["t2"]
    for number in range(100):
        engine.ask(f"gone{number}")
    assert engine.release("t2") == ["released", 1], "so many it looked at; that nobody is left it does not know"
    assert engine.queue() == []


GIVING = {
    "release": lambda engine: engine.release("t1"),
    "cancel": lambda engine: engine.cancel("t1"),
    "lower": lambda engine: engine.lower("t1", 1),
    "resize": lambda engine: engine.resize(9),
    "revoke": lambda engine: engine.revoke(NOW),
    "acquire": lambda engine: engine.ask("t1", limit=9),
}


@pytest.mark.parametrize("verb", GIVING)
def test_a_grant_that_is_handed_over_has_a_fence_above_all_before_it(make, listening, verb):
    engine = make()
    inbox = listening("t2")
    engine.ask("t1", 4)
    engine.ask("t2", 4)
    engine.client.hset(engine.key("tokens"), "fence", NOW + 10**6)
    if verb == "acquire":
        engine.client.zadd(engine.key("holders"), {"t1": NOW})
    GIVING[verb](engine)
    assert heard(inbox).startswith(f"granted t2 {NOW + 10**6 + 1} {NOW} ")
    assert engine.field("fence") == str(NOW + 10**6 + (2 if verb == "acquire" else 1))


@pytest.mark.parametrize("verb", ["release", "cancel", "revoke", "end", "ask"])
def test_a_lease_without_a_record_is_not_counted_out(make, verb):
    """What it had nobody knows: too much is held until the name is empty, and never too little."""
    engine = make()
    engine.ask("t1", 2)
    engine.ask("t2", 2)
    engine.client.hdel(engine.key("tokens"), "t1")
    if verb == "end":
        engine.client.zadd(engine.key("holders"), {"t1": NOW})
        assert engine.inspect()[4:7] == [4, 1, 0]
    {
        "release": lambda: engine.release("t1"),
        "cancel": lambda: engine.cancel("t1"),
        "revoke": lambda: engine.revoke(NOW),
        "end": lambda: engine.cancel("t3"),
        "ask": lambda: engine.ask("t1", 2, wait=0),
    }[verb]()
    assert engine.field("used") == "4"
    assert engine.holders() == (["t1", "t2"] if verb == "ask" else ["t2"])


# --- what is over is remembered


def bury(engine, token):
    assert engine.cancel(token) == ["cancelled", 0]


@pytest.mark.parametrize("step", [-1, 1, 9, 48])
def test_what_is_over_for_long_is_forgotten_now_and_then(make, clock, step):
    engine = make()
    clock.now = NOW + step
    assert (clock.now % 16 == 0) == (step == 48)
    old = {f"old{number:03}": clock.now - 200 + number for number in range(100)}
    rest = {"over": clock.now, "not yet": clock.now + 1}
    engine.client.zadd(engine.key("tombstones"), old | rest)
    bury(engine, "new")
    left = {"new": clock.now + 20_000_000} | rest | (old if step != 48 else {})
    assert dict(engine.dump()["tombstones"]) == left
    bury(engine, "another")
    assert ("over" in dict(engine.dump()["tombstones"])) == (step != 48)
    assert "not yet" in dict(engine.dump()["tombstones"])
    engine.lives(tombstones=80_000)


def test_nothing_is_forgotten_where_nothing_is_old(make, clock):
    engine = make()
    assert clock.now % 16 == 0
    bury(engine, "one")
    bury(engine, "two")
    engine.has(tombstones={"one": NOW + 20_000_000, "two": NOW + 20_000_000})


# --- a full line


def test_a_hundred_places_of_lapsed_waiters_are_found_in_one_call(make, clock):
    engine = make(1)
    engine.ask("t1", ttl=2 * WAIT)
    for number in range(101):
        engine.ask(f"lapsed{number:03}")
    clock.now += WAIT * 1000 + 1
    assert engine.ask("t2", max_waiters=1) == ["full", 1]
    assert engine.queue() == ["lapsed100"]
    engine.has(
        holders={"t1": NOW + 2 * WAIT * 1000},
        queue={"lapsed100": 101},
        t1=granted("t1", 1, 1, 2 * WAIT),
        lapsed100=waits("lapsed100", 1, 1, CLAIM, WAIT),
        used=1,
        fence=NOW,
    )
    assert engine.ask("t2", max_waiters=1) == ["queued", clock.now, 0, (2 * WAIT - WAIT) * 1000 - 1]
    assert engine.dump()["queue"] == [("t2", 102)]


def test_a_place_without_a_record_is_no_place(make):
    engine = make(1)
    engine.ask("t1")
    engine.ask("lost")
    engine.client.hdel(engine.key("tokens"), "lost")
    assert engine.ask("t2", max_waiters=1)[:3] == ["queued", NOW, 0]
    assert engine.queue() == ["t2"]


def test_at_maxmemory_no_room_is_made(make, clock, raw):
    engine = make(1)
    engine.ask("t1", ttl=2 * WAIT)
    engine.ask("lapsed")
    clock.now += WAIT * 1000 + 1
    raw.config_set("maxmemory", 1)
    before = engine.dump()
    with pytest.raises(redis.ResponseError, match="used memory > 'maxmemory'"):
        engine.ask("t2", max_waiters=1)
    assert engine.dump() == before


# --- renewing


@pytest.mark.parametrize("limit", [0, 3])
def test_a_renewal_keeps_what_belongs_to_the_lease(make, clock, limit):
    engine = make()
    engine.ask("t1", 5)
    engine.ask("t2", 2)
    if limit:
        engine.resize(limit)
    for part in ("holders", "tokens", "queue"):
        engine.client.pexpire(engine.key(part), 1000)
    clock.now += 1000
    assert engine.renew("t1", 2 * TTL) == ["renewed", 2 * TTL * 1000]
    memory = MONTH if limit else HOUR
    engine.lives(holders=2 * TTL, queue=2 * TTL, tokens=2 * TTL + memory - HOUR)
    engine.has(
        holders={"t1": clock.now + 2 * TTL * 1000},
        queue={"t2": 1},
        t1=granted("t1", 5, 5, TTL),
        t2=waits("t2", 2, 5, CLAIM, WAIT),
        used=5,
        fence=NOW,
        **({"limit": limit} if limit else {}),
    )
    assert engine.renew("t1", 1) == ["renewed", 2 * TTL * 1000]
    engine.lives(holders=2 * TTL, queue=2 * TTL, tokens=2 * TTL + memory - HOUR)


# --- revoking


def test_only_leases_up_to_the_fence_are_revoked(make, listening):
    engine = make()
    homes = listening("t1", "t2")
    engine.ask("t1", 2)
    engine.ask("t2", 1)
    assert engine.revoke(NOW - 1) == ["revoked", 0, 0]
    assert engine.revoke(NOW, "why not") == ["revoked", 1, 0]
    assert engine.next_start == "+inf"
    assert heard(homes) == "revoked t1 why not"
    assert silent(homes)
    engine.has(holders={"t2": NOW + TTL * 1000}, t2=granted("t2", 1, 5, TTL, fence=NOW + 1), used=1, fence=NOW + 1)
    engine.client.hdel(engine.key("tokens"), "t2")
    assert engine.revoke(0) == ["revoked", 1, 0], "of a lease without a record nobody knows that it should stay"
    assert engine.holders() == []


def test_what_is_revoked_is_handed_to_as_many_as_the_limit_that_was_set_lets_in(make, listening):
    engine = make(5)
    listening("t2", "t3")
    engine.ask("t1", 5)
    engine.resize(1)
    engine.ask("t2")
    engine.ask("t3")
    assert engine.revoke(NOW) == ["revoked", 1, 0]
    assert (engine.holders(), engine.queue()) == (["t2"], ["t3"])


def test_what_is_revoked_is_handed_over_even_where_its_count_was_lost(make, listening):
    engine = make(1)
    listening("t2")
    engine.ask("t1")
    engine.client.hdel(engine.key("tokens"), "used")
    engine.ask("t2")
    assert engine.revoke(NOW) == ["revoked", 1, 0]
    assert engine.holders() == ["t2"]


def test_a_lease_that_is_over_is_swept_up_and_not_revoked_also_at_maxmemory(make, clock, listening, raw):
    engine = make()
    homes = listening("t1", "t2")
    engine.ask("t1", 2)
    engine.ask("t2", 1, ttl=2 * TTL)
    clock.now += TTL * 1000
    raw.config_set("maxmemory", 1)
    assert engine.revoke(NOW + 1) == ["revoked", 1, 0]
    assert heard(homes) == "revoked t2 test"
    assert silent(homes)
    engine.has(fence=NOW + 1)


def test_a_crowd_with_one_end_is_passed(make):
    engine = make(5000)
    end = NOW + 1_000_000
    crowd(engine, 999, ends=end)
    assert engine.revoke(0) == ["revoked", 0, 0]
    crowd(engine, 1000, ends=end)
    assert engine.revoke(0) == ["revoked", 0, 1]
    assert engine.next_start == str(end)
    assert engine.revoke(0, start=str(end)) == ["revoked", 0, 1]
    assert engine.next_start == f"({end}"
    crowd(engine, 1, ends=end + 1)
    assert engine.revoke(1, start=f"({end}") == ["revoked", 1, 0]
    assert engine.revoke(1, start=str(end)) == ["revoked", 1000, 1]


# --- looking


def test_what_is_seen_of_a_name(make, clock, listening):
    engine = make()
    listening("waiting-1", "waiting-2")
    engine.ask("holding-1", 2, ttl=TTL)
    engine.ask("holding-2", 1, ttl=2 * TTL)
    engine.ask("holding-3", 1, ttl=3 * TTL)
    engine.ask("waiting-1", 4)
    engine.ask("waiting-2", 1)
    clock.now += TTL * 1000
    ends = [str(NOW + times * TTL * 1000) for times in (2, 3)]
    records = [engine.record(f"holding-{number}") for number in (2, 3)]
    first, second = ([f"holding-{n}"[:8], ends[n - 2], records[n - 2]] for n in (2, 3))
    queued = [part for n in (1, 2) for part in (f"waiting-{n}"[:8], str(n), engine.record(f"waiting-{n}"))]
    before = engine.dump()
    assert engine.inspect() == ["state", clock.now, NOW + 2, 0, 2, 2, 2, first + second, queued]
    assert engine.inspect(1) == ["state", clock.now, NOW + 2, 0, 2, 2, 2, first, queued[:3]]
    assert engine.dump() == before
    engine.client.hdel(engine.key("tokens"), "holding-3", "waiting-1")
    found = engine.inspect()
    assert found[7][3:] == ["holding-", ends[1], ""]
    assert found[8][:3] == ["waiting-", "1", ""]


def test_a_thousand_leases_that_are_over_are_seen_as_over(make):
    engine = make(5000)
    crowd(engine, 1001)
    engine.client.zadd(engine.key("holders"), {f"{NOW}:000": NOW + 1})
    assert engine.inspect(0)[4:] == [1, 1, 0, [], []]
    crowd(engine, 2, ends=NOW - 1)
    assert engine.inspect(0)[4:] == [3, 1, 0, [], []]


def test_an_empty_name_is_seen_as_empty(make):
    assert make().inspect() == ["state", NOW, 0, 0, 0, 0, 0, [], []]


# --- several names


class Several:
    """The scripts for several names, under such a clock."""

    def __init__(self, client, names="ab"):
        self.client = client
        self.engines = [Exact(client, name) for name in names]

    def run(self, verb, *argv):
        keys = [engine.key(part) for engine in self.engines for part in PARTS]
        return self.client.execute_command(
            "EVAL", load("multi_acquire" if verb == "acquire" else f"permit_{verb}").source, len(keys), *keys, *argv
        )

    def ask(self, token, *, ttl=TTL, wait=WAIT, max_waiters=1000):
        return self.run("acquire", token, ttl, wait, max_waiters, f"inbox:{token} control:{token} me")

    def dump(self):
        return [engine.dump() for engine in self.engines]


@pytest.fixture
def both(clock):
    return Several(clock)


@pytest.fixture
def a(both):
    return both.engines[0]


@pytest.fixture
def b(both):
    return both.engines[1]


def stands(token, wait_ms, *, at=NOW, since=None, until=None):
    """The record of a waiter that wants several names."""
    return f"1 1 0 {until or at + wait_ms * 1000} 0 {since or at} inbox:{token} control:{token} me"


def test_what_a_grant_of_several_free_names_writes(both, a, b, clock):
    b.ask("t0")
    clock.now += 10
    b.release("t0")
    b.client.hset(b.key("tokens"), "fence", NOW + 50)
    assert both.ask("t1") == ["granted", NOW + 51, TTL * 1000]
    for engine in (a, b):
        assert engine.dump()["holders"] == [("t1", NOW + 10 + TTL * 1000)]
        assert engine.record("t1") == granted("t1", 1, 1, TTL, at=NOW + 10, fence=NOW + 51)
        assert (engine.field("used"), engine.field("fence")) == ("1", str(NOW + 51))
    a.lives(holders=TTL, tokens=TTL)
    clock.now += 5
    before = both.dump()
    assert both.ask("t1") == ["granted", NOW + 51, TTL * 1000 - 5]
    assert both.dump() == before


def test_a_lease_of_several_ends_with_the_first_of_them(both, a, b, clock):
    both.ask("t1")
    a.renew("t1", 2 * TTL)
    clock.now += 7
    assert both.ask("t1") == ["granted", NOW, TTL * 1000 - 7]
    b.renew("t1", 3 * TTL)
    assert both.ask("t1") == ["granted", NOW, 2 * TTL * 1000 - 7]
    a.client.hset(a.key("tokens"), "t1", granted("t1", 1, 1, TTL, fence=NOW + 9))
    assert both.ask("t1")[1] == NOW + 9
    b.client.hset(b.key("tokens"), "t1", granted("t1", 1, 1, TTL, fence=NOW + 11))
    assert both.ask("t1")[1] == NOW + 11


def test_what_one_that_waits_for_several_writes(both, a, b, clock, listening):
    listening("t2", "t3")
    a.ask("t1")
    b.ask("t0", ttl=2 * TTL)
    b.ask("t3")
    clock.now += 1000
    assert both.ask("t2") == ["queued", NOW + 1000, 1, 2 * TTL * 1000 - 1000]
    a.has(
        holders={"t1": NOW + TTL * 1000},
        queue={"t2": 1},
        t1=granted("t1", 1, 1, TTL),
        t2=stands("t2", WAIT, at=NOW + 1000),
        used=1,
        fence=NOW,
    )
    b.has(
        holders={"t0": NOW + 2 * TTL * 1000},
        queue={"t3": 1, "t2": 2},
        t0=granted("t0", 1, 1, 2 * TTL),
        t3=waits("t3", 1, 1, CLAIM, WAIT),
        t2=stands("t2", WAIT, at=NOW + 1000),
        used=1,
        fence=NOW,
    )
    a.lives(holders=TTL, queue=WAIT, tokens=WAIT + TTL)
    clock.now += 1000
    assert both.ask("t2", wait=2 * WAIT) == ["queued", NOW + 2000, 1, 2 * TTL * 1000 - 2000]
    assert a.record("t2") == b.record("t2") == stands("t2", 2 * WAIT, at=NOW + 2000, since=NOW + 1000)
    assert b.dump()["queue"] == [("t3", 1), ("t2", 2)]


def test_whoever_wants_several_and_is_rung_has_two_seconds(both, a, b, clock, listening):
    inbox = listening("t2")
    a.ask("t1")
    b.ask("t0")
    both.ask("t2")
    clock.now += 1
    assert a.release("t1") == ["released", 0]
    assert heard(inbox) == f"granted t2 0 {NOW + 1} 0"
    assert a.record("t2") == stands("t2", WAIT, since=NOW, until=NOW + 1 + 2_000_000)
    assert a.queue() == ["t2"]
    for later in (0, 1_000_000):
        clock.now += later
        a.ask("t3")
        assert silent(inbox), "it was rung already"
    assert a.record("t2") == stands("t2", WAIT, since=NOW, until=NOW + 1 + 2_000_000)
    assert a.ask("try", wait=0) == ["busy", -1]
    assert a.queue() == ["t2", "t3"]
    clock.now += 1_000_000
    assert a.ask("try", wait=0) == ["busy", -1]
    clock.now += 1
    inbox.close()
    assert a.ask("t3")[0] == "granted"


def test_whoever_wants_several_and_will_not_wait_long_is_not_given_longer(both, a, b, clock, listening):
    inbox = listening("t2")
    a.ask("t1")
    b.ask("t0")
    both.ask("t2", wait=2001)
    a.release("t1")
    assert heard(inbox) == f"granted t2 0 {NOW} 0"
    assert a.record("t2") == stands("t2", 2000)
    a.cancel("t2")
    b.cancel("t2")
    a.ask("t5")
    both.ask("t3", wait=2000)
    listening("t3")
    a.release("t5")
    assert a.record("t3") == stands("t3", 2000)


def test_whoever_wants_several_and_does_not_hear_it_uses_no_fence_up(both, a, b):
    a.ask("t1")
    both.ask("dead")
    assert a.release("t1") == ["released", 0]
    a.has(tombstones={"t1": NOW + 20_000_000}, fence=NOW)
    assert b.queue() == ["dead"]


def test_whoever_wants_several_takes_them_when_all_are_free(both, a, b, clock, listening):
    listening("t2")
    a.ask("t1")
    b.ask("t0")
    both.ask("t2")
    a.release("t1")
    assert both.ask("t2") == ["queued", NOW, 0, TTL * 1000], "one of them is not"
    clock.now += 5
    b.release("t0")
    assert both.ask("t2", ttl=2 * TTL) == ["granted", NOW + 5, 2 * TTL * 1000]
    for engine, token in ((a, "t1"), (b, "t0")):
        tombstones = NOW + 20_000_000 + (5 if engine is b else 0)
        engine.has(
            holders={"t2": NOW + 5 + 2 * TTL * 1000},
            tombstones={token: tombstones},
            t2=granted("t2", 1, 1, 2 * TTL, at=NOW + 5),
            used=1,
            fence=NOW + 5,
        )


def test_one_that_is_turned_away_from_several_is_told_when_to_come_back(both, a, b, clock):
    a.ask("t1", ttl=2 * TTL)
    b.ask("t0")
    clock.now += 9
    before = both.dump()
    assert both.ask("try", wait=0) == ["busy", 2 * TTL * 1000 - 9], "the last of them counts"
    assert both.dump() == before
    a.release("t1")
    before = both.dump()
    assert both.ask("try", wait=0) == ["busy", TTL * 1000 - 9]
    assert both.dump() == before


def test_of_several_lines_the_longest_may_be_full(both, a, b, clock, listening):
    listening("t2", "t3", "t4")
    a.ask("t1", ttl=2 * WAIT)
    b.ask("t0", ttl=2 * WAIT)
    a.ask("t2")
    for token in ("t3", "t4"):
        b.ask(token)
    before = both.dump()
    assert both.ask("t5", max_waiters=2) == ["full", 2]
    assert both.ask("t5", max_waiters=1) == ["full", 2]
    assert both.dump() == before
    clock.now += WAIT * 1000 + 1
    assert Several(both.client, "ba").ask("t5", max_waiters=1)[0] == "queued"
    assert a.queue() == b.queue() == ["t5"]
    assert both.ask("t6", max_waiters=1) == ["full", 1]


@pytest.mark.parametrize("full", [0, 1])
def test_whichever_of_several_lines_is_full(both, listening, full):
    listening("t2", "t3")
    for engine in both.engines:
        engine.ask("t1")
    for token in ("t2", "t3"):
        both.engines[full].ask(token)
    assert both.ask("t4", max_waiters=2) == ["full", 2]
    assert both.ask("t4", max_waiters=3) == ["queued", NOW, 2, TTL * 1000]


def test_a_lease_of_several_is_over_at_its_last_microsecond(both, a, b, clock):
    both.ask("t1")
    clock.now += TTL * 1000
    assert both.ask("t1") == ["granted", clock.now, TTL * 1000]


def test_several_that_were_waited_for_get_a_fence_above_all_that_they_had(both, a, b, listening):
    listening("t2")
    a.ask("t1")
    both.ask("t2")
    a.release("t1")
    b.client.hset(b.key("tokens"), "fence", NOW + 100)
    assert both.ask("t2")[:2] == ["granted", NOW + 101]


def test_a_name_with_a_set_limit_keeps_it_among_several(both, a, b, clock):
    a.resize(3)
    assert both.ask("t1")[0] == "granted"
    a.lives(holders=TTL, tokens=TTL + MONTH - HOUR)
    a.ask("t2", ttl=2 * TTL)
    b.revoke(NOW + 9)
    b.ask("t3", ttl=2 * TTL)
    assert both.ask("t1") == ["queued", NOW, 0, 2 * TTL * 1000]
    a.has(
        holders={"t2": NOW + 2 * TTL * 1000},
        queue={"t1": 1},
        t1=stands("t1", WAIT),
        t2=granted("t2", 1, 1, 2 * TTL, fence=NOW + 1),
        used=1,
        fence=NOW + 1,
        limit=3,
    )


def test_one_of_several_whose_count_was_lost_is_taken(both, a, b):
    b.ask("t1")
    b.client.hdel(b.key("tokens"), "used")
    assert both.ask("t2") == ["queued", NOW, 0, TTL * 1000]


def test_one_that_has_several_begins_anew_where_its_records_were_evicted(clock, both, a):
    both.ask("t1")
    a.client.delete(a.key("tokens"))
    clock.now += 1
    assert both.ask("t1") == ["granted", NOW + 1, TTL * 1000]
    assert a.holders() == ["t1"]


def test_who_waits_behind_one_that_was_rung_is_not_told_when_to_come_back(clock, both, a, b, listening):
    listening("t2", "t3")
    a.ask("t1")
    b.ask("t0")
    both.ask("t2")
    a.release("t1")
    assert Several(clock, "ac").ask("t3") == ["queued", NOW, 0, -1]


@pytest.mark.parametrize("held", [False, True])
def test_who_waits_behind_a_hundred_who_are_gone_is_to_come_back_at_once(both, a, b, held):
    a.ask("t1")
    for number in range(100):
        a.ask(f"dead{number:03}")
    a.client.delete(a.key("holders"))
    if held:
        b.ask("t0")
    assert both.ask("t2") == ["queued", NOW, 0, 0]
    assert both.ask("t2") == (["queued", NOW, 0, TTL * 1000] if held else ["granted", NOW + 101, TTL * 1000])


def test_a_release_of_several_writes_what_is_left(both, a, b, clock, listening):
    inbox = listening("t2")
    both.ask("t1")
    b.ask("t2")
    clock.now += 3
    assert both.run("release", "t1") == ["released", 0]
    assert heard(inbox) == f"granted t2 {NOW + 3} {NOW + 3} {CLAIM * 1000}"
    a.has(tombstones={"t1": NOW + 3 + 20_000_000}, fence=NOW)
    b.has(
        holders={"t2": NOW + 3 + CLAIM * 1000},
        tombstones={"t1": NOW + 3 + 20_000_000},
        t2=granted("t2", 1, 1, CLAIM, at=NOW + 3),
        used=1,
        fence=NOW + 3,
    )
    b.lives(holders=CLAIM, tokens=WAIT + CLAIM, tombstones=80_000)


def test_a_cancel_of_several_writes_what_is_left(both, a, b, clock):
    a.ask("t1")
    both.ask("t2")
    clock.now += 3
    assert both.run("cancel", "t2") == ["cancelled", 0]
    a.has(
        holders={"t1": NOW + TTL * 1000},
        tombstones={"t2": NOW + 3 + 20_000_000},
        t1=granted("t1", 1, 1, TTL),
        used=1,
        fence=NOW,
    )
    b.has(tombstones={"t2": NOW + 3 + 20_000_000})


@pytest.mark.parametrize("verb", ["release", "cancel"])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_given_back_of_a_name_with_more_permits_is_what_is_known_of_it(both, a, listening, verb, known):
    inbox = listening("t3")
    a.resize(3)
    both.ask("t1")
    a.ask("t2", 2)
    a.ask("t3", 1)
    a.client.hset(a.key("tokens"), "fence", NOW + 500)
    if not known:
        a.client.hdel(a.key("tokens"), "t1")
    assert both.run(verb, "t1")[1] == 0
    assert a.holders() == (["t3", "t2"] if known else ["t2"])
    assert a.field("used") == "3"
    if known:
        assert heard(inbox) == f"granted t3 {NOW + 501} {NOW} {CLAIM * 1000}"


@pytest.mark.parametrize("verb", ["release", "cancel"])
@pytest.mark.parametrize("crowded", [0, 1])
def test_a_crowd_in_one_of_several_lines_is_told_of(both, verb, crowded):
    """However many there are to serve in the others."""
    both.ask("t1")
    for number in range(100):
        both.engines[crowded].ask(f"dead{number:03}")
    assert both.run(verb, "t1")[1] == 1
    assert both.engines[crowded].queue() == []
    assert both.run(verb, "t1")[1] == 0


def test_after_a_crowd_the_lines_behind_it_wait_for_the_next_call(both, a, b, listening):
    listening("t2")
    both.ask("t1")
    for number in range(100):
        a.ask(f"dead{number:03}")
    b.ask("t2")
    assert both.run("release", "t1") == ["released", 1]
    assert b.queue() == ["t2"]
    assert both.run("release", "t1") == ["released", 0]
    assert b.holders() == ["t2"]


def test_a_renewal_of_several_keeps_what_belongs_to_them(both, a, b, clock):
    both.ask("t1")
    both.ask("t2")
    b.renew("t1", 3 * TTL)
    for engine in (a, b):
        for part in ("holders", "tokens", "queue"):
            engine.client.pexpire(engine.key(part), 1000)
    clock.now += 1000
    assert both.run("renew", "t1", 2 * TTL) == ["renewed", 2 * TTL * 1000]
    for engine, deadline in ((a, clock.now + 2 * TTL * 1000), (b, NOW + 3 * TTL * 1000)):
        assert engine.dump()["holders"] == [("t1", deadline)]
        engine.lives(holders=2 * TTL, queue=2 * TTL, tokens=2 * TTL)
    clock.now += 2 * TTL * 1000
    assert both.run("renew", "t1", 1) == ["lost"], "the first one is over to the microsecond"
