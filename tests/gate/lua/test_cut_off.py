"""Each script is cut off before each of its commands: the state is safe, and the script sent again ends its work (invariant 12)."""

from __future__ import annotations

import pytest

from handfast._engine.calls import ANY_HOLD, PARTS
from handfast._engine.packing import doubles, read_reply
from handfast._engine.script import load
from tests._support.engine import CALLER, NOW_US, TTL_MS, WAIT_MS, hget, runs_through, weight_of

REVOKE, FENCES = {"reason": "test", "from": 0, "by": "me"}, ("least_fence", "up_to_fence")

FEW_HOLDERS = {
    "acquire free": ("acquire", {"token": "new", "weight": 2}, []),
    "acquire full": ("acquire", {"token": "new", "weight": 2}, [("a", 2), ("b", 2)]),
    "acquire beside others": ("acquire", {"token": "new", "weight": 1}, [("a", 2), ("b", 1)]),
    "release alone": ("release", {"token": "a"}, [("a", 2)]),
    "release beside others": ("release", {"token": "b"}, [("a", 2), ("b", 1)]),
    "confirm alone": ("confirm", {"token": "a"}, [("a", 2)]),
    "adopt alone": ("adopt", {"token": "a", "owner": "control:new me"}, [("a", 2)]),
    "adopt beside others": ("adopt", {"token": "b", "owner": "control:new me"}, [("a", 2), ("b", 1)]),
    "revoke one beside others": ("revoke", REVOKE | dict.fromkeys(FENCES, NOW_US + 2), [("a", 2), ("b", 1), ("c", 1)]),
}
"""Calls, and the holders before."""

HOLD_MS = 500
HOLD = {"ttl_ms": HOLD_MS, "grace_ms": -1, "by": "me", "reason": "test", "owner": "- - me"}
UNHOLD = HOLD | {"ttl_ms": 0}
CROWD = [("a", 2), ("b", 1), ("c", 1), ("dead", 2), ("w1", 1), ("large", 4), ("w2", 2)]
CALLS = {
    "acquire": ("acquire", {"token": "new", "weight": 2}),
    "acquire after its lease expired": ("acquire", {"token": "b", "weight": 1}),
    "acquire in the queue": ("acquire", {"token": "w1", "weight": 1}),
    "try": ("acquire", {"token": "new", "weight": 1, "wait_ms": 0}),
    "release": ("release", {"token": "a"}),
    "release, copies": ("release", {"token": "a", "options": ("copies",)}),
    "release of an unknown token": ("release", {"token": "unknown"}),
    "release of a waiter": ("release", {"token": "large"}),
    "cancel": ("cancel", {"token": "a"}),
    "renew": ("renew", {"token": "a"}),
    "confirm": ("confirm", {"token": "a"}),
    "adopt": ("adopt", {"token": "a", "owner": "control:new me"}),
    "lower": ("lower", {"token": "a", "weight": 1}),
    "resize": ("resize", {"limit": 6, "by": "me"}),
    "overtake": ("overtake", {"token": "w2", "grace_ms": 5_000, "by": "me", "reason": "test"}),
    "overtake at once": ("overtake", {"token": "large", "grace_ms": 0, "by": "me", "reason": "test"}),
    "replace": ("overtake", {"token": "w2", "grace_ms": -1, "by": "", "reason": ""}),
    "hold": ("hold", {"ttl_ms": TTL_MS, "grace_ms": -1, "by": "me", "reason": "test", "owner": "- - me"}),
    "hold, in place of another": ("hold", HOLD | {"ttl_ms": TTL_MS}),
    "unhold": ("hold", UNHOLD),
    "unhold, of the one that was shown": ("hold", UNHOLD | {"shown_us": NOW_US + HOLD_MS * 1000}),
    "hold, asking": ("hold", {"ttl_ms": TTL_MS, "grace_ms": 0, "by": "me", "reason": "test", "owner": "- - me"}),
    "revoke": ("revoke", REVOKE | {"up_to_fence": 1 << 52, "least_fence": 0}),
    "revoke one": ("revoke", REVOKE | dict.fromkeys(FENCES, NOW_US + 1)),
}
USUAL = {"ttl_ms": TTL_MS, "wait_ms": WAIT_MS, "max_waiters": 100, "ticket": 0}
USUAL |= {"weight": 1, "limit": 4, "claim_ms": TTL_MS, "caller": CALLER}
REQUEST = ("ttl_ms", "wait_ms", "max_waiters", "ticket")
WANTS = ("weight", "limit", "claim_ms", "caller")


