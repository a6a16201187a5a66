"""Budgets through both APIs: amounts that are held and settled, periods, limits, and the faults on which others fail."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import logging
import struct
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import redis

from handfast import AsyncHandfast, BudgetExceeded, BudgetMismatch, ClientClosed, Handfast, HandfastError, ServerRefused
from handfast._api.sync import budget as sync_budget
from handfast._drivers import driver as base
from handfast._drivers.sync import driver, performing, session
from handfast._protocol import budgeting, retry
from handfast.events import Refused
from handfast.testing import FaultProxy, busy, cancel_everywhere, interrupt_everywhere, script
from tests._support.apis import ASYNCIO, SYNC, Call, all_of, awaitable
from tests._support.cancelling import settled as quiet
from tests._support.helpers import eventually, eventually_async

RESERVE, SETTLE = script("budget_reserve"), script("budget_settle")

ACCOUNT = "{hf:budget:a}:account"

AWAY = "redis://127.0.0.1:1"
"""Where no server is."""

LAPSES_S = 0.01
"""A TTL of holds that are to lapse: each test waits until they have."""

DAY = timedelta(days=1)

STATE = struct.Struct("<7d")


@pytest.fixture(params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def api(request):
    return request.param


@contextlib.asynccontextmanager
async def reserved(budget, amount, **options):
    """Enter a block of either API, with a reservation whose methods are awaitable."""
    block = budget.reserve(amount, **options)
    if hasattr(block, "__aenter__"):
        async with block as held:
            yield held
        return
    held = awaitable(await Call(block.__enter__))
    try:
        yield held
    except BaseException:
        await Call(block.__exit__, *sys.exc_info())
        raise
    await Call(block.__exit__, None, None, None)


async def spend(budget, amount, actual=None, **options):
    """Reserve an amount, and settle it with the cost."""
    async with reserved(budget, amount, **options) as held:
        if actual is not None:
            await held.settle(actual)


async def amounts(budget):
    """Return the spent and the held sum."""
    status = await budget.status()
    return str(status.spent), str(status.held)


def shift(raw, by, key=ACCOUNT):
    """Let the period of an account have begun, and end, earlier by so long."""
    found = raw.execute_command("HGETALL", key, NEVER_DECODE=True)
    less = by / timedelta(microseconds=1)
    for field, value in (found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))).items():
        if field == b"s":
            begin_us, end_us, *rest = STATE.unpack(value)
            raw.hset(key, "s", STATE.pack(begin_us - less, end_us - less, *rest))
        elif field.startswith(b"t:"):
            begin_us, amount = struct.unpack("<dd", value)
            raw.hset(key, field, struct.pack("<dd", begin_us - less, amount))


# --- reserve, settle, give back


async def test_an_amount_is_held_and_then_counts_for_what_it_was(here, there):
    mine, theirs = (client.budget("a", "1.00/month") for client in (here, there))
    async with reserved(mine, "0.42") as held:
        assert (held.amount, held.left, held.settled, held.name) == (Decimal("0.42"), Decimal("0.58"), None, "a")
        assert await amounts(theirs) == ("0", "0.42")
        assert await held.settle(Decimal("0.3"))
        assert held.settled == Decimal("0.3")
        assert await amounts(theirs) == ("0.3", "0")
    assert await amounts(theirs) == ("0.3", "0")
    assert repr(held) == "<Reservation of 'a': settled with 0.3>".replace(
        "<", f"<{'Async' * repr(held).startswith('<A')}"
    )


async def test_what_is_given_back_counts_for_nothing(here):
    budget = here.budget("a", "1/month")
    async with reserved(budget, 1) as held:
        assert await held.give_back()
        assert held.settled == 0
    assert await amounts(budget) == ("0", "0")
    async with reserved(budget, 0) as held:
        assert held.left == 1


@pytest.mark.parametrize("error", [None, LookupError, asyncio.CancelledError, KeyboardInterrupt])
async def test_without_a_settlement_the_amount_counts_that_was_held(here, error):
    """The call may have been paid, however its block has ended (litellm#20256: a cancelled stream kept its slot)."""
    budget = here.budget("a", "1/month")
    with pytest.raises(error) if error else contextlib.nullcontext():
        async with reserved(budget, "0.4"):
            if error:
                raise error
    assert await amounts(budget) == ("0.4", "0")


async def test_a_settlement_counts_once(here):
    async with reserved(here.budget("a", "1/month"), "0.4") as held:
        await held.settle("0.1")
        for call in (held.settle("0.1"), held.give_back()):
            with pytest.raises(RuntimeError, match=r"settled with 0.1> counts once; reserve another amount"):
                await call
    assert await amounts(here.budget("a", "1/month")) == ("0.1", "0")


async def test_a_settlement_above_what_was_held_may_exceed_the_limit(here):
    budget = here.budget("a", "1/month")
    await spend(budget, "0.9", "1.7")
    status = await budget.status()
    assert (status.spent, status.remaining) == (Decimal("1.7"), 0)
    with pytest.raises(BudgetExceeded, match=r"0 does not fit into the budget 'a': of 1, 1.70 is spent and 0 is held"):
        await spend(budget, 0)


async def test_a_refusal_tells_all(here):
    budget = here.budget("a", "1.00/month", zone="Europe/Berlin")
    await spend(budget, "0.5", "0.3")
    async with reserved(budget, "0.4"):
        with pytest.raises(BudgetExceeded, match="the next period begins at ") as error:
            await spend(budget, "0.31")
    refused = error.value
    assert (refused.name, refused.scope, refused.amount, refused.limit) == ("a", "a", Decimal("0.31"), 1)
    assert (refused.spent, refused.held) == (Decimal("0.3"), Decimal("0.4"))
    assert refused.resets_at == (await budget.status()).resets_at
    with pytest.raises(BudgetExceeded, match=r"; raise the limit with set_limit\(\)$") as error:
        await spend(here.budget("b", "5 total"), 6)
    assert error.value.resets_at is None


async def test_a_price_is_rounded_up_to_six_decimals_and_a_limit_is_not(here):
    """The price of a token has more: an answer that was paid for must not be lost for that."""
    budget = here.budget("a", "1/month")
    async with reserved(budget, Decimal("0.00000015") * 2_000_001) as held:
        assert str(held.amount) == "0.300001"
        await held.settle(Decimal("0.00000015") * 1_831)
    assert await amounts(budget) == ("0.000275", "0")
    for call in (budget.set_limit, budget.at_least_spent):
        with pytest.raises(ValueError, match=r"has at most 6 decimals, and '0\.0000001' has more"):
            await call("0.0000001")
        for long in ("0." + "3" * 150, "1e-2000000"):
            with pytest.raises(ValueError, match="has at most 6 decimals"):
                await call(long)


def test_a_block_is_entered_once(hf):
    block = hf.budget("a", "1/month").reserve("0.1")
    with block, pytest.raises(RuntimeError, match=r"was entered before; reserve\(\) makes another one"), block:
        pytest.fail("it was entered twice")
    with pytest.raises(RuntimeError, match="was entered before"):
        block.__enter__()
    assert str(hf.budget("a", "1/month").status().spent) == "0.1"


async def test_resets_at_is_the_end_of_the_period(here):
    """Not the begin (claude-code-aws-gateway#46)."""
    now = datetime.now(UTC)
    status = await here.budget("a", "1/day").status()
    assert status.resets_at is not None
    assert status.resets_in is not None
    assert now < status.resets_at <= now + DAY + timedelta(minutes=1)
    assert abs((status.resets_at - now).total_seconds() - status.resets_in) < 60
    assert (await here.budget("b", "1/total").status()).resets_at is None


async def test_calls_do_not_prolong_a_period(here):
    """A TTL that each write renews never ends a period (litellm#14204)."""
    budget = here.budget("a", "9/day")
    await spend(budget, 1)
    ends = (await budget.status()).resets_at
    await spend(budget, 1)
    await budget.set_limit(8)
    assert (await budget.status()).resets_at == ends


# --- several accounts


async def test_an_amount_is_held_in_all_accounts_or_in_none(here, there):
    budget = here.budget("a", "1.00/month")
    tree = budget.all_of("acme", ("acme", "team-7"), ("acme", "team-7", "ann"))
    await budget.keyed("acme", "team-7").set_limit("0.5")
    async with reserved(tree, "0.4") as held:
        assert held.left == Decimal("0.1")
        assert await amounts(there.budget("a", "1.00/month").keyed("acme")) == ("0", "0.4")
        await held.settle("0.3")
    with pytest.raises(BudgetExceeded) as error:
        await spend(tree, "0.21")
    assert (error.value.scope, error.value.limit) == ("a|acme|team-7", Decimal("0.5"))
    for keys in (("acme",), ("acme", "team-7"), ("acme", "team-7", "ann")):
        assert await amounts(budget.keyed(*keys)) == ("0.3", "0")
    assert await amounts(budget) == ("0", "0")
    await spend(budget.all_of((), "acme"), "0.1")
    assert await amounts(budget) == ("0.1", "0")


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ((), ValueError, "the number of accounts must be from 1 to 16, not 0"),
        (("x",) * 2, ValueError, r"the account 'a\|x' stands twice"),
        (("x", ("x",)), ValueError, r"the account 'a\|x' stands twice"),
        (((), ()), ValueError, "the account 'a' stands twice"),
        (tuple(map(str, range(17))), ValueError, "the number of accounts must be from 1 to 16, not 17"),
        ((1.5,), TypeError, "."),
        ((b"x",), TypeError, "."),
        (("",), ValueError, "."),
    ],
)
async def test_bad_accounts_are_refused_before_any_call(api, keys, error, said):
    async with api.client("redis://127.0.0.1:1") as client:
        with pytest.raises(error, match=said):
            client.budget("a", "1/month").all_of(*keys)


