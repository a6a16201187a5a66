"""Measure what it costs threads to share a connection. Run with ``-m``.

    python -m handfast_lab.bench.threads
    python -m handfast_lab.bench.threads --seconds 0.5 --rounds 7 --crowd 1000

So many threads of one client acquire and release, each a name of its own or all the same one. The contenders are
clients with more and with fewer connections, by ``max_sessions``, and are measured in turns. Rates are relative to the
first contender's of the same round. Then a crowd of threads waits for one name: with how many connections, after what
time all are in the queue, and after what time all had it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple
from uuid import uuid4

import redis

from handfast import Handfast
from handfast.testing import ServerController

__all__ = ["Crowd", "crowd", "main", "rate", "ratios"]


class Crowd(NamedTuple):
    """How a crowd of threads fared."""

    connections: int
    """Of its client."""
    queued_s: float
    """Seconds until all were in the queue."""
    served_s: float
    """Seconds from the release until all had it."""
    in_order: bool
    """Whether the fences were granted in the order in which the threads left the queue."""


def rate(url: str, most: int, threads: int, seconds: float, *, same: bool) -> float:
    """Return the acquires per second of all threads."""
    done = [0] * threads
    with Handfast(url, max_sessions=most) as client:
        until = time.monotonic() + seconds

        def work(number: int) -> None:
            lock = client.lock("a" if same else f"a{number}")
            while time.monotonic() < until:
                with lock:
                    done[number] += 1

        run_all(work, threads)
    return sum(done) / seconds


def ratios(
    url: str, contenders: Sequence[int], threads: int, seconds: float, rounds: int, *, same: bool
) -> list[list[float]]:
    """Return the rates of each contender relative to the first one's, one of each round."""
    found: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        rates = [rate(url, most, threads, seconds, same=same) for most in contenders]
        for one, its in zip(rates, found, strict=True):
            its.append(one / rates[0])
    return found


def crowd(server: ServerController, most: int, threads: int) -> Crowd:
    """Let a crowd of threads wait for one name, and release it."""
    fences: list[int] = []
    name = f"crowd-{uuid4().hex}"  # those of an earlier crowd may still be open
    named = redis.Redis.from_url(server.url, client_name=name)
    with Handfast(server.url) as holder, Handfast(named, max_sessions=most) as client:
        lock = client.lock("crowd", ttl=120)

        def work(_: int) -> None:
            with lock as lease:
                fences.append(lease.fence)

        held = holder.lock("crowd").acquire()
        begin = time.monotonic()
        waiting = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in waiting:
            thread.start()
        while holder.lock("crowd").status().waiting < threads:
            time.sleep(0.01)
        queued_s = time.monotonic() - begin
        connections = sum(one["name"] == name for one in server.admin.client_list())
        begin = time.monotonic()
        held.release()
        for thread in waiting:
            thread.join()
        return Crowd(connections, queued_s, time.monotonic() - begin, fences == sorted(fences))


def run_all(work: object, threads: int) -> None:
    """Run a function in so many threads, each with its number."""
    all_of_them = [threading.Thread(target=work, args=(number,)) for number in range(threads)]  # type: ignore[arg-type]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--crowd", type=int, default=1000)
    options.add_argument("--max-sessions", type=int, nargs="+", default=[64, 16, 4, 1])
    asked = options.parse_args(arguments)
    contenders = asked.max_sessions
    with ServerController() as server:
        print(f"rate relative to max_sessions={contenders[0]}: median of {asked.rounds} rounds (smallest to largest)")
        print(f"{'threads':>8}  {'names':6}" + "".join(f"{f'max_sessions={most}':>26}" for most in contenders[1:]))
        for same in (False, True):
            for threads in (1, 4, 16):
                found = ratios(server.url, contenders, threads, asked.seconds, asked.rounds, same=same)
                cells = "".join(f"{f'{median(its):.2f} ({min(its):.2f} to {max(its):.2f})':>26}" for its in found[1:])
                print(f"{threads:8}  {'one' if same else 'own':6}{cells}", flush=True)
        print(f"{asked.crowd} threads in one queue")
        for most in contenders:
            one = crowd(server, most, asked.crowd)
            print(
                f"  max_sessions={most:<3} {one.connections:5} connections, all in the queue after {one.queued_s:.2f} s, "
                f"all served {one.served_s:.2f} s after the release{'' if one.in_order else ', not in order'}"
            )


if __name__ == "__main__":
    main()