INBOXES = {"classic": "inbox:{}", "sharded": "inbox:{{x}}{}"}


def arguments(script, special, inbox=INBOXES["classic"]):
    """Return the ARGV of a call, with the request and the record of the fields."""
    args = USUAL | special
    args["request"] = doubles(*(args[name] for name in REQUEST))
    args["times"] = doubles(args["ttl_ms"], args.get("grace_ms", -1), args.get("shown_us", ANY_HOLD), 0)
    channels = f"{inbox.format(args.get('token'))} control:{args.get('token')} me"
    args["wants"] = doubles(*(args[name] for name in WANTS)) + channels.encode()
    options = args.pop("options", ())
    return [args[name] for name in script.header.args if name in args] + [*options]


@pytest.fixture(params=INBOXES)
def inbox(request):
    """The inbox of a token, of either kind. Some are subscribed to."""
    inbox = INBOXES[request.param]
    subscribe = request.getfixturevalue("subscribe" if request.param == "classic" else "sharded")
    subscribe(*map(inbox.format, ("new", "w1", "w2", "large")))
    return inbox


@pytest.mark.parametrize("call", [*CALLS, *FEW_HOLDERS])
def test_of_one_name_no_permit_is_out_twice_and_none_is_lost(make, raw, clock, inbox, call):
    """A count may be too high while the name is in use, never too low."""
    verb, special, *before = (CALLS | FEW_HOLDERS)[call]
    script = load(f"permit_{verb}")
    engine = make(4)
    engine.lost = True
    engine.acquire("warm")
    engine.release("warm")
    for token, weight in before[0] if before else CROWD:
        engine.acquire(token, weight, inbox=inbox.format(token))
    if not before:
        engine.end_lease("b")
        engine.end_lease("c")
    was_held = call.startswith("unhold") or "in place" in call
    if was_held:
        hold = dict(zip(script.header.args, arguments(script, HOLD), strict=True))
        assert engine.call(script, [engine.key(part) for part in PARTS], hold)[1] == NOW_US + HOLD_MS * 1000
    for part in PARTS:
        raw.copy(engine.key(part), f"{engine.key(part)}:before")
    keys, argv = [engine.key(part) for part in PARTS], arguments(script, special, inbox)
    done, commands = False, 0
    while not done:
        for part in PARTS:
            raw.delete(engine.key(part))
            raw.copy(f"{engine.key(part)}:before", engine.key(part))
        done = runs_through(clock, script.source, keys, argv, commands)
        assert_counts_are_safe(engine)
        assert not was_held or call.startswith("unhold") or "!hold" in engine.stored().holders, (
            "it is never without one"
        )
        clock.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True)
        assert_counts_are_safe(engine)
        if call.startswith("unhold"):
            assert "!hold" not in engine.stored().holders
            assert hget(raw, keys[0], "last")[8:] == b"unhold me test"
        for token in ("a", "b", "c", "dead", "w1", "large", "w2", "new", "!hold"):
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
    if "!hold" in weights:  # an operator's hold is beyond the limit
        assert stored.used >= weights.pop("!hold")
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


# --- limiters

LIMIT_CALLS = {
    "admitted": lambda a: ("acquire", a.arguments("new", 2)),
    "refused": lambda a: ("acquire", a.arguments("new", 6, patience=0)),
    "queued": lambda a: ("acquire", a.arguments("new", 6)),
    "at its turn": lambda a: ("acquire", a.arguments("first", 2)),
    "back by its ticket": lambda a: ("acquire", a.arguments("new", 3, ticket=1)),
    "settled up": lambda a: ("settle", {"token": "t1", "costs": doubles(2, 5, 0), "rates": a.packed_rates}),
    "settled down": lambda a: ("settle", {"token": "t1", "costs": doubles(2, 1, 1), "rates": a.packed_rates}),
    "given back": lambda a: ("settle", {"token": "t1", "costs": doubles(2, 0, 0), "rates": a.packed_rates}),
    "cancelled": lambda a: ("settle", {"token": "first", "costs": doubles(2, 0, 1), "rates": a.packed_rates}),
}


