"""Shared by the adapters: the client of an application, what is made for it, checks without a server, and how long a web request waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from handfast import AsyncHandfast, Handfast

__all__ = ["BUSY_TEXT", "CHECKS", "WAIT_S", "MadeFor", "client_for"]

C = TypeVar("C", Handfast, AsyncHandfast)

H = TypeVar("H")

T = TypeVar("T")

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


class MadeFor(Generic[H, T]):
    """An object of a client, such as a limiter, which is made at its first use and made again for another client."""

    def __init__(self, make: Callable[[H], T]) -> None:
        self._make = make
        self._made: tuple[H, T] | None = None

    def __call__(self, client: H) -> T:
        """Return the object of this client."""
        made = self._made
        if made is None or made[0] is not client:
            made = self._made = client, self._make(client)
        return made[1]
