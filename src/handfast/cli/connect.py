"""Which server a command connects to: the one that is named, by an option or in the environment, and no other."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from handfast._engine.defaults import EMBEDDED

__all__ = ["UNAVAILABLE", "server_options", "server_url"]

UNAVAILABLE = 69
"""Exit code of every command when the server cannot be reached or refuses (EX_UNAVAILABLE of sysexits.h)."""

T = TypeVar("T")


def server_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options ``--url`` and ``--embedded``. The command gets one ``url``, or is not called: then none is named."""

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
        named = EMBEDDED if embedded else url or os.environ.get("HANDFAST_URL") or os.environ.get("REDIS_URL")
        if not named:
            raise click.UsageError(
                "No server is named. Use --url, or set HANDFAST_URL or REDIS_URL. Use --embedded for a server on this "
                "machine that only your processes here share."
            )
        return command(*args, url=named, **options)

    return with_url


def server_url(named: str) -> str:
    """Return the URL of the server that the options name. The embedded one is started unless it runs.

    Raises NoServer if it cannot be started.
    """
    if named != EMBEDDED:
        return named
    from handfast.embedded import shared_url

    click.echo("handfast: using the embedded server, which only your processes on this machine share", err=True)
    return shared_url()