async def test_two_keys_of_one_text_are_two_accounts(here):
    budget = here.budget("a", "9/month")
    await spend(budget.keyed("x|y"), 1)
    await spend(budget.keyed("x", "y"), 2)
    await spend(budget.keyed("x:y", "{z}"), 3)
    found = {one.name: str(one.status.spent) for one in await all_of(here.names())}
    assert found == {r"a|x\|y": "1", "a|x|y": "2", "a|x:y|{z}": "3"}


# --- bad input


@pytest.mark.parametrize(
    ("amount", "error", "said"),
    [
        (0.5, TypeError, "amount must be a Decimal, a text such as '0.42' or an int, not 0.5: a float is not exact"),
        ("-1", ValueError, "amount must be from 0 to 4503599627.370496, not '-1'"),
        (Decimal("NaN"), ValueError, "amount must be from 0 to 4503599627.370496"),
    ],
)
async def test_a_bad_amount_is_refused_before_any_call(api, here, amount, error, said):
    async with api.client("redis://127.0.0.1:1") as client:
        budget = client.budget("a", "1/month")
        for call in (budget.reserve, budget.at_least_spent):
            with pytest.raises(error, match=said):
                if asyncio.iscoroutine(made := call(amount)) or hasattr(made, "__await__"):
                    await made
        with pytest.raises(error, match=said.replace("amount", "limit")):
            await budget.set_limit(amount)
    async with reserved(here.budget("a", "1/month"), 1) as held:
        with pytest.raises(error, match=said):
            await held.settle(amount)
        assert held.settled is None
        await held.settle("0.5")


