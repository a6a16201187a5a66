"""One thread that renews the leases of one client, and notifies the holders of lost leases.

The thread waits on a self-pipe and on a session subscribed to the client's control channel: the server publishes there
when an operator revokes a lease. To add a lease costs no system call. The thread looks at the table every TICK_S
seconds while any lease is held, and is woken only for a lease due sooner. The connection is opened on the first tick
with a live lease, so programs that hold locks for milliseconds never open it. No message published before then reaches
the client. So for a lease that is gone, the thread asks the server who took it, see `inquiry`.

No renewal is sent for a token after its release has returned (invariant 10). The thread holds ``_gate`` while it
collects the renewals that are due and sends them. A release first removes its lease from the table and then passes the
gate. The gate is reentrant, and nothing else is waited for: a signal handler may acquire and release in the middle of
any of these steps.

The thread waits for no reply: it takes the replies that have arrived, in the order of the calls, beside everything
else. So neither a slow reply, nor a lease that ends before the reply arrives, keeps another lease from being renewed.
While no connection can be opened, because the server has no more to give or to look up the host name takes long,
renewals go through an idle session of the client's pool.

The thread also runs background cleanup: an undo that could not be finished in time goes on until the server replies,
and for UNDO_WAIT seconds after the client is closed.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, Protocol, TypeAlias

from redis.exceptions import RedisError

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.events import Events
from handfast._drivers.failures import server_silent
from handfast._drivers.losses import LossNotifier, heard
from handfast._drivers.sync.acknowledged import AcknowledgedRenewals
from handfast._drivers.sync.inquiry import Inquiry
from handfast._drivers.sync.reopening import Reopening
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.waker import Waker
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.exchange import Called
from handfast._engine.messages import Told
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_noscript
from handfast._protocol.lease import RENEWALS_PER_TTL, LeaseState, LeaseTable, Renewal, release
from handfast._protocol.retry import CLEANUP_FOR, UNDO_WAIT, Cleanup
from handfast.errors import HandfastError

__all__ = ["Renewer"]

Settle: TypeAlias = Callable[[Any, Answer | ErrorReply], None]
"""Judges the reply to what was sent."""

TICK_S = 0.5
"""Time between two passes over the table while any lease is held, in seconds."""

CLOSING_PAUSE_S = 0.05
"""Pause between two tries of the cleanups that are left when the client is closed, in seconds."""

MAX_EARLY = 64
"""Messages that are kept for leases which are not in the table yet: a lease is added right after its reply was
read."""


class Lender(Protocol):
    """The part of the client's pool that the renewal thread needs."""

    def receive(self, lease: LeaseState, pauses: Iterable[float]) -> None:
        """Take the reply to a lease's confirmation if it has arrived."""

    def take_open(self) -> Session | None:
        """Lend an idle open session, if there is one."""

    def give(self, session: Session) -> None:
        """Take it back."""


