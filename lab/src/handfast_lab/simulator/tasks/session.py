"""The one connection of a client of the asyncio colour; what _drivers/aio/session.py is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.session import TICKS
from handfast._drivers.timeouts import PAUSES, RETRY_FOR
from handfast._engine.effects import Answer, Call
from handfast._engine.messages import Granted, Revoked, parse_message
from handfast._engine.resp import ErrorReply, Push
from handfast._engine.server_errors import is_noscript
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.network import Link, SentCall
from handfast_lab.simulator.tasks.coming import Coming
from handfast_lab.simulator.tasks.ears import Inbox
from handfast_lab.simulator.world import Steps, World

__all__ = ["Session"]


class _Sending:
    """A script on its way, and who waits for its reply."""

    __slots__ = ("call", "coming", "give_up_at", "number", "patience", "sent_at", "source", "whole")

    def __init__(self, call: Call, coming: Coming, patience: float) -> None:
        self.call = call
        self.coming = coming
        self.patience = patience
        self.give_up_at = inf
        self.source = self.whole = False
        self.number = 0
        self.sent_at = 0.0


class Session:
    """The one session of a client."""

    def __init__(self, client: Client, inbox: bytes, on_gap: Callable[[], None]) -> None:
        self._client = client
        self._on_gap = on_gap
        self._world: World = client.world
        self._inbox = inbox
        self._address = b"%b %b %b" % (inbox, inbox, client.process.name.encode())
        self.ears = Inbox(client)
        self._link: Link | None = None
        self._opened_at = -inf
        self._greeting: Coming | None = None
        self._connecting = False
        self._outbox: deque[_Sending] = deque()
        self._sent: deque[_Sending] = deque()
        self._count = 0
        self._sources: dict[str, int] = {}
        self._tries = 0
        self._ticks = False
        self._silent_ticks = 0
        self._ended = False
        self.breaks = 0
        """How many connections have broken so far. Whatever waited for its reply then is sent a second time."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None and self._greeting is None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not (self._sent or self._outbox or self.ears.heard)

    def send(self, call: Call, patience: float = RETRY_FOR) -> Coming:
        """Send a script. Its reply, or the network's error once a break has lasted for ``patience`` seconds, is to come."""
        coming = Coming(self._client.process)
        self._outbox.append(_Sending(call, coming, patience))
        self._stir()
        return coming

    def refresh(self, asked_at: float) -> None:
        """Find the server anew, unless that was done since that moment."""
        if self.is_open and self._opened_at <= asked_at:
            self._break(RedisConnectionError("the server is no primary any more"))

    def end(self, error: Exception) -> None:
        """Let go of the connection. Whoever still waits for something gets the error."""
        self._ended = True
        self._drop_link()
        self.ears.refuse(error)
        self._fail(error, inf)

    # --- what comes

    def opened(self, link: Link) -> None:
        """It is there, and the inbox is subscribed to."""
        if link is self._link and self._greeting is not None:
            self._silent_ticks = 0
            self._greeting.settle(value=True)

    def answered(self, link: Link, request: SentCall, frame: Any) -> None:
        """The reply to a request."""
        if link is not self._link:
            return
        self._silent_ticks = 0
        sending = self._sent.popleft()
        if sending.call is not request.call:
            raise AssertionError("a reply to another request")
        if sending.coming.done:
            return
        if type(frame) is not ErrorReply:
            self._tries = 0
            self.ears.hush(sending.call.waiter)
            sending.coming.settle(Answer(sending.sent_at, frame))
        elif is_noscript(frame) and not sending.whole:
            self._send_whole(sending)
        else:
            sending.coming.settle(frame)

    def heard(self, link: Link, payload: bytes) -> None:
        """Something was published to the inbox."""
        if link is not self._link:
            return
        self._silent_ticks = 0
        match parse_message(Push([b"message", self._inbox, payload])):
            case Granted(token, bell):
                self.ears.granted(token, bell)
            case Revoked(token, reason):
                self.ears.revoked(token, reason)
                self._client.revoked(token, reason)

    def broken(self, link: Link, error: Exception) -> None:
        """It is no more."""
        if link is self._link:
            self._break(RedisConnectionError(f"the connection to the server broke: {error}"))

    # --- sending

    def _stir(self) -> None:
        if self._ended:
            self._fail(RedisConnectionError("the session with the server is over"), inf)
        elif self._connecting:
            return
        elif self._link is None:
            self._connecting = True
            self._client.process.begin(self._connect())
        else:
            self._flush()

    def _flush(self) -> None:
        link, client = self._link, self._client
        while self._outbox and self.is_open and link is not None:
            sending = self._outbox.popleft()
            if sending.coming.done:
                continue
            self._count += 1
            sending.whole, sending.source = sending.source, False
            sending.number, sending.sent_at = self._count, client.monotonic()
            self._sent.append(sending)
            client.network.send(link, SentCall(sending.call, self._address, whole=sending.whole))
        if self._sent and not self._ticks:
            self._tick()

    def _send_whole(self, sending: _Sending) -> None:
        digest = sending.call.head.digest
        if self._sources.get(digest, -1) <= sending.number:
            sending.source = True
            self._sources[digest] = self._count + 1
        self._outbox.append(sending)
        self._stir()

    def _tick(self) -> None:
        self._ticks = False
        if self._link is None or not self._sent:
            self._silent_ticks = 0
        elif self._silent_ticks >= TICKS:
            self._break(RedisTimeoutError("the server did not answer in time"))
        else:
            self._silent_ticks += 1
            self._ticks = True
            self._later(self._client.response_timeout / TICKS, self._tick)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.at(self._world.now + seconds, self._client.process.meet, action)

    # --- connecting

    def _connect(self) -> Steps[None]:
        while True:
            yield self._world.now + PAUSES[min(self._tries, len(PAUSES) - 1)]
            self._tries += 1
            try:
                yield from self._open()
            except (RedisConnectionError, RedisTimeoutError) as error:
                if not self._client.reached:
                    self._tries = 0
                self._fail(error, self._client.monotonic() if self._client.reached else inf)
            if self.is_open or not self._outbox or self._ended:
                break
        self._connecting = False
        while self._outbox and self._outbox[0].coming.done:
            self._outbox.popleft()
        if self._outbox:
            self._stir()

    def _open(self) -> Steps[None]:
        client = self._client
        self._greeting = greeting = Coming(client.process)
        self._link = client.network.open(client.process, self._inbox, self)
        self._opened_at = client.monotonic()
        self._sources.clear()
        self._silent_ticks = 0
        try:
            yield from greeting.wait(self._world.now + client.response_timeout)
        except (RedisConnectionError, RedisTimeoutError):
            self._greeting = None
            self._drop_link()
            raise
        client.reached = True
        self._greeting = None

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._client.network.close(link)

    def _break(self, error: Exception) -> None:
        self.breaks += 1
        self._drop_link()
        if self._greeting is not None:
            self._greeting.settle(error=error)
            return
        self._fail(error, self._client.monotonic())
        self.ears.gap()
        self._on_gap()
        if self._outbox:
            self._stir()

    def _fail(self, error: Exception, moment: float) -> None:
        waiting = [*self._sent, *self._outbox]
        self._sent.clear()
        self._outbox.clear()
        for sending in waiting:
            if sending.coming.done:
                continue
            sending.give_up_at = min(sending.give_up_at, self._client.monotonic() + sending.patience)
            if sending.give_up_at <= moment:
                sending.coming.settle(error=error)
            else:
                self._outbox.append(sending)
