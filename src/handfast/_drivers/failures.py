"""Errors and log records of both drivers, with the same words."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._engine.messages import Subscription
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_transient, subscribe_denied
from handfast.errors import AcquireTimeout, HandfastError, ServerUnsupported

__all__ = [
    "client_closed",
    "closed_while_waiting",
    "connection_broke",
    "copy_exception",
    "handshake_failed",
    "log_unfinished_cleanup",
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


def handshake_failed(subscription: Subscription, reply: Any) -> Exception | None:
    """Return why no message can reach a session, by the reply that ended its handshake; None if they can."""
    channel = subscription.channels[0]
    if isinstance(reply, ErrorReply):
        return RedisConnectionError(str(reply)) if is_transient(reply) else subscribe_denied(reply, channel)
    if isinstance(reply, list) and any(reply[1:]):
        return None
    return ServerUnsupported(
        f"the server does not count this connection among the subscribers of {channel!r} (PUBSUB NUMSUB: {reply!r}), so no "
        "grant could reach it; connect to the primary directly, without a proxy that handles SUBSCRIBE itself",
        name=channel,
    )


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
