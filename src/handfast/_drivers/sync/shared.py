"""One connection for all threads of a client that find no free session.

A separate thread writes and reads it. Callers hand their calls to this thread and sleep until it wakes them. So a
thousand waiting threads cost one connection, an interrupt of a caller disturbs none of the others, and no caller ever
waits for a lock that another caller may hold: a signal handler may call at any moment, also while its thread is in the
middle of a call.

`Seat` is a caller's part of the connection. It stands where a `Session` stands.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, ClassVar
from weakref import WeakValueDictionary, finalize

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS, connection_broke, copy_exception, server_silent
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.transport import MIN_TIMEOUT_S, Transport, translated
from handfast._drivers.sync.waker import Waker
from handfast._engine.effects import Answer, Call, Confirmation, GrantMessage, Park, Waking
from handfast._engine.messages import Message, Subscription
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_noscript

__all__ = ["Seat", "SharedConnections"]

IDLE_S = 60.0
"""After so many seconds without a call the thread ends, and with it the connection. The next call starts another
one."""

LINGER_S = 0.1
"""And after so many once the client is closed, if some have waited: they are woken by that, and still leave the queue."""


class _Mail:
    """The messages for a waiter since the last reply to it."""

    __slots__ = ("__weakref__", "confirm", "confirmation", "is_parked", "message", "missed", "slot", "wake_up")

    def __init__(self) -> None:
        self.wake_up = _WakeUp()
        self.is_parked = False
        self.confirm: Call | None = None
        self.slot: int | None = None
        """In a cluster, that of the name which is waited for."""
        self.clear()

    def clear(self) -> None:
        """Forget messages from before the latest reply."""
        self.message: GrantMessage | None = None
        self.confirmation: Confirmation | None = None
        self.missed = False
        """Whether the connection broke, or the slot has left the server, so that a message may have been lost."""


class _WakeUp:
    """Wakes a thread, at any moment and from any thread."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def now(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was woken already
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the wake-up. Return False if it does not come within ``seconds``."""
        return self._lock.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))


class _Asked:
    """A call in progress, and the outcome."""

    __slots__ = ("asking", "by_source", "call", "is_abandoned", "mail", "outcome", "sent_at", "wake_up")

    def __init__(self, call: Call, mail: _Mail, *, asking: bool = False) -> None:
        self.call = call
        self.mail = mail
        self.asking = asking
        self.by_source = False
        self.is_abandoned = False
        """Whether its caller does not wait any more. If it was not sent yet it must not be: an undo does not expect
        it."""
        self.sent_at = 0.0
        self.outcome: Answer | ErrorReply | Exception | None = None
        self.wake_up = _WakeUp()

    def settle(self, outcome: Answer | ErrorReply | Exception) -> None:
        self.mail.clear()
        self.outcome = outcome
        self.wake_up.now()


class _SharedConnection(Transport):
    """The connection and the thread that serves it. The thread begins with the first call."""

    def __init__(self, connector: SyncConnector, subscribe: Callable[[], Subscription]) -> None:
        super().__init__(connector, subscribe)
        self._handed_in: SimpleQueue[_Asked | _Mail] = SimpleQueue()
        self._heard_at = 0.0
        """When the server last said something, or nothing was due."""
        self._mails: WeakValueDictionary[bytes, _Mail] = WeakValueDictionary()
        """Of each token that may be waited for. Only the thread uses it."""
        self._is_closed = False
        self._ends_at = monotonic() + IDLE_S
        self._running = threading.Lock()
        """Held by the thread while there is one, and never waited for."""
        self._waker = Waker()
        finalize(self, self._waker.close).atexit = False  # the thread may still run then

    def hand_in(self, work: _Asked | _Mail) -> None:
        """Have a call sent, or a waiter's mail watched."""
        self._handed_in.put(work)
        self.wake()

    def wake(self) -> None:
        """Wake the thread, or start it if there is none. Of several threads started at once, only the first goes on."""
        if self._running.locked():
            self._waker.wake()
        else:
            threading.Thread(target=self._run, name="handfast-connection", daemon=True).start()

    def patient(self, park: Park) -> Park:
        """Return the park with a shorter wait where no message comes through."""
        return park if self._connector.heard else self._connector.unheard(park)

    def end(self) -> None:
        """End the thread, and with it the connection, when nothing is left to do."""
        self._is_closed = True
        self._ends_at = monotonic() + LINGER_S
        self._waker.wake()

    def _run(self) -> None:
        # After the release it looks again: what was handed in before found the thread running.
        while not self._is_over() and self._running.acquire(blocking=False):
            self._waker.open()
            try:
                while not self._is_over():
                    self._turn()
                self.close()
            finally:
                self._running.release()

    def _is_over(self) -> bool:
        if self.exchange.due or not self._handed_in.empty():
            return False
        if self._is_closed and not self._mails:
            return True
        if monotonic() < self._ends_at:
            return False
        if self._mails and not self._is_closed:  # there are waiters
            self._ends_at = monotonic() + IDLE_S
            return False
        return True

    def _turn(self) -> None:
        """Wait for bytes and for calls, and serve both."""
        try:
            self._serve(has_bytes=self._wait())
        except OSError as error:
            self._fail(translated(error))
        except OWN_ERRORS as error:
            self._fail(error)
        except BaseException as error:  # noqa: BLE001 -- others wait, whatever it is
            self._fail(connection_broke(repr(error)))

    def _wait(self) -> bool:
        """Wait until there is something to do. Return whether bytes have come."""
        poll = select.poll()
        if self.is_open:
            poll.register(self, select.POLLIN)
        until = self._silent_at() if self.exchange.due else self._ends_at
        if not self._handed_in.empty() or (self.is_open and self.has_bytes()):
            until = 0.0
        seconds = self._waker.end(poll, max(0.0, until - monotonic()))
        ready = [fd for fd, _ in poll.poll(seconds * 1000)]
        self._waker.clear(ready)
        return self.is_open and (self.fileno() in ready or self.has_bytes())

    def _serve(self, *, has_bytes: bool) -> None:
        if has_bytes or not self.exchange.due:
            self._heard_at = monotonic()
        if has_bytes:
            self.receive(0)
            self.take_frames()
        if self.exchange.due and monotonic() >= self._silent_at():
            raise server_silent()
        calls, mails = [], []
        with contextlib.suppress(Empty):
            while True:
                work = self._handed_in.get_nowait()
                if isinstance(work, _Mail):
                    mails.append(work)
                else:
                    calls.append(work)
        self._send(calls)
        for mail in mails:
            self._use_shard(mail.slot)
            self._deliver(mail)

    def _use_shard(self, slot: int | None) -> None:
        """Have messages for the waiters of a slot come to a sharded inbox, as soon as the server has the inbox."""
        if slot is not None and self.is_open:
            self._write(self.exchange.subscribe(slot))

    def _silent_at(self) -> float:
        """Return when the server counts as silent unless it says something."""
        return self._heard_at + self._connector.response_timeout

    def _send(self, calls: list[_Asked]) -> None:
        """Send those whose callers still wait, and open the connection for them if need be."""
        if calls and not self.is_open:
            try:
                self.open()
            except BaseException:
                self.exchange.due += calls  # they fail as well
                raise
            self.take_frames()
        calls = [one for one in calls if not one.is_abandoned]
        if not calls:
            return
        now = monotonic()
        self._ends_at = now + (LINGER_S if self._is_closed else IDLE_S)
        for one in calls:
            one.sent_at = now
            if one.call.waiter:
                self._mails[one.call.waiter] = one.mail
        self._write(self.exchange.send(calls))

    def _write(self, data: bytes) -> None:
        if data:
            self.write(data, self._connector.response_timeout)

    def _deliver(self, mail: _Mail) -> None:
        """Wake a waiter if there is something for it, and confirm a grant in the same step."""
        if not mail.is_parked or (mail.message is None and not mail.missed):
            return
        mail.is_parked = False
        if mail.message is not None and mail.message.lease_us and mail.confirm is not None:
            data, mail.confirmation = self.exchange.confirm(mail.confirm, monotonic())
            self._write(data)
        mail.wake_up.now()

    def _fail(self, error: Exception) -> None:
        """End the connection, and tell all who have sent something or wait."""
        self.drop()
        for one in self.exchange.broken():
            one.settle(copy_exception(error))
        for mail in [*self._mails.values()]:
            mail.missed = True
            self._deliver(mail)

    # --- called by the exchange

    def deliver(self, asked: _Asked, frame: Any, replicas: int) -> None:
        """Take the reply to a call."""
        if asked.by_source:
            self._connector.note_source(frame)
        if type(frame) is not ErrorReply:
            asked.settle(Answer(asked.sent_at, frame, replicas=replicas))
        elif is_noscript(frame) and not asked.by_source:
            asked.by_source = True
            self._send([asked])
        else:
            asked.settle(frame)
            if is_failover(frame):
                raise connection_broke(frame)

    def on_message(self, message: Message) -> None:
        """Wake the waiter of a grant."""
        token, said = message
        mail = self._mails.get(token)
        if mail is not None and isinstance(said, GrantMessage):
            mail.message = said
            self._deliver(mail)

    def on_slot_left(self, slot: int) -> None:
        """Wake the waiters in a slot that the server has no more."""
        for mail in [*self._mails.values()]:
            if mail.slot == slot:
                mail.missed = True
                self._deliver(mail)


