"""A primary, its replica and a Sentinel that watches over both: private servers, which end with this process at the latest."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import redis

from handfast.embedded import find_binary, supervisor
from handfast.testing import ServerController

__all__ = ["Sentinels"]

HOST, SERVICE = "127.0.0.1", "primary"

WITHIN = 30.0
"""Seconds that one step of a failover may take."""

LOOK = 0.01
"""Seconds between two looks."""

USUAL, HASTY = ("INFO-PERIOD", 10_000, "PUBLISH-PERIOD", 2_000), ("INFO-PERIOD", 1_000, "PUBLISH-PERIOD", 250)
"""How often the Sentinel asks the servers what they are, and a fourth of the time for which it lets one that should be
a replica be a primary, in milliseconds."""


class Sentinels:
    """The three servers. The Sentinel makes the replica the primary when `fail_over` asks for it."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            ports = [_free_port() for _ in range(3)]
            self._servers = {
                ports[0]: stack.enter_context(ServerController("--port", str(ports[0]))),
                ports[1]: stack.enter_context(
                    ServerController("--port", str(ports[1]), "--replicaof", HOST, str(ports[0]))
                ),
            }
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="handfast-"))
            self._sentinel: Any = redis.Redis(HOST, ports[2], decode_responses=True)
            stack.callback(self._sentinel.close)
            self.url = f"redis+sentinel://{HOST}:{ports[2]}/{SERVICE}/0"
            _until(lambda: self._is_in_step(ports[1]))
            stack.callback(_start_sentinel(folder, ports[2], ports[0]).end)
            self.until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def primary(self) -> ServerController:
        """The server that the Sentinel names."""
        return self._servers[self._named()]

    def until_ready(self) -> None:
        """Wait until the last failover is over: the replica follows the primary again.

        That takes a Sentinel 20 s, most of it between two looks. Meanwhile it looks more often, where it can be told
        to.
        """
        with contextlib.suppress(redis.ResponseError):  # before Redis 7.0
            self._sentinel.execute_command("SENTINEL", "DEBUG", *HASTY)
        _until(self._is_ready)
        with contextlib.suppress(redis.ResponseError):
            self._sentinel.execute_command("SENTINEL", "DEBUG", *USUAL)

    def fail_over(self) -> None:
        """Have the Sentinel exchange the roles, and return when it names the new primary."""
        before = self._named()
        _until(self._begins)
        _until(lambda: self._named() != before)

    def _named(self) -> int:
        return int(self._sentinel.sentinel_get_master_addr_by_name(SERVICE)[1])

    def _begins(self) -> bool:
        try:
            self._sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError:  # the last one is not over, or the replica not known yet
            return False
        return True

    def _is_ready(self) -> bool:
        """Return whether the replica follows the primary, and the Sentinel knows it."""
        (other,) = self._servers.keys() - {self._named()}
        known = self._sentinel.sentinel_slaves(SERVICE)
        return self._is_in_step(other) and any(
            one["port"] == other and one["master-link-status"] == "ok" and not one["is_disconnected"] for one in known
        )

    def _is_in_step(self, port: int) -> bool:
        state = self._servers[port].admin.info("replication")
        return bool(state["role"] == "slave" and state["master_link_status"] == "up")


def _start_sentinel(folder: str, port: int, primary: int) -> supervisor.SupervisedServer:
    config, program = Path(folder, "sentinel.conf"), Path(folder, "sentinel")
    lines = f"port {port}", f"bind {HOST}", f"dir {folder}", f"sentinel monitor {SERVICE} {HOST} {primary} 1"
    limits = f"sentinel down-after-milliseconds {SERVICE} 500", f"sentinel failover-timeout {SERVICE} 2000"
    config.write_text("\n".join((*lines, *limits, "")))
    program.write_text(f"#!/bin/sh\nexec {find_binary()} {config} --sentinel\n")  # which takes no other options
    program.chmod(0o700)
    return supervisor.SupervisedServer(str(program), folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _until(condition: Callable[[], bool]) -> None:
    until = monotonic() + WITHIN
    while True:
        with contextlib.suppress(redis.ConnectionError):
            if condition():
                return
        if monotonic() > until:
            raise TimeoutError(f"the Sentinel or its servers took longer than {WITHIN:g} s")
        sleep(LOOK)
