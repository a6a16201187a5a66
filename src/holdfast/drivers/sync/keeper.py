"""One thread that keeps the leases of one client: it renews them, and tells their holders when they are lost.

It sleeps on a pipe and on its own session, whose inbox is the client's home: there the server rings when an operator
takes a lease away. Entering a lease in the ledger costs no system call: the thread looks by itself at least every half
a second while anything is held, and is nudged only for what is due sooner. Its connection is made when a lease first
lives to be looked at; a program that holds locks for milliseconds never pays for it.

No renewal is sent for a token after its release has returned (invariant 10): collecting what is due and sending it
happen behind one gate, a release strikes its lease out of the ledger first, and passes through the gate second.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from holdfast.drivers.sync.doorbell import Doorbell
from holdfast.drivers.sync.session import Session
from holdfast.protocol.holding import Holding, Ledger
from holdfast.wire.refusals import forgotten
from holdfast.wire.resp import ErrorReply

__all__ = ["Keeper"]

logger = logging.getLogger("holdfast")

TICK = 0.5
"""Seconds between two looks at the ledger while something is held."""

SHORTEST_TIMEOUT = 0.02
"""Seconds that even a renewal just before its deadline is given."""


class Keeper:
    """Renews what is in the ledger. ``make_session`` makes the session that listens to the client's home."""

    def __init__(
        self, make_session: Callable[[Callable[[bytes, str], None]], Session], ledger: Ledger, response_timeout: float
    ) -> None:
        self._session = make_session(self.revoked)
        self._ledger = ledger
        self._response_timeout = response_timeout
        self._gate = threading.Lock()
        self._sending = False
        self._sources = False
        self._wakes_at = inf
        self._stopping = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._doorbell = Doorbell()

    def watch(self, holding: Holding) -> None:
        """Keep this lease from now on."""
        self._ledger.add(holding)
        if holding.due_at < self._wakes_at:
            self._nudge()

    def forget(self, holding: Holding) -> None:
        """Keep this lease no more. When this returns, nothing is sent for it again."""
        self._ledger.drop(holding)
        if self._sending:
            with self._gate:
                pass

    def revoked(self, token: bytes, reason: str) -> None:
        """The server rang: an operator took this lease away."""
        holding = self._ledger.find(token)
        if holding is not None:
            self._lose(holding, reason)

    def stop(self) -> None:
        """End the thread and its session; leases run out by themselves."""
        with self._starting:
            self._stopping = True
            thread = self._thread
        if thread is None:
            self._doorbell.close()
        elif thread is not threading.current_thread():
            self._doorbell.ring()
            thread.join(self._response_timeout)

    def abandon(self) -> None:
        """Forget everything without touching the thread: this is a forked child, it has none."""
        self._stopping = True
        self._session.close()
        self._doorbell.close()

    def _nudge(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)
                self._thread.start()
                return
        self._doorbell.ring()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._sleep()
                self._look()
        finally:
            self._session.close()
            self._doorbell.close()

    def _sleep(self) -> None:
        """Until something is due, a tick has passed while anything is held, or somebody nudges or rings."""
        lazy = self._wakes_at != inf and not self._ledger
        self._wakes_at = inf if lazy else monotonic() + TICK
        # Told first, looked second; who enters a lease does it the other way round, so none is overslept.
        due = self._ledger.next_due()
        if due is not None:
            self._wakes_at = min(due, monotonic() + TICK)
        watched: list[Doorbell | Session] = (
            [self._doorbell, self._session] if self._session.is_open else [self._doorbell]
        )
        timeout = None if self._wakes_at == inf else max(0, self._wakes_at - monotonic())
        ready = select.select(watched, [], [], timeout)[0]
        if self._doorbell in ready:
            self._doorbell.answer()
        if self._session in ready:
            self._try(self._session.listen)

    def _look(self) -> None:
        for holding in self._ledger.over(monotonic()):
            self._tell(holding)
        if self._ledger and not self._session.is_open:
            self._try(self._open)
        if not self._session.is_open:
            self._ledger.due(monotonic())  # puts off what cannot be renewed now
        else:
            self._try(self._renew)

    def _open(self) -> None:
        self._session.open(self._patience())
        # While nobody listened, a lease may have been taken away: ask for each.
        for holding in self._ledger.all():
            if holding.permits.renew:
                holding.due_at = monotonic()

    def _renew(self) -> None:
        self._sending = True
        with self._gate:
            due = self._ledger.due(monotonic())
            if due:
                calls = [holding.permits.renew_for(holding.token, holding.permits.ttl_ms) for holding in due]
                sent_at = self._session.send(calls, sources=self._sources, timeout=self._patience())
        self._sending = False
        if due:
            self._settle(due, sent_at, self._session.replies(len(due)))

    def _settle(self, due: list[Holding], sent_at: float, replies: list[Any]) -> None:
        self._sources = False
        for holding, reply in zip(due, replies, strict=True):
            if isinstance(reply, ErrorReply):
                if forgotten(reply):
                    self._sources, holding.due_at = True, monotonic()
                else:
                    logger.warning("could not renew the lease of %r, trying again: %s", holding.permits.name, reply)
            elif reply[0] == b"renewed":
                holding.renewed(sent_at, reply[1])
            elif self._ledger.find(holding.token) is holding:
                self._lose(holding, "the server no longer had it when it was to be renewed")

    def _patience(self) -> float:
        """How long to wait for the server: no longer than until the next lease ends."""
        ends = min((holding.deadline for holding in self._ledger.all()), default=inf)
        return max(SHORTEST_TIMEOUT, min(self._response_timeout, ends - monotonic()))

    def _try(self, action: Any) -> None:
        """Do something that the network may prevent; the ledger knows when to try again."""
        try:
            action()
        except RedisError as error:
            self._sending = False
            logger.debug("the keeper could not reach the server: %s", error)

    def _lose(self, holding: Holding, reason: str) -> None:
        self._ledger.lose(holding, reason)
        self._tell(holding)

    def _tell(self, holding: Holding) -> None:
        logger.warning("lost the lease of %r with fence %d: %s", holding.permits.name, holding.fence, holding.loss)
        callbacks, holding.callbacks = holding.callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                logger.exception("a callback for the lost lease of %r failed", holding.permits.name)
