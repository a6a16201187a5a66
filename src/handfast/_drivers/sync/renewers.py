"""Renewal in a cluster: a renewal thread for each primary that has leases of the client.

So a primary that does not answer keeps no lease of another primary from being renewed. A lease whose slot has moved
goes over to the thread of the new primary, and so does a cleanup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from redis.exceptions import RedisError

from handfast._drivers.clock import monotonic
from handfast._drivers.events import Events
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.renewer import Renewer
from handfast._drivers.sync.routed import RoutedSession
from handfast._drivers.sync.routes import Routes
from handfast._drivers.sync.session import Session
from handfast._engine.effects import Call, Steps
from handfast._engine.messages import Told
from handfast._engine.resp import ErrorReply
from handfast._engine.slots import Node, read_redirection, slot_of_call
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast._protocol.loss import Loss
from handfast._protocol.retry import CLEANUP_FOR, UNDO_WAIT, Cleanup
from handfast.errors import HandfastError

__all__ = ["Renewers"]

PAUSE_S = 0.02
"""A renewal that was sent elsewhere is tried there after so many seconds: two nodes may name each other while a slot
changes hands."""


class NodeTable(LeaseTable):
    """The leases of one primary.

    Leases no longer in the client's table, or not in this table, are not renewed here.
    """

    __slots__ = ("_whole",)

    def __init__(self, whole: LeaseTable) -> None:
        super().__init__()
        self._whole = whole

    def all(self) -> list[LeaseState]:
        """Return a copy, and drop the leases that others have taken out of the client's table."""
        leases = super().all()
        for gone in [lease for lease in leases if self._whole.get(lease.token) is not lease]:
            leases.remove(gone)
            self.leave(gone)
        return leases

    def pop(self, token: bytes, default: LeaseState | None = None) -> LeaseState | None:  # type: ignore[override]
        """Take a lease out of the client's table."""
        super().pop(token, None)
        return self._whole.pop(token, default)

    def leave(self, lease: LeaseState) -> None:
        """Take a lease out of this table alone."""
        super().pop(lease.token, None)


class Replies:
    """The part of the pool needed by a renewal thread: the replies, not the sessions, which lead to all primaries."""

    def __init__(self, pool: Pool[RoutedSession]) -> None:
        self.receive = pool.receive

    def take_open(self) -> None:
        """Lend nothing."""

    def give(self, session: Session) -> None:
        """Never called."""


