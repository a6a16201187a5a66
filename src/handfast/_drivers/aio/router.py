"""The sessions of one client in a cluster, on one event loop: a session for each primary in use.

A router stands where a single server has its session. It sends each call to the primary of the call's slot. If that
node names another node for the slot, the router sends the call there, so callers never see a redirection. Grants reach
a waiter through the session that replied to it last.

Waiters whose slot has moved ask again at the new primary: the old primary hears of no grant there. A `Lookout` finds
out for all routers of the client which primary has which slot.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.lookout import Lookout
from handfast._drivers.aio.pending import Outcome, PendingCall
from handfast._drivers.aio.session import Session
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import server_silent
from handfast._engine.effects import Answer, Call, Park, Waking
from handfast._engine.messages import Told
from handfast._engine.resp import ErrorReply
from handfast._engine.slots import UNSERVED, Node, read_redirection, slot_of_call
from handfast._protocol.retry import pause_before

__all__ = ["Router"]

DIRECT = 3
"""A call follows that many redirections without a pause. Two nodes may name each other while a slot changes hands."""

MOST = 8
"""And no more than so many."""


class Router:
    """Stands in for a `Session`. ``make`` makes the session of a node."""

    def __init__(
        self,
        connector: AsyncConnector,
        lookout: Lookout,
        make: Callable[[AsyncConnector], Session],
        retry_for: float,
    ) -> None:
        self._connector = connector
        self._lookout = lookout
        self._chart = lookout.chart
        self._make = make
        self.retry_for = retry_for
        self._loop = asyncio.get_running_loop()
        self.on_told: Callable[[bytes, Told], object] = lambda _token, _told: None
        self.on_break: Callable[[Exception], object] = lambda _error: None
        self.on_unreachable: Callable[[Exception], object] = lambda _error: None
        self._sessions: dict[Node, Session] = {}
        self._waiting: dict[bytes, int | None] = {}
        """The slot of each token that may wait for a grant."""
        self._held: list[PendingCall] = []
        """What is for a slot that no primary is known for."""
        self._ended: Exception | None = None
        self._refusal: Exception | None = None
        """What all that wait get from now on."""
        self._breaks = 0
        """How many connections broke of sessions that are gone."""
        lookout.routers.append(self)

    @property
    def trouble(self) -> Exception | None:
        """Why no node answers; None if a node answered when the nodes were last asked."""
        return self._lookout.trouble

    @property
    def breaks(self) -> int:
        """How many connections broke so far."""
        return self._breaks + sum(session.breaks for session in self._sessions.values())

    @property
    def is_idle(self) -> bool:
        """Whether no task waits for a reply or a grant."""
        return not self._held and all(session.is_idle for session in self._sessions.values())

    def send(
        self, call: Call, retry_for: float | None = None, on_answer: Callable[[Answer], object] | None = None
    ) -> Future[Outcome]:
        """Send a call to the primary of the call's slot, as `Session.send` does."""
        slot = slot_of_call(call)
        node = self._chart.node_of(slot)
        if node is not None and self._ended is None:
            session = self.session_at(node)
            if call.waiter:
                self._await_grant_from(session, call.waiter, slot)
            return session.send(call, retry_for, on_answer)
        future: Future[Outcome] = self._loop.create_future()
        request = PendingCall(call, future, self.retry_for if retry_for is None else retry_for, on_answer)
        self._route(request)
        return future

    def park(self, park: Park) -> Coroutine[Any, Any, Waking]:
        """Wait for the grant message, at the primary whose queue has the token."""
        session, slot = self._session_of(park.token), self._waiting.get(park.token)
        if session is None:
            return _wake_at_once()
        if slot is not None:
            session.use_shard(slot)
        return session.park(park)

    def forget(self, token: bytes) -> Told | None:
        """Drop messages for this token from now on. Return the message that came for the holder meanwhile, if any."""
        self._waiting.pop(token, None)
        session = self._session_of(token)
        return None if session is None else session.forget(token)

    def note_told(self, token: bytes, told: Told) -> None:
        """Keep a message for a holder that has not seen the grant yet."""
        session = self._session_of(token)
        if session is not None:
            session.note_told(token, told)

    def fail_waiters(self, error: Exception) -> None:
        """Fail all tasks waiting for a grant, now and later."""
        self._refusal = error
        for session in self._sessions.values():
            session.fail_waiters(error)

    def receive(self) -> None:
        """Deliver the bytes that arrived while the loop was blocked."""
        for session in list(self._sessions.values()):
            session.receive()

    def reconnect(self, _breaks: int | None = None) -> bool:
        """Ask the nodes which primaries there are. Return False: this closes no connection."""
        self._lookout.ask()
        return False

    def make_room(self, call: Call) -> None:
        """Shut the connection down to the primary of this call, from any thread."""
        node = self._chart.node_of(slot_of_call(call))
        if (session := None if node is None else self._sessions.get(node)) is not None:
            session.make_room(call)

    def end(self, error: Exception) -> None:
        """Close the connections for good. Pending requests and waiters fail with the error."""
        self._ended = error
        self._lookout.end()
        for session in self._sessions.values():
            session.end(error)
        self.fail_held()

    def close_after_loop(self) -> None:
        """Close the connections of a closed event loop."""
        for session in self._sessions.values():
            session.close_after_loop()

    def abandon(self) -> None:
        """Drop the connections in a forked child: they are the parent's."""
        for session in self._sessions.values():
            session.abandon()

    # --- where a call goes

    def _session_of(self, token: bytes) -> Session | None:
        """Return the session through which a grant for a token comes, if any."""
        return next((session for session in self._sessions.values() if token in session.inbox), None)

    def _await_grant_from(self, session: Session, token: bytes, slot: int | None) -> None:
        if token in self._waiting:
            for other in self._sessions.values():
                if other is not session:
                    other.forget(token)
        self._waiting[token] = slot

    def _route(self, request: PendingCall) -> None:
        """Send a request to the primary of the call's slot, or keep it until there is a primary."""
        slot = slot_of_call(request.call)
        node = self._chart.node_of(slot)
        request.asking = False
        if request.future.done():
            return
        if self._ended is not None:
            request.fail(self._ended)
        elif node is None:
            request.give_up_at = min(request.give_up_at, monotonic() + request.retry_for)
            self._held.append(request)
            self._lookout.ask()
        else:
            self._send_to(node, request)

    def _send_to(self, node: Node, request: PendingCall) -> None:
        session = self.session_at(node)
        if request.call.waiter:
            self._await_grant_from(session, request.call.waiter, slot_of_call(request.call))
        session.adopt(request)

    # --- called by the sessions

    def _on_told(self, token: bytes, told: Told) -> None:
        self.on_told(token, told)

    def _on_break(self, error: Exception) -> None:
        self.on_break(error)
        self._lookout.ask()

    def _on_unreachable(self, error: Exception) -> None:
        self.on_unreachable(error)
        if self.is_stuck:  # else only the lookout itself has asked there
            self._lookout.ask()

    def _on_slot_left(self, session: Session, slot: int) -> None:
        """Have the waiters in a slot that a node no longer has ask again."""
        for token, its_slot in self._waiting.items():
            if its_slot == slot and token in session.inbox:
                session.inbox.wake(token)
        self._lookout.ask()

    def _on_refused(self, asked: Node, request: PendingCall, reply: ErrorReply) -> bool:
        """Follow a redirection."""
        redirection = read_redirection(reply)
        if redirection is None or self._ended is not None:
            return False
        request.redirections += 1
        request.give_up_at = min(request.give_up_at, monotonic() + request.retry_for)
        pause = pause_before(request.redirections - DIRECT) if request.redirections > DIRECT else 0.0
        if request.redirections >= MOST:
            request.future.set_result(UNSERVED)
            return True
        try:
            node = self._chart.follow(redirection, asked)
        except Exception as error:  # noqa: BLE001 -- by the remap of the user's
            request.fail(error)
            return True
        if node is None:
            pause = pause or pause_before(1)
        elif redirection.for_once:
            request.asking = True
            self._send_to(node, request)
            return True
        if pause:
            self._loop.call_later(pause, self._route, request)
        else:
            self._route(request)
        self._rouse(redirection.slot)
        self._lookout.ask()
        return True

    # --- called by the lookout

    @property
    def is_stuck(self) -> bool:
        """Whether a call waits for a primary which is not known, or can't be reached."""
        return bool(self._held) or any(session.is_stuck for session in self._sessions.values())

    def is_broken(self, node: Node) -> bool:
        """Return whether the connection to a node could not be opened."""
        session = self._sessions.get(node)
        return session is not None and session.trouble is not None

    def session_at(self, node: Node) -> Session:
        """Return the session of a node, which is not open yet if it is new."""
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = self._make(self._connector.at(node))
            session.slot_of = slot_of_call
            session.on_told = self._on_told
            session.on_break = self._on_break
            session.on_unreachable = self._on_unreachable
            session.on_refused = partial(self._on_refused, node)
            session.on_slot_left = partial(self._on_slot_left, session)
            if self._refusal is not None:
                session.fail_waiters(self._refusal)
        return session

    def follow(self) -> None:
        """Send the requests for former primaries to the present primaries."""
        self._rouse()
        requests, self._held = self._held, []
        for session in self._sessions.values():
            requests += session.withdraw()
        for request in requests:
            if self._chart.node_of(slot_of_call(request.call)) is not None:
                self._route(request)
            elif not request.future.done():
                request.future.set_result(UNSERVED)
        primaries = set(self._chart.primaries())
        for node in [node for node, session in self._sessions.items() if session.is_idle and node not in primaries]:
            session = self._sessions.pop(node)
            self._breaks += session.breaks
            session.end(server_silent())

    def _rouse(self, slot: int | None = None) -> None:
        """Wake the waiters whose slot has moved, or those of this slot."""
        for token, its_slot in self._waiting.items():
            if slot is None or slot == its_slot:
                session, node = self._session_of(token), self._chart.node_of(its_slot)
                if session is not None and (node is None or session is not self._sessions.get(node)):
                    session.inbox.wake(token)

    def fail_held(self) -> None:
        """Fail the requests for which no primary was found in time, or all if no node will name a primary."""
        error = self._ended or self.trouble or server_silent()
        is_over = self._ended is not None or (self.trouble is not None and not self._may_recover(self.trouble))
        requests, self._held, now = self._held, [], monotonic()
        for request in requests:
            if is_over or request.give_up_at <= now:
                if not request.future.done():
                    request.fail(error)
            else:
                self._held.append(request)

    def _may_recover(self, error: Exception) -> bool:
        return isinstance(error, RedisConnectionError | RedisTimeoutError) and self._connector.reached


async def _wake_at_once() -> Waking:
    return Waking(monotonic(), None)
