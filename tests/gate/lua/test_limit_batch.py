"""The batches of limiters: each limiter admits as limit_acquire would, or nothing changes."""

from __future__ import annotations

from itertools import product
from struct import unpack

import pytest

from handfast._engine.packing import doubles
from handfast._engine.script import load
from tests._support.engine import NOW_US, refused
from tests._support.limits import LimitScripts

RATE = (5, 1000)
ADMIT = load("limit_batch")

SCENES = {
    "never used": (lambda _: None, 3),
    "used": (lambda one: one.attempt("other", 1), 2),
    "lapsed in part": (lambda one: (one.fill(2, NOW_US - 2_000_000), one.fill(1, NOW_US - 10)), 2),
    "full": (lambda one: one.attempt("other", 4), -1),
    "waited for": (lambda one: (one.attempt("other", 5), one.acquire("w")), -1),
    "paused": (lambda one: one.pause(1000), -1),
    "cancelled": (lambda one: one.cancel("token1", 2), -1),
}
"""The state of a limiter, and the rest after a request of 2."""


@pytest.fixture
def names(clock):
    return [LimitScripts(clock, RATE, name=name) for name in "abc"]


def admit(names, cost=2):
    """Return the rest of each limiter."""
    keys = [one.key(part) for one in names for part in ("queue", "tombstones", "settings", "window:1000")]
    requests = b"".join(b"\6" + f"token{number}".encode() + doubles(cost) for number, _ in enumerate(names))
    args = (ADMIT.source, len(keys), *keys, requests, doubles(*RATE))
    now, *left = unpack(f"<{1 + len(names)}d", names[0].client.execute_command("EVAL", *args, NEVER_DECODE=True))
    assert now == NOW_US
    return left


@pytest.mark.parametrize("scenes", [*product(SCENES, repeat=3)], ids=" ".join)
def test_each_limiter_of_a_batch_admits_as_it_does_alone(names, raw, listening, scenes):
    listening("w")

    def prepare():
        raw.flushall()
        for one, scene in zip(names, scenes, strict=True):
            SCENES[scene][0](one)

    prepare()
    before = [one.dump() for one in names]
    left = admit(names)
    after = [one.dump() for one in names]
    assert left == [SCENES[scene][1] for scene in scenes]
    prepare()
    for number, one in enumerate(names):
        if left[number] < 0:
            assert after[number] == before[number]
        else:
            assert one.attempt(f"token{number}", 2) == ["admitted", NOW_US, left[number]]
            assert after[number] == one.dump()
            assert 0 < raw.pttl(one.windows[0]) <= 2000


def test_at_maxmemory_no_limiter_of_a_batch_admits(names, raw):
    names[0].fill(2, NOW_US - 2_000_000)
    raw.config_set("maxmemory", 1)
    with refused(*names):
        admit(names)


def test_a_request_of_a_batch_that_was_sent_again_is_found_by_its_own_script(names):
    assert admit(names) == [3, 3, 3]
    assert admit(names) == [-1, -1, -1]
    assert names[1].attempt("token1", 2) == ["admitted", NOW_US, 3]
