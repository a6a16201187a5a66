"""The batches of locks: each name gets what its ordinary script does, or nothing changes and the ordinary script is called."""

from __future__ import annotations

from itertools import product
from struct import unpack

import pytest
import redis

from handfast._engine.calls import PARTS
from handfast._engine.packing import doubles, read_reply
from handfast._engine.script import load
from tests._support.engine import (
    CLAIM_MS,
    HOUR_MS,
    NOW_US,
    NUMBERS,
    OUT_OF_MEMORY,
    TTL_MS,
    TTL_US,
    WAIT_MS,
    Engine,
    heard,
    hget,
    runs_through,
    unchanged,
)

OWNER = b"live control me"
PERMITS = doubles(1, 1, CLAIM_MS)
TOKENS = ["t0", "token1", "t2"]
ACQUIRE, RELEASE = load("locks_acquire"), load("locks_release")


def scene_of(name, token):
    """Prepare a name for what ``token`` is going to do."""
    engine, scene = name
    if scene == "never used":
        return
    ask(engine, "warm")
    if scene == "expired":
        engine.end_lease("warm")
        return
    engine.run("release", token="warm")
    SCENES[scene](engine, token)


def caller_of(token):
    return doubles(1000 + len(token))


def ask(engine, token):
    engine.ttl_ms = TTL_MS
    wants = PERMITS + caller_of(token) + OWNER
    return engine.run("acquire", token=token, request=doubles(TTL_MS, WAIT_MS, 9, 0), wants=wants)


def held_and_wanted(engine, token):
    ask(engine, token)
    ask(engine, "other")


def expired_and_wanted(engine, token):
    held_and_wanted(engine, token)
    engine.end_lease(token)


def released(engine, token):
    ask(engine, token)
    engine.run("release", token=token)


def released_and_taken(engine, token):
    released(engine, token)
    ask(engine, "other")


def resized(engine, _token):
    engine.resize(1)


SCENES = {
    "never used": None,
    "expired": None,
    "given up": lambda _engine, _token: None,
    "held by another": lambda engine, _token: ask(engine, "other"),
    "held": ask,
    "held and wanted": held_and_wanted,
    "expired and wanted": expired_and_wanted,
    "released": released,
    "released and taken": released_and_taken,
    "expired, its own": lambda engine, token: (ask(engine, token), engine.end_lease(token)),
    "cancelled": lambda engine, token: engine.cancel(token),
    "another was cancelled": lambda engine, _token: engine.cancel("other"),
    "with a limit": resized,
}
FREE = {"expired", "given up", "released", "expired, its own"}
"""Where a batch grants: there is neither a holder nor a waiter, and no field `q`."""
MINE = {"held", "released", "expired, its own"}
"""Where a batch releases."""


def argv(verb, tokens):
    packed = [bytes([len(token)]) + token.encode() for token in tokens]
    if verb == "release":
        return [b"".join(packed)]
    return [
        b"".join(name + caller_of(token) for name, token in zip(packed, tokens, strict=True)),
        TTL_MS,
        PERMITS + OWNER,
    ]


def batch(client, verb, engines, tokens):
    """Call a batch and return what each name gets of it."""
    keys = [engine.key("state") for engine in engines]
    script = ACQUIRE if verb == "acquire" else RELEASE
    reply = client.execute_command("EVAL", script.source, len(keys), *keys, *argv(verb, tokens), NEVER_DECODE=True)
    return (
        [int(fence) for fence in unpack(f"<{len(keys)}d", reply)] if verb == "acquire" else [*map(int, reply.decode())]
    )


def ordinary(verb, engine, token):
    return ask(engine, token) if verb == "acquire" else engine.run("release", token=token)


def rows(clock, scenes):
    """Two equal sets of names."""
    sides = [[Engine(clock, f"{side}{number}") for number, _ in enumerate(scenes)] for side in "xy"]
    for side in sides:
        for engine, scene, token in zip(side, scenes, TOKENS, strict=False):
            scene_of((engine, scene), token)
    return sides


@pytest.mark.parametrize("verb", ["acquire", "release"])
def test_a_batch_and_the_ordinary_calls_for_the_rest_leave_what_ordinary_calls_leave(raw, clock, live, verb):
    served = set()
    for scenes in product(SCENES, repeat=2):
        raw.flushall()
        ours, theirs = rows(clock, scenes)
        before = [engine.stored() for engine in ours]
        answers = batch(clock, verb, ours, TOKENS[:2])
        replies = []
        for engine, token, answer, scene, earlier in zip(ours, TOKENS, answers, scenes, before, strict=False):
            if answer:
                served.add(scene)
                replies.append(["granted", answer, TTL_US] if verb == "acquire" else ["released", 0])
            else:
                assert engine.stored() == earlier, scene
                replies.append(ordinary(verb, engine, token))
        expected = [ordinary(verb, engine, token) for engine, token in zip(theirs, TOKENS, strict=False)]
        assert replies == expected, scenes
        assert [engine.stored() for engine in ours] == [engine.stored() for engine in theirs], scenes
        heard(live)
    assert served == (FREE if verb == "acquire" else MINE)


