"""Fenced writes of values in Redis.

The fence of a key is stored in a second key, its guard, and so outlives the value: a late writer is refused even after
the value has expired, was deleted or got another type. Each call is one script, which checks the guard and writes both
keys or neither.

The guard's name is ``hf:fence:m4l:`` plus the name of the key. Both are in the same slot of a cluster: a hash tag in the
key stays the first in the guard; without a hash tag the whole name is hashed, and both names have the same CRC16,
because the CRC16 of ``hf:fence:m4l:`` is 0. A suffix, or braces around the key, would fail for a key such as ``a}b``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

import redis
import redis.asyncio
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.client import Pipeline
from redis.cluster import ClusterPipeline
from redis.exceptions import ResponseError

from handfast._api.aio.client import AsyncHandfast
from handfast._api.sync.client import Handfast
from handfast._engine.validate import milliseconds
from handfast.arguments import Duration
from handfast.errors import ServerRefused
from handfast.fencing.fences import StaleFence, check_fence
from handfast.script import Script

__all__ = [
    "AsyncClient",
    "ForEveryClient",
    "SyncClient",
    "Value",
    "advance_fence",
    "delete_if_newer",
    "explain",
    "guard_key",
    "hset_if_newer",
    "latest_fence",
    "set_if_newer",
]

Value: TypeAlias = str | bytes | int | float
AnyPipeline = TypeVar("AnyPipeline", Pipeline, ClusterPipeline, AsyncPipeline, AsyncClusterPipeline)
SyncClient: TypeAlias = redis.Redis | redis.RedisCluster | Handfast
AsyncClient: TypeAlias = redis.asyncio.Redis | redis.asyncio.RedisCluster | AsyncHandfast
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_PREFIX = "hf:fence:m4l:"
_REFUSED = re.compile(r"STALEFENCE (\d+) is older than (\d+)(?:['\"],\))?$")
"""The error of the scripts, after a prefix of the client library; pipelines of an asyncio cluster add a quote at the
end."""


def _script(name: str) -> Script:
    return Script.from_package("handfast.fencing", f"lua/{name}.lua")


_VALUE_SET = _script("value_set")
_VALUE_DELETE = _script("value_delete")
_HASH_SET = _script("hash_set")
_FENCE_ADVANCE = _script("fence_advance")
_FENCE_LATEST = _script("fence_latest")


class ForEveryClient(Protocol[P, R_co]):
    """A function whose first argument is any client. It returns the type returned by the client's own methods.

    With a sync client it returns the result, with an asyncio client a coroutine. A pipeline queues the call and is
    returned; between ``watch`` and ``multi``, it runs the call at once.
    """

    @overload
    def __call__(self, client: AnyPipeline, /, *args: P.args, **kwargs: P.kwargs) -> AnyPipeline: ...  # type: ignore[overload-overlap]  # a pipeline is a client, and gives something else
    @overload
    def __call__(self, client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...
    @overload
    def __call__(self, client: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def _for_every_client(function: Callable[Concatenate[Any, P], R]) -> ForEveryClient[P, R]:
    return cast("ForEveryClient[P, R]", function)


@_for_every_client
def set_if_newer(
    client: Any,
    /,
    key: str | bytes,
    value: Value,
    fence: int,
    *,
    ttl: Duration | None = None,
    guard_ttl: Duration | None = None,
) -> None:
    """Write a value, as SET does, unless the key has seen a newer fence.

    Args:
        client: A client, cluster client or pipeline of redis-py, sync or asyncio, or a Handfast or AsyncHandfast. With
            an asyncio client, await the call. In a pipeline, a refusal is an error among the replies, which
            ``execute()`` raises and `explain` converts to StaleFence; the other queued commands have run.
        key: The key.
        value: The value.
        fence: The fence of the writer, such as ``lease.fence``; 0 to 2**53 - 1.
        ttl: How long the value lives, in seconds or as a timedelta. None (default): without limit.
        guard_ttl: How long the fence is remembered after the last accepted write, in seconds or as a timedelta. A
            writer paused for longer is no longer refused. None (default): without limit.

    Raises:
        StaleFence: The key has seen a newer fence. Nothing was written.
        TypeError: An argument has the wrong type. Nothing was sent.
        ValueError: An argument is out of range. Nothing was sent.
        ServerRefused: The server is at ``maxmemory``, or refuses for another reason. Clients of redis-py raise
            ResponseError instead.
            ResponseError instead.

    Example:
        >>> with hf.lock("report:7") as lease:
        ...     set_if_newer(conn, "report:7", body, lease.fence)

    """
    guard_args = _guard_args(key, fence, guard_ttl)
    return _run(client, key, _nothing, _VALUE_SET, value=key, data=value, ttl_ms=_ms(ttl, "ttl"), **guard_args)


@_for_every_client
def hset_if_newer(
    client: Any,
    /,
    key: str | bytes,
    mapping: Mapping[Any, Value],
    fence: int,
    *,
    guard_ttl: Duration | None = None,
) -> None:
    """Write fields of a hash, as HSET does, unless the key has seen a newer fence.

    All fields share the fence of the key, which the other functions use too. Other fields and the TTL of the
    hash do not change.

    Args:
        client: As in `set_if_newer`.
        key: The key of the hash.
        mapping: The new values by field; at least one field. Names of fields are str or bytes.
        fence: The fence of the writer, such as ``lease.fence``; 0 to 2**53 - 1.
        guard_ttl: As in `set_if_newer`.

    Raises:
        StaleFence: The key has seen a newer fence. Nothing was written.
        ScriptError: The key holds a value of another type. Nothing was written.
        TypeError: An argument has the wrong type. Nothing was sent.
        ValueError: An argument is out of range, or there are no fields. Nothing was sent.

    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"the fields must be a mapping, not {mapping!r}")
    if not mapping:
        raise ValueError("there must be at least one field")
    fields = [part for pair in mapping.items() for part in pair]
    guard_args = _guard_args(key, fence, guard_ttl)
    return _run(client, key, _nothing, _HASH_SET, hash=key, fields_and_values=fields, **guard_args)


