"""Helpers of several folders: wait for a condition, and choose how much to try."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import time

from handfast._engine.effects import Call

THOROUGH = os.environ.get("HANDFAST_TESTS") == "thorough"
"""Whether tests take more values and examples than in the gate, and new random ones in each run. ``tools/deep.py`` asks
for it."""

BOUND_S = 30.0
"""How long a test waits for what must come, in seconds. No test depends on it: it ends a test that would hang."""


def eventually(condition, within=BOUND_S):
    """Wait until the condition is true and return its value. Fails after ``within`` seconds."""
    until = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < until, f"still false after {within} s"
        time.sleep(0.002)
    return value


def without_coverage():
    """Return this environment for a process that is interrupted at random, which would strike the measuring, too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def until_alone(raw):
    """Wait until the server has noticed that all other connections are closed, those of clients that tests dropped, too.

    Fails if some remain, and has the server close them: one test has left them behind, so only one fails.
    """

    def alone():
        gc.collect()
        return len(raw.client_list()) == 1

    try:
        eventually(alone)
    except AssertionError:
        last = [(client["lib-name"], client["name"], client["cmd"]) for client in raw.client_list()]
        for kind in ("normal", "pubsub"):
            raw.client_kill_filter(_type=kind, skipme=True)
        raise AssertionError(f"of these, only the last that asks is expected: {last}") from None


def kill_waiter(process, raw):
    """Kill a process that waits, and wait until the server has noticed that its inbox has no subscriber."""
    before = len(raw.pubsub_channels("hf:inbox:*"))
    process.kill()
    eventually(lambda: len(raw.pubsub_channels("hf:inbox:*")) < before)


async def eventually_async(condition, within=BOUND_S):
    """Do what `eventually` does, in a coroutine. The condition may be a coroutine function."""
    until = time.monotonic() + within
    while not (value := await settled(condition())):
        assert time.monotonic() < until, f"still false after {within} s"
        await asyncio.sleep(0.002)
    return value


async def forever():
    """Wait for a cancellation."""
    await asyncio.Event().wait()


async def settled(value):
    """Await the value if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def more(*values):
    """Return further values of a parameter in a thorough run, and none in the gate: more of the same kind."""
    return values if THOROUGH else ()


def ends_first(options):
    """Return the first and the last combination of options, which have each value of each; all of them in a thorough run."""
    return options if THOROUGH else [options[0], options[-1]]


def wall_clock():
    """Return a lower and an upper bound of the wall clock's lead over the monotonic clock, in seconds."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return (wall - after) / 1e9, (wall - before) / 1e9


def performed(steps, *script, attempt=None):
    """Run a protocol: the driver sends back or raises each item of the script, and notes the item in the attempt.

    Return its effects and its result.
    """
    effects, items = [], [*script]
    try:
        effect = next(steps)
        while True:
            effects.append(effect)
            assert items, f"the script answers {len(script)} effects, and there is another one: {effect}"
            item = items.pop(0)
            if attempt is not None and isinstance(effect, Call):
                attempt.answered(effect, item)
            effect = steps.throw(item) if isinstance(item, BaseException) else steps.send(item)
    except StopIteration as end:
        assert not items, f"the protocol has ended, and nothing asked for {items}"
        return effects, end.value


async def awaited(awaitable):
    """Make a coroutine of any awaitable, for a task."""
    return await awaitable
