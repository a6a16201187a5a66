"""How long one waits: for a lease, in a block and in a decorated function, whose name may be a template."""

from __future__ import annotations

import asyncio
import functools
import math
from datetime import timedelta
from types import SimpleNamespace

import pytest

from handfast import AcquireTimeout, AsyncHandfast, QueueFull
from tests._support.apis import SYNC, until_queued
from tests._support.helpers import more, settled
from tests._support.kinds import made
from tests._support.listings import commands

NOWHERE = "redis://127.0.0.1:1"

kinds = pytest.mark.parametrize("kind", ["lock", "write", *more("rlock", "semaphore", "read", "lock_all")])


def blocker(kind):
    """What keeps that kind out: itself, or of a side of a read-write lock the one that writes."""
    return "write" if kind in ("read", "write") else kind


# --- a forgotten await


@kinds
async def test_an_acquire_that_is_not_awaited_warns_where_it_was_forgotten(kind):
    async with AsyncHandfast(NOWHERE) as client:
        with pytest.warns(RuntimeWarning, match="acquire' was never awaited") as caught:
            made(kind, client).acquire()
    assert caught[0].filename == __file__


# --- waiting


@kinds
async def test_the_timeout_of_an_object_holds_in_blocks_and_for_acquire(here, there, raw, kind):
    primitive = made(kind, here, places=1, timeout=0.05)
    async with made(blocker(kind), there, places=1):
        with pytest.raises(AcquireTimeout, match=r"within 0\.05 s") as blocked:
            async with primitive:
                pytest.fail("the block ran")
        assert blocked.value.timeout == 0.05
        with pytest.raises(AcquireTimeout, match=r"within 0\.05 s"):
            await primitive.acquire()
        with pytest.raises(AcquireTimeout, match=r"within 0\.07 s"):
            await primitive.acquire(timeout=timedelta(seconds=0.07))
    async with primitive:
        pass


async def test_an_infinite_timeout_of_a_call_overrides_that_of_the_object(here, there):
    lock = here.lock("a", timeout=0.01)
    held = await there.lock("a").acquire()

    async def wait(timeout):
        async with lock.acquire(timeout=timeout) as lease:
            return lease.fence

    async with asyncio.TaskGroup() as tasks:
        waiters = [tasks.create_task(wait(timeout)) for timeout in (math.inf, 10**400, timedelta(days=400))]
        await until_queued(here.lock("a"), 3)
        await held.release()
    assert all(waiter.result() > held.fence for waiter in waiters)


@pytest.mark.parametrize("timeout", [0, pytest.param(-(10**400), id="no-float"), -math.inf, timedelta(0), 0.0])
async def test_without_time_to_wait_acquire_takes_one_round_trip(here, there, raw, timeout):
    lock = here.lock("a")
    await (await lock.acquire()).release()
    raw.config_resetstat()
    lease = await lock.acquire(timeout=timeout)
    assert commands(raw)["evalsha"] == 1
    with pytest.raises(AcquireTimeout, match=r"'a' is not free: .* has held it for"):
        await there.lock("a").acquire(timeout=timeout)
    assert (await lock.status()).waiting == 0
    assert await lease.release() is True


# --- decorated functions


@kinds
async def test_a_decorated_function_waits_no_longer_than_its_timeout(api, plain, there, kind):
    primitive, calls = made(kind, plain, places=1, timeout=0.05), []
    raises = primitive(api.function(lambda: calls.append("raises")))
    longer = primitive(timeout=0.07)(api.function(lambda: calls.append("longer")))
    skips = primitive(on_busy="skip")(api.function(lambda: calls.append("skips") or "done"))
    async with made(blocker(kind), there, places=1):
        for function, seconds in ((raises, 0.05), (longer, 0.07)):
            with pytest.raises(AcquireTimeout, match=rf"within {seconds} s"):
                await settled(function())
        assert await settled(skips()) is None
    assert calls == []
    assert await settled(skips()) == "done"


