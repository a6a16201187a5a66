"""Plans and oracle of latches: workers do parts, callers wait, and the oracle checks every reply and every return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from redis.exceptions import RedisError

from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast._protocol.acquire import BaseAttempt
from handfast.errors import HandfastError, WaitTimeout
from handfast_lab.simulator.client import ON_ATTEMPT, Client
from handfast_lab.simulator.drawing import Drawing
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import ClientPlan, Order, Plan, Target, tag
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import World

__all__ = ["LatchDrawing", "LatchWatch", "Latched"]

SLACK_S = 2.0
"""Seconds for which a caller may wait for an open latch without a fault: less than a poll."""

_ENDS = RedisError, HandfastError, asyncio.CancelledError
"""Exceptions that a call may raise. Any other exception is an error of the library."""


class LatchDrawing(Drawing):
    """Draws a plan for a latch or two."""

    def __init__(self, chance: Callable[[], float], setting: str) -> None:
        super().__init__(chance, setting)
        self.names = ("a", "b")[: 1 + (chance() < (0.5 if setting == "cluster" else 0.15))]
        self.count = self._one((1, 2, 3, 5))
        self.scale = self._one((0.01, 0.3, 3.0, 12.0))
        self.cancelling = self._one((0.0, 0.0, 0.3))
        self.forgetting = self._one((0.0, 0.0, 0.0, 0.15))

    def plan(self) -> Plan:
        chance = self._chance
        clients = [self._client() for _ in range(self._one((2, 2, 3, 4)))]
        kinds, rate = self._faults()
        return Plan(
            *("latch", self.names, tuple(tag("latch", name) for name in self.names), clients),
            *(self._one((0.0002, 0.001, 0.005, 0.03)), kinds, rate, self._one((1, 2, 3, 5, 10))),
            *(self._one((3.0, 15.0, 40.0)), chance() < 0.85),
            uniform=False,
            replicas=1 + (chance() < 0.4) if self.setting == "replicas" else 0,
            setting=self.setting,
            parts=("parts", "watchers"),
        )

    def _client(self) -> ClientPlan:
        chance = self._chance
        callers = [[self._order() for _ in range(self._one((1, 2, 3)))] for _ in range(self._one((1, 2, 3, 5)))]
        return ClientPlan(self._one((0.3, 1.0, 5.0)), 1e5 * chance(), self._one((0.0, 0.0, 0.1, 0.5)), callers)

    def _order(self) -> Order:
        chance = self._chance
        target = Target("latch", (self._one(self.names),), 0, False, "raise", limit=self.count)
        pause, cancels = self._seconds(self.scale), chance() < self.cancelling
        if chance() < 0.5:
            verb = "forget" if chance() < self.forgetting else "done"
            return Order(verb, target, pause, weight_of_parts(chance, self.count))
        return Order(
            "wait",
            *(target, pause, 0.001 + self._seconds(40.0)),
            cancel_after=self._seconds(self.scale) if cancels else None,
            cancel_at=1 + int(chance() * 4) if chance() < self.cancelling / 3 else 0,
        )


def weight_of_parts(chance: Callable[[], float], count: int) -> float:
    """Return the number of the part to do; it may be done already, or not be expected."""
    return float(int(chance() * (count + 1)))


class Latched:
    """The execution of an order."""

    def __init__(self, world: World, watch: LatchWatch, client: Client, order: Order) -> None:
        self._world, self._watch, self._client, self._order = world, watch, client, order
        self._attempt: BaseAttempt | None = None

    async def run(self) -> None:
        """Do it."""
        order, watch, target = self._order, self._watch, self._order.target
        latch = self._client.api.latch(target.name, target.limit)
        if order.verb == "done":
            await latch.done(f"p{order.timeout:.0f}")
            return
        if order.verb == "forget":
            await latch.forget()
            return
        ON_ATTEMPT.set(self._begin)
        asked_at = self._world.now
        try:
            await latch.wait(timeout=order.timeout)
        except WaitTimeout:
            watch.returned(target, asked_at, gave_up_at=asked_at + (order.timeout or 0))
        else:
            watch.returned(target, asked_at)
        finally:
            if self._attempt is not None:
                watch.fates[self._attempt.token] = "over"

    def _begin(self, attempt: BaseAttempt) -> None:
        self._attempt = attempt
        self._watch.asks(attempt.token)
        self._client.tokens.append(attempt.token)


class LatchWatch(Watch):
    """Checks the replies of scripts and the returns of callers against sets of parts."""

    def _begin(self, plan: Plan) -> Any:
        self._parts: dict[bytes, set[bytes]] = {one.encode(): set() for one in plan.tags}
        self._count = next(order.target.limit for one in plan.clients for orders in one.callers for order in orders)
        self._opened_at = dict.fromkeys(self._parts, inf)
        self._last_open = dict.fromkeys(self._parts, -inf)
        self._strayed_at = -inf
        self._is_plain = not plan.faults
        return {b"after": None, b"belief": None, b"present": lambda _: (), b"finish": lambda *_: None}

    def executed(self, command: Command, frame: object, now_us: int) -> None:  # noqa: ARG002 -- the network says it to all
        """Check a script after the server has run it, before the reply."""
        if not command.is_script:
            self.forget(None, torn=False)  # by a caller
            return
        place = command.words[0].rpartition(b":")[0]
        expected, there = set(self._parts[place]), self._look(place)
        if command.name == b"latch_done":
            expected |= {*command.words[command.key_count + 1 :]}
        self._note(place, there)
        if isinstance(frame, ErrorReply):
            if frame.startswith("ERR") and not is_torn(frame):
                self.find(f"script: {command.name.decode()}: {frame}")
            elif frame.startswith("OOM") and len(there) >= self._count and expected <= there:
                self.find(
                    f"invariant 11: {command.name.decode()} of an open latch without a new part is refused at maxmemory"
                )
            return
        reply, *numbers = read_reply(frame)
        if there != expected and not self.damage.jumped_forward:
            self.find(f"invariant 38: {place.decode()} has {len(there)} parts, and {len(expected)} were done")
        left = max(0, self._count - len(there))
        if command.name == b"latch_done" and numbers[0] != left:
            self.find(f"invariant 38: {place.decode()} has {left} left, and the reply says {numbers[0]}")
        if command.name == b"latch_watch" and (reply == b"open") != (left == 0):
            self.find(f"invariant 36: {place.decode()} is answered {reply.decode()}, and {left} are left")

    def strayed(self, command: Command, messages: Sequence[bytes]) -> None:
        """Note an answer of a former primary, which may still take a latch for open."""
        super().strayed(command, messages)
        self._strayed_at = self._world.now

    def _look(self, place: bytes) -> set[bytes]:
        found = self._network.server.model[b"peek"](place + b":parts", self._network.now_us())
        return set() if found is None else {*found.scores.keys()}

    def _note(self, place: bytes, there: set[bytes]) -> None:
        """Record the parts done, and from when until when the latch was open."""
        if len(self._parts[place]) >= self._count:
            self._last_open[place] = self._world.now
        self._parts[place] = there
        if len(there) < self._count:
            self._opened_at[place] = inf
        else:
            self._opened_at[place] = min(self._opened_at[place], self._world.now)
            self._last_open[place] = self._world.now

    def returned(self, target: Target, asked_at: float, *, gave_up_at: float = inf) -> None:
        """Check a return: the latch was open during the wait, or still closed when the caller gave up."""
        now, place = self._world.now, target.tags[0]
        self._note(place, self._look(place))
        opened_at = self._opened_at[place]
        is_open = gave_up_at == inf
        if max(opened_at, self._strayed_at) < gave_up_at < inf:
            self.find(
                f"invariant 37: a wait for {target.name} gives up {gave_up_at - opened_at:.3f} s after it was open"
            )
        if is_open and max(self._last_open[place], self._strayed_at) < asked_at:
            self.find(f"invariant 36: a wait for {target.name} returns, and it was not open meanwhile")
        if self._is_plain and now > max(asked_at, opened_at) + SLACK_S:
            self.find(f"invariant 37: a wait for {target.name} returns {now - opened_at:.3f} s after it was open")

    def forget(self, tag: str | None, *, torn: bool) -> None:  # noqa: ARG002 -- all are looked at
        """Record a loss of data, of a name or of all."""
        for place in self._parts:
            self._note(place, self._look(place))

    def forget_fences(self) -> None:
        """Do nothing: a latch has no fence."""

    def forget_finished(self) -> None:
        """Record a jump of the server's clock: parts may have expired."""
        self.forget(None, torn=False)

    def check_acknowledged(self) -> None:
        """Do nothing: no call waits for replicas."""

    def check_remains(self) -> None:
        """Do nothing: the server forgets calls in time."""

    def check_all_expired(self) -> None:
        """Check that all keys left have a TTL."""
        for key in (place + part for place in self._parts for part in (b":parts", b":watchers")):
            found = self._network.server.model[b"peek"](key, self._network.now_us())
            if found is not None and not found.expires:
                self.find(f"invariant 5: {key.decode()} has no TTL")

    def idle(self) -> list[tuple[str, bytes]]:
        """Return nothing: each call asks by itself."""
        return []
