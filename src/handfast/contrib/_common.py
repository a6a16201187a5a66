"""Shared by the adapters: the client of an application, checks without a server, and the default wait of a web request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from handfast import AsyncHandfast, Handfast

__all__ = ["BUSY_TEXT", "CHECKS", "WAIT_S", "client_for"]

C = TypeVar("C", Handfast, AsyncHandfast)

CHECKS = Handfast("null:")
"""Makes objects that are not used: bad arguments are refused where a view or a task is defined, not at the first call."""

WAIT_S = 10.0
"""Seconds that a web request waits for a lock by default: less than most clients and proxies wait for an answer."""

BUSY_TEXT = "This is in use by another request. Try again later."
"""The answer to a web request whose lock is held. It names no lock and no holder: those are for operators."""


def client_for(kind: type[C], server: C | str | None, options: Mapping[str, Any]) -> C:
    """Return the given client, or make a client of a URL with these options.

    Raises TypeError for options beside a client, and for a client of the other API.
    """
    if server is None or isinstance(server, str):
        return kind(server, **options)
    if not isinstance(server, kind):
        raise TypeError(
            f"the server must be a URL or a client of the class {kind.__name__}, not {type(server).__name__}"
        )
    if options:
        raise TypeError(f"the client has its options already; leave out {', '.join(options)}")
    return server