@pytest.mark.parametrize(
    ("budget", "options", "error"),
    [
        ("1/fortnight", {}, ValueError),
        (1, {}, TypeError),
        ((0.5, "day"), {}, TypeError),
        ("1/month", {"zone": "Mars/Olympus"}, ValueError),
        ("1/month", {"begins": 32}, ValueError),
        ("1/total", {"begins": 2}, ValueError),
    ],
)
def test_a_bad_budget_is_refused_before_any_call(budget, options, error):
    with Handfast("redis://127.0.0.1:1") as client, pytest.raises(error):
        client.budget("a", budget, **options)


@pytest.mark.parametrize(("ttl", "error"), [(0, ValueError), (-1, ValueError), ("60", TypeError), (1e12, ValueError)])
def test_a_bad_ttl_is_refused_before_any_call(ttl, error):
    with Handfast("redis://127.0.0.1:1") as client, pytest.raises(error):
        client.budget("a", "1/month").reserve(1, ttl=ttl)


# --- periods


async def test_a_new_period_begins_with_nothing_spent(here, raw):
    budget = here.budget("a", "1/day")
    await spend(budget, "0.7")
    with pytest.raises(BudgetExceeded):
        await spend(budget, "0.7")
    shift(raw, DAY)
    status = await budget.status()
    assert (status.spent, status.was, status.period) == (0, Decimal("0.7"), "day")
    await spend(budget, "0.8")
    status = await budget.status()
    assert (status.spent, status.was) == (Decimal("0.8"), Decimal("0.7"))


