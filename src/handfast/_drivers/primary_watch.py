"""Hear from a Sentinel of a switch to another primary: the part that the watches of both drivers share.

A connection to one Sentinel is kept, the first that names the primary in the order in which the client library asks
them. So the Sentinel that tells of a new primary is also asked first for the address.
"""

from __future__ import annotations

from redis.exceptions import ResponseError

from handfast._drivers import log
from handfast._drivers.connect import Connector
from handfast._engine.resp import ErrorReply, Push
from handfast._engine.sentinel import address_in, question, subscription

__all__ = ["ASK_EVERY_S", "PAUSE_S", "News"]

ASK_EVERY_S = 5.0
"""Time between two questions for the primary, in seconds. They find out that a Sentinel is gone, and what its messages
did not tell.

If no Sentinel can be used, all are tried again after as long."""

PAUSE_S = 1.0
"""Pause before another connection is opened when one broke, in seconds."""


class News:
    """The news from the Sentinels of a service so far."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._service = connector.service or ""
        self._address = ""
        self._failures: list[Exception] = []
        """Of the Sentinels, since one has told anything."""
        self._warned = False
        self.question = question(self._service)
        self.has_answered = False
        """Whether the Sentinel that was greeted last has named the primary."""

    def greet(self) -> bytes:
        """Return the first commands on a new connection to a Sentinel."""
        self.has_answered = False
        return subscription() + self.question

    def is_switch(self, frame: object) -> bool:
        """Return whether a frame says that another server is the primary now.

        A message always does: a Sentinel names the new primary in its answers some 50 ms before it sends the message,
        and connections through the client library still go to the old primary. An answer does if it names another
        primary than before. The first answer may come after the message: it does if a connection was made to another
        primary.

        Raises redis.exceptions.ResponseError if the Sentinel refuses to tell, or does not know the service.
        """
        if frame is None or isinstance(frame, ErrorReply):
            raise ResponseError(frame or f"it does not know {self._service!r}")
        address = address_in(frame, self._service)
        if address is None:
            return False
        self.has_answered, self._warned = True, False
        self._failures.clear()
        before, self._address = self._address, address
        known = {before} if before else self._connector.primaries
        if not isinstance(frame, Push) and known <= {address}:
            return False
        self._connector.switches += 1
        self._connector.primaries.clear()
        log.new_primary(self._service, address)
        return True

    def note_failure(self, error: Exception) -> None:
        """Note why a Sentinel told nothing, or tells nothing more."""
        self._failures.append(error)

    def warn(self) -> None:
        """Warn, once, about Sentinels of which none tells anything."""
        failures, self._failures = dict.fromkeys(map(str, self._failures)), []
        if not self._warned:
            self._warned = True
            log.sentinels_silent(self._service, failures)
