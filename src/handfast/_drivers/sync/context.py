"""Everything that a client has in one process: connections, leases and the renewal thread.

It ends with the client, or with the interpreter. A forked child makes a context of its own.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from handfast._drivers.clock import monotonic
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.own_waits import OwnWaits
from handfast._drivers.sync.pool import Pool
from handfast._drivers.sync.renewer import Renewer
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.shared import SharedConnections
from handfast._engine.effects import Steps
from handfast._engine.keys import control_channel, inbox_channel
from handfast._engine.messages import Subscription, Told
from handfast._engine.records import owner_text
from handfast._protocol.lease import LeaseState, LeaseTable
from handfast._protocol.loss import Loss

if TYPE_CHECKING:
    from handfast._drivers.sync.primary_watch import PrimaryWatch
    from handfast._drivers.sync.renewers import Renewers

__all__ = ["Context"]


class Context:
    """Pool, renewer and leases, under a client id of their own."""

    waits: OwnWaits = OwnWaits()

    def __init__(
        self, connector: SyncConnector, namespace: str, label: str, retry_for: float, max_sessions: int
    ) -> None:
        client_id = secrets.token_hex(8)
        control, numbers = control_channel(namespace, client_id), itertools.count(1)

        def subscribe() -> Subscription:  # without a reference to this context, which the pool would then keep alive
            if watch is not None:
                watch.start()
            inbox = inbox_channel(namespace, client_id, next(numbers))
            return Subscription((inbox,), owner_text(inbox, control, label))

        def make(connector: SyncConnector) -> Session:
            return Session(connector, subscribe)

        def listen(connector: SyncConnector, on_told: Callable[[bytes, Told], object]) -> Session:
            return Session(connector, partial(Subscription, (control,)), on_told)

        self.connector: SyncConnector = connector
        self.control: str = control
        """The channel on which this client hears that a lease was taken away."""
        self.retry_for: float = retry_for
        self.leases: LeaseTable = LeaseTable()
        self.warned_of_loop: bool = False
        """Whether it was logged that a call waited in the thread of an event loop."""
        shared = SharedConnections(subscribe, make)
        self.pool: Pool[Any]
        self.renewer: Renewer | Renewers
        watch: PrimaryWatch | None = None
        if connector.seeds:
            from handfast._drivers.sync.renewers import Renewers
            from handfast._drivers.sync.routed import RoutedSession
            from handfast._drivers.sync.routes import Routes

            routes = Routes(connector)
            self.pool = routed = Pool[Any](
                partial(RoutedSession, routes, make),
                max_sessions,
                partial(RoutedSession, routes, shared.seat, is_seat=True),
                shared,
            )
            self.renewer = Renewers(routes, listen, routed, self.leases, connector.events)
        else:
            self.pool = pool = Pool[Any](
                partial(make, connector), max_sessions, partial(shared.seat, connector), shared
            )
            timeout, events = connector.response_timeout, connector.events
            self.renewer = renewer = Renewer(partial(listen, connector), pool, self.leases, timeout, events)
            if connector.service is not None:
                from handfast._drivers.sync.primary_watch import PrimaryWatch

                watch = PrimaryWatch(connector, pool.hang_up, renewer.hang_up)
        self._watch = watch
        self.receive: Callable[[LeaseState], None] = self.pool.receive
        self.remove: Callable[[LeaseState], None] = self.renewer.remove
        self.perform_later: Callable[[Steps[object]], None] = self.renewer.clean_up
        self.lose: Callable[[LeaseState, Loss], None] = self.renewer.lose

    @property
    def is_closed(self) -> bool:
        return self.pool.closed

    def close(self, *, gives_up: bool) -> list[LeaseState]:
        """Close the sessions, wake the waiting threads, and end the renewal thread.

        The held leases run out, or are given up: released, and returned.
        """
        self.pool.close()  # first: threads that wait then leave the queue while the renewal thread still finishes cleanups
        if self._watch is not None:
            self._watch.stop()
        return self.renewer.stop(gives_up=gives_up)

    def abandon(self) -> None:
        """Drop everything in a forked child: it is the parent's."""
        for lease in self.leases.all():
            lease.disown(monotonic())
        self.renewer.abandon()
        self.pool.abandon()
        if self._watch is not None:
            self._watch.abandon()
