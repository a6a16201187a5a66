"""Which servers keep the promises of a lease: by name, and where the name is not enough by a proof.

A script must be alone on its server while it runs. Redis and Valkey run nothing beside it. Of an engine not known
to do the same, a client asks for a proof before the first call. Some engines are refused in any case.

INFO shows the kind of a server. If a server gives no INFO to this user, its other replies count. INFO also shows two
mistakes that a URL cannot: the port of a Sentinel, and a single node of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from handfast._engine.script import pack
from handfast._engine.server_facts import INFO, read_info
from handfast.errors import ServerUnsupported

__all__ = [
    "ENGINES",
    "IDENTITY",
    "WRITE_PAUSE_S",
    "Engine",
    "identify",
    "isolation_proof",
    "not_isolated",
    "product",
    "to_be_proven",
]


class Engine(NamedTuple):
    """A kind of server."""

    name: str
    sign: str
    """How a field of its INFO begins that earlier rows of the table do not have."""
    refusal: str = ""
    """Why it cannot be used; empty if it can."""
    is_proven: bool = False
    """Whether its scripts are known to run alone."""
    remedy: str = ""
    """How it can be made to run them alone, if it does not by itself."""


ENGINES = (
    Engine("Active-Active of Redis Software", "crdt_", "each of its regions grants the same name"),
    Engine("KeyDB", "mvcc_depth", "active replicas each grant the same name, and there was no release since 2023"),
    Engine("Kvrocks", "kvrocks_", "its scripts cannot ask whether a waiter is still there, so no lease is handed over"),
    Engine("Garnet", "garnet_version", remedy="start it with --lua-transaction-mode"),
    Engine("Dragonfly", "dragonfly_version"),
    Engine("Redis Software", "rlec_version", is_proven=True),
    Engine("Valkey", "valkey_version", is_proven=True),
    Engine("Redict", "redict_version", is_proven=True),
    Engine("Redis", "redis_version", is_proven=True),
)
"""By the first row whose sign a server has. Others tell a ``redis_version``, too."""

_NOT_AN_ENGINE = ("gcc_version", "redis_version")
"""Fields that many engines have."""

IDENTITY = INFO.prefix.evalsha + INFO.args
"""Asks a server who it is."""

_WRITES = 6
"""How many writes another connection tries while the script of the proof runs, one after the other."""

WRITE_PAUSE_S = 0.01
"""Seconds between two of them."""

_LOOKS = 100_000
"""How often the script of the proof looks: some 50 ms."""

_ISOLATION = """\
local first = redis.call('get', KEYS[1])
for look = 1, tonumber(ARGV[1]) do
  if redis.call('get', KEYS[1]) ~= first then return 0 end
end
return 1
"""
"""Looks whether another connection writes in the middle of a script. It returns 1 if none does."""


def identify(info: Mapping[str, str]) -> Engine:
    """Return the kind of server with this INFO."""
    unknown = [name for name in info if name.endswith("_version") and name not in _NOT_AN_ENGINE]
    for engine in ENGINES:
        if any(name.startswith(engine.sign) for name in info) and not (engine is ENGINES[-1] and unknown):
            return engine
    sign = next(iter(unknown), "")
    return Engine(sign.removesuffix("_version").capitalize() or "The server", sign)


def product(info: Mapping[str, str]) -> str:
    """Return the name and the version of the server."""
    engine = identify(info)
    return f"{engine.name} {info.get(engine.sign) or info.get('redis_version', '')}".rstrip()


def to_be_proven(reply: Any, place: str, *, in_cluster: bool) -> Engine | None:
    """Return the engine whose scripts may not run alone, by the reply to `IDENTITY`; None if they are known to.

    ``place`` is the ``host:port`` of the server, and ``in_cluster`` whether it was reached as a node of a cluster.

    Raises ServerUnsupported for a refused server.
    """
    if not isinstance(reply, bytes):
        return None  # its user may not ask
    info = read_info(reply)
    match info.get("server_mode") or info.get("redis_mode"):  # Valkey has the first field, Redis the second
        case "sentinel":
            raise ServerUnsupported(
                f"the server at {place} is a Sentinel, which only knows where the primary is; connect through it: "
                f"redis+sentinel://{place}/{_service(info)}"
            )
        case "cluster" if not in_cluster:
            raise ServerUnsupported(
                f"the server at {place} is a node of a cluster, and serves only the names of its own slots; connect "
                f"to the whole cluster: redis+cluster://{place}, or pass a RedisCluster client"
            )
    engine = identify(info)
    if engine.refusal:
        raise ServerUnsupported(f"{engine.name} cannot be used: {engine.refusal}; use Redis or Valkey")
    return None if engine.is_proven else engine


def _service(info: Mapping[str, str]) -> str:
    """Return the first service watched by a Sentinel."""
    fields = (field.partition("=") for field in info.get("master0", "").split(","))
    return next((value for name, _, value in fields if name == "name"), "SERVICE")


def isolation_proof(key: str) -> tuple[bytes, list[bytes]]:
    """Return a script, whose reply is 1 if it runs alone, and writes for another connection to try meanwhile.

    ``key`` is written, and kept for 10 s.
    """
    script = b"*5\r\n" + pack(("EVAL", _ISOLATION, 1, key, _LOOKS))
    return script, [b"*5\r\n" + pack(("SET", key, number, "PX", 10_000)) for number in range(_WRITES)]


def not_isolated(engine: Engine, found: object) -> ServerUnsupported:
    """Return the error for an engine that has not proven that its scripts run alone."""
    why = (
        "lets others write while a script runs" if found == 0 else f"could not be asked whether it does that ({found})"
    )
    return ServerUnsupported(
        f"a lease is only safe where a script runs alone, and {engine.name} {why}; use Redis or Valkey"
        f"{f', or {engine.remedy}' if engine.remedy else ''}"
    )
