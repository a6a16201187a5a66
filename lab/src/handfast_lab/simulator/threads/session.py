"""One connection of a client of the sync colour, and its inbox; what _drivers/sync/session.py is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._engine.effects import Answer, Call, GrantMessage, Park, Waking
from handfast._engine.messages import Granted, Revoked, parse_message
from handfast._engine.resp import ErrorReply, Push
from handfast._engine.server_errors import is_noscript
from handfast_lab.simulator.client import SHORTEST_LIMIT, Client
from handfast_lab.simulator.network import Link, SentCall
from handfast_lab.simulator.world import Steps, Task

__all__ = ["Session"]

_OPENED = object()


class Session:
    """One connection and its inbox."""

    def __init__(
        self, client: Client, inbox: bytes, address: bytes, on_revoked: Callable[[bytes, str], None] | None = None
    ) -> None:
        self._client = client
        self._world = client.world
        self._inbox = inbox
        self._address = address
        self._on_revoked = on_revoked
        self._link: Link | None = None
        self._fresh: Link | None = None
        self._bells: dict[bytes, GrantMessage] = {}
        self._waiter: Task | None = None
        self._trouble: Exception | None = None
        self._replies: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended while nobody used it."""
        return self._link is not None and self._trouble is not None

    def open(self, within: float) -> Steps[None]:
        """Connect and subscribe to the inbox."""
        link = self._fresh = self._client.network.open(self._client.process, self._inbox, self)
        outcome = yield from self._await(within)
        self._fresh = None
        if outcome is not _OPENED:
            self._client.network.close(link)
            raise outcome or RedisTimeoutError("the server did not answer in time")
        self._client.reached = True
        self._link, self._trouble = link, None
        self._bells.clear()
        self._replies.clear()

    def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        for link in (self._link, self._fresh):
            if link is not None:
                self._client.network.close(link)
        self._link = self._fresh = None

    def call(self, call: Call, within: float) -> Steps[Answer | ErrorReply]:
        """Run a script and wait that many seconds for its reply, opening the session first if need be."""
        if self._link is None:
            yield from self.open(within)
        sent_at = self.send([call], sources=False)
        (reply,) = yield from self.replies(1, within)
        if type(reply) is ErrorReply and is_noscript(reply):
            sent_at = self.send([call], sources=True)
            (reply,) = yield from self.replies(1, within)
        return reply if type(reply) is ErrorReply else Answer(sent_at, reply)

    def send(self, calls: list[Call], *, sources: bool) -> float:
        """Send several scripts at once and say when."""
        link = cast("Link", self._link)
        sent_at = self._client.monotonic()
        for call in calls:
            self._client.network.send(link, SentCall(call, self._address, whole=sources))
        return sent_at

    def replies(self, count: int, within: float) -> Steps[list[Any]]:
        """The replies to what was sent, each within that many seconds."""
        while len(self._replies) < count:
            if self._trouble is None:
                outcome = yield from self._await(within)
            error = self._trouble or (
                None if outcome is not None else RedisTimeoutError("the server did not answer in time")
            )
            if error is not None:
                self.close()
                raise error
        replies, self._replies = self._replies, []
        return replies

    def park(self, park: Park) -> Steps[Waking]:
        """Wait for the inbox to ring. A connection that breaks ends the wait too: whoever waits asks again then."""
        token, until = park
        while True:
            bell = self._bells.pop(token, None)
            now = self._client.monotonic()
            if bell is not None or now >= until:
                return Waking(now, bell)
            self._bells.clear()
            if self._trouble is None:
                yield from self._await(until - now, shortest=0.0)
            if self._trouble is not None:
                self.close()
                return Waking(self._client.monotonic(), None)

    def nudge_on_ring(self, task: Task) -> None:
        """Wake this task when something comes, as a poll does."""
        self._waiter = task

    # --- what comes

    def opened(self, link: Link) -> None:
        """It is there, and the inbox is subscribed to."""
        if link is self._fresh:
            self._wake(_OPENED)

    def answered(self, link: Link, request: SentCall, frame: Any) -> None:
        """The reply to a request."""
        del request
        if link is self._link:
            if type(frame) is not ErrorReply:
                self._bells.clear()
            self._replies.append(frame)
            self._wake(frame)

    def heard(self, link: Link, payload: bytes) -> None:
        """Something was published to the inbox."""
        if link is not self._link:
            return
        match parse_message(Push([b"message", self._inbox, payload])):
            case Granted(token, bell):
                self._bells[token] = bell
            case Revoked(token, reason) if self._on_revoked is not None:
                self._on_revoked(token, reason)
        self._wake(payload)

    def broken(self, link: Link, error: Exception) -> None:
        """It is no more."""
        if link is self._link or link is self._fresh:
            self._trouble = error
            self._wake(error)

    def _wake(self, value: Any) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.come(value)

    def _await(self, seconds: float, shortest: float = SHORTEST_LIMIT) -> Steps[Any]:
        self._waiter = self._world.current
        try:
            return (yield self._world.now + max(seconds, shortest))
        finally:
            self._waiter = None
