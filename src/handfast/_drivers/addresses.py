"""Turn a user's URL or client into a connection pool of redis-py, whose settings a connector takes.

The user names a server by a URL, a client of redis-py, or a client of valkey-py, which has the same settings and other
connection classes. For a cluster the result is the pool of one node, whose settings hold for all nodes, and the named
nodes.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from handfast._engine.defaults import VARIABLES
from handfast._engine.slots import Node
from handfast.errors import ServerUnsupported

__all__ = [
    "is_address",
    "pool_of_client",
    "pool_of_url",
    "resolve",
    "seeds_of_client",
    "seeds_of_url",
    "sentinels_of",
    "url_of_environment",
]

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
"""Schemes of URLs, and those that redis-py has for them. All but the last can name a Sentinel's service, or a cluster,
too."""

SENTINEL = "+sentinel"
SENTINEL_PORT = 26379

SENTINEL_S = 1.0
"""Seconds that a Sentinel has for an answer before another one is asked, unless the URL says otherwise. They stand near
their servers, and one whose machine is gone does not refuse."""

CLUSTER = "+cluster"
PORT = 6379

SHARED_WITH_SENTINELS = ("ssl", "socket_")
"""How the settings begin that hold for the connections to the Sentinels as well."""

VALKEY_ONLY = ("cache", "client_cache", "lib_", "parser_class", "valkey_")
"""How settings of valkey-py begin that redis-py does not have, or that would name the wrong library to the server."""


QUOTE = "what is special in a password must be quoted: %23 for '#', %2F for '/', %3F for '?', %40 for '@'"

_SCHEME = re.compile(
    rf"((?:{'|'.join(sorted(SCHEMES, reverse=True))}|https?)(?:{re.escape(SENTINEL)}|{re.escape(CLUSTER)})?)(://)?[:;]?/*",
    re.IGNORECASE,
)
"""How a URL begins, also where what should stand behind its scheme is wrong."""


def pool_of_url(url: str, library: ModuleType) -> Any:
    """Return a pool of ``library``, which is ``redis`` or ``redis.asyncio``.

    Raises ValueError for a wrong URL.
    """
    try:
        url = _tidied(url)
        parts = urlsplit(url)
        # For `urlsplit` a bare # or / in a password ends the place of the server: the text before it would
        # count as the host, without an error.
        if "#" in url or ("@" in url and "@" not in parts.netloc and parts.scheme != "unix"):
            raise ValueError(QUOTE)
        scheme, plus, kind = parts.scheme.partition("+")
        if scheme not in SCHEMES or plus + kind not in ("", SENTINEL, CLUSTER) or (kind and scheme == "unix"):
            raise ValueError(
                f"its scheme must be one of {', '.join(SCHEMES)}, redis{SENTINEL}, redis{CLUSTER} and the like"
            )
        if plus + kind == SENTINEL:
            return _pool_of_service(parts._replace(scheme=SCHEMES[scheme]), library)
        if plus + kind == CLUSTER:
            return _pool_of_node(parts._replace(scheme=SCHEMES[scheme]), library)
        # The library's error for a wrong database differs between its versions.
        _check_database("" if scheme == "unix" else parts.path.removeprefix("/"), parts.query)
        return _pool(SCHEMES[scheme] + url[len(scheme) :], library)
    except (ValueError, RedisError) as error:
        # Without the cause: the messages of `urlsplit` and of
        # the library quote the URL, and with it the password.
        raise ValueError(f"the URL {_without_secrets(url)!r} is wrong: {_reason(error, url)}") from None


def url_of_environment() -> str | None:
    """Return the URL in the first variable that is set; None if no variable is set."""
    return next(filter(None, map(os.environ.get, VARIABLES)), None)


def seeds_of_url(url: str) -> list[Node]:
    """Return the nodes named by the URL of a cluster; an empty list for a URL of no cluster."""
    parts = urlsplit(_tidied(url))
    return _hosts(parts, PORT) if parts.scheme.endswith(CLUSTER) else []


def pool_of_client(client: object, library: ModuleType, other: str) -> Any:
    """Return the pool of a client. Raises TypeError or ServerUnsupported for anything but a client of ``library``.

    ``other`` is our class for clients of the other library.
    """
    asyncio = library is redis.asyncio
    # A client of valkey-py exists only where its module is
    # loaded, so nothing is imported to compare the types.
    valkey: Any = sys.modules.get("valkey.asyncio" if asyncio else "valkey")
    # First, since a pipeline is an instance of its client class.
    if isinstance(client, library.client.Pipeline | library.cluster.ClusterPipeline):
        raise TypeError("the server must be a client, not a pipeline of one")
    if isinstance(client, library.Redis):
        return _checked(client.connection_pool)
    if isinstance(client, library.RedisCluster):
        return _pool_of_cluster(client, library)
    if valkey is not None and isinstance(client, valkey.Valkey):
        return _pool_like(client.connection_pool, library)
    if valkey is not None and isinstance(client, valkey.ValkeyCluster):
        raise ServerUnsupported(
            f"cluster clients of valkey-py are not known here; use a URL, redis{CLUSTER}://host:port"
        )
    # Clients that fit were returned above: what is left of these classes belongs to the other API.
    if isinstance(client, redis.Redis | redis.asyncio.Redis | redis.RedisCluster | redis.asyncio.RedisCluster):
        raise TypeError(f"a client of {type(client).__module__} needs {other}, not this class")
    if type(client).__name__ == "MultiDBClient":
        raise ServerUnsupported(
            "a MultiDBClient has several databases, and each would grant the same name; choose one of them, with replicas "
            "and Sentinel or as a cluster"
        )
    name = library.__name__
    raise TypeError(
        f"the server must be a URL, a {name}.Redis, the same of valkey-py, a {name}.RedisCluster, or None, not {client!r}"
    )


def seeds_of_client(client: Any, library: ModuleType) -> list[Node]:
    """Return the nodes known to the client of a cluster; an empty list for a client of a single server."""
    if not isinstance(client, library.RedisCluster):
        return []
    return [Node(node.host, int(node.port)) for node in _nodes_of(client)]


def sentinels_of(pool: Any) -> list[Any]:
    """Return the clients of the Sentinels that a pool asks; an empty list for a pool without a Sentinel service."""
    manager = getattr(pool, "sentinel_manager", None)
    return [] if manager is None else manager.sentinels


def _nodes_of(cluster: Any) -> list[Any]:
    """Return the nodes known to redis-py's client of a cluster: named by the user, or found since."""
    manager = cluster.nodes_manager
    return [*{**manager.startup_nodes, **manager.nodes_cache}.values()]


