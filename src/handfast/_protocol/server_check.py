"""Check a server: whether it keeps the promises of the locks, and what may break them.

The check asks only permitted questions. Facts that the user has no right to read are reported as not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.server_facts import (
    INFO,
    SETTINGS,
    TIME,
    read_info,
    read_setting,
    read_time,
    replica_lags,
    setting,
)
from handfast._engine.servers import identify, product
from handfast.errors import ServerRefused
from handfast.records import ServerFinding

__all__ = ["check_server"]

NEARLY_FULL = 0.9
"""Share of a limit from which on it is warned of."""

LATE_S = 10
"""Seconds without a word of a replica after which it is taken for one that is behind."""

EPHEMERAL = ServerFinding(
    "info",
    "persistence",
    "it is the embedded server: your processes on this machine share it, and it stores nothing on disk",
)

NO_EVICTION = "noeviction"


def check_server(
    try_out: Call,
    now: Callable[[], datetime],
    heard: Callable[[], bool],
    slots: Sequence[int | None] = (None,),
    *,
    embedded: bool = False,
) -> Steps[tuple[ServerFinding, ...]]:
    """Return the findings, the most basic first.

    ``try_out`` runs a script of the client that changes nothing; after it ``heard`` tells whether a message has
    reached the client. In a cluster ``slots`` has a slot of each primary. A finding at all of them is given once, and
    the rest with the ports. The embedded server gets no advice: users cannot set it up.
    """
    refused = None
    try:
        yield try_out
    except ServerRefused as error:
        refused = error
    found: dict[ServerFinding, list[str]] = {}
    for slot in slots:
        info = read_info((yield from _ask(INFO._replace(slot=slot))) or b"")
        settings: dict[str, str] = {}
        for name in SETTINGS:
            reply = yield from _ask(setting(name)._replace(slot=slot))
            value = read_setting(reply) if reply else None
            if value is not None:
                settings[name] = value
        clock = yield from _clock(now, slot)
        for one in _judge(info, settings, refused, clock, heard=heard(), embedded=embedded):
            found.setdefault(one, []).append(info.get("tcp_port", "?"))
    return tuple(
        one if len(ports) == len(slots) else replace(one, text=f"{one.text} (at port {', '.join(ports)})")
        for one, ports in found.items()
    )


def _ask(call: Call) -> Steps[Any]:
    """Return the reply; None if the server refuses."""
    try:
        answer: Answer = yield call
    except ServerRefused:
        return None
    return answer.reply


def _clock(now: Callable[[], datetime], slot: int | None) -> Steps[ServerFinding | None]:
    before = now()
    reply = yield from _ask(TIME._replace(slot=slot))
    after = now()
    if not reply:
        return None
    theirs = read_time(reply)
    # The server's clock showed that time at a moment between the two.
    most, least = (theirs - before).total_seconds(), (theirs - after).total_seconds()
    if least <= 0 <= most:
        text = "its clock agrees with this machine's"
    else:
        text = f"its clock is {min(abs(least), abs(most)):.3g} s {'ahead of' if least > 0 else 'behind'} this machine's"
    return ServerFinding("info", "clock", f"{text}; leases and fences follow the server's")


def _judge(
    info: Mapping[str, str],
    settings: Mapping[str, str],
    refused: ServerRefused | None,
    clock: ServerFinding | None,
    *,
    heard: bool,
    embedded: bool,
) -> Iterator[ServerFinding]:
    # Whether scripts run comes first: without them nothing below matters to a lock.
    if refused is not None:
        yield ServerFinding("failure", "scripts", str(refused))
    else:
        text = "scripts run, and grants reach this client" if heard else "scripts run"
        yield ServerFinding("ok", "server", f"{product(info)}: {text}" if info else text)
    # The handshake has refused engines that failed their proof, so the others were seen to run scripts alone.
    if info and not (engine := identify(info)).is_proven:
        text = f"{engine.name} is not among the servers that Handfast is tested on; its scripts were seen to run alone"
        yield ServerFinding("warning", "server", text, "try it out first, or use Redis or Valkey")
    if not heard:
        text = "waiters ask every 0.05 s to 1 s: no messages reach this client, which a proxy may keep back"
        yield ServerFinding("warning", "messages", text, "connect to the server directly")
    if info:
        yield from _role(info)
        yield from _eviction(info)
        yield from _persistence(info, settings) if not embedded else [EPHEMERAL]
        yield from _replicas(info, settings)
        yield from _connections(info)
    else:
        text = "this user may not run INFO: eviction, persistence, replicas and limits were not checked"
        yield ServerFinding("info", "rights", text, command="ACL SETUSER … +info")
    if len(settings) < len(SETTINGS):
        text = f"this user may not read settings: {', '.join(name for name in SETTINGS if name not in settings)} were not checked"
        yield ServerFinding("info", "rights", text, command="ACL SETUSER … +config|get")
    if clock is not None:
        yield clock


def _role(info: Mapping[str, str]) -> Iterator[ServerFinding]:
    if info.get("role") == "slave":
        text = f"it refuses every acquire: it is a replica of {info.get('master_host')}:{info.get('master_port')}"
        yield ServerFinding("failure", "replicas", text, "name the primary, or its Sentinels: redis+sentinel://…")


def _eviction(info: Mapping[str, str]) -> Iterator[ServerFinding]:
    policy, most, used = (
        info.get("maxmemory_policy", NO_EVICTION),
        _number(info, "maxmemory"),
        _number(info, "used_memory"),
    )
    evicted = _number(info, "evicted_keys")
    if policy != NO_EVICTION and (most or evicted):
        text = f"it may evict live leases, which unlocks them, and results of once: maxmemory-policy is {policy}"
        if evicted:
            text += f", and it has evicted {evicted:,} keys since it started"
        advice = "let a full server refuse writes instead"
        yield ServerFinding("failure", "eviction", text, advice, f"CONFIG SET maxmemory-policy {NO_EVICTION}")
    elif policy != NO_EVICTION:
        text = f"maxmemory-policy is {policy}, without effect as long as there is no maxmemory"
        yield ServerFinding("info", "eviction", text, command=f"CONFIG SET maxmemory-policy {NO_EVICTION}")
    else:
        yield ServerFinding("ok", "eviction", "nothing is evicted")
    if most and used >= NEARLY_FULL * most:
        text = f"a full server refuses every acquire: {used / most:.0%} of maxmemory is used"
        yield ServerFinding("warning", "memory", text, "raise maxmemory, or store less")


def _persistence(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[ServerFinding]:
    if info.get("aof_enabled") == "1" and info.get("aof_last_write_status", "ok") != "ok":
        text = "it refuses every acquire: its last write to the append-only file failed"
        yield ServerFinding("failure", "persistence", text, "see its log, and the space on its disk")
    is_stopped = settings.get("save") and settings.get("stop-writes-on-bgsave-error") == "yes"
    if info.get("rdb_last_bgsave_status", "ok") != "ok" and is_stopped:
        text = "it refuses every acquire: its last snapshot failed"
        yield ServerFinding("failure", "persistence", text, "see its log, and the space on its disk")
    if info.get("aof_enabled") == "1":
        if settings.get("appendfsync") == "always":
            yield ServerFinding("ok", "persistence", "a crash of the server forgets no grant")
        else:
            text = (
                "a crash of the server's machine forgets the grants of the last second or more, and grants them again"
            )
            advice = "fence what the leases protect, or have every write stored at once"
            yield ServerFinding("info", "persistence", text, advice, "CONFIG SET appendfsync always")
    elif "save" in settings:
        lost = "what came after the last snapshot" if settings["save"] else "every lease, queue and result of once"
        text = f"a restart forgets {lost}, and grants live leases again: there is no append-only file"
        advice = "fence what the leases protect, or have writes stored"
        yield ServerFinding("warning", "persistence", text, advice, "CONFIG SET appendonly yes")


def _replicas(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[ServerFinding]:
    if info.get("role") != "master":
        return
    replicas, wanted = _number(info, "connected_slaves"), int(settings.get("min-replicas-to-write", 0))
    if wanted and int(info.get("min_slaves_good_slaves", replicas)) < wanted:
        text = f"it refuses every acquire: it wants {_counted(wanted)} and has fewer"
        yield ServerFinding(
            "failure", "replicas", text, "start replicas, or want none", "CONFIG SET min-replicas-to-write 0"
        )
    elif not replicas:
        yield ServerFinding("ok", "replicas", "it has no replicas, so no failover that forgets grants")
    else:
        many = _counted(replicas)
        forgets = "a failover forgets the grants of the last moments"
        advice = "fence what the leases protect"
        if wanted:
            text = f"{forgets}: it has {many}, and stops granting {settings.get('min-replicas-max-lag', '10')} s after it was cut off"
            yield ServerFinding("info", "replicas", text, advice)
        elif "min-replicas-to-write" in settings:
            text = f"{forgets}, and a primary that is cut off goes on granting: it has {many}"
            advice += ", and let it stop then"
            yield ServerFinding("warning", "replicas", text, advice, "CONFIG SET min-replicas-to-write 1")
        else:
            yield ServerFinding("warning", "replicas", f"{forgets}: it has {many}", advice)
    late = max(replica_lags(dict(info)), default=0)
    if late >= LATE_S:
        text = f"a failover to a replica forgets the grants of {late} s: it has not been heard of for as long"
        yield ServerFinding("warning", "replicas", text, "see the replica's log")


def _connections(info: Mapping[str, str]) -> Iterator[ServerFinding]:
    used, most, rejected = (_number(info, name) for name in ("connected_clients", "maxclients", "rejected_connections"))
    if rejected or (most and used >= NEARLY_FULL * most):
        text = f"{used:,} of {most:,} connections are in use"
        if rejected:
            text += f", and it has refused {rejected:,} since it started"
        yield ServerFinding("warning", "connections", text, "raise maxclients", f"CONFIG SET maxclients {most * 2}")
    else:
        yield ServerFinding("ok", "connections", f"{used:,} of {most:,} connections are in use")


def _counted(number: int) -> str:
    return f"{number} replica{'s' * (number != 1)}"


def _number(info: Mapping[str, str], name: str) -> int:
    return int(info.get(name, 0))
