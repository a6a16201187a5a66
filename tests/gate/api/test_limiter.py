"""The limiter through both APIs, and over the connection that threads share."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from datetime import timedelta
from math import inf, nan

import pytest

import handfast
from handfast import ClientClosed, Handfast, LimitExceeded, RateLimited, ServerRefused
from handfast._api.sync import limiter as sync_limiter
from handfast._api.sync import limits as sync_limits
from handfast._drivers import driver as base
from handfast._drivers.sync import driver, performing, session
from handfast._protocol import limiting
from handfast.testing import FaultProxy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO, CROWDED, SYNC, until_queued
from tests._support.cancelling import settled as quiet
from tests._support.family import scripts_run
from tests._support.helpers import eventually, eventually_async, more
from tests._support.limits import LimitScripts

NEVER = "1/d"
"""Admits one for as long as a test lasts."""

NUMBERS = itertools.count()

DAY_MS = 86_400_000

HISTORY = f"1000000/{DAY_MS}ms"
"""A rate that stops no one, whose window remembers all admissions of a test."""

ACQUIRE, SETTLE = script("limit_acquire"), script("limit_settle")


@pytest.fixture(params=[SYNC, CROWDED, ASYNCIO], ids=lambda api: api.name)
def api(request):
    """Each API in turn, and the sync one with all connections in use."""
    return request.param


def nothing_left(raw, name="a"):
    """Return whether no window has an admission, and no one waits."""
    return [key for key in raw.keys() if not key.endswith(":tombstones")] == []  # noqa: SIM118 -- of a server


def history(raw, name="a"):
    """Return the time of each admission in microseconds of the server, and its cost, in their order."""
    found = raw.zrange(f"{{hf:limiter:{name}}}:window:{DAY_MS}", 1, -1, withscores=True)
    return [(int(at), int(member.split()[1])) for member, at in found]


async def wait(limiter, **options):
    """Acquire: for a task of its own, which needs a coroutine."""
    return await limiter.acquire(**options)


async def test_waiters_are_admitted_in_the_order_in_which_they_came(here, there):
    limiters, costs = [client.limiter("a", "100/d") for client in (here, there)], (30, 5, 41, 2, 21)
    admission = await limiters[0].acquire(cost=100)
    waiters = []
    for number, cost in enumerate(costs):
        waiters.append(asyncio.create_task(wait(limiters[number % 2], cost=cost)))
        await until_queued(limiters[0], number + 1)
    for number, waiter in enumerate(waiters):
        assert not waiter.done()
        await admission.settle(cost=100 - sum(costs[: number + 1]))
        assert await waiter
        assert (await limiters[0].status()).waiting == len(costs) - number - 1


async def test_neither_a_newcomer_nor_a_try_overtakes_a_waiter(here, there):
    limiter = here.limiter("a", "10/d")
    admission = await limiter.acquire(cost=5)
    waiter = asyncio.create_task(wait(limiter, cost=8))
    await until_queued(limiter)
    refused = await there.limiter("a", "10/d").try_acquire()
    assert not refused
    assert 86_000 < refused.retry_after <= 86_400, "as long as the one before it takes"
    with pytest.raises(RateLimited):
        await there.limiter("a", "10/d").acquire(timeout=0.05)
    assert (await limiter.status()).rates[0].used == 5
    await admission.settle(cost=0)
    assert await waiter
    assert await there.limiter("a", "10/d").try_acquire()


# --- admissions


async def test_a_call_that_fits_is_admitted_at_once(here, raw):
    limiter = here.limiter("a", "3/min; 10/h")
    admission = await limiter.acquire(cost=2)
    assert admission
    assert (admission.admitted, admission.cost, admission.remaining, admission.retry_after) == (True, 2, 1, 0)
    assert 0 <= admission.waited < 10
    assert "admitted" in repr(admission)
    tried = await limiter.try_acquire(cost=2)
    assert (bool(tried), tried.admitted, tried.cost, tried.remaining) == (False, False, 2, 1)
    assert 0 < tried.retry_after <= 60
    assert "refused, retry after" in repr(tried)
    assert (await limiter.try_acquire()).remaining == 0


async def test_a_try_takes_one_call(here, raw):
    limiter = here.limiter("a", NEVER)
    await limiter.try_acquire()
    before = scripts_run(raw)
    await limiter.try_acquire()
    assert scripts_run(raw) == before + 1


async def test_a_block_gives_the_admission_and_its_end_changes_nothing(here, raw):
    limiter = here.limiter("a", "2/min")
    async with limiter as admission:
        assert admission.cost == 1
        assert (await limiter.status()).rates[0].used == 1
    with pytest.raises(LookupError):
        async with limiter:
            raise LookupError
    assert (await limiter.status()).rates[0].used == 2


async def test_one_limiter_is_used_by_many_callers_at_once(here, raw):
    limiter = here.limiter("a", f"1000/min; {HISTORY}")

    async def block():
        async with limiter:
            await asyncio.sleep(0)

    await asyncio.gather(*(block() for _ in range(30)))
    assert len(history(raw)) == 30


@pytest.mark.parametrize(("new_cost", "used"), [(1, 6), (9, 14), (4, 9), (0, 5)])
async def test_an_admission_is_settled(here, new_cost, used):
    limiter = here.limiter("a", "10/min")
    await limiter.acquire(cost=5)
    admission = await limiter.acquire(cost=4)
    await admission.settle(cost=new_cost)
    assert admission.cost == new_cost
    (rate,) = (await limiter.status()).rates
    assert (rate.used, rate.remaining) == (used, max(0, 10 - used))


async def test_an_admission_may_be_settled_again_until_it_is_given_back(here):
    limiter = here.limiter("a", "10/min")
    admission = await limiter.acquire(cost=5)
    for cost in (8, 3, 3, 0):
        await admission.settle(cost=cost)
        assert (await limiter.status()).rates[0].used == cost
    with pytest.raises(RuntimeError, match="was given back; acquire another one"):
        await admission.settle(cost=1)


async def test_what_was_not_admitted_cannot_be_settled(here):
    limiter = here.limiter("a", NEVER)
    await limiter.acquire()
    with pytest.raises(RuntimeError, match="nothing to settle: the call was not admitted"):
        await (await limiter.try_acquire()).settle(cost=1)


async def test_a_pause_holds_for_all_and_ends_for_all(here, there, raw):
    mine, other = here.limiter("a", "100/d"), there.limiter("a", "100/d")
    await mine.pause(50)
    refused = await other.try_acquire()
    assert (refused.admitted, refused.remaining, 49 < refused.retry_after <= 50) == (False, 0, True)
    with pytest.raises(RateLimited, match="a"):
        await other.acquire(timeout=40)
    assert 49 < (await other.status()).paused_for <= 50
    waiters = [asyncio.create_task(wait(mine)), asyncio.create_task(wait(other))]
    await until_queued(mine, 2)
    await other.resume()
    assert all(await asyncio.wait_for(asyncio.gather(*waiters), 20))
    status = await mine.status()
    assert (status.paused_for, status.waiting, status.rates[0].used) == (0, 0, 2)


async def test_who_waits_comes_by_itself_when_a_pause_is_over(here, raw):
    limiter = here.limiter("a", "100/d")
    await limiter.pause(timedelta(seconds=0.05))
    admission = await limiter.acquire(timeout=20)
    assert admission.waited > 0.04
    assert not raw.exists("{hf:limiter:a}:queue")


async def test_a_pause_of_one_key_is_none_of_another(here, raw):
    limiter = here.limiter("a", "100/d")
    await limiter.keyed("x").pause(50)
    assert not await limiter.keyed("x").try_acquire()
    assert await limiter.keyed("y").try_acquire()
    assert await limiter.try_acquire()


@pytest.mark.parametrize("asked", [86_400.0, inf, timedelta(days=1)])
async def test_a_pause_that_is_too_long_is_cut_and_that_is_logged(here, raw, caplog, asked):
    limiter = here.limiter("a", "100/d")
    await limiter.pause(asked, at_most=30)
    assert 29 < (await limiter.status()).paused_for <= 30
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "handfast.limiter")
    assert record.getMessage().endswith("and does for 30 s: at_most")
    await limiter.resume()


@pytest.mark.parametrize(
    ("header", "longest"),
    [
        ("30", 30),
        (" 40, 20 ", 40),
        ("1.5", 1.5),
        ("7200", 3600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        (None, 1),
        ("", 1),
        ("soon", 1),
    ],
)
async def test_a_pause_takes_a_header_as_it_is(here, raw, header, longest):
    limiter = here.limiter("a", "100/d")
    await limiter.pause(header)
    assert longest - 1 < (await limiter.status()).paused_for <= longest


@pytest.mark.parametrize("header", ["0", "-5", "Sun, 06 Nov 1994 08:49:37 GMT"])
async def test_a_header_of_the_past_does_not_end_a_pause(here, raw, header):
    limiter = here.limiter("a", "100/d")
    await limiter.pause(50)
    await limiter.pause(header)
    assert (await limiter.status()).paused_for > 49


async def test_what_is_cut_is_logged_as_it_was_asked_for(here, raw, caplog):
    limiter = here.limiter("a", "100/d")
    for asked in (1e9, "1000000000", 10**400):
        await limiter.pause(asked)
    said = [record.getMessage() for record in caplog.records]
    assert [" was to pause for 1e+09 s, and does for 3600 s" in one for one in said] == [True, True, False]
    assert " was to pause for inf s" in said[2]


@pytest.mark.parametrize("asked", [0, -3.5, timedelta(0)])
async def test_a_pause_of_nothing_does_not_end_that_of_another(here, raw, asked):
    limiter = here.limiter("a", "100/d")
    await limiter.pause(50)
    await limiter.pause(asked)
    assert (await limiter.status()).paused_for > 49


@pytest.mark.parametrize(
    ("seconds", "options", "error", "said"),
    [
        (b"30", {}, TypeError, "a pause must be seconds"),
        ([], {}, TypeError, r"a pause must be seconds .* or a timedelta, not \[\]"),
        (True, {}, TypeError, "a pause must be seconds"),
        (nan, {}, ValueError, "a pause must be a number of seconds, not nan"),
        (1, {"at_most": 0}, ValueError, "at_most must be at least a millisecond"),
        (1, {"at_most": None}, TypeError, "at_most must be seconds"),
    ],
)
async def test_a_bad_pause_is_refused_before_any_call(api, seconds, options, error, said):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=said):
            await client.limiter("a", "1/s").pause(seconds, **options)


async def test_a_pause_whose_reply_is_lost_is_set_once_and_its_end_too(api, there, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            limiter = client.limiter("a", "100/d")
            await limiter.status()
            proxy.lose_reply(script("limit_pause"))
            await limiter.pause(50)
            assert 49 < (await there.limiter("a", "100/d").status()).paused_for <= 50
            proxy.lose_reply(script("limit_pause"))
            await limiter.resume()
            assert (await there.limiter("a", "100/d").status()).paused_for == 0


# --- a reset


async def test_one_key_is_reset_and_the_others_stay(here, there, raw):
    logins = here.limiter("login", "2/d; 9/h")
    for key in ("ann", "bob"):
        assert [bool(await logins.keyed(key).try_acquire()) for _ in range(3)] == [True, True, False]
    waiter = asyncio.create_task(wait(there.limiter("login", "2/d; 9/h").keyed("ann")))
    await until_queued(logins.keyed("ann"))
    await logins.keyed("ann").reset()
    assert (await asyncio.wait_for(waiter, 20)).remaining == 1
    assert [rate.used for rate in (await logins.keyed("ann").status()).rates] == [1, 1]
    assert not await logins.keyed("bob").try_acquire()
    await logins.keyed("no one").reset()
    assert not raw.keys("*no one*")


async def test_a_reset_counts_for_the_rates_that_are_set(here, there):
    program = here.limiter("a", "9/d")
    await there.limiter("a", "9/d").resize("1/h")
    assert [bool(await program.try_acquire()) for _ in range(2)] == [True, False]
    await there.limiter("a", "9/d").reset()
    assert await program.try_acquire()


async def test_a_reset_whose_reply_is_lost_is_sent_again(api, there, server):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            limiter = client.limiter("a", "1/d")
            await limiter.acquire()
            for lost in ("limit_inspect", "limit_reset"):
                proxy.lose_reply(script(lost))
            await limiter.reset()
            assert [rate.used for rate in (await there.limiter("a", "1/d").status()).rates] == [0]


# --- rates that an operator sets


async def test_rates_that_are_set_count_for_all_with_one_further_call_of_each(here, there, raw):
    operator, program = here.limiter("a", "1/h"), there.limiter("a", "1/d")
    await operator.resize("2/h; 3/d")
    await there.limiter("b", NEVER).acquire()  # now the server has the script
    before = scripts_run(raw)
    assert [bool(await program.try_acquire()) for _ in range(4)] == [True, True, False, False]
    assert scripts_run(raw) == before + 5
    status = await program.status()
    assert [(rate.limit, rate.per, rate.used) for rate in status.rates] == [(2, 3600, 2), (3, 86400, 2)]
    assert (status.last.what, status.last.by, status.last.why) == ("resize", operator._driver.label, "2/h; 3/d")
    await operator.resize(None)
    before = scripts_run(raw)
    assert [bool(await program.try_acquire()) for _ in range(2)] == [False, False], "of 1/d, which has 2"
    assert scripts_run(raw) == before + 3
    status = await program.status()
    assert [(rate.limit, rate.per, rate.used, rate.remaining) for rate in status.rates] == [(1, 86400, 2, 0)]
    assert (status.last.what, status.last.why) == ("resize", "")


async def test_waiters_keep_their_places_and_are_admitted_under_the_new_rates(here, there, raw):
    limiter = here.limiter("a", NEVER)
    await limiter.acquire()
    waiters = []
    for number in range(3):
        waiters.append(asyncio.create_task(wait((there if number % 2 else here).limiter("a", NEVER))))
        await until_queued(limiter, number + 1)
    await there.limiter("a", NEVER).resize(HISTORY)
    admissions = await asyncio.wait_for(asyncio.gather(*waiters), 20)
    assert [admission.remaining for admission in admissions] == [999_998, 999_997, 999_996]
    await admissions[0].settle(cost=5)
    assert [cost for _, cost in history(raw)] == [1, 5, 1, 1]
    assert (await limiter.status()).waiting == 0


async def test_a_cost_above_a_limit_that_was_set_is_an_error_until_it_is_not(here, there, raw):
    limiter, operator = here.limiter("a", "9/d"), there.limiter("a", "9/d")
    await operator.resize("3/d")
    for ask in (limiter.acquire, limiter.try_acquire, limiter.acquire):
        with pytest.raises(
            LimitExceeded, match=r"'a' has a limit of 3 \(set by resize\(\)\), less than the 4"
        ) as caught:
            await ask(cost=4)
        assert (caught.value.limit, caught.value.requested) == (3, 4)
    assert await limiter.try_acquire(cost=3)
    with pytest.raises(LimitExceeded):
        await limiter.acquire(cost=4)
    await operator.resize("2/h; 8/d")
    with pytest.raises(LimitExceeded, match="limit of 2"):
        await limiter.acquire(cost=4)
    await operator.resize(None)
    assert await limiter.acquire(cost=4)
    with pytest.raises(ValueError, match="cost must be from 1 to 9"):
        await limiter.acquire(cost=10)
    assert not [key for key in raw.keys() if key.endswith(":queue")]  # noqa: SIM118 -- of a server


async def test_a_waiter_whose_cost_is_above_the_new_limit_gets_an_error_and_the_next_one_its_turn(here, there, raw):
    limiter = here.limiter("a", "5/d")
    await limiter.acquire(cost=3)
    large = asyncio.create_task(wait(limiter, cost=5))
    await until_queued(limiter)
    small = asyncio.create_task(wait(there.limiter("a", "5/d")))
    await until_queued(limiter, 2)
    await limiter.resize("4/d")
    with pytest.raises(LimitExceeded):
        await asyncio.wait_for(large, 20)
    assert await asyncio.wait_for(small, 20)


async def test_rates_of_one_key_are_none_of_another(here, there, raw):
    limiter = here.limiter("a", NEVER)
    await limiter.keyed("x").resize("2/d")
    assert [bool(await there.limiter("a", NEVER).keyed("x").try_acquire()) for _ in range(3)] == [True, True, False]
    assert [bool(await limiter.keyed("y").try_acquire()) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("rates", "error", "said"),
    [("fast", ValueError, "is no rate"), (0, TypeError, "rates must be a text"), ([], ValueError, "from 1 to 4")],
)
async def test_bad_rates_are_refused_before_any_call(api, rates, error, said):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=said):
            await client.limiter("a", "1/s").resize(rates)


async def test_rates_whose_replies_are_lost_are_set_and_an_admission_under_them_counts_once(api, there, server, raw):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            limiter = client.limiter("a", NEVER)
            await limiter.status()
            proxy.lose_reply(script("limit_resize"))
            await there.limiter("a", NEVER).resize(NEVER)
            await limiter.resize(HISTORY)
            for _ in range(2):
                proxy.lose_reply(ACQUIRE)
                assert await limiter.try_acquire()
    assert [cost for _, cost in history(raw)] == [1, 1]
    assert (await there.limiter("a", NEVER).status()).last.why == "1000000/d"


# --- calls that are admitted and counted only


async def test_who_does_not_enforce_is_admitted_counted_and_told_what_would_have_been_refused(here, there, raw):
    limiter = here.limiter("a", "2/d", enforce=False)
    admissions = [await limiter.acquire(timeout=0), await limiter.try_acquire(), await limiter.try_acquire()]
    assert [(bool(one), one.exceeded, one.retry_after > 0) for one in admissions] == [
        (True, False, False),
        (True, False, False),
        (True, True, True),
    ]
    assert repr(admissions[2]).endswith("'a': admitted, and it exceeds the rates>")
    async with limiter as admission:
        assert admission.exceeded
    used = (await limiter.status()).rates[0]
    assert (used.used, used.remaining) == (4, 0)
    assert (await limiter.acquire()).exceeded
    assert (await limiter.status()).rates[0].used == 4, "twice the limit, and no more"
    assert not await there.limiter("a", "2/d").try_acquire()
    await admissions[2].settle(cost=0)
    assert (await limiter.status()).rates[0].used == 3


async def test_calls_of_one_key_do_not_enforce_either(here, raw):
    limiter = here.limiter("a", NEVER, enforce=False).keyed("x")
    assert [(await limiter.acquire()).exceeded for _ in range(3)] == [False, True, True]
    assert (await limiter.status()).rates[0].used == 2


async def test_what_is_given_back_admits_a_waiter_at_once(here, there, raw):
    limiter = here.limiter("a", NEVER)
    admission = await limiter.acquire()
    waiter = asyncio.create_task(wait(there.limiter("a", NEVER)))
    await until_queued(limiter)
    await admission.settle(cost=0)
    assert await waiter
    assert (await limiter.status()).rates[0].used == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda limiter: limiter.acquire(cost=11), ValueError, "cost must be from 1 to 10, not 11"),
        (lambda limiter: limiter.try_acquire(cost=11), ValueError, "cost must be from 1 to 10, not 11"),
        (lambda limiter: limiter.acquire(cost=0), ValueError, "cost must be from 1 to 10, not 0"),
        (lambda limiter: limiter.acquire(cost=1.0), TypeError, "cost must be an int"),
        (lambda limiter: limiter.acquire(cost=True), TypeError, "cost must be an int"),
        (lambda limiter: limiter.acquire(timeout="1"), TypeError, "timeout must be seconds"),
        (lambda limiter: limiter.status(timeout=0), ValueError, "timeout must be at least"),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_sent(api, call, error, words):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=words):
            await call(client.limiter("a", "20/s; 10/min"))


async def test_a_cost_to_settle_is_checked(here):
    admission = await here.limiter("a", NEVER).acquire()
    for cost, error in ((-1, ValueError), (10**9 + 1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="cost must be"):
            await admission.settle(cost=cost)


# --- timeouts


async def test_one_that_is_certain_to_wait_too_long_is_refused_in_one_call(here, raw):
    limiter = here.limiter("a", NEVER)
    await limiter.acquire()
    before = scripts_run(raw)
    with pytest.raises(RateLimited, match=r"'a' does not admit this call within 5 s; try again after 86400 s") as e:
        await limiter.acquire(timeout=5)
    assert scripts_run(raw) == before + 1
    assert 86_000 < e.value.retry_after <= 86_400
    assert (e.value.timeout, e.value.name) == (5.0, "a")
    assert isinstance(e.value, TimeoutError)
    copy = pickle.loads(pickle.dumps(e.value))
    assert (copy.retry_after, str(copy)) == (e.value.retry_after, str(e.value))
    assert raw.exists("{hf:limiter:a}:queue") == 0


@pytest.mark.parametrize("options", [{"on_limit": "raise"}, {"timeout": 0}, {"timeout": -1}])
async def test_a_limiter_that_does_not_wait_raises_at_once(here, raw, options):
    limiter = here.limiter("a", NEVER, **options)
    async with limiter:
        pass
    before = scripts_run(raw)
    with pytest.raises(RateLimited, match="does not admit this call now"):
        await limiter.acquire()
    with pytest.raises(RateLimited):
        async with limiter:
            pass
    assert scripts_run(raw) == before + 2
    with pytest.raises(RateLimited):
        await limiter.acquire(timeout=0.01)


# --- keys and decorators


async def test_each_key_has_limits_of_its_own(here, raw):
    limiter = here.limiter("a", NEVER)
    for keyed in (limiter, limiter.keyed("x"), limiter.keyed("x", "y"), limiter.keyed("x|y"), limiter.keyed(7)):
        assert await keyed.try_acquire()
    for keyed in (limiter.keyed("x").keyed("y"), limiter.keyed("7")):
        assert not await keyed.try_acquire()
    assert limiter.keyed("x", 7).name == "a|x|7"
    assert len(raw.keys("*:window:*")) == 5


async def test_a_decorated_function_is_limited(api, server, raw):
    client = api.client(server.url)
    calls = []

    @client.limiter("a", "2/d", on_limit="raise")
    @api.function
    def work(value, *, more=0):
        """Do it."""
        calls.append(value + more)
        return value

    assert work.__name__ == "work"
    assert [await work(1), await work(2, more=5)] == [1, 2]
    with pytest.raises(RateLimited):
        await work(3)
    assert calls == [1, 7]
    await client.close()


async def test_a_decorated_function_is_limited_by_its_arguments(api, server, raw):
    client = api.client(server.url)
    limiter = client.limiter("a", NEVER, on_limit="raise", by=("user", "day"))

    @limiter
    @api.function
    def work(user, text, day=1):
        return user

    for args, kwargs in ((("ann", "x"), {}), (("ann", "x", 2), {}), ((), {"user": "bob", "text": "x"})):
        await work(*args, **kwargs)
    for args, kwargs in ((("ann", "y"), {"day": 1}), (("ann", "y", "2"), {}), (("bob", "x"), {})):
        with pytest.raises(RateLimited, match=r"'a\|(ann|bob)\|[12]'"):
            await work(*args, **kwargs)
    with pytest.raises(TypeError, match=r"a part of a key must be a str, .* not None"):
        await work(None, "x")
    with pytest.raises(TypeError, match="missing a required argument"):
        await work("ann")
    await client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "id"}, r"by has 'id', which is no parameter of [^ ]*\(\); these are: user"),
        ({"by": ["user", "id"]}, "by has 'id'"),
        ({"name": "login:{user}"}, "is no template here; use by="),
    ],
)
def test_what_a_decorator_cannot_do_is_refused_when_it_decorates(api, options, words):
    made = api.handfast("redis://127.0.0.1:1").limiter(**{"name": "a", "rates": NEVER} | options)
    with pytest.raises(ValueError, match=words):
        made(api.function(lambda user: user))


def test_functions_of_another_kind_are_refused():
    async def coroutine():
        pass

    def generator():
        yield

    limiter, other = (client("redis://127.0.0.1:1").limiter("a", NEVER) for client in (Handfast, ASYNCIO.handfast))
    for made, function in ((limiter, coroutine), (other, print), (limiter, generator), (other, generator)):
        with pytest.raises(TypeError, match="function"):
            made(function)


async def test_it_is_shown_by_its_name_and_cannot_be_copied(here, raw):
    limiter = here.limiter("a", NEVER)
    assert repr(limiter.keyed("x")) in ("<Limiter 'a|x'>", "<AsyncLimiter 'a|x'>")
    plain = handfast.Handfast("redis://127.0.0.1:1").limiter("a", NEVER)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(plain)


# --- faults


@pytest.fixture
def proxy(server):
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def far(api, proxy, here):
    """A client behind the proxy, connected once; the server knows all scripts."""
    async with api.client(proxy.url) as client:
        for known in (here, client):
            limiter = known.limiter("warm", "1000/s")
            await (await limiter.acquire()).settle(cost=2)
            await limiter.status()
        yield client


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
async def test_what_is_sent_again_counts_once(far, here, proxy, raw, what):
    limiter = far.limiter("a", ["1000/min", HISTORY])
    for number in range(1, 21):
        fault = getattr(proxy, what)(ACQUIRE)
        verb = limiter.acquire if number % 2 else limiter.try_acquire
        admission = await verb(cost=number)
        assert admission
        assert fault.spent
        fault = getattr(proxy, what)(SETTLE)
        await admission.settle(cost=number + 1)
        assert fault.spent
        assert [cost for _, cost in history(raw)] == [*range(2, number + 2)]
    assert (await here.limiter("a", "1000/min").status()).rates[0].used == sum(range(2, 22))


async def test_waiters_get_in_after_the_server_lost_everything(here, raw):
    limiter = here.limiter("a", NEVER)
    await limiter.acquire()
    waiter = asyncio.create_task(wait(limiter))
    await until_queued(limiter)
    raw.flushall()
    raw.client_kill_filter(_type="pubsub")  # so that it asks at once
    assert await waiter
    assert (await limiter.status()).rates[0].used == 1


async def test_an_admission_whose_message_is_lost_is_found_by_asking(here, raw):
    scripts = LimitScripts(raw, (1, DAY_MS))
    limiter = here.limiter("a", NEVER)
    await limiter.acquire()
    waiter = asyncio.create_task(wait(limiter))
    (token,) = await eventually_async(scripts.queue)
    raw.delete(*scripts.keys)
    scripts.attempt(token)  # as another call would have admitted it
    raw.client_kill_filter(_type="pubsub")  # so that it asks at once
    assert (await waiter).remaining == 0
    assert [*scripts.window()] == [f"{token} 1"]


async def test_a_server_without_memory_refuses_and_nothing_is_left(here, raw):
    limiter = here.limiter("a", "100/min")
    admission = await limiter.acquire(cost=80)
    raw.config_set("maxmemory", 1)
    with pytest.raises(ServerRefused, match="out of memory"):
        await limiter.acquire()
    assert not await limiter.try_acquire(cost=30)
    assert (await limiter.status()).rates[0].used == 80
    await admission.settle(cost=0)
    raw.config_set("maxmemory", 0)
    assert nothing_left(raw)


async def test_those_who_wait_when_the_client_is_closed_say_so_and_leave_the_queue(api, server, raw):
    client = api.client(server.url)
    limiter = client.limiter("a", NEVER)
    await limiter.acquire()
    waiter = asyncio.create_task(wait(limiter))
    scripts = LimitScripts(raw, (1, DAY_MS))
    await eventually_async(scripts.queue)
    await client.close()
    with pytest.raises(ClientClosed) as closed:
        await waiter
    assert closed.value.name == "a"
    with pytest.raises(ClientClosed):
        await limiter.try_acquire()
    with pytest.raises(ClientClosed):
        async with limiter:
            pass
    scripts.attempt("other")
    await eventually_async(lambda: not any(raw.pubsub_channels("hf:inbox:*")))
    assert [*scripts.window()][1:] == []


# --- cancelled and interrupted


@pytest.fixture
async def mine(server, raw):
    async with ASYNCIO.handfast(server.url) as client:
        limiter = client.limiter("a", "10/min")
        await (await limiter.acquire()).settle(cost=0)
        yield client


async def block_of(limiter):
    async with limiter as admission:
        return admission


VERBS = {
    "acquire": lambda limiter: limiter.acquire(cost=2),
    "acquire in time": lambda limiter: limiter.acquire(cost=2, timeout=0.04),
    "try_acquire": lambda limiter: limiter.try_acquire(cost=2),
    "block": block_of,
}


@pytest.mark.parametrize("waits", [False, *more(True)], ids={False: "free", True: "full"}.get)
@pytest.mark.parametrize("verb", VERBS)
async def test_a_cancellation_at_any_await_leaves_nothing_behind(mine, raw, verb, waits):
    limiter = mine.limiter("a", "10/30ms" if waits else "10/min")
    scripts = LimitScripts(raw, (10, 30 if waits else 60_000))
    cancelled = 0

    async def run():
        if waits:
            scripts.attempt(f"other{next(NUMBERS)}", 10)
        return await VERBS[verb](limiter)

    async for outcome in cancel_everywhere(run, twice=True):
        await quiet(mine)
        cancelled += outcome.how == "stopped"
        assert outcome.how != "failed" or isinstance(outcome.error, RateLimited)
        if outcome.how == "finished" and outcome.result:
            await outcome.result.settle(cost=0)
        assert not raw.exists(scripts.key("queue")), outcome
        assert [member for member in scripts.window() if "other" not in member] == [], outcome
    assert cancelled >= 2


async def test_a_settling_that_is_cancelled_has_run_or_not(mine, raw):
    limiter = mine.limiter("a", "10/min")
    admission = await limiter.acquire(cost=3)
    async for outcome in cancel_everywhere(lambda: admission.settle(cost=5)):
        assert outcome.how != "failed", outcome
        await quiet(mine)
        used = (await limiter.status()).rates[0].used
        assert used in (3, 5)
        if outcome.how == "finished":
            assert (used, admission.cost) == (5, 5)
            break


@pytest.mark.parametrize("waits", [False, *more(True)], ids={False: "free", True: "full"}.get)
@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "block"])
def test_an_interrupt_at_any_point_leaves_nothing_behind(hf, raw, verb, waits):
    limiter = hf.limiter("a", "10/20ms" if waits else "10/min")
    scripts = LimitScripts(raw, (10, 20 if waits else 60_000))

    def run():
        entered.clear()
        if waits:
            scripts.attempt(f"other{next(NUMBERS)}", 10)
        if verb != "block":
            return getattr(limiter, verb)(cost=2)
        with limiter as admission:
            entered.append(admission)
        return entered.pop()

    entered = []
    admission = run()  # what is made only once is made now
    if admission:
        admission.settle(cost=0)
    within = [sync_limiter, sync_limits, base, driver, performing, limiting, session]
    struck = 0
    for outcome in interrupt_everywhere(run, within=within):
        assert outcome.how != "failed" or isinstance(outcome.error, RateLimited), outcome
        struck += outcome.how == "stopped"
        admissions = [*entered, *([outcome.result] if outcome.how == "finished" and outcome.result else [])]
        for admission in admissions:
            admission.settle(cost=0)
        try:
            eventually(lambda: not raw.exists(scripts.key("queue")))
            eventually(lambda: not [member for member in scripts.window() if "other" not in member])
        except AssertionError:
            pytest.fail(f"left behind: {outcome}")
    assert struck > 20