class Renewers:
    """Stands in for a `Renewer`. ``make_session`` makes the session of a node that listens to the control channel."""

    def __init__(
        self,
        routes: Routes,
        make_session: Callable[[SyncConnector, Callable[[bytes, Told], object]], Session],
        pool: Pool[RoutedSession],
        leases: LeaseTable,
        events: Events,
    ) -> None:
        self._routes = routes
        self._events = events
        self._make_session = make_session
        self._pool = pool
        self._leases = leases
        self._renewers: dict[Node, Renewer] = {}
        self._tables: dict[Renewer, NodeTable] = {}
        self._stopping = False

    def add(self, lease: LeaseState) -> None:
        """Renew this lease from now on."""
        self._leases[lease.token] = lease
        self._give(lease, self._node_of(lease.renewal))

    def remove(self, lease: LeaseState) -> None:
        """Stop renewing this lease. When this returns, no renewal is sent for it again."""
        self._leases.pop(lease.token, None)
        for renewer in list(self._renewers.values()):
            renewer.remove(lease)

    def lose(self, lease: LeaseState, loss: Loss) -> None:
        """Note the loss of a lease."""
        self._at(self._node_of(lease.renewal)).lose(lease, loss)
        self._leases.pop(lease.token, None)

    def clean_up(self, steps: Steps[object]) -> None:
        """Perform an undo as soon as the server of its call can be reached."""
        cleanup = Cleanup(steps, monotonic() + CLEANUP_FOR)
        if cleanup.call is not None:
            self._give(cleanup, self._node_of(cleanup.call))

    def stop(self, *, gives_up: bool = False) -> list[LeaseState]:
        """End the threads and their sessions. The leases run out, or are given up: released, and returned."""
        self._stopping = True
        begun = {one: one.begin_to_stop(gives_up=gives_up) for one in list(self._renewers.values())}
        return [lease for renewer, releases in begun.items() for lease in renewer.wait_for_end(releases)]

    def abandon(self) -> None:
        """Drop everything in a forked child, which does not have the threads."""
        for renewer in list(self._renewers.values()):
            renewer.abandon()

    def _node_of(self, call: Call) -> Node:
        """Return the primary of a call, as far as is known."""
        return self._routes.likely_node(slot_of_call(call))

    def _give(self, one: LeaseState | Cleanup, node: Node) -> None:
        """Have the thread of a primary renew a lease or finish a cleanup."""
        while True:
            renewer = self._at(node)
            if isinstance(one, Cleanup):
                renewer.take_over(one)
            else:
                renewer.add(one)
            # `_end_former` takes a thread out before it looks for work there; this does it the other way round. One of
            # the two always sees the other.
            if self._renewers.get(node) is renewer:
                break
            if isinstance(one, Cleanup):
                renewer.drop(one)

    def _at(self, node: Node) -> Renewer:
        found = self._renewers.get(node)
        if found is None:
            table = NodeTable(self._leases)
            make = partial(self._make_session, self._routes.connector_to(node))
            made = Renewer(make, Replies(self._pool), table, self._routes.response_timeout, self._events)
            made.on_refused = partial(self._on_refused, node)
            made.on_failure = partial(self._on_failure, node)
            self._tables[made] = table
            found = self._renewers.setdefault(node, made)
            if found is not made:  # another thread was faster
                del self._tables[made]
                made.abandon()
            elif self._stopping:  # `stop` may have missed it
                made.stop()
            else:
                self._end_former(node)
        return found

    def _end_former(self, new: Node) -> None:
        """End the threads of former primaries that have nothing left to do."""
        for node in self._renewers.keys() - {new, *self._routes.primaries()}:
            former = self._renewers.get(node)
            if former is None or former.work() or self._renewers.pop(node, None) is None:
                continue
            if former.work():
                self._renewers.setdefault(node, former)
            else:
                self._tables.pop(former, None)
                former.begin_to_stop()

    def _on_refused(self, node: Node, one: LeaseState | Cleanup, reply: ErrorReply) -> bool:
        """Follow a redirection of a renewal or of a cleanup."""
        redirection = read_redirection(reply)
        if redirection is None:
            return False
        target = self._routes.follow(redirection, node)
        if target is None or redirection.for_once or self._stopping:
            self._try_once(node, one)
        else:
            self._move(one, node, target)
        return True

    def _on_failure(self, node: Node) -> None:
        """Look whether there are other primaries for the leases and cleanups of this node."""
        self._routes.doubt()
        with contextlib.suppress(RedisError, HandfastError):
            for one in self._at(node).work():
                call = one.renewal if isinstance(one, LeaseState) else one.call
                target = (
                    None if call is None else self._routes.node_of(slot_of_call(call), self._routes.response_timeout)
                )
                if target in (None, node):
                    continue
                if self._stopping:
                    self._try_once(node, one)
                else:
                    self._move(one, node, target)

    def _move(self, one: LeaseState | Cleanup, node: Node, target: Node) -> None:
        source = self._at(node)
        if isinstance(one, Cleanup):
            source.drop(one)
        elif self._leases.get(one.token) is one:
            self._tables[source].leave(one)
            one.due_at = max(one.not_before, monotonic() + PAUSE_S)
        else:
            return
        self._give(one, target)

    def _try_once(self, node: Node, one: LeaseState | Cleanup) -> None:
        """Send a call, once, to the node which is only about to get the slot, or has it while the threads end."""
        renewer, session = self._at(node), self._pool.take()
        within = min(self._routes.response_timeout, UNDO_WAIT)  # nothing else is renewed meanwhile
        try:
            with contextlib.suppress(RedisError, HandfastError):
                if isinstance(one, LeaseState):
                    with renewer.sending():
                        if self._leases.get(one.token) is not one:
                            return
                        outcome = session.call(one.renewal, within)
                    renewer.on_renewal(one, outcome)
                elif one.call is not None:
                    renewer.on_cleanup(one, session.call(one.call, within))
        finally:
            self._pool.give(session)
