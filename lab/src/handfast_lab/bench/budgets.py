"""The price of budgets: ``python -m handfast_lab.bench.budgets``.

On a private server, interleaved in rounds: the server's time of a reserve and of a settlement with 1, 2 and 4 accounts,
as multiples of an EVALSHA that only asks for the time (median and quartiles); and how many reservations a second eight threads make in one
account. Then the bytes of an account, and of an open hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import redis

from handfast import Handfast
from handfast._engine.budgets import BudgetRequest, Terms
from handfast._engine.calendar import END_US, Calendar
from handfast._engine.effects import Call
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from handfast.embedded import PrivateServer

__all__ = ["main"]

CALLS, ROUNDS, ACCOUNTS = 50, 60, (1, 2, 4)
"""Calls of a kind in a row, so that so many holds are open; how often; and the numbers of accounts."""

STORED = 20_000
"""Accounts whose bytes are counted."""

THREADS, SECONDS = 8, 2.0

BARE = "return redis.call('TIME')"


def main() -> None:
    """Measure and print."""
    with PrivateServer() as server, redis.Redis(unix_socket_path=server.socket) as client:
        for script in ("budget_reserve", "budget_settle"):
            client.script_load(load(script).source)
        for name, (least, middle, most) in _times(client).items():
            print(f"{name:24}{middle:6.2f} ({least:.2f} to {most:.2f}) times a bare EVALSHA")
        print(f"{_rate(f'unix://{server.socket}'):,.0f} reservations and settlements a second, {THREADS} threads")
        account, hold = _bytes(client)
        print(f"{account:.0f} bytes an account, {hold:.0f} more for an open hold")


def _request(names: int, prefix: str) -> BudgetRequest:
    terms = Terms(10**12, Calendar("total", "UTC", 1))
    terms.period = 0, END_US
    return BudgetRequest([KeySet("hf", "budget", "b", (f"{prefix}{n}",)) for n in range(names)], terms, 1000)


def _sender(client: redis.Redis, script: Callable[[bytes], Call]) -> Callable[[bytes], Any]:
    """Return a function that makes the call of a token."""

    def send(token: bytes) -> Any:
        words, packed = [b"EVALSHA", prefix.digest.encode(), b"%d" % keys], script(token).packed
        while packed:
            size, _, packed = packed.removeprefix(b"$").partition(b"\r\n")
            words.append(packed[: int(size)])
            packed = packed[int(size) + 2 :]
        return client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py's

    prefix = script(_token(0)).prefix
    keys = int(prefix.evalsha.rsplit(b"\r\n", 2)[1])
    return send


def _token(number: int) -> bytes:
    return b"%032x" % number


def _times(client: redis.Redis) -> dict[str, tuple[float, float, float]]:
    bare = client.register_script(BARE)
    found = dict[str, list[float]]()
    for _ in range(ROUNDS):
        base = _usec(client, lambda _: bare())
        for names in ACCOUNTS:
            request = _request(names, f"{names}-")
            accounts = f"{names} account{'s' * (names > 1)}"
            for verb, script in (("reserve", request.reserve), ("settle", partial(_settle, request))):
                found.setdefault(f"{verb}, {accounts}", []).append(_usec(client, _sender(client, script)) / base)
    return {name: (some[len(some) // 4], median(some), some[3 * len(some) // 4]) for name, some in _sorted(found)}


def _settle(request: BudgetRequest, token: bytes) -> Call:
    return request.settle(token, 700, copies=False, charge=0, reserved_us=0)


def _sorted(found: dict[str, list[float]]) -> list[tuple[str, list[float]]]:
    return [(name, sorted(some)) for name, some in found.items()]


def _usec(client: redis.Redis, call: Callable[[bytes], Any]) -> float:
    """Return the server's time of a call, in microseconds."""
    client.config_resetstat()
    for number in range(CALLS):
        call(_token(number))
    stats: Any = client.info("commandstats")
    return float(stats["cmdstat_evalsha"]["usec_per_call"])


def _rate(url: str) -> float:
    with Handfast(url, max_sessions=THREADS) as hf:
        budget = hf.budget("rate", "1000000000/total")
        ends = time.monotonic() + SECONDS

        def spend(_: int) -> int:
            done = 0
            while time.monotonic() < ends:
                with budget.reserve(1) as held:
                    held.settle("0.5")
                done += 1
            return done

        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(spend, range(THREADS))) / SECONDS


def _bytes(client: redis.Redis) -> tuple[float, float]:
    """Return the bytes of an account, and how many more of an open hold."""
    client.flushall()
    sizes = [_used(client)]
    calls: list[Callable[[BudgetRequest], Callable[[bytes], Call]]] = [
        lambda one: one.reserve,
        lambda one: partial(_settle, one),
    ]
    for make in calls:
        sender = None
        for number in range(STORED):
            sender = _sender(client, make(_request(1, f"m{number}-")))
            sender(_token(number))
        sizes.append(_used(client))
    before, held, settled = sizes
    return (settled - before) / STORED, (held - settled) / STORED


def _used(client: redis.Redis) -> int:
    stats: Any = client.info("memory")
    return int(stats["used_memory"])


if __name__ == "__main__":
    main()
