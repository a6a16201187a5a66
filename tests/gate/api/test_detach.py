"""Ownership that travels: a lease is detached in one client and adopted in another one, another process as far as the server can tell."""

from __future__ import annotations

import asyncio

import pytest
import redis

from handfast import Handfast, LeaseLost, NotHeld, ServerRefused
from handfast._api.sync import lease as lease_module
from handfast._api.sync import primitive
from handfast._drivers.sync import driver, performing, renewer
from handfast.testing import FaultProxy, interrupt_everywhere, script
from tests._support.engine import Engine
from tests._support.helpers import eventually, eventually_async, more
from tests._support.kinds import ROWS

OURS = [driver, performing, renewer, lease_module, primitive]
kinds = pytest.mark.parametrize("kind", ["lock", "read"])
"""All others are asked by ``tests/gate/questions/test_token.py``, with less of the words."""


def holders(raw, name="a"):
    return Engine(raw, name).holders()


@kinds
async def test_a_lease_travels_from_one_client_to_another(here, there, raw, kind):
    lease = await ROWS[kind].make(here).acquire()
    token = await lease.detach()
    assert isinstance(token, str)
    assert token.split() == [token]
    assert not lease.lost
    assert lease.remaining() == 0
    with pytest.raises(NotHeld, match="was already released or detached"):
        lease.check()
    with pytest.raises(NotHeld):
        await lease.detach()
    assert await lease.release() is False
    assert (await ROWS[kind].make(here).status()).holders, "it is still taken"
    adopted = await ROWS[kind].make(there, ttl=60).adopt(token)
    assert type(adopted._thing if hasattr(adopted, "_thing") else adopted) is type(
        lease._thing if hasattr(lease, "_thing") else lease
    )
    assert adopted.fence == lease.fence
    assert 30 < adopted.remaining() <= 60
    adopted.check()
    assert await adopted.release() is True
    assert not (await ROWS[kind].make(here).status()).holders


@kinds
async def test_who_adopts_a_lease_is_shown_and_told_that_it_was_taken_away(here, there, raw, kind):
    lease = await ROWS[kind].make(here).acquire()
    adopted = await ROWS[kind].make(there).adopt(await lease.detach())
    (holder,) = (await ROWS[kind].make(here).status()).holders
    assert holder.label == there._driver.label
    assert (holder.fence, holder.token) == (adopted.fence, adopted.token[: len(holder.token)])
    channel = f"hf:control:{holder.owner.partition('.')[0]}"
    await eventually_async(lambda: raw.pubsub_numsub(channel)[0][1])
    revoker = here.rwlock("a") if kind in {"read", "write"} else ROWS[kind].make(here)
    assert await revoker.force_release(reason="moved on") == 1
    await eventually_async(lambda: adopted.lost)
    with pytest.raises(LeaseLost, match="moved on"):
        adopted.check()
    await adopted.release()


@pytest.mark.parametrize("given", ["step 2; task=b", ""])
async def test_an_adopted_lease_is_shown_under_the_label_that_was_given(api, server, there, raw, given):
    async with api.client(server.url, label="first") as first:
        token = await (await first.lock("a").acquire()).detach()
        adopted = await there.lock("a").adopt(token, label=given)
        assert (await first.lock("a").status()).holders[0].label == (given or "first")
        await adopted.release()


async def test_a_label_is_checked_before_any_call(api):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="label"):
            await client.lock("a").adopt(f"lock.{'a' * 32}.1.1.0", label="x" * 201)
        with pytest.raises(TypeError, match="label"):
            await client.lock("a").adopt(f"lock.{'a' * 32}.1.1.0", label=7)


async def test_a_lost_reply_of_the_second_step_changes_nothing(api, server, here, raw):
    lease = await here.lock("a").acquire()
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            await client.lock("a").locked()
            proxy.lose_reply(script("permit_adopt"))
            adopted = await client.lock("a").adopt(await lease.detach())
            assert (await here.lock("a").status()).holders[0].label == client._driver.label
            await adopted.release()


async def test_a_block_may_detach_its_lease_and_releases_nothing_then(here, there, raw):
    async with here.lock("a") as lease:
        token = await lease.detach()
    assert holders(raw) == [lease.token]
    async with there.lock("a").adopt(token):
        assert holders(raw) == [lease.token]
    assert not holders(raw)


