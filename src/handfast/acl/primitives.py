"""The scripts, commands and keys used by each primitive on the server.

They are read from the calls of `handfast._engine`, packed for an arbitrary name: the same calls as a client's.
Nothing here is a copy that could become outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import get_args

from handfast._engine.batches import join
from handfast._engine.calls import MultiRequest, PermitRequest
from handfast._engine.constants import CLAIM_MS, TOKEN_SIZE
from handfast._engine.effects import Call
from handfast._engine.header import read_header
from handfast._engine.keys import KeySet, control_channel, inbox_channel, keys_of_kind
from handfast._engine.names import LIMITS, NamePattern, outcome
from handfast._engine.once import NEVER, OnceRequest
from handfast._engine.options import LeaseOptions
from handfast._engine.script import LuaScript, load, lua_texts
from handfast._engine.server_facts import INFO, TIME
from handfast._kinds import KINDS
from handfast._protocol import auditing
from handfast.acl.commands import commands_of
from handfast.arguments import HeldKind, Kind
from handfast.fencing.values import guard_key

__all__ = ["NAMESPACED", "USES", "Use", "session"]

_TOKEN = b"t" * TOKEN_SIZE


@dataclass(frozen=True, slots=True)
class Use:
    """The scripts, commands and keys of one primitive, apart from those of the connection."""

    scripts: tuple[LuaScript, ...]
    plain: frozenset[str]
    """Commands that are sent outside of scripts."""
    keys: tuple[str, ...]
    """Patterns of its keys."""

    @property
    def commands(self) -> frozenset[str]:
        """All commands sent by the primitive, within scripts and outside."""
        return self.plain.union(*(commands_of(script.source) for script in self.scripts))


def session(namespace: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the channels of a namespace's clients, for grants and losses, and the commands of a session itself."""
    channels = inbox_channel(namespace, "", 0).removesuffix(":0"), control_channel(namespace, "")
    return tuple(f"{channel}*" for channel in channels), ("info", "subscribe", "pubsub|numsub", "publish")


def _permits(kind: str, namespace: str, more: Callable[[PermitRequest], Iterable[Call]] = lambda _: ()) -> Use:
    permits = PermitRequest(KeySet(namespace, kind, "-"), LeaseOptions(2 * CLAIM_MS))
    calls = [
        permits.acquire(_TOKEN),
        permits.try_acquire(_TOKEN),
        permits.release(_TOKEN),
        permits.confirm(_TOKEN),
        permits.renew_for(_TOKEN, 1),
        permits.cancel(_TOKEN),
        permits.inspect(),
        permits.revoke(0, ""),
        permits.adopt(_TOKEN, "", ""),
        *([permits.hold(0, 0, "", "")] if kind in get_args(HeldKind) else []),
        *more(permits),
    ]
    return _use(calls, namespace, kind)


def _overtakes(permits: PermitRequest) -> list[Call]:
    return [permits.overtake(_TOKEN, 0, "", "")]


def _of_locks(permits: PermitRequest) -> list[Call]:
    return [join([call]) for call in (permits.acquire(_TOKEN), permits.release(_TOKEN))] + _overtakes(permits)


def _of_semaphores(permits: PermitRequest) -> list[Call]:
    return [permits.resize(1), permits.slot(_TOKEN, 0), *_overtakes(permits)]


def _lock_all(namespace: str) -> Use:
    bundle = MultiRequest([KeySet(namespace, "lock", "-")], LeaseOptions(1, max_waiters=1))
    calls = [
        bundle.acquire(_TOKEN),
        bundle.try_acquire(_TOKEN),
        bundle.release(_TOKEN),
        bundle.renew_for(_TOKEN, 1),
        bundle.cancel(_TOKEN),
        *(call for part in bundle.parts for call in (part.inspect(), part.revoke(0, ""))),
    ]
    return _use(calls, namespace, "lock")


def _object(kind: str, namespace: str) -> Use:
    """Return the scripts and the commands of an object without leases."""
    names = sorted(path.removesuffix(".lua") for path in lua_texts() if path.startswith(f"{KINDS[kind].scripts}_"))
    return Use(tuple(map(load, names)), frozenset(KINDS[kind].commands), (keys_of_kind(namespace, kind),))


def _leased(kind: str, namespace: str) -> Use:
    """Return the scripts, commands and keys to hold leases of a kind that has further scripts."""
    holds, more = _permits(kind, namespace), _object(kind, namespace)
    return Use(holds.scripts + more.scripts, holds.plain | more.plain, holds.keys)


def _once(namespace: str) -> Use:
    place = KeySet(namespace, "once", "-")
    request = OnceRequest(place, LeaseOptions(1, max_waiters=1), keep_ms=1, refresh_ms=NEVER)
    calls = [
        request.acquire(_TOKEN),
        request.try_acquire(_TOKEN),
        request.begin(_TOKEN),
        request.release(_TOKEN),
        request.ending_as("done", b"").release(_TOKEN),
        request.renew_for(_TOKEN, 1),
        request.cancel(_TOKEN),
        request.inspect(),
        request.revoke(0, ""),
        request.hold(0, 0, "", ""),
        request.read(),
        request.forget(),
    ]
    return _use(calls, namespace, "once")