async def test_a_function_that_skips_waits_only_with_a_timeout(api, plain, there, raw):
    skips = plain.lock("a")(on_busy="skip")(api.function(lambda: "done"))
    full = plain.lock("a", max_waiters=1)(timeout=10, on_busy="skip")(api.function(lambda: "done"))

    async def wait():
        async with there.lock("a"):
            pass

    async with asyncio.TaskGroup() as tasks:
        async with there.lock("a"):
            raw.config_resetstat()
            assert await settled(skips()) is None
            assert commands(raw)["evalsha"] <= 2, "it has entered no queue"
            tasks.create_task(wait())
            await until_queued(there.lock("a"))
            assert await settled(full()) is None
    assert await settled(skips()) == "done"


@pytest.mark.parametrize("error", [AcquireTimeout("b", 1.0), QueueFull("b", 1)])
async def test_what_a_function_raises_is_not_taken_for_its_own_lock(api, plain, error):
    def body():
        raise error

    with pytest.raises(type(error), match="'b'"):
        await settled(plain.lock("a")(on_busy="skip")(api.function(body))())


@pytest.mark.parametrize(
    ("options", "error"),
    [({"on_busy": "wait"}, ValueError), ({"timeout": math.nan}, ValueError), ({"timeout": "1"}, TypeError)],
)
def test_wrong_options_of_a_decorator_are_refused_at_once(api, options, error):
    with pytest.raises(error):
        api.handfast(NOWHERE).lock("a")(**options)


# --- names of decorated functions


@kinds
async def test_a_template_is_filled_with_the_arguments_of_each_call(api, plain, there, kind):
    held = []

    async def names(order_id, *, order=None):
        found = {"lock": [], "semaphore": [], "rwlock": []}
        for one in (f"order:{order_id}", f"order:{order_id}:7", "b"):
            for primitive in (there.lock(one), there.semaphore(one, 1), there.rwlock(one)):
                if (await primitive.status()).holders:
                    found[
                        type(primitive._thing if api is SYNC else primitive).__name__.removeprefix("Async").lower()
                    ].append(one)
        held.append([name for group in found.values() for name in group])

    if api is SYNC:
        loop = asyncio.get_running_loop()

        def body(order_id, *, order=None):
            asyncio.run_coroutine_threadsafe(names(order_id, order=order), loop).result(10)
    else:
        body = names
    one = made(kind, plain, "order:{order_id}")(body)
    two = made(kind, plain, "order:{order_id}:{order.number}")(body)
    for call in (lambda: one(1), lambda: one(order_id="2"), lambda: two(3, order=SimpleNamespace(number=7))):
        await (asyncio.to_thread(call) if api is SYNC else call())
    expected = [["order:1"], ["order:2"], ["order:3:7"]]
    assert held == ([[*names, "b"] for names in expected] if kind == "lock_all" else expected)


async def test_defaults_count_and_doubled_braces_are_braces(api, plain, there):
    def decorated(name, body):
        return plain.lock(name)(body if api is SYNC else asyncio_body(body))

    seen = []
    for name, expected in (("a:{kind}", "a:small"), ("{{a}}:{kind}", "{a}:small"), ("{{a}}", "{a}")):
        function = decorated(name, lambda kind="small": seen.append(kind))
        async with there.lock(expected):
            busy = plain.lock(name)(timeout=0)(function.__wrapped__)
            with pytest.raises(AcquireTimeout, match=expected.replace("{", r"\{")):
                await settled(busy())
        await settled(function())
    assert seen == ["small"] * 3


def asyncio_body(body):
    async def run(kind="small"):
        return body(kind)

    return run


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("order:{id}", r"has the field 'id', which is no parameter of .*; these are: order_id"),
        ("order:{order_id:{width}}", r"has the field 'width', which is no parameter of .*; these are: order_id"),
        ("order:{}", r"has the field ''"),
        ("order:{order_id", r"is a template, and not a valid one: .*; write {{ and }} for braces themselves"),
        ("order:}", r"is a template, and not a valid one"),
    ],
)
def test_a_template_that_does_not_fit_the_function_is_refused_when_it_is_decorated(api, name, said):
    lock = api.handfast(NOWHERE).lock(name)
    with pytest.raises(ValueError, match=said):
        lock(api.function(named))


def named(order_id):
    return order_id


