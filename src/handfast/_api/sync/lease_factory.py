# Generated from _api/aio/lease_factory.py by tools/unasync.py: edit that file and run the tool.
"""The part of the client that makes objects with leases: locks, elections, groups and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Never
from weakref import WeakSet

from handfast._api.decorators import check_called_here
from handfast._api.foreign import unknown_options
from handfast._api.nesting import Nesting
from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._api.sync.lock import Lock
from handfast._api.sync.lock_all import LockAll
from handfast._api.sync.rlock import RLock
from handfast._api.sync.rwlock import RWLease, RWLock
from handfast._api.sync.semaphore import Semaphore
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.defaults import (
    DEFAULT_MAX_WAITERS,
    DEFAULT_REPLICA_TIMEOUT_S,
    DEFAULT_TERM_S,
    DEFAULT_TTL_S,
)
from handfast._engine.effects import Acknowledgement
from handfast._engine.keys import KeySet, empty_channel
from handfast._engine.options import lease_options, waiting
from handfast._engine.validate import check_choice, check_int, milliseconds, replica_milliseconds
from handfast._kinds import MAX_PERMITS
from handfast.arguments import Duration, Items, OnLost

if TYPE_CHECKING:
    from handfast._api.sync.election import Election
    from handfast._api.sync.group import Group
    from handfast._api.sync.limiter import Limiter
    from handfast._api.sync.partition import Partition
    from handfast._api.sync.rwlock import ReadLock, WriteLock
    from handfast._api.sync.together import Together

__all__ = ["LeaseFactory"]

MAX_REPLICAS = 100
"""Upper bound of ``min_replicas``."""

MAX_NAMES = 100
"""Upper bound of the names of one ``lock_all()``: its script goes through all of them in one step of the server."""


class LeaseFactory:
    """The objects that are held with a lease."""

    _driver: SyncDriver
    _namespace: str
    _reentrant_holds: PerCaller[ReentrantHold]
    _nesting: Nesting
    _entered_rw_leases: PerCaller[WeakSet[RWLease]]

    def lock(
        self,
        name: str,
        *_args: Never,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        yields: bool = True,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        head_start: Duration = 0.0,
        at_least: Duration | None = None,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> Lock:
        """Return the lock of a name: one holder at a time, first come first served. No I/O.

        Example:
            with hf.lock("orders:42", ttl=10) as lease:
                ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the lock if they use the same namespace and name.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366
                days: how long the name stays taken after the holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when the lease is lost: "raise" LeaseLost, or "warn" with a
                RuntimeWarning when the block ends.
            yields: Whether a later request that asks the holder to end (see `Lock.preempt`) cancels the holder's
                ``with`` block, and has `Lease.check` raise. With False the holder is only told, by `Lease.wanted` and
                `Lease.wanted_event`; the lease ends with the grace all the same. Nor does it interrupt with
                ``on_lost="warn"``.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another
                limit: a number or a timedelta; 0 or less does not wait. None, or more than 366 days, waits
                indefinitely.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a request counts as earlier than
                it came, unless ``acquire()`` is given another head start: for urgent work. A request passes those who
                came within that time, but not those who waited longer. It takes nothing from the holder.
            at_least: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the name stays taken since
                a lease was granted, by the server's clock, even if the holder releases it earlier or dies. For work to
                be run once a period on machines whose clocks differ: choose a little less than the period. None frees
                the name at once.
            max_hold: Seconds (a number or a timedelta), from 0.001 s to 366 days, after which the lease ends whatever
                the holder does: it is not renewed any longer, and lost. This guards against a holder that hangs and
                lives. No ``ttl`` is longer than that. None renews it without a limit.
            min_replicas: How many replicas must have a grant or a renewal before it counts, from 1 to 100; 0 does not
                ask. With it, a lease survives the loss of the primary if a replica with the lease takes over. It costs
                a round trip for each grant.
            replica_timeout: Seconds (a number or a timedelta) that the server waits for these replicas: from 0.2 s to a
                third of ``ttl`` and half of the ``socket_timeout`` of the client's settings. A longer wait raises
                NotReplicated.

        Returns:
            The lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.lock, _args, _options)
        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters, head_start)
        options = lease_options(
            ttl, waits, acknowledgement, renew=renew, yields=yields, max_hold=max_hold, at_least=at_least
        )
        permits = PermitRequest(KeySet(self._namespace, "lock", name), options)
        return Lock(self._driver, permits, check_choice(on_lost, "on_lost", OnLost))

    def rlock(  # noqa: D417 -- as for `lock`
        self,
        name: str,
        *_args: Never,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        yields: bool = True,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        head_start: Duration = 0.0,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> RLock:
        """Return the reentrant lock of a name: the thread or task that holds it may acquire it again. No I/O.

        It excludes holders of ``lock()`` of the same name, and the other way round.

        The other options are those of `lock`.

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the lock if they use the same namespace and name.

        Returns:
            The reentrant lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.rlock, _args, _options)
        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters, head_start)
        options = lease_options(ttl, waits, acknowledgement, renew=renew, yields=yields, max_hold=max_hold)
        permits = PermitRequest(KeySet(self._namespace, "lock", name), options)
        return RLock(self._driver, permits, check_choice(on_lost, "on_lost", OnLost), self._reentrant_holds)

    def lock_all(  # noqa: D417 -- as for `lock`
        self,
        names: Iterable[str],
        *_args: Never,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> LockAll:
        """Return the locks of several names, to be acquired together: all of them or none. No I/O.

        Example:
            with hf.lock_all(["account:1", "account:2"]) as lease:
                ...

        The other options are those of `lock`.

        Args:
            names: 1 to 100 names, each as in `lock`, in any order. A repeated name counts once. In a cluster, the names
                of a slot are acquired in one step, and the slots one after the other; see `LockAll`.

        Returns:
            The locks as one object. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.lock_all, _args, _options)
        if isinstance(names, str):
            raise TypeError(f"names must be several names, not the str {names!r}; use lock() for one name")
        places = [KeySet(self._namespace, "lock", name) for name in dict.fromkeys(names)]
        check_int(len(places), "the number of names", MAX_NAMES)
        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters)
        options = lease_options(ttl, waits, acknowledgement, renew=renew, max_hold=max_hold)
        return LockAll(self._driver, MultiRequest(places, options), check_choice(on_lost, "on_lost", OnLost))

    def semaphore(  # noqa: D417 -- as for `lock`
        self,
        name: str,
        limit: int,
        *_args: Never,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        yields: bool = True,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        head_start: Duration = 0.0,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> Semaphore:
        """Return the semaphore of a name: up to ``limit`` permits are held at a time. No I/O.

        Example:
            with hf.semaphore("api", 10) as lease:
                ...

        The other options are those of `lock`.

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the semaphore if they use the same namespace and name.
            limit: The number of permits, from 1 to 1,000,000,000. Use the same in all clients, or `Semaphore.resize`.

        Returns:
            The semaphore. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.semaphore, _args, _options)
        limit = check_int(limit, "limit", MAX_PERMITS)
        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters, head_start)
        options = lease_options(ttl, waits, acknowledgement, renew=renew, yields=yields, max_hold=max_hold)
        permits = PermitRequest(KeySet(self._namespace, "semaphore", name), options, limit=limit)
        return Semaphore(self._driver, permits, check_choice(on_lost, "on_lost", OnLost))

    def rwlock(  # noqa: D417 -- as for `lock`
        self,
        name: str,
        *_args: Never,
        ttl: Duration = DEFAULT_TTL_S,
        renew: bool = True,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        head_start: Duration = 0.0,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> RWLock:
        """Return the read-write lock of a name: many readers or one writer at a time. No I/O.

        Independent of ``lock()`` of the same name.

        Example:
            with hf.rwlock("config").read():
                ...

        The other options are those of `lock`.

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the lock if they use the same namespace and name.

        Returns:
            The read-write lock. Nothing is acquired yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.rwlock, _args, _options)
        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters, head_start)
        options = lease_options(ttl, waits, acknowledgement, renew=renew, max_hold=max_hold)
        read = PermitRequest(KeySet(self._namespace, "rwlock", name), options, limit=MAX_PERMITS)
        write = read.with_weight(MAX_PERMITS)
        return RWLock(self._driver, read, write, check_choice(on_lost, "on_lost", OnLost), self._entered_rw_leases)

    def together(
        self,
        *limits: Lock | RLock | LockAll | Semaphore | ReadLock | WriteLock | Limiter,
        timeout: Duration | None = None,
    ) -> Together:
        """Return several limits as one: taken in this order under one timeout, and given back in reverse. No I/O.

        Take the narrow limit first and the wide limit last.

        Example:
            tenant, everyone = hf.semaphore("tenant:7", 2), hf.semaphore("gpu", 8)
            with hf.together(tenant, everyone, timeout=10) as held:
                ...

        Args:
            limits: 1 to 16 locks, semaphores, read-write locks (``read()`` or ``write()``) and, in the last place, a
                limiter; of this client.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most for all of them, unless they are given
                another limit: a number or a timedelta; 0 or less does not wait. None, or more than 366 days, waits
                indefinitely. It stands in place of the timeouts of the limits.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: ``timeout`` is out of range, a limiter is not the last, a limit is of another client, or the
                order contradicts an earlier order of the same names in this client.
        """
        from handfast._api.sync.together import take_together

        return take_together(self._driver, limits, timeout, self._nesting)

    def election(  # noqa: D417 -- as for `lock`
        self,
        name: str,
        *_args: Never,
        value: str = "",
        ttl: Duration = DEFAULT_TERM_S,
        on_lost: OnLost = "raise",
        max_waiters: int = DEFAULT_MAX_WAITERS,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        min_replicas: int = 0,
        replica_timeout: Duration = DEFAULT_REPLICA_TIMEOUT_S,
        **_options: Never,
    ) -> Election:
        """Return the election of a name: a single candidate leads, the others wait in turn. No I/O.

        Example:
            with hf.election("scheduler", value="http://10.0.0.5:8000") as term:
                ...

        The other options are those of `lock`.

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the election if they use the same namespace and name.
            value: Text shown to others for this candidate, such as an address: up to 1 KiB of UTF-8.
            ttl: Seconds (a number or a timedelta) after which a term ends unless it is renewed, from 0.001 s to 366 days:
                for how long there is no leader after a death.

        Returns:
            The election. Nothing is sent yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        if _args or _options:
            raise unknown_options(self.election, _args, _options)
        from handfast._api.sync.election import Election

        acknowledgement = self._acknowledgement(min_replicas, replica_timeout, ttl)
        waits = waiting(timeout, max_waiters)
        options = lease_options(ttl, waits, acknowledgement, max_hold=max_hold, value=value)
        permits = PermitRequest(KeySet(self._namespace, "election", name), options)
        return Election(self._driver, permits, check_choice(on_lost, "on_lost", OnLost))

    def group(self, name: str, *, ttl: Duration = DEFAULT_TERM_S, on_lost: OnLost = "raise") -> Group:
        """Return the group of a name: processes join, and others see who is there. No I/O.

        Example:
            with hf.group("workers").join(value="zone=a") as member:
                ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the group if they use the same namespace and name.
            ttl: Seconds (a number or a timedelta) after which a membership ends unless it is renewed, from 0.001 s to 366
                days: for how long a member is listed after a death.
            on_lost: As in `lock`.

        Returns:
            The group. Nothing is sent yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.group import Group
        from handfast._protocol import grouping

        permits = grouping.request(KeySet(self._namespace, "group", name), lease_options(ttl))
        return Group(self._driver, permits, check_choice(on_lost, "on_lost", OnLost))

    def partition(
        self,
        name: str,
        items: Items,
        *,
        ttl: Duration = DEFAULT_TERM_S,
        every: Duration = 10.0,
        value: str = "",
        max_items: int | None = None,
    ) -> Partition:
        """Return the partition of a name: each item of a list is on a single worker. No I/O.

        Example:
            hf.partition("bots", ["a", "b", "c"]).run(serve)

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the partition if they use the same namespace and name.
            items: Names of at most 10,000 items, each once and of 1 byte to 16 KiB of UTF-8; or a function that returns
                them, which is called every ``every`` seconds. In the asyncio API it may be a coroutine function. All
                workers should have the same items.
            ttl: Seconds (a number or a timedelta) after which a lease ends unless it is renewed, from 0.001 s to 366 days:
                how long an item may be without a worker after a death.
            every: Seconds (a number or a timedelta), from 0.001 s to 366 days: how often the items are asked for, how long
                an item rests after the function has returned, and how long a move of items takes at most.
            value: Text shown to others for this worker, such as an address: up to 1 KiB of UTF-8.
            max_items: How many items a worker has at most, from 1 to 10,000; the same for all workers. Items beyond
                this number are on none. None spreads all.

        Returns:
            The partition. Nothing is sent yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or an item stands twice.
        """
        from handfast._api.sync.group import Group
        from handfast._api.sync.partition import Partition
        from handfast._api.sync.worker import Settings
        from handfast._protocol import assigning, grouping

        options = lease_options(ttl, value=value)
        most = None if max_items is None else check_int(max_items, "max_items", assigning.MAX_ITEMS)
        if callable(items):
            check_called_here(items)
        listed = items if callable(items) else assigning.check_items(items)
        every_s, place = milliseconds(every, "every") / 1000, KeySet(self._namespace, "partition", name)
        group = Group(self._driver, grouping.request(place, options), "warn")
        return Partition(Settings(self._driver, place, options, group, listed, every_s, value, most))

    def _acknowledgement(self, replicas: int, timeout: Duration, ttl: Duration) -> Acknowledgement | None:
        if replicas == 0 and not isinstance(replicas, bool):
            return None
        replicas = check_int(replicas, "min_replicas", MAX_REPLICAS)
        timeout_ms = replica_milliseconds(timeout, milliseconds(ttl, "ttl"), self._driver.reply_s)
        return Acknowledgement(replicas, timeout_ms, empty_channel(self._namespace).encode())
