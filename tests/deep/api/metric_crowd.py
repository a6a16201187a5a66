"""Processes that ask a limiter of several metrics at random, and are killed; and an observer who adds up its windows.

python -m tests.deep.api.metric_crowd CALLS WORKERS KILL_EVERY_S
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections import Counter
from contextlib import suppress

import redis

from handfast import Handfast, RateLimited
from tests.deep.api.crowd import Crowd

RATES = {"requests": "60/200ms", "tokens": "12000/200ms; 100000/2s"}

LIMITS = {"requests:200": (60, 200), "tokens:200": (12_000, 200), "tokens:2000": (100_000, 2000)}
"""By window, the limit and the period in ms."""

LOOK = """local now, found = redis.call('TIME'), {}
for i = 2, #KEYS do
  found[i - 1] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
end
return {now[1], now[2], redis.call('ZCARD', KEYS[1]), found}"""


def work(url, calls, seed):
    """Ask so many times for random costs; settle some below the estimate, give some back."""
    chance = random.Random(seed)
    with Handfast(url) as hf:
        limiter, counts = hf.limiter("a", RATES), Counter()
        for _ in range(calls):
            counts["calls"] += 1
            costs = {"tokens": chance.choice([0, 50, 200, 400, 1500]), "requests": chance.choice([1, 1, 1, 0, 2])}
            if not any(costs.values()):
                costs["requests"] = 1
            try:
                if chance.random() < 0.3:
                    admission = limiter.try_acquire(cost=costs)
                else:
                    admission = limiter.acquire(cost=costs, timeout=chance.choice([0.05, 5.0, 5.0]))
            except (RateLimited, redis.RedisError) as error:
                counts["late" if isinstance(error, RateLimited) else "lost"] += 1
            else:
                counts["admitted" if admission else "refused"] += 1
                with suppress(redis.RedisError):
                    if admission and chance.random() < 0.3:
                        admission.settle(tokens=int(costs["tokens"] * chance.random()))
                    elif admission and chance.random() < 0.05:
                        admission.undo()
            print(json.dumps(counts), flush=True)


class Observer:
    """Reads the windows at one instant after another, and adds up what is in them."""

    def __init__(self, client):
        self._look = client.register_script(LOOK)
        self._keys = ["{hf:limiter:a}:queue", *(f"{{hf:limiter:a}}:window:{window}" for window in LIMITS)]
        self._client = client
        self.instants = 0
        self.over = []
        self.wrong_sums = []
        self.shares = []
        """How much of the tightest limit was used, where callers waited."""
        self._least = [{} for _ in LIMITS]
        """Of each window, by token its time and the least cost that was seen, for as long as it counts."""
        self._lapsed = [[] for _ in LIMITS]
        """The same of those that count no more."""

    def look(self):
        seconds, micros, waiting, found = self._look(keys=self._keys)
        now, tightest = int(seconds) * 1_000_000 + int(micros), 0.0
        self.instants += 1
        windows = zip(LIMITS.items(), found, self._least, self._lapsed, strict=True)
        for (window, (limit, per_ms)), entries, least, lapsed in windows:
            members = dict(zip(entries[::2], map(float, entries[1::2]), strict=True))
            total = -members.pop(b"=", 0.0)
            costs = {member: int(member.split()[1]) for member in members}
            if total != sum(costs.values()):
                self.wrong_sums.append((window, total, sum(costs.values())))
            used = sum(cost for member, cost in costs.items() if members[member] > now - per_ms * 1000)
            if used > limit:
                self.over.append((window, used, limit))
            tightest = max(tightest, used / limit)
            present = {member.split()[0] for member in members}
            for token in least.keys() - present:
                at, cost = least.pop(token)
                lapsed.append((at, cost if at <= now - per_ms * 1000 else 0))  # else it was given back
            for member, at in members.items():
                token = member.split()[0]
                known = least.get(token)
                if known is None or costs[member] < known[1]:
                    least[token] = (at, costs[member])
        if waiting:
            self.shares.append(tightest)

    def most(self):
        """Return by window the largest share of its limit that any interval has, by the least costs that were seen."""
        found = {}
        for (window, (limit, per_ms)), lapsed in zip(LIMITS.items(), self._lapsed, strict=True):
            admissions, first, total, most = sorted(lapsed), 0, 0, 0
            for at, cost in admissions:
                total += cost
                while admissions[first][0] <= at - per_ms * 1000:
                    total -= admissions[first][1]
                    first += 1
                most = max(most, total)
            found[window] = most / limit
        return found


def run(calls, workers, kill_every_s):
    """Let so many workers make so many calls together. Return what was counted."""
    crowd = Crowd("tests.deep.api.metric_crowd", ["limit_acquire", "limit_settle"], calls, workers, kill_every_s)
    with crowd.server() as url, redis.Redis.from_url(url) as client:
        observer = Observer(client)
        crowd.run(observer.look)
    shares = observer.shares[len(observer.shares) // 10 : -len(observer.shares) // 10]
    return {
        **crowd.counts,
        "kills": crowd.kills,
        "lost replies": crowd.losses,
        "seconds": crowd.seconds,
        "instants": observer.instants,
        "over": observer.over[:5],
        "wrong sums": observer.wrong_sums[:5],
        "any interval": {window: round(share, 3) for window, share in observer.most().items()},
        "median share of the tightest": round(statistics.median(shares), 3),
    }


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])), indent=1))