async def test_no_amount_crosses_a_period(here, raw):
    budget = here.budget("a", "1/day")
    async with reserved(budget, "0.7") as early, reserved(budget, "0.2") as late:
        shift(raw, DAY)
        await early.settle("0.6")
        async with reserved(budget, "0.9"):
            await late.settle("0.1")
            status = await budget.status()
            assert (status.spent, status.held, status.was) == (0, Decimal("0.9"), Decimal("0.7"))


async def test_a_hold_that_was_never_settled_counts_until_its_period_ends_and_no_longer(here, raw):
    """One that never ends pins the counter (litellm#27639, #30522, #40050)."""
    budget = here.budget("a", "1/day")
    block = budget.reserve("0.7")
    await (block.__aenter__() if hasattr(block, "__aenter__") else Call(block.__enter__))  # its process dies
    with pytest.raises(BudgetExceeded):
        await spend(budget, "0.4")
    shift(raw, DAY)
    await spend(budget, 1)


async def test_a_ttl_gives_back_what_a_dead_process_held(here):
    budget = here.budget("a", "1/month")
    block = budget.reserve("0.7", ttl=LAPSES_S)
    await (block.__aenter__() if hasattr(block, "__aenter__") else Call(block.__enter__))
    await eventually_async(lambda: is_held_no_more(budget))
    await spend(budget, 1)


async def is_held_no_more(budget):
    return await amounts(budget) == ("0", "0")


async def test_what_is_settled_after_its_ttl_is_charged_once(here):
    budget = here.budget("a", "1/month")
    async with reserved(budget, "0.7", ttl=LAPSES_S) as held:
        await eventually_async(lambda: is_held_no_more(budget))
        await spend(budget, "0.9")
        assert await held.settle("0.6")
    assert await amounts(budget) == ("1.5", "0")


async def test_the_period_of_a_client_does_not_depend_on_its_clock(here, there, raw):
    """The server says which period it is; who has another one in mind asks again."""
    mine, theirs = here.budget("a", "9/day"), there.budget("a", "9/day")
    await spend(mine, 1)
    shift(raw, DAY)
    await spend(theirs, 1)
    await spend(mine, 1)
    assert await amounts(mine) == ("2", "0")


async def test_a_status_after_the_clock_was_set_back_has_what_a_reserve_would_count(here, raw):
    budget = here.budget("a", "9/day")
    await spend(budget, 1)
    shift(raw, DAY)
    await spend(budget, 2)
    async with reserved(budget, "0.5"):
        for key in (ACCOUNT, ACCOUNT.replace(":account", ":past")):
            shift(raw, -DAY, key)
        status = await budget.status()
        assert (str(status.spent), str(status.held), str(status.was)) == ("3.5", "0", "0")
        with pytest.raises(BudgetExceeded) as error:
            await spend(budget, 9)
        assert (error.value.spent, error.value.held) == (status.spent, status.held)


