"""A session: the calls and the waits of one thread at a time on one connection.

After an exception it is closed and not reused: a reply may still be on its way.

The confirmation of a grant is sent without waiting for its reply. The session may change hands before that comes.
Replies come in order, so the next reader takes it before the reply that it waits for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._drivers.clock import monotonic
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.handlers import raise_from_handler
from handfast._drivers.sync.transport import MIN_TIMEOUT_S, Transport, translated
from handfast._engine.effects import (
    Answer,
    Call,
    Confirmation,
    GrantMessage,
    Park,
    Waking,
    make_answer,
)
from handfast._engine.messages import Subscription
from handfast._engine.resp import ErrorReply, Push
from handfast._engine.server_errors import is_noscript
from handfast._engine.slots import ASKING

__all__ = ["Session"]


class Session(Transport):
    """One connection at a time, and its inbox."""

    is_seat: ClassVar[bool] = False
    """Whether it is lent only once."""

    def __init__(
        self,
        connector: SyncConnector,
        subscribe: Callable[[], Subscription],
        on_revoked: Callable[[bytes, str], object] | None = None,
    ) -> None:
        super().__init__(connector, subscribe)
        self._on_revoked = on_revoked
        self._grants: dict[bytes, GrantMessage] = {}
        self._unanswered: deque[tuple[Confirmation | int, float]] = deque()
        """Confirmations without a reply, and when they were sent; and the slots whose sharded inboxes are not confirmed
        yet."""
        self._parked = False
        self._has_moved = False
        """Whether the slot of who waits may have left the server."""
        self._may_park = True
        self.idle_since = 0.0
        """When its thread gave it back, if none uses it."""

    def open(self, within: float | None = None) -> None:
        """Connect and subscribe, each step within that many seconds."""
        self._grants.clear()
        super().open(within)
        self._take_frames()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        super().close()
        while self._unanswered:
            confirmation, _ = self._unanswered.popleft()
            if isinstance(confirmation, Confirmation):
                confirmation.settle(None)

    def aim(self, call: Call) -> None:
        """Do nothing: there is one server for all calls."""

    def call(self, call: Call, within: float) -> Answer | ErrorReply:
        """Run a script and wait that many seconds for its reply, opening the session first if need be.

        An error reply is returned, an error of the network raised.
        """
        if self._connection is None:
            self.open(within)
        if call.acknowledgement is not None:
            return self._call_between(b"", call, call.acknowledgement.barrier, within)
        head, args, token, tail, waiter, wants, caller = call[:7]
        if waiter:
            owner = self.owner if self.shards is None else self.shards.owner(call)
            size = b"$%d\r\n" % (len(wants) + len(caller) + len(owner))
            tail = b"".join((args, token, tail, size, wants, caller, owner, b"\r\n"))
        else:
            tail = args + token + tail
        try:  # the hot path: written out instead of entering `_closing_on_error`
            sent_at = monotonic()
            self.write(head.evalsha + tail, within)
            reply = self._reply(within)
            if type(reply) is ErrorReply and is_noscript(reply):
                sent_at = monotonic()
                self.write(head.eval_source + tail, within)
                reply = self._reply(within)
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
        """Do what `call` does for a slot of a cluster that the server is only about to get."""
        if self._connection is None:
            self.open(within)
        return self._call_between(
            ASKING, call, b"" if call.acknowledgement is None else call.acknowledgement.barrier, within
        )

    def send(self, calls: list[Call], *, sources: bool, within: float, barrier: bytes = b"") -> float:
        """Send several calls in one write, within that many seconds, and return the moment.

        `listen` gives their replies.
        """
        with self.closing_on_error():
            sent_at = monotonic()
            parts = [(call.prefix.eval_source if sources else call.prefix.evalsha) + call.packed for call in calls]
            self.write(b"".join([*parts, barrier]), within)
        return sent_at

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
                self._take_frames()
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
        """Have the messages for those who wait in a slot come to a sharded inbox, as soon as the server has one."""
        if self._connection is None or not (command := self.subscription_to(slot)):
            return
        try:
            self.write(command, self._connector.response_timeout)
            self._unanswered.append((slot, 0.0))
        except OSError as error:
            self.drop()  # the wait ends by that
            raise_from_handler(error)
        except BaseException:
            self.drop()
            raise

    def end_waits(self) -> None:
        """Make `park` return at once, now and later, from another thread.

        This ends the connection of one that waits.
        """
        # Note this before looking for a wait; park() does it the other way round. One of the two always sees the other.
        self._may_park = False
        if self._parked:
            self.hang_up()

    def listen(self, seconds: float = 0) -> list[Any]:
        """Wait that long for bytes; take the messages and the replies to confirmations, and return the other replies.

        Error replies are returned, too.
        """
        with self.closing_on_error():
            self.receive(seconds)
            replies = self._take_frames()
        self._grants.clear()  # only `park` waits for one
        return replies

    def _call_between(self, before: bytes, call: Call, barrier: bytes, within: float) -> Answer | ErrorReply:
        """Run a script after `ASKING`, or with a barrier behind it, which no other thread's calls get between."""
        tail = call.packed
        if call.waiter:
            tail += call.record(self.owner_of(call))
        with self.closing_on_error():
            for head in (call.prefix.evalsha, call.prefix.eval_source):
                sent_at = monotonic()
                self.write(before + head + tail + barrier, within)
                asked = self._reply(within) if before else None
                reply = self._reply(within)
                published, replicas = (self._reply(within), self._reply(within)) if barrier else (0, 0)
                if not (type(reply) is ErrorReply and is_noscript(reply)):
                    break
        self._grants.clear()
        refusals = (one for one in (asked, reply, published, replicas) if type(one) is ErrorReply)
        return next(refusals, None) or make_answer((sent_at, reply, False, replicas))

    def _try_to_send(self, call: Call) -> None:
        """Find out how a confirmation can be sent. For a waiter it changes nothing."""
        self.write(call.prefix.eval_source + call.packed, self._connector.response_timeout)
        self._connector.note_source(self._reply(self._connector.response_timeout))

    def _confirm(self, call: Call | None, message: GrantMessage | None) -> Confirmation | None:
        """Send the confirmation of a grant."""
        if call is None or message is None or not message.lease_us:
            return None
        confirmation = Confirmation(self)
        self._unanswered.append((confirmation, monotonic()))
        head = call.prefix.eval_source if self._connector.confirms_in_full else call.prefix.evalsha
        self.write(head + call.packed, self._connector.response_timeout)
        return confirmation

    def _on_confirmed(self, frame: Any) -> None:
        """Take the reply to the oldest confirmation, or what the server has against a sharded inbox."""
        confirmation, sent_at = self._unanswered.popleft()
        if not isinstance(confirmation, int):
            is_error = type(frame) is ErrorReply
            if is_error:
                self._connector.note_source(frame)
            confirmation.settle(None if is_error else make_answer((sent_at, frame, False, 0)))
        elif self.shards is not None:
            self.shards.refuse(confirmation, frame)

    def _on_subscribed(self) -> None:
        self._unanswered.popleft()

    def _on_slot_left(self, _slot: int) -> None:
        self._has_moved = True

    def _take_frames(self) -> list[Any]:
        """Take the messages that have arrived, also in one segment with a reply, where no poll sees them.

        Return the replies.
        """
        replies = []
        while self.frames:
            frame = self.frames.popleft()
            if type(frame) is Push:
                self.take_push(frame)
            elif self._unanswered:
                self._on_confirmed(frame)
            else:
                replies.append(frame)
        return replies

    def _reply(self, within: float) -> Any:
        """Return the next reply that is waited for, and take the pushes and the replies to confirmations before it."""
        while True:
            while not self.frames:
                if not self.receive(max(MIN_TIMEOUT_S, within)):
                    raise TimeoutError
            frame = self.frames.popleft()
            if type(frame) is Push:
                self.take_push(frame)
            elif self._unanswered:
                self._on_confirmed(frame)
            else:
                return frame

    def _on_message(self, token: bytes, message: GrantMessage | str) -> None:
        if not isinstance(message, str):
            self._grants[token] = message
        elif self._on_revoked is not None:
            self._on_revoked(token, message)
