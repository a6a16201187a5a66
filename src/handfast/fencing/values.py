"""Values in Redis that remember the largest fence they were written with.

The fence of a key lives in a key of its own, its guard, and so outlives the value: a late writer is refused even after
the value has expired, was deleted or became one of another type. Each call is one script, which looks at the guard and
writes both or nothing.

A guard is called ``hf:fence:m4l:`` and then what its key is called. That is one slot of a cluster: a part in braces
stays the part that counts, and where there is none the whole key counts, whose CRC is the guard's, because the CRC16 of
``hf:fence:m4l:`` is 0, the same as that of nothing. A suffix, or braces around the key, would not do for a key such as
``a}b``.
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
from handfast.errors import ServerRefused
from handfast.fencing.fences import StaleFence, fence_of
from handfast.records import Duration
from handfast.script import Script

__all__ = [
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
"""What the scripts say, at the end of whatever clients put in front; an asyncio cluster's pipeline quotes it as well."""


def _script(name: str) -> Script:
    return Script.from_package("handfast.fencing", f"lua/{name}.lua")


_VALUE_SET = _script("value_set")
_VALUE_DELETE = _script("value_delete")
_HASH_SET = _script("hash_set")
_FENCE_ADVANCE = _script("fence_advance")
_FENCE_LATEST = _script("fence_latest")


class ForEveryClient(Protocol[P, R_co]):
    """A function that takes any client first, and gives what that client's own methods would: a result or an awaitable.

    A pipeline queues the call and is given back; one that watches runs it at once until its ``multi``.
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
    """Write the value, as SET does, unless the key has seen a newer fence. Raises StaleFence then.

    ``ttl`` is how long the value lives, in seconds or as a timedelta; without it for ever. ``guard_ttl`` is how long the
    fence is remembered after the last call that passed; without it for ever. A writer that was paused for longer than
    that is not refused any more.

    The client is one of redis-py, also a cluster's or a pipeline, or a Handfast or AsyncHandfast. In a pipeline a refusal
    is an error among the replies, which ``execute()`` raises and `explain` makes a StaleFence of; what else was queued
    has run. Raises TypeError and ValueError before anything is sent. At ``maxmemory`` nothing is written.
    """
    guarding = _guarding(key, fence, guard_ttl)
    return _run(client, key, _nothing, _VALUE_SET, value=key, data=value, ttl_ms=_ms(ttl, "ttl"), **guarding)


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
    """Write fields of a hash, as HSET does, unless the hash has seen a newer fence. Raises StaleFence then.

    The names of fields are str or bytes. They share one fence, the key's, which is the same for the other functions. Other
    fields and the hash's own TTL stay as they are. A key that holds something else is a ScriptError, and nothing is
    written. For the rest see `set_if_newer`.
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"the fields must be a mapping, not {mapping!r}")
    if not mapping:
        raise ValueError("there must be at least one field")
    fields = [part for pair in mapping.items() for part in pair]
    guarding = _guarding(key, fence, guard_ttl)
    return _run(client, key, _nothing, _HASH_SET, hash=key, fields_and_values=fields, **guarding)


@_for_every_client
def delete_if_newer(client: Any, /, key: str | bytes, fence: int, *, guard_ttl: Duration | None = None) -> None:
    """Delete a key of whatever type, unless it has seen a newer fence. Raises StaleFence then.

    The fence stays remembered: who comes with an older one cannot write the value again. A key that is not there is
    deleted already. Works at ``maxmemory``, too. For the rest see `set_if_newer`.
    """
    return _run(client, key, _nothing, _VALUE_DELETE, value=key, **_guarding(key, fence, guard_ttl))


@_for_every_client
def advance_fence(client: Any, /, key: str | bytes, fence: int, *, guard_ttl: Duration | None = None) -> None:
    """Have older fences refused from now on, and write nothing. Raises StaleFence if a newer one has been there.

    For a holder that reads before it writes: without this, somebody with an older fence may write in between, and the
    holder writes over it what it made of the value before. For the rest see `set_if_newer`.
    """
    return _run(client, key, _nothing, _FENCE_ADVANCE, **_guarding(key, fence, guard_ttl))


@_for_every_client
def latest_fence(client: Any, /, key: str | bytes) -> int | None:
    """The newest fence that the key has seen; None when none is remembered. In a pipeline: its digits, or None.

    By the time you look at it there may be a newer one: it is for operators and tests, and no way to ask before writing.
    """
    return _run(client, key, _number, _FENCE_LATEST, guard=guard_key(key))


@overload
def guard_key(key: str) -> str: ...
@overload
def guard_key(key: bytes) -> bytes: ...
def guard_key(key: str | bytes) -> str | bytes:
    """The key that remembers the fence of another one, in the same slot of a cluster.

    Raises TypeError for what is neither str nor bytes, and ValueError for a key that looks like a guard itself.
    """
    guard: str | bytes
    if isinstance(key, str):
        taken, guard = key.startswith(_PREFIX), _PREFIX + key
    elif isinstance(key, bytes):
        taken, guard = key.startswith(_PREFIX.encode()), _PREFIX.encode() + key
    else:
        raise TypeError(f"a key must be str or bytes, not {key!r}")
    if taken:
        raise ValueError(f"{key!r} is where a fence is remembered, and no key for values")
    return guard


def explain(error: Exception) -> Exception:
    """The StaleFence for an error that a pipeline raised or gave for one of these functions; the error itself if it is another.

    Which of a pipeline's calls it was, the error does not say: its ``key`` is None.
    """
    return _stale(error, None) or error


def _run(client: Any, key: str | bytes, read: Callable[[Any], R], script: Script, /, **values: Any) -> R:
    """Run it, in whichever way the client does."""
    try:
        given = script(client, **values)
    except (ResponseError, ServerRefused) as error:
        stale = _stale(error, key)
        if stale is None:
            raise
        raise stale from error
    if given is client:
        return cast("R", given)  # a pipeline: its type says so
    if inspect.iscoroutine(given):
        return cast("R", _awaited(given, key, read))
    return read(given)


async def _awaited(coming: Coroutine[Any, Any, Any], key: str | bytes, read: Callable[[Any], R]) -> R:
    try:
        given = await coming
    except (ResponseError, ServerRefused) as error:
        stale = _stale(error, key)
        if stale is None:
            raise
        raise stale from error
    return read(given)


def _stale(error: Exception, key: str | bytes | None) -> StaleFence | None:
    found = _REFUSED.search(error.words if isinstance(error, ServerRefused) else str(error))
    if found is None:
        return None
    stale = StaleFence(key, int(found[1]), int(found[2]))
    stale.__cause__ = error  # for those whom `explain` gives it
    return stale


def _guarding(key: str | bytes, fence: int, guard_ttl: Duration | None) -> dict[str, Any]:
    """What every script that may be refused takes."""
    return {"guard": guard_key(key), "fence": fence_of(fence), "guard_ttl_ms": _ms(guard_ttl, "guard_ttl")}


def _ms(value: Duration | None, what: str) -> int:
    return 0 if value is None else milliseconds(value, what)


def _nothing(_: Any) -> None:
    return None


def _number(digits: Any) -> int | None:
    return None if digits is None else int(digits)
