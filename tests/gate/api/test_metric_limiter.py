"""A limiter of several metrics through both APIs."""

from __future__ import annotations

import asyncio

import pytest

from handfast import AsyncHandfast, Handfast, LimitExceeded, RateLimited
from handfast._api.sync import limits as sync_limits
from handfast._api.sync import metric_limiter
from handfast._drivers import driver as base
from handfast._drivers.sync import driver, performing, session
from handfast._protocol import limiting
from handfast.events import Admitted
from handfast.testing import FaultProxy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO, SYNC, all_of, until_queued
from tests._support.cancelling import settled as quiet
from tests._support.family import scripts_run
from tests._support.helpers import eventually, eventually_async

ACQUIRE, SETTLE = script("limit_acquire"), script("limit_settle")

RATES = {"requests": "5/d", "tokens": "1000/d"}


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def api(request):
    return request.param


async def wait(limiter, **options):
    """Acquire: for a task of its own, which needs a coroutine."""
    return await limiter.acquire(**options)


async def used(limiter):
    """Return what counts in each metric."""
    return {rate.metric: rate.used for rate in (await limiter.status()).rates}


def members(raw, metric, period="86400000", name="a"):
    return raw.zrange(f"{{hf:limiter:{name}}}:window:{metric}:{period}", 0, -1)


# --- admissions


async def test_a_call_is_admitted_under_all_metrics_or_under_none(here, raw):
    limiter = here.limiter("a", RATES)
    admission = await limiter.try_acquire(cost={"tokens": 800})
    assert (admission.admitted, admission.metric, admission.retry_after) == (True, None, 0)
    assert dict(admission.cost) == {"requests": 1, "tokens": 800}
    assert dict(admission.remaining) == {"requests": 4, "tokens": 200}
    for cost, short in [({"tokens": 201}, "tokens"), ({"requests": 5, "tokens": 200}, "requests")]:
        refused = await limiter.try_acquire(cost=cost)
        assert (refused.admitted, refused.metric) == (False, short)
        assert 86_000 < refused.retry_after <= 86_400
        assert dict(refused.remaining) == {"requests": 4, "tokens": 200}
    assert await used(limiter) == {"requests": 1, "tokens": 800}
    before = scripts_run(raw)
    assert await limiter.try_acquire()
    assert scripts_run(raw) == before + 1
    assert await used(limiter) == {"requests": 2, "tokens": 800}


async def test_a_refusal_says_what_is_short(here):
    limiter = here.limiter("a", RATES)
    await limiter.acquire(cost={"tokens": 900})
    with pytest.raises(RateLimited, match="'a' does not admit this call within 1 s: too few tokens are left") as error:
        await limiter.acquire(cost={"tokens": 200}, timeout=1)
    assert error.value.metric == "tokens"
    assert error.value.retry_after > 86_000


async def test_who_waits_behind_others_is_short_of_nothing(here, there):
    limiter = here.limiter("a", RATES)
    await limiter.acquire(cost={"tokens": 900})
    waiter = asyncio.create_task(wait(there.limiter("a", RATES), cost={"tokens": 500}))
    await until_queued(limiter)
    refused = await limiter.try_acquire(cost={"tokens": 1})
    assert (refused.admitted, refused.metric) == (False, None)
    with pytest.raises(RateLimited) as error:
        await limiter.acquire(cost={"tokens": 1}, timeout=0.05)
    assert error.value.metric is None
    await limiter.reset()
    assert await waiter


async def test_who_waited_too_long_hears_what_was_short(here):
    limiter = here.limiter("a", {"requests": "5/d", "tokens": "1000/200ms"})
    last = None
    for _ in range(3):  # the first two fill the window; the last one comes when it is nearly over
        last = await limiter.acquire(cost={"tokens": 1000})
    with pytest.raises(RateLimited) as error:
        await limiter.acquire(cost={"tokens": 1000}, timeout=0.1)
    assert last
    assert error.value.metric == "tokens"