@pytest.mark.parametrize("template", ["order:{order_id}", "order:{order_id[0]}", "order:{order_id:>4}"])
async def test_a_field_without_a_value_is_refused_before_anything_is_asked(api, template):
    """All callers without one would share a name."""
    ran = []
    client = api.handfast(NOWHERE)

    @client.lock(template)
    @api.function
    def work(order_id=None):
        ran.append(order_id)

    for value in ([], [None]) if "[" not in template else ([[None]],):
        with pytest.raises(
            ValueError, match=r"^the field 'order_id(\[0\])?' of a decorator's name is None in this call"
        ):
            await settled(work(*value))
    assert not ran


def test_a_class_is_not_replaced_by_a_decorator(api):
    with pytest.raises(TypeError, match="is a class, which a decorator would replace; decorate its methods"):
        api.handfast(NOWHERE).lock("a")(type("Work", (), {}))


async def test_what_acquire_returns_is_no_decorator(api, plain, raw):
    """Neither the lease nor, in asyncio, what is awaited for one: that has sent nothing yet."""
    acquired = plain.lock("a").acquire(timeout=1)
    with pytest.raises(TypeError, match=r"decorate with the object itself, as in @hf\.lock\('a', timeout=5\)"):
        acquired(api.function(named))
    if api is not SYNC:
        assert not raw.keys("*")
        acquired = await plain.lock("a").acquire()
        with pytest.raises(TypeError, match=r"what acquire\(\) returns is no decorator"):
            acquired(api.function(named))
    await settled(acquired.release())


def test_a_function_that_cannot_be_decorated_is_shown_as_it_is_called(api):
    """Not with its address: a traceback that is compared or searched for stays the same."""

    def steps():
        yield

    with pytest.raises(TypeError, match=r"^test_\w+\.<locals>\.steps\(\) is a generator function"):
        api.handfast(NOWHERE).lock("a")(steps)
    with pytest.raises(ValueError, match=r"no parameter of named\(\); these are: order_id"):
        api.handfast(NOWHERE).lock("order:{id}")(api.function(named))


@pytest.mark.parametrize("make", ["coroutine", "generator", "async_generator", "Future"])
@pytest.mark.parametrize("how", ["lock", "limiter", "lock_all"])
async def test_a_plain_function_that_returns_what_has_not_run_yet_is_refused_when_it_is_called(hf, make, how):
    """It wraps one that can't be decorated, as decorators do that were written with a plain def."""

    async def coroutine():
        raise AssertionError("it runs without the lock")

    def generator():
        yield

    async def async_generator():
        yield

    makes = {
        "coroutine": coroutine,
        "generator": generator,
        "async_generator": async_generator,
        "Future": asyncio.Future,
    }
    kind = {
        "lock": lambda: hf.lock("a"),
        "limiter": lambda: hf.limiter("a", "5/s"),
        "lock_all": lambda: hf.lock_all(["a"]),
    }

    @kind[how]()
    @functools.wraps(makes[make])
    def work():
        return makes[make]()

    with pytest.raises(TypeError, match=f"returned a {make}, whose body would run after the call"):
        work()
    assert not hf.lock("a").locked()


def test_static_methods_are_decorated_as_functions_are(hf):
    class Job:
        @hf.lock("a")
        @staticmethod
        def held():
            return hf.lock("a").locked()

    assert Job.held()
    assert not hf.lock("a").locked()
    for kind, wrong in (
        (staticmethod, "is a generator function"),
        (classmethod, "put @classmethod above this decorator"),
    ):
        with pytest.raises(TypeError, match=wrong):

            @hf.lock("a")
            @kind
            def steps(_=None):
                yield


async def test_a_call_that_does_not_fit_the_function_acquires_nothing(api, plain, raw):
    function = plain.lock("order:{order_id}")(api.function(named))
    raw.config_resetstat()
    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        await settled(function())
    assert "evalsha" not in commands(raw)


async def test_outside_of_a_decorator_a_name_is_what_it_is(plain):
    lock = plain.lock("order:{order_id}")
    assert lock.name == "order:{order_id}"
    lease = await settled(lock.acquire())
    assert (await settled(plain.lock("order:{order_id}").status())).holders
    await settled(lease.release())
