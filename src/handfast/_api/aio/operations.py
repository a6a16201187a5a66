"""What operators do with names, whichever objects use them."""

from __future__ import annotations

import asyncio

# sync only: import time
from typing import TYPE_CHECKING

from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.clock import monotonic
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import SEPARATOR, KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import check_choice, check_reason, grace_milliseconds, milliseconds
from handfast._protocol import admin
from handfast._protocol.overtaking import NO_GRACE
from handfast.arguments import Duration, HeldKind

if TYPE_CHECKING:
    from handfast.records import Hold

__all__ = ["AsyncOperations"]

ASK_AGAIN_S = 1.0
"""How often the holders are asked to end, in seconds: a message may be lost."""


class AsyncOperations:
    """Holds on names."""

    _driver: AsyncDriver
    _namespace: str

    async def hold(
        self,
        name: str,
        duration: Duration,
        *,
        kind: HeldKind = "lock",
        reason: str,
        now: bool = False,
        grace: Duration = 10.0,
    ) -> Hold:
        """Let no one in under a name for a while: before a migration, or while something is broken.

        Holders go on, and renew their leases. Requests wait in the queue, keep their places, and are served when the hold
        ends, by itself or by `unhold`. Without a wait they raise AcquireTimeout, with who holds it and why. A second hold
        takes the place of the first. For a limiter, see `Limiter.pause`.

        Example:
            await hf.hold("reindex", 7200, reason="DB migration")

        Args:
            name: The name of the object; of a key of `once`, ``name|key``.
            duration: Seconds (a number or a timedelta), from 0.001 s to 366 days.
            kind: What it is the name of: "lock" (also of `rlock` and `lock_all`), "semaphore", "rwlock", "election" or
                "once".
            reason: Why, for those who wait and for `status`: 1 to 1,000 bytes of UTF-8.
            now: Ask the holders to end, as `Lock.preempt` does, and take their leases if they have not after ``grace``. Returns
                when they are gone.
            grace: Seconds that the holders have then: a number or a timedelta, from 0 to 366 days.

        Returns:
            The hold.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        from datetime import UTC, datetime

        from handfast.records import Hold

        request, ttl_ms = self._permits(kind, name), milliseconds(duration, "duration")
        grace_ms, by, began = grace_milliseconds(grace), self._driver.label, monotonic()
        until_us, _, left_us = await self._driver.run(
            admin.hold(request, ttl_ms, grace_ms if now else NO_GRACE, check_reason(reason), by), name
        )
        while left_us >= 0:
            await asyncio.sleep(min(ASK_AGAIN_S, left_us / 1e6 + 0.001))
            left_ms = ttl_ms - round((monotonic() - began) * 1000)
            if left_ms <= 0:
                break
            _, _, left_us = await self._driver.run(admin.hold(request, left_ms, grace_ms, reason, by), name)
        until = datetime.fromtimestamp(until_us / 1e6, UTC)
        return Hold(until, max(0.0, ttl_ms / 1000 - (monotonic() - began)), by, reason)

    async def unhold(self, name: str, *, kind: HeldKind = "lock", reason: str = "released") -> bool:
        """End the hold on a name, also that of another operator, and serve the queue.

        Args:
            name: As in `hold`.
            kind: As in `hold`.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8.

        Returns:
            True if there was a hold.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example because it is read-only.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return await self._driver.run(
            admin.unhold(self._permits(kind, name), check_reason(reason), self._driver.label), name
        )

    def _permits(self, kind: HeldKind, name: str) -> PermitRequest:
        check_choice(kind, "kind", HeldKind)
        plain, *parts = name.split(SEPARATOR) if kind == "once" and isinstance(name, str) else (name,)
        return PermitRequest(KeySet(self._namespace, kind, plain, tuple(parts)), LeaseOptions(1, renew=False))
