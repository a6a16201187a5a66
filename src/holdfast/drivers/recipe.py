"""How to reach the server: the connection class and settings of the user's own client, made fit for a session.

TLS, credentials, Sentinel, unix sockets and what else a client was given come along. Ours are only the settings that a
session depends on: RESP3, bytes, and no retries behind our back, since a session re-sends by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as ServerGone
from redis.retry import Retry

from holdfast.words.errors import NoServer, ServerUnsupported

__all__ = ["RESPONSE_TIMEOUT", "Recipe"]

RESPONSE_TIMEOUT = 5.0
"""Seconds to wait for a reply where the user's client does not say otherwise."""

_NOT_OURS = frozenset(
    {
        "event_dispatcher",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
        "cache",
        "cache_config",
    }
)


class Recipe:
    """Makes connections like those of the user's client."""

    def __init__(
        self,
        connection_class: type[AbstractConnection],
        settings: dict[str, Any],
        revive: Callable[[], object] | None = None,
    ) -> None:
        self._connection_class = connection_class
        self._revive = revive
        self.response_timeout = settings.get("socket_timeout") or RESPONSE_TIMEOUT
        self._settings = {key: value for key, value in settings.items() if key not in _NOT_OURS} | {
            "protocol": 3,
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "health_check_interval": 0,
            "socket_timeout": self.response_timeout,
            "socket_connect_timeout": settings.get("socket_connect_timeout") or self.response_timeout,
        }
        self._settings |= _without_maintenance_pushes()
        try:
            connection_class(**self._settings)  # connects to nothing yet
        except TypeError as error:
            raise ValueError(f"the server's settings are not understood: {error}") from error
        self.reached = False
        """Whether a connection was ever made. A server that was there may come back: it is worth waiting for."""

    @classmethod
    def of(cls, server: object, revive: Callable[[], object] | None = None) -> Recipe:
        """The recipe for a URL, for an existing client, or for None: ``$HOLDFAST_URL``, else ``$REDIS_URL``.

        ``revive`` brings a server of ours back that has gone meanwhile.
        """
        if server is None:
            server = os.environ.get("HOLDFAST_URL") or os.environ.get("REDIS_URL")
            if server is None:
                raise NoServer(
                    "no server was named: pass a URL or a redis.Redis, set HOLDFAST_URL or REDIS_URL, "
                    "or try it out with Holdfast.embedded()"
                )
        if isinstance(server, str):
            pool = redis.ConnectionPool.from_url(server)
        elif isinstance(server, redis.RedisCluster):
            raise ServerUnsupported("Redis Cluster is not supported yet; use a client of a single primary")
        elif isinstance(server, redis.Redis):
            pool = server.connection_pool
        else:
            raise TypeError(f"the server must be a URL, a redis.Redis or None, not {server!r}")
        return cls(pool.connection_class, dict(pool.connection_kwargs), revive)

    def connect(self, timeout: float | None = None) -> AbstractConnection:
        """A new connection, through its handshake. The client library's errors pass through."""
        limits = {} if timeout is None else {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        connection = self._connection_class(**self._settings | limits)
        try:
            connection.connect()  # type: ignore[no-untyped-call]  # the client library's
        except ServerGone:
            if self._revive is None:
                raise
            self._revive()
            connection.connect()  # type: ignore[no-untyped-call]  # the client library's
        self.reached = True
        return connection


def _without_maintenance_pushes() -> dict[str, Any]:
    """Newer clients subscribe RESP3 connections to pushes about server maintenance, which a session cannot use."""
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
