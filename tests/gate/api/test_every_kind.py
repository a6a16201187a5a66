"""What all objects have in common: their options, their names, and what they say once their client is closed."""

from __future__ import annotations

import asyncio

import pytest

from handfast import ClientClosed, Handfast, ServerRefused
from handfast._api.sync import object as sync_object
from handfast._drivers import driver as base
from handfast._drivers.sync import driver, performing, session, transport
from handfast._engine import exchange
from handfast._kinds import KINDS as ALL
from handfast._protocol import asking
from handfast.testing import FaultProxy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO, SYNC
from tests._support.cancelling import settled
from tests._support.family import NOWHERE
from tests._support.helpers import awaited, eventually, eventually_async
from tests._support.objects import OBJECTS, WAITING, is_waiting

KINDS = {
    "lock": lambda client, name="a b", **options: client.lock(name, **options),
    "rlock": lambda client, name="a b", **options: client.rlock(name, **options),
    "semaphore": lambda client, name="a b", **options: client.semaphore(name, 2, **options),
    "read lock": lambda client, name="a b", **options: client.rwlock(name, **options).read(),
    "write lock": lambda client, name="a b", **options: client.rwlock(name, **options).write(),
    "lock_all": lambda client, name="a b", **options: client.lock_all([name], **options),
    "election": lambda client, name="a b", **options: client.election(name, **options),
}
NAMES = {
    "lock": ("Lock", "Lease"),
    "rlock": ("RLock", "RLease"),
    "semaphore": ("Semaphore", "SemaphoreLease"),
    "read lock": ("ReadLock", "RWLease"),
    "write lock": ("WriteLock", "RWLease"),
    "lock_all": ("LockAll", "LeaseOfAll"),
    "election": ("Election", "Leadership"),
}
CLOSED = "this client was closed; make a new one"

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": -1}, ValueError),
        ({"ttl": float("nan")}, ValueError),
        ({"ttl": "30"}, TypeError),
        ({"on_lost": "ignore"}, ValueError),
        ({"max_waiters": 0}, ValueError),
        ({"permits": 2}, TypeError),
        ({"name": ""}, ValueError),
    ],
    ids=str,
)
async def test_bad_options_are_refused_before_any_io(api, kind, options, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error, match=next(iter(options))):
            KINDS[kind](client, **options)


@kinds
@pytest.mark.parametrize("timeout", [float("nan"), "1", True])
async def test_bad_timeouts_are_refused_before_any_io(api, kind, timeout):
    async with api.client(NOWHERE) as client:
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            await KINDS[kind](client).acquire(timeout=timeout)
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            async with KINDS[kind](client).acquire(timeout=timeout):
                pytest.fail("the block was entered")


@kinds
async def test_a_closed_client_raises_an_error(api, server, raw, kind):
    async with api.client(server.url) as client:
        async with KINDS[kind](client):
            pass
    made = KINDS[kind](client)
    for use in (made.acquire, made.try_acquire, *([made.status] if hasattr(made, "status") else [])):
        with pytest.raises(ClientClosed, match=CLOSED):
            await use()
    with pytest.raises(ClientClosed, match=CLOSED):
        async with made:
            pytest.fail("the block was entered")
    await client.close()


@kinds
async def test_class_names_and_reprs_show_the_api(api, here, kind):
    prefix = "" if api is SYNC else "Async"
    made, (its_class, lease_class) = KINDS[kind](here), NAMES[kind]
    assert repr(made) == f"<{prefix}{its_class} 'a b'>"
    async with made as lease:
        assert repr(lease).startswith(f"<{prefix}{lease_class} of 'a b', fence {lease.fence}, ")
        assert lease.name == "a b"
    assert "released" in repr(lease)


# --- objects without leases

NAMES_OF = {kind: next(iter(row.modules.values()))[0] for kind, row in ALL.items()}
objects = pytest.mark.parametrize("kind", OBJECTS)
waiting = pytest.mark.parametrize("kind", WAITING)
WHERE = [base, driver, performing, session, transport, exchange, sync_object, asking]
"""Modules in which a call is interrupted at every point."""


