"""The callers of a debounced name: each order is a task that waits until it is quiet."""

from __future__ import annotations

import asyncio

from redis.exceptions import RedisError

from handfast._api.aio.debounce import AsyncDebounce
from handfast._protocol.asking import ObjectAttempt
from handfast.errors import HandfastError
from handfast_lab.simulator.burst_watch import BurstWatch
from handfast_lab.simulator.client import ON_ATTEMPT, Client, leaves_nothing
from handfast_lab.simulator.orders import Order
from handfast_lab.simulator.world import World

__all__ = ["Debounced"]

_ENDS = RedisError, HandfastError, asyncio.CancelledError
"""Exceptions that a call may raise. Any other is an error of the library."""


class Debounced:
    """The execution of one order."""

    def __init__(self, world: World, watch: BurstWatch, client: Client, order: Order) -> None:
        self._world = world
        self._watch = watch
        self._client = client
        self._order = order
        self._attempt: ObjectAttempt | None = None
        self._has_reply = self._has_failed = False

    async def run(self) -> None:
        """Do it."""
        order, client, watch = self._order, self._client, self._watch
        if order.verb == "close":
            client.closed = True
            await client.api.close()
            return
        ON_ATTEMPT.set(self._begin)
        debounce = client.api.debounce(order.target.name, order.hold, at_most=order.timeout)
        try:
            if order.verb == "collect":
                await self._collect(debounce)
            else:
                self._told(runs=await debounce.wait())
        except _ENDS:
            if self._attempt is not None and not self._has_reply:
                watch.ended(client, self._attempt.token, certain=leaves_nothing(self._attempt))
            if not self._has_failed:
                raise
        finally:
            if self._attempt is not None and self._has_reply:
                watch.returned(self._attempt.token)

    async def _collect(self, debounce: AsyncDebounce) -> None:
        order, item = self._order, self._watch.items.make()
        async with debounce.collect(item, within=order.grace, max_items=order.limit, dumps=bytes) as items:
            self._told(runs=bool(items))
            assert self._attempt is not None  # noqa: S101 -- nothing is returned without one
            self._watch.items.given_to(self._attempt.token, item, items)
            await asyncio.sleep(order.block)
            if order.end == "fail":
                self._has_failed = True
                self._watch.items.failed.add(self._attempt.token)
                raise HandfastError("as planned", name=order.target.name)

    def _told(self, *, runs: bool) -> None:
        """Record that the caller knows whether it is to run."""
        assert self._attempt is not None  # noqa: S101 -- nothing is returned without one
        self._has_reply = True
        self._watch.told(self._attempt.token, runs=runs, quiet=self._order.hold)
        if self._world.log is not None:
            words = f"{self._attempt.token.decode()} {'runs' if runs else 'is superseded'}"
            self._world.say(self._client.process.name, words)

    def _begin(self, attempt: ObjectAttempt) -> None:
        """Record that the driver begins to ask; it sends no command before this returns."""
        self._attempt = attempt
        self._watch.asks(attempt.token)
        self._client.tokens.append(attempt.token)
        if self._world.log is not None:
            words = f"waits as {attempt.token.decode()} until {self._order.target.name} is quiet"
            self._world.say(self._client.process.name, words)
