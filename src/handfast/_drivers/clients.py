"""Runs a script through a client of the user's, whatever kind of client of redis-py it is.

A plain client is sent EVALSHA, and on NOSCRIPT the whole source: one more trip, on the right node, that survives SCRIPT
FLUSH, restarts and failovers. A pipeline cannot ask again, since NOSCRIPT would come with the replies, when everything
else has run. So it is given the source itself, each time: even in a transaction a script may be forgotten between two of
its calls, by a queued SCRIPT FLUSH, or because a server keeps some hundreds of them only. A cluster is asked only where
all keys share a slot.

How often a command is sent again after a lost reply is the client's business and not ours: by default redis-py does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import redis
import redis.asyncio
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.client import Pipeline
from redis.cluster import ClusterPipeline
from redis.crc import key_slot
from redis.exceptions import NoScriptError, ResponseError

from handfast._engine.script import LuaScript
from handfast._engine.script_errors import script_error
from handfast._engine.server_errors import is_noscript
from handfast.errors import ScriptError

__all__ = ["Value", "blame", "is_asynchronous", "is_pipeline", "is_supported", "queue", "run", "run_async"]

Value: TypeAlias = str | bytes | int | float

_ASYNCHRONOUS = redis.asyncio.Redis, redis.asyncio.RedisCluster, AsyncClusterPipeline
_SUPPORTED = redis.Redis, redis.RedisCluster, *_ASYNCHRONOUS
_PIPELINES = Pipeline, AsyncPipeline
_CLUSTER_PIPELINES = ClusterPipeline, AsyncClusterPipeline
_CLUSTERS = redis.RedisCluster, redis.asyncio.RedisCluster, *_CLUSTER_PIPELINES


def is_supported(client: object) -> bool:
    """Whether a script can be run through it."""
    return isinstance(client, _SUPPORTED)


def is_asynchronous(client: object) -> bool:
    """Whether what it gives has to be awaited."""
    return isinstance(client, _ASYNCHRONOUS)


def is_pipeline(client: Any) -> bool:
    """Whether it collects commands now. A pipeline that watches sends them at once, until its ``multi``."""
    if isinstance(client, _CLUSTER_PIPELINES):
        # Only within does it say whether it watches, if its version can.
        strategy = getattr(client, "_execution_strategy", None)
        return not getattr(strategy, "_watching", False) or bool(getattr(strategy, "_explicit_transaction", False))
    return isinstance(client, _PIPELINES) and (client.explicit_transaction or not client.watching)


def run(client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]) -> Any:
    """The script's reply, as the client gives it. Raises ScriptError where the script fails."""
    evalsha, eval_source = _commands(client, script, keys, args)
    try:
        try:
            return client.execute_command(*evalsha)
        except NoScriptError as error:
            if not is_noscript(f"NOSCRIPT {error}"):  # the script's own answer: it has run
                raise
            return client.execute_command(*eval_source)
    except ResponseError as error:
        fault = blame(script, error)
        if fault is None:
            raise
        raise fault from error


async def run_async(client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]) -> Any:
    """What `run` is, awaited."""
    evalsha, eval_source = _commands(client, script, keys, args)
    try:
        try:
            return await client.execute_command(*evalsha)
        except NoScriptError as error:
            if not is_noscript(f"NOSCRIPT {error}"):  # the script's own answer: it has run
                raise
            return await client.execute_command(*eval_source)
    except ResponseError as error:
        fault = blame(script, error)
        if fault is None:
            raise
        raise fault from error


def queue(pipeline: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]) -> Any:
    """Have the script run when the pipeline is executed. Gives the pipeline."""
    _, eval_source = _commands(pipeline, script, keys, args)
    return pipeline.execute_command(*eval_source)


def blame(script: LuaScript, error: Exception) -> ScriptError | None:
    """The line of the script that an error arose on. Errors that the client library tells apart are the server's own."""
    return script_error(script, str(error)) if type(error) is ResponseError else None


def _commands(
    client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The call by digest and by source. Raises ValueError where a cluster could not run it."""
    if isinstance(client, _CLUSTERS):
        slots = {key_slot(key if isinstance(key, bytes) else str(key).encode()): key for key in keys}
        if len(slots) > 1:
            one, other, *_ = slots.values()
            raise ValueError(
                f"the keys of {script.name!r} must share a slot of the cluster: {one!r} and {other!r} do not; "
                "give what belongs together the same part in braces, such as {orders}:1 and {orders}:2"
            )
    rest = (len(keys), *keys, *args)
    # The source as bytes: a client with another encoding would make another script of it.
    return ("EVALSHA", script.digest, *rest), ("EVAL", script.source.encode(), *rest)
