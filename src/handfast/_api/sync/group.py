# Generated from _api/aio/group.py by tools/unasync.py: edit that file and run the tool.
"""A group: processes join, and others see who is there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar

from handfast._api.sync.announced import AnnouncedLease
from handfast._api.sync.inspectable import Inspectable
from handfast._drivers.sync.driver import SyncDriver
from handfast._drivers.sync.looping import Loop
from handfast._engine.calls import PermitRequest
from handfast._engine.objects import ObjectRequest
from handfast._engine.validate import reply_seconds
from handfast._naming import name_publicly
from handfast._objects import BlockOnly
from handfast._protocol import grouping
from handfast._protocol.asking import ObjectAttempt, watch
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnLost

if TYPE_CHECKING:
    from handfast.records import Member

__all__ = ["Group", "Membership"]


class Membership(AnnouncedLease):
    """The lease of a member of a group. It comes from `Group.join`, and the membership ends with it.

    Example:
        with hf.group("workers").join(value="zone=a") as member:
            work(member.fence)
    """

    __slots__ = ()

    _stays: ClassVar[str] = "a group has no adopt(); join it in the other process"


class Group(BlockOnly, Inspectable):
    """A named group: processes join and leave, and others see who is there. Made by the client's ``group()``.

    A member is the holder of a lease, which is renewed while the process lives. After a death the member is listed until
    the lease ends. Members have fences, in the order in which they joined. The object holds nothing itself, so threads or
    tasks may share it, and join several times.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        workers = hf.group("workers")

        with workers.join(value="zone=a") as member:
            for found in workers.members():
                print(found.label, found.value)
    """

    _request: PermitRequest

    def __init__(self, driver: SyncDriver, request: PermitRequest, on_lost: OnLost) -> None:
        self._driver = driver
        self._request = request
        self._on_lost = on_lost
        self._watched = ObjectRequest(request.place)

    def join(self, *, value: str = "") -> Membership:
        """Join the group. Takes a round trip, and never waits for others.

        If this raises, is cancelled or is interrupted, no member remains on the server. If the server can't be reached
        then, the member is removed in the background when the server answers again.

        Args:
            value: Text that others see of this member, such as an address: up to 1 KiB of UTF-8.

        Returns:
            The lease of the member. Enter it with ``with``, or release it to leave the group.

        Raises:
            TypeError: ``value`` is no str.
            ValueError: ``value`` is too long.
            ServerRefused: The server is out of memory, read-only, or lacks permissions.
        """
        attempt = self._driver.attempt(self._request.showing(value))
        try:
            return self._lease(self._driver.acquire(attempt, None))
        except BaseException as error:
            self._driver.undo(attempt, error)
            raise

    def members(self, *, timeout: Duration | None = None) -> tuple[Member, ...]:
        """Return the members at an instant of the server, in the order in which they joined. Takes a round trip.

        At most 10,000 members are listed, dead members included whose leases have not ended; `size` counts all.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(grouping.look(self._request), self.name, reply_seconds(timeout))

    def size(self, *, timeout: Duration | None = None) -> int:
        """Return how many members there are. Takes a round trip, of the same size for any number.

        Args:
            timeout: As in `members`.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(grouping.size(self._request), self.name, reply_seconds(timeout))

    def watch(self) -> Iterator[tuple[Member, ...]]:
        """Yield the members, now and after each change.

        Members announce when they come and go. A death shows at the end of the lease. Changes within 50 ms count as
        a single change. A message may be lost, so the server is also asked every five seconds. During an outage nothing is
        yielded: it is logged, and the server asked again for as long as the process lives.

        Example:
            for members in workers.watch():
                print(len(members))

        Returns:
            An iterator over tuples as from `members`, which is asynchronous in the asyncio API.

        Raises:
            ClientClosed: The client was closed.
        """
        known, listed, loop = grouping.NOTHING, None, Loop(self._driver, "group", self.name)
        while True:
            known, members = loop.ask(partial(self._following, known, inf))
            if members is None:
                return  # there is no server
            if (fences := [one.fence for one in members]) != listed:  # not so if one has come and gone meanwhile
                listed = fences
                yield members

    def _following(self, known: grouping.Seen, until: float) -> tuple[grouping.Seen, tuple[Member, ...] | None]:
        """Wait for others than the known members, until ``until`` at most. Return them; None if there are no others."""
        request = self._watched.having(**known._asdict(), shown=grouping.MAX_MEMBERS)
        attempt = self._driver.begin(ObjectAttempt, request)
        steps = partial(watch, attempt, "watch", has_end=True, pause=grouping.PAUSE_S)
        answer = self._driver.watch(attempt, steps, until)
        if answer.fields[0] == b"waits" or grouping.seen(answer) == known:
            return known, None
        return grouping.seen(answer), grouping.members(answer)

    def _lease(self, state: LeaseState) -> Membership:
        return Membership(self._driver, state, self._on_lost, partial(self._announce, state))

    def _announce(self, state: LeaseState, _why: str) -> None:
        """Send a message to all watchers, in the background."""
        self._driver.perform_later(state, grouping.ring(self._watched))


name_publicly(globals(), "handfast")
