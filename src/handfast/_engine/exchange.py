"""The wire of a connection, without I/O: bytes for calls, and the call for which each frame is the reply.

A session decides when to write and whom to wake. The exchange knows which replies are due, and in which order: a server
replies in the order of the commands, but sends a push in place of the reply to a subscription. It also knows the owner
text of the callers who wait, and the sharded inboxes of the connection.

A call on its way is any object with the fields of `Sending`. A session keeps the call in ``due`` from the write to
the reply, or reads the reply itself: a frame other than a push, while nothing is due, is the reply to the call at hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from handfast._engine.effects import Answer, Call, Confirmation, make_answer, widest
from handfast._engine.messages import Message, parse_message
from handfast._engine.resp import ErrorReply, Push, Reader
from handfast._engine.shards import Shards
from handfast._engine.slots import ASKING

__all__ = ["Aside", "Called", "Exchange", "Link", "Sending", "User"]


class Link(Protocol):
    """Facts about the server: an exchange reads them, and finds them out."""

    heard: bool
    """Whether a message ever came through."""

    @property
    def confirms_in_full(self) -> bool:
        """Whether confirmations leave with their source."""

    def note_heard(self) -> None:
        """Note that messages come through."""

    def note_source(self, reply: Any) -> None:
        """Take the reply to a script sent in full."""


class User(Protocol):
    """The session whose exchange it is. It is passed with each frame, since the exchange holds no reference to it."""

    def deliver(self, sending: Any, frame: Any, replicas: int) -> object:
        """Take the reply to a call in ``due``, and the number of replicas with the writes of the call."""

    def refuse(self, sending: Any, error: ErrorReply) -> object:
        """Take the refusal of `ASKING` for the reply to the call behind it."""
        return self.deliver(sending, error, 0)

    def on_message(self, message: Message) -> object:
        """Take the grant of a token, or the reason of a revocation."""

    def on_slot_left(self, slot: int) -> object:
        """Have the callers in the queues of a slot ask again: the slot has left the server."""


class Sending(Protocol):
    """A call on its way."""

    call: Call
    by_source: bool
    """Whether it is sent with the source of its script, which the server did not know."""
    asking: bool
    """Whether it is for a slot of a cluster that the server is only about to get."""


class Called:
    """A call on its way, and the outcome."""

    __slots__ = ("asking", "by_source", "call", "outcome", "sent_at")

    def __init__(self, call: Call, sent_at: float, *, by_source: bool = False, asking: bool = False) -> None:
        self.call = call
        self.sent_at = sent_at
        self.by_source = by_source
        self.asking = asking
        self.outcome: Answer | ErrorReply | None = None

    def settle(self, frame: Any, replicas: int) -> None:
        """Take the reply."""
        self.outcome = frame if type(frame) is ErrorReply else make_answer((self.sent_at, frame, False, replicas))


class Aside:
    """A reply due to no single call, such as the reply to the probe of a new connection.

    ``calls`` have no reply of their own as long as this reply is due.
    """

    __slots__ = ("calls",)

    def __init__(self, calls: Sequence[Any] = ()) -> None:
        self.calls = calls

    def take(self, frame: Any, user: Any) -> None:
        """Take the reply."""

    def lost(self) -> None:
        """Expect the reply no more."""


class _Hook(Aside):
    """Calls functions with the reply and the session, or when the reply is lost."""

    __slots__ = ("_lost", "_take")

    def __init__(
        self,
        take: Callable[[Any, Any], object],
        calls: Sequence[Any] = (),
        lost: Callable[[], object] = lambda: None,
    ) -> None:
        self.calls = calls
        self._take = take
        self._lost = lost

    def take(self, frame: Any, user: Any) -> None:
        self._take(frame, user)

    def lost(self) -> None:
        self._lost()


class Exchange:
    """The calls of a connection without a reply, in order."""

    __slots__ = ("_link", "_shards", "due", "owner")

    def __init__(self, link: Link) -> None:
        self._link = link
        self.due: deque[Any] = deque()
        """The calls and the `Aside` replies that are due, in order."""
        self.owner = b""
        """The owner text of the callers who wait for a message."""
        self._shards: Shards | None = None

    def open(self) -> Reader:
        """Begin on a new connection. Return a reader for the bytes."""
        self.owner, self._shards = b"", None
        return Reader()

    # --- out

    def pack(self, call: Call, *, by_source: bool = False) -> tuple[bytes, ...]:
        """Return the bytes of a call, in pieces."""
        prefix, args, token, tail, waiter, wants, caller = call[:7]
        head = prefix.eval_source if by_source else prefix.evalsha
        if not waiter:
            return head, args, token, tail
        owner = self.owner if self._shards is None else self._shards.owner(call)
        if call.value:
            owner += call.value
        return (
            head,
            args,
            token,
            tail,
            b"$%d\r\n" % (len(wants) + len(caller) + len(owner)),
            wants,
            caller,
            owner,
            b"\r\n",
        )

    def send(self, calls: Sequence[Sending], *, together: bool = False) -> bytes:
        """Return the bytes of calls on their way, and expect their replies.

        ``together``: the calls wait for replicas, with a barrier behind them. All replies are delivered after the
        barrier's; if that is an error, all calls get the error.
        """
        parts: list[bytes] = []
        frames: list[Any] = []
        keep = _Hook(lambda frame, _user: frames.append(frame))
        for sending in calls:
            if sending.asking:
                parts.append(self.ask(sending))
            self.due.append(keep if together else sending)
            parts += self.pack(sending.call, by_source=sending.by_source)
        if together:
            parts.append(widest([sending.call for sending in calls]).barrier)
            self.due += (keep, _Hook(partial(self._on_barrier, calls, frames), calls))
        return b"".join(parts)

    def ask(self, sending: Sending) -> bytes:
        """Return `ASKING`, which goes before the call."""
        self.due.append(_Hook(partial(self._on_asked, sending)))
        return ASKING

    def confirm(self, call: Call, sent_at: float, pending: Any = None) -> tuple[bytes, Confirmation]:
        """Return the bytes of the confirmation of a grant, and the `Confirmation` that takes the reply."""
        confirmation, by_source = Confirmation(pending), self._link.confirms_in_full

        def take(frame: Any, _user: User) -> None:
            if by_source:
                self._link.note_source(frame)
            confirmation.settle(None if type(frame) is ErrorReply else make_answer((sent_at, frame, False, 0)))

        self.due.append(_Hook(take, lost=partial(confirmation.settle, None)))
        return b"".join(self.pack(call, by_source=by_source)), confirmation

    def subscribe(self, slot: int) -> bytes:
        """Return the command to subscribe to the sharded inbox of a slot, if it is to be sent."""
        if self._shards is None:
            self._shards = Shards(self.owner)
        command = self._shards.subscribe(slot)
        if command:
            self.due.append(_Hook(partial(self._on_refused, slot)))
        return command

    # --- in

    def take(self, frame: Any, user: User) -> None:
        """Take a push, or the first reply due. Raises ConnectionError if none is due."""
        if type(frame) is Push:
            self.take_push(frame, user)
        elif not self.due:
            raise ConnectionError(f"the server sent a reply without a request: {frame!r:.100}")
        elif isinstance(entry := self.due.popleft(), Aside):
            entry.take(frame, user)
        else:
            user.deliver(entry, frame, 0)

    def take_push(self, frame: Push, user: User) -> None:
        """Take a message, or news about a sharded inbox. Other pushes say nothing."""
        message = parse_message(frame)
        if message is not None:
            if not self._link.heard:
                self._link.note_heard()
            user.on_message(message)
        elif self._shards is None:
            pass
        elif frame[0] == b"ssubscribe":
            self.due.popleft()  # this push comes in place of a reply
            self._shards.take(frame[1])
        elif frame[0] == b"sunsubscribe":
            user.on_slot_left(self._shards.drop(frame[1]))

    def broken(self) -> list[Any]:
        """Expect no reply any more: the connection is gone. Return the calls without a reply, in order."""
        calls: list[Any] = []
        while self.due:
            entry = self.due.popleft()
            if isinstance(entry, Aside):
                calls += entry.calls
                entry.lost()
            else:
                calls.append(entry)
        return calls

    def _on_asked(self, sending: Sending, frame: Any, _user: User) -> None:
        """Take the reply to `ASKING`. If it is an error, the call behind gets the error in place of a reply."""
        if type(frame) is ErrorReply:
            behind = self.due[0]
            if isinstance(behind, Aside):  # it keeps the reply for the barrier
                self.due[0] = _Hook(lambda _frame, user: behind.take(frame, user))
            else:
                self.due[0] = _Hook(lambda _frame, user: user.refuse(sending, frame), [sending])

    def _on_barrier(self, calls: Sequence[Any], frames: list[Any], count: Any, user: User) -> None:
        *replies, published = frames
        refusal = next((error for error in (published, count) if type(error) is ErrorReply), None)
        for sending, reply in zip(calls, replies, strict=True):
            failure = reply if type(reply) is ErrorReply else refusal
            user.deliver(sending, *((reply, count) if failure is None else (failure, 0)))

    def _on_refused(self, slot: int, frame: Any, _user: User) -> None:
        if self._shards is not None:
            self._shards.refuse(slot, frame)
