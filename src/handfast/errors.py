"""What can go wrong, split by whose fault it is.

    HandfastError
    ├── AcquireTimeout      nobody's: others held it for longer than the caller would wait (also a TimeoutError)
    ├── QueueFull           the crowd's: more waiters than the lock allows
    ├── LimitExceeded       an operator's: the semaphore was made smaller than what is asked of it
    ├── LeaseLost           time's or an operator's: the lease ended before its holder gave it up
    ├── NotHeld             the caller's: the lease was already given up
    ├── NotOwner            the caller's: only the thread or task that acquired it may release it (also a RuntimeError)
    ├── WouldDeadlock       the caller's: it would wait for the end of a block that it is in (also a RuntimeError)
    ├── NoServer            the set-up's: nobody said which server to use, and none could be started
    ├── ScriptError         the script's author's: a script of the user's own failed, and on which line
    ├── ServerUnsupported   the set-up's: the server or client lacks something that we cannot do without
    └── ServerRefused       the server's: out of memory, read only, missing replicas, missing rights

Every error carries the name that it is about and says what to do. The client library's own connection
errors pass through unchanged: a network that is down is not ours to rename.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AcquireTimeout",
    "HandfastError",
    "LeaseLost",
    "LimitExceeded",
    "NoServer",
    "NotHeld",
    "NotOwner",
    "QueueFull",
    "ScriptError",
    "ServerRefused",
    "ServerUnsupported",
    "WouldDeadlock",
]


class HandfastError(Exception):
    """The root of all errors that Handfast raises on its own account."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes as what it is, whatever it was made from."""
        return _made_again, (type(self), self.args, vars(self))


class AcquireTimeout(HandfastError, TimeoutError):
    """The permits did not come free within the caller's ``timeout``. Nothing is left behind."""

    def __init__(self, name: str, timeout: float, why: str = "others hold it") -> None:
        super().__init__(
            f"{name!r} could not be acquired within {timeout:g} s: {why}; wait longer with timeout=, or see status()",
            name=name,
        )
        self.timeout = timeout


class QueueFull(HandfastError):
    """The line already has as many waiters as the lock allows. Nothing was changed."""

    def __init__(self, name: str, waiting: int) -> None:
        super().__init__(
            f"{waiting} are already waiting for {name!r}; try again later or raise max_waiters=", name=name
        )
        self.waiting = waiting


class LimitExceeded(HandfastError):
    """More permits were asked for than there are, since somebody has resized the semaphore. Nothing was changed."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(
            f"{name!r} was resized to {limit} permit{'s'[: limit > 1]}, fewer than are asked for; ask for fewer, or resize() it",
            name=name,
        )
        self.limit = limit


class LeaseLost(HandfastError):
    """The lease ended before its holder gave it up: somebody else may hold the name by now."""

    def __init__(self, name: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the lease of {name!r} with fence {fence} was lost: {reason}; stop the protected work, its writes must not count",
            name=name,
        )
        self.fence = fence
        self.reason = reason


class NotHeld(HandfastError):
    """The lease was already released, so there is nothing to check, extend or renew."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease of {name!r} was already released; acquire a new one", name=name)


class NotOwner(HandfastError, RuntimeError):
    """A reentrant lock is released by whom it does not belong to. Nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the reentrant lock {name!r} belongs to the thread or task that acquired it, and only that one may release it",
            name=name,
        )


class WouldDeadlock(HandfastError, RuntimeError):
    """A read-write lock is asked for within a block that holds it, and would wait for itself. Nothing was sent."""

    def __init__(self, name: str, advice: str) -> None:
        super().__init__(
            f"{name!r} is held by a block of this very caller, which can't be left while it waits here: {advice}",
            name=name,
        )


class NoServer(HandfastError):
    """No server was named, or the embedded one cannot be had here."""


class ScriptError(HandfastError):
    """A script failed. What it had written by then stays: scripts are never rolled back."""

    def __init__(self, name: str, line: int, source_line: str, reason: str) -> None:
        shown = f"\n    {line} | {source_line}" if source_line else ""
        super().__init__(f"the script {name!r} failed on line {line}: {reason}{shown}", name=name)
        self.line = line
        """Counted from 1."""
        self.source_line = source_line
        self.reason = reason
        """The server's own words, without the position."""


class ServerUnsupported(HandfastError):
    """The server, or the kind of client given, cannot do what Handfast needs."""


class ServerRefused(HandfastError):
    """The server understood and said no: out of memory, read only, too few replicas, no rights."""

    def __init__(self, message: str, *, name: str, changed_nothing: bool, words: str = "") -> None:
        super().__init__(message, name=name)
        self.changed_nothing = changed_nothing
        """Whether the server is known to have refused before anything was written."""
        self.words = words
        """What the server said."""


def _made_again(kind: type[HandfastError], args: tuple[object, ...], state: dict[str, object]) -> HandfastError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error
