"""Which server a command connects to: the one named, the one in the environment, or the embedded one."""

from __future__ import annotations

import os

import click

__all__ = ["UNAVAILABLE", "server_url", "url_option"]

UNAVAILABLE = 69
"""Exit code of every command when the server cannot be reached or refuses (EX_UNAVAILABLE of sysexits.h)."""

url_option = click.option(
    "--url",
    metavar="URL",
    help="URL of the server.  [default: $HANDFAST_URL, $REDIS_URL, or an embedded server shared by your processes on "
    "this machine]",
)


def server_url(url: str | None) -> str:
    """Return ``--url``, else ``$HANDFAST_URL``, else ``$REDIS_URL``, else the URL of the user's shared embedded server.

    Raises NoServer if the embedded server is needed and cannot be started.
    """
    named = url or os.environ.get("HANDFAST_URL") or os.environ.get("REDIS_URL")
    if named:
        return named
    from handfast.embedded import shared_url

    return shared_url()