def _pool_of_cluster(cluster: Any, library: ModuleType) -> Any:
    """Return a pool with the settings of a cluster's client.

    The function that redis-py calls on each new connection of a cluster's client is left out.
    """
    node = _nodes_of(cluster)[0]
    if library is redis:
        made = cluster.nodes_manager.create_redis_node(node.host, node.port, **cluster.nodes_manager.connection_kwargs)
        kind, settings = made.connection_pool.connection_class, made.connection_pool.connection_kwargs
    else:
        kind, settings = node.connection_class, node.connection_kwargs
    settings = {name: value for name, value in settings.items() if name != "redis_connect_func"}
    return library.ConnectionPool(connection_class=kind, **settings)


def _pool(url: str, library: ModuleType) -> Any:
    """Return the pool of a URL as redis-py understands it, and as Celery does.

    So ``ssl_cert_reqs`` may have the names of Python's ssl.
    """
    pool = library.ConnectionPool.from_url(url)
    settings = pool.connection_kwargs
    if isinstance(reqs := settings.get("ssl_cert_reqs"), str):
        settings["ssl_cert_reqs"] = reqs.lower().removeprefix("cert_")
    return pool


def _check_database(path: str, query: str) -> None:
    """Refuse a database that redis-py would take for 0, such as a name not filled in, and two different databases."""
    named = [*filter(None, [path]), *parse_qs(query).get("db", [])]
    for one in named:
        if not (one.isascii() and one.isdigit()):
            raise ValueError(f"the database must be a number from 0 on, as in redis://host:6379/0, not {one!r}")
    if len({int(one) for one in named}) > 1:
        raise ValueError("it names two databases")


def _hosts(parts: SplitResult, port: int) -> list[Node]:
    """Return the hosts of a URL with several servers, between the login and the path."""
    hosts = [urlsplit(f"//{one}") for one in parts.netloc.rpartition("@")[2].split(",")]
    return [Node(host.hostname or "localhost", host.port or port) for host in hosts]


def _pool_of_node(parts: SplitResult, library: ModuleType) -> Any:
    """Return the pool of the first node in the URL of a cluster."""
    login, _, hosts = parts.netloc.rpartition("@")
    if not hosts:
        raise ValueError("it must name nodes, as in redis+cluster://host1:6379,host2:6379")
    _check_database(parts.path.strip("/"), parts.query)
    first = hosts.partition(",")[0]
    _hosts(parts, PORT)  # refuses what can't be a port
    return _pool(parts._replace(netloc=f"{login}@{first}" if login else first).geturl(), library)


