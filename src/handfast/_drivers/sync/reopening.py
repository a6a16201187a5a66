"""A session which is opened on a separate thread: the thread using it may do something else meanwhile.

To look up a name, to ask a credential provider for a password, or to find a Sentinel with an answer may take any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from handfast._drivers.clock import monotonic
from handfast._drivers.failures import server_silent
from handfast._drivers.sync.session import Session

__all__ = ["Reopening"]


class Opening:
    """A try to open a session. ``when_over`` is called on the opening thread if `take` has come too early."""

    def __init__(self, session: Session, within: float, when_over: Callable[[], object]) -> None:
        self.session = session
        self.silent_at = monotonic() + within
        self._within = within
        self._when_over = when_over
        self._over = threading.Event()
        self._is_wanted = True
        self._is_late = False
        self._error: BaseException | None = None
        try:
            threading.Thread(target=self._run, name="handfast-connect", daemon=True).start()
        except RuntimeError:  # there are too many
            self._run()

    def take(self, wait: float) -> Session | None:
        """Return the session, or None if it is not open after ``wait`` seconds.

        Raises the error with which the opening failed.
        """
        if not self._over.wait(wait):
            # `_run` notes that it is over before it looks whether it is late. One of the two always sees the other.
            self._is_late = True
            if not self._over.is_set():
                return None
        if self._error is not None:
            raise self._error
        return self.session

    def abandon(self) -> None:
        """Have nothing stay open: not now, and not later."""
        # As in `take`.
        self._is_wanted = False
        if self._over.is_set():
            self.session.close()

    def _run(self) -> None:
        try:
            self.session.open(self._within)
        except BaseException as error:  # noqa: BLE001 -- raised where it is taken
            self._error = error
        self._over.set()
        if not self._is_wanted:
            self.session.close()
        elif self._is_late:
            self._when_over()


class Reopening:
    """A session, and another after each break. A single thread uses it; ``when_over`` is called on any thread."""

    def __init__(self, make: Callable[[], Session], when_over: Callable[[], object]) -> None:
        self._make = make
        self._when_over = when_over
        self.session = make()
        self._opening: Opening | None = None

    def open(self, within: float, wait: float) -> bool:
        """Open the session, each step within ``within`` seconds. Return whether it is open after ``wait`` seconds.

        If not, it goes on, and ``when_over`` is called when it is to be called again. Raises the errors of the network.
        """
        if self.session.is_open:
            return True
        if self._opening is None:
            self._opening = Opening(self._make(), within, self._when_over)
        opening = self._opening
        try:
            session = opening.take(wait)
        except BaseException:
            self._opening = None
            raise
        if session is None:
            if monotonic() >= opening.silent_at:
                raise server_silent()
            return False
        self._opening, self.session = None, session
        return True

    def close(self) -> None:
        """Close the session, and give up the session being opened."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.abandon()
        self.session.close()

    def hang_up(self) -> None:
        """End the connection, from another thread. The thread using it then finds it broken."""
        opening = self._opening
        for session in (self.session, *([] if opening is None else [opening.session])):
            session.hang_up()
