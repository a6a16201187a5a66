"""The errors of both drivers, with the same words."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Mapping
from typing import Any

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._engine.messages import Subscription
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_transient, subscribe_denied
from handfast.errors import HandfastError, ServerRefused, ServerUnsupported

__all__ = [
    "OWN_ERRORS",
    "SILENT",
    "already_held",
    "connection_broke",
    "copy_exception",
    "handshake_failed",
    "hello_refused",
    "hint_at_tls",
    "is_full",
    "no_decorator",
    "no_primary",
    "no_shares",
    "outside_cluster",
    "primary_changed",
    "server_silent",
    "setup_failed",
    "unbalanced_exit",
]

OWN_ERRORS = (RedisError, HandfastError)
"""The errors of an operation itself. All others came from outside, such as an interrupt."""

SILENT = "the server did not answer"

_NOAUTH = r"(?i)\bHELLO must be called with the client already authenticated\b"

_MISPLACED = {
    r"(?i)unknown command\W+SELECT\b": "the server has no numbered databases; if it is a Sentinel, connect through it: "
    "redis+sentinel://host:port/SERVICE ({})",
    r"(?i)\bSELECT is not allowed in cluster mode": "the server is a node of a cluster, which has no numbered databases; "
    "connect to the whole cluster: redis+cluster://host:port ({})",
    r"(?i)unknown command\W+SENTINEL\b": "the server is not a Sentinel; name it with redis://host:port ({})",
    r"(?is)^(?:ERR )?unknown command\W+HELLO|^NOPROTO\b": "the server does not speak RESP3, on which one connection both "
    "calls and receives messages ({}); connect to Redis 6.2 or newer or to Valkey directly, without a proxy that only "
    "knows RESP2",
}
"""What is wrong with a server that refuses a command of the handshake, by its error."""

_FULL = r"(?i)max number of clients|^the server closed the connection at once|Connection closed by server"

_HUNG_UP = r"(?i)connection (?:reset|closed|aborted)|closed the connection|broken pipe|protocol error"
"""How a plain connection to a port with TLS ends: the server takes the first command for a broken handshake."""

_SENTINEL = r"(?s)<redis\.(?:asyncio\.)?client\.Redis\(.*?\bhost=([^,)]+),port=(\d+).*?>\)>\)>"
"""A client as redis-py shows it in its error, with its host and its port."""


def connection_broke(cause: object) -> RedisConnectionError:
    return RedisConnectionError(f"the connection to the server broke: {cause}")


def primary_changed() -> RedisConnectionError:
    return RedisConnectionError("the server is not the primary any more")


def server_silent() -> RedisTimeoutError:
    return RedisTimeoutError(f"{SILENT} in time")


def is_full(error: Exception | None) -> bool:
    """Return whether a connection could not be opened because the server has the maximum number of connections.

    If a server closes a connection before the request was read, the client never gets the server's sentence.
    """
    if not isinstance(error, RedisConnectionError):
        return False
    return re.search(_FULL, str(error)) is not None or isinstance(error.__cause__ or error.__context__, ConnectionError)


def setup_failed(error: Exception, settings: Mapping[str, Any]) -> RedisConnectionError:
    """Return the error for an exception of a credential provider, or of other code of the user's in connecting."""
    said = f"{type(error).__name__}: {error}"
    if settings.get("credential_provider") is not None:
        return AuthenticationError(f"there are no credentials for the server: {said}")
    return RedisConnectionError(f"the connection could not be set up: {said}")


def hello_refused(error: BaseException) -> Exception | None:
    """Return the error for a server that lets no one in now, wants a password, or cannot be used in this way.

    None for other errors.
    """
    said = str(error)
    if not isinstance(error, ResponseError | AuthenticationError):
        return None
    if is_transient(said):
        return RedisConnectionError(f"the server is not ready: {said}")
    if re.search(_FULL, said):  # redis-py knows only one of its sentences
        return RedisConnectionError(said)
    if re.search(_NOAUTH, said):
        return AuthenticationError("the server wants a password, and neither the URL nor the settings have one")
    why = next((why for pattern, why in _MISPLACED.items() if re.search(pattern, said)), None)
    return None if why is None else ServerUnsupported(why.format(said))


def hint_at_tls(said: str, address: str) -> str:
    """Return a hint for the error of a server that was never reached, where the port may be a port with TLS."""
    scheme, plain, _ = address.partition("://")
    if not plain or scheme not in {"redis", "redis+cluster"} or not re.search(_HUNG_UP, said):
        return ""
    return f"; if the server speaks TLS, its URL begins with {scheme.replace('redis', 'rediss', 1)}://"


def handshake_failed(subscription: Subscription, reply: Any) -> Exception | None:
    """Return why no message can reach a session, by the last reply of the handshake; None if messages can."""
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
    """Return the error for Sentinels that name no primary.

    It shows the addresses of the Sentinels in place of their clients with all settings.
    """
    return type(error)(re.sub(_SENTINEL, r"\1:\2", str(error)))


def no_shares(reply: ErrorReply) -> Exception:
    """Return the error for a server that does not say which primary of the cluster has which slot."""
    if is_transient(reply):
        return RedisConnectionError(str(reply))
    if re.search(r"(?i)unknown command\W+CLUSTER\b", reply):
        return ServerUnsupported(
            f"the server is not part of a cluster; if it is a Sentinel, connect through it: redis+sentinel://host:port/SERVICE ({reply})"
        )
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
    """Copy an error for another waiter: each raised exception collects a traceback of its own."""
    with contextlib.suppress(TypeError):
        return copy.copy(error)
    return error


def unbalanced_exit(primitive: object, *, others: bool) -> RuntimeError:
    """Return the error for leaving an unknown block; ``others``: several callers are in blocks of the same object."""
    if others:
        return RuntimeError(
            f"a with block of {primitive!r} was left by another caller than the one that entered it, and several "
            "others are in blocks of it: nothing was released; enter the lease instead, as in 'with lock.acquire()'"
        )
    return RuntimeError(f"the with block of {primitive!r} was left, but never entered; enter it with a with statement")
