"""Connect to the server with the connection class and the settings of the user's own client.

TLS, credentials, Sentinel, unix sockets and every other setting of the client are kept, also for each node of a
cluster. Only the settings that a session depends on are replaced: RESP3, bytes, and no retries by the client library,
since a session sends again itself. The sync and the asyncio driver each add how they connect.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, ClassVar, Self, cast
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.addresses import (
    pool_of_client,
    pool_of_url,
    seeds_of_client,
    seeds_of_url,
    sentinels_of,
    url_of_environment,
)
from handfast._drivers.events import Events
from handfast._drivers.failures import SILENT, hello_refused, hint_at_tls, no_primary, setup_failed
from handfast._engine.defaults import DEFAULT_RESPONSE_S, EMBEDDED, NULL, VARIABLES
from handfast._engine.effects import Park
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import takes_no_scripts
from handfast._engine.servers import Engine, to_be_proven
from handfast._engine.slots import Node
from handfast._version import __version__
from handfast.errors import NoServer

__all__ = ["Connector"]


_DROPPED_SETTINGS = frozenset(
    {
        "event_dispatcher",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
        "himport_registry",
        "cache",
        "cache_config",
    }
)


class Connector:
    """Makes connections like those of the user's client.

    Args:
        pool: The pool whose settings are used.
        url: The URL from which the pool was made for this connector, if any.
        restart_server: Called when the embedded server is gone.
        seeds: The known nodes of a cluster. The pool belongs to one of them.
        remap: Makes an address from the address by which a node of the cluster names another node.
        whole: The connector to the cluster, if this is the connector to a node of a cluster.

    """

    library: ClassVar[Any]
    """The module of the clients that this connector takes: ``redis`` or ``redis.asyncio``."""
    no_retry: ClassVar[Any]
    """redis-py's retry object that never retries."""
    other: ClassVar[str]
    """The class that takes clients of the other module."""
    unwrapped: ClassVar[tuple[type[Exception], ...]] = ()
    """The errors of the network that reach the connector as they are. redis-py wraps the others."""

    heard: bool = False
    """Whether a message ever reached one of these connections. They probe it until one has."""
    sends_scripts: bool | None = None
    """Whether the user may send the server a script in full; None until one was sent to find out."""
    _is_known = False
    _is_unheard_logged = False
    _reached = False
    _answering: str | None = None
    """Where the Sentinel is that answered last. The next connection asks it first."""
    _whole: Connector | None = None

    def __init__(
        self,
        pool: Any,
        *,
        url: str = "",
        restart_server: Callable[[], object] | None = None,
        seeds: Sequence[Node] = (),
        remap: Callable[[tuple[str, int]], tuple[str, int]] | None = None,
        whole: Connector | None = None,
    ) -> None:
        settings = pool.connection_kwargs
        for name in ("socket_timeout", "socket_connect_timeout"):
            if (seconds := settings.get(name)) is not None and not 0 <= seconds < inf:
                raise ValueError(f"{name} must be a finite number of seconds from 0 on, not {seconds!r}")
        self._pool = pool  # connections of a Sentinel pool hold only a weak reference to it
        self._url = url
        self._pools: WeakKeyDictionary[object, Any] = WeakKeyDictionary()
        self._restart_server = restart_server
        self.seeds: tuple[Node, ...] = tuple(seeds)
        self._remap = remap
        self.response_timeout: float = settings.get("socket_timeout") or DEFAULT_RESPONSE_S
        # The library must not retry: a second copy of a call that a protocol does not know of could be
        # granted after the undo of the first one (invariant 7).
        self._settings: dict[str, Any] = {
            key: value for key, value in settings.items() if key not in _DROPPED_SETTINGS
        } | {
            "protocol": 3,
            "decode_responses": False,
            "retry": self.no_retry,
            "retry_on_timeout": False,
            "retry_on_error": [],
            "health_check_interval": 0,
            "socket_timeout": self.response_timeout,
            "socket_connect_timeout": settings.get("socket_connect_timeout") or self.response_timeout,
        }
        self._settings |= _without_maintenance_pushes()
        if not settings.keys() & {"driver_info", "lib_name", "lib_version"}:
            self._settings |= _name_of_library()
        self._connection_class, self._settings = self._adapted(pool.connection_class, self._settings)
        try:
            self._connection_class(**self._settings)  # does not connect yet
        except (TypeError, RedisError) as error:
            raise ValueError(f"the connection settings are not valid: {error}") from error
        self._whole = whole
        self.events: Events = Events() if whole is None else whole.events
        self.switches: int = 0
        """How often another server became the primary, as far as a Sentinel told. A connection that is older is not
        used."""
        self.primaries: set[str] = set()
        """``host:port`` of the primaries that connections were made to since the last switch, if a Sentinel named
        them."""

    @property
    def reached(self) -> bool:
        """Whether a connection was ever made, to any node of a cluster.

        It is worth waiting only for a server that was reached once.
        """
        return self._reached if self._whole is None else self._whole.reached

    @reached.setter
    def reached(self, reached: bool) -> None:
        if self._whole is None:
            self._reached = reached
        else:
            self._whole.reached = reached

    @property
    def is_known(self) -> bool:
        """Whether the server has said who it is, and Handfast can use it. In a cluster, any node may have said so."""
        return self._is_known if self._whole is None else self._whole.is_known

    @is_known.setter
    def is_known(self, known: bool) -> None:
        if self._whole is None:
            self._is_known = known
        else:
            self._whole.is_known = known

    def note_heard(self) -> None:
        """Note that messages come through. In a cluster it is enough if they do at one node."""
        self.heard = True
        if self._whole is not None:
            self._whole.heard = True

    def note_source(self, reply: Any) -> None:
        """Take the reply to a script that was sent in full."""
        if type(reply) is not ErrorReply:
            self.sends_scripts = True
        elif takes_no_scripts(reply):
            self.sends_scripts = False

    @property
    def confirms_in_full(self) -> bool:
        """Whether confirmations leave with their source.

        The caller may not read the reply for long, so the reply must not be `NOSCRIPT`.
        """
        return self.sends_scripts is not False

    def unheard(self, park: Park) -> Park:
        """Return the park with a shorter wait, for a connection through which no message ever came."""
        if not self._is_unheard_logged:
            self._is_unheard_logged = True
            log.unheard(self.address)
        return park._replace(until=min(park.until, park.poll_at))

    def at(self, node: Node) -> Self:
        """Return the connector to a node of the cluster."""
        settings = self._settings | {"host": node.host, "port": node.port}
        pool = self.library.ConnectionPool(connection_class=self._connection_class, **settings)
        return type(self)(pool, whole=self)

    def remap(self, node: Node) -> Node:
        """Return the address of a node of the cluster, from the address by which another node has named it."""
        return node if self._remap is None else Node(*self._remap(node))

    @property
    def service(self) -> str | None:
        """The service whose primary this is; None without a Sentinel."""
        service: str | None = getattr(self._pool, "service_name", None)
        return service

    def sentinels(self) -> list[Self]:
        """Return connectors to the Sentinels, in the order in which they are asked."""
        return [type(self)(client.connection_pool) for client in sentinels_of(self._pool_here())]

    @property
    def address(self) -> str:
        """Where the server is: a URL without secrets.

        A user name without a password is left out: it may be a password in the wrong place.
        """
        settings = self._settings
        database = settings.get("db") or 0
        user = f"{settings['username']}@" if settings.get("username") and settings.get("password") else ""
        if self.service is not None:
            return f"redis+sentinel://{user}…/{self.service}/{database}"
        if "path" in settings:
            return f"unix://{user}{settings['path']}?db={database}"
        scheme = "rediss" if issubclass(self._connection_class, self.library.SSLConnection) else "redis"
        if self.seeds:
            return f"{scheme}+cluster://{user}{','.join(f'{node.host}:{node.port}' for node in self.seeds)}"
        return f"{scheme}://{user}{settings.get('host', 'localhost')}:{settings.get('port', 6379)}/{database}"

    def blame(self, error: BaseException) -> None:
        """Have an error of redis-py that leaves the driver name the server, and the variable that has the URL."""
        variables = [f" (the URL in ${name})" for name in VARIABLES if self._url and os.environ.get(name) == self._url]
        where, said = f"cannot use {self.address}{''.join(variables[:1])}: ", str(error)
        if not isinstance(error, RedisError) or said.startswith(where):
            return
        if isinstance(error, RedisTimeoutError) and SILENT not in said:
            said = f"{SILENT}: {said}"
        if isinstance(error, RedisConnectionError) and not self.reached:
            said += hint_at_tls(said, self.address)
        error.args = (f"{where}{said}",)

    @classmethod
    def of(cls, server: object) -> Self | None:
        """Return the connector for a URL, or for a client; None for no server, ``null:``.

        Without either, the URL is in ``$HANDFAST_URL``, else in ``$REDIS_URL``. A connector is returned unchanged: the
        simulator passes a connector.
        """
        if isinstance(server, cls):
            return server
        if server is None:
            server = url_of_environment()
            if server is None:
                raise NoServer(
                    "no server is configured: pass a URL or a redis-py client, set HANDFAST_URL or REDIS_URL, "
                    "or try it out with .embedded(); HANDFAST_URL=null: is for unit tests without a server"
                )
        if server == NULL:
            return None
        if server == EMBEDDED:
            from handfast.embedded import shared_url

            return cls(pool_of_url(shared_url(), cls.library), restart_server=shared_url)
        if isinstance(server, str):
            return cls(pool_of_url(server, cls.library), url=server, seeds=seeds_of_url(server))
        pool, seeds = pool_of_client(server, cls.library, cls.other), seeds_of_client(server, cls.library)
        return cls(pool, seeds=seeds, remap=cast("Any", server).nodes_manager.address_remap if seeds else None)

    @property
    def is_embedded(self) -> bool:
        """Whether this is the embedded server, which Handfast starts for the processes of a user."""
        return self._restart_server is not None

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error to raise after a failed connect: a clearer error, see `hello_refused`, or ``error``."""
        wrapped = error.__cause__
        if isinstance(error, self.library.sentinel.MasterNotFoundError):
            return _from(no_primary(cast("RedisConnectionError", error)), None)
        if isinstance(wrapped, RedisError):  # some connection classes wrap the real error
            return _from(hello_refused(wrapped) or wrapped, None)
        if (refusal := hello_refused(error)) is not None:
            return _from(refusal, error)
        real = wrapped if type(error) is RedisConnectionError else error  # asyncio's wrap unexpected errors
        if not isinstance(real, Exception) or isinstance(real, (RedisError, *self.unwrapped)):
            return error
        return _from(setup_failed(real, self._settings), real)

    def _to_be_proven(self, identity: Any) -> Engine | None:
        settings = self._settings
        place = settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
        return to_be_proven(identity, place, in_cluster=bool(self.seeds) or self._whole is not None)

    def _note_reached(self, connection: Any) -> None:
        self.reached = True
        if self.service is not None:
            self.primaries.add(f"{connection.host}:{connection.port}")
            self._answering = _place(sentinels_of(self._pool_here())[0])  # redis-py puts it there

    @classmethod
    def _adapted(cls, connection_class: type[Any], settings: dict[str, Any]) -> tuple[type[Any], dict[str, Any]]:
        """Return the class and the settings of connections, as this kind of driver needs them."""
        return connection_class, settings

    @staticmethod
    @abstractmethod
    def _here() -> object:
        """Return the owner of connections to Sentinels: the calling thread, or the running event loop."""

    def _pool_here(self) -> Any:
        """Return the pool that asks the Sentinels. redis-py's can be shared neither by threads nor by event loops."""
        if not self._url or self.service is None:
            return self._pool
        here = self._here()
        if here not in self._pools:
            self._pools[here] = pool_of_url(self._url, self.library)
            sentinels_of(self._pools[here]).sort(key=lambda client: _place(client) != self._answering)
        return self._pools[here]

    def _pools_of_sentinels(self, within: float = inf) -> list[Any]:
        """Return our own pools of connections to Sentinels, which are closed as soon as they have named the primary.

        All of them together have ``within`` seconds to connect, and as many to answer.
        """
        if not self._url or self.service is None:
            return []
        pools = [client.connection_pool for client in sentinels_of(self._pool_here())]
        settings = sentinels_of(self._pool)[0].connection_pool.connection_kwargs
        for pool in pools:
            pool.reset()  # what it has was made with other limits
            pool.connection_class, pool.connection_kwargs = self._adapted(pool.connection_class, pool.connection_kwargs)
            for name in ("socket_timeout", "socket_connect_timeout"):
                pool.connection_kwargs[name] = min(settings[name], within / len(pools))
        return pools

    def _make(self, **limits: float) -> Any:
        settings = self._settings | limits
        if self.service is not None:
            settings["connection_pool"] = self._pool_here().connection_kwargs["connection_pool"]
        return self._connection_class(**settings)


def _from(error: Exception, cause: BaseException | None) -> Exception:
    """Return an error with a cause, as ``raise … from …`` sets it."""
    error.__cause__ = cause
    return error


def _place(client: Any) -> str:
    settings = client.connection_pool.connection_kwargs
    return f"{settings.get('host')}:{settings.get('port')}"


def _without_maintenance_pushes() -> dict[str, Any]:
    """Return the setting that keeps newer redis-py from asking for maintenance pushes: a session cannot use them."""
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


def _name_of_library() -> dict[str, Any]:
    """Return the setting by which `CLIENT LIST` shows whose connection it is.

    It also keeps newer redis-py from reading the version of redis-py from disk for every connection.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:
        return {"lib_name": f"redis-py(handfast_v{__version__})"}
    return {"driver_info": DriverInfo(lib_version=redis.__version__).add_upstream_driver("handfast", __version__)}
