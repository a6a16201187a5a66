"""Each script is cut off before each of its commands: the state is safe, and the script sent again ends its work (invariant 12)."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.script import load
from tests._support.engine import NOW_US, TTL_MS, WAIT_MS, runs_through

CALLS = {
    "acquire": ("acquire", {"token": "new", "weight": 2}),
    "acquire after its lease expired": ("acquire", {"token": "b", "weight": 1}),
    "try": ("acquire", {"token": "new", "weight": 1, "wait_ms": 0}),
    "release": ("release", {"token": "a"}),
    "release of a lost lease": ("release", {"token": "unknown"}),
    "release of a waiter": ("release", {"token": "large"}),
    "cancel": ("cancel", {"token": "a"}),
    "lower": ("lower", {"token": "a", "weight": 1}),
    "resize": ("resize", {"limit": 6}),
    "revoke": ("revoke", {"up_to_fence": 1 << 52, "reason": "test", "from": "-inf"}),
}
USUAL = {"limit": 4, "ttl_ms": TTL_MS, "claim_ms": TTL_MS, "wait_ms": WAIT_MS, "max_waiters": 100, "ticket": 0}


@pytest.mark.parametrize("call", CALLS)
def test_of_one_name_no_permit_is_out_twice_and_none_is_lost(make, raw, clock, listening, call):
    """A count may be too high while the name is in use, never too low."""
    listening("new", "w1", "w2", "large")
    verb, special = CALLS[call]
    script = load(f"permit_{verb}")
    engine = make(4)
    for token, weight in (("a", 2), ("b", 1), ("c", 1), ("dead", 2), ("w1", 1), ("large", 4), ("w2", 2)):
        engine.acquire(token, weight)
    engine.end_lease("b")
    engine.end_lease("c")
    parts = ("holders", "queue", "tokens")
    for part in parts:
        raw.copy(engine.key(part), f"{engine.key(part)}:before")
    keys = [engine.key(part) for part in script.header.keys if part != "more"]
    args = USUAL | {"owner": f"inbox:{special.get('token')} control me"} | special
    argv = [args[name] for name in script.header.args]
    done, commands = False, 0
    while not done:
        raw.delete(engine.key("tombstones"))
        for part in parts:
            raw.copy(f"{engine.key(part)}:before", engine.key(part), replace=True)
        done = runs_through(clock, script.source, keys, argv, commands)
        assert_counts_are_safe(engine)
        clock.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert_counts_are_safe(engine)
        for token in ("a", "b", "c", "dead", "w1", "large", "w2", "new"):
            engine.cancel(token)
        assert engine.holders() == engine.queue() == []
        assert set(raw.hkeys(engine.key("tokens"))) <= {"used", "fence", "limit"}
        assert engine.acquire("last", int(engine.field("limit") or 4), wait=0)[0] == "granted"
        commands += 1
    assert commands > 8


def assert_counts_are_safe(engine):
    holders = dict(engine.client.zrange(engine.key("holders"), 0, -1, withscores=True))
    weights = {token: int(engine.field(token).split()[0]) for token in holders}
    live = sum(weight for token, weight in weights.items() if holders[token] > NOW_US)
    assert live <= max(4, int(engine.field("limit") or 0))
    if holders:
        assert int(engine.field("used")) >= sum(weights.values())


# --- two names


def free(_both, _a, _b):
    """No name is held."""


def first_in_queue(both, a, b):
    a.acquire("h")
    both.acquire("x")
    b.acquire("s")
    a.end_lease("h")


def half_lost(both, a, _b):
    both.acquire("x")
    a.acquire("s")
    a.revoke(1 << 52)


def held_and_wanted(both, a, _b):
    both.acquire("x")
    both.acquire("y")
    a.acquire("s")


@pytest.mark.parametrize(
    ("verb", "scene"),
    [
        ("acquire", free),
        ("acquire", first_in_queue),
        ("acquire", half_lost),
        ("release", held_and_wanted),
        ("release", half_lost),
        ("cancel", held_and_wanted),
        ("cancel", first_in_queue),
        ("renew", held_and_wanted),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_of_two_names_neither_has_two_holders_and_none_is_lost(raw, both, listening, *, verb, scene):
    clock, (a, b) = both.client, both.engines
    listening("x", "y", "s")
    script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
    keys = [engine.key(part) for engine in both.engines for part in PARTS]
    args = USUAL | {"token": "x", "owner": "inbox:x control:x me"}
    argv = [args[name] for name in script.header.args]
    expected = {
        "acquire": ("granted",) if scene is free else ("granted", "queued"),
        "release": ("released", "lost"),
        "cancel": ("cancelled",),
        "renew": ("renewed",),
    }[verb]
    done, commands = False, 0
    while not done:
        raw.flushdb()
        scene(both, a, b)
        done = runs_through(clock, script.source, keys, argv, commands)
        assert_one_holder(a, b)
        reply = clock.execute_command("EVAL", script.source, len(keys), *keys, *argv)
        assert reply[0] in expected
        assert verb != "cancel" or reply[1] == 0
        assert_one_holder(a, b)
        assert len({"x" in engine.holders() for engine in (a, b)}) == 1, "all or none"
        for token in "xy":
            both.cancel(token)
        for engine in (a, b):
            for token in "hs":
                engine.cancel(token)
            assert engine.holders() == engine.queue() == []
            assert set(raw.hkeys(engine.key("tokens"))) <= {"used", "fence"}
        assert both.acquire("last", wait=0)[0] == "granted"
        commands += 1
    assert commands > 6


def assert_one_holder(*engines):
    for engine in engines:
        live = engine.client.zrangebyscore(engine.key("holders"), f"({NOW_US}", "+inf")
        assert len(live) <= 1
        if live:
            assert int(engine.field("used")) >= 1
