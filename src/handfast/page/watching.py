"""Looks at the server in a thread, while the page is open somewhere."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from handfast._watch.live import Live, View
from handfast._watch.looker import EVERY_S, REST, SLOW_S, Looker, is_known
from handfast._watch.rows import Key
from handfast.errors import ServerRefused
from handfast.page.board import Board

if TYPE_CHECKING:
    from handfast import Handfast

__all__ = ["Watching"]

IDLE_EVERY_S = 5.0
"""Seconds between two looks while no page is open any more."""

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

LOG = logging.getLogger("handfast.page")


class Watching:
    """One look a second for all who have the page open, and the results, as a `Board`."""

    def __init__(self, client: Handfast) -> None:
        self.client: Handfast = client
        self.board: Board = Board()
        self._live = Live(client, results=True)
        self._seen = dict[Key, float]()
        """The names that pages show, and when they were last asked for."""
        self._asked_at = self._audit_at = 0.0
        self._audit_after: str | None = None
        self.looker: Looker[View] = Looker(
            "handfast-page",
            self._look,
            lambda view: self.board.take(view, [*self._seen]),
            every=lambda: EVERY_S if time.monotonic() < self._asked_at + OPEN_S else IDLE_EVERY_S,
            rests=REST,
            longest_rest=LONGEST_REST_S,
            slow=SLOW_S,
            on_change=_log,
            goes_on=lambda: time.monotonic() < self._asked_at + LINGER_S,
        )

    def ask(self, seen: Key | None) -> None:
        """Look from now on, also at a name shown by a page."""
        now = time.monotonic()
        is_late = now > self._asked_at + OPEN_S
        self._asked_at = now
        if seen is not None and (seen in self._seen or len(self._seen) < MOST_SEEN):
            self._seen[seen] = now
        self.looker.start(before=self.board.expire)
        if is_late:
            self.looker.look_soon()

    def _look(self) -> View:
        now = time.monotonic()
        self._seen = {key: at for key, at in [*self._seen.items()] if now < at + OPEN_S}
        view = self._live.step([*self._seen])
        if now >= self._audit_at + AUDIT_EVERY_S:
            self._read_audit()
            self._audit_at = now
        return view

    def _read_audit(self) -> None:
        try:
            entries = self.client.audit(after=self._audit_after, limit=AUDITED)
        except ServerRefused as error:
            self.board.refuse_audit(str(error))
            return
        self._audit_after = entries[-1].id if entries else self._audit_after
        self.board.add_audit(entries, AUDITED)


def _log(error: Exception | None) -> None:
    """Log a fault of ours: an error of the server is shown on the page."""
    if error is not None and not is_known(error):
        LOG.error("a look has failed", exc_info=error)
