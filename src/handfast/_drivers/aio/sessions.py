"""The connections of one client on one event loop: to its server, or to the nodes of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.session import Session
from handfast._engine.effects import Call
from handfast._engine.messages import Subscription

if TYPE_CHECKING:
    from handfast._drivers.aio.lookout import Lookout
    from handfast._drivers.aio.router import Router

__all__ = ["Sessions"]


class Sessions:
    """The main session for most calls, and a second session, made at its first use, for calls that wait for replicas.

    Made within the running loop.

    ``subscribe`` makes the subscription of each connection of the main session, ``subscribe_to_nothing`` those of the
    second session.
    """

    def __init__(
        self,
        connector: AsyncConnector,
        subscribe: Callable[[], Subscription],
        subscribe_to_nothing: Callable[[], Subscription],
        retry_for: float,
    ) -> None:
        self._connector, self._retry_for = connector, retry_for
        self._subscribe_to_nothing = subscribe_to_nothing
        self._lookout: Lookout | None = None
        self._acknowledged: Session | Router | None = None
        self._ended: Exception | None = None
        self.main: Session | Router = self._reach(lambda connector: Session(connector, subscribe, retry_for))

    def session_for(self, call: Call) -> Session | Router:
        """Return the session for a call."""
        if call.acknowledgement is None:
            return self.main
        if self._acknowledged is None:
            from handfast._drivers.aio.acknowledged import AcknowledgedSession

            self._acknowledged = self._reach(
                lambda connector: AcknowledgedSession(connector, self._subscribe_to_nothing, self._retry_for)
            )
            self._acknowledged.on_unreachable = self.main.on_unreachable
            if self._ended is not None:
                self._acknowledged.end(self._ended)
        return self._acknowledged

    def all(self) -> list[Session | Router]:
        """Return the sessions made so far."""
        return [self.main] if self._acknowledged is None else [self.main, self._acknowledged]

    def end(self, error: Exception) -> None:
        """Close the connections for good. Calls waiting for replies fail with the error."""
        self._ended = error
        for session in self.all():
            session.end(error)

    def _reach(self, make: Callable[[AsyncConnector], Session]) -> Session | Router:
        """Return the session of the server, or the router of a cluster."""
        if not self._connector.seeds:
            return make(self._connector)
        from handfast._drivers.aio.lookout import Lookout
        from handfast._drivers.aio.router import Router

        self._lookout = self._lookout or Lookout(self._connector)
        return Router(self._connector, self._lookout, make, self._retry_for)