class SharedConnections:
    """The shared connection to each server, made when it is needed first."""

    def __init__(self, subscribe: Callable[[], Subscription], make: Callable[[SyncConnector], Session]) -> None:
        self._subscribe = subscribe
        self._make = make
        self._connections: dict[str, _SharedConnection] = {}
        self._is_closed = False

    def seat(self, connector: SyncConnector) -> Seat:
        """Return a seat at the connection to a server."""
        address = connector.address
        shared = self._connections.get(address)
        if shared is None:
            shared = self._connections.setdefault(address, _SharedConnection(connector, self._subscribe))
            if self._is_closed:  # `close` may have missed it
                shared.end()
        return Seat(shared, lambda: self._make(connector))

    def hang_up(self) -> None:
        """End the connections."""
        for shared in list(self._connections.values()):
            shared.hang_up()

    def close(self) -> None:
        """End each connection when nothing is left to do there."""
        self._is_closed = True
        for shared in list(self._connections.values()):
            shared.end()

    def abandon(self) -> None:
        """Drop the connections in a forked child: they are the parent's."""
        for shared in self._connections.values():
            shared.close()


class Seat:
    """A caller's part of a shared connection.

    Calls that wait for replicas would hold this connection up: they go through a session of the caller's own.
    """

    is_seat: ClassVar[bool] = True
    """Whether it is lent only once."""

    def __init__(self, shared: _SharedConnection, make: Callable[[], Session]) -> None:
        self._shared = shared
        self._make = make
        self._own: Session | None = None
        self._is_apart = False
        """Whether the last call went to the session of its own."""
        self._mail = _Mail()
        self._may_park = True
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return self._shared.is_open

    def aim(self, call: Call) -> None:
        """Do nothing: all calls go to the same server."""

    def call(self, call: Call, within: float, *, asking: bool = False) -> Answer | ErrorReply:
        """Run a script and wait ``within`` seconds for the reply.

        An error reply is returned, an error of the network raised.
        """
        self._is_apart = call.acknowledgement is not None
        if self._is_apart:
            own = self._own_session()
            return own.call_asking(call, within) if asking else own.call(call, within)
        asked = _Asked(call, self._mail, asking=asking)
        try:
            self._shared.hand_in(asked)
            asked.wake_up.wait(max(within, MIN_TIMEOUT_S))
        finally:
            asked.is_abandoned = True
        outcome = asked.outcome
        if outcome is None:
            raise server_silent()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def call_asking(self, call: Call, within: float) -> Answer | ErrorReply:
        """Do the same as `call` for a slot of a cluster that the server is only about to get."""
        return self.call(call, within, asking=True)

    def use_shard(self, slot: int) -> None:
        """Have messages for the waiters of a slot come to a sharded inbox, as soon as the server has the inbox."""
        if self._is_apart:
            self._own_session().use_shard(slot)
        else:
            self._mail.slot = slot

    def park(self, park: Park) -> Waking:
        """Wait for the grant message, and have it confirmed.

        A broken connection ends the wait, too: the waiter then asks again.
        """
        if self._is_apart:
            return self._own_session().park(park)
        mail, park = self._mail, self._shared.patient(park)
        mail.wake_up.wait(0)  # one that came when the last wait was over
        mail.confirm, mail.is_parked = park.confirm, True
        self._shared.hand_in(mail)
        if self._may_park:
            mail.wake_up.wait(park.until - monotonic())
        mail.is_parked = False
        waking = Waking(monotonic(), mail.message, mail.confirmation)
        mail.message = mail.confirmation = None  # for a waiter that parks again without a call
        return waking

    def listen(self, _seconds: float = 0) -> None:
        """Do nothing: the thread of the connection takes all messages and replies."""

    def end_waits(self) -> None:
        """Make `park` return at once, now and later, from another thread."""
        self._may_park = False
        self._mail.wake_up.now()
        if self._own is not None:
            self._own.end_waits()

    def hang_up(self) -> None:
        """End the connection of the caller's own session, from another thread."""
        if self._own is not None:
            self._own.hang_up()

    def close(self) -> None:
        """Close the caller's own session. The shared connection stays open."""
        if self._own is not None:
            self._own.close()

    def _own_session(self) -> Session:
        if self._own is None:
            self._own = self._make()
            if not self._may_park:  # `end_waits` may have missed it
                self._own.end_waits()
        return self._own
