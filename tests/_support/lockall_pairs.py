"""Processes that acquire several locks at once, and a campaign of them.

    python -m tests._support.lockall_pairs [PROCESSES [ROUNDS [NAMES]]]

A script of the test detects overlaps independently of the locks: each holder counts itself in and out, and its fence
must be larger than the last.
"""

from __future__ import annotations

import random
import sys
import time

import redis

from handfast import AcquireTimeout, Handfast
from handfast.embedded import PrivateServer
from handfast_lab.children import ProcessGroup

GENEROUS = 60.0
"""Seconds that no acquire may need: a longer wait is a deadlock."""

ENTER = """
local wrong = 0
for _, key in ipairs(KEYS) do
  local before = tonumber(redis.call('HGET', key, 'fence') or '0')
  if redis.call('HINCRBY', key, 'inside', 1) ~= 1 or before >= tonumber(ARGV[1]) then
    wrong = wrong + 1
  end
  redis.call('HSET', key, 'fence', ARGV[1])
end
return wrong
"""
LEAVE = "for _, key in ipairs(KEYS) do redis.call('HINCRBY', key, 'inside', -1) end"


def pairs(url, seed, rounds, names):
    """Acquire that many random pairs; return the counts and the faults."""
    chance, found = random.Random(seed), {"rounds": 0, "timeouts": 0, "overlaps": 0, "longest": 0.0}
    with redis.Redis.from_url(url) as raw, Handfast(url) as hf:
        enter, leave = raw.register_script(ENTER), raw.register_script(LEAVE)
        for _ in range(rounds):
            pair = chance.sample(range(names), 2)
            keys = [f"inside:{number}" for number in pair]
            asked_at = time.monotonic()
            try:
                with hf.lock_all(f"n{number}" for number in pair).acquire(timeout=GENEROUS) as lease:
                    found["longest"] = max(found["longest"], time.monotonic() - asked_at)
                    found["overlaps"] += enter(keys, [lease.fence])
                    leave(keys)
            except AcquireTimeout:
                found["timeouts"] += 1
            found["rounds"] += 1
    return found


def take_pairs(parent, *args):
    parent.report("taken", pairs(*args))


def hold(parent, url, *names):
    """Acquire the locks, hold them until the parent's next order, and release them."""
    with Handfast(url) as hf:
        parent.report("waits")
        with hf.lock_all(names).acquire(timeout=GENEROUS) as lease:
            parent.report("holds", lease.fence)
            parent.receive()


def campaign(url, processes, rounds, names):
    """Run processes that acquire pairs at the same time; return the report of each."""
    with ProcessGroup() as group:
        children = [group.start(take_pairs, url, seed, rounds, names) for seed in range(processes)]
        return [child.expect("taken", 10 * GENEROUS).value for child in children]


def main(processes=4, rounds=10_000, names=10):
    with PrivateServer() as server:
        began = time.monotonic()
        found = campaign(server.url, processes, rounds, names)
        seconds = time.monotonic() - began
    total = {what: sum(one[what] for one in found) for what in ("rounds", "timeouts", "overlaps")}
    longest = max(one["longest"] for one in found)
    print(f"{total} in {seconds:.1f} s, {total['rounds'] / seconds:,.0f}/s, longest wait {longest:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
