"""Connect to the server with the connection class and the settings of the user's own client.

TLS, credentials, Sentinel, unix sockets and every other setting of the client are kept. Only the settings that a session
depends on are replaced: RESP3, bytes, and no retries by the client library, since a session sends again itself. The sync
and the asyncio driver each add how they connect.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self

import redis
from redis.exceptions import AuthenticationError

from handfast._drivers.addresses import pool_of_client, pool_of_url, sentinels_of
from handfast._engine.defaults import EMBEDDED
from handfast._version import __version__
from handfast.errors import NoServer

__all__ = ["RESPONSE_TIMEOUT", "Connector"]

RESPONSE_TIMEOUT = 5.0
"""Seconds to wait for a reply, unless the user's client sets ``socket_timeout``."""

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
        pool: Its settings are used.
        owned: Whether the pool was made for this connector, and is used by nothing else.
        restart_server: Called when the embedded server is gone.

    """

    library: ClassVar[Any]
    """The module of the clients that this connector takes: ``redis`` or ``redis.asyncio``."""
    no_retry: ClassVar[Any]
    """redis-py's retry object that never retries."""
    other: ClassVar[str]
    """The class that takes clients of the other module."""

    def __init__(self, pool: Any, *, owned: bool = False, restart_server: Callable[[], object] | None = None) -> None:
        settings = pool.connection_kwargs
        self._connection_class = pool.connection_class
        self._pool = pool  # connections of a Sentinel pool hold only a weak reference to it
        self._sentinels = [one.connection_pool for one in sentinels_of(pool)] if owned else []
        """The pools of connections to Sentinels, which are closed as soon as they have named the primary."""
        self._restart_server = restart_server
        self.response_timeout = settings.get("socket_timeout") or RESPONSE_TIMEOUT
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
        try:
            self._make()  # does not connect yet
        except TypeError as error:
            raise ValueError(f"the connection settings are not valid: {error}") from error
        self.reached = False
        """Whether a connection was ever made. Only a server that was reached once is worth waiting for."""

    def may_recover(self, error: Exception) -> bool:
        """Return whether connecting again may help after this error."""
        return self.reached and not isinstance(error, AuthenticationError)

    @classmethod
    def of(cls, server: object) -> Self:
        """Return the connector for a URL, for a client, or for None: ``$HANDFAST_URL``, else ``$REDIS_URL``.

        A connector is returned as it is: the simulator has one of its own.
        """
        if isinstance(server, cls):
            return server
        if server is None:
            server = os.environ.get("HANDFAST_URL") or os.environ.get("REDIS_URL")
            if server is None:
                raise NoServer(
                    "no server is configured: pass a URL or a redis-py client, set HANDFAST_URL or REDIS_URL, "
                    "or try it out with .embedded()"
                )
        if server == EMBEDDED:
            from handfast.embedded import shared_url

            return cls(pool_of_url(shared_url(), cls.library), owned=True, restart_server=shared_url)
        if isinstance(server, str):
            return cls(pool_of_url(server, cls.library), owned=True)
        return cls(pool_of_client(server, cls.library, cls.other))

    def _make(self, **limits: float) -> Any:
        return self._connection_class(**self._settings | limits)


def _without_maintenance_pushes() -> dict[str, Any]:
    """Return the setting that keeps newer redis-py from asking for maintenance pushes, which a session cannot use."""
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


def _name_of_library() -> dict[str, Any]:
    """Return the setting by which `CLIENT LIST` shows whose connection it is.

    It also keeps newer redis-py from reading its own version from disk for every connection.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:
        return {"lib_name": f"redis-py(handfast_v{__version__})"}
    return {"driver_info": DriverInfo(lib_version=redis.__version__).add_upstream_driver("handfast", __version__)}
