"""What the callers of clients do, as their plans tell them, and what is noted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from redis.exceptions import RedisError

from handfast._engine.calls import PermitRequest
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.errors import AcquireTimeout, HandfastError, LimitExceeded, QueueFull
from handfast_lab.checker.history import Kind, Outcome
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.plans import Order
from handfast_lab.simulator.threads.client import ThreadClient
from handfast_lab.simulator.world import Cancelled, Steps, Task

if TYPE_CHECKING:
    from handfast_lab.simulator.simulation import Simulation

__all__ = ["Note", "carry_out"]


class Note(NamedTuple):
    """An operation that has begun."""

    client: Client
    kind: Kind
    order: Order
    lease: str
    invoked: float
    limit: int


def carry_out(simulation: Simulation, client: Client, orders: list[Order]) -> Steps[None]:
    """Do what one caller is told, one after the other."""
    world = simulation.world
    me = cast("Task", world.current)
    for order in orders:
        yield world.now + order.pause
        number = me.number = me.number + 1
        # A thread that is interrupted again while it cleans up leaves the rest to time; a task does not.
        me.fragile = 0 if isinstance(client, ThreadClient) and order.strike is not None else order.strike_at
        if order.strike is not None:
            world.at(world.now + order.strike, client.process.meet, _strike, me, number)
        try:
            yield from _Doing(simulation, client, order).steps()
        except (RedisError, HandfastError, Cancelled) as error:
            if world.log is not None:
                world.say(client.process.name, f"{order.verb} ends with {type(error).__name__}: {error}")
        me.number += 1
        me.fragile = 0
    simulation.leaves(client)


def _strike(task: Task, number: int) -> None:
    if task.number == number:
        task.strike(Cancelled())


class _Doing:
    """One order as it is carried out."""

    def __init__(self, simulation: Simulation, client: Client, order: Order) -> None:
        self._watch = simulation.watch
        self._world = simulation.world
        self._client = client
        self._order = order

    def steps(self) -> Steps[None]:
        """Do it."""
        order, client, watch = self._order, self._client, self._watch
        want = order.want
        if order.verb in ("acquire", "try"):
            holding = yield from self._get()
            if holding is not None:
                yield from self._have(holding)
            return
        permits = cast("PermitRequest", want)
        if order.verb == "close":
            yield from client.close()
        elif order.verb == "status":
            yield from client.ask(admin.status(permits), want.name)
        elif order.verb == "revoke":
            watch.revoked = True
            yield from self._plain("revoke", client.ask(admin.force_release(permits, "by order"), want.name))
        else:
            yield from self._plain("resize", client.ask(admin.resize(permits, order.limit), want.name), order.limit)

    def _get(self) -> Steps[LeaseState | None]:
        order, client, watch = self._order, self._client, self._watch
        attempt = client.attempt(order.want)
        token = attempt.token
        waits = order.verb == "acquire"
        if self._world.log is not None:
            within = "" if order.timeout is None or not waits else f" within {order.timeout:.3f} s"
            self._world.say(client.process.name, f"{order.verb} {token.decode()} of {order.want.name}{within}")
        watch.fates[token] = "asking"
        note = watch.note(client, "acquire" if waits else "try_acquire", order, token.decode())
        try:
            steps = client.acquire(attempt, order.timeout) if waits else client.try_acquire(attempt)
            holding = yield from steps
        except (RedisError, HandfastError, Cancelled) as error:
            watch.ended(client, token, certain=not attempt.pending)
            watch.left_alone(client, token)
            told = waits and isinstance(error, AcquireTimeout | Cancelled)
            outcome: Outcome = (
                "timeout" if told else "refused" if isinstance(error, QueueFull | LimitExceeded) else "failed"
            )
            watch.noted(note, outcome if watch.fates[token] == "over" else "failed")
            raise
        if holding is None:
            watch.ended(client, token, certain=not attempt.pending)
            watch.noted(note, "refused")
            return None
        if watch.fates[token] == "asking":
            watch.fates[token] = "held"
        watch.noted(note, "granted", holding)
        return holding

    def _have(self, holding: LeaseState) -> Steps[None]:
        order, client, world = self._order, self._client, self._world
        trouble: BaseException | None = None
        try:
            if order.extend_ms:
                yield world.now + order.hold / 2
                yield from client.extend(holding, order.extend_ms)
            if order.lower is not None:
                yield world.now + order.hold / 2
                yield from self._lower(holding, order.lower)
            yield world.now + order.hold
        except (RedisError, HandfastError, Cancelled) as error:
            trouble = error
        if order.end == "drop" and trouble is None:
            client.let_go(holding)
            self._watch.fates[holding.token] = "dropped"
            return
        yield from self._leave(holding, failed=trouble is not None or order.end == "fail")

    def _lower(self, holding: LeaseState, permits: PermitRequest) -> Steps[None]:
        watch, client = self._watch, self._client
        watch.lowers(holding, permits)
        note = watch.note(client, "lower", self._order._replace(want=permits), holding.token.decode())
        try:
            kept = yield from client.lower(holding, permits)
        except (RedisError, HandfastError, Cancelled):
            watch.noted(note, "failed", holding)
            raise
        # Whoever is told that it was lost may have learned so from its own clock: what the server did is unknown.
        watch.noted(note, "done" if kept else "failed", holding)

    def _leave(self, holding: LeaseState, *, failed: bool) -> Steps[None]:
        watch, client = self._watch, self._client
        watch.gives_up(holding)
        known = holding.lost(client.monotonic())
        note = watch.note(client, "release", self._order, holding.token.decode())
        try:
            released = yield from client.leave(holding, failed=failed)
        except (RedisError, HandfastError, Cancelled):
            watch.ended(client, holding.token, certain=False)
            watch.left_alone(client, holding.token)
            watch.noted(note, "failed", holding)
            raise
        outcome: Outcome = "released" if released else "lost"
        # At the end of a block that failed, and after a loss that was known, nobody waits until it is done.
        watch.ended(client, holding.token, certain=not failed and not known)
        watch.left_alone(client, holding.token)
        watch.noted(note, "failed" if failed or known else outcome, holding)

    def _plain(self, kind: Kind, steps: Steps[Any], limit: int = 1) -> Steps[None]:
        watch = self._watch
        note = watch.note(self._client, kind, self._order, "", limit)
        try:
            yield from steps
        except (RedisError, HandfastError, Cancelled):
            watch.noted(note, "failed")
            raise
        watch.noted(note, "done")