async def test_permits_travel_together(here, there, raw):
    lease = await here.semaphore("a", 5).acquire(permits=3)
    adopted = await there.semaphore("a", 5).adopt(await lease.detach())
    assert (await here.semaphore("a", 5).status()).free == 2
    assert await adopted.release() is True
    assert (await here.semaphore("a", 5).status()).free == 5


async def test_a_writer_that_was_downgraded_travels_as_a_reader(here, there, raw):
    lease = await here.rwlock("a").write().acquire()
    await lease.downgrade()
    adopted = await there.rwlock("a").read().adopt(await lease.detach())
    assert not adopted.writes
    async with here.rwlock("a").read():
        pass
    token = await adopted.detach()
    async with here.rwlock("a").read().adopt(token):
        pass
    assert not (await here.rwlock("a").status()).holders


async def test_a_lease_that_was_handed_over_travels_with_its_whole_ttl(here, there, raw):
    held = await there.lock("a").acquire()
    waiter = asyncio.create_task(_acquired(here.lock("a")))
    await eventually_async(lambda: Engine(raw).queue())
    await held.release()
    token = await (await waiter).detach()
    [holder] = (await there.lock("a").status()).holders
    assert holder.remaining > 20
    assert await (await there.lock("a").adopt(token)).release() is True


async def _acquired(lock):
    return await lock.acquire(timeout=20)


async def test_a_lease_that_was_lost_is_not_detached(here, there, raw):
    lease = await here.lock("a").acquire()
    raw.flushall()
    with pytest.raises(LeaseLost):
        await lease.detach()
    assert lease.lost


async def test_a_client_does_not_adopt_what_it_holds(here, there, raw):
    token = await (await here.lock("a").acquire()).detach()
    adopted = await here.lock("a").adopt(token)
    with pytest.raises(ValueError, match="is held by this client already") as refused:
        await here.lock("a").adopt(token)
    assert token not in str(refused.value)
    assert await adopted.release() is True
    with pytest.raises(LeaseLost):
        await here.lock("a").adopt(token)


async def test_of_two_that_adopt_one_token_at_once_in_one_client_one_gets_it(here, there, raw):
    token = await (await here.lock("a").acquire()).detach()

    async def adopt():
        return await there.lock("a").adopt(token)

    found = await asyncio.gather(adopt(), adopt(), return_exceptions=True)
    (lease,) = (one for one in found if not isinstance(one, Exception))
    (refused,) = (one for one in found if isinstance(one, Exception))
    assert isinstance(refused, ValueError)
    del found, refused
    await lease.extend(60)
    assert await lease.release() is True


async def test_an_adoption_that_failed_keeps_no_one_from_the_token(api, server, raw, there):
    token = await (await there.lock("a").acquire()).detach()
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as client:
            await client.lock("b").status()
            proxy.lose_request(script("permit_renew"), times=2)
            with pytest.raises(redis.ConnectionError) as caught:
                await client.lock("a").adopt(token)
            lease = await client.lock("a").adopt(token)
            assert caught.tb is not None, "it keeps its frames, and they keep no claim"
            assert await lease.release() is True


async def test_at_least_belongs_to_the_grant_and_not_to_the_client_that_releases_it(here, there, raw):
    lease = await here.lock("a", at_least=300).acquire()
    assert lease.token.partition(".")[2] == "300000"
    adopted = await there.lock("a", at_least=0.001).adopt(await lease.detach())
    again = await here.lock("a").adopt(await adopted.detach())
    assert await again.release() is True
    (holder,) = (await here.lock("a").status()).holders
    assert holder.released
    assert holder.remaining > 200


async def test_of_two_clients_that_adopt_one_token_the_second_to_release_has_lost_it(here, there, raw):
    token = await (await here.lock("a").acquire()).detach()
    first, second = await here.lock("a").adopt(token), await there.lock("a").adopt(token)
    assert first.fence == second.fence
    assert await first.release() is True
    with pytest.raises(LeaseLost):
        await second.extend(60)
    assert not holders(raw)


@pytest.mark.parametrize(
    "text", ["", "lock", "lock.x.1.1.0", "f" * 32, "rlock." + "f" * 32 + ".1.1.0", "lock." + "f" * 32 + ".1.1.0\n"]
)
async def test_what_is_no_token_is_refused(here, raw, text):
    with pytest.raises(ValueError, match=r"is not one that detach\(\) returned") as refused:
        await here.lock("a").adopt(text)
    assert "f" * 32 not in str(refused.value)
    with pytest.raises(TypeError, match="must be a str"):
        await here.lock("a").adopt(b"x")


