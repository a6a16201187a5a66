"""Measure how long each call takes in each kind of outage, and what it raises. Run with ``-m``.

    python -m handfast_lab.bench.outages
    python -m handfast_lab.bench.outages --only hung --only refused

Every outage begins after the client has used its server, which is one of its own. A call is made in both APIs, the sync
ones in threads at the same moment, each with a client of its own. The servers are real: killed, stopped, busy with a
script that does not end, or a replica that loads the data of its primary or has no primary.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

from handfast import AsyncHandfast, Handfast
from handfast._engine.keys import KeySet
from handfast.testing import ServerController

__all__ = ["CALLS", "OUTAGES", "main"]

TIMEOUT_S = 2.0
"""The timeout of calls that are given one, in seconds."""


@contextlib.contextmanager
def refused() -> Iterator[tuple[ServerController, Callable[[], object]]]:
    """The server is gone."""
    with ServerController() as server:
        yield server, server.kill


@contextlib.contextmanager
def hung() -> Iterator[tuple[ServerController, Callable[[], object]]]:
    """The server is stopped, and its connections stay open."""
    with ServerController() as server:
        yield server, server.pause
        server.resume()


@contextlib.contextmanager
def busy() -> Iterator[tuple[ServerController, Callable[[], object]]]:
    """The server runs a script that does not end."""

    def run_on() -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis(unix_socket_path=server.socket) as client:
            client.eval("while true do end", 0)

    def begin() -> None:
        threading.Thread(target=run_on, daemon=True).start()
        until_answer(server, "BUSY")

    with ServerController("--lua-time-limit", "1") as server:
        yield server, begin
        server.admin.script_kill()


@contextlib.contextmanager
def loading() -> Iterator[tuple[ServerController, Callable[[], object]]]:
    """The server loads the data of another one, slowly."""
    port = free_port()

    def begin() -> None:
        server.admin.config_set("key-load-delay", 5000)
        server.admin.replicaof("127.0.0.1", port)
        until_answer(server, "LOADING")

    with ServerController("--port", str(port)) as primary:
        primary.admin.mset({f"key:{number}": "x" * 100 for number in range(20_000)})
        with ServerController("--loading-process-events-interval-bytes", "1024") as server:
            yield server, begin


@contextlib.contextmanager
def read_only() -> Iterator[tuple[ServerController, Callable[[], object]]]:
    """The server is a replica, without its primary."""
    with ServerController() as server:
        yield server, lambda: server.admin.replicaof("127.0.0.1", free_port())


OUTAGES = {
    "refused": refused,
    "hung": hung,
    "busy": busy,
    "loading": loading,
    "read-only": read_only,
}

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "try_acquire()": lambda hf, _: hf.lock("free").try_acquire(),
    f"try_acquire(timeout={TIMEOUT_S:g})": lambda hf, _: hf.lock("free").try_acquire(timeout=TIMEOUT_S),
    "status()": lambda hf, _: hf.lock("free").status(),
    "acquire()": lambda hf, _: hf.lock("free").acquire(),
    f"acquire(timeout={TIMEOUT_S:g})": lambda hf, _: hf.lock("free").acquire(timeout=TIMEOUT_S),
    "release()": lambda _, lease: lease.release(),
    "extend()": lambda _, lease: lease.extend(240),
}
"""Each makes a call with a client and a lease of it."""

NAMESPACES = {api: [f"{api}-{number}" for number in range(len(CALLS))] for api in ("sync", "asyncio")}
"""A namespace for each call."""


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def until_answer(server: ServerController, word: str) -> None:
    """Wait until the server answers a script with that error."""
    give_up_at = time.monotonic() + 20
    with redis.Redis(unix_socket_path=server.socket) as client:
        while time.monotonic() < give_up_at:
            try:
                client.eval("return redis.call('EXISTS', KEYS[1])", 1, KeySet("probe", "lock", "free").key("state"))
            except redis.RedisError as error:
                if word in type(error).__name__.upper() + str(error).upper():
                    return
            time.sleep(0.05)
    raise TimeoutError(f"the server does not answer {word}")


def outcome_of(begun: float, error: BaseException | None) -> str:
    """Return the seconds since then, and the class of the error."""
    return f"{time.monotonic() - begun:6.2f} {type(error).__name__ if error else 'ok'}"


def measure_sync(server: ServerController, begin: Callable[[], object]) -> list[str]:
    """Make all calls of the sync API at the same moment, and return their outcomes."""
    clients = [Handfast(server.url, namespace=namespace) for namespace in NAMESPACES["sync"]]
    leases = [client.lock("held", ttl=120).acquire() for client in clients]
    begin()

    def make(call: Callable[[Any, Any], Any], client: Handfast, lease: Any) -> str:
        begun = time.monotonic()
        try:
            call(client, lease)
        except Exception as error:  # noqa: BLE001 -- which one it is, is what is measured
            return outcome_of(begun, error)
        return outcome_of(begun, None)

    with ThreadPoolExecutor(len(CALLS)) as threads:
        found = list(threads.map(make, CALLS.values(), clients, leases))
    for client in clients:
        client.close()
    return found


async def measure_asyncio(server: ServerController, begin: Callable[[], object]) -> list[str]:
    """Make all calls of the asyncio API at the same moment, and return their outcomes."""
    clients = [AsyncHandfast(server.url, namespace=namespace) for namespace in NAMESPACES["asyncio"]]
    leases = [await client.lock("held", ttl=120).acquire() for client in clients]
    begin()

    async def make(call: Callable[[Any, Any], Awaitable[Any]], client: AsyncHandfast, lease: Any) -> str:
        begun = time.monotonic()
        try:
            await call(client, lease)
        except Exception as error:  # noqa: BLE001 -- which one it is, is what is measured
            return outcome_of(begun, error)
        return outcome_of(begun, None)

    found = await asyncio.gather(*map(make, CALLS.values(), clients, leases))
    for client in clients:
        await client.close()
    return found


def main() -> int:
    """Measure, and print a table for each outage."""
    parser = argparse.ArgumentParser(description="Measure how long each call takes in each kind of outage.")
    parser.add_argument("--only", action="append", choices=OUTAGES, help="this outage; may be repeated")
    chosen = parser.parse_args().only or list(OUTAGES)
    print(f"{'':<14}{'':<24}{'sync, s':<32}{'asyncio, s'}")
    for name in chosen:
        with OUTAGES[name]() as (server, begin):
            of_sync = measure_sync(server, begin)
        with OUTAGES[name]() as (server, begin):
            of_asyncio = asyncio.run(measure_asyncio(server, begin))
        for call, one, other in zip(CALLS, of_sync, of_asyncio, strict=True):
            print(f"{name:<14}{call:<24}{one:<32}{other}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
