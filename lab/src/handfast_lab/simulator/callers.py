"""The callers of a client: each order of their plans is a task that uses the public asyncio API, as `Leased`, `Limited` or `Running` does.

Operations and their outcomes are recorded for the checkers of histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from handfast.errors import ServerRefused
from handfast_lab.simulator.budgets import Reserving
from handfast_lab.simulator.burst_callers import Debounced
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.latches import Latched
from handfast_lab.simulator.lease_callers import ENDS, Leased
from handfast_lab.simulator.limiter_callers import Limited
from handfast_lab.simulator.once_callers import Running
from handfast_lab.simulator.orders import Order
from handfast_lab.simulator.partitions import Working
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import World

__all__ = ["carry_out"]


async def carry_out(world: World, watch: Watch, client: Client, orders: list[Order]) -> None:
    """Carry out the orders of one caller, one after the other."""
    for order in orders:
        await asyncio.sleep(order.pause)
        steps: Any = _caller_of(order)(world, watch, client, order).run()
        if order.cancel_at:
            steps = _CancelledAt(steps, order.cancel_at)
        task = client.loop.create_task(steps)
        if order.cancel_after is not None:
            client.loop.call_later(order.cancel_after, task.cancel)
        await asyncio.wait((task,))
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = task.exception()
        if error is not None:
            if world.log is not None:
                world.say(client.process.name, f"{order.verb} ends with {type(error).__name__}: {error}")
            redirected = isinstance(error, ServerRefused) and error.reply.startswith(("MOVED", "ASK"))
            if redirected or not isinstance(error, ENDS):
                watch.find(f"{order.verb} ends with {type(error).__name__}: {error}")


def _caller_of(order: Order) -> Any:
    kinds: dict[str, Any] = {
        "budget": Reserving,
        "limiter": Limited,
        "once": Running,
        "debounce": Debounced,
        "latch": Latched,
        "partition": Working,
    }
    return kinds.get(order.target.kind, Leased)


class _CancelledAt(Coroutine[Any, Any, None]):
    """Runs a coroutine, and cancels its task when its n-th await ends, before the coroutine continues."""

    def __init__(self, steps: Coroutine[Any, Any, None], number: int) -> None:
        self._steps = steps
        self._left = number

    def __await__(self) -> Any:
        return self._steps.__await__()

    def send(self, value: Any, /) -> Any:
        return self._count(self._steps.send(value))

    def throw(self, *error: Any) -> Any:
        return self._count(self._steps.throw(*error))

    def close(self) -> None:
        self._steps.close()

    def _count(self, awaited: Any) -> Any:
        self._left -= 1
        if self._left == 0 and awaited is not None:
            task = asyncio.current_task()
            awaited.add_done_callback(lambda _: task is not None and task.cancel())
        return awaited
