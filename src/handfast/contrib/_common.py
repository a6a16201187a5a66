"""Shared by the adapters: clients and their objects, a lease whose release may fail, and checks without a server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

import redis.exceptions

from handfast import AsyncHandfast, AsyncLease, Handfast, Lease, ServerRefused
from handfast._drivers.failures import OWN_ERRORS

__all__ = ["BUSY_TEXT", "CHECKS", "WAIT_S", "Holding", "MadeFor", "client_for"]

C = TypeVar("C", Handfast, AsyncHandfast)

H = TypeVar("H")

T = TypeVar("T")

OUTAGES = redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, ServerRefused
"""The errors of a release that the server has not executed."""

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
    """Makes an object of a client, such as a limiter, at the first use, and again for another client."""

    def __init__(self, make: Callable[[H], T]) -> None:
        self._make = make
        self._made: tuple[H, T] | None = None

    def __call__(self, client: H) -> T:
        """Return the object of this client."""
        made = self._made
        if made is None or made[0] is not client:
            made = self._made = client, self._make(client)
        return made[1]


class Holding:
    """Holds a lease in a block. An outage during the release is logged, and not raised.

    The work of the block is done by then. An error would have a request or a task sent again. The lease ends by itself.
    """

    def __init__(self, lease: Lease | AsyncLease, log: logging.Logger) -> None:
        self._lease: Any = lease
        self._log = log

    def __enter__(self) -> None:
        self._lease.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._lease.__exit__(kind, error, traceback)
        except OUTAGES as outage:
            self._excuse(outage, error)
        except OWN_ERRORS:
            raise
        except BaseException as interrupt:  # before the lease had begun to leave its block
            self._lease._leave_interrupted(interrupt)  # noqa: SLF001 -- ours
            raise

    async def __aenter__(self) -> None:
        await self._lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._lease.__aexit__(kind, error, traceback)
        except OUTAGES as outage:
            self._excuse(outage, error)

    def _excuse(self, outage: Exception, error: BaseException | None) -> None:
        if error is not None:
            raise outage
        self._log.warning("%r was not released, and is free when its lease ends: %s", self._lease.name, outage)
