"""Which names there are, through both APIs, and taking leases away up to a fence."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from handfast import NameStatus
from handfast.arguments import Kind
from tests._support.apis import all_of, until_queued

ODD = ["a b", "a{b}:state", "{hf:lock:x}:state", "50%", "ключ*", "[x]", "a/b@c:d"]
"""Names that a key has only encoded."""


async def names(found):
    return sorted((one.kind, one.name) for one in await all_of(found))


async def test_names_of_all_kinds_are_found_and_told_apart(here, there, raw):
    raw.set("stranger", 1)
    raw.set("{hf:lock:of-another-type}:state", 1, ex=60)
    raw.hset("{hf:lock:without-a-state}:state", "x", 1)
    raw.expire("{hf:lock:without-a-state}:state", 60)
    await here.scores("a").advance({"x": 1})
    await here.autocomplete("a").add(["x"])
    async with here.lock("a"), here.semaphore("a", 5).acquire(permits=2), here.rwlock("a").read(), here.rlock("b"):
        async with here.lock_all(["c", "d"]), there.rwlock("b").write():
            found = {(one.kind, one.name): one.status for one in await all_of(there.names())}
            assert sorted(found) == [
                *[("lock", name) for name in "abcd"],
                *[("rwlock", name) for name in "ab"],
                ("semaphore", "a"),
            ]
            assert {name for (_, name), status in found.items() if status.holders[0].lock_all} == {"c", "d"}
            assert (found["semaphore", "a"].limit, found["semaphore", "a"].free) == (5, 3)
            assert [found["rwlock", name].holders[0].exclusive for name in "ab"] == [False, True]
            for (kind, name), status in found.items():
                make = {"lock": there.lock, "rwlock": there.rwlock, "semaphore": lambda name: there.semaphore(name, 5)}
                again = await make[kind](name).status()
                assert (again.holders[0].token, again.holding, again.limit, again.free, again.grants) == (
                    status.holders[0].token,
                    status.holding,
                    status.limit,
                    status.free,
                    status.grants,
                )


async def test_names_are_found_whatever_they_are_made_of(here, raw):
    for name in ODD:
        await (await here.lock(name).acquire()).release()
    assert await names(here.names()) == sorted(("lock", name) for name in ODD)
    assert await names(here.names("a?b")) == [("lock", "a b")]
    assert await names(here.names("????[*]")) == [("lock", "ключ*")]
    assert await names(here.names("*:state")) == [("lock", "a{b}:state"), ("lock", "{hf:lock:x}:state")]


async def test_a_pattern_without_wildcards_finds_the_name_without_a_scan(here, raw):
    for name in ("a*", "ab", "b"):
        await (await here.lock(name).acquire()).release()
    await (await here.semaphore("a*", 2).acquire()).release()
    raw.config_resetstat()
    without = [kind for kind in get_args(Kind) if kind != "limiter"]  # whose periods are in the names of keys
    assert await names(here.names("a[*]", kinds=without)) == [("lock", "a*"), ("semaphore", "a*")]
    assert await names(here.names("b", kinds=without)) == [("lock", "b")]
    assert await names(here.names("b", kinds=["rwlock"])) == []
    assert "cmdstat_scan" not in raw.info("commandstats")


async def test_runs_of_once_are_found_with_the_parts_of_their_keys(here, there, raw):
    invoices = here.once("invoice")
    keys = [(), (42,), ("ann", "a b/%"), ("ann", "x|y")]
    async with here.lock("invoice|42"), here.once("other"):
        runs = [await (invoices.keyed(*key) if key else invoices).acquire() for key in keys]
        shown = ["invoice", "invoice|42", "invoice|ann|a b/%", "invoice|ann|x\\|y"]
        assert await names(there.names("inv*", kinds=["once"])) == [("once", name) for name in shown]
        for name, run in zip(shown, runs, strict=True):
            (found,) = await all_of(there.names(name, kinds=["once"]))
            assert found.name == name
            assert [one.fence for one in found.status.holders] == [run.fence]
        assert await names(there.names("invoice|42")) == [("lock", "invoice|42"), ("once", "invoice|42")]
        for run in runs:
            await run.release()


async def test_each_name_of_many_is_found_once(here, raw):
    raw.eval("for i = 1, 4000 do redis.call('SET', 'stranger:' .. i, i) end", 0)
    many = {f"job:{number}" for number in range(120)}
    for name in many:
        await (await here.lock(name).acquire()).release()
    found = [one.name for one in await all_of(here.names("job:*"))]
    assert len(found) == len(many)
    assert set(found) == many


async def test_a_status_lists_as_many_as_are_wanted_and_counts_all(here, raw):
    semaphore = here.semaphore("a", 3)
    leases = [await semaphore.acquire() for _ in range(3)]
    (found,) = await all_of(here.names("a", listed=2))
    assert isinstance(found, NameStatus)
    assert (len(found.status.holders), found.status.holding) == (2, 3)
    for lease in leases:
        await lease.release()
    (found,) = await all_of(here.names("a"))
    assert (found.status.holding, found.status.limit, found.status.free) == (0, 0, 0), "it brings its limit along"
    await semaphore.resize(7)
    (found,) = await all_of(here.names("a"))
    assert (found.status.limit, found.status.free, found.status.last.what) == (7, 7, "resize")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"pattern": ""}, ValueError),
        ({"pattern": b"a"}, TypeError),
        ({"kinds": ["rlock"]}, ValueError),
        ({"kinds": "lock"}, ValueError),
        ({"listed": 0}, ValueError),
        ({"listed": 101}, ValueError),
    ],
)
async def test_wrong_arguments_are_refused_before_the_first_step(here, options, error):
    with pytest.raises(error):
        here.names(**options)


async def test_force_release_up_to_a_fence_spares_who_came_later(here, there):
    lock = here.lock("a")
    first = await lock.acquire()
    seen = (await there.lock("a").status()).fence
    await first.release()
    async with lock:
        assert await there.lock("a").force_release(up_to_fence=seen) == 0
    assert (await lock.status()).last is None
    second = await lock.acquire()
    assert await there.lock("a").force_release(up_to_fence=second.fence) == 1
    assert await second.release() is False


@pytest.mark.parametrize(("fence", "error"), [(0, ValueError), (2**53 + 1, ValueError), (1.5, TypeError)])
async def test_a_fence_out_of_range_is_refused(here, fence, error):
    with pytest.raises(error, match="up_to_fence"):
        await here.lock("a").force_release(up_to_fence=fence)


async def test_a_semaphore_loses_the_leases_up_to_the_fence_that_was_seen(here, there):
    semaphore = here.semaphore("a", 2)
    old = await semaphore.acquire()
    (seen,) = await all_of(there.names("a"))
    new = await semaphore.acquire()
    assert await there.semaphore("a", 2).force_release(up_to_fence=seen.status.fence) == 1
    assert await old.release() is False
    assert await new.release() is True


async def test_waiters_are_counted(here, there):
    async with asyncio.TaskGroup() as tasks, here.lock("a"):

        async def wait():
            async with there.lock("a"):
                pass

        tasks.create_task(wait())
        await until_queued(here.lock("a"))
        (found,) = await all_of(here.names("*"))
        assert (found.status.waiting, len(found.status.waiters)) == (1, 1)
        assert not found.status.waiters[0].lock_all
