"""The sessions of one thread at a time in a cluster: a session for each primary in use.

A routed session stands where a single server has its `Session`. It sends each call to the primary of the call's slot.
If that node names another node for the slot, the call goes there, so callers never see a redirection. The thread waits
where the last call went.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.routes import Routes
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.shared import Seat
from handfast._engine.effects import Answer, Call, Park, Waking
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover
from handfast._engine.slots import UNSERVED, Node, read_redirection, slot_of_call
from handfast._protocol.retry import pause_before

__all__ = ["RoutedSession"]

DIRECT = 3
"""A call follows that many redirections without a pause. Two nodes may name each other while a slot changes hands."""

MOST = 8
"""And no more than so many."""


class RoutedSession:
    """Stands in for a `Session`.

    ``make`` makes the session of a node, or a seat at the connection that threads share there.
    """

    def __init__(
        self, routes: Routes, make: Callable[[SyncConnector], Session | Seat], *, is_seat: bool = False
    ) -> None:
        self.is_seat = is_seat
        """Whether it is lent only once."""
        self._routes = routes
        self._make = make
        self._sessions: dict[Node, Session | Seat] = {}
        self._current: Session | Seat | None = None
        self._slot: int | None = None
        """That of the last call which had one. A call without goes to its primary, too."""
        self._may_park = True
        self._learned = 0
        """``routes.learned`` when the sessions of former primaries were closed."""
        self.idle_since = 0.0
        """When its thread gave it back, if none uses it."""

    @property
    def is_open(self) -> bool:
        """Whether the session used last is open."""
        return self._current is not None and self._current.is_open

    def aim(self, call: Call) -> None:
        """Make the likely session for a call the current session."""
        self._slot = slot_of_call(call)
        self._current = self._session_at(self._routes.likely_node(self._slot))

    def call(self, call: Call, within: float) -> Answer | ErrorReply:
        """Run a script at the primary of the call's slot, and wait ``within`` seconds for the reply.

        An error reply is returned, an error of the network raised.
        """
        until, slot, asking = monotonic() + within, slot_of_call(call), False
        if slot is not None:
            self._slot = slot
        node = self._routes.node_of(self._slot, within)
        # A session of a former primary would stay open without
        # use. A number tells at each call whether there is any.
        if self._learned != self._routes.learned:
            self._close_former()
        # The call may go anywhere. The slot of the last call
        # was only a preference, and no primary has it now.
        if node is None and slot is None:
            node = self._routes.node_of(None, until - monotonic())
        outcome: Answer | ErrorReply = UNSERVED
        for redirections in range(MOST):
            if node is None:
                break
            self._current = session = self._session_at(node)
            within = until - monotonic()
            try:
                outcome = session.call_asking(call, within) if asking else session.call(call, within)
            except (RedisConnectionError, RedisTimeoutError):
                # The node may be down and its slots with a replica by now, which the other nodes tell.
                self._routes.doubt()
                raise
            if not isinstance(outcome, ErrorReply) or (redirection := read_redirection(outcome)) is None:
                break
            node, asking = self._routes.follow(redirection, node), redirection.for_once
            if node is None:
                node, asking = self._routes.node_of(redirection.slot, until - monotonic()), False
            # Two nodes that name each other need a moment to agree, and would be asked in a loop meanwhile.
            if redirections >= DIRECT:
                time.sleep(max(0.0, min(pause_before(redirections - DIRECT), until - monotonic())))
        else:
            # Too many redirections are no answer for the caller. A slot without a primary is tried again.
            outcome = UNSERVED
        if isinstance(outcome, ErrorReply) and is_failover(outcome):
            self._routes.doubt()
        return outcome

    def park(self, park: Park) -> Waking:
        """Wait for the grant message where the last call went."""
        if self._current is None:
            return Waking(monotonic(), None)
        if self._slot is not None:
            self._current.use_shard(self._slot)
        waking = self._current.park(park)
        if waking.confirmation is not None:
            waking.confirmation.pending = self
        return waking

    def listen(self, seconds: float = 0) -> None:
        """Take the arrived replies to confirmations."""
        for session in list(self._sessions.values()):
            if session.is_open:
                session.listen(seconds)

    def end_waits(self) -> None:
        """Make `park` return at once, now and later, from another thread."""
        self._may_park = False
        for session in list(self._sessions.values()):
            session.end_waits()

    def hang_up(self) -> None:
        """End the connections, from another thread."""
        for session in list(self._sessions.values()):
            session.hang_up()

    def close(self) -> None:
        """Close the connections, whatever state they are in."""
        for session in list(self._sessions.values()):
            session.close()

    def _close_former(self) -> None:
        """Close the sessions of nodes that are no longer primaries."""
        self._learned = self._routes.learned
        for node in self._sessions.keys() - self._routes.primaries():
            self._sessions.pop(node).close()

    def _session_at(self, node: Node) -> Session | Seat:
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = self._make(self._routes.connector_to(node))
            if not self._may_park:  # `end_waits` may have missed it
                session.end_waits()
        return session
