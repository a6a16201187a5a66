"""Errors and log records of both drivers, with the same words."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
from collections.abc import Mapping
from typing import Any

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.clock import monotonic
from handfast._engine.messages import Subscription
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_transient, subscribe_denied
from handfast._protocol.lease import LeaseState
from handfast.errors import HandfastError, ServerRefused, ServerUnsupported

__all__ = [
    "OWN_ERRORS",
    "SILENT",
    "already_held",
    "connection_broke",
    "copy_exception",
    "handshake_failed",
    "hello_refused",
    "lease_log",
    "log_acquired",
    "log_own_wait",
    "log_released",
    "log_unfinished_cleanup",
    "log_unheard",
    "log_unreleased",
    "no_decorator",
    "no_primary",
    "no_shares",
    "outside_cluster",
    "primary_changed",
    "server_silent",
    "setup_failed",
]

OWN_ERRORS = (RedisError, HandfastError)
"""The errors of an operation itself. All others came from outside, such as an interrupt."""

SILENT = "the server did not answer"

_NO_RESP3 = r"(?is)^(?:ERR )?unknown command\W+HELLO|^NOPROTO\b"

_NOAUTH = r"(?i)\bHELLO must be called with the client already authenticated\b"

_SENTINEL = r"(?s)<redis\.(?:asyncio\.)?client\.Redis\(.*?\bhost=([^,)]+),port=(\d+).*?>\)>\)>"
"""A client as redis-py shows it in its error, with its host and its port."""

lease_log = logging.getLogger("handfast.lease")
"""Its level is asked before each record, in the drivers: without DEBUG that is all that logging costs a lock."""


def connection_broke(cause: object) -> RedisConnectionError:
    return RedisConnectionError(f"the connection to the server broke: {cause}")


def primary_changed() -> RedisConnectionError:
    return RedisConnectionError("the server is not the primary any more")


def server_silent() -> RedisTimeoutError:
    return RedisTimeoutError(f"{SILENT} in time")


def setup_failed(error: Exception, settings: Mapping[str, Any]) -> RedisConnectionError:
    """Return the error for what a credential provider, or other code of the user's that takes part in connecting, has raised."""
    said = f"{type(error).__name__}: {error}"
    if settings.get("credential_provider") is not None:
        return AuthenticationError(f"there are no credentials for the server: {said}")
    return RedisConnectionError(f"the connection could not be set up: {said}")


def hello_refused(error: Exception) -> Exception | None:
    """Return the error for a server that is not ready, wants a password, or does not speak RESP3; None for other errors."""
    if is_transient(str(error)):
        return RedisConnectionError(f"the server is not ready: {error}")
    if re.search(_NOAUTH, str(error)):
        return AuthenticationError("the server wants a password, and neither the URL nor the settings have one")
    if not re.search(_NO_RESP3, str(error)):
        return None
    return ServerUnsupported(
        f"the server does not speak RESP3, on which one connection both calls and receives messages ({error}); connect to Redis 6.2 "
        "or newer or to Valkey directly, without a proxy that only knows RESP2"
    )


def handshake_failed(subscription: Subscription, reply: Any) -> Exception | None:
    """Return why no message can reach a session, by the reply that ended its handshake; None if they can."""
    channel = subscription.channels[0]
    if isinstance(reply, ErrorReply):
        return RedisConnectionError(str(reply)) if is_transient(reply) else subscribe_denied(reply, channel)
    if isinstance(reply, list) and reply[:1] == [channel.encode()] and any(reply[1:]):
        return None
    return ServerUnsupported(
        f"the server does not count this connection among the subscribers of {channel!r} (PUBSUB NUMSUB: {reply!r}), so no "
        "grant could reach it; connect to the primary directly, without a proxy that handles SUBSCRIBE itself",
        name=channel,
    )


def outside_cluster() -> RedisConnectionError:
    return RedisConnectionError("the node knows of no primary of the cluster: it has left it, or has not joined it yet")


def no_decorator() -> TypeError:
    return TypeError(
        "what acquire() returns is no decorator; decorate with the object itself, as in @hf.lock('a', timeout=5)"
    )


def no_primary(error: RedisConnectionError) -> RedisConnectionError:
    """Return the error for Sentinels that name no primary, with their addresses in place of their clients and all of their settings."""
    return type(error)(re.sub(_SENTINEL, r"\1:\2", str(error)))


def no_shares(reply: ErrorReply) -> Exception:
    """Return the error for a server that does not tell which primary of its cluster has which slot."""
    if is_transient(reply):
        return RedisConnectionError(str(reply))
    if "cluster support disabled" in reply:
        return ServerUnsupported(f"the server is not part of a cluster; name it with redis://host:port ({reply})")
    return ServerRefused(
        f"the server does not tell which slots of the cluster it has: allow it with ACL SETUSER … +cluster|slots ({reply})",
        name="",
        changed_nothing=True,
        reply=str(reply),
    )


def already_held(name: str) -> ValueError:
    return ValueError(
        f"the lease of {name!r} with this token is held by this client already; a token can be adopted once"
    )


def copy_exception(error: Exception) -> Exception:
    """Copy an error for one more waiter: each raised exception collects a traceback of its own."""
    with contextlib.suppress(TypeError):
        return copy.copy(error)
    return error


def log_unreleased(name: str) -> None:
    """Log that a client was closed before the server confirmed a release."""
    logging.getLogger("handfast.cleanup").warning(
        "could not release the lease of %r before its client was closed; it may stay held until its ttl ends",
        name,
        extra={"lock": name, "reason": "the server did not confirm it in time"},
    )


def log_unheard(address: str) -> None:
    logging.getLogger("handfast.lease").warning(
        "no messages of %s reach this client, which a proxy may keep back: its waiters ask every 0.05 s to 1 s instead; connect to the "
        "server directly",
        address,
        extra={"server": address, "reason": "the message of the probe did not come back"},
    )


def log_own_wait(lease: LeaseState) -> None:
    name, held_for = lease.request.name, lease.held_for(monotonic())
    lease_log.warning(
        "a call waits for %r, which this client itself has held for %.0f s; if the holder waits for that call, neither goes on",
        name,
        held_for,
        extra={"lock": name, "fence": lease.fence, "held_for": held_for},
    )


def log_acquired(lease: LeaseState) -> None:
    name, fence, waited = lease.request.name, lease.fence, lease.waited
    fields = {"lock": name, "fence": fence, "waited": waited}
    lease_log.debug("acquired %r with fence %d after %.3f s", name, fence, waited, extra=fields)


def log_released(lease: LeaseState) -> None:
    name, fence, held_for = lease.request.name, lease.fence, lease.held_for(monotonic())
    fields = {"lock": name, "fence": fence, "held_for": held_for}
    lease_log.debug("released %r with fence %d after %.3f s", name, fence, held_for, extra=fields)


def log_unfinished_cleanup(name: str, reason: object) -> None:
    """Log that an undo outlasts the caller, whose lock may stay held or queued for some seconds."""
    logging.getLogger("handfast.cleanup").warning(
        "the cleanup of %r goes on in the background: %s", name, reason, extra={"lock": name, "reason": str(reason)}
    )