@pytest.mark.parametrize("waits", [False, True], ids=["no queue", "a queue"])
@pytest.mark.parametrize("call", LIMIT_CALLS)
def test_of_a_limiter_all_windows_have_an_admission_or_none_has_once_its_token_asks_again(
    limits, raw, listening, call, waits
):
    """Until then more may count than was admitted, never less, and no one has a message of it."""
    listening("new", "first", "second")
    a = limits((6, 1000), (9, 5000))
    clock = a.client
    waiters = [("dead", 4), ("first", 2), ("second", 3)] if waits else []

    def prepare():
        raw.flushdb()
        clock.now_us = NOW_US
        a.acquire("old", 3)
        clock.now_us += 500_000
        a.acquire("t1", 2)
        for token, cost in waiters:
            a.acquire(token, cost)
        clock.now_us += 500_000

    prepare()
    verb, args = LIMIT_CALLS[call](a)
    script = load(f"limit_{verb}")
    argv = [args[name] for name in script.header.args if name in args]
    done, commands = False, 0
    while not done:
        prepare()
        done = runs_through(clock, script.source, a.keys, argv, commands)
        assert_windows_are_safe(a, call)
        assert a.call(script, a.keys, dict(args))[0] in ("admitted", "refused", "queued", "settled")
        assert_windows_are_safe(a, call)
        for token, cost in waiters[1:]:
            if (verb, token) != ("settle", args["token"]):
                a.acquire(token, cost, ticket=a.tickets[token])
        assert_windows_are_safe(a, call)
        lately = {member for member, at in a.window(1000).items() if at > NOW_US}
        assert {*a.window(5000)} == lately | {"old 3"}
        while left := {*(f"{token} 1" for token in a.queue()), *a.window(1000), *a.window(5000)}:
            token, cost = left.pop().split()
            a.cancel(token, int(cost))
        assert not any(raw.exists(key) for key in a.keys if key != a.key("tombstones"))
        commands += 1
    assert commands > 5


def assert_windows_are_safe(a, call):
    """Assert that no window has more than its limit, and that the sum is that of what is there, or is missing."""
    for key, (limit, _) in zip(a.windows, a.rates, strict=True):
        found = dict(a.client.zrange(key, 0, -1, withscores=True))
        total = found.pop("=", None)
        costs = sum(int(member.split()[1]) for member in found)
        assert total is None or -total == costs
        assert costs <= limit + 5 * (call == "settled up")


LIMIT_ACTS = {
    "resume": ("pause", {"pause": doubles(0, 0)}),
    "resume, of the one that was shown": ("pause", {"pause": doubles(0, NOW_US + 60_000_000)}),
    "pause": ("pause", {"pause": doubles(90_000, 0)}),
    "resize": ("resize", {"is_set": 1}),
    "resize to none": ("resize", {"is_set": 0}),
    "reset": ("reset", {"until": doubles(NOW_US)}),
}
"""Acts of an operator, on a limiter that is paused for a minute."""


@pytest.mark.parametrize("act", LIMIT_ACTS)
def test_an_act_on_a_limiter_that_is_sent_again_is_done_and_noted(limits, raw, listening, act):
    listening("first", "second")
    a = limits((6, 1000), (9, 5000))
    verb, special = LIMIT_ACTS[act]
    script = load(f"limit_{verb}")
    every = {"by": "me", "why": "test", "rates": a.packed_rates, **special}
    args = {name: every[name] for name in script.header.args}
    done, commands = False, 0
    while not done:
        raw.flushdb()
        a.acquire("t1", 4)
        if act == "resize to none":
            a.resize()
        a.pause(60_000)
        for token in ("first", "second"):
            a.acquire(token, 2)
        done = runs_through(a.client, script.source, a.keys, [*args.values()], commands)
        a.call(script, a.keys, dict(args))
        a.inspect()
        assert a.paused_us == {"resume": 0, "pause": 90_000_000}.get(act.split(",")[0], 60_000_000)
        assert a.last[8:] == (
            b"pause me busy" if verb == "reset" else f"{act.split(maxsplit=1)[0].strip(',')} me test".encode()
        )
        assert raw.pttl(a.key("settings")) != -1
        commands += 1
    assert commands > 2
    raw.flushdb()  # cut off, a memory of tokens may lack the TTL


# --- once

