"""Find out why a turn of a loop ended, for the loops of both drivers. `handfast._protocol.loops` has the rules."""

from __future__ import annotations

from abc import abstractmethod
from asyncio import CancelledError
from typing import Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._protocol.loops import Cause, Pauses
from handfast.errors import ClientClosed, HandfastError, LeaseLost, NotReplicated, ServerRefused, Superseded

__all__ = ["BaseLoop"]

AWAY = (RedisConnectionError, RedisTimeoutError, NotReplicated)
"""Errors of a server that is away, or that lacks its replicas."""


class Client(Protocol):
    """The driver of a client, which may be closed and opened again."""

    openings: int

    def is_open_since(self, opening: int, /) -> bool: ...


class Lease(Protocol):
    """The lease of a turn."""

    @property
    def lost(self) -> bool: ...

    @property
    def wanted(self) -> str | None: ...

    @property
    def fence(self) -> int: ...


class BaseLoop:
    """A loop of a kind of object, such as an election, under a name.

    Args:
        driver: The loop ends with this client.
        kind: The kind of the object, also in the name of the logger.
        name: The name in log records.
        function: The name of the user's function in log records.
        repeats: Whether the function is called again after errors of its own.
        apart: Whether a thread of Handfast runs the loop: SystemExit and KeyboardInterrupt of the function end no program there.
    """

    def __init__(
        self, driver: Client, kind: str, name: str, function: str = "", *, repeats: bool = False, apart: bool = False
    ) -> None:
        self._driver = driver
        self._opening = driver.openings
        self._kind = kind
        self._name = name
        self._function = function
        self._repeats = repeats
        self._apart = apart
        self._pauses = Pauses(repeats=repeats)
        self._raised: BaseException | None = None
        """The error that the function has raised, until the loop has judged it."""

    @property
    def is_over(self) -> bool:
        """Whether the client was closed since the loop began."""
        return not self._driver.is_open_since(self._opening)

    def check(self) -> None:
        """Raise ClientClosed if the client was closed, also if it was opened again since."""
        if self.is_over:
            raise ClientClosed(self._name)

    def after(self, error: BaseException, lease: Lease | None = None) -> float | None:
        """Return the seconds until the loop goes on after an error; None if the error is to be raised.

        ``lease`` is the lease of the turn, if there is one.
        """
        is_of_function, self._raised = error is self._raised, None
        now, cause = monotonic(), self._cause_of(error, lease, is_of_function=is_of_function)
        pause = self._pauses.after(cause, now)
        if pause is None or cause is Cause.TAKEN or (cause is Cause.OUTAGE and not self._pauses.is_news(now)):
            return pause
        log.loop_failed(self._kind, self._name, self._function, error, pause, of_function=is_of_function)
        return pause

    def _begin(self) -> None:
        """Note the call of the function."""
        self._pauses.begin(monotonic())

    def _cause_of(self, error: BaseException, lease: Lease | None, *, is_of_function: bool) -> Cause:  # noqa: PLR0911 -- a table
        if not isinstance(error, Exception | CancelledError):  # Ctrl-C, SystemExit, the end of a generator
            return Cause.FOREIGN if self._apart and not isinstance(error, GeneratorExit) else Cause.INTERRUPTED
        if isinstance(error, CancelledError):
            return Cause.INTERRUPTED if self._is_cancelled() else Cause.FOREIGN
        if isinstance(error, ClientClosed):
            return Cause.CLOSED if self.is_over else Cause.FOREIGN
        if isinstance(error, LeaseLost) and lease is not None and error.fence == lease.fence:
            return Cause.TAKEN
        if isinstance(error, LeaseLost | Superseded):
            return Cause.FOREIGN
        if isinstance(error, AWAY):
            return Cause.OUTAGE if not is_of_function else Cause.FOREIGN
        if is_of_function and lease is not None and (lease.lost or lease.wanted):
            return Cause.FOREIGN  # such as the end of code that cleans up after the loss
        if is_of_function or isinstance(error, TypeError | ValueError):
            return Cause.FAILED
        if isinstance(error, HandfastError) and not isinstance(error, ServerRefused):
            return Cause.FAILED  # the caller's own bounds, such as a timeout
        return Cause.REFUSED if isinstance(error, RedisError | ServerRefused) else Cause.FOREIGN

    @abstractmethod
    def _is_cancelled(self) -> bool:
        """Whether the caller of the loop was cancelled, and not only a task awaited by the function."""
