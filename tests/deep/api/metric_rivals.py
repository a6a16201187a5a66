"""Requests and tokens in a period, by several libraries in one run: what each admits too much, how many calls, how long they wait.

    python -m tests.deep.api.metric_rivals SECONDS NAME=PYTHON ...

NAME is one of `CONTENDERS`, PYTHON an interpreter with that package. Each contender gets a server of its own, and four
processes of four tasks, which ask for random numbers of tokens. Counted is when a call returned, by the clock that all
processes of a machine share. Calls return up to a tenth of a second after their admission, so intervals are shorter by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import random
import subprocess
import sys
import time
import types
from pathlib import Path

REQUESTS, TOKENS, PERIOD_S = 100, 20_000, 2
"""The limits, and their period."""

TASKS, PROCESSES = 4, 4

LATE_S = 0.1
"""By how much a call may return late, in seconds."""

START_S = 4.0
"""Seconds until all processes begin, each with its connections and after a first call."""


async def handfast(url):
    """Yield a function that waits for a request and so many tokens: a limiter of two metrics."""
    async with importlib.import_module("handfast").AsyncHandfast(url) as hf:
        limiter = hf.limiter("gpt", {"requests": f"{REQUESTS}/{PERIOD_S}s", "tokens": f"{TOKENS}/{PERIOD_S}s"})
        yield lambda tokens: limiter.acquire(cost={"tokens": tokens})


async def token_throttle(url):
    """The package of the same name: token buckets under a lock, with refunds."""
    library, redis = importlib.import_module("token_throttle"), importlib.import_module("redis.asyncio")
    quotas = [
        library.Quota(metric=metric, limit=limit, per_seconds=PERIOD_S)
        for metric, limit in (("requests", REQUESTS), ("tokens", TOKENS))
    ]
    client = redis.from_url(url)
    limiter = library.RateLimiter(
        library.PerModelConfig(quotas=library.UsageQuotas(quotas)),
        backend=library.RedisBackendBuilder(client, key_prefix="trial"),
    )
    yield lambda tokens: limiter.acquire_capacity({"requests": 1, "tokens": tokens}, model="gpt")
    await client.aclose()


async def openlimit(url):
    """The package of the same name: two token buckets a second, each under a lock, that poll."""
    sys.modules["tiktoken"] = types.SimpleNamespace(get_encoding=lambda _: None)  # it loads a file from the net
    library = importlib.import_module("openlimit.redis_rate_limiters")
    minute = 60 // PERIOD_S
    limiter = library.RateLimiterWithRedis(REQUESTS * minute, TOKENS * minute, None, "gpt", redis_url=url)
    yield limiter.wait_for_capacity


async def limits(url):
    """Two calls of limits, one for requests and one for tokens, that are repeated until both have said yes."""
    library = importlib.import_module("limits")
    storage = importlib.import_module("limits.storage").storage_from_string(url.replace("unix://", "redis+unix://", 1))
    window = importlib.import_module("limits.strategies").MovingWindowRateLimiter(storage)
    requests, tokens = (library.RateLimitItemPerSecond(limit, PERIOD_S) for limit in (REQUESTS, TOKENS))

    async def acquire(cost):
        for item, amount in ((requests, 1), (tokens, cost)):
            while not window.hit(item, "gpt", cost=amount):  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0.05)

    yield acquire


async def check_then_record(url):
    """A check of both counters before the call, and a record after it, as gateways have it."""
    client = importlib.import_module("redis.asyncio").from_url(url)

    async def acquire(cost):
        while True:
            period = int(time.time()) // PERIOD_S
            used = [int(one or 0) for one in await client.mget(f"requests:{period}", f"tokens:{period}")]
            if used[0] + 1 <= REQUESTS and used[1] + cost <= TOKENS:
                break
            await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.05, record, period, cost)  # when the answer is there

    def record(period, cost):
        records.append(asyncio.ensure_future(recorded(period, cost)))

    async def recorded(period, cost):
        await client.incr(f"requests:{period}")
        await client.incrby(f"tokens:{period}", cost)

    records = []
    yield acquire
    await client.aclose()


CONTENDERS = {
    "handfast": handfast,
    "token-throttle": token_throttle,
    "openlimit": openlimit,
    "limits, twice": limits,
    "check, then record": check_then_record,
}


async def work(name, url, start, seconds, seed):
    """Ask from a moment on until the time is over. Print when each call returned, its tokens, and how long it waited."""
    chance, found = random.Random(seed), []

    async def ask(acquire, until):
        while time.monotonic() < until:
            tokens, asked_at = chance.randrange(50, 1500), time.monotonic()
            await acquire(tokens)
            found.append((time.monotonic(), tokens, time.monotonic() - asked_at))

    async for acquire in CONTENDERS[name](url):
        await acquire(1)
        await asyncio.sleep(start - time.monotonic())
        tasks = [asyncio.ensure_future(ask(acquire, time.monotonic() + seconds)) for _ in range(TASKS)]
        await asyncio.wait(tasks, timeout=seconds + 1)
        for task in tasks:
            task.cancel()
    print(json.dumps(found))


def most(calls, weight):
    """Return the largest sum within any interval of a period, less what calls may be late."""
    total, largest, first = 0, 0, 0
    for call in calls:
        total += weight(call)
        while calls[first][0] <= call[0] - PERIOD_S + LATE_S:
            total -= weight(calls[first])
            first += 1
        largest = max(largest, total)
    return largest


def measure(name, python, seconds):
    """Run a contender. Return its row."""
    from handfast.embedded import PrivateServer

    with PrivateServer() as server:
        url, start = f"unix://{server.socket}", time.monotonic() + START_S
        workers = [
            subprocess.Popen(
                [python, __file__, "work", name, url, str(start), str(seconds), str(seed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for seed in range(PROCESSES)
        ]
        outputs = [worker.communicate(timeout=seconds + 60) for worker in workers]
    calls = []
    for out, err in outputs:
        with contextlib.suppress(json.JSONDecodeError):
            calls += json.loads(out)
        if not out:
            raise RuntimeError(err[-2000:])
    calls.sort()
    waits = sorted(call[2] for call in calls)
    return {
        "contender": name,
        "calls a second": round(len(calls) / (calls[-1][0] - calls[0][0]), 1),
        "requests, of the limit": round(most(calls, lambda _: 1) / REQUESTS, 2),
        "tokens, of the limit": round(most(calls, lambda call: call[1]) / TOKENS, 2),
        "median wait": round(waits[len(waits) // 2], 2),
        "p99 wait": round(waits[len(waits) * 99 // 100], 2),
    }


if __name__ == "__main__":
    if sys.argv[1] == "work":
        sys.path.append(str(Path(__file__).parents[3] / "src"))
        asyncio.run(work(*sys.argv[2:4], *map(float, sys.argv[4:7])))
    else:
        for name, _, python in (word.partition("=") for word in sys.argv[2:]):
            print(json.dumps(measure(name, python, float(sys.argv[1]))), flush=True)
