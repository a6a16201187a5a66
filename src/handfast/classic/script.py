"""A script as a function: by its digest where the server knows it, by its source where not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Protocol, TypeAlias

import redis
from redis.exceptions import NoScriptError

__all__ = ["LoadedScript", "load_file", "script_load"]

Value: TypeAlias = str | bytes | int | float


class LoadedScript(Protocol):
    """What `script_load` gives: the script, to be called with a client, keys and arguments."""

    def __call__(
        self,
        conn: redis.Redis,
        keys: Sequence[str | bytes] = (),
        args: Sequence[Value] = (),
        force_eval: bool = False,  # noqa: FBT001, FBT002 -- the signature that people know
    ) -> Any:
        """Run the script; with ``force_eval`` by its source at once, for a pipeline, where NOSCRIPT comes too late."""


def script_load(script: str) -> LoadedScript:
    """Make a function of a script: ``call(conn, keys=[], args=[], force_eval=False)``.

    The call sends EVALSHA, and on NOSCRIPT the whole source once. The digest is computed here. The listing that people
    copy learns it from SCRIPT LOAD on the first server that it meets, which costs a round trip; the copies that do not
    catch NOSCRIPT as well break with the first restart, failover or SCRIPT FLUSH.

    Flaws that remain: nothing checks that keys and arguments fit the script. In a pipeline NOSCRIPT comes too late, unless
    one thinks of ``force_eval``. A call that redis-py sends again after a lost reply runs twice.
    Instead: `handfast.Script`, which reads from the script's header what it takes; through ``hf``, it is sent again only
    where the header says what happens then.
    """
    digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    def call(
        conn: redis.Redis,
        keys: Sequence[str | bytes] = (),
        args: Sequence[Value] = (),
        force_eval: bool = False,  # noqa: FBT001, FBT002 -- the signature that people know
    ) -> Any:
        if not force_eval:
            try:
                return conn.evalsha(digest, len(keys), *keys, *args)
            except NoScriptError:
                pass
        return conn.eval(script, len(keys), *keys, *args)

    return call


def load_file(name: str) -> LoadedScript:
    """The script of that name from ``lua/``."""
    return script_load((files("handfast.classic") / "lua" / f"{name}.lua").read_text(encoding="utf-8"))
