"""A latch: callers wait until so many parts of a job are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handfast._api.aio.object import AsyncObject
from handfast._engine.validate import key_parts, reply_seconds, wait_seconds
from handfast._naming import name_publicly
from handfast._protocol import latching
from handfast.arguments import Duration, KeyPart
from handfast.errors import WaitTimeout

if TYPE_CHECKING:
    from handfast.records import LatchStatus

__all__ = ["AsyncLatch"]


class AsyncLatch(AsyncObject):
    """A named latch, which opens once so many parts are done. Made by the client's ``latch()``.

    A part has a name, so a worker that dies and does a part again counts once. Nothing closes a latch but `forget` and the
    end of its ttl: take a new name for each round. A latch of one part is an event.

    Every method may raise ServerRefused and redis-py's connection errors. Threads or tasks may share the object.

    Example:
        latch = hf.latch("import:2026-11-22", 8)

        await latch.done("shard-3")  # in each worker
        await latch.wait(timeout=600)
    """

    async def done(self, *parts: KeyPart) -> int:
        """Note that parts are done. Who waits goes on at once when they were the last ones.

        Takes one round trip for up to 500 parts, and one more for each 100 processes that wait. May be called again.

        Args:
            parts: Names of parts, at least one, as `keyed` takes them. An open latch notes no others.

        Returns:
            How many parts are still to be done.

        Raises:
            TypeError: A part is of another type, or there is none.
            ValueError: A part is out of range.
        """
        return await self._driver.run(latching.done(self._request, key_parts(parts, "name")), self.name)

    async def wait(self, *, timeout: Duration | None = None) -> None:
        """Wait until so many parts are done. All that wait in one event loop ask together.

        Who waits gets a message, and asks every five seconds in case that is lost.

        Args:
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less asks once; None waits indefinitely.

        Raises:
            WaitTimeout: Parts were still to be done; its ``left`` says how many.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        seconds = wait_seconds(timeout)
        tag, *left = await self._watch("watch", seconds)
        if tag == b"waits":
            raise WaitTimeout(self.name, seconds or 0, *left)

    async def status(self, *, timeout: Duration | None = None) -> LatchStatus:
        """Return which parts are done, how many are left, and how many wait. Takes one round trip.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for. None
                takes the ``socket_timeout`` of the client's settings.
        """
        return await self._driver.look(latching.status(self._request), self.name, reply_seconds(timeout))

    async def forget(self) -> bool:
        """Close the latch: no part is done any more. Who waits, waits on.

        Returns:
            True if a part was done.
        """
        return await self._driver.run(latching.forget(self._request), self.name)


name_publicly(globals(), "handfast")