def _names(namespace: str) -> Use:
    """Return the scripts, commands and keys to find names of all kinds, to inspect them and to take leases away."""
    pattern = NamePattern(namespace, "*", get_args(Kind))
    permits = PermitRequest(KeySet(namespace, "lock", "-"), LeaseOptions(1))
    calls = [pattern.scan(b"0"), permits.inspect(), permits.revoke(0, ""), permits.hold(0, 0, "", "")]
    uses = [_use(calls, namespace, kind) for kind in LIMITS]
    for kind in get_args(Kind):
        if kind not in LIMITS:
            inspects = load(f"{KINDS[kind].scripts}_inspect")
            plain = frozenset({"get"} if kind == "limiter" else ())  # the rates that clients have announced
            uses.append(Use((inspects,), plain, (keys_of_kind(namespace, kind),)))
    return _joined(uses)


def _operate(namespace: str) -> Use:
    """Return the scripts, commands and keys to see all, and to act as the operators' commands do."""
    place = KeySet(namespace, "once", "-")
    request = OnceRequest(place, LeaseOptions(1, max_waiters=1), keep_ms=1, refresh_ms=NEVER)
    permits = PermitRequest(KeySet(namespace, "semaphore", "-"), LeaseOptions(1))
    limits = ("limit_pause", "limit_reset", "limit_resize")
    uses = [
        _names(namespace),
        _check_server(namespace),
        _use([request.inspect(), request.read(), outcome(place), request.forget_shown(b"-")], namespace, "once"),
        _use([permits.resize(1)], namespace, "semaphore"),
        Use(tuple(map(load, limits)), frozenset({"scan"}), (keys_of_kind(namespace, "limiter"),)),
        Use((load("budget_set"),), frozenset(), (keys_of_kind(namespace, "budget"),)),
        Use((load("latch_forget"),), frozenset(), (keys_of_kind(namespace, "latch"),)),
        Use((), frozenset({"pexpire", "xadd", "xrange", "xrevrange"}), (keys_of_kind(namespace, auditing.KIND),)),
    ]
    return _joined(uses)


def _joined(uses: Sequence[Use]) -> Use:
    """Return the scripts, commands and keys of all these uses."""
    scripts = {script.name: script for use in uses for script in use.scripts}
    plain = frozenset().union(*(use.plain for use in uses))
    return Use(tuple(scripts.values()), plain, tuple(dict.fromkeys(key for use in uses for key in use.keys)))


def _check_server(namespace: str) -> Use:
    """Return the scripts, commands and keys to see all that `handfast doctor` looks at."""
    permits = PermitRequest(KeySet(namespace, "lock", "-"), LeaseOptions(1, renew=False))
    use = _use([permits.inspect(), INFO, TIME], namespace, "lock")
    return replace(use, plain=use.plain | {"config|get"})


def _min_replicas(namespace: str) -> Use:
    """Return the scripts, commands and keys to hold locks that wait for replicas."""
    use = _permits("lock", namespace, more=_of_locks)
    return replace(use, plain=use.plain | {"publish", "wait"})


def _use(calls: Iterable[Call | None], namespace: str, kind: str) -> Use:
    heads = {call.prefix.name: call.prefix for call in calls if call}
    scripts = tuple(load(head.name) for head in heads.values() if head.digest)
    plain = frozenset(head.name.lower() for head in heads.values() if not head.digest)
    return Use(scripts, plain, (keys_of_kind(namespace, kind),))


def _compat(patterns: Sequence[str]) -> Use:
    keys = list(patterns)
    keys += [f"{pattern}:handfast:*" for pattern in patterns if not pattern.endswith("*")]
    plain = frozenset({"get"})  # sent by redis-py's `owned` and `locked`
    return Use(_of_package("handfast.compat"), plain, tuple(keys))


def _fencing(patterns: Sequence[str]) -> Use:
    return Use(_of_package("handfast.fencing"), frozenset(), (*patterns, *map(guard_key, patterns)))


def _of_package(package: str) -> tuple[LuaScript, ...]:
    found = []
    for file in sorted((files(package) / "lua").iterdir(), key=lambda file: file.name):
        source = file.read_text(encoding="utf-8")
        found.append(LuaScript(PurePath(file.name).stem, source, read_header(source)))
    return tuple(found)


_OWN: dict[str, Callable[[str], Use]] = {
    "lock": partial(_permits, "lock", more=_of_locks),
    "semaphore": partial(_permits, "semaphore", more=_of_semaphores),
    "rwlock": partial(_permits, "rwlock", more=lambda permits: [permits.lower(_TOKEN)]),
    "election": partial(_leased, "election"),
    "group": partial(_leased, "group"),
    "partition": partial(_leased, "partition"),
    "once": _once,
}
"""Kinds with leases, which share their scripts."""

NAMESPACED: dict[str, Callable[[str], Use]] = {
    **{kind: _OWN.get(kind, partial(_object, kind)) for kind in KINDS},
    "lock_all": _lock_all,
    "names": _names,
    "check_server": _check_server,
    "operate": _operate,
    "min_replicas": _min_replicas,
}
"""Primitives with keys in a namespace, by the name of the client's method; each function takes the namespace.

``rlock`` is a ``lock``."""

ANYWHERE: dict[str, Callable[[Sequence[str]], Use]] = {"compat": _compat, "fencing": _fencing}
"""Primitives on keys of the caller; each function takes the patterns of these keys."""

USES = (*NAMESPACED, *ANYWHERE)
"""All names that `rights_for` accepts."""
