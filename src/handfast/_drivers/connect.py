"""How to reach the server: the connection class and settings of the user's own client, made fit for a session.

TLS, credentials, Sentinel, unix sockets and what else a client was given come along. Ours are only the settings that a
session depends on: RESP3, bytes, and no retries behind our back, since a session re-sends by itself. Each colour adds
how it connects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self

import redis
import redis.asyncio

from handfast.errors import NoServer, ServerUnsupported

__all__ = ["RESPONSE_TIMEOUT", "Connector"]

RESPONSE_TIMEOUT = 5.0
"""Seconds to wait for a reply where the user's client does not say otherwise."""

_NOT_OURS = frozenset(
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
    """Makes connections like those of the user's client."""

    library: ClassVar[Any]
    """``redis`` or ``redis.asyncio``: where the clients of this colour come from."""
    no_retry: ClassVar[Any]
    """The library's object for not trying again."""
    other: ClassVar[str]
    """Who takes the clients of the other colour."""

    def __init__(self, pool: Any, revive: Callable[[], object] | None = None) -> None:
        settings = pool.connection_kwargs
        self._connection_class = pool.connection_class
        self._pool = pool  # a Sentinel's connections know theirs only weakly
        self._revive = revive
        self.response_timeout = settings.get("socket_timeout") or RESPONSE_TIMEOUT
        self._settings: dict[str, Any] = {key: value for key, value in settings.items() if key not in _NOT_OURS} | {
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
        try:
            self._make()  # connects to nothing yet
        except TypeError as error:
            raise ValueError(f"the server's settings are not understood: {error}") from error
        self.reached = False
        """Whether a connection was ever made. A server that was there may come back: it is worth waiting for."""

    @classmethod
    def of(cls, server: object, revive: Callable[[], object] | None = None) -> Self:
        """The recipe for a URL, for an existing client, or for None: ``$HANDFAST_URL``, else ``$REDIS_URL``.

        ``revive`` brings a server of ours back that has gone meanwhile.
        """
        if isinstance(server, cls):
            return server
        if server is None:
            server = os.environ.get("HANDFAST_URL") or os.environ.get("REDIS_URL")
            if server is None:
                raise NoServer(
                    "no server was named: pass a URL or a client of redis-py, set HANDFAST_URL or REDIS_URL, "
                    "or try it out with .embedded()"
                )
        if isinstance(server, str):
            return cls(cls.library.ConnectionPool.from_url(server), revive)
        if isinstance(server, cls.library.Redis):
            return cls(server.connection_pool, revive)
        if isinstance(server, redis.RedisCluster | redis.asyncio.RedisCluster):
            raise ServerUnsupported("Redis Cluster is not supported yet; use a client of a single primary")
        if isinstance(server, redis.Redis | redis.asyncio.Redis):
            raise TypeError(f"a client of {type(server).__module__} goes with {cls.other}, not with this class")
        raise TypeError(f"the server must be a URL, a {cls.library.__name__}.Redis or None, not {server!r}")

    def _make(self, **limits: float) -> Any:
        """A connection that is not connected yet."""
        return self._connection_class(**self._settings | limits)


def _without_maintenance_pushes() -> dict[str, Any]:
    """Newer clients subscribe RESP3 connections to pushes about server maintenance, which a session cannot use."""
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