@pytest.mark.parametrize("verb", ["acquire", "release"])
def test_after_any_part_of_a_batch_the_ordinary_calls_do_the_rest(raw, clock, verb):
    """The reply is lost: the client calls the ordinary script for each name, whatever the batch has done (invariant 12)."""
    scenes = ["given up"] * 3 if verb == "acquire" else ["held"] * 3
    script, done, commands = ACQUIRE if verb == "acquire" else RELEASE, False, 0
    while not done:
        raw.flushall()
        ours, theirs = rows(clock, scenes)
        keys = [engine.key("state") for engine in ours]
        done = runs_through(clock, script.source, keys, argv(verb, TOKENS), commands)
        replies = [ordinary(verb, engine, token) for engine, token in zip(ours, TOKENS, strict=True)]
        assert replies == [ordinary(verb, engine, token) for engine, token in zip(theirs, TOKENS, strict=True)]
        assert [engine.stored() for engine in ours] == [engine.stored() for engine in theirs]
        commands += 1
    assert commands > 6


def test_a_second_copy_of_a_batch_changes_nothing(clock, raw):
    ours, _ = rows(clock, ["given up"] * 3)
    fences = batch(clock, "acquire", ours, TOKENS)
    assert all(fences)
    with unchanged(*ours):
        assert batch(clock, "acquire", ours, TOKENS) == [0, 0, 0]
    assert [ask(engine, token)[1] for engine, token in zip(ours, TOKENS, strict=True)] == fences
    assert batch(clock, "release", ours, TOKENS) == [1, 1, 1]
    with unchanged(*ours):
        assert batch(clock, "release", ours, TOKENS) == [1, 1, 1]
    ask(ours[1], "other")
    with unchanged(*ours):
        assert batch(clock, "release", ours, TOKENS) == [1, 0, 1]


@pytest.mark.parametrize("end", ["cancel", "release"])
def test_a_batch_that_arrives_after_the_end_of_its_tokens_grants_nothing(clock, raw, end):
    ours, _ = rows(clock, ["given up"] * 3)
    for engine, token in zip(ours, TOKENS, strict=True):
        ask(engine, token)
        getattr(engine, end)(token, **({"copies": True} if end == "release" else {}))
    clock.now_us += TTL_US // 100
    with unchanged(*ours):
        assert batch(clock, "acquire", ours, TOKENS) == [0, 0, 0]


def test_a_name_that_needs_a_longer_ttl_is_left_to_the_ordinary_script(clock, raw):
    """A batch never sets one: invariant 5."""
    ours, _ = rows(clock, ["given up"] * 2)
    clock.now_us += 2 * HOUR_MS * 1000 - TTL_US
    assert batch(clock, "acquire", ours, TOKENS[:2]) == [0, 0]
    ask(ours[0], "longer")
    ours[0].lives(TTL_MS, "state")


def test_fences_grow_in_batches_where_the_clock_was_set_back(clock, raw):
    ours, _ = rows(clock, ["given up"] * 2)
    ours[0].set_fence(NOW_US + 5)
    assert batch(clock, "acquire", ours, TOKENS[:2]) == [NOW_US + 6, NOW_US + 1]


def test_a_fence_is_at_least_the_time_of_its_grant(clock, raw):
    """Invariant 3: so it grows even where the last one is forgotten."""
    ours, _ = rows(clock, ["given up"] * 2)
    clock.now_us += 10
    assert batch(clock, "acquire", ours, TOKENS[:2]) == [NOW_US + 10] * 2


def test_a_grant_after_a_wait_keeps_the_counters_and_the_last_ticket(clock, live):
    """Byte for byte what the ordinary script stores."""
    ours, theirs = rows(clock, ["never used"] * 2)
    for engine in (*ours, *theirs):
        for token in ("first", "second"):
            ask(engine, token)
    clock.now_us += 5
    for engine in (*ours, *theirs):
        for token in ("first", "second"):
            engine.run("release", token=token)
    heard(live)
    before = NUMBERS.unpack_from(hget(clock, ours[0].key("state"), "s"))
    assert before[5:8] == (5, NOW_US, 0), "how long they waited, the last ticket, and no waiter"
    assert all(batch(clock, "acquire", ours, TOKENS[:2]))
    for engine, other, token in zip(ours, theirs, TOKENS, strict=False):
        ask(other, token)
        assert hget(clock, engine.key("state"), "s") == hget(clock, other.key("state"), "s")


def test_at_maxmemory_acquires_are_refused_whole_and_releases_work(clock, raw):
    """The first name of the three needs no memory, since it is taken."""
    ours, _ = rows(clock, ["held by another", "given up", "given up"])
    raw.config_set("maxmemory", 1)
    with unchanged(*ours), pytest.raises(redis.ResponseError, match=OUT_OF_MEMORY):
        batch(clock, "acquire", ours, TOKENS)
    raw.config_set("maxmemory", 0)
    assert [bool(fence) for fence in batch(clock, "acquire", ours, TOKENS)] == [False, True, True]
    raw.config_set("maxmemory", 1)
    assert batch(clock, "release", ours, TOKENS) == [0, 1, 1]
    assert [engine.holders() for engine in ours] == [["other"], [], []]


def test_a_batch_reads_and_writes_no_more_than_it_must(clock, raw):
    ours, _ = rows(clock, ["given up", "held by another"])
    counted = []
    for verb in ("acquire", "release", "release"):
        raw.config_resetstat()
        batch(clock, verb, ours, TOKENS[:2])
        stats = raw.info("commandstats")
        counted.append(
            [stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("hget", "hset", "hdel", "pexpire")]
        )
    assert counted == [[2, 1, 0, 0], [2, 1, 0, 0], [2, 0, 0, 0]], "a release that is repeated writes nothing"
    assert {raw.exists(ours[0].key(part)) for part in PARTS} == {0, 1}
    assert read_reply(1, 1) == [b"granted", 1, 1000]