async def test_a_settling_admits_who_waits_and_both_know_what_is_left(here, there):
    limiter = here.limiter("a", RATES)
    first = await limiter.acquire(cost={"tokens": 1000})
    waiters = [asyncio.create_task(wait(there.limiter("a", RATES), cost={"tokens": 600}))]
    await until_queued(limiter)
    waiters.append(asyncio.create_task(wait(limiter, cost={"tokens": 300, "requests": 2})))
    await until_queued(limiter, 2)
    await first.settle(tokens=100)
    admissions = await asyncio.gather(*waiters)
    assert [dict(one.remaining) for one in admissions] == [
        {"requests": 3, "tokens": 300},
        {"requests": 1, "tokens": 0},
    ]
    assert dict(first.cost) == {"requests": 1, "tokens": 100}
    assert await used(limiter) == {"requests": 4, "tokens": 1000}


async def test_an_admission_is_settled_again_and_given_back_from_every_window(here, raw):
    limiter = here.limiter("a", {"requests": "5/d", "tokens": "1000/d; 9000/2d"})
    admission = await limiter.acquire(cost={"tokens": 0})
    for costs in ({"tokens": 300}, {"tokens": 700, "requests": 2}, {"tokens": 0}, {"tokens": 20}):
        await admission.settle(**costs)
    assert dict(admission.cost) == {"requests": 2, "tokens": 20}
    assert [rate.used for rate in (await limiter.status()).rates] == [2, 20, 20]
    await admission.undo()
    assert dict(admission.cost) == {"requests": 0, "tokens": 0}
    assert [key for key in raw.keys() if ":window:" in key] == []  # noqa: SIM118 -- of a server
    for again in (admission.undo(), admission.settle(tokens=1)):
        with pytest.raises(RuntimeError, match="was given back; acquire another one"):
            await again


async def test_zeros_for_all_metrics_give_it_back(here, raw):
    limiter = here.limiter("a", RATES)
    await (await limiter.acquire(cost={"tokens": 5})).settle(tokens=0, requests=0)
    assert [key for key in raw.keys() if ":window:" in key] == []  # noqa: SIM118 -- of a server


async def test_one_that_was_not_admitted_has_nothing_to_settle(here):
    limiter = here.limiter("a", RATES)
    await limiter.acquire(cost={"requests": 5})
    refused = await limiter.try_acquire()
    for call in (refused.settle(tokens=1), refused.undo()):
        with pytest.raises(RuntimeError, match="nothing to settle: the call was not admitted"):
            await call


async def test_a_metric_may_have_several_rates_and_the_tightest_counts(here):
    limiter = here.limiter("a", {"tokens": "1000/h; 1500/d"})
    await limiter.acquire(cost={"tokens": 900})
    await limiter.resize({"tokens": "2000/h; 1500/d"})
    refused = await limiter.try_acquire(cost={"tokens": 700})
    assert (refused.metric, dict(refused.remaining)) == ("tokens", {"tokens": 600})
    assert 86_000 < refused.retry_after <= 86_400


async def test_each_key_has_limits_of_its_own(here):
    limiter = here.limiter("a", RATES)
    await limiter.keyed("acme").acquire(cost={"tokens": 1000})
    assert not await limiter.keyed("acme").try_acquire(cost={"tokens": 1})
    assert await limiter.keyed("initech").try_acquire(cost={"tokens": 1})
    assert await limiter.try_acquire(cost={"tokens": 1})


async def test_a_pause_says_that_nothing_is_left(here):
    limiter = here.limiter("a", RATES)
    await limiter.pause(50)
    refused = await limiter.try_acquire(cost={"tokens": 1})
    assert (refused.admitted, refused.metric) == (False, None)
    assert dict(refused.remaining) == {"requests": 0, "tokens": 0}


async def test_one_that_does_not_enforce_admits_and_says_so(here):
    limiter = here.limiter("a", RATES, enforce=False)
    await limiter.acquire(cost={"tokens": 900})
    admission = await limiter.acquire(cost={"tokens": 900})
    assert (admission.admitted, admission.exceeded) == (True, True)
    assert await used(limiter) == {"requests": 2, "tokens": 1800}


