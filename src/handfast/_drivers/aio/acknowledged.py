"""The connection for calls whose answers wait for replicas.

While a server waits for replicas, it serves nothing else of the connection. So there is a single barrier at a time:
calls that come meanwhile leave together, in front of the next barrier, and none waits longer than two barriers last.
"""

from __future__ import annotations

from typing import Any

from handfast._drivers.aio.pending import PendingCall
from handfast._drivers.aio.session import BATCH, Session
from handfast._drivers.clock import monotonic

__all__ = ["AcknowledgedSession"]


class AcknowledgedSession(Session):
    """Sends each call with an acknowledgement."""

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport, exchange = self._connection.transport, self.exchange
        if exchange.due or not self.is_open or transport is None or transport.paused:
            return
        live = [request for request in self._outbox if not request.future.done()]
        requests = live[:BATCH]
        self._outbox.clear()
        self._outbox += live[BATCH:]
        if not requests:
            return
        now = monotonic()
        for request in requests:
            self._count += 1
            request.number, request.sent_at = self._count, now
        transport.write(exchange.send(requests, together=True))
        if self._silence.timer is None:
            self._silence.tick()

    def deliver(self, request: PendingCall, frame: Any, replicas: int = 0) -> None:
        """Take the reply to a call, and let the next ones go."""
        self._hurries = True
        super().deliver(request, frame, replicas)