async def test_another_definition_is_refused_by_name(here, there):
    await spend(here.budget("a", "1/month", zone="Europe/Berlin", begins=15).keyed("x"), "0.1")
    for budget, options in (
        ("1/month", {"begins": 15}),
        ("1/month", {"zone": "Europe/Berlin"}),
        ("1/week", {"zone": "Europe/Berlin"}),
    ):
        other = there.budget("a", budget, **options).keyed("x")
        said = r"the budget 'a\|x' was made as 'month Europe/Berlin 15' \(period, zone, begins\), and this client has "
        for call in (lambda other=other: spend(other, "0.1"), lambda other=other: other.set_limit(5)):
            with pytest.raises(BudgetMismatch, match=said) as error:
                await call()
        assert (error.value.name, error.value.stored) == ("a|x", "month Europe/Berlin 15")
    assert await amounts(here.budget("a", "1/month", zone="Europe/Berlin", begins=15).keyed("x")) == ("0.1", "0")
    await spend(there.budget("a", "9/month", zone="Europe/Berlin", begins=15).keyed("x"), "0.1")


# --- limits that are set


async def test_a_limit_that_is_set_counts_for_all(here, there, raw):
    mine, theirs = here.budget("a", "1/day"), there.budget("a", "2/day")
    await mine.set_limit("0.5", reason="a small month")
    for budget in (mine, theirs):
        with pytest.raises(BudgetExceeded):
            await spend(budget, "0.6")
    status = await theirs.status()
    assert (status.limit, status.is_set) == (Decimal("0.5"), True)
    assert status.last is not None
    assert (status.last.what, status.last.why) == ("resize", "0.5: a small month")
    shift(raw, DAY)
    with pytest.raises(BudgetExceeded):
        await spend(theirs, "0.6")
    await mine.set_limit(None)
    assert ((await theirs.status()).limit, (await mine.status()).limit) == (2, 1)
    await spend(theirs, "1.5")


async def test_a_limit_below_what_is_spent_holds_and_a_higher_one_goes_on(here):
    """A cut limit froze its holders (inspect_ai#5138)."""
    budget = here.budget("a", "1/month")
    async with reserved(budget, "0.4") as held:
        await budget.set_limit("0.1")
        with pytest.raises(BudgetExceeded):
            await spend(budget, 0)
        await held.settle("0.3")
    with pytest.raises(BudgetExceeded):
        await spend(budget, 0)
    await budget.set_limit("0.5")
    await spend(budget, "0.2")


async def test_what_is_spent_is_raised_and_never_lowered(here):
    budget = here.budget("a", "100/month")
    await budget.at_least_spent("37.10", reason="the bill")
    assert str(await budget.status()).startswith("37.10 of 100 spent; resets at ")
    await spend(budget, 5)
    await budget.at_least_spent("40")
    assert await amounts(budget) == ("42.1", "0")


async def test_an_account_is_forgotten(here):
    budget = here.budget("a", "1/total")
    await budget.set_limit(2)
    async with reserved(budget, 1) as held:
        assert await budget.forget()
        assert await held.settle(1)
    assert await amounts(budget) == ("1", "0")
    assert [await budget.forget(), await budget.forget()] == [True, False]
    assert (await budget.status()).limit == 1


# --- in crowds, and faults


async def test_check_and_record_are_one_step(here, there):
    """Who checks first and records afterwards overspends (litellm#18730, #34732; dify#39270)."""
    budgets = [client.budget("a", "10/month") for client in (here, there)]

    async def attempt(number):
        with contextlib.suppress(BudgetExceeded):
            await spend(budgets[number % 2], 3)
            return 1
        return 0

    assert sum(await asyncio.gather(*map(attempt, range(12)))) == 3
    assert await amounts(budgets[0]) == ("9", "0")


