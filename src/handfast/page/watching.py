"""Looks at the server in a thread, while the page is open somewhere."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from handfast._watch.live import Key, Live
from handfast._watch.looks import is_of_server
from handfast.errors import ClientClosed, ServerRefused
from handfast.page.board import Board, Outage

if TYPE_CHECKING:
    from handfast import Handfast

__all__ = ["Watching"]

EVERY_S, IDLE_EVERY_S = 1.0, 5.0
"""Seconds from one look to the next, at least: while the page is open, and shortly after."""

REST = 1
"""How many times longer the rest after a look is than the look. A search, which costs the most, rests by itself."""

SLOW_S = 2.0
"""After how long a look counts as one without an answer."""

OPEN_S = 8.0
"""How long after its last question a page counts as open."""

LONGEST_REST_S = 4.0
"""How long that rest is at most."""

MOST_SEEN = 50
"""Names whose holders and waiters pages list at the same time. Of others they show the row."""

LINGER_S = 300.0
"""How long looks go on when no page is open any more: who reloads it, or follows a link to it, finds the last minutes."""

AUDIT_EVERY_S, AUDITED = 3.0, 500
"""How often the audit is read, and how many entries of it are shown."""

NOT_OUTAGES = (ServerRefused, ClientClosed)
"""Errors that are none of the server's health."""

LOG = logging.getLogger("handfast.page")


class Watching:
    """One look a second for all who have the page open, and what it has shown, as a `Board`."""

    def __init__(self, client: Handfast) -> None:
        self.client: Handfast = client
        self.board: Board = Board()
        self._live = Live(client, results=True)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen = dict[Key, float]()
        """The names that pages show, and when they were last asked for."""
        self._asked_at = self._audit_at = 0.0
        self._audit_after: str | None = None
        self._began_at: float | None = None
        """When the look that goes on has begun; None in a rest."""
        self._failed_at: float | None = None
        self._error = ""
        self._is_of_server = True
        self._wakes = threading.Event()

    def ask(self, seen: Key | None) -> None:
        """Look from now on, also at a name that a page shows."""
        now = time.monotonic()
        is_late = now > self._asked_at + OPEN_S
        self._asked_at = now
        if seen is not None and (seen in self._seen or len(self._seen) < MOST_SEEN):
            self._seen[seen] = now
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # in a child process, the parent's is not alive
                self._failed_at = self._began_at = None
                self.board.expire()
                self._thread = threading.Thread(target=self._look_on, name="handfast-page", daemon=True)
                self._thread.start()
        if is_late:
            self.look_soon()

    def look_soon(self) -> None:
        """Look at once: something was done, or a page was opened."""
        self._wakes.set()

    @property
    def outage(self) -> Outage | None:
        """Since when nothing new was seen, and why; None while looks succeed."""
        now, began_at = time.monotonic(), self._began_at
        if self._failed_at is not None:
            return Outage(self.board.looked_at or self._failed_at, now, self._error, is_of_server=self._is_of_server)
        if began_at is not None and now > began_at + SLOW_S and self.board.is_whole:
            error = "The server hangs, or the network does."
            return Outage(self.board.looked_at or began_at, now, error, is_of_server=True)
        return None

    def _look_on(self) -> None:
        while time.monotonic() < self._asked_at + LINGER_S:
            self._wakes.clear()
            self._began_at = began = time.monotonic()
            try:
                self._look()
                self._failed_at = None
            except Exception as error:  # noqa: BLE001 -- a thread that ended would show old things as new ones
                self._fail(error, began)
            self._began_at = None
            took = time.monotonic() - began
            every = EVERY_S if time.monotonic() < self._asked_at + OPEN_S else IDLE_EVERY_S
            self._wakes.wait(max(every - took, min(LONGEST_REST_S, REST * took)))

    def _fail(self, error: Exception, began: float) -> None:
        """Note why a look has failed."""
        is_known = is_of_server(error)
        self._is_of_server = is_known and not isinstance(error, NOT_OUTAGES)
        self._error = str(error) or type(error).__name__
        if self._failed_at is None:
            if not is_known:
                LOG.error("a look has failed", exc_info=error)
            self._failed_at = began

    def _look(self) -> None:
        now = time.monotonic()
        self._seen = {key: at for key, at in [*self._seen.items()] if now < at + OPEN_S}
        view = self._live.step([*self._seen])
        if now >= self._audit_at + AUDIT_EVERY_S:
            self._read_audit()
            self._audit_at = now
        self.board.take(view, [*self._seen])

    def _read_audit(self) -> None:
        try:
            entries = self.client.audit(after=self._audit_after, limit=AUDITED)
        except ServerRefused as error:
            self.board.refuse_audit(str(error))
            return
        self._audit_after = entries[-1].id if entries else self._audit_after
        self.board.add_audit(entries, AUDITED)
