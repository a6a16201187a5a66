"""The rights of one user, as rules of ACL SETUSER."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from handfast._engine.script import LuaScript
from handfast.acl.primitives import ANYWHERE, NAMESPACED, USES, Use, session

__all__ = ["Rights", "rights_for", "scripts_for"]


CLUSTER = ("cluster|slots", "asking")
"""What a client of a cluster sends besides."""

SHARDED = frozenset({"spublish", "pubsub|shardnumsub"})
"""What scripts send only where such a client has subscribed to sharded channels."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a user. Commands are named as in ACL rules, such as ``zadd`` and ``client|setinfo``.

    Attributes:
        keys: Patterns of keys.
        channels: Patterns of channels.
        connection: Commands that a connection sends when it is made, and to receive grants.
        running: Commands that run scripts.
        inside: Commands that the scripts send, and those that are sent outside of scripts.

    """

    keys: tuple[str, ...]
    channels: tuple[str, ...]
    connection: tuple[str, ...]
    running: tuple[str, ...]
    inside: tuple[str, ...]

    @property
    def commands(self) -> tuple[str, ...]:
        """All commands, without duplicates."""
        return tuple(dict.fromkeys((*self.connection, *self.running, *self.inside)))

    def rules(self) -> tuple[str, ...]:
        """Return the rules for ACL SETUSER, to follow the user's name and password.

        They revoke all rights that the user had before, also the right to all channels that Redis 6.2 gives a new user.
        """
        keys, channels = (f"~{pattern}" for pattern in self.keys), (f"&{pattern}" for pattern in self.channels)
        commands = (f"+{command}" for command in self.commands)
        return ("resetkeys", "resetchannels", "-@all", *keys, *channels, *commands)


def rights_for(
    uses: Iterable[str],
    *,
    namespace: str = "hf",
    keys: Sequence[str] = (),
    preloaded: bool = False,
    tells_its_name: bool = False,
    cluster: bool = False,
    sharded: bool = True,
) -> Rights:
    """Return the least rights for the given primitives.

    Args:
        uses: Names from `USES`, such as ``["lock", "semaphore"]``.
        namespace: The namespace of the clients.
        keys: Patterns of the keys on which ``compat`` and ``fencing`` are used; required for these two, and refused
            without.
        preloaded: Let the user run scripts that an operator has loaded, and send none.
        tells_its_name: Allow redis-py's CLIENT SETINFO. It is not needed, but servers that know it (Redis from 7.2 on,
            any Valkey) write each refusal to their ACL LOG.
        cluster: Allow the commands to find the primaries of a cluster, and to be woken there.
        sharded: Whether the nodes of the cluster have sharded channels, as all have but Redis 6.2.

    Returns:
        The rights.

    Raises:
        ValueError: A use is unknown or there is none, keys are missing or not used, or a pattern or the namespace is
            invalid.
        TypeError: ``uses`` or ``keys`` is a single string.

    Example:
        >>> rules = rights_for(["lock"], namespace="billing").rules()
        >>> admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)

    """
    wanted = _known(uses)
    if isinstance(keys, str):
        raise TypeError(f"keys must be a sequence of patterns, not the string {keys!r}")
    elsewhere = [use for use in wanted if use in ANYWHERE]
    if elsewhere and not keys:
        raise ValueError(
            f"{elsewhere[0]} needs the patterns of the keys on which it is used: pass keys=, or --key on the command line"
        )
    if keys and not elsewhere:
        raise ValueError("only compat and fencing take keys; the other primitives use those of the namespace")
    for pattern in keys:
        _check(pattern)
    found = [NAMESPACED[use](namespace) if use in NAMESPACED else ANYWHERE[use](keys) for use in wanted]
    # Compat and fencing use connections of the caller, which need no channels.
    channels, connection = session(namespace) if set(wanted) & set(NAMESPACED) else ((), ())
    inside = frozenset[str]().union(*(use.commands for use in found))
    if cluster:
        connection = (*connection, *CLUSTER)
    # A script sends these two commands only where a waiter has subscribed to a sharded channel.
    if cluster and sharded and inside & SHARDED:
        connection = (*connection, "ssubscribe")
    else:
        inside -= SHARDED
    if tells_its_name:
        connection = (*connection, "client|setinfo")
    return Rights(
        keys=_patterns(found, "keys"),
        channels=channels,
        connection=connection,
        running=("evalsha",) if preloaded else ("evalsha", "eval"),
        inside=tuple(sorted(inside)),
    )


def scripts_for(uses: Iterable[str]) -> tuple[LuaScript, ...]:
    """Return the scripts that the given primitives run, for loading them into a server.

    Args:
        uses: Names from `USES`.

    Returns:
        The scripts, without duplicates; each has a ``name``, a ``source`` and a ``digest``.

    Raises:
        ValueError: A use is unknown or there is none.
        TypeError: ``uses`` is a single string.

    """
    found = [NAMESPACED[use]("hf") if use in NAMESPACED else ANYWHERE[use](["*"]) for use in _known(uses)]
    return tuple({script.digest: script for use in found for script in use.scripts}.values())


def _known(uses: Iterable[str]) -> tuple[str, ...]:
    if isinstance(uses, str):
        raise TypeError(f"uses must be an iterable of names, not the string {uses!r}")
    wanted = tuple(dict.fromkeys(uses))
    if not wanted:
        raise ValueError(f"name at least one use: {', '.join(USES)}")
    if unknown := [use for use in wanted if use not in USES]:
        raise ValueError(f"there is no use {unknown[0]!r}; choose from {', '.join(USES)}")
    return wanted


def _patterns(uses: Iterable[Use], attribute: str) -> tuple[str, ...]:
    """Return the patterns without duplicates. A server refuses further patterns beside ``*``."""
    found = dict.fromkeys(pattern for use in uses for pattern in getattr(use, attribute))
    return ("*",) if "*" in found else tuple(found)


def _check(pattern: str) -> None:
    """Refuse patterns that a server refuses, such as those with blanks."""
    if not pattern or not pattern.isprintable() or " " in pattern:
        raise ValueError(
            f"a pattern of keys must be printable and without blanks, not {pattern!r}; write ? for such a character"
        )
