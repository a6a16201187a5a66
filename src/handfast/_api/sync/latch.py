# Generated from _api/aio/latch.py by tools/unasync.py: edit that file and run the tool.
"""A latch: callers wait until a number of parts of a job are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._api.sync.object import Object
from handfast._engine.validate import key_parts, reply_seconds, wait_seconds
from handfast._naming import name_publicly
from handfast._protocol import latching
from handfast.arguments import Duration, KeyPart
from handfast.errors import WaitTimeout

if TYPE_CHECKING:
    from handfast.records import LatchStatus

__all__ = ["Latch"]


class Latch(Object):
    """A named latch, which opens once `count` parts are done. Made by the client's ``latch()``.

    Parts have names: a worker may die and do a part again, and the part counts once. A latch stays open until `forget` or
    the end of the ttl: take a new name for each round. A latch with a count of 1 is an event.

    Every method may raise ServerRefused and redis-py's connection errors. Threads or tasks may share the object.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        latch = hf.latch("import:2026-11-22", 8)

        latch.done("shard-3")  # in each worker
        latch.wait(timeout=600)
    """

    def done(self, *parts: KeyPart) -> int:
        """Note parts as done. The last part opens the latch, and every waiter goes on.

        Takes a round trip for up to 500 parts, and another for each 100 waiting processes. Safe to repeat.

        Args:
            parts: Names of parts, at least one, of the types that `keyed` takes. Also those beyond
                its own count are noted, for clients with a larger one, up to 100,000.

        Returns:
            How many parts are still to be done.

        Raises:
            TypeError: A part is of another type, or there is none.
            ValueError: A part is out of range.
        """
        return self._driver.run(latching.done(self._request, key_parts(parts, "name")), self.name)

    def wait(self, *, timeout: Duration | None = None) -> None:
        """Wait until `count` parts are done. The tasks of an event loop share a single waiter on the server.

        The server sends a message when the latch opens. In case of a lost message, the client asks every five seconds.

        Args:
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less asks once; None waits indefinitely.

        Raises:
            WaitTimeout: Parts were still to be done: the attribute ``left`` of the error has the number.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        seconds = wait_seconds(timeout)
        tag, *left = self._watch("watch", seconds)
        if tag == b"waits":
            raise WaitTimeout(self.name, seconds or 0, *left)

    def status(self, *, timeout: Duration | None = None) -> LatchStatus:
        """Return the parts done, the number of parts left, and the number of waiters. Takes a round trip.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for. None
                takes the ``socket_timeout`` of the client's settings.
        """
        return self._driver.look(latching.status(self._request), self.name, reply_seconds(timeout))

    def forget(self) -> bool:
        """Close the latch: no part is done any more. Waiters go on waiting.

        Returns:
            True if a part was done.
        """
        return self._driver.run(latching.forget(self._request), self.name)


name_publicly(globals(), "handfast")