@pytest.mark.parametrize("what", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("actual", [None, "0.1", 0])
async def test_what_is_sent_again_counts_once(api, server, raw, what, actual):
    """A repeated reserve held twice (midaz#2279), a repeated refund paid twice (eliza#10930)."""
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url) as client:
            tree = client.budget("a", "100/month").all_of("x", ("x", "y"))
            await spend(tree, 1, 1)
            for number in range(1, 4):
                lost = [getattr(proxy, what)(RESERVE)]
                async with reserved(tree, 1) as held:
                    lost.append(getattr(proxy, what)(SETTLE))
                    if actual is not None:
                        assert await held.settle(actual)
                assert all(fault.spent for fault in lost)
                expected = 1 + number * Decimal(1 if actual is None else actual)
                for keys in (("x",), ("x", "y")):
                    status = await client.budget("a", "100/month").keyed(*keys).status()
                    assert (status.spent, status.held) == (expected, 0)


async def test_without_a_hold_no_call_is_made(api, server, raw):
    """Who goes on where the hold can't be written fails open (litellm#33923)."""
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as client:
            budget = client.budget("a", "1/month")
            await spend(budget, "0.1")
            proxy.retarget(AWAY)
            with pytest.raises(redis.ConnectionError):
                async with reserved(budget, "0.1"):
                    pytest.fail("the block has begun")


async def test_an_outage_loses_no_answer_and_the_settlement_comes_later(api, server, raw, caplog):
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as client, api.client(server.url) as other:
            budget = client.budget("a", "1/month")
            async with reserved(budget, "0.4") as held:
                proxy.retarget(AWAY)
                assert not await held.settle("0.3")
            assert held.settled == Decimal("0.3")
            (record,) = [one for one in caplog.records if one.name == "handfast.budget"]
            assert record.levelno == logging.WARNING
            assert record.getMessage().startswith("the budget 'a' is settled with 0.3 as soon as the server answers: ")
            assert await amounts(other.budget("a", "1/month")) == ("0", "0.4")
            proxy.retarget(server.url)

            async def is_settled():
                return await amounts(other.budget("a", "1/month")) == ("0.3", "0")

            await eventually_async(is_settled)


async def test_a_settlement_that_is_given_up_is_logged_with_its_amount(api, server, raw, caplog, monkeypatch):
    for module in [
        one for name, one in sys.modules.items() if name.startswith("handfast.") and hasattr(one, "CLEANUP_FOR")
    ]:
        monkeypatch.setattr(module, "CLEANUP_FOR", 0.2)
    assert retry.CLEANUP_FOR == 0.2
    with FaultProxy(server.url) as proxy:
        async with api.client(proxy.url, retry_for=0) as client:
            async with reserved(client.budget("a", "1/month"), "0.4") as held:
                proxy.retarget(AWAY)
                assert not await held.settle("0.3")
            await eventually_async(lambda: any(one.levelno == logging.ERROR for one in caplog.records))
    text = "the budget 'a' could not be settled with 0.3: the reserved amount counts, or with a ttl nothing"
    assert text in [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


async def test_a_client_that_is_closed_in_the_block_says_what_was_not_settled(api, server, raw, caplog):
    async with api.client(server.url) as other:
        client = api.client(server.url)
        async with reserved(client.budget("a", "1/month"), "0.4"):
            await client.close()
        await eventually_async(lambda: any(one.levelno == logging.ERROR for one in caplog.records))
        assert await amounts(other.budget("a", "1/month")) == ("0", "0.4")
        with pytest.raises(ClientClosed):
            await spend(client.budget("a", "1/month"), 1)


async def test_a_server_without_memory_refuses_and_settles(here, raw):
    budget = here.budget("a", "1/month")
    async with reserved(budget, "0.4") as held:
        raw.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerRefused, match="out of memory"):
                await spend(budget, "0.1")
            assert await held.settle("0.3")
        finally:
            raw.config_set("maxmemory", 0)
    assert await amounts(budget) == ("0.3", "0")
    assert raw.keys("*") == [ACCOUNT]


