"""The rights of one user, as rules of ACL SETUSER."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from handfast._engine.script import LuaScript
from handfast.acl.primitives import ANYWHERE, NAMESPACED, USES, Use, session

__all__ = ["Rights", "rights_for", "scripts_for"]


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user has to be allowed, and nothing besides. Commands are named as rules name them."""

    keys: tuple[str, ...]
    """Patterns."""
    channels: tuple[str, ...]
    """Patterns."""
    connection: tuple[str, ...]
    """Commands that a connection begins with, and hears of grants by."""
    running: tuple[str, ...]
    """Those that run scripts."""
    inside: tuple[str, ...]
    """Those that the scripts send; what is sent without a script is among them."""

    @property
    def commands(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys((*self.connection, *self.running, *self.inside)))

    def rules(self) -> tuple[str, ...]:
        """As ACL SETUSER takes them, behind the user's name and password.

        They say all that the user may do: it may nothing else, whatever it was allowed before. Redis 6.2 lets a new user
        hear every channel unless it is told otherwise, so they begin with that.
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
) -> Rights:
    """The least rights for some of `USES`.

    ``keys`` are patterns of the keys that ``compat`` and ``fencing`` are used on; in a pattern ``*``, ``?``, ``[`` and
    the backslash mean what they do to KEYS. ``preloaded`` is for a user who is to run scripts that somebody else has
    loaded, and none that it sends itself. ``tells_its_name`` allows redis-py to say what it is, which it does not need;
    but where a server knows that command (from Redis 7.2 on, any Valkey) it enters each refusal into its ACL LOG.

    Raises ValueError for no use and for one that there is not, for keys that are missing or of no use, and for a namespace
    or a pattern that is none; TypeError where one text is given for several.
    """
    wanted = _known(uses)
    if isinstance(keys, str):
        raise TypeError(f"keys must be several patterns, not {keys!r}")
    elsewhere = [use for use in wanted if use in ANYWHERE]
    if elsewhere and not keys:
        raise ValueError(f"{elsewhere[0]} is used on keys of your own: say which")
    if keys and not elsewhere:
        raise ValueError("only compat and fencing are used on keys of your own; the others have those of the namespace")
    for pattern in keys:
        _check(pattern)
    found = [NAMESPACED[use](namespace) if use in NAMESPACED else ANYWHERE[use](keys) for use in wanted]
    channels, connection = session(namespace) if set(wanted) & set(NAMESPACED) else ((), ())
    if "compat" in wanted:
        connection = tuple(dict.fromkeys((*connection, "subscribe")))
    if tells_its_name:
        connection = (*connection, "client|setinfo")
    return Rights(
        keys=_each(found, "keys"),
        channels=(*channels, *_each(found, "channels")),
        connection=connection,
        running=("evalsha",) if preloaded else ("evalsha", "eval"),
        inside=tuple(sorted(frozenset[str]().union(*(use.commands for use in found)))),
    )


def scripts_for(uses: Iterable[str]) -> tuple[LuaScript, ...]:
    """The scripts that some of `USES` run, for whoever loads them. Raises ValueError for a use that there is not."""
    found = [NAMESPACED[use]("hf") if use in NAMESPACED else ANYWHERE[use](["*"]) for use in _known(uses)]
    return tuple({script.digest: script for use in found for script in use.scripts}.values())


def _known(uses: Iterable[str]) -> tuple[str, ...]:
    if isinstance(uses, str):
        raise TypeError(f"uses must be several, not {uses!r}")
    wanted = tuple(dict.fromkeys(uses))
    if not wanted:
        raise ValueError(f"say what for: {', '.join(USES)}")
    if unknown := [use for use in wanted if use not in USES]:
        raise ValueError(f"there is nothing called {unknown[0]!r}; there are {', '.join(USES)}")
    return wanted


def _each(uses: Iterable[Use], what: str) -> tuple[str, ...]:
    """Their patterns, once each. A server takes no other beside the one for everything."""
    found = dict.fromkeys(pattern for use in uses for pattern in getattr(use, what))
    return ("*",) if "*" in found else tuple(found)


def _check(pattern: str) -> None:
    """Rules are words: a server splits nothing, but refuses a pattern with a blank in it."""
    if not pattern or not pattern.isprintable() or " " in pattern:
        raise ValueError(f"a pattern of keys must be printable and without blanks, not {pattern!r}; a ? stands for any")
