"""Each script is cut off before each of its commands: the state is safe, and the script sent again ends its work (invariant 12)."""

from __future__ import annotations

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.packing import doubles, read_reply
from handfast._engine.script import load
from tests._support.engine import CALLER, NOW_US, TTL_MS, WAIT_MS, runs_through, weight_of

SHORT_WAYS = {
    "acquire free": ("acquire", {"token": "new", "weight": 2}, []),
    "acquire full": ("acquire", {"token": "new", "weight": 2}, [("a", 2), ("b", 2)]),
    "acquire beside others": ("acquire", {"token": "new", "weight": 1}, [("a", 2), ("b", 1)]),
    "release alone": ("release", {"token": "a"}, [("a", 2)]),
    "release beside others": ("release", {"token": "b"}, [("a", 2), ("b", 1)]),
}
"""Calls, and the holders before."""

CROWD = [("a", 2), ("b", 1), ("c", 1), ("dead", 2), ("w1", 1), ("large", 4), ("w2", 2)]
CALLS = {
    "acquire": ("acquire", {"token": "new", "weight": 2}),
    "acquire after its lease expired": ("acquire", {"token": "b", "weight": 1}),
    "acquire in the queue": ("acquire", {"token": "w1", "weight": 1}),
    "try": ("acquire", {"token": "new", "weight": 1, "wait_ms": 0}),
    "release": ("release", {"token": "a"}),
    "release, copies": ("release", {"token": "a", "copies": "copies"}),
    "release of an unknown token": ("release", {"token": "unknown"}),
    "release of a waiter": ("release", {"token": "large"}),
    "cancel": ("cancel", {"token": "a"}),
    "renew": ("renew", {"token": "a"}),
    "lower": ("lower", {"token": "a", "weight": 1}),
    "resize": ("resize", {"limit": 6, "by": "me"}),
    "revoke": ("revoke", {"up_to_fence": 1 << 52, "reason": "test", "from": 0, "by": "me"}),
}
USUAL = {"ttl_ms": TTL_MS, "wait_ms": WAIT_MS, "max_waiters": 100, "ticket": 0}
USUAL |= {"weight": 1, "limit": 4, "claim_ms": TTL_MS, "caller": CALLER}
REQUEST = ("ttl_ms", "wait_ms", "max_waiters", "ticket")
WANTS = ("weight", "limit", "claim_ms", "caller")


def arguments(script, special):
    """Return the ARGV of a call, with the request and the record of the fields."""
    args = USUAL | special
    args["request"] = doubles(*(args[name] for name in REQUEST))
    channels = f"inbox:{args.get('token')} control:{args.get('token')} me"
    args["wants"] = doubles(*(args[name] for name in WANTS)) + channels.encode()
    return [args[name] for name in script.header.args if name in args]


@pytest.mark.parametrize("call", [*CALLS, *SHORT_WAYS])
def test_of_one_name_no_permit_is_out_twice_and_none_is_lost(make, raw, clock, listening, call):
    """A count may be too high while the name is in use, never too low."""
    listening("new", "w1", "w2", "large")
    verb, special, *before = (CALLS | SHORT_WAYS)[call]
    script = load(f"permit_{verb}")
    engine = make(4)
    engine.lost = True
    engine.acquire("warm")
    engine.release("warm")
    for token, weight in before[0] if before else CROWD:
        engine.acquire(token, weight)
    if not before:
        engine.end_lease("b")
        engine.end_lease("c")
    for part in PARTS:
        raw.copy(engine.key(part), f"{engine.key(part)}:before")
    keys, argv = [engine.key(part) for part in PARTS], arguments(script, special)
    done, commands = False, 0
    while not done:
        for part in PARTS:
            raw.delete(engine.key(part))
            raw.copy(f"{engine.key(part)}:before", engine.key(part))
        done = runs_through(clock, script.source, keys, argv, commands)
        assert_counts_are_safe(engine)
        clock.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True)
        assert_counts_are_safe(engine)
        for token in ("a", "b", "c", "dead", "w1", "large", "w2", "new"):
            engine.cancel(token)
        stored = engine.stored()
        assert (stored.holders, stored.queue) == ({}, {})
        replies = [engine.acquire("latest", stored.limit or 4, wait=0)[0] for _ in range(2)]
        assert replies[-1] == "granted", "a count that is too high is noticed by the first that is refused"
        commands += 1
    assert commands > 2


def assert_counts_are_safe(engine):
    stored = engine.stored()
    weights = {token: weight_of(stored.records[token]) for token in stored.holders if token in stored.records}
    assert sum(weights[token] for token in weights if stored.holders[token] > NOW_US) <= max(4, stored.limit)
    assert stored.used >= sum(weights.values())


# --- two names


def free(_both, _a, _b):
    """No name is held."""


def first_in_queue(both, a, b):
    a.acquire("h")
    both.acquire("x")
    b.acquire("z")
    a.end_lease("h")


def half_lost(both, a, _b):
    both.acquire("x")
    a.end_lease("x")
    a.acquire("z")


def held_and_wanted(both, a, _b):
    both.acquire("x")
    both.acquire("y")
    a.acquire("z")


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
    listening("x", "y", "z")
    script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
    keys = [engine.key(part) for engine in both.engines for part in PARTS]
    argv = arguments(script, {"token": "x", "weight": 1, "limit": 1, "claim_ms": 0})
    expected = {
        "acquire": ("granted",) if scene is free else ("granted", "queued"),
        "release": ("released", "unknown", "lost"),
        "cancel": ("cancelled",),
        "renew": ("renewed",),
    }[verb]
    done, commands = False, 0
    while not done:
        raw.flushdb()
        scene(both, a, b)
        done = runs_through(clock, script.source, keys, argv, commands)
        assert_one_holder(a, b)
        reply = read_reply(clock.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True))
        assert reply[0].decode() in expected
        assert verb != "cancel" or reply[1] == 0
        assert_one_holder(a, b)
        assert len({"x" in engine.holders() for engine in (a, b)}) == 1, "all or none"
        for token in "xy":
            both.cancel(token)
        for engine in (a, b):
            for token in "hz":
                engine.cancel(token)
            assert engine.holders() == engine.queue() == []
        assert both.acquire("latest", wait=0)[0] == "granted"
        commands += 1
    assert commands > 3


def assert_one_holder(*engines):
    for engine in engines:
        engine.lost = True
        stored = engine.stored()
        assert sum(end_us > NOW_US for end_us in stored.holders.values()) <= min(1, stored.used)