async def test_a_hold_that_the_server_has_lost_is_charged(here, raw):
    tree = here.budget("a", "1/month").all_of("x", ("x", "y"))
    async with reserved(tree, "0.4") as held:
        raw.flushall()
        assert await held.settle("0.3")
    for keys in (("x",), ("x", "y")):
        assert await amounts(here.budget("a", "1/month").keyed(*keys)) == ("0.3", "0")


async def test_a_cancellation_at_any_await_leaves_nothing_held(server, raw):
    async with ASYNCIO.handfast(server.url) as client:
        budget = client.budget("a", "9999/month")
        await spend(budget, 1, 0)
        cancelled, spent = 0, Decimal(0)

        async def run():
            async with budget.reserve(1) as held:
                await held.settle(1)

        async for outcome in cancel_everywhere(run, twice=True):
            await quiet(client)
            cancelled += outcome.how == "stopped"
            assert outcome.how != "failed"
            status = await budget.status()
            assert (status.held, status.spent - spent in (0, 1)) == (0, True), outcome
            spent = status.spent
        assert cancelled >= 2


def test_an_interrupt_at_any_point_leaves_nothing_held(hf):
    budget = hf.budget("a", "999999/month")

    def run():
        with budget.reserve(1) as held:
            held.settle(1)

    run()  # what is made only once is made now
    within, struck = [sync_budget, base, driver, performing, budgeting, session], 0
    for outcome in interrupt_everywhere(run, within=within):
        assert outcome.how != "failed", outcome
        struck += outcome.how == "stopped"
        file, line = outcome.place.split(" in ")[0].split(":") if outcome.place else ("", "0")
        if linecache.getline(file, int(line)).lstrip().startswith("def __exit__("):
            budget.forget()  # the first instructions, which Python can't guard
        eventually(lambda: not budget.status().held)
    assert struck > 20


# --- shown


async def test_it_is_listed_with_its_keys(here):
    budget = here.budget("a", "1.50/week", begins=3)
    await spend(budget.keyed("acme", "x"), "0.5")
    await spend(budget, "0.25")
    found = {one.name: one.status for one in await all_of(here.names("a*", kinds=["budget"]))}
    assert {name: str(one.spent) for name, one in found.items()} == {"a": "0.25", "a|acme|x": "0.5"}
    status = found["a|acme|x"]
    assert (status.limit, status.period, status.zone, status.begins) == (Decimal("1.5"), "week", "UTC", 3)
    assert [one.name for one in await all_of(here.names("a|*e|x"))] == ["a|acme|x"]
    assert [one.name for one in await all_of(here.names("a|acme|x"))] == ["a|acme|x"]


async def test_a_refusal_is_an_event(here):
    seen = []
    here.on(seen.append, Refused)
    with pytest.raises(BudgetExceeded):
        await spend(here.budget("a", "1/month").keyed("x"), 2)
    assert [(event.kind, event.name) for event in seen] == [("budget", "a|x")]


def test_without_a_server_every_amount_fits():
    with Handfast("null:") as client:
        budget = client.budget("a", "1/month")
        with budget.reserve(5) as held:
            assert held.settle(7)
        assert (budget.status().spent, budget.status().limit) == (0, 1)
        with busy("a|x"), pytest.raises(BudgetExceeded, match=r"1 does not fit into the budget 'a\|x'") as error:
            with budget.all_of("y", "x").reserve(1):
                pytest.fail("it fits")
        assert error.value.resets_at is None


async def test_without_a_server_in_asyncio(api):
    async with AsyncHandfast("null:") as client, client.budget("a", "1/month").reserve(5) as held:
        assert await held.give_back()


def test_what_others_call_it_leads_to_our_call(hf):
    budget = hf.budget("a", "1/month")
    for name, said in (
        ("spend", r"use reserve\(\)"),
        ("remaining", r"use status\(\)"),
        ("commit", "the value of the block"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(budget, name)
    assert issubclass(BudgetExceeded, HandfastError)