def test_a_block_begins_with_the_admission_of_its_cost(hf):
    limiter = hf.limiter("a", RATES)
    with limiter.admit(cost={"tokens": 400}) as admission:
        assert dict(admission.remaining) == {"requests": 4, "tokens": 600}
    with limiter as admission:
        assert dict(admission.cost) == {"requests": 1, "tokens": 0}
    with pytest.raises(RateLimited), limiter.admit(cost={"tokens": 601}, timeout=0):
        pytest.fail("it was admitted")
    plain = hf.limiter("b", "5/d")
    with plain.admit(cost=3, head_start=1) as admission:
        assert (admission.cost, admission.remaining) == (3, 2)
        admission.undo()
    assert plain.status().rates[0].used == 0


async def test_a_block_of_asyncio_begins_with_it_too(server, raw):
    async with AsyncHandfast(server.url) as client:
        async with client.limiter("a", RATES).admit(cost={"tokens": 400}) as admission:
            assert dict(admission.remaining) == {"requests": 4, "tokens": 600}
        async with client.limiter("b", "5/d").admit(cost=3) as plain:
            await plain.undo()
        assert (await client.limiter("b", "5/d").status()).rates[0].used == 0


def test_each_call_of_a_decorated_function_is_a_request(hf):
    @hf.limiter("a", {"requests": "1/d", "tokens": "9/d"}, on_limit="raise", by="org")
    def ask(org):
        return org

    assert ask("acme") == "acme"
    with pytest.raises(RateLimited):
        ask("acme")
    assert ask("initech") == "initech"


def test_an_event_has_what_the_call_counts_for(hf):
    seen = []
    hf.on(seen.append, Admitted)
    hf.limiter("a", RATES).acquire(cost={"tokens": 7})
    hf.limiter("b", "5/d").acquire(cost=2)
    assert [(event.cost, dict(event.costs)) for event in seen] == [(1, {"requests": 1, "tokens": 7}), (2, {})]


# --- bad input


@pytest.mark.parametrize(
    ("cost", "error", "said"),
    [
        (5, TypeError, "this limiter has metrics, so cost must be a mapping such as {'tokens': 500}, not 5"),
        ({"tokns": 1}, ValueError, "'tokns' is no metric of this limiter; it has requests, tokens"),
        ({"requests": 0}, ValueError, "a call must count for something; give cost= a number above 0"),
        ({"tokens": -1}, ValueError, "the cost in tokens must be from 0 to 1,000,000,000, not -1"),
        ({"tokens": 1.5}, TypeError, "the cost in tokens must be an int, not 1.5"),
        ({"tokens": True}, TypeError, "the cost in tokens must be an int, not True"),
        ({"tokens": 1001}, LimitExceeded, "'a' has a limit of 1000 tokens, less than the 1001 requested"),
    ],
)
async def test_a_bad_cost_is_refused_before_any_call(api, cost, error, said):
    async with api.client("redis://127.0.0.1:1") as client:
        limiter = client.limiter("a", RATES)
        for call in (limiter.acquire, limiter.try_acquire):
            with pytest.raises(error, match=said):
                await call(cost=cost)
        with pytest.raises(error, match=said):
            limiter.admit(cost=cost)


async def test_a_bad_settling_is_refused_before_any_call(here):
    admission = await here.limiter("a", RATES).acquire()
    with pytest.raises(TypeError, match=r"such as settle\(tokens=500\)"):
        await admission.settle()
    with pytest.raises(ValueError, match="'tokns' is no metric"):
        await admission.settle(tokns=5)
    with pytest.raises(ValueError, match="the cost in tokens must be from 0"):
        await admission.settle(tokens=-5)


async def test_a_limiter_without_requests_needs_a_cost(here):
    limiter = here.limiter("a", {"tokens": "10/d"})
    with pytest.raises(ValueError, match="give cost= a number above 0 for tokens"):
        async with limiter:
            pytest.fail("it was admitted")
    assert dict((await limiter.acquire(cost={"tokens": 4})).remaining) == {"tokens": 6}


