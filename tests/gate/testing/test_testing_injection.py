"""Cancellations at every suspension and interrupts at every point: each is reached once, and its outcome is reported."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import threading
from pathlib import Path

import pytest

import handfast
from handfast import AsyncHandfast, Handfast
from handfast.testing import (
    Stepper,
    calm,
    cancel_at,
    cancel_everywhere,
    interrupt_after,
    interrupt_at,
    interrupt_everywhere,
)
from tests._support.engine import Engine
from tests._support.helpers import eventually_async, forever

HERE = Path(__file__)


class Account:
    """Has a coroutine that suspends three times: twice for the work, once to clean up."""

    def __init__(self):
        self.log = []

    async def move(self):
        self.log.append("begun")
        try:
            await asyncio.sleep(0)
            self.log.append("half")
            await self.done_soon()
            self.log.append("whole")
            return "moved"
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.log.append("undone")
            raise

    async def done_soon(self):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.001, future.set_result, None)
        await future


async def test_cancel_everywhere_reaches_each_suspension_and_ends_with_a_whole_run():
    runs, logs = [], []
    account = Account()
    async for run in cancel_everywhere(account.move, when="suspended"):
        runs.append((run.steps, run.struck, run.how, run.result, run.reached))
        logs.append(list(account.log))
        account.log.clear()
    assert runs == [
        ((1,), 1, "stopped", None, 2),
        ((2,), 1, "stopped", None, 3),
        ((3,), 0, "finished", "moved", 2),
    ]
    assert logs == [["begun", "undone"], ["begun", "half", "undone"], ["begun", "half", "whole"]]


async def test_cancel_everywhere_combines_both_ways_and_second_cancellations():
    account, tried = Account(), []
    async for run in cancel_everywhere(account.move, twice=True):
        tried.append((run.steps, run.struck, "undone" in account.log))
        account.log.clear()
    assert tried == [
        ((1,), 1, True),
        ((1, 2), 2, False),
        ((1,), 1, True),
        ((1, 2), 2, False),
        ((2,), 1, True),
        ((2, 3), 2, False),
        ((2,), 1, True),
        ((2, 3), 2, False),
        ((3,), 0, False),
    ]


async def test_ready_cancels_when_the_result_is_there():
    seen = []

    async def wait(future):
        try:
            await future
        except asyncio.CancelledError:
            seen.append(future.done())
            raise

    for when, done in (("suspended", True), ("ready", True)):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.002, lambda future=future: future.done() or future.set_result(1))
        run = await cancel_at(lambda future=future: wait(future), 1, when=when)
        assert run.how == "stopped"
        assert future.cancelled() is (when == "suspended")
        assert future.done() is done
    assert seen == [True, True]


async def test_run_reports_how_it_ended():
    async def stubborn():
        try:
            await forever()
        except asyncio.CancelledError:
            return "all the same"

    async def clumsy():
        try:
            await forever()
        except asyncio.CancelledError:
            raise KeyError("clumsy") from None

    run = await cancel_at(stubborn, 1)
    assert (run.how, run.result, run.struck, run.error) == ("finished", "all the same", 1, None)
    run = await cancel_at(clumsy, 1)
    assert (run.how, run.result, run.struck, repr(run.error)) == ("failed", None, 1, "KeyError('clumsy')")


async def test_cancel_at_raises_if_the_coroutine_does_not_end(monkeypatch):
    monkeypatch.setattr("handfast.testing.injection.END_TIMEOUT_S", 0.02)

    async def deaf():
        for _ in range(2):
            try:
                await forever()
            except asyncio.CancelledError:
                continue

    with pytest.raises(TimeoutError, match=r"cancelled at \(1,\)"):
        await cancel_at(deaf, 1)


@pytest.mark.parametrize("steps", [(0,), (2, 1), (1, 1), (-1,)])
async def test_cancel_at_refuses_invalid_steps(steps):
    with pytest.raises(ValueError, match="counted from 1"):
        await cancel_at(Account().move, *steps)


async def test_stepper_forwards_results_and_errors():
    seen = []

    async def work():
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        failing = loop.create_future()
        loop.call_soon(failing.set_exception, ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await failing
        return 5

    stepper = Stepper(work(), before=seen.append, at=lambda *at: seen.append(at))
    assert await stepper == 5
    assert stepper.suspensions == 2
    assert [one for one in seen if isinstance(one, int)] == [1, 2, 3]
    numbers, futures = zip(*[one for one in seen if not isinstance(one, int)], strict=True)
    assert numbers == (1, 2)
    assert futures[0] is None
    assert asyncio.isfuture(futures[1])

    future = asyncio.get_running_loop().create_future()
    future.set_result(7)
    assert await Stepper(future) == 7
    steps = Stepper(asyncio.sleep(0)).__await__()
    assert next(steps) is None
    with pytest.raises(KeyError):
        steps.throw(KeyError())


async def test_lock_cancelled_anywhere_leaves_nothing(server, raw):
    async with AsyncHandfast(server.url) as hf:
        lock, struck = hf.lock("a"), 0
        await (await lock.acquire()).release()
        async for run in cancel_everywhere(lock.acquire, twice=True):
            if run.result is not None:
                assert await run.result.release()
            await eventually_async(lambda: not Engine(raw).holders())
            assert Engine(raw).queue() == [], run
            struck += run.struck
    assert struck >= 2


# --- interrupts


def double(number):
    return number + number


def work(log):
    log.append("begun")
    total = 0
    for number in [1, 2]:
        total = double(total) + number
    log.append("ended")
    return total


def test_interrupt_everywhere_reaches_each_point_and_ends_with_a_whole_run():
    for points in ("signals", "bytecodes"):
        log, places, runs = [], [], []
        for run in interrupt_everywhere(lambda log=log: work(log), within=HERE, points=points):
            runs.append(run)
            places.append(run.place)
        assert [run.steps for run in runs] == [(number,) for number in range(1, len(runs) + 1)]
        assert {run.how for run in runs[:-1]} == {"stopped"}
        assert all(isinstance(run.error, KeyboardInterrupt) for run in runs[:-1])
        assert [run.reached for run in runs[:-1]] == list(range(1, len(runs)))
        last = runs[-1]
        assert (last.how, last.result, last.struck, last.reached, last.place) == ("finished", 4, 0, len(runs) - 1, None)
        assert log.count("ended") < log.count("begun"), "some interrupts happened in between"
        assert all(str(HERE) in place for place in places[:-1])
        assert {place.rpartition(" ")[2].rpartition(".")[2] for place in places[:-1]} == {"work", "double", "<lambda>"}
        assert len(runs) > (5 if points == "signals" else 30)


def test_interrupts_happen_only_within_the_given_code():
    def call():
        return json.loads(json.dumps({"a": [1, 2, {"b": None}]}))

    (whole,) = interrupt_everywhere(call, within=[handfast, HERE.parents[2] / "_support/helpers.py"])
    assert (whole.struck, whole.reached, whole.result) == (0, 0, {"a": [1, 2, {"b": None}]})
    decoder = interrupt_at(call, 1, within=json.decoder)
    assert decoder.how == "stopped"
    assert "decoder.py" in decoder.place
    for within in (json, str(Path(json.__file__).parent), [json.encoder, json]):
        assert "json" in interrupt_at(call, 1, within=within).place
    everything = sum(run.struck for run in interrupt_everywhere(call, within=json))
    every_third = sum(run.struck for run in interrupt_everywhere(call, within=json, every=3))
    assert every_third == (everything + 2) // 3


def test_cleanup_after_an_interrupt_is_not_interrupted():
    log = []

    def careful():
        try:
            work(log)
        finally:
            json.dumps(log)
            log.append("clean")

    for run in interrupt_everywhere(careful, within=(HERE, json)):
        if run.place is None or run.place.endswith(("in work", "in double")):
            assert log[-1] == "clean", run
        log.clear()


def test_run_reports_an_interrupt_that_was_swallowed_or_replaced():
    def stubborn():
        try:
            double(1)
        except KeyboardInterrupt:
            return "all the same"
        return "undisturbed"

    def clumsy():
        try:
            double(1)
        except KeyboardInterrupt:
            raise KeyError("clumsy") from None

    run = interrupt_at(stubborn, 2, within=HERE)
    assert (run.how, run.result, run.struck) == ("finished", "all the same", 1)
    run = interrupt_at(clumsy, 2, within=HERE)
    assert (run.how, run.struck, repr(run.error)) == ("failed", 1, "KeyError('clumsy')")
    run = interrupt_at(lambda: 1 / 0, 99, within=HERE)
    assert (run.how, run.struck, type(run.error)) == ("failed", 0, ZeroDivisionError)


def test_interrupt_raises_the_given_exception():
    class Stop(BaseException):
        pass

    run = interrupt_at(lambda: double(1), 1, within=HERE, exception=Stop)
    assert (run.how, type(run.error)) == ("stopped", Stop)


def test_calm_ends_the_interrupts_of_a_run():
    def call():
        double(1)
        calm()
        double(2)
        return double(3)

    for points in ("signals", "bytecodes"):
        runs = list(interrupt_everywhere(call, within=HERE, points=points))
        assert runs[-1].result == 6
        lines = {int(run.place.split(":")[1].split()[0]) for run in runs[:-1] if "call" in run.place}
        assert max(lines) <= call.__code__.co_firstlineno + 2
    assert not any("in calm" in run.place for run in interrupt_everywhere(call, within=handfast) if run.place)
    calm()  # outside of an interrupted run it does nothing


def test_former_profile_and_trace_functions_are_restored():
    def watch(*_):
        return None

    before = sys.getprofile(), sys.gettrace()
    try:
        sys.setprofile(watch)
        list(interrupt_everywhere(lambda: double(1), within=HERE))
        assert sys.getprofile() is watch
        sys.setprofile(None)
        sys.settrace(watch)
        list(interrupt_everywhere(lambda: double(1), within=HERE, points="bytecodes"))
        assert sys.gettrace() is watch
    finally:
        sys.setprofile(before[0])
        sys.settrace(before[1])


@pytest.mark.parametrize(
    "order",
    [
        lambda: interrupt_at(print, 0, within=HERE),
        lambda: list(interrupt_everywhere(print, within=HERE, every=0)),
        lambda: interrupt_at(print, 1, within=[]),
        lambda: interrupt_at(print, 1, within="no/such/file"),
        lambda: interrupt_at(print, 1, within=sys),
        lambda: interrupt_after(print, 0),
        lambda: interrupt_after(print, float("nan")),
    ],
)
def test_invalid_arguments_are_refused(order):
    with pytest.raises(ValueError, match=r"from 1|at least 1|name the code|no file|not written in Python|more than 0"):
        order()


def test_interrupt_after_is_refused_outside_the_main_thread():
    caught = []

    def elsewhere():
        try:
            interrupt_after(print, 1)
        except ValueError as error:
            caught.append(error)
        caught.append(interrupt_at(lambda: double(1), 1, within=HERE).how)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert [str(one) for one in caught] == ["signal only works in main thread of the main interpreter", "stopped"]


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_lock_interrupted_anywhere_leaves_nothing(server, raw, held):
    with Handfast(server.url) as hf, Handfast(server.url) as other:
        lock = hf.lock("a")
        with lock:
            pass
        lease = other.lock("a").acquire() if held else None
        holders = Engine(raw).holders()

        def block():
            with lock:
                calm()

        call = functools.partial(lock.try_acquire) if held else block
        struck = 0
        for run in interrupt_everywhere(call, within=handfast):
            assert Engine(raw).holders() == holders, run
            assert Engine(raw).queue() == [], run
            struck += run.struck
        assert struck > 20
        if held:
            assert lease.release()
