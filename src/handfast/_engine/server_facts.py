"""Facts that a server tells of itself: INFO, settings and time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from handfast._engine.effects import Call
from handfast._engine.script import command, pack

__all__ = ["INFO", "SETTINGS", "TIME", "read_info", "read_setting", "read_time", "replica_lags", "setting"]

INFO = Call(command("INFO", 0), b"")

TIME = Call(command("TIME", 0), b"")

SETTINGS = ("save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag")
"""The settings that INFO does not tell. Servers before Redis 7.0 are asked for one at a time."""


def setting(name: str) -> Call:
    """Ask for a setting."""
    return Call(command("CONFIG", 2), pack(("GET", name)))


def read_setting(reply: dict[bytes, bytes]) -> str | None:
    """Return the value of the requested setting; None if the server has no setting of this name."""
    return next((value.decode() for value in reply.values()), None)


def read_info(reply: bytes) -> dict[str, str]:
    """Return the fields in all sections of an INFO."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def read_time(reply: list[Any]) -> datetime:
    """Return the time of the server."""
    return datetime.fromtimestamp(int(reply[0]) + int(reply[1]) / 1e6, UTC)


def replica_lags(info: dict[str, str]) -> list[int]:
    """Return, for each replica, the seconds since the last confirmation."""
    fields = (
        dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        for name, value in info.items()
        if name.removeprefix("slave").isdecimal()
    )
    return [int(field.get("lag", 0)) for field in fields]