def test_together_takes_no_limiter_of_metrics_and_says_what_to_use(hf):
    with pytest.raises(TypeError, match=r"has metrics: be admitted within the block, by its admit\(cost=…\)"):
        hf.together(hf.lock("x"), hf.limiter("a", RATES))
    with pytest.raises(ValueError, match="one limiter with metrics"):
        hf.together(hf.lock("x"), hf.limiter("rpm", "5/min"), hf.limiter("tpm", "100/min"))


# --- rates that an operator sets


async def test_rates_that_are_set_for_one_metric_leave_the_others(here, there):
    program, operator = here.limiter("a", RATES), there.limiter("a", RATES)
    await program.acquire(cost={"tokens": 1000})
    await operator.resize({"tokens": "4000/d"}, reason="a bigger plan")
    assert dict((await program.try_acquire(cost={"tokens": 900})).remaining) == {"requests": 3, "tokens": 2100}
    status = await program.status()
    assert [(rate.metric, rate.limit) for rate in status.rates] == [("requests", 5), ("tokens", 4000)]
    assert status.last is not None
    assert status.last.why == "requests: 5/d; tokens: 4000/d: a bigger plan"
    await operator.resize(None)
    refused = await program.try_acquire(cost={"tokens": 1})
    assert (refused.metric, dict(refused.remaining)) == ("tokens", {"requests": 3, "tokens": 0})
    with pytest.raises(ValueError, match="'images' is no metric of this limiter"):
        await operator.resize({"images": "5/d"})


async def test_a_cost_above_a_limit_that_was_set_says_so(here, there):
    program = here.limiter("a", RATES)
    await there.limiter("a", RATES).resize({"tokens": "100/d"})
    with pytest.raises(LimitExceeded, match=r"a limit of 100 tokens \(set by resize\(\)\)") as error:
        await program.acquire(cost={"tokens": 500})
    assert (error.value.limit, error.value.requested, error.value.metric) == (100, 500, "tokens")
    assert await program.try_acquire(cost={"tokens": 100})


async def test_other_metrics_that_are_set_admit_by_what_they_know(here, there):
    """An operator who sets rates by hand may leave a metric out, or set plain ones: no call is stuck."""
    program, plain = here.limiter("a", RATES), here.limiter("a", "5/d")
    await there.limiter("a", "2/d").resize("2/d")
    assert [bool(await program.try_acquire(cost={"tokens": 900})) for _ in range(3)] == [True, True, False]
    await there.limiter("a", {"requests": "4/h"}).resize({"requests": "4/h"})
    admission = await program.acquire(cost={"tokens": 900})
    assert dict(admission.remaining) == {"requests": 3, "tokens": 3}
    assert (await plain.acquire(cost=3)).remaining == 2
    await admission.undo()
    assert [(rate.metric, rate.used) for rate in (await program.status()).rates] == [("requests", 1)]


async def test_clients_with_other_rates_for_a_name_get_in_all_the_same(here, there):
    mine, theirs = here.limiter("a", {"tokens": "100/150ms"}), there.limiter("a", "2/150ms")
    await mine.acquire(cost={"tokens": 100})
    await theirs.acquire(cost=2)
    waiters = [asyncio.create_task(wait(mine, cost={"tokens": 60}))]
    await until_queued(mine)
    waiters.append(asyncio.create_task(wait(theirs, cost=2)))
    assert all(await asyncio.wait_for(asyncio.gather(*waiters), 20))


# --- faults


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_what_is_sent_again_counts_once(api, server, raw, what):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            limiter = client.limiter("a", {"requests": "99/d", "tokens": "9999/d"})
            await (await limiter.acquire()).undo()
            for number in range(1, 6):
                fault = getattr(proxy, what)(ACQUIRE)
                admission = await limiter.acquire(cost={"tokens": number})
                assert fault.spent
                fault = getattr(proxy, what)(SETTLE)
                await admission.settle(tokens=10 * number)
                assert fault.spent
                fault = getattr(proxy, what)(SETTLE)
                if number % 2:
                    await admission.undo()
            assert await used(limiter) == {"requests": 2, "tokens": 60}


