"""The callers of a limiter: each order is a task that is admitted, and may settle what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from handfast import Rate
from handfast._engine.limits import Limit
from handfast._protocol.limiting import LimitAttempt
from handfast.errors import HandfastError, QueueFull, RateLimited
from handfast_lab.checker.history import Kind, Outcome
from handfast_lab.simulator.client import ON_ATTEMPT, Client, leaves_nothing
from handfast_lab.simulator.limiter_watch import LimiterWatch
from handfast_lab.simulator.orders import Order
from handfast_lab.simulator.watch import Note
from handfast_lab.simulator.world import World

__all__ = ["Limited"]

_ENDS = RedisError, HandfastError, asyncio.CancelledError
"""Exceptions that an operation may raise. Any other is an error of the library."""


def _as_given(rates: Sequence[Limit]) -> list[Rate] | dict[str, list[Rate]]:
    """Return rates as callers give them: a list, or with metrics a mapping."""
    found = dict[str, list[Rate]]()
    for rate in rates:
        found.setdefault(rate.metric, []).append(Rate(rate.limit, rate.per_ms / 1000))
    return found.get("") or found


class Limited:
    """The execution of one order."""

    def __init__(self, world: World, watch: LimiterWatch, client: Client, order: Order) -> None:
        self._world = world
        self._watch = watch
        self._client = client
        self._order = order
        self._attempt: LimitAttempt | None = None
        self._note: Note

    async def run(self) -> None:
        """Do it."""
        order = self._order
        ON_ATTEMPT.set(self._begin)
        if order.verb in ("acquire", "try"):
            admission = await self._get()
            if admission is not None:
                await self._use(admission)
        elif order.verb == "close":
            self._client.closed = True
            await self._client.api.close()
        elif order.verb == "pause":
            await self._limiter().pause(order.hold, at_most=3.0)
            await asyncio.sleep(order.block)
            if order.block:
                await self._limiter().resume()
        elif order.verb == "resize":
            limiter = self._limiter(order.rates)
            await limiter.resize(_as_given(order.rates))
            await asyncio.sleep(order.block)
            if order.block:
                await limiter.resize(None)
        else:
            await self._limiter().status()

    def _limiter(self, rates: Sequence[Limit] = ()) -> Any:
        target, order = self._order.target, self._order
        given: Any = _as_given(rates or target.rates)
        timeout = order.timeout if order.in_scope else None
        return self._client.api.limiter(target.name, given, timeout=timeout, max_waiters=target.max_waiters)

    def _begin(self, attempt: LimitAttempt) -> None:
        """Record that the driver begins to ask; it sends no command before this returns."""
        order, token = self._order, attempt.token.decode()
        if self._world.log is not None:
            within = "" if order.timeout is None or order.verb == "try" else f" within {order.timeout:.3f} s"
            rates = ", ".join(f"{rate.limit}/{rate.window}ms" for rate in order.target.rates)
            cost = dict(order.target.costs) or order.target.weight
            words = f"{order.verb} {token} for {cost} of {order.target.name}, {rates}{within}"
            self._world.say(self._client.process.name, words)
        self._attempt = attempt
        self._watch.asks(attempt.token)
        self._client.tokens.append(attempt.token)
        kind: Kind = "acquire" if order.verb == "acquire" else "try_acquire"
        self._note = self._watch.note(self._client, kind, order.target, token)

    async def _get(self) -> Any:
        """Return the admission; None if it was refused."""
        order, client, watch, limiter = self._order, self._client, self._watch, self._limiter()
        cost: Any = dict(order.target.costs) or order.target.weight
        try:
            if order.verb == "try":
                admission = await limiter.try_acquire(cost=cost)
            elif order.in_scope and cost == 1:
                admission = await limiter.__aenter__()
            else:
                admission = await limiter.acquire(cost=cost, timeout=order.timeout, head_start=order.head_start)
        except _ENDS as error:
            if self._attempt is not None:
                token = self._attempt.token
                watch.ended(client, token, certain=leaves_nothing(self._attempt))
                known = isinstance(error, RateLimited | QueueFull | asyncio.CancelledError)
                outcome: Outcome = "timeout" if known and watch.fates[token] == "over" else "failed"
                watch.noted(self._note, outcome)
            raise
        assert self._attempt is not None  # noqa: S101 -- there is no admission without one
        if not admission:
            watch.ended(client, self._attempt.token, certain=leaves_nothing(self._attempt))
            watch.noted(self._note, "refused")
            return None
        watch.noted(self._note, "granted", counted=watch.admitted(self._attempt.token))
        return admission

    async def _use(self, admission: Any) -> None:
        """Settle the admission as often as the order says, as long as that works."""
        watch, order, attempt = self._watch, self._order, self._attempt
        assert attempt is not None  # noqa: S101 -- see above
        if order.block:
            await self._client.block(order.block)
        what = "tokens" if order.target.costs else "cost"
        for cost in order.settles:
            await asyncio.sleep(order.hold)
            note = watch.note(self._client, "settle", order.target._replace(weight=cost), attempt.token.decode())
            if cost == 0:
                watch.gives_up(attempt.token)
            try:
                await (admission.undo() if cost == 0 else admission.settle(**{what: cost}))
            except _ENDS:
                watch.noted(note, "failed")
                if cost == 0:
                    watch.drops(attempt.token)  # its caller knows that it may count
                raise
            watch.noted(note, "done")
            if cost == 0:
                watch.ended(self._client, attempt.token, certain=True)
                return