def test_every_kind_is_asked():
    assert set(ALL) == {*OBJECTS, "lock", "semaphore", "rwlock", "election", "group", "partition", "once"}


async def start(api, raw, kind, client):
    """Start a call that waits, and wait until it does."""
    task = asyncio.create_task(awaited(OBJECTS[kind].wait(client, "a")))
    await eventually_async(lambda: is_waiting(raw, kind, "a"))
    return task


@objects
async def test_an_object_has_its_name_and_a_repr_and_refuses_bad_names(api, here, kind):
    made = OBJECTS[kind].make(here, "a b")
    assert (made.name, repr(made)) == ("a b", f"<{'' if api is SYNC else 'Async'}{NAMES_OF[kind]} 'a b'>")
    for name, error in (("", ValueError), (7, TypeError)):
        with pytest.raises(error, match="name must"):
            OBJECTS[kind].make(here, name)


@objects
async def test_a_closed_client_refuses_each_call_and_ends_those_that_wait(api, server, raw, kind):
    client = api.client(server.url)
    await OBJECTS[kind].use(client, "a")
    call = await start(api, raw, kind, client) if OBJECTS[kind].wait else None
    await client.close()
    if call is not None:
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(call, 20)
    with pytest.raises(ClientClosed, match=CLOSED):
        await OBJECTS[kind].use(client, "a")


@objects
async def test_at_maxmemory_a_call_is_refused_and_leaves_nothing(here, raw, kind):
    await OBJECTS[kind].use(here, "warm")
    before = raw.keys("*")
    raw.config_set("maxmemory", 1)
    with pytest.raises(ServerRefused):
        await OBJECTS[kind].use(here, "a")
    raw.config_set("maxmemory", 0)
    assert raw.keys("*") == before


@objects
async def test_a_lost_reply_changes_no_result(api, there, server, raw, kind):
    sample = OBJECTS[kind]
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.lock("warm").status()
            if sample.script.isupper():
                return  # a plain command changes nothing the second time
            proxy.lose_reply(script(sample.script))
            lost = await asyncio.wait_for(awaited(sample.use(client, "a")), 20)
    assert repr(lost) == repr(await sample.use(there, "b")).replace("'b'", "'a'")


@waiting
async def test_a_call_whose_connection_breaks_hears_over_the_next_one(api, there, server, raw, kind):
    async with api.client(server.url) as client:
        await OBJECTS[kind].use(client, "a")
        call = await start(api, raw, kind, client)
        raw.client_kill_filter(_type="pubsub")
        await there.lock("warm").status()
        await OBJECTS[kind].let_go(there, "a")
        await asyncio.wait_for(call, 20)


@waiting
async def test_a_cancellation_at_any_await_leaves_none_waiting(server, raw, kind):
    cancelled, sample = 0, OBJECTS[kind]
    async with ASYNCIO.handfast(server.url) as client:
        await sample.use(client, "warm")
        async for outcome in cancel_everywhere(lambda: sample.short(client, "a"), twice=True):
            await settled(client)
            cancelled += outcome.how == "stopped"
            assert sample.forgets or not is_waiting(raw, kind, "a"), outcome
    assert cancelled >= 2


@waiting
def test_an_interrupt_at_any_point_leaves_none_waiting(hf, raw, kind):
    struck, sample = 0, OBJECTS[kind]
    sample.use(hf, "warm")
    for outcome in interrupt_everywhere(lambda: sample.short(hf, "a"), within=WHERE):
        struck += outcome.how == "stopped"
        try:
            eventually(lambda: sample.forgets or not is_waiting(raw, kind, "a"))
        except AssertionError:
            pytest.fail(f"left behind: {outcome}")
    assert struck > 20


@waiting
def test_without_a_server_a_call_waits_for_nothing(kind):
    with Handfast("null:") as client:
        OBJECTS[kind].use(client, "a")
        OBJECTS[kind].wait(client, "a")
