"""The scripts, commands, keys and channels that each primitive uses on the server.

They are read from the calls of `handfast._engine`, packed for an arbitrary name: the same calls that a client sends. Nothing
here is a copy that could become outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import PurePath

from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.batches import join
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.effects import Call
from handfast._engine.header import read_header
from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast._engine.score_calls import ScoreCalls
from handfast._engine.script import LuaScript, load
from handfast.acl.commands import commands_of
from handfast.fencing.values import guard_key

__all__ = ["NAMESPACED", "USES", "Use", "session"]

_TOKEN = b"t"


@dataclass(frozen=True, slots=True)
class Use:
    """What a client needs for one primitive, apart from its connection."""

    scripts: tuple[LuaScript, ...]
    plain: frozenset[str]
    """Commands that are sent outside of scripts."""
    keys: tuple[str, ...]
    """Patterns of its keys."""
    channels: tuple[str, ...] = ()
    """Patterns of the channels that belong to this primitive alone."""

    @property
    def commands(self) -> frozenset[str]:
        """All commands that it sends, within scripts and outside."""
        return self.plain.union(*(commands_of(script.source) for script in self.scripts))


def session(namespace: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the channels of a namespace's clients, for grants and losses, and the commands of a session itself."""
    channels = inbox_channel(namespace, "", 0).removesuffix(":0"), control_channel(namespace, "")
    return tuple(f"{channel}*" for channel in channels), ("subscribe", "pubsub|numsub")


def _permits(kind: str, namespace: str, more: Callable[[PermitRequest], Iterable[Call]] = lambda _: ()) -> Use:
    permits = PermitRequest(KeySet(namespace, kind, "-"), ttl_ms=1, renew=True)
    calls = [
        permits.acquire(_TOKEN),
        permits.try_acquire(_TOKEN),
        permits.release(_TOKEN),
        permits.renew_for(_TOKEN, 1),
        permits.cancel(_TOKEN),
        permits.inspect(),
        permits.revoke(0, ""),
        *more(permits),
    ]
    return _use(calls, namespace, kind)


def _batches(permits: PermitRequest) -> list[Call]:
    return [join([call]) for call in (permits.acquire(_TOKEN), permits.release(_TOKEN))]


def _lock_all(namespace: str) -> Use:
    bundle = MultiRequest([KeySet(namespace, "lock", "-")], ttl_ms=1, renew=True, max_waiters=1)
    calls = [
        bundle.acquire(_TOKEN),
        bundle.try_acquire(_TOKEN),
        bundle.release(_TOKEN),
        bundle.renew_for(_TOKEN, 1),
        bundle.cancel(_TOKEN),
        *(call for part in bundle.parts for call in (part.inspect(), part.revoke(0, ""))),
    ]
    return _use(calls, namespace, "lock")


def _autocomplete(namespace: str) -> Use:
    calls: list[Call] = []
    for ranked in (False, True):
        index = AutocompleteCalls(KeySet(namespace, "autocomplete", "-"), fold_case=False, ranked=ranked)
        calls += [index.add([b"x"]), index.remove([b"x"]), index.size(), index.clear()]
        calls += [index.rank([(b"x", 0.0)]), index.best(b"", 1)] if ranked else [index.first(b"", 1)]
    return _use(calls, namespace, "autocomplete")


def _scores(namespace: str) -> Use:
    board = ScoreCalls(KeySet(namespace, "scores", "-"))
    calls = [board.advance([(0.0, b"x")], "t"), board.remove([b"x"]), board.size(), board.clear()]
    return _use([*calls, board.oldest(1), board.newest(1), board.since(0, 1)], namespace, "scores")


def _use(calls: Iterable[Call], namespace: str, kind: str) -> Use:
    heads = {call.prefix.name: call.prefix for call in calls}
    scripts = tuple(load(head.name) for head in heads.values() if head.digest)
    plain = frozenset(head.name.lower() for head in heads.values() if not head.digest)
    return Use(scripts, plain, (KeySet(namespace, kind, "-").tag.removesuffix("-}") + "*",))


def _compat(patterns: Sequence[str]) -> Use:
    keys = list(patterns)
    keys += [f"{pattern}:handfast:*" for pattern in patterns if not pattern.endswith("*")]
    plain = frozenset({"get"})  # sent by redis-py's `owned` and `locked`
    return Use(_of_package("handfast.compat"), plain, tuple(keys), tuple(f"{pattern}:handfast" for pattern in patterns))


def _fencing(patterns: Sequence[str]) -> Use:
    return Use(_of_package("handfast.fencing"), frozenset(), (*patterns, *map(guard_key, patterns)))


def _of_package(package: str) -> tuple[LuaScript, ...]:
    found = []
    for file in sorted((files(package) / "lua").iterdir(), key=lambda file: file.name):
        source = file.read_text(encoding="utf-8")
        found.append(LuaScript(PurePath(file.name).stem, source, read_header(source)))
    return tuple(found)


NAMESPACED: dict[str, Callable[[str], Use]] = {
    "lock": partial(_permits, "lock", more=_batches),
    "semaphore": partial(_permits, "semaphore", more=lambda permits: [permits.resize(1)]),
    "rwlock": partial(_permits, "rwlock", more=lambda permits: [permits.lower(_TOKEN)]),
    "lock_all": _lock_all,
    "autocomplete": _autocomplete,
    "scores": _scores,
}
"""Primitives with keys in a namespace, by the name of the client's method; each function takes the namespace.

``rlock`` is a ``lock``."""

ANYWHERE: dict[str, Callable[[Sequence[str]], Use]] = {"compat": _compat, "fencing": _fencing}
"""Primitives on keys of the caller; each function takes the patterns of these keys."""

USES = (*NAMESPACED, *ANYWHERE)
"""All names that `rights_for` accepts."""
