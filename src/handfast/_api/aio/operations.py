"""The acts of operators on names, whichever objects use them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

# sync only: import time
from typing import TYPE_CHECKING

from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.clock import monotonic, unix_time
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.moments import microseconds
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import (
    MAX_REASON_BYTES,
    check_choice,
    check_int,
    check_reason,
    grace_milliseconds,
    milliseconds,
    utf8,
)
from handfast._protocol import admin, auditing
from handfast.arguments import Duration, HeldKind

if TYPE_CHECKING:
    from handfast.records import AuditEntry, Hold

__all__ = ["AsyncOperations"]

MAX_FENCE = 2**53
"""Upper bound of a fence: the server counts in doubles."""

ASK_AGAIN_S = 1.0
"""How often the holders are asked to end, in seconds: a message may be lost."""


class AsyncOperations:
    """Holds on names, and the audit."""

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
        """Grant no requests under a name for a while: before a migration, or while something is broken.

        Holders go on, and renew their leases. Requests wait in the queue, keep their places, and are served when the hold
        ends, by itself or by `unhold`. Without a wait they raise AcquireTimeout, with who holds it and why. A second hold
        takes the place of the first. For a limiter, see `Limiter.pause`.

        Example:
            await hf.hold("reindex", 7200, reason="DB migration")

        Args:
            name: The name of the object, as in the attribute ``name``: of a key of `once`, ``name|key``.
            duration: Seconds (a number or a timedelta), from 0.001 s to 366 days.
            kind: The kind of the object: "lock" (also of `rlock` and `lock_all`), "semaphore", "rwlock", "election" or
                "once".
            reason: Why, for those who wait and for `status`: 1 to 1,000 bytes of UTF-8.
            now: Ask the holders to end, as `Lock.preempt` does, and take their leases if they have not after ``grace``.
                Returns when all are gone, however many, or when another operator has ended this hold or set another.
            grace: Seconds that the holders have then: a number or a timedelta, from 0 to 366 days.

        Returns:
            The hold.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example because it is read-only.
        """
        from datetime import UTC, datetime

        from handfast.records import Hold

        request, ttl_ms = self._permits(kind, name), milliseconds(duration, "duration")
        grace_ms, by, began = grace_milliseconds(grace), self._driver.label, monotonic()
        until_us = await self._driver.run(admin.hold(request, ttl_ms, check_reason(reason), by), name)
        if now:
            await self._ask_to_end({request: until_us}, grace_ms, reason)
        until = datetime.fromtimestamp(until_us / 1e6, UTC)
        return Hold(until, max(0.0, ttl_ms / 1000 - (monotonic() - began)), by, reason)

    async def _ask_to_end(self, held: Mapping[PermitRequest, int], grace_ms: int, reason: str) -> None:
        """Ask the holders of names to end that are on hold until these times, in microseconds. Returns when all are gone."""
        left = dict(held)
        while left:
            pause = ASK_AGAIN_S
            for request, until_us in held.items():
                if request in left:
                    steps = admin.ask_to_end(request, until_us, grace_ms, reason, self._driver.label)
                    left_us = await self._driver.run(steps, request.name)
                    if left_us is None:
                        del left[request]
                    else:
                        pause = min(pause, left_us / 1e6 + 0.001)
            if left:
                await asyncio.sleep(pause)

    async def unhold(
        self, name: str, *, kind: HeldKind = "lock", reason: str = "released", only: Hold | None = None
    ) -> bool:
        """End the hold on a name, also that of another operator, and serve the queue.

        It ends the hold in force at the time of the call: a hold set by another operator meanwhile goes on.

        Example:
            hold = hf.lock("report").status().hold
            if hold and ask(f"End this: {hold}?"):
                hf.unhold("report", only=hold)

        Args:
            name: As in `hold`.
            kind: As in `hold`.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8.
            only: End this hold, and no other: as `hold` or a ``status()`` has returned it. By default whichever there
                is.

        Returns:
            True if the hold was ended; False if there was none, or another hold goes on.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example because it is read-only.
        """
        from handfast.records import Hold

        if only is not None and not isinstance(only, Hold):
            raise TypeError(f"only must be a Hold or None, not {only!r}")
        shown_us = None if only is None else microseconds(only.until)
        steps = admin.unhold(self._permits(kind, name), check_reason(reason), self._driver.label, shown_us)
        return await self._driver.run(steps, name) == "done"

    async def note(
        self,
        what: str,
        name: str,
        *,
        kind: str,
        reason: str,
        count: int | None = None,
        fence: int | None = None,
        rates: str | None = None,
        permits: int | None = None,
        duration: Duration | None = None,
        now: bool = False,
        single: bool = False,
    ) -> None:
        """Write an operator's act into the audit, after it was done: see `audit`.

        The command ``handfast`` does it with each act. The methods of objects do not, since programs call them, too:
        call it where your program acts for an operator.

        Example:
            if await hf.lock("report").force_release(reason="hangs"):
                await hf.note("release", "report", kind="lock", reason="hangs")

        Args:
            what: The act, in a word such as "release": 1 to 1,000 bytes of UTF-8.
            name: The name of the object.
            kind: The kind of the object.
            reason: Why: 1 to 1,000 bytes of UTF-8.
            count: How many leases it concerned; None where that says nothing.
            fence: Up to which fence leases were taken, or with ``single`` the fence of the lease; None where none were.
            rates: The rates that were set, as text, or the limit of a budget; empty where the values of the clients
                count again, None where none were set.
            permits: The limit that was set; None where none was.
            duration: For how long a name was put on hold or paused, in seconds (a number or a timedelta), from 0.001 s to 366
                days; None where it was not.
            now: Whether the holders were asked to end.
            single: Whether only the lease with this fence was taken.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or ``single`` comes without ``fence``.
            ServerRefused: The server refused, for example for lack of permissions.
        """
        if single and fence is None:
            raise ValueError("single says that one lease was taken; give its fence, too")
        utf8(what, "what", MAX_REASON_BYTES)
        utf8(kind, "kind", MAX_REASON_BYTES)
        utf8(name, "a name")
        numbers = {"count": count, "fence": fence, "permits": permits}
        given: dict[str, str | int]
        given = {key: check_int(value, key, MAX_FENCE, least=0) for key, value in numbers.items() if value is not None}
        # An empty text is a value of its own: the clients' rates count again.
        if rates:
            utf8(rates, "rates", MAX_REASON_BYTES)
        if rates is not None:
            given["rates"] = rates
        if duration is not None:
            given["duration_ms"] = milliseconds(duration, "duration")
        # A flag is there or not: a client of another version passes over fields that it does not know.
        if now:
            given["now"] = 1
        if single:
            given["single"] = 1
        fields = {"what": what, "kind": kind, "name": name, "by": self._driver.label, "why": check_reason(reason)}
        await self._driver.run(auditing.note(self._namespace, {**fields, **given}), name)
        # Behind the entry: listeners hear only of acts that stand in the audit.
        if (dispatcher := self._driver.events.dispatcher) is not None:
            seconds = None if duration is None else int(given["duration_ms"]) / 1000
            dispatcher.operated(
                **fields,
                count=count,
                fence=fence,
                rates=rates,
                permits=permits,
                duration=seconds,
                now=now,
                single=single,
            )

    async def audit(
        self, *, since: Duration | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """Return what operators did in this namespace, in the order of time. The server keeps the last 10,000 entries.

        Example:
            for entry in await hf.audit(since=timedelta(days=7)):
                print(entry)

        Args:
            since: How far back, in seconds (a number or a timedelta) by the clock of this machine. None does not limit it.
            after: The id of an entry: those after it, the oldest first. Without it, the newest are returned.
            limit: How many entries at most, from 1 to 10,000.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or both ``since`` and ``after`` are given.
            ServerRefused: The server refused, for example for lack of permissions.
        """
        check_int(limit, "limit", auditing.MAX_ENTRIES)
        if since is not None and after is not None:
            raise ValueError("since and after say both where to begin; give one of them")
        if after is not None and not (isinstance(after, str) and re.fullmatch(r"[0-9]{1,19}-[0-9]{1,19}", after)):
            raise ValueError(f"after must be the id of an entry, not {after!r}")
        begin = after or "0-0"
        if since is not None:
            begin = f"{max(0, round(unix_time() * 1000) - milliseconds(since, 'since'))}-0"
        steps = auditing.read(self._namespace, begin, limit, newest=after is None)
        return tuple(await self._driver.look(steps, "audit"))

    def _permits(self, kind: HeldKind, name: str) -> PermitRequest:
        check_choice(kind, "kind", HeldKind)
        return PermitRequest(KeySet.of_shown(self._namespace, kind, name), LeaseOptions(1, renew=False))
