"""Which server a command talks to: the one named, the one in the environment, or the embedded one."""

from __future__ import annotations

import os

__all__ = ["server_url"]


def server_url(url: str | None) -> str:
    """``--url``, else ``$HANDFAST_URL``, else ``$REDIS_URL``, else the user's shared embedded server.

    Raises NoServer when it comes to the embedded one and none can be had.
    """
    named = url or os.environ.get("HANDFAST_URL") or os.environ.get("REDIS_URL")
    if named:
        return named
    from handfast.embedded import shared_url

    return shared_url()
