"""A session: the calls and the waits of one thread at a time on one connection.

After an exception it is closed and not reused: a reply may still be on the way.

The confirmation of a grant is sent without waiting for the reply. The session may change hands before this reply comes.
Replies come in order, so the next reader takes it before the reply to a call of the reader's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.clock import monotonic
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.handlers import raise_from_handler
from handfast._drivers.sync.transport import MIN_TIMEOUT_S, Transport, translated
from handfast._engine.effects import Answer, Call, Confirmation, GrantMessage, Park, Waking, make_answer
from handfast._engine.exchange import Called
from handfast._engine.messages import Message, Subscription, Told
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_noscript

__all__ = ["Session"]


class Session(Transport):
    """One connection at a time, and the inbox."""

    is_seat: ClassVar[bool] = False
    """Whether it is lent only once."""

    def __init__(
        self,
        connector: SyncConnector,
        subscribe: Callable[[], Subscription],
        on_told: Callable[[bytes, Told], object] | None = None,
    ) -> None:
        super().__init__(connector, subscribe)
        self._on_told = on_told
        self._grants: dict[bytes, GrantMessage] = {}
        self._parked = False
        self._has_moved = False
        """Whether the slot of who waits may have left the server."""
        self._may_park = True
        self.idle_since = 0.0
        """When its thread gave it back, if none uses it."""

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe, each step within ``within`` seconds."""
        self._grants.clear()
        super().open(within)
        self.take_frames()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        super().close()
        self.exchange.broken()

    def aim(self, call: Call) -> None:
        """Do nothing: all calls go to the same server."""

    def call(self, call: Call, within: float) -> Answer | ErrorReply:
        """Run a script and wait ``within`` seconds for the reply, opening the session first if need be.

        An error reply is returned, an error of the network raised.
        """
        if self._connection is None:
            self.open(within)
        if call.acknowledgement is not None:
            return self._call_apart(call, within)
        exchange = self.exchange
        try:  # the hot path: written out instead of entering `closing_on_error`
            sent_at = monotonic()
            reply = self.ask(b"".join(exchange.pack(call)), within)
            if type(reply) is ErrorReply and is_noscript(reply):
                sent_at = monotonic()
                reply = self.ask(b"".join(exchange.pack(call, by_source=True)), within)
        except OSError as error:
            self.drop()
            raise_from_handler(error)
            raise translated(error) from error
        except BaseException:
            self.drop()
            raise
        if type(reply) is ErrorReply:
            return reply
        self._grants.clear()  # a grant that was published before this reply is over
        return make_answer((sent_at, reply, False, 0))

    def call_asking(self, call: Call, within: float) -> Answer | ErrorReply:
        """Do the same as `call` for a slot of a cluster that the server is only about to get."""
        if self._connection is None:
            self.open(within)
        return self._call_apart(call, within, asking=True)

    def send(self, calls: list[Call], *, sources: bool, within: float, together: bool = False) -> list[Called]:
        """Send several calls in one write, within ``within`` seconds. `listen` takes their replies.

        ``together``: they wait for replicas, all at once.
        """
        sent_at = monotonic()
        sent = [Called(call, sent_at, by_source=sources) for call in calls]
        with self.closing_on_error():
            self.write(self.exchange.send(sent, together=together), within)
        return sent

    def park(self, park: Park) -> Waking:
        """Wait for the grant message, and confirm it.

        A broken connection ends the wait, too: the waiter then asks again.
        """
        if not self._connector.heard:
            park = self._connector.unheard(park)
        token, until, confirm, _ = park
        self._parked = True
        try:
            if confirm is not None and self._connector.sends_scripts is None:
                self._try_to_send(confirm)
            while self._may_park:
                self.take_frames()
                message = self._grants.pop(token, None)
                now = monotonic()
                if message is not None or now >= until or self._has_moved:
                    return Waking(now, message, self._confirm(confirm, message))
                self._grants.clear()  # the others are for requests that were cancelled
                self.receive(until - now)
        except (OSError, RedisConnectionError) as error:
            self.drop()
            raise_from_handler(error)
        except BaseException:
            self.drop()
            raise
        finally:
            self._parked = self._has_moved = False
        return Waking(monotonic(), None)

    def use_shard(self, slot: int) -> None:
        """Have messages for the waiters of a slot come to a sharded inbox, as soon as the server has the inbox."""
        if self._connection is None:
            return
        try:
            if command := self.exchange.subscribe(slot):
                self.write(command, self._connector.response_timeout)
        except OSError as error:
            self.drop()  # the wait ends by that
            raise_from_handler(error)
        except BaseException:
            self.drop()
            raise

    def end_waits(self) -> None:
        """Make `park` return at once, now and later, from another thread.

        This ends the connection of a waiting session.
        """
        # Note this before looking for a wait; park() does it the other way round. One of the two always sees the other.
        self._may_park = False
        if self._parked:
            self.hang_up()

    def listen(self, seconds: float = 0) -> None:
        """Wait ``seconds`` for bytes, and take the arrived replies and messages."""
        with self.closing_on_error():
            self.receive(seconds)
            self.take_frames()
        self._grants.clear()  # only `park` waits for one

    def _call_apart(self, call: Call, within: float, *, asking: bool = False) -> Answer | ErrorReply:
        """Run a script after `ASKING`, or with a barrier behind it, which no other thread's calls get between."""
        with self.closing_on_error():
            outcome = self._outcome_apart(call, within, by_source=False, asking=asking)
            if type(outcome) is ErrorReply and is_noscript(outcome):
                outcome = self._outcome_apart(call, within, by_source=True, asking=asking)
        self._grants.clear()
        return outcome

    def _outcome_apart(self, call: Call, within: float, *, by_source: bool, asking: bool) -> Answer | ErrorReply:
        called = Called(call, monotonic(), by_source=by_source, asking=asking)
        self.write(self.exchange.send([called], together=call.acknowledgement is not None), within)
        while called.outcome is None:
            if not self.receive(max(MIN_TIMEOUT_S, within)):
                raise TimeoutError
            self.take_frames()
        return called.outcome

    def _try_to_send(self, call: Call) -> None:
        """Find out how a confirmation can be sent. For a waiter it changes nothing."""
        data = b"".join(self.exchange.pack(call, by_source=True))
        self._connector.note_source(self.ask(data, self._connector.response_timeout))

    def _confirm(self, call: Call | None, message: GrantMessage | None) -> Confirmation | None:
        """Send the confirmation of a grant."""
        if call is None or message is None or not message.lease_us:
            return None
        data, confirmation = self.exchange.confirm(call, monotonic(), self)
        self.write(data, self._connector.response_timeout)
        return confirmation

    # --- called by the exchange

    def deliver(self, called: Called, frame: object, replicas: int) -> None:
        """Take the reply to a call."""
        called.settle(frame, replicas)

    def on_message(self, message: Message) -> None:
        """Keep a grant for `park`, and pass on a message for a holder."""
        token, said = message
        if isinstance(said, GrantMessage):
            self._grants[token] = said
        elif self._on_told is not None:
            self._on_told(token, said)

    def on_slot_left(self, slot: int) -> None:  # noqa: ARG002 -- one call waits at a time
        """Have the wait end."""
        self._has_moved = True
