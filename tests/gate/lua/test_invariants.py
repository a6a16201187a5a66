"""The invariants of the engine, with real processes on a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from handfast import Handfast, ServerRefused
from handfast.embedded import PrivateServer
from tests._support.engine import Engine
from tests._support.helpers import eventually

HOSTILE = [
    "}",
    "{",
    "{}",
    "a:q",
    "a}:holders",
    " ",
    "a b",
    "\0",
    "a\nb",
    "é",
    "🔒",
    "%7B",
    "x" * 10_000,
    ":",
    "*",
    "'",
    "a" * 3,
]


def waiting(hf, name="a"):
    return hf.lock(name).status().waiting


def test_twenty_waiters_are_granted_in_the_order_of_their_arrival(server, hf):
    entered = []

    def wait(number):
        with own.lock("a").acquire(timeout=20) as lease:
            entered.append((number, lease.fence))

    with Handfast(server.url) as own, ThreadPoolExecutor(20) as threads:
        lease = hf.lock("a").acquire()
        for number in range(20):
            threads.submit(wait, number)
            eventually(lambda number=number: waiting(hf) == number + 1)
        lease.release()
    assert [number for number, _ in entered] == list(range(20))
    fences = [fence for _, fence in entered]
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_hostile_names_are_locks_like_any_other(hf, other, raw, name):
    others = [hf.lock(other_name).acquire() for other_name in HOSTILE if other_name != name]
    with hf.lock(name) as lease:
        assert other.lock(name).try_acquire() is None
        (holder,) = hf.lock(name).status().holders
        assert holder.fence == lease.fence
    with other.lock(name):
        pass
    for held in others:
        assert held.release() is True


def test_fences_grow_through_flushall_script_flush_and_a_restart_without_persistence():
    fences = []
    for _ in range(2):
        with PrivateServer() as server, Handfast(server.url) as hf, redis.Redis.from_url(server.url) as raw:
            for forget in (raw.flushall, raw.script_flush, raw.flushall):
                with hf.lock("a") as lease:
                    fences.append(lease.fence)
                forget()
    assert fences == sorted(set(fences))


def test_at_maxmemory_a_waiter_is_still_granted_and_a_newcomer_is_refused(hf, other, raw):
    lease = hf.lock("a", ttl=1.0).acquire()
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(lambda: other.lock("a").acquire(timeout=20))
        eventually(lambda: waiting(hf) == 1)
        raw.config_set("maxmemory", 1)
        with pytest.raises(ServerRefused, match="out of memory"):
            hf.lock("b").acquire()
        assert not any(Engine(raw, "b").dump())
        lease.extend(5)
        assert lease.release() is True
        second = waiter.result(10)
    assert second.release() is True