async def test_an_adopted_term_goes_on_for_those_who_observe(here, there, raw):
    election = here.election("a", value="web-1")
    term = await election.acquire()
    token = await term.detach()
    assert (await election.leader()).fence == term.fence
    async with there.election("a").adopt(token) as adopted:
        leader = await election.leader()
        assert (adopted.fence, leader.fence, leader.value, leader.label) == (
            *(term.fence, term.fence),
            *("web-1", there._driver.label),
        )
        await eventually_async(election.history)
        assert [(one.fence, one.ended) for one in await election.history()] == [(term.fence, None)]
    assert await election.leader() is None
    with pytest.raises(ValueError, match="the token is of the kind election, and 'a' is of the kind lock here"):
        await there.lock("a").adopt(token)


async def test_a_token_of_another_kind_or_name_is_refused(here, there, raw):
    lease = await here.lock("a").acquire()
    token = await lease.detach()
    with pytest.raises(ValueError, match="the token is of the kind lock, and 'a' is of the kind semaphore here"):
        await there.semaphore("a", 1).adopt(token)
    with pytest.raises(LeaseLost):
        await there.lock("b").adopt(token)
    async with there.lock("a").adopt(token):
        pass


async def test_reentrant_locks_and_several_locks_stay_where_they_are(here, raw):
    token = await (await here.lock("b").acquire()).detach()
    for several, advice in (
        (here.rlock("a"), "belongs to the caller"),
        (here.lock_all(["a", "c"]), "use lock"),
    ):
        async with several as lease:
            with pytest.raises(TypeError, match=advice):
                await lease.detach()
            lease.check()
        with pytest.raises(TypeError, match="none of its kind can be detached"):
            await several.adopt(token)
    for wrong in (-1, 0, 10**9):
        async with here.lock("a") as lease:
            with pytest.raises(ValueError, match="ttl"):
                await lease.detach(ttl=wrong)
            lease.check()


# --- faults


async def test_a_lost_reply_of_either_is_made_up_for(api, server, raw, there):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as here:
            lease = await here.lock("a").acquire()
            detaching = proxy.lose_reply(script("permit_renew"))
            token = await lease.detach()
            assert detaching.happened
            adopting = proxy.lose_reply(script("permit_renew"))
            adopted = await here.lock("a").adopt(token)
            assert adopting.happened
            assert await adopted.release() is True
    assert not holders(raw)


async def test_a_detach_that_fails_leaves_the_lease_where_it_is(here, there, raw):
    async with here.lock("a") as lease:
        raw.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        try:
            with pytest.raises(ServerRefused):
                await lease.detach()
        finally:
            raw.execute_command("ACL", "SETUSER", "default", "+evalsha", "+eval")
        lease.check()
        assert holders(raw) == [lease.token]
    assert not holders(raw)


def test_no_interrupt_of_a_detach_leaves_a_lease_that_nothing_renews_or_releases(server, raw):
    got = []
    with Handfast(server.url) as hf:
        held = [hf.lock("a").acquire()]

        def use():
            got.append(held[0].detach())

        for run in interrupt_everywhere(use, within=OURS):
            assert run.how != "failed", run
            if got:
                hf.lock("a").adopt(got.pop()).release()
            elif held[0].remaining():
                held[0].check()
                assert hf._driver._here.leases, run
                held[0].release()
            eventually(lambda: not holders(raw))
            assert not hf._driver._here.leases, run
            held = [hf.lock("a").acquire()]


@pytest.mark.parametrize("points", ["signals", *more("bytecodes")])
def test_no_interrupt_of_an_adoption_leaves_a_lease_that_is_renewed(server, raw, points):
    with Handfast(server.url) as hf, Handfast(server.url) as other:
        token, lock, got = hf.lock("a").acquire().detach(), other.lock("a"), []

        def use():
            got.append(lock.adopt(token))

        for run in interrupt_everywhere(use, within=OURS, points=points):
            assert run.how != "failed", run
            if got:
                token = got.pop().detach()
            assert not other._driver._here.leases, run
            assert holders(raw), run
