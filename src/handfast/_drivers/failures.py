"""Errors and log records of both drivers, with the same words."""

from __future__ import annotations

import contextlib
import logging

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_transient, subscribe_denied
from handfast.errors import AcquireTimeout, HandfastError

__all__ = [
    "client_closed",
    "closed_while_waiting",
    "connection_broke",
    "copy_exception",
    "log_unfinished_cleanup",
    "not_subscribed",
    "server_silent",
    "server_starting",
    "timed_out",
]


def client_closed(name: str) -> HandfastError:
    return HandfastError("this client was closed; make a new one", name=name)


def closed_while_waiting(name: str = "") -> HandfastError:
    return HandfastError("this client was closed while the call waited", name=name)


def connection_broke(cause: object) -> RedisConnectionError:
    return RedisConnectionError(f"the connection to the server broke: {cause}")


def server_silent() -> RedisTimeoutError:
    return RedisTimeoutError("the server did not answer in time")


def server_starting(error: object) -> RedisConnectionError:
    return RedisConnectionError(f"the server is not ready: {error}")


def not_subscribed(reply: ErrorReply, channel: str) -> Exception:
    """Return the error for a session whose subscription was refused."""
    return RedisConnectionError(str(reply)) if is_transient(reply) else subscribe_denied(reply, channel)


def timed_out(error: Exception, name: str, timeout: float | None, until: float) -> AcquireTimeout | None:
    """Return what an acquire raises instead of ``error`` if the server was silent until the caller's time was up."""
    if isinstance(error, RedisTimeoutError) and monotonic() >= until:
        return AcquireTimeout(name, timeout or 0, "the server did not answer")
    return None


def copy_exception(error: Exception) -> Exception:
    """Copy an error for one more waiter: each raised exception collects a traceback of its own."""
    with contextlib.suppress(TypeError):
        return type(error)(*error.args)
    return error


def log_unfinished_cleanup(name: str, reason: object) -> None:
    """Log that an undo outlasts the caller, whose lock may stay held or queued for some seconds."""
    logging.getLogger("handfast.cleanup").warning(
        "the cleanup of %r goes on in the background: %s", name, reason, extra={"lock": name, "reason": str(reason)}
    )
