"""Run a script through a client of redis-py that the user brings, of any kind.

A plain client gets EVALSHA, and after NOSCRIPT the whole source: another round trip, on the right node, which survives
SCRIPT FLUSH, restarts and failovers. A pipeline cannot send again, since NOSCRIPT would come with the replies, when all
other commands have run. It gets the source each time: even in a transaction a script may be forgotten between two
calls, by a queued SCRIPT FLUSH, or because the server keeps only some hundreds of scripts. A cluster is used only if
all keys share a slot.

How often a command is sent again after a lost reply is up to the client; redis-py does so by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import redis
import redis.asyncio
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.client import NEVER_DECODE, Pipeline
from redis.cluster import ClusterPipeline
from redis.crc import key_slot
from redis.exceptions import NoScriptError, ResponseError

from handfast._engine.script import LuaScript
from handfast._engine.server_errors import is_noscript, script_error
from handfast.errors import ScriptError

__all__ = ["Value", "blame", "is_asynchronous", "is_pipeline", "is_supported", "queue", "run", "run_async"]

Value: TypeAlias = str | bytes | int | float

_ASYNCHRONOUS = redis.asyncio.Redis, redis.asyncio.RedisCluster, AsyncClusterPipeline
_SUPPORTED = redis.Redis, redis.RedisCluster, *_ASYNCHRONOUS
_PIPELINES = Pipeline, AsyncPipeline
_CLUSTER_PIPELINES = ClusterPipeline, AsyncClusterPipeline
_CLUSTERS = redis.RedisCluster, redis.asyncio.RedisCluster, *_CLUSTER_PIPELINES


def is_supported(client: object) -> bool:
    """Return whether a script can be run through this object."""
    return isinstance(client, _SUPPORTED)


def is_asynchronous(client: object) -> bool:
    """Return whether the client's replies have to be awaited."""
    return isinstance(client, _ASYNCHRONOUS)


def is_pipeline(client: Any) -> bool:
    """Return whether it collects commands now. A watching pipeline sends them at once, until ``multi`` is called."""
    if isinstance(client, _CLUSTER_PIPELINES):
        # redis-py has no public way to tell whether it watches, and older versions cannot.
        strategy = getattr(client, "_execution_strategy", None)
        return not getattr(strategy, "_watching", False) or bool(getattr(strategy, "_explicit_transaction", False))
    return isinstance(client, _PIPELINES) and (client.explicit_transaction or not client.watching)


def run(client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value], *, raw: bool = False) -> Any:
    """Run a script and return the reply as the client returns it; with ``raw`` as bytes, although the client decodes.

    Raises ScriptError if the script fails.
    """
    options = {NEVER_DECODE: True} if raw else {}
    evalsha, eval_source = _commands(client, script, keys, args)
    try:
        try:
            return client.execute_command(*evalsha, **options)
        except NoScriptError as error:
            if not is_noscript(f"NOSCRIPT {error}"):  # a reply of the script itself, which has run
                raise
            return client.execute_command(*eval_source, **options)
    except ResponseError as error:
        fault = blame(script, error)
        if fault is None:
            raise
        raise fault from error


async def run_async(
    client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value], *, raw: bool = False
) -> Any:
    """Do the same as `run` through an asyncio client."""
    options = {NEVER_DECODE: True} if raw else {}
    evalsha, eval_source = _commands(client, script, keys, args)
    try:
        try:
            return await client.execute_command(*evalsha, **options)
        except NoScriptError as error:
            if not is_noscript(f"NOSCRIPT {error}"):  # a reply of the script itself, which has run
                raise
            return await client.execute_command(*eval_source, **options)
    except ResponseError as error:
        fault = blame(script, error)
        if fault is None:
            raise
        raise fault from error


def queue(pipeline: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]) -> Any:
    """Queue the script in a pipeline, and return the pipeline."""
    _, eval_source = _commands(pipeline, script, keys, args)
    return pipeline.execute_command(*eval_source)


def blame(script: LuaScript, error: Exception) -> ScriptError | None:
    """Return the error with the script's line that raised it; None for errors with a class in redis-py."""
    return script_error(script, str(error)) if type(error) is ResponseError else None


def _commands(
    client: Any, script: LuaScript, keys: Sequence[Value], args: Sequence[Value]
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the commands by digest and by source. Raises ValueError if a cluster cannot run the script."""
    if isinstance(client, _CLUSTERS):
        cluster = getattr(cast("Any", client), "cluster_client", client)  # an asyncio pipeline has no encoder
        slots = {key_slot(cluster.encoder.encode(key)): key for key in keys}
        if len(slots) > 1:
            one, other, *_ = slots.values()
            raise ValueError(
                f"the keys of {script.name!r} must share a slot of the cluster: {one!r} and {other!r} do not; "
                "give keys that belong together the same part in braces, such as {orders}:1 and {orders}:2"
            )
    rest = (len(keys), *keys, *args)
    # As bytes: a client with another encoding would send another script.
    return ("EVALSHA", script.digest, *rest), ("EVAL", script.source.encode(), *rest)
