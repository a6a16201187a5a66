"""A script as a function, which sends the digest, or the source if the server does not know the script."""

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
    """The result of `script_load`: a function of a client, keys and arguments."""

    def __call__(
        self,
        conn: redis.Redis,
        keys: Sequence[str | bytes] = (),
        args: Sequence[Value] = (),
        force_eval: bool = False,  # noqa: FBT001, FBT002 -- the signature that people know
    ) -> Any:
        """Run the script.

        Args:
            conn: The client.
            keys: The keys, KEYS in the script.
            args: The arguments, ARGV in the script.
            force_eval: Send the source at once. For pipelines, where NOSCRIPT would arrive too late.

        Returns:
            The reply of the script.

        """


def script_load(script: str) -> LoadedScript:
    """Make a function from a script: ``call(conn, keys=[], args=[], force_eval=False)``.

    The function sends EVALSHA, and after NOSCRIPT the source. The digest is computed locally. The original listing
    calls SCRIPT LOAD on the first server that it uses, which costs a round trip; copies of it that do not handle
    NOSCRIPT fail after the first restart, failover or SCRIPT FLUSH.

    Args:
        script: The Lua source.

    Returns:
        The function.

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
    """Return the script of that name in ``lua/``."""
    return script_load((files("handfast.classic") / "lua" / f"{name}.lua").read_text(encoding="utf-8"))