ONCE_CALLS = {
    "granted": ("free", lambda one: ("acquire", one.arguments("new"))),
    "granted anew": ("stale", lambda one: ("acquire", one.arguments("new", refresh=1))),
    "granted after its lease expired": ("expired", lambda one: ("acquire", one.arguments("t1"))),
    "at its turn": ("expired", lambda one: ("acquire", one.arguments("w1"))),
    "queued": ("running", lambda one: ("acquire", one.arguments("new"))),
    "back by its ticket": ("running", lambda one: ("acquire", one.arguments("new", ticket=1))),
    "busy": ("running", lambda one: ("acquire", one.arguments("new", wait=0))),
    "found, with a place": ("overtaken", lambda one: ("acquire", one.arguments("w1"))),
    "found, with a lease": ("overtaken", lambda one: ("acquire", one.arguments("t1"))),
    "reused": ("overtaken", lambda one: ("acquire", one.arguments("w1", fingerprint="other"))),
    "began": ("running", lambda one: ("record", one.outcome("t1", "begun"))),
    "done": ("running", lambda one: ("record", one.outcome("t1"))),
    "done with copies": ("running", lambda one: ("record", one.outcome("t1", copies=True))),
    "failed": ("running", lambda one: ("record", one.outcome("t1", "failed"))),
    "failed anew": ("refreshing", lambda one: ("record", one.outcome("t1", "failed"))),
    "done anew": ("refreshing", lambda one: ("record", one.outcome("t1", value="new"))),
    "late": ("expired", lambda one: ("record", one.outcome("t1"))),
    "cancelled": ("begun", lambda _: ("cancel", {"token": "t1"})),
    "a waiter cancelled": ("begun", lambda _: ("cancel", {"token": "w1"})),
}
"""What the key has come to before, and the call that is cut off."""


def prepare_once(keyed, before):
    """Let a key have come to this."""
    raw = keyed.client
    raw.flushdb()
    keyed.acquire("warm")
    keyed.release("warm")
    if before in ("stale", "overtaken", "refreshing"):
        keyed.acquire("old")
        keyed.end("old", fingerprint="one")
        keyed.age(2000)
    if before == "overtaken":
        raw.rename(keyed.key("result"), "result")
    if before not in ("free", "stale"):
        keyed.acquire("t1", refresh=1)
        if before != "refreshing":
            keyed.acquire("w1")
            keyed.acquire("w2")
    if before == "overtaken":
        raw.rename("result", keyed.key("result"))
    if before == "expired":
        keyed.end_lease("t1")
    if before == "begun":
        keyed.end("t1", "begun")


@pytest.mark.parametrize("call", ONCE_CALLS)
def test_of_once_no_two_run_at_a_time_and_what_was_done_is_not_run_again(keyed, raw, listening, call):
    listening("new", "t1", "w1", "w2")
    before = ONCE_CALLS[call][0]
    prepare_once(keyed, before)
    verb, args = ONCE_CALLS[call][1](keyed)
    script = load(f"once_{verb}")
    argv = [args[name] for name in script.header.args if name in args]
    done, commands = False, 0
    while not done:
        prepare_once(keyed, before)
        was = keyed.recorded()
        done = runs_through(keyed.client, script.source, keyed.keys, argv, commands)
        assert_one_runs(keyed)
        if verb == "acquire" or before == "expired":
            assert keyed.recorded() == was
        keyed.ttl_ms = TTL_MS
        reply = keyed.call(script, keyed.keys, dict(args))
        assert_one_runs(keyed)
        if verb == "record" and before != "expired":
            ended, value = args["outcome"], args["value"]
            assert reply in (["recorded", 0], ["lost"] if call == "failed anew" else None)
            assert keyed.recorded() == (was if call == "failed anew" else (ended, value))
            assert (keyed.holders() == []) == (ended != "begun")
            keyed.release("t1")
            expected = ["done", "done" if call == "failed anew" else ended]
            assert keyed.acquire("latest", wait=0)[:2] == expected
        if verb == "cancel":
            assert args["token"] not in (*keyed.holders(), *keyed.queue())
            assert keyed.recorded() == (None if args["token"] == "t1" else was)
        for token in ("old", "t1", "w1", "w2", "new"):
            keyed.cancel(token)
        raw.delete(keyed.key("result"))
        assert (keyed.holders(), keyed.queue()) == ([], [])
        assert keyed.acquire("last", wait=0)[0] == "granted"
        commands += 1
    assert commands > 2


def assert_one_runs(keyed):
    keyed.lost = True
    stored = keyed.stored()
    assert sum(end_us > NOW_US for end_us in stored.holders.values()) <= min(1, stored.used)
    assert all(keyed.client.pttl(key) != -1 for key in keyed.keys)