class Renewer(LossNotifier):
    """Renews the leases in the table. ``make_session`` makes the session that listens to the control channel."""

    def __init__(
        self,
        make_session: Callable[[Callable[[bytes, Told], object]], Session],
        pool: Lender,
        leases: LeaseTable,
        response_timeout: float,
        events: Events,
    ) -> None:
        super().__init__(leases, events)
        self.on_refused: Callable[[LeaseState | Cleanup, ErrorReply], bool] = lambda _one, _reply: False
        """Called with a lease or a cleanup and the error reply to its call; returns whether it took it over."""
        self.on_failure: Callable[[], object] = lambda: None
        """Called when the server could not be reached."""
        self._waker = Waker()
        self._link = Reopening(partial(make_session, self.take), self._waker.wake)
        self._acknowledged = AcknowledgedRenewals(
            Reopening(partial(make_session, lambda _token, _told: None), self._waker.wake), self._on_acknowledged
        )
        self._pool = pool
        self._response_timeout = response_timeout
        self._cleanups: list[Cleanup] = []
        self._unanswered: dict[object, tuple[Called, Settle]] = {}
        """What was sent and has no reply yet, in order, with the call and with what judges the outcome."""
        self._silent_at = inf
        """When the server counts as silent unless a reply arrives; inf if none is due."""
        self._early: dict[bytes, Told] = {}
        self._gate = threading.RLock()
        self._sending = False
        self._send_sources = False
        self._wakes_at = inf
        self._broke = False
        """Whether the connection broke in the last tick."""
        self._opened_at = -inf
        """When a connection was opened on which no reply has come yet; -inf if one has.

        If it breaks by then, another one is opened only after a pause: else a server that accepts only to hang up would
        be connected to without end.
        """
        self._stopping = False
        self._running = threading.Lock()
        """Held by the thread while it runs, and for good after the end. Never waited for."""
        self._thread: threading.Thread | None = None

    @property
    def _session(self) -> Session:
        return self._link.session

    def add(self, lease: LeaseState) -> None:
        """Renew this lease from now on."""
        self._leases[lease.token] = lease
        told = self._early.pop(lease.token, None)
        if told is not None:
            self.tell(lease, told)
        if lease.due_at < self._wakes_at:
            self._wake()

    def remove(self, lease: LeaseState) -> None:
        """Stop renewing this lease. When this returns, no renewal is sent for it again."""
        self._leases.pop(lease.token, None)
        if self._sending:
            with self._gate:
                pass

    def take(self, token: bytes, told: Told) -> None:
        """Take a message for a holder. A message that arrives before the lease is added is kept for `add`."""
        # Note it before reading the table; add() writes the table before it takes the note. One of the two always sees the
        # other, and only the one that takes the note tells the holder.
        if len(self._early) >= MAX_EARLY:
            self._early.clear()
        self._early[token] = told = heard(told)
        lease = self._leases.get(token)
        if lease is not None and self._early.pop(token, None) is not None:
            self.tell(lease, told)

    def clean_up(self, steps: Steps[Any]) -> None:
        """Perform an undo as soon as the server can be reached."""
        self.take_over(Cleanup(steps, monotonic() + CLEANUP_FOR))

    def take_over(self, cleanup: Cleanup) -> None:
        """Go on with an undo."""
        self._cleanups.append(cleanup)
        self._wake()

    def drop(self, cleanup: Cleanup) -> None:
        """Leave an undo to others."""
        with contextlib.suppress(ValueError):
            self._cleanups.remove(cleanup)

    def work(self) -> list[LeaseState | Cleanup]:
        """Return all leases renewed here and all undos performed here."""
        return [*self._leases.all(), *self._cleanups]

    def stop(self, *, gives_up: bool = False) -> list[LeaseState]:
        """End the thread and close the session. The leases run out, or are given up: released, and returned."""
        return self.wait_for_end(self.begin_to_stop(gives_up=gives_up))

    def begin_to_stop(self, *, gives_up: bool = False) -> dict[LeaseState, Cleanup]:
        """Have the thread end. Return the leases to be given up, each with the release."""
        leases = self._leases.give_up(monotonic()) if gives_up else []
        give_up_at = monotonic() + CLEANUP_FOR
        releases = {lease: Cleanup(release(lease, by_holder=False), give_up_at) for lease in leases}
        if self._sending:
            with self._gate:
                pass
        self._cleanups += releases.values()
        self._stopping = True
        self._waker.wake()
        self._run()  # does what the thread does at its end, if there is none
        return releases

    def wait_for_end(self, releases: dict[LeaseState, Cleanup]) -> list[LeaseState]:
        """Wait for the end of the thread. Return the leases that were given up."""
        if self._thread is not threading.current_thread() and self._thread is not None:
            self._thread.join(self._response_timeout + UNDO_WAIT)
        for lease, cleanup in releases.items():
            if cleanup.result is None:
                log.unreleased(lease.request.name)
        return [*releases]

    def hang_up(self) -> None:
        """End the connections, from another thread: new ones are opened, and every lease is renewed on them."""
        self._link.hang_up()
        self._acknowledged.link.hang_up()

    def abandon(self) -> None:
        """Drop everything in a forked child, which does not have the thread."""
        self._stopping = True
        self._link.close()
        self._acknowledged.close()
        self._waker.close()

    def _wake(self) -> None:
        """Wake the thread, or start it if there is none. Of several threads started at once, only the first goes on."""
        if self._running.locked() or self._stopping:
            self._waker.wake()
        else:
            threading.Thread(target=self._run, name="handfast-renewer", daemon=True).start()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        self._waker.open()
        if self._cleanups:
            self._waker.wake()  # for those that were added before there was a pipe
        try:
            while not self._stopping:
                try:
                    self._sleep()
                    self._tick()
                except BaseException:  # noqa: BLE001 -- even a SystemExit, of a logging filter for example: other leases go on
                    log.thread_failed(TICK_S)
                    self._session.close()
                    self._acknowledged.close()
                    time.sleep(TICK_S)
            self._finish_cleanups()
            self._leases.stop_renewing(listened=self._events.dispatcher is not None)
            if self._leases:
                with contextlib.suppress(RuntimeError):  # the interpreter is ending
                    threading.Thread(target=self._tell_ends, name="handfast-ends", daemon=True).start()
        finally:
            self._link.close()
            self._acknowledged.close()
            if self._stopping:
                self._waker.close()
            else:  # killed: the next lease starts another thread
                self._wakes_at = inf
                self._running.release()

    def _tell_ends(self) -> None:
        """Notify the holders of leases that outlive the client, as they end: nothing renews them any more."""
        while self._leases:
            time.sleep(TICK_S)
            for lease in self._leases.remove_expired(monotonic()):
                self.notify_lost(lease)

    def _sleep(self) -> None:
        """Sleep until something is due, a tick is over while there is work, or the pipe or the session has bytes."""
        busy = bool(self._leases) or bool(self._cleanups)
        # Once idle, the thread wakes after a tick before it sleeps without
        # end: a lease that is added in that time does not have to wake it.
        idle_tick_done = self._wakes_at != inf and not busy
        self._wakes_at = inf if idle_tick_done else monotonic() + TICK_S
        # Publish the wake-up time before reading the table; add() writes the table before it reads the wake-up time.
        # One of the two always sees the other.
        due = self._leases.next_due()
        if due is not None:
            self._wakes_at = min(due, monotonic() + TICK_S)
        self._wakes_at = min(self._wakes_at, self._silent_at, self._acknowledged.silent_at)
        poll = select.poll()
        for session in self._sessions():
            poll.register(session, select.POLLIN)
        seconds = self._waker.end(poll, max(0.0, self._wakes_at - monotonic()))
        ready = [fd for fd, _ in poll.poll(None if seconds == inf else seconds * 1000)]
        self._waker.clear(ready)
        if self._session.is_open and self._session.fileno() in ready:
            self._try(partial(self._listen, self._session))
            if not self._session.is_open:
                self._leases.renew_all(monotonic())  # that it broke is tried out now, and not when the next one is due
        acknowledged = self._acknowledged
        if acknowledged.session.is_open and acknowledged.session.fileno() in ready:
            self._try(acknowledged.listen)

    def _sessions(self) -> list[Session]:
        """Return the open sessions."""
        return [session for session in (self._session, self._acknowledged.session) if session.is_open]

    def _tick(self) -> None:
        # First: a lease whose confirmation has arrived, and was
        # not read yet, must not count as lost (invariant 9).
        self._receive_confirmations()
        for lease in self._leases.remove_expired(monotonic()):
            self.notify_lost(lease)
        # Holders learn of losses above, before any step that may wait for the server (invariant 9).
        if monotonic() >= self._silent_at:
            self._session.close()
            self.note_failure(server_silent())
            self.on_failure()
            self.review()
        unreachable = None
        if not self._session.is_open:
            self._forget_unanswered()
            if (self._leases or self._cleanups) and monotonic() >= self._opened_at + self._spare_time():
                unreachable = self._try(partial(self._open, self._patience(), self._spare_time()))
        was_open, has_broken = self._session.is_open, self._broke
        if was_open:
            self._try(partial(self._renew, self._session))
            self._try(self._clean_up)
        else:
            self._receive_confirmations()  # to connect may have taken long
            self._try(self._renew_through_pool)
            if unreachable is not None:
                self._leases.note_failure(unreachable)
        self._renew_acknowledged()
        self._broke = was_open and not self._session.is_open
        if self._broke and not has_broken:
            self._leases.renew_all(monotonic())  # tried out now, once, before it is called an outage
        elif not (self._unanswered or self._acknowledged):
            self.review()
        # After the tries, so that each undo whose time ends now had one more.
        for cleanup in self._cleanups:
            cleanup.expire(monotonic())
        self._drop_finished_cleanups()

    def _receive_confirmations(self) -> None:
        """Take the replies to confirmations: a confirmed lease is not renewed early, and not lost with its session."""
        for lease in self._leases.all():
            self._pool.receive(lease, pauses=(0.0,))

    def _open(self, within: float, wait: float) -> None:
        if not self._link.open(within, wait):
            return
        self._opened_at = monotonic()
        self._leases.renew_all(monotonic())  # the message that one was revoked may have been missed

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Keep a release waiting in `remove`, since renewals are being sent."""
        self._sending = True
        try:
            with self._gate:
                yield
        finally:
            self._sending = False

    def _renew(self, session: Session) -> None:
        with self.sending():
            due = [lease for lease in self._leases.due(monotonic()) if lease not in self._unanswered]
            self._acknowledged.add(
                [one for one in due if one.request.acknowledgement and one not in self._acknowledged]
            )
            due = [lease for lease in due if lease.request.acknowledgement is None]
            if due:
                sources, self._send_sources = self._send_sources, False
                self._send(session, [(lease, lease.renewal) for lease in due], self.on_renewal, sources=sources)

    def _renew_acknowledged(self) -> None:
        """Send the renewals that wait for replicas. A renewal that fails is due again soon."""
        acknowledged = self._acknowledged
        if monotonic() >= acknowledged.silent_at:
            acknowledged.close()
            self.note_failure(server_silent())
        if not acknowledged:
            return
        self._try(partial(acknowledged.open, self._patience(), self._spare_time()))
        with self.sending():
            self._try(partial(acknowledged.send, self._patience(), lambda lease: lease.token in self._leases))

    def _renew_through_pool(self) -> None:
        """Renew the leases that are due though no session could be opened, and wait for the replies."""
        next_due = self._leases.next_due()
        if next_due is None or next_due > monotonic():
            return
        session = self._pool.take_open()
        if session is None:
            self._leases.due(monotonic())  # puts off the leases that cannot be renewed now
            return
        try:
            self._renew(session)
            while self._unanswered and monotonic() < self._silent_at:
                self._listen(session, self._silent_at - monotonic())
        finally:
            if self._unanswered:
                session.close()
                self._forget_unanswered()
            self._pool.give(session)

    def on_renewal(self, lease: LeaseState, outcome: Answer | ErrorReply) -> None:
        """Judge the reply to a renewal."""
        if (isinstance(outcome, ErrorReply) and self.on_refused(lease, outcome)) or self._asks_why(lease, outcome):
            return
        verdict = self.settle(lease, outcome, monotonic())
        if verdict is Renewal.SEND_SOURCE:
            self._send_sources = True
        elif verdict is Renewal.RECONNECT:
            self._session.close()

    def _on_acknowledged(self, lease: LeaseState, outcome: Answer | ErrorReply) -> None:
        if (isinstance(outcome, ErrorReply) and self.on_refused(lease, outcome)) or self._asks_why(lease, outcome):
            return
        verdict = self.settle(lease, outcome, monotonic())
        if verdict is Renewal.SEND_SOURCE:
            self._acknowledged.sends_sources = True
        elif verdict is Renewal.RECONNECT:
            self._acknowledged.close()

    def _asks_why(self, lease: LeaseState, outcome: Answer | ErrorReply) -> bool:
        """Ask who took a lease the server no longer has. Return whether it was asked: the reply then settles it."""
        is_gone = isinstance(outcome, Answer) and outcome.fields[0] != b"renewed"
        if not is_gone or not self._session.is_open or self._leases.get(lease.token) is not lease:
            return False
        self._send_inquiry(Inquiry(lease, outcome))
        return True

    def _send_inquiry(self, inquiry: Inquiry, *, sources: bool = False) -> None:
        self._send(self._session, [(inquiry, inquiry.call)], self._on_inquiry, sources=sources)

    def _on_inquiry(self, inquiry: Inquiry, outcome: Answer | ErrorReply) -> None:
        """Take the reply to an inquiry. A lease that ended in the meantime has a reason already."""
        lease = inquiry.lease
        if isinstance(outcome, ErrorReply) and is_noscript(outcome):
            self._send_inquiry(inquiry, sources=True)
        elif self._leases.get(lease.token) is lease:
            if (loss := inquiry.loss(outcome)) is not None:
                self.lose(lease, loss)
            elif inquiry.goes_on:
                self._send_inquiry(inquiry)
            else:
                self.settle(lease, inquiry.outcome, monotonic())

    def _clean_up(self) -> None:
        now = monotonic()
        due = [one for one in self._cleanups if one.call and one.due_at <= now and one not in self._unanswered]
        for cleanup in due:
            cleanup.sent(now)
        self._send(self._session, [(one, one.call) for one in due if one.call], self.on_cleanup, sources=False)

    def on_cleanup(self, cleanup: Cleanup, outcome: Answer | ErrorReply) -> None:
        """Judge the reply to a cleanup."""
        if isinstance(outcome, ErrorReply) and self.on_refused(cleanup, outcome):
            return
        # Sources are sent only for scripts that the server does not know: some users may not send any.
        if isinstance(outcome, ErrorReply) and is_noscript(outcome) and cleanup.call:
            self._send(self._session, [(cleanup, cleanup.call)], self.on_cleanup, sources=True)
        elif cleanup.settle(outcome, monotonic()):
            self._session.close()

    def _drop_finished_cleanups(self) -> None:
        for cleanup in [cleanup for cleanup in self._cleanups if cleanup.call is None]:
            self._cleanups.remove(cleanup)  # in place: another thread may be adding one

    def _finish_cleanups(self) -> None:
        """Try the remaining cleanups for UNDO_WAIT seconds more; after this they are given up."""
        until = monotonic() + UNDO_WAIT
        while self._cleanups and monotonic() < until:
            if not self._session.is_open:
                self._forget_unanswered()
                left = until - monotonic()
                self._try(partial(self._open, left, left))
            if self._session.is_open:
                self._try(self._clean_up)
            if self._session.is_open:
                self._try(partial(self._listen, self._session, CLOSING_PAUSE_S))
            else:
                time.sleep(CLOSING_PAUSE_S)
            self._drop_finished_cleanups()
        for cleanup in self._cleanups:
            cleanup.expire(inf)

    def _send(self, session: Session, calls: list[tuple[Any, Call]], settle: Settle, *, sources: bool) -> None:
        if not calls:
            return
        if not self._unanswered:
            self._silent_at = monotonic() + self._patience()
        sent = session.send([call for _, call in calls], sources=sources, within=self._patience())
        self._unanswered |= {one: (called, settle) for (one, _), called in zip(calls, sent, strict=True)}

    def _listen(self, session: Session, seconds: float = 0) -> None:
        """Take the messages and replies that arrive first within ``seconds``, without waiting for more."""
        session.listen(seconds)
        for one, (called, settle) in [*self._unanswered.items()]:
            if called.outcome is None:
                break
            del self._unanswered[one]
            self._silent_at = monotonic() + self._patience() if self._unanswered else inf
            self._opened_at = -inf
            settle(one, called.outcome)

    def _forget_unanswered(self) -> None:
        self._unanswered.clear()
        self._silent_at = inf

    def _patience(self) -> float:
        """Seconds to wait for the server: at most until the last lease ends."""
        now, ends = monotonic(), [lease.deadline for lease in self._leases.all()]
        return max(0.0, min(self._response_timeout, max(ends, default=inf) - now))

    def _spare_time(self) -> float:
        """Seconds to wait for a connection, or after it for the next, before leases are renewed through the pool.

        A tick at most, and at most a fraction of the time left to the first lease to end.
        """
        now, ends = monotonic(), [lease.deadline for lease in self._leases.all()]
        return max(0.0, min(TICK_S, (min(ends, default=inf) - now) / RENEWALS_PER_TTL))

    def _try(self, action: Callable[[], object]) -> Exception | None:
        """Perform an action, and return a network or permission error of it. The table knows when to try again."""
        try:
            action()
        except (RedisError, HandfastError) as error:
            self.note_failure(error)
            self.on_failure()
            return error
        return None
