"""Processes that reserve and settle amounts of a budget at random, and are killed; and an observer who adds up the accounts.

python -m tests.deep.api.budget_crowd CALLS WORKERS KILL_EVERY_S
"""

from __future__ import annotations

import json
import random
import statistics
import struct
import sys
import time
from collections import Counter

import redis

from handfast import BudgetExceeded, Handfast
from tests.deep.api.crowd import Crowd

ACCOUNTS = "acme", "acme|team", "acme|team|ann", "acme|team|bob"

MOST = 60
"""The largest amount of a call."""

LOOK = """local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('HGETALL', key)
end
return found"""


def budget_of(hf):
    return hf.budget("a", "200/total")


def account(hf, name):
    return budget_of(hf).keyed(*name.split("|"))


def work(url, calls, seed):
    """Make so many calls of random prices; print the sums that the server has confirmed, after each."""
    chance = random.Random(seed)
    counts = Counter()
    with Handfast(url) as hf:
        for _ in range(calls):
            user = chance.choice(("ann", "bob"))
            names = ["acme", "acme|team", f"acme|team|{user}"]
            tree = budget_of(hf).all_of(*(name.split("|") for name in names))
            amount, ttl = chance.randint(1, MOST), chance.choice([None, None, 30])
            counts["calls"] += 1
            try:
                with tree.reserve(amount, ttl=ttl) as held:
                    time.sleep(0.002 * chance.random())
                    actual = chance.choice([0, amount // 2, amount])
                    if chance.random() < 0.1:
                        actual = amount  # by the end of the block
                    else:
                        counts["late"] += not held.settle(actual)
                counts["reserved"] += 1
                counts.update(dict.fromkeys(names, actual))
            except BudgetExceeded:
                counts["exceeded"] += 1
            except redis.RedisError:
                counts["lost"] += 1
            print(json.dumps(counts), flush=True)


class Observer:
    """Reads all accounts at one instant after another."""

    def __init__(self, client):
        self._look = client.register_script(LOOK)
        self._keys = [f"{{hf:budget:a}}:account:{name}" for name in ACCOUNTS]
        self.instants = 0
        self.over, self.wrong_sums = [], []
        self.spent = dict.fromkeys(ACCOUNTS, 0)
        self.limits = dict.fromkeys(ACCOUNTS, 200)
        self.shares = []

    def look(self):
        self.instants += 1
        for name, found in zip(ACCOUNTS, self._look(keys=self._keys), strict=True):
            fields = dict(zip(found[::2], found[1::2], strict=True))
            if not fields:
                continue
            _, _, spent, held, limit, told, _ = (number / 1e6 for number in struct.unpack("<7d", fields.pop(b"s")))
            limit = told if limit < 0 else limit
            holds = sum(struct.unpack("<dd", hold)[1] / 1e6 for field, hold in fields.items() if field[:2] == b"t:")
            if held != holds:
                self.wrong_sums.append((name, held, holds))
            if spent + held > limit:
                self.over.append((name, spent, held, limit))
            self.shares.append((spent + held) / limit)
            self.spent[name], self.limits[name] = spent, limit


def run(calls, workers, kill_every_s):
    """Let so many workers make so many calls together, while an operator raises what is used up."""
    crowd = Crowd("tests.deep.api.budget_crowd", ["budget_reserve", "budget_settle"], calls, workers, kill_every_s)
    with crowd.server() as url, redis.Redis.from_url(url) as client, Handfast(url) as operator:
        observer = Observer(client)

        def look():
            observer.look()
            for name, limit in observer.limits.items():
                if observer.spent[name] > limit - MOST:
                    account(operator, name).set_limit(int(limit) + 2000)

        crowd.run(look)
        observer.look()
    return {
        **{name: count for name, count in crowd.counts.items() if name not in ACCOUNTS},
        "kills": crowd.kills,
        "lost replies": crowd.losses,
        "seconds": crowd.seconds,
        "instants": observer.instants,
        "over": observer.over[:5],
        "wrong sums": observer.wrong_sums[:5],
        "spent and not confirmed": {name: observer.spent[name] - crowd.counts[name] for name in ACCOUNTS},
        "median share of a limit": round(statistics.median(observer.shares), 3),
    }


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])), indent=1))
