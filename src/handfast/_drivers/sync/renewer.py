"""One thread that keeps the leases of one client: it renews them, and tells their holders when they are lost.

It sleeps on a doorbell and on its own session, whose inbox is the client's home: there the server rings when an operator
takes a lease away. Entering a lease in the ledger costs no system call: the thread looks by itself at least every half
a second while anything is held, and is nudged only for what is due sooner. Its connection is made when a lease first
lives to be looked at; a program that holds locks for milliseconds never pays for it.

No renewal is sent for a token after its release has returned (invariant 10): collecting what is due and sending it
happen behind one gate, a release strikes its lease out of the ledger first, and passes through the gate second.

It also runs errands: what could not be taken back while the server was silent is taken back when it speaks again, and
what is still left of it when the client is closed is tried for a moment longer.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from handfast._drivers.losses import LossNotifier
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.waker import Waker
from handfast._drivers.timeouts import CLEANUP_FOR, PAUSES, UNDO_WAIT
from handfast._engine.effects import Call
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_noscript, is_transient
from handfast._protocol.lease import LeaseState, LeaseTable

__all__ = ["Renewer"]

logger = logging.getLogger("handfast")

TICK = 0.5
"""Seconds between two looks at the ledger while something is held."""


class Renewer(LossNotifier):
    """Renews what is in the ledger. ``make_session`` makes the session that listens to the client's home."""

    def __init__(
        self,
        make_session: Callable[[Callable[[bytes, str], None]], Session],
        ledger: LeaseTable,
        response_timeout: float,
    ) -> None:
        super().__init__(ledger)
        self._session = make_session(self.revoked)
        self._response_timeout = response_timeout
        self._errands: list[tuple[Call, float]] = []
        self._gate = threading.Lock()
        self._sending = False
        self._sources = False
        self._wakes_at = inf
        self._stopping = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._doorbell = Waker()

    def watch(self, holding: LeaseState) -> None:
        """Keep this lease from now on."""
        self._ledger.add(holding)
        if holding.due_at < self._wakes_at:
            self._nudge()

    def forget(self, holding: LeaseState) -> None:
        """Keep this lease no more. When this returns, no renewal is sent for it again."""
        self._ledger.drop(holding)
        if self._sending:
            with self._gate:
                pass

    def clean_up_later(self, call: Call) -> None:
        """Send this as soon as the server can be reached."""
        self._errands.append((call, monotonic() + CLEANUP_FOR))
        self._nudge()

    def stop(self) -> None:
        """End the thread and its session; leases run out by themselves."""
        with self._starting:
            self._stopping = True
            thread = self._thread
        if thread is None:
            self._doorbell.close()
        elif thread is not threading.current_thread():
            self._doorbell.ring()
            thread.join(self._response_timeout + UNDO_WAIT)

    def abandon(self) -> None:
        """Forget everything without touching the thread: this is a forked child, it has none."""
        self._stopping = True
        self._session.close()
        self._doorbell.close()

    def _nudge(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name="handfast-keeper", daemon=True)
                thread.start()
                self._thread = thread
                return
        self._doorbell.ring()

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._sleep()
                    self._look()
                except Exception:
                    logger.exception("the keeper of leases stumbled and goes on")
                    self._session.close()
                    time.sleep(TICK)
            self._finish_errands()
        finally:
            self._session.close()
            self._doorbell.close()

    def _sleep(self) -> None:
        """Until something is due, a tick has passed while anything is held, or somebody nudges or rings."""
        busy = bool(self._ledger) or bool(self._errands)
        lazy = self._wakes_at != inf and not busy
        self._wakes_at = inf if lazy else monotonic() + TICK
        # Told first, looked second; who enters a lease does it the other way round, so none is overslept.
        due = self._ledger.next_due()
        if due is not None:
            self._wakes_at = min(due, monotonic() + TICK)
        poll = select.poll()
        poll.register(self._doorbell, select.POLLIN)
        if self._session.is_open:
            poll.register(self._session, select.POLLIN)
        rang = [
            fd for fd, _ in poll.poll(None if self._wakes_at == inf else max(0, self._wakes_at - monotonic()) * 1000)
        ]
        if self._doorbell.fileno() in rang:
            self._doorbell.answer()
        if self._session.is_open and self._session.fileno() in rang:
            self._try(self._session.listen)

    def _look(self) -> None:
        for holding in self._ledger.over(monotonic()):
            self.announce(holding)
        if (self._ledger or self._errands) and not self._session.is_open:
            self._try(self._open)
        if not self._session.is_open:
            self._ledger.due(monotonic())  # puts off what cannot be renewed now
            for errand in [errand for errand in self._errands if monotonic() >= errand[1]]:
                self._errands.remove(errand)  # in place: another thread may be adding one
            return
        self._try(self._renew)
        if self._errands and self._session.is_open:
            self._try(self._do_errands)

    def _open(self) -> None:
        self._session.open(self._patience())
        # While nobody listened, a lease may have been taken away: ask for each.
        for holding in self._ledger.all():
            if holding.permits.renew:
                holding.due_at = monotonic()

    def _renew(self) -> None:
        self._sending = True
        try:
            with self._gate:
                due = self._ledger.due(monotonic())
                if due:
                    calls = [holding.permits.renew_for(holding.token, holding.permits.ttl_ms) for holding in due]
                    sent_at = self._session.send(calls, sources=self._sources, within=self._patience())
        finally:
            self._sending = False
        if due:
            self._settle(due, sent_at, self._session.replies(len(due)))

    def _settle(self, due: list[LeaseState], sent_at: float, replies: list[Any]) -> None:
        self._sources = False
        for holding, reply in zip(due, replies, strict=True):
            if isinstance(reply, ErrorReply):
                if is_noscript(reply):
                    self._sources, holding.due_at = True, monotonic()
                    continue
                logger.warning("could not renew the lease of %r, trying again: %s", holding.permits.name, reply)
                if is_transient(reply):
                    self._session.close()  # a new connection also finds a new primary
            elif reply[0] == b"renewed":
                holding.renewed(sent_at, reply[1])
            elif self._ledger.find(holding.token) is holding:
                self.lose(holding, "the server no longer had it when it was to be renewed")

    def _do_errands(self) -> None:
        errands = list(self._errands)
        replies = self._ask([call for call, _ in errands], sources=False)
        # By their sources only where the server has forgotten them: there are users who may send none.
        unknown = [place for place, reply in enumerate(replies) if isinstance(reply, ErrorReply) and is_noscript(reply)]
        if unknown:
            whole = self._ask([errands[place][0] for place in unknown], sources=True)
            for place, reply in zip(unknown, whole, strict=True):
                replies[place] = reply
        for errand, reply in zip(errands, replies, strict=True):
            goes_on = isinstance(reply, ErrorReply) or (reply[0] != b"lost" and reply[1])
            if not goes_on or monotonic() >= errand[1]:
                self._errands.remove(errand)

    def _finish_errands(self) -> None:
        """What is still to be taken back is tried a little longer, since nobody will after this."""
        until = monotonic() + UNDO_WAIT
        while self._errands and monotonic() < until:
            if not self._session.is_open:
                self._try(partial(self._session.open, until - monotonic()))
            if self._session.is_open:
                self._try(self._do_errands)
            if self._errands:
                time.sleep(PAUSES[1])

    def _ask(self, calls: list[Call], *, sources: bool) -> list[Any]:
        self._session.send(calls, sources=sources, within=self._patience())
        return self._session.replies(len(calls))

    def _patience(self) -> float:
        """How long to wait for the server: no longer than until the next lease ends that is to be renewed."""
        ends = min((holding.deadline for holding in self._ledger.all() if holding.permits.renew), default=inf)
        return min(self._response_timeout, ends - monotonic())

    def _try(self, action: Any) -> None:
        """Do something that the network may prevent; the ledger knows when to try again."""
        try:
            action()
        except RedisError as error:
            logger.debug("the keeper could not reach the server: %s", error)
