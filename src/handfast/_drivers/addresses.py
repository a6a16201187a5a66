"""From what users name a server with to a connection pool of redis-py, whose settings a connector takes.

That is a URL, a client of redis-py, or a client of valkey-py, which has the same settings and other connection classes.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult, urlsplit

import redis
import redis.asyncio

from handfast.errors import ServerUnsupported

__all__ = ["pool_of_client", "pool_of_url", "sentinels_of"]

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes of URLs, and those that redis-py has for them. All but the last can name a Sentinel's service, too."""

SENTINEL = "+sentinel"
SENTINEL_PORT = 26379

SHARED_WITH_SENTINELS = ("ssl", "socket_")
"""How the settings begin that hold for the connections to the Sentinels as well."""

VALKEY_ONLY = ("cache", "client_cache", "lib_", "parser_class", "valkey_")
"""How settings of valkey-py begin that redis-py does not have, or that would name the wrong library to the server."""


def pool_of_url(url: str, library: ModuleType) -> Any:
    """Return a pool of ``library``, which is ``redis`` or ``redis.asyncio``. Raises ValueError for a URL that is wrong."""
    try:
        parts = urlsplit(url)
        scheme, is_sentinel = parts.scheme.removesuffix(SENTINEL), parts.scheme.endswith(SENTINEL)
        if scheme not in SCHEMES or (is_sentinel and scheme == "unix"):
            raise ValueError(f"its scheme must be one of {', '.join(SCHEMES)}, redis{SENTINEL} and the like")
        if is_sentinel:
            return _pool_of_service(parts._replace(scheme=SCHEMES[scheme]), library)
        return library.ConnectionPool.from_url(SCHEMES[scheme] + url[len(scheme) :])
    except ValueError as error:
        raise ValueError(f"the URL {_without_secrets(url)!r} is wrong: {error}") from None


def pool_of_client(client: object, library: ModuleType, other: str) -> Any:
    """Return the pool of a client. Raises TypeError or ServerUnsupported for anything but a client of ``library``.

    ``other`` is our class for clients of the other library.
    """
    asyncio = library is redis.asyncio
    valkey: Any = sys.modules.get("valkey.asyncio" if asyncio else "valkey")
    if isinstance(client, library.client.Pipeline):
        raise TypeError("the server must be a client, not a pipeline of one")
    if isinstance(client, library.Redis):
        return _checked(client.connection_pool)
    if valkey is not None and isinstance(client, valkey.Valkey):
        return _pool_like(client.connection_pool, library)
    if isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        raise ServerUnsupported("Redis Cluster is not supported yet; use a client of a single primary")
    if isinstance(client, redis.Redis | redis.asyncio.Redis):
        raise TypeError(f"a client of {type(client).__module__} needs {other}, not this class")
    name = library.__name__
    raise TypeError(f"the server must be a URL, a {name}.Redis, the same of valkey-py, or None, not {client!r}")


def sentinels_of(pool: Any) -> list[Any]:
    """Return the clients of the Sentinels that a pool asks; none if it is not that of a service."""
    manager = getattr(pool, "sentinel_manager", None)
    return [] if manager is None else manager.sentinels


def _pool_of_service(parts: SplitResult, library: ModuleType) -> Any:
    """Return the pool of the primary of a Sentinel's service, which asks the Sentinels for each connection."""
    login, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError(
            "it must name Sentinels and a service, as in redis+sentinel://host1:26379,host2:26379/mymaster/0"
        )
    one = parts._replace(netloc=f"{login}@localhost" if login else "localhost", path=f"/{database}")
    settings = library.ConnectionPool.from_url(one.geturl()).connection_kwargs
    for replaced in ("host", "port"):
        settings.pop(replaced, None)
    if parts.scheme == "rediss":
        settings["ssl"] = True
    secrets = {name: settings.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    shared = {name: value for name, value in settings.items() if name.startswith(SHARED_WITH_SENTINELS)}
    sentinels = [
        (host.hostname, host.port or SENTINEL_PORT) for host in (urlsplit(f"//{one}") for one in hosts.split(","))
    ]
    sentinel = library.Sentinel(sentinels, sentinel_kwargs=shared | secrets, **settings)
    return sentinel.master_for(service).connection_pool


def _pool_like(pool: Any, library: ModuleType) -> Any:
    """Return a pool of redis-py like one of valkey-py."""
    kind: Any = getattr(library, pool.connection_class.__name__, None)
    if kind is None:
        raise ServerUnsupported(
            f"connections of {pool.connection_class.__module__} are not known here; name the server with a URL"
        )
    settings = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(VALKEY_ONLY)}
    return library.ConnectionPool(connection_class=kind, **settings)


def _checked(pool: Any) -> Any:
    if pool.connection_class.__module__.partition(".")[0] == "fakeredis":
        raise ServerUnsupported(
            "fakeredis does not do what this needs; in tests, use handfast.testing.ServerController or .embedded()"
        )
    return pool


def _without_secrets(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    rest = rest.partition("?")[0]
    return f"{scheme}{separator}...@{rest.rpartition('@')[2]}" if "@" in rest else f"{scheme}{separator}{rest}"