@_for_every_client
def delete_if_newer(client: Any, /, key: str | bytes, fence: int, *, guard_ttl: Duration | None = None) -> None:
    """Delete a key of any type, unless it has seen a newer fence.

    The fence stays remembered, so writers with an older fence are refused. A missing key is not an error. Works at
    ``maxmemory`` too.

    Args:
        client: As in `set_if_newer`.
        key: The key.
        fence: The fence of the writer, such as ``lease.fence``; 0 to 2**53 - 1.
        guard_ttl: As in `set_if_newer`.

    Raises:
        StaleFence: The key has seen a newer fence. Nothing was deleted.
        TypeError: An argument has the wrong type. Nothing was sent.
        ValueError: An argument is out of range. Nothing was sent.

    """
    return _run(client, key, _nothing, _VALUE_DELETE, value=key, **_guard_args(key, fence, guard_ttl))


@_for_every_client
def advance_fence(client: Any, /, key: str | bytes, fence: int, *, guard_ttl: Duration | None = None) -> None:
    """Refuse older fences from now on, without writing a value.

    For a holder that reads a value, changes it and writes it back. Without this call before the read, a writer with an
    older fence could write between the two, and this value would be overwritten.

    Args:
        client: As in `set_if_newer`.
        key: The key.
        fence: The fence of the holder, such as ``lease.fence``; 0 to 2**53 - 1.
        guard_ttl: As in `set_if_newer`.

    Raises:
        StaleFence: The key has seen a newer fence.
        TypeError: An argument has the wrong type. Nothing was sent.
        ValueError: An argument is out of range. Nothing was sent.

    """
    return _run(client, key, _nothing, _FENCE_ADVANCE, **_guard_args(key, fence, guard_ttl))


@_for_every_client
def latest_fence(client: Any, /, key: str | bytes) -> int | None:
    """Return the newest fence seen by a key.

    For operators and tests. Do not use it to decide whether to write: a newer fence may arrive at any time.

    Args:
        client: As in `set_if_newer`.
        key: The key.

    Returns:
        The fence, or None if none is remembered. In a pipeline, the reply is the fence as a string of digits, or None.

    Raises:
        TypeError: The key is neither str nor bytes.
        ValueError: The key is the name of a guard.

    """
    return _run(client, key, _number, _FENCE_LATEST, guard=guard_key(key))


@overload
def guard_key(key: str) -> str: ...
@overload
def guard_key(key: bytes) -> bytes: ...
def guard_key(key: str | bytes) -> str | bytes:
    """Return the name of the key for the fence of another key, in the same slot of a cluster.

    Args:
        key: The key, as str or bytes.

    Returns:
        The name of the guard, of the same type.

    Raises:
        TypeError: The key is neither str nor bytes.
        ValueError: The key is the name of a guard itself.

    """
    guard: str | bytes
    if isinstance(key, str):
        taken, guard = key.startswith(_PREFIX), _PREFIX + key
    elif isinstance(key, bytes):
        taken, guard = key.startswith(_PREFIX.encode()), _PREFIX.encode() + key
    else:
        raise TypeError(f"a key must be str or bytes, not {key!r}")
    if taken:
        raise ValueError(f"{key!r} is the name of a guard, which stores a fence; it cannot be used for values")
    return guard


def explain(error: Exception) -> Exception:
    """Convert the error of a pipeline to StaleFence.

    Args:
        error: An error raised by a pipeline, or returned among its replies.

    Returns:
        A StaleFence if a function of this module refused a write; ``key`` is None, since the error does
        not say which call of the pipeline it was. Otherwise the error itself.

    """
    return _stale(error, None) or error


def _run(client: Any, key: str | bytes, read: Callable[[Any], R], script: Script, /, **values: Any) -> R:
    try:
        reply = script(client, **values)
    except (ResponseError, ServerRefused) as error:
        stale = _stale(error, key)
        if stale is None:
            raise
        raise stale from error
    if reply is client:
        return cast("R", reply)  # a pipeline, as the overload says
    if inspect.iscoroutine(reply):
        return cast("R", _awaited(reply, key, read))
    return read(reply)


async def _awaited(coroutine: Coroutine[Any, Any, Any], key: str | bytes, read: Callable[[Any], R]) -> R:
    try:
        reply = await coroutine
    except (ResponseError, ServerRefused) as error:
        stale = _stale(error, key)
        if stale is None:
            raise
        raise stale from error
    return read(reply)


def _stale(error: Exception, key: str | bytes | None) -> StaleFence | None:
    found = _REFUSED.search(error.reply if isinstance(error, ServerRefused) else str(error))
    if found is None:
        return None
    stale = StaleFence(key, int(found[1]), int(found[2]))
    stale.__cause__ = error  # explain() returns it without raising it from the error
    return stale


def _guard_args(key: str | bytes, fence: int, guard_ttl: Duration | None) -> dict[str, Any]:
    """Return the keys and arguments taken by every script that checks a fence."""
    return {"guard": guard_key(key), "fence": check_fence(fence), "guard_ttl_ms": _ms(guard_ttl, "guard_ttl")}


def _ms(value: Duration | None, argument: str) -> int:
    return 0 if value is None else milliseconds(value, argument)


def _nothing(_: Any) -> None:
    return None


def _number(digits: Any) -> int | None:
    return None if digits is None else int(float(digits) if not digits.isdigit() else digits)
