"""Keeps the leases of one client on one event loop: renews them, and tells their holders when they are lost.

It is one timer of the loop and no task: nobody can cancel it by accident, it is still there while the blocks of a program
that ends are left, and nothing of it is pending when the loop goes away. It sets itself to the moment when something is
due next; renewals that are due together leave together.

A lease that is released withdraws its renewal: one that is on its way stays there, but none is sent after that
(invariant 10).

It also runs errands: what could not be taken back in time is taken back as soon as the server answers.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable
from contextvars import Context
from functools import partial
from math import inf
from time import monotonic

from handfast._drivers.aio.loops import call_on
from handfast._drivers.aio.session import Outcome, Session
from handfast._drivers.losses import LossNotifier
from handfast._drivers.timeouts import CLEANUP_FOR
from handfast._engine.effects import Answer, Call
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover
from handfast._protocol.lease import LeaseState, LeaseTable

__all__ = ["Renewer"]

logger = logging.getLogger("handfast")

SHORTEST_NAP = 0.01
"""Seconds between two looks at the ledger at least, however many leases end one after the other."""

ERRAND_PAUSE = 0.5
"""Seconds before an errand that the server refused is tried again."""


class Renewer(LossNotifier):
    """Renews what is in the ledger. ``make_session`` makes the session from what it is to call: revoked, and gap."""

    def __init__(
        self, make_session: Callable[[Callable[[bytes, str], None], Callable[[], None]], Session], ledger: LeaseTable
    ) -> None:
        super().__init__(ledger)
        self.session = make_session(self.revoked, self._ask_for_all)
        self._loop = asyncio.get_running_loop()
        self._renewals: dict[bytes, Future[Outcome]] = {}
        self._errands: set[Future[Outcome | None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._retired = False

    @property
    def is_idle(self) -> bool:
        """Whether no errand is being run."""
        return not self._errands

    def watch(self, holding: LeaseState) -> None:
        """Keep this lease from now on."""
        self._ledger.add(holding)
        if holding.due_at < self._wakes_at:
            self._wake_at(holding.due_at)

    def forget(self, holding: LeaseState) -> None:
        """Keep this lease no more. When this returns, no renewal is sent for it again."""
        self._ledger.drop(holding)
        if self._renewals and (renewal := self._renewals.pop(holding.token, None)) is not None:
            call_on(self._loop, renewal.cancel)

    def clean_up_later(self, call: Call) -> Future[Outcome | None]:
        """Send this as soon as the server can be reached; done when it was done, or None when it was given up."""
        errand: Future[Outcome | None] = self._loop.create_future()
        self._errands.add(errand)
        self._send_errand(call, monotonic() + CLEANUP_FOR, errand)
        return errand

    def retire(self) -> None:
        """Renew no more: leases run out by themselves. Who wants to be told of that still is."""
        self._retired = True
        for holding in self._ledger.all():
            holding.due_at = holding.deadline
            if not holding.callbacks:
                self.forget(holding)

    def end(self) -> None:
        """Keep nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        for holding in self._ledger.all():
            self.forget(holding)

    def _wake_at(self, moment: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._wakes_at = moment
        self._alarm = self._loop.call_later(max(0.0, moment - monotonic()), self._look, context=Context())

    def _look(self) -> None:
        self._alarm, self._wakes_at = None, inf
        now = monotonic()
        try:
            for holding in self._ledger.over(now):
                self.forget(holding)
                self.announce(holding)
            for holding in () if self._retired else self._ledger.due(now):
                if holding.token not in self._renewals:
                    self._renew(holding)
        finally:
            due_at = self._ledger.next_due()
            if due_at is not None and due_at < self._wakes_at:
                self._wake_at(max(due_at, now + SHORTEST_NAP))

    def _renew(self, holding: LeaseState) -> None:
        renewal = self.session.send(holding.permits.renew_for(holding.token, holding.permits.ttl_ms))
        self._renewals[holding.token] = renewal
        renewal.add_done_callback(partial(self._settle, holding, monotonic()))

    def _ask_for_all(self) -> None:
        """While nobody listened, a lease may have been taken away: ask for each."""
        if self._retired:
            return
        for holding in self._ledger.all():
            if holding.permits.renew:
                holding.due_at = monotonic()
        if self._ledger:
            self._wake_at(monotonic())

    def _settle(self, holding: LeaseState, asked_at: float, renewal: Future[Outcome]) -> None:
        if renewal.cancelled():
            return
        self._renewals.pop(holding.token, None)
        error = renewal.exception()
        if error is not None:
            logger.debug("the keeper could not reach the server: %s", error)
            return
        outcome = renewal.result()
        if isinstance(outcome, ErrorReply):
            logger.warning("could not renew the lease of %r, trying again: %s", holding.permits.name, outcome)
            if is_failover(outcome):
                self.session.refresh(asked_at)
        elif outcome.reply[0] == b"renewed":
            holding.renewed(outcome.sent_at, outcome.reply[1])
        elif self._ledger.find(holding.token) is holding:
            self.lose(holding, "the server no longer had it when it was to be renewed")

    def _send_errand(self, call: Call, until: float, errand: Future[Outcome | None]) -> None:
        sent = self.session.send(call, max(0.0, until - monotonic()))
        sent.add_done_callback(partial(self._settle_errand, call, until, errand))

    def _settle_errand(self, call: Call, until: float, errand: Future[Outcome | None], sent: Future[Outcome]) -> None:
        error = sent.exception()
        outcome = None if error else sent.result()
        if error is not None:
            logger.debug("an errand was given up: %s", error)
        elif monotonic() >= until:
            pass
        elif isinstance(outcome, ErrorReply):
            self._loop.call_later(ERRAND_PAUSE, self._send_errand, call, until, errand)
            return
        elif isinstance(outcome, Answer) and outcome.reply[0] != b"lost" and outcome.reply[1]:
            self._send_errand(call, until, errand)
            return
        self._errands.discard(errand)
        if not errand.done():
            errand.set_result(outcome)
