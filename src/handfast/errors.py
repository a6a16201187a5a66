"""The errors that Handfast raises, by where the cause lies.

    HandfastError
    ├── AcquireTimeout      contention: the name stayed taken for the caller's whole timeout (also a TimeoutError)
    ├── QueueFull           contention: the queue has max_waiters requests already
    ├── LimitExceeded       operator: the semaphore was resized below the permits requested
    ├── LeaseLost           time or operator: the lease expired, was revoked, or vanished from the server
    ├── NotHeld             caller: the lease was released already
    ├── NotOwner            caller: only the thread or task that acquired a reentrant lock may release it (also a RuntimeError)
    ├── WouldDeadlock       caller: the acquire would wait for the caller's own with block (also a RuntimeError)
    ├── NoServer            set-up: no server was named and none could be started
    ├── ScriptError         script: a Lua script of the user's failed, and on which line
    ├── ServerUnsupported   set-up: the server or the given client lacks a feature that Handfast needs
    └── ServerRefused       server: out of memory, read-only, too few replicas, missing permissions

Every error has the ``name`` that it is about, and its message says what to do. Errors are picklable. Connection errors of
redis-py (``redis.exceptions.ConnectionError`` and ``TimeoutError``) are not wrapped: they pass through unchanged.
"""

from __future__ import annotations

from typing import Any

from handfast._naming import name_publicly

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
    """Base class of all errors that Handfast raises.

    Attributes:
        name: The name that the error is about, of a lock or of a script; None where there is none.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class: the arguments of the subclasses' __init__ are not in args.
        return _rebuild, (type(self), self.args, vars(self))


class AcquireTimeout(HandfastError, TimeoutError):
    """The name stayed taken for the caller's whole timeout.

    Neither a lease nor a queue entry remains on the server.

    Attributes:
        timeout: The timeout of the call, in seconds.
    """

    def __init__(self, name: str, timeout: float, why: str = "others hold it") -> None:
        what = f"could not be acquired within {timeout:g} s" if timeout else "is not free"
        super().__init__(
            f"{name!r} {what}: {why}; use a longer timeout=, or call status() to see who holds it",
            name=name,
        )
        self.timeout = timeout


class QueueFull(HandfastError):
    """The queue has as many requests as ``max_waiters`` allows. Nothing was changed.

    Attributes:
        waiting: Length of the queue.
    """

    def __init__(self, name: str, waiting: int) -> None:
        super().__init__(
            f"{waiting} are already waiting for {name!r}; try again later or raise max_waiters=", name=name
        )
        self.waiting = waiting


class LimitExceeded(HandfastError):
    """More permits were requested than the semaphore has since a `Semaphore.resize`. Nothing was changed.

    Attributes:
        limit: The limit in force, in permits.
        requested: The permits requested; None if not known.
    """

    def __init__(self, name: str, limit: int, requested: int | None = None) -> None:
        super().__init__(
            f"{name!r} has a limit of {limit} permit{'s'[: limit != 1]} (set by resize()), fewer than "
            f"{'requested' if requested is None else f'the {requested} requested'}; "
            "request fewer or raise the limit with resize()",
            name=name,
        )
        self.limit = limit
        self.requested = requested


class LeaseLost(HandfastError):
    """The lease ended before it was released; another client may hold the name now.

    Attributes:
        fence: The fencing token of the lost lease.
        reason: Why it was lost: it expired, it was revoked (with the operator's reason), or the server no longer had it.
    """

    def __init__(self, name: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the lease of {name!r} with fence {fence} was lost: {reason}; "
            "stop the protected work, and discard what it has not written yet",
            name=name,
        )
        self.fence = fence
        self.reason = reason


class NotHeld(HandfastError):
    """The lease was released already, so it can't be checked, extended or downgraded."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease of {name!r} was already released; acquire a new one", name=name)


class NotOwner(HandfastError, RuntimeError):
    """A reentrant lock was to be released by another thread or task than the one that acquired it.

    A call of ``release()`` has changed nothing. A ``with`` block that was left there has released its lease.
    """

    def __init__(self, name: str, what: str = "release it there") -> None:
        super().__init__(
            f"the reentrant lock {name!r} can only be released by the thread or task that acquired it; {what}; use "
            "lock() for a lease that any thread or task may release",
            name=name,
        )


class WouldDeadlock(HandfastError, RuntimeError):
    """The acquire would wait for a ``with`` block of the calling thread or task itself. Nothing was sent."""

    def __init__(self, name: str, advice: str) -> None:
        super().__init__(
            f"acquiring {name!r} here would deadlock: this caller already holds it in an enclosing with block; {advice}",
            name=name,
        )


class NoServer(HandfastError):
    """No server was named, or the embedded server can't be started here."""


class ScriptError(HandfastError):
    """A Lua script failed. What it had written before stays: scripts are atomic but are not rolled back.

    Attributes:
        line: The line of the script that failed, counted from 1.
        source_line: The text of that line.
        reason: The server's message, without the position.
    """

    def __init__(self, name: str, line: int, source_line: str, reason: str) -> None:
        shown = f"\n    {line} | {source_line}" if source_line else ""
        super().__init__(f"the script {name!r} failed on line {line}: {reason}{shown}", name=name)
        self.line = line
        self.source_line = source_line
        self.reason = reason


class ServerUnsupported(HandfastError):
    """The server, or the client object passed in, lacks a feature that Handfast needs."""


class ServerRefused(HandfastError):
    """The server refused the command: out of memory, read-only, too few replicas or missing permissions.

    Attributes:
        changed_nothing: True if the server is known to have refused before it wrote anything.
        reply: The server's error reply.
    """

    def __init__(self, message: str, *, name: str, changed_nothing: bool, reply: str = "") -> None:
        super().__init__(message, name=name)
        self.changed_nothing = changed_nothing
        self.reply = reply


def _rebuild(kind: type[HandfastError], args: tuple[object, ...], state: dict[str, object]) -> HandfastError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


name_publicly(globals(), "handfast")