async def test_a_server_without_memory_refuses_and_takes_back(here, raw):
    limiter = here.limiter("a", RATES)
    admission = await limiter.acquire(cost={"tokens": 800})
    raw.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="out of memory"):
            await limiter.acquire()
        assert (await limiter.try_acquire(cost={"tokens": 300})).metric == "tokens"
        await admission.settle(tokens=100)
        assert await used(limiter) == {"requests": 1, "tokens": 100}
        await admission.undo()
    finally:
        raw.config_set("maxmemory", 0)
    assert await used(limiter) == {"requests": 0, "tokens": 0}


@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "admit"])
async def test_a_cancellation_at_any_await_leaves_nothing_behind(server, raw, verb):
    async with ASYNCIO.handfast(server.url) as client:
        limiter = client.limiter("a", RATES)
        await (await limiter.acquire()).undo()
        cancelled = 0

        async def run():
            if verb != "admit":
                return await getattr(limiter, verb)(cost={"tokens": 5})
            async with limiter.admit(cost={"tokens": 5}) as admission:
                return admission

        async for outcome in cancel_everywhere(run, twice=True):
            await quiet(client)
            cancelled += outcome.how == "stopped"
            assert outcome.how != "failed"
            if outcome.how == "finished":
                await outcome.result.undo()
            assert (members(raw, "requests"), members(raw, "tokens")) == ([], []), outcome
        assert cancelled >= 2


@pytest.mark.parametrize("verb", ["acquire", "admit"])
def test_an_interrupt_at_any_point_leaves_nothing_behind(hf, raw, verb):
    limiter = hf.limiter("a", RATES)
    entered = []

    def run():
        entered.clear()
        if verb == "acquire":
            return limiter.acquire(cost={"tokens": 5})
        with limiter.admit(cost={"tokens": 5}) as admission:
            entered.append(admission)
        return entered.pop()

    run().undo()  # what is made only once is made now
    within, struck = [metric_limiter, sync_limits, base, driver, performing, limiting, session], 0
    for outcome in interrupt_everywhere(run, within=within):
        assert outcome.how != "failed", outcome
        struck += outcome.how == "stopped"
        for admission in (*entered, *([outcome.result] if outcome.how == "finished" else [])):
            admission.undo()
        eventually(lambda: (members(raw, "requests"), members(raw, "tokens")) == ([], []))
    assert struck > 20


async def test_who_waits_gets_in_after_the_server_lost_everything(here, raw):
    limiter = here.limiter("a", RATES)
    await limiter.acquire(cost={"tokens": 1000})
    waiter = asyncio.create_task(wait(limiter, cost={"tokens": 400}))
    await until_queued(limiter)
    raw.flushall()
    raw.client_kill_filter(_type="pubsub")  # so that it asks at once
    assert dict((await waiter).remaining) == {"requests": 4, "tokens": 600}


async def test_an_evicted_window_admits_anew_and_the_others_count(here, raw):
    limiter = here.limiter("a", RATES)
    admission = await limiter.acquire(cost={"tokens": 1000, "requests": 2})
    raw.delete("{hf:limiter:a}:window:tokens:86400000")
    assert dict((await limiter.acquire(cost={"tokens": 600})).remaining) == {"requests": 2, "tokens": 400}
    await admission.settle(tokens=50)
    assert await used(limiter) == {"requests": 3, "tokens": 600}
    await eventually_async(lambda: len(members(raw, "tokens")) == 2)


# --- shown


async def test_it_is_listed_with_its_metrics(here):
    limiter = here.limiter("a", RATES)
    await limiter.acquire(cost={"tokens": 950})
    (found,) = await all_of(here.names("a", kinds=["limiter"]))
    assert [(rate.metric, rate.used, rate.limit) for rate in found.status.rates] == [
        ("requests", 1, 5),
        ("tokens", 950, 1000),
    ]
    assert str(found.status).startswith("1 of 5 requests used in 86,400 s, 950 of 1,000 tokens used in 86,400 s")
    await limiter.reset()
    assert await used(limiter) == {"requests": 0, "tokens": 0}


def test_without_a_server_every_call_is_admitted():
    with Handfast("null:") as client:
        admission = client.limiter("a", RATES).acquire(cost={"tokens": 5})
        assert (admission.admitted, dict(admission.remaining)) == (True, {"requests": 0, "tokens": 0})
