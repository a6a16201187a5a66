"""The keeper of a client of the sync colour; what _drivers/sync/renewer.py is."""

from __future__ import annotations

import math
from math import inf
from typing import Any, cast

from redis.exceptions import RedisError

from handfast._drivers.sync.renewer import TICK
from handfast._drivers.timeouts import CLEANUP_FOR, PAUSES, UNDO_WAIT
from handfast._engine.effects import Call
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_noscript, is_transient
from handfast._protocol.lease import LeaseState
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.threads.session import Session
from handfast_lab.simulator.world import Steps, Task

__all__ = ["Renewer"]


class Renewer:
    """Renews what is in the ledger, and runs errands."""

    def __init__(self, client: Client, session: Session) -> None:
        self._client = client
        self._session = session
        self._sources = False
        self._wakes_at = inf
        self._stopping = False
        self._task = cast("Task", None)
        self._rung = False
        self._sleeps = False
        self._slept_at = 0.0
        self.errands: list[tuple[Call, float]] = []

    def watch(self, holding: LeaseState) -> None:
        """Keep this lease from now on."""
        self._client.ledger.add(holding)
        if holding.due_at < self._next_look():
            self._nudge()
        else:
            self.tick()

    def tick(self) -> None:
        """The real one looks at the ledger every tick; here only those are looks that may find something new."""
        if self._sleeps:
            moment = self._next_look() - self._client.process.offset
            if moment < inf:
                self._client.world.at(moment, self._client.process.meet, self._awake, self._task.turn)

    def _next_look(self) -> float:
        """When the real one would look next by itself."""
        if not self._sleeps or self._wakes_at == inf:
            return self._wakes_at
        return self._slept_at + math.ceil((self._client.monotonic() - self._slept_at) / TICK) * TICK

    def _awake(self, turn: int) -> None:
        if self._sleeps and self._task.turn == turn:
            self._sleeps = False
            self._task.wake(turn, None)

    def clean_up_later(self, call: Call) -> None:
        """Send this as soon as the server can be reached."""
        self.errands.append((call, self._client.monotonic() + CLEANUP_FOR))
        self._nudge()

    def stop(self) -> None:
        """End; leases run out by themselves."""
        self._stopping = True
        self._nudge()

    def _nudge(self) -> None:
        if self._task is None and not self._stopping:
            self._task = self._client.process.begin(self._go_on())
            return
        self._rung = True
        if self._sleeps:
            world = self._client.world
            world.at(world.now, self._client.process.meet, self._awake, self._task.turn)

    def _go_on(self) -> Steps[None]:
        while not self._stopping:
            yield from self._sleep()
            yield from self._look()
        yield from self._finish_errands()
        self._session.close()

    def _sleep(self) -> Steps[None]:
        client, now = self._client, self._client.monotonic()
        busy = bool(client.ledger) or bool(self.errands)
        lazy = self._wakes_at != inf and not busy
        self._wakes_at = inf if lazy else now + TICK
        due = client.ledger.next_due()
        if due is not None:
            self._wakes_at = min(due, now + TICK)
        if not self._rung and self._wakes_at > now:
            self._sleeps, self._slept_at = True, now
            if self._session.is_open:
                self._session.nudge_on_ring(self._task)
            until = self._wakes_at
            if due is not None and due > until and not self.errands and self._session.is_open:
                until = due  # no look before that would find anything to do
            yield client.world.now + (until - now)
        self._sleeps = self._rung = False
        if self._session.is_broken:
            self._session.close()

    def _look(self) -> Steps[None]:
        client = self._client
        for holding in client.ledger.over(client.monotonic()):
            client.announce(holding)
        if (client.ledger or self.errands) and not self._session.is_open:
            try:
                yield from self._session.open(self._patience())
                for holding in client.ledger.all():
                    if holding.permits.renew:
                        holding.due_at = client.monotonic()
            except RedisError:
                pass
        if not self._session.is_open:
            client.ledger.due(client.monotonic())
            self.errands = [errand for errand in self.errands if client.monotonic() < errand[1]]
            return
        try:
            yield from self._renew()
            if self.errands and self._session.is_open:
                yield from self._do_errands()
        except RedisError:
            pass

    def _renew(self) -> Steps[None]:
        client = self._client
        due = client.ledger.due(client.monotonic())
        if due:
            within = self._patience()
            calls = [holding.permits.renew_for(holding.token, holding.permits.ttl_ms) for holding in due]
            sent_at = self._session.send(calls, sources=self._sources)
            self._settle(due, sent_at, (yield from self._session.replies(len(due), within)))

    def _settle(self, due: list[LeaseState], sent_at: float, replies: list[Any]) -> None:
        client = self._client
        self._sources = False
        for holding, reply in zip(due, replies, strict=True):
            if isinstance(reply, ErrorReply):
                if is_noscript(reply):
                    self._sources, holding.due_at = True, client.monotonic()
                    continue
                if is_transient(reply):
                    self._session.close()
            elif reply[0] == b"renewed":
                holding.renewed(sent_at, reply[1])
                if client.ledger.find(holding.token) is holding:
                    client.watcher.believes(client, holding)
            elif client.ledger.find(holding.token) is holding:
                client.lose(holding, "the server no longer had it when it was to be renewed")

    def _do_errands(self) -> Steps[None]:
        errands = list(self.errands)
        replies = yield from self._ask([call for call, _ in errands], sources=False)
        unknown = [place for place, reply in enumerate(replies) if isinstance(reply, ErrorReply) and is_noscript(reply)]
        if unknown:
            whole = yield from self._ask([errands[place][0] for place in unknown], sources=True)
            for place, reply in zip(unknown, whole, strict=True):
                replies[place] = reply
        for errand, reply in zip(errands, replies, strict=True):
            goes_on = isinstance(reply, ErrorReply) or (reply[0] != b"lost" and reply[1])
            if not goes_on or self._client.monotonic() >= errand[1]:
                self.errands.remove(errand)

    def _finish_errands(self) -> Steps[None]:
        client = self._client
        until = client.monotonic() + UNDO_WAIT
        while self.errands and client.monotonic() < until:
            try:
                if not self._session.is_open:
                    yield from self._session.open(until - client.monotonic())
                yield from self._do_errands()
            except RedisError:
                pass
            if self.errands:
                yield client.world.now + PAUSES[1]

    def _ask(self, calls: list[Call], *, sources: bool) -> Steps[list[Any]]:
        within = self._patience()
        self._session.send(calls, sources=sources)
        return (yield from self._session.replies(len(calls), within))

    def _patience(self) -> float:
        holdings = self._client.ledger.all()
        ends = min((holding.deadline for holding in holdings if holding.permits.renew), default=inf)
        return min(self._client.response_timeout, ends - self._client.monotonic())
