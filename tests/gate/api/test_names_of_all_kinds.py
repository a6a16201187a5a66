"""Names of kinds without leases, and of what `once` has recorded, through both APIs."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from handfast import DebounceStatus, UnknownLayout
from handfast._protocol.limiting import Announcements
from handfast.arguments import Kind
from handfast.testing import FaultProxy, containing
from tests._support.apis import all_of, until_queued
from tests._support.helpers import eventually_async


async def names(found):
    return sorted((one.kind, one.name) for one in await all_of(found))


async def test_a_lease_tells_its_ttl_and_a_waiter_when_it_was_heard_of(here, there, raw):
    lock = here.lock("a", ttl=45)
    lease = await lock.acquire()
    async with here.semaphore("s", 2).acquire(), here.lock_all(["x", "y"], ttl=90), here.rwlock("r", ttl=60).read():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_released(there.lock("a")))
            await until_queued(lock)
            found = {one.name: one.status for one in await all_of(there.names())}
            ttls = {name: [one.ttl for one in status.holders] for name, status in found.items()}
            assert ttls == {"a": [45.0], "s": [30.0], "x": [90.0], "y": [90.0], "r": [60.0]}
            assert 0 <= found["a"].waiters[0].silent_for < 20
            await lease.release()
    async with asyncio.TaskGroup() as tasks:  # in asyncio, in one batch
        leases = [tasks.create_task(_acquired(here.lock(f"b{number}", ttl=50))) for number in range(3)]
    found = [one.status.holders[0].ttl for one in await all_of(there.names("b?"))]
    assert found == [50.0] * 3
    for lease in leases:
        await lease.result().release()


async def _acquired(lock):
    return await lock.acquire()


async def _released(lock):
    await (await lock.acquire()).release()


async def test_only_a_limiter_needs_a_scan_for_a_plain_name(here, raw):
    await here.latch("b", 2).done("x")
    raw.config_resetstat()
    without = [kind for kind in get_args(Kind) if kind != "limiter"]  # whose periods are in the names of keys
    assert await names(here.names("b", kinds=without)) == [("latch", "b")]
    assert "cmdstat_scan" not in raw.info("commandstats")
    await here.limiter("b", "5/min").try_acquire()
    assert await names(here.names("b")) == [("latch", "b"), ("limiter", "b")]


async def test_limiters_are_found_with_their_keys_and_the_rates_that_the_server_knows(here, there, raw):
    plain, login = here.limiter("plain", "5/min; 9/h"), here.limiter("login", "2/min")
    for key in ("strange}:window:x", "strange}:window:1000", "of-another-type}:settings"):
        raw.set("{hf:limiter:" + key, 1, ex=60)
    await plain.acquire(cost=3)
    await login.keyed("ann").acquire()
    await login.keyed("bob", 7).acquire(cost=2)
    await here.limiter("paused", "1/s").pause(60)
    await here.limiter("set", "1/s").resize("40/min")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_admitted(login.keyed("bob", 7)))
        await until_queued(there.limiter("login", "2/min").keyed("bob", 7))
        found = {one.name: one.status for one in await all_of(there.names(kinds=["limiter"]))}
        await there.limiter("login", "2/min").keyed("bob", 7).reset()
    assert sorted(found) == ["login|ann", "login|bob|7", "paused", "plain", "set"]
    used = {name: [(rate.limit, rate.per, rate.used, rate.remaining) for rate in found[name].rates] for name in found}
    assert used == {
        "login|ann": [(2, 60.0, 1, 1)],  # as that key is full, a client has told its rates
        "login|bob|7": [(2, 60.0, 2, 0)],  # the first waiter brings them
        "paused": [],
        "plain": [(0, 60.0, 3, 0), (0, 3600.0, 3, 0)],
        "set": [(40, 60.0, 0, 40)],
    }
    assert (found["login|bob|7"].waiting, found["plain"].waiting) == (1, 0)
    assert 0 <= found["login|bob|7"].longest_wait < 60
    assert found["plain"].longest_wait is None
    assert 0 < found["paused"].paused_for <= 60
    assert (found["paused"].last.what, found["set"].last.why) == ("pause", "40/min")
    assert str(found["login|bob|7"]) == "2 of 2 used in 60 s; 1 waiting"
    assert str(found["plain"]) == "3 used in 60 s, 3 used in 3,600 s; 0 waiting"
    assert await names(there.names("login|*")) == [("limiter", "login|ann"), ("limiter", "login|bob|7")]
    assert await names(there.names("login|ann")) == [("limiter", "login|ann")]


async def test_a_limiter_that_is_nearly_full_tells_its_rates_once(here, there, raw, monkeypatch):
    login = here.limiter("login", "10/min; 500/h")
    for key, cost in (("ann", 8), ("bob", 9)):
        await login.keyed(key).try_acquire(cost=cost)
        assert raw.exists("{hf:limiter:login}:rates") == (key == "bob"), "a tenth of it is left"
    assert 0 < raw.pttl("{hf:limiter:login}:rates") <= 3_600_000
    limits = {one.name: [rate.limit for rate in one.status.rates] for one in await all_of(there.names("login*"))}
    assert limits == {"login|ann": [10, 500], "login|bob": [10, 500]}
    assert [one.name for one in await all_of(there.names("login"))] == []
    raw.delete("{hf:limiter:login}:rates")
    assert not await here.limiter("login", "10/min; 500/h").keyed("bob").try_acquire(cost=5)
    assert not raw.exists("{hf:limiter:login}:rates"), "not again within ten minutes"
    monkeypatch.setattr(Announcements, "EVERY_S", 0.0)
    assert not await there.limiter("login", "10/min; 500/h").keyed("bob").try_acquire(cost=5)
    assert raw.exists("{hf:limiter:login}:rates"), "a refusal tells them, too"
    await there.limiter("login", "9/h").keyed("eve").resize("3/min")
    raw.delete("{hf:limiter:login}:rates")
    assert await there.limiter("login", "9/h").keyed("eve").try_acquire(cost=3)
    assert not raw.exists("{hf:limiter:login}:rates"), "rates that were set are known anyway"


async def test_a_call_is_admitted_where_its_rates_cannot_be_told(api, raw, server):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            lost = proxy.lose_request(containing(b"}:rates"), times=None)
            assert await client.limiter("a", "1/min").try_acquire()
            assert lost.happened
            assert not await client.limiter("a", "1/min").try_acquire()
            assert not raw.exists("{hf:limiter:a}:rates")


async def test_many_limiters_are_inspected_in_few_calls(here, raw):
    limiter = here.limiter("ip", "5/min; 9/h")
    for number in range(60):
        await limiter.keyed(number).try_acquire(cost=1 + number % 5)
    await here.limiter("ip", "7/s; 9/d").keyed(0).try_acquire()
    raw.config_resetstat()
    found = {one.name: one.status for one in await all_of(here.names(kinds=["limiter"]))}
    used = {name: [rate.used for rate in status.rates] for name, status in found.items()}
    assert used == {f"ip|{number}": [1 + number % 5] * 2 for number in range(60)} | {"ip|0": [1, 1, 1, 1]}
    stats = raw.info("commandstats")
    assert sum(stats[f"cmdstat_{name}"]["calls"] for name in ("evalsha", "eval") if f"cmdstat_{name}" in stats) <= 6


async def test_debounced_names_and_latches_are_found_while_something_is_there(here, there):
    burst, latch = here.debounce("reindex", 60.0).keyed("x"), here.latch("import", 3)
    assert await burst.status() == DebounceStatus(0, None, None, 0)
    async with asyncio.TaskGroup() as tasks:
        calls = tasks.create_task(_runs(burst))
        await eventually_async(lambda: _waits(there.debounce("reindex", 60.0).keyed("x")))
        await latch.done("a", "b")
        found = {one.name: one.status for one in await all_of(there.names(listed=1))}
        assert await names(there.names("*|x")) == [("debounce", "reindex|x")]
        assert await there.debounce("reindex", 0.001).keyed("x").wait()
    assert not calls.result()
    assert sorted(found) == ["import", "reindex|x"]
    assert (found["reindex|x"].waiting, found["reindex|x"].items) == (1, 0)
    assert 0 <= found["reindex|x"].burst_for < 60
    assert 0 < found["reindex|x"].due_in <= 60
    assert (found["import"].done, found["import"].left, found["import"].number) == (("a",), None, 2)
    assert str(found["import"]) == "2 done; 0 waiting"
    assert await names(there.names()) == [("latch", "import")]
    await latch.forget()
    assert await names(there.names("import")) == []


async def _admitted(limiter):
    await limiter.acquire()


async def _runs(debounce):
    return await debounce.wait()


async def _waits(debounce):
    return (await debounce.status()).waiting


async def test_what_once_has_recorded_is_found_where_it_is_asked_for(here, there, raw):
    once = here.once("invoice")
    for key, ending in ((1, "done"), (2, "left")):
        run = await once.keyed(key).acquire()
        await (run.finish("x" * 4000) if ending == "done" else run.release())
    raw.delete("{hf:once:invoice|1}:state", "{hf:once:invoice|1}:tokens")
    assert await names(there.names("invoice*")) == [("once", "invoice|2")]
    found = {one.name: one for one in await all_of(there.names("invoice*", recorded=True))}
    assert sorted(found) == ["invoice|1", "invoice|2"]
    assert (found["invoice|1"].recorded.state, found["invoice|1"].recorded.age < 60) == ("done", True)
    assert (found["invoice|1"].status.holding, found["invoice|2"].recorded) == (0, None)
    assert [one.recorded.state for one in await all_of(there.names("invoice|1", recorded=True))] == ["done"]
    raw.setrange("{hf:once:invoice|1}:result", 0, b"layout 9".ljust(32, b"\0"))
    with pytest.raises(UnknownLayout, match="layout 9"):
        await all_of(there.names("invoice*", recorded=True))


async def test_a_name_in_another_layout_keeps_no_other_name_back(here, there, raw):
    await here.limiter("a", "5/min").try_acquire()
    await here.latch("a", 3).done("x")
    run = await here.once("a").acquire()
    newer = {"limiter:b}:settings": "paused_until", "debounce:b}:burst": "due", "once:b}:state": "s"}
    for key, field in newer.items():
        raw.hset("{hf:" + key, field, "layout 2")
        raw.expire("{hf:" + key, 60)
    found = []
    with pytest.raises(UnknownLayout, match="'b' is stored in layout 2"):
        await _fill(found, there.names())
    assert sorted((one.kind, one.name) for one in found) == [("latch", "a"), ("limiter", "a"), ("once", "a")]
    await run.release()


async def _fill(found, names):
    if hasattr(names, "__aiter__"):
        async for one in names:
            found.append(one)
    else:
        found.extend(names)
