"""The connection for calls whose answers wait for replicas.

A server that waits for replicas serves nothing else of the connection. So there is one barrier at a time: calls that
come meanwhile leave together, in front of the next one, and none waits for longer than two of them last.
"""

from __future__ import annotations

from typing import Any

from handfast._drivers.aio.pending import PendingAside, PendingBatch, PendingCall
from handfast._drivers.aio.session import BATCH, Session
from handfast._drivers.clock import monotonic
from handfast._engine.effects import widest
from handfast._engine.resp import ErrorReply
from handfast._engine.slots import ASKING

__all__ = ["AcknowledgedSession"]


class _Reply(PendingBatch):
    """A reply that is due: that of a call, or one of the two of the barrier behind the calls.

    Only the last one has ``requests``, all those of the group: until it has come, they are sent again if the connection
    breaks.
    """

    __slots__ = ("frames",)

    def __init__(self, frames: list[Any], requests: list[PendingCall]) -> None:
        self.frames = frames
        """The replies of the group that have come."""
        self.requests = requests


class AcknowledgedSession(Session):
    """Sends each call with its acknowledgement."""

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport = self._connection.transport
        if self._sent or not self.is_open or transport is None or transport.paused:
            return
        live = [request for request in self._outbox if not request.future.done()]
        requests = live[:BATCH]
        self._outbox.clear()
        self._outbox += live[BATCH:]
        if not requests:
            return
        parts: list[bytes] = []
        frames: list[Any] = []
        now = monotonic()
        for request in requests:
            self._count += 1
            request.number, request.sent_at = self._count, now
            prefix = request.call.prefix
            if request.asking:
                parts.append(ASKING)
                self._sent.append(PendingAside())
            parts += (prefix.eval_source if request.by_source else prefix.evalsha, request.call.packed)
            self._sent.append(_Reply(frames, []))
        parts.append(widest([request.call for request in requests]).barrier)
        self._sent += [_Reply(frames, []), _Reply(frames, requests)]
        transport.write(b"".join(parts))
        if self._silence.timer is None:
            self._silence.tick()

    def _on_batch(self, batch: PendingBatch, frame: Any) -> None:
        """Take a reply.

        The last one of a group, that of its barrier, ends all its requests, and lets the next ones go.
        """
        if isinstance(batch, PendingAside):
            return
        assert isinstance(batch, _Reply)  # noqa: S101 -- nothing else is sent here
        batch.frames.append(frame)
        if not batch.requests:
            return
        self._hurries = True
        *replies, published, count = batch.frames
        refusal = next((reply for reply in (published, count) if isinstance(reply, ErrorReply)), None)
        for request, reply in zip(batch.requests, replies, strict=True):
            if refusal is not None and not isinstance(reply, ErrorReply):
                if not request.future.done():
                    request.future.set_result(refusal)
            else:
                self._on_reply(request, reply, 0 if refusal is not None else count)
