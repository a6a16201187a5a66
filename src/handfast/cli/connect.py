"""Which server a command connects to: the server named by an option or in the environment, and no other."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from handfast._engine.defaults import EMBEDDED, NULL
from handfast._engine.validate import encode_name
from handfast.cli.program import say

if TYPE_CHECKING:
    import redis

__all__ = [
    "namespace_option",
    "parse_name",
    "redis_client",
    "server_options",
    "server_url",
    "unreachable",
]


T = TypeVar("T")

_REDIS_PY = re.compile(r"Error -?[0-9]+ connecting to \S+\. ([A-Z])([^.]*)\.")
"""Matches what redis-py says of a server that the message has named already."""


def parse_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Check a name as the library does."""
    try:
        encode_name(value, "a name")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


namespace_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--namespace",
    metavar="TEXT",
    default="hf",
    show_default=True,
    callback=parse_name,
    help="Prefix of the keys on the server.",
)


def server_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options ``--url`` and ``--embedded``.

    The command gets one ``url``, or is not called: then none is named.
    """

    @click.option("--url", metavar="URL", help="URL of the server.  [default: $HANDFAST_URL or $REDIS_URL]")
    @click.option(
        "--embedded",
        is_flag=True,
        help="Use a server that is started on this machine, and that coordinates your processes on this machine only.",
    )
    @functools.wraps(command)
    def with_url(*args: Any, url: str | None, embedded: bool, **options: Any) -> T:
        if url and embedded:
            raise click.UsageError("Use either --url or --embedded.")
        from handfast._drivers.addresses import url_of_environment

        named = EMBEDDED if embedded else url or url_of_environment()
        if not named:
            raise click.UsageError(
                "No server is named. Use --url, or set HANDFAST_URL or REDIS_URL. Use --embedded for a server on this "
                "machine that only your processes here share."
            )
        return command(*args, url=named, **options)

    return with_url


def server_url(named: str) -> str:
    """Return the URL of the server that the options name, for a client of ours. Say so where it is no server of theirs."""
    if named == NULL:
        say(f"{NULL} is no server, so nothing is coordinated")
    if named == EMBEDDED:
        say("using the embedded server, which only your processes on this machine share")
    return named


def redis_client(named: str, **settings: Any) -> redis.Redis | redis.RedisCluster:
    """Return redis-py's client for a server that `Handfast` would take as well. It sends nothing twice.

    Raises ValueError for a URL that is wrong, and NoServer if the embedded server cannot be started.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.cluster import ClusterNode
    from redis.retry import Retry

    from handfast._drivers.addresses import pool_of_url, seeds_of_url

    url = server_url(named)
    if url == EMBEDDED:
        from handfast.embedded import shared_url

        url = shared_url()
    pool = pool_of_url(url, redis)
    pool.connection_kwargs |= {"retry": Retry(NoBackoff(), 0)} | settings
    if not (seeds := seeds_of_url(url)):
        return redis.Redis.from_pool(pool)
    shared = {name: value for name, value in pool.connection_kwargs.items() if name not in ("host", "port", "db")}
    nodes = [ClusterNode(node.host, node.port) for node in seeds]  # type: ignore[no-untyped-call]  # redis-py's
    return redis.RedisCluster(startup_nodes=nodes, **shared)


def unreachable(error: Exception, named: str | None = None) -> str:
    """Return an error as a message shows it.

    ``named`` is the server, where the error comes from a client of `redis_client`, and so does not say which one it is.
    """
    if named not in (None, EMBEDDED):
        from handfast._drivers.sync.connect import SyncConnector

        connector = SyncConnector.of(named)
        if connector is not None:
            connector.blame(error)
    return _REDIS_PY.sub(lambda found: found[1].lower() + found[2], str(error))