def _pool_of_service(parts: SplitResult, library: ModuleType) -> Any:
    """Return the pool of the primary of a Sentinel's service, which asks the Sentinels for each connection."""
    login, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.removeprefix("/").partition("/")
    if not hosts or not service:
        raise ValueError(
            "it must name Sentinels and a service, as in redis+sentinel://host1:26379,host2:26379/mymaster/0"
        )
    one = parts._replace(netloc=f"{login}@localhost" if login else "localhost", path=f"/{database}")
    _check_database(database, parts.query)
    settings = _pool(one.geturl(), library).connection_kwargs
    for replaced in ("host", "port"):
        settings.pop(replaced, None)
    if parts.scheme == "rediss":
        settings["ssl"] = True
    secrets = {name: settings.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    shared = {"socket_timeout": SENTINEL_S, "socket_connect_timeout": SENTINEL_S} | {
        name: value for name, value in settings.items() if name.startswith(SHARED_WITH_SENTINELS)
    }
    sentinels = [*_hosts(parts, SENTINEL_PORT)]
    at_once = {"retry": library.retry.Retry(NoBackoff(), 0)}  # where one Sentinel is down, another one is asked at once
    sentinel = library.Sentinel(sentinels, sentinel_kwargs=shared | secrets | at_once, **settings)
    return sentinel.master_for(service).connection_pool


def is_address(host: str) -> bool:
    """Return whether a host is an IP address and not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host, in the order in which they are tried. It may take long. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(address[0]) for *_, address in found)]


def _pool_like(pool: Any, library: ModuleType) -> Any:
    """Return a pool of redis-py with the settings of a pool of valkey-py."""
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


def _tidied(url: str) -> str:
    """Return a URL without the blanks around it and around its commas, which a settings file or a list brings along.

    Raises ValueError for a URL without a scheme, and for a blank elsewhere, which would be part of a name.
    """
    url = url.strip().removeprefix("\ufeff")
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.replace("+", "").isalpha():
        # The example shows nothing from before the last @: without a scheme any text there may be a password.
        found = _SCHEME.match(url)
        place = re.split("[?#]", url.rpartition("@")[2][found.end() if found and "@" not in url else 0 :])[0]
        example = place if re.fullmatch(r"[\w.-]+(:\d+)?(/\d+)?", place) else "host:6379/0"
        kind = found[1] if found and not found[1].startswith("http") else "redis"
        example = "/path/to/socket" if kind == "unix" else example
        raise ValueError(f"it must begin with a scheme and two slashes, as in {kind}://{example}")
    if any(ord(one) < ord(" ") or one == "\x7f" for one in url):
        raise ValueError("it has a line end, a tab or another control character in it")
    # Before the tests for blanks: a path may have them.
    if scheme == "unix":
        return url
    login, at, place = rest.rpartition("@")
    hosts, path = re.match("([^/?#]*)(.*)", place).groups()  # type: ignore[union-attr]  # it matches any text
    hosts = ",".join(one.strip() for one in hosts.split(","))
    # Without an @ the text behind the colon is a password, unless it is a port.
    if hosts.startswith(":") and not at and not hosts[1:].isdigit():
        raise ValueError("it must name a host behind the password, as in redis://:password@host:6379/0")
    # Only behind the login: a password may have blanks.
    if re.search(r"\s", hosts + path):
        raise ValueError("it has a blank in it")
    return f"{scheme}://{login}{at}{hosts}{path}"


def _without_secrets(url: str) -> str:
    """Return the part of a possibly broken URL that may be shown: nothing from before the last ``@``."""
    url = url.strip()
    found = _SCHEME.match(url)
    scheme = found[1] + found[2] if found and found[2] else ""
    head, at, place = url.rpartition("@")
    is_doubtful = re.search("[?#]", head) if at else url.removeprefix(scheme).startswith(":")
    if is_doubtful:  # what seems to be the place may belong to a password
        return f"{scheme}..."
    place = re.split("[?#]", place)[0]
    return f"{scheme}...@{place}" if at else place


def _reason(error: Exception, url: str) -> str:
    """Return why a URL is wrong, without any text from before the last ``@`` of the URL."""
    login = url.rpartition("@")[0]
    words = [one for one in re.split("[:/@,?#]+", _SCHEME.sub("", login, count=1)) if len(one) > 2]
    return QUOTE if any(one in str(error) for one in words) else str(error)
