"""Pipelines with WATCH. Cluster pipelines have it in newer versions of redis-py only."""

from __future__ import annotations

from typing import Any

import redis
import redis.cluster

from handfast.errors import ServerUnsupported

__all__ = ["require_watch", "watching"]

WATCHES_IN_CLUSTERS = hasattr(redis.cluster, "TransactionStrategy")
"""Whether redis-py supports WATCH in a cluster."""


def require_watch(conn: Any) -> None:
    """Raise ServerUnsupported if pipelines of this client can't watch: before anything is written."""
    if isinstance(conn, redis.RedisCluster) and not WATCHES_IN_CLUSTERS:
        raise ServerUnsupported(
            f"redis-py {redis.__version__} has no WATCH for a cluster; take 6.2 or newer, or the functions of handfast.classic"
        )


def watching(conn: redis.Redis) -> Any:
    """Return a pipeline that may watch, whatever client it is of."""
    require_watch(conn)
    return conn.pipeline(transaction=True)
