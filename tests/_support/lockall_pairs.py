"""A process of its own that takes several locks at once, and a campaign of such processes.

    python -m tests._support.lockall_pairs                        a server, 4 processes, 10,000 random pairs of 10 names each
    python -m tests._support.lockall_pairs hold URL NAME...       waits for the locks, says its fence, and releases when told to
    python -m tests._support.lockall_pairs pairs URL SEED ROUNDS NAMES

Each holder looks for another one in the same lock by other means than the lock: it counts itself in and out in a script
of the test's own, which also wants fences to grow.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack

import redis

from handfast import AcquireTimeout, Handfast
from handfast.embedded import PrivateServer

GENEROUS = 60.0
"""Seconds that no acquire may ever need: whoever does stands in a deadlock."""

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
    """Take that many random pairs; how it went."""
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


def hold(url, *names):
    """Wait for the locks, hold them until a line comes in."""
    with Handfast(url) as hf:
        print(json.dumps("waits"), flush=True)
        with hf.lock_all(names).acquire(timeout=GENEROUS) as lease:
            print(json.dumps(lease.fence), flush=True)
            sys.stdin.readline()


def program(*words):
    """This file as a process."""
    command = [sys.executable, "-m", "tests._support.lockall_pairs", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def campaign(url, processes, rounds, names):
    """Let processes take pairs all at the same time; how it went in each."""
    with ExitStack() as stack:
        running = [stack.enter_context(program("pairs", url, seed, rounds, names)) for seed in range(processes)]
        return [json.loads(process.communicate()[0]) for process in running]


def main(processes=4, rounds=10_000, names=10):
    with PrivateServer() as server:
        began = time.monotonic()
        found = campaign(server.url, processes, rounds, names)
        seconds = time.monotonic() - began
    total = {what: sum(one[what] for one in found) for what in ("rounds", "timeouts", "overlaps")}
    longest = max(one["longest"] for one in found)
    print(f"{total} in {seconds:.1f} s, {total['rounds'] / seconds:,.0f}/s, longest wait {longest:.3f} s")


if __name__ == "__main__":
    mode, *words = sys.argv[1:] or ["campaign"]
    if mode == "hold":
        hold(*words)
    elif mode == "pairs":
        print(json.dumps(pairs(words[0], *map(int, words[1:]))))
    else:
        main(*itertools.islice(map(int, words), 3))
