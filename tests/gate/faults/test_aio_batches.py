"""Batches under faults: each task gets its own lock or its own error, and nothing is left, wherever one is lost or cut."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AsyncHandfast, ServerRefused
from handfast._drivers.aio import pending
from handfast.testing import FaultProxy, script
from tests._support.cancelling import session_of, settled
from tests._support.engine import Engine
from tests._support.helpers import eventually_async
from tests._support.limits import LimitScripts

NAMES = [f"n{number}" for number in range(6)]

BATCHES = {"acquire": script("locks_acquire"), "release": script("locks_release")}

ORDINARY = {"acquire": script("permit_acquire"), "release": script("permit_release")}


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def hf(proxy, raw):
    """A client behind the proxy, whose locks were all held once, and by batches."""
    async with AsyncHandfast(proxy.url) as client:
        await release_all(await acquire_all(client))
        await release_all(await acquire_all(client))
        for verb, is_batch in BATCHES.items():
            assert any(map(is_batch, proxy.commands)), f"no {verb} was in a batch"
        yield client


async def acquire_all(hf, names=NAMES):
    return await asyncio.gather(*(hf.lock(name).acquire(timeout=20) for name in names))


async def release_all(leases):
    return await asyncio.gather(*(lease.release() for lease in leases))


def held(raw):
    return [Engine(raw, name).holders() for name in NAMES]


def tokens(leases):
    return [[lease.token] for lease in leases]


def nothing_left(raw):
    return all(Engine(raw, name).holders() == Engine(raw, name).queue() == [] for name in NAMES)


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_an_acquire_whose_batch_is_lost_is_sent_in_the_ordinary_way(hf, proxy, raw, what):
    fault = getattr(proxy, what)(BATCHES["acquire"])
    leases = await acquire_all(hf)
    assert fault.happened == 1
    assert held(raw) == tokens(leases)
    assert [lease._state.copies for lease in leases].count(True) >= len(NAMES) - 1, "the batch may still arrive"
    assert await release_all(leases) == [True] * len(NAMES)
    assert nothing_left(raw)
    for name, lease in zip(NAMES, leases, strict=True):
        if lease._state.copies:
            assert lease.token in Engine(raw, name).stored().tombstones


@pytest.mark.parametrize("taken", [False, True])
async def test_a_release_whose_batch_had_no_reply_has_released(hf, proxy, raw, taken):
    """Even if another has each lock before it is released in the ordinary way, to which its token is unknown then."""
    leases = await acquire_all(hf)
    fault = proxy.lose_reply(BATCHES["release"])
    others = []

    def take(_command):
        if taken and not others:
            others.extend(Engine(raw, name).acquire("other") for name in NAMES)

    proxy.before(ORDINARY["release"], lambda command: take(command) if fault.happened else None)
    assert await release_all(leases) == [True] * len(NAMES)
    assert fault.happened == 1
    assert held(raw) == [["other"] if taken else []] * len(NAMES)


async def test_a_batch_that_arrives_again_when_all_is_over_grants_nothing(hf, proxy, raw):
    """As one that was stuck in the network of a connection that broke meanwhile."""
    late = []
    fault = proxy.before(BATCHES["acquire"], late.append, times=1)
    proxy.lose_request(BATCHES["acquire"])
    leases = await acquire_all(hf)
    assert fault.happened == 1
    assert await release_all(leases) == [True] * len(NAMES)
    raw.execute_command(late[0].name, *late[0].args)
    assert nothing_left(raw)


@pytest.mark.parametrize("verb", BATCHES)
@pytest.mark.parametrize(
    "where", [(direction, part) for direction in ("to client", "to server") for part in range(4)], ids=str
)
async def test_a_connection_that_is_cut_at_any_byte_of_a_batch(hf, proxy, raw, verb, where):
    direction, part = where
    size, step = (1200, 53) if direction == "to server" else (160, 7)
    for count in range(part * size // 4, (part + 1) * size // 4, step):
        leases = await acquire_all(hf) if verb == "release" else []
        fault = proxy.cut_after(count, direction)
        leases = leases or await acquire_all(hf)
        assert len({lease.token for lease in leases}) == len(NAMES)
        if verb == "acquire":
            assert held(raw) == tokens(leases)
        assert await release_all(leases) == [True] * len(NAMES)
        fault.clear()
        assert nothing_left(raw)


async def test_a_name_that_is_taken_in_between_is_waited_for_and_the_others_are_not(hf, proxy, server, raw):
    async with AsyncHandfast(server.url) as other:
        theirs = await other.lock("n3").acquire()
        tasks = [asyncio.create_task(hf.lock(name).acquire(timeout=20)) for name in NAMES]
        await asyncio.wait(tasks[:3] + tasks[4:])
        assert not tasks[3].done()
        await eventually_async(lambda: len(Engine(raw, "n3").queue()) == 1)
        assert await theirs.release() is True
        leases = [await task for task in tasks]
    assert held(raw) == tokens(leases)
    assert await release_all(leases) == [True] * len(NAMES)
    assert nothing_left(raw)


async def test_a_lock_that_was_not_free_joins_no_batch_until_it_is(hf, proxy, server):
    locks = [hf.lock(name) for name in NAMES]
    async with AsyncHandfast(server.url) as other, other.lock("n3"):
        leases = await asyncio.gather(*(lock.try_acquire() for lock in locks))
        assert leases.pop(3) is None
        assert [lock._request._join.is_free for lock in locks] == [name != "n3" for name in NAMES]
        before = sum(map(ORDINARY["acquire"], proxy.commands))
        assert await locks[3].try_acquire() is None
        assert sum(map(ORDINARY["acquire"], proxy.commands)) == before + 1
        assert await release_all(leases) == [True] * 5
    assert await (await locks[3].try_acquire()).release() is True
    assert locks[3]._request._join.is_free


async def test_at_maxmemory_who_holds_goes_on_and_who_is_new_is_refused(hf, proxy, raw):
    """The first name of the batch needs no memory: it is held."""
    leases = await acquire_all(hf, NAMES[:3])
    raw.config_set("maxmemory", 1)
    outcomes = await asyncio.gather(*(hf.lock(name).acquire() for name in NAMES[2:]), return_exceptions=True)
    for error in outcomes[1:]:
        assert isinstance(error, ServerRefused)
        assert error.changed_nothing
    assert await release_all(leases) == [True] * 3
    raw.config_set("maxmemory", 0)
    await settled(hf)
    assert nothing_left(raw)


async def test_after_script_flush_the_source_of_a_batch_is_sent_once(hf, proxy, raw):
    for _ in range(3):
        raw.script_flush()
        seen = len(proxy.commands)
        leases = await acquire_all(hf)
        assert held(raw) == tokens(leases)
        assert await release_all(leases) == [True] * len(NAMES)
        sent = proxy.commands[seen:]
        for is_batch in BATCHES.values():
            assert [one.name for one in sent if is_batch(one)] == ["EVALSHA", "EVAL"]
    assert nothing_left(raw)


async def test_a_user_who_may_not_run_batches_is_served_without_them(hf, proxy, raw, monkeypatch):
    """As one who has the right to run loaded scripts only, and not these."""
    real = pending.join

    def unknown(calls):
        call = real(calls)
        return call._replace(prefix=call.prefix._replace(evalsha=call.prefix.evalsha.replace(b"EVALSHA", b"EVALNOT")))

    monkeypatch.setattr(pending, "join", unknown)
    for _ in range(3):
        leases = await acquire_all(hf)
        assert held(raw) == tokens(leases)
        assert await release_all(leases) == [True] * len(NAMES)
    assert sum(one.name == "EVALNOT" for one in proxy.commands) == 1, "the next batch is made a second later"


@pytest.mark.parametrize("verb", BATCHES)
async def test_one_that_is_cancelled_leaves_the_others_alone(hf, raw, verb):
    """At each turn of the loop between its first step and its end."""
    ends, turn = set(), 1
    while "done" not in ends:
        leases = await acquire_all(hf) if verb == "release" else []
        calls = [hf.lock(name).acquire(timeout=20) for name in NAMES] if verb == "acquire" else None
        tasks = [asyncio.create_task(call) for call in calls or [lease.release() for lease in leases]]
        for _ in range(turn):
            await asyncio.sleep(0)
        ends.add("done" if tasks[3].done() else "cancelled")
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if verb == "acquire":
            await release_all([lease for lease in outcomes if not isinstance(lease, asyncio.CancelledError)])
        else:
            assert all(outcome is True for number, outcome in enumerate(outcomes) if number != 3)
        await settled(hf)
        assert nothing_left(raw), turn
        turn += 1
    assert ends == {"cancelled", "done"}
    assert turn > 3


async def test_many_more_locks_than_fit_into_one_batch(hf, proxy, raw):
    names = [f"m{number}" for number in range(300)]
    for _ in range(3):
        leases = await acquire_all(hf, names)
        assert [Engine(raw, name).holders() for name in names] == tokens(leases)
        seen = len(proxy.commands)
        assert await release_all(leases) == [True] * 300
        assert len(proxy.commands) - seen < 20
    assert session_of(hf).is_idle


# --- limiters

ADMIT, ALONE = script("limit_batch"), script("limit_acquire")


def admit_all(hf, rate="2/h", **options):
    return asyncio.gather(*(hf.limiter(name, rate).try_acquire(**options) for name in NAMES))


def used(raw):
    """Return how much each limiter has admitted."""
    return [LimitScripts(raw, (2, 3_600_000), name=name).used() for name in NAMES]


async def test_admissions_of_many_limiters_travel_in_one_call(hf, proxy, raw):
    assert [one.remaining for one in await admit_all(hf)] == [1] * len(NAMES)
    assert [one.remaining for one in await admit_all(hf, cost=1)] == [0] * len(NAMES)
    calls = [command for command in proxy.commands if ALONE(command)]
    assert any(map(ADMIT, proxy.commands))
    assert len(calls) < len(NAMES), "the first request of a turn leaves at once"
    assert [one.admitted for one in await admit_all(hf)] == [False] * len(NAMES)
    assert used(raw) == [2] * len(NAMES)


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_an_admission_whose_batch_is_lost_counts_once(hf, proxy, raw, what):
    fault = getattr(proxy, what)(ADMIT)
    assert all(one.admitted for one in await admit_all(hf))
    assert fault.happened == 1
    assert used(raw) == [1] * len(NAMES)


async def test_a_batch_of_limiters_that_arrives_again_when_all_is_given_back_admits_nothing(hf, proxy, raw):
    late = []
    fault = proxy.before(ADMIT, late.append, times=1)
    proxy.lose_request(ADMIT)
    admissions = await admit_all(hf)
    assert fault.happened == 1
    for one in admissions:
        await one.settle(cost=0)
    raw.execute_command(late[0].name, *late[0].args, NEVER_DECODE=True)
    assert used(raw) == [0] * len(NAMES)


@pytest.mark.parametrize("part", range(4))
async def test_a_connection_that_is_cut_at_any_byte_of_a_batch_of_limiters(hf, proxy, raw, part):
    for count in range(part * 300, (part + 1) * 300, 53):
        raw.flushall()
        fault = proxy.cut_after(count, "to server")
        assert all(one.admitted for one in await admit_all(hf))
        fault.clear()
        assert used(raw) == [1] * len(NAMES)


async def test_limiters_under_several_rates_or_set_rates_go_alone(hf, proxy, raw):
    await asyncio.gather(*(hf.limiter(name, ["5/s", "9/min"]).try_acquire() for name in NAMES))
    await hf.limiter(NAMES[0], "2/h").resize("2/h")
    await admit_all(hf)
    assert await hf.limiter(NAMES[0], "2/h").try_acquire()
    sent = [command for command in proxy.commands if ADMIT(command)]
    assert all(b"window:1000" not in b" ".join(command.args) for command in sent)
