"""Count the instructions that a client executes for a call when no other client wants anything. Run with ``-m``.

    python -m handfast_lab.bench.client_instructions
    python -m handfast_lab.bench.client_instructions --only "asyncio with" --output results/benchmarks/client.json
    python -m handfast_lab.bench.client_instructions --listening prometheus    what measuring adds

The number of instructions does not depend on the load of the machine, so versions can be compared on a busy machine. Python
runs under ``valgrind --tool=callgrind`` with a number of calls; a second run has more of them. The difference divided by
the number of additional calls is the result, so start-up and connecting cancel out. It includes the interpreter, asyncio
and the event loop. In asyncio 200 tasks call at once, each for a separate name. Results differ by 1 % between runs.

The first row asks the server twice on a bare connection: through a socket, or through a pipeline of futures in asyncio.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import gc
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import handfast
from handfast import AsyncHandfast, Handfast
from handfast.embedded import PrivateServer
from handfast_lab.bench.machine import describe

__all__ = ["CALLS", "main"]

CALLS = BARE, *_ = "two requests, bare", "acquire, release", "with", "limiter", "once, found"

TASKS = 200

SHORT, MORE = 1_000, 4_000
"""Calls of the shorter run, and additional calls of the longer run."""

LISTENING = ("nothing", "function", "prometheus", "opentelemetry")
"""What listens to the events of the client: nothing; a function that does nothing; or metrics, with the SDK of the latter."""

PING = b"*2\r\n$4\r\nPING\r\n$32\r\n0123456789abcdef0123456789abcdef\r\n"
REPLY = b"$32\r\n0123456789abcdef0123456789abcdef\r\n"


class _Bare(asyncio.Protocol):
    """A future for each request; the requests of a turn of the loop leave together."""

    def __init__(self) -> None:
        self._waiting, self._requests, self._rest = deque[Future[bytes]](), list[bytes](), b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *replies, self._rest = (self._rest + data).split(REPLY)
        for reply in replies:
            self._waiting.popleft().set_result(reply)

    def ask(self) -> Future[bytes]:
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._flush)
        self._requests.append(PING)
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _flush(self) -> None:
        self.transport.write(b"".join(self._requests))
        self._requests.clear()


def listen(hf: Handfast | AsyncHandfast, listening: str) -> None:
    """Have something listen to the events of a client."""
    if listening == "function":
        hf.on(lambda _: None)
    elif listening == "prometheus":
        from handfast.metrics import prometheus

        prometheus.install(hf)
    elif listening == "opentelemetry":
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        from handfast.metrics import opentelemetry

        opentelemetry.install(hf, meter_provider=MeterProvider([InMemoryMetricReader()]))


def run_sync(call: str, path: str, calls: int, listening: str) -> None:
    """Make the calls in sequence."""
    with Handfast(f"unix://{path}") as hf, socket.socket(socket.AF_UNIX) as bare:
        bare.connect(path)
        listen(hf, listening)
        lock, limiter, once = hf.lock("a"), hf.limiter("a", "1000000/h"), hf.once("a", keep=3600)

        def block() -> None:
            with lock:
                pass

        def work() -> str:
            return ""

        def ask_twice() -> None:
            for _ in range(2):
                bare.sendall(PING)
                bare.recv(64)

        ways: dict[str, Callable[[], object]] = {
            BARE: ask_twice,
            "acquire, release": lambda: lock.acquire().release(),
            "with": block,
            "limiter": limiter.try_acquire,
            "once, found": lambda: once.run(work),
        }
        gc.disable()
        for _ in range(calls):
            ways[call]()


async def run_asyncio(call: str, path: str, calls: int, listening: str) -> None:
    """Make the calls from 200 tasks, each in sequence."""
    async with AsyncHandfast(f"unix://{path}") as hf:
        listen(hf, listening)
        transport, bare = await asyncio.get_running_loop().create_unix_connection(_Bare, path)

        async def ask_twice(_: Any) -> None:
            await bare.ask()
            await bare.ask()

        async def acquire(lock: Any) -> None:
            await (await lock.acquire()).release()

        async def block(lock: Any) -> None:
            async with lock:
                pass

        async def work() -> str:
            return ""

        ways: dict[str, tuple[Callable[[str], Any], Callable[[Any], Awaitable[object]]]] = {
            BARE: (str, ask_twice),
            "acquire, release": (hf.lock, acquire),
            "with": (hf.lock, block),
            "limiter": (lambda name: hf.limiter(name, "1000000/h"), lambda limiter: limiter.try_acquire()),
            "once, found": (lambda name: hf.once(name, keep=3600), lambda once: once.run(work)),
        }
        make, use = ways[call]

        async def task(name: str) -> None:
            made = make(name)
            for _ in range(calls // TASKS):
                await use(made)

        gc.disable()
        await asyncio.gather(*(task(str(number)) for number in range(TASKS)))
        transport.close()


def collected(*arguments: str) -> int:
    """Return the instructions of a Python process from start to end; a ``{}`` stands for the socket of a new server."""
    with PrivateServer() as server, tempfile.TemporaryDirectory(prefix="hf") as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        program = [sys.executable, *(argument.replace("{}", str(server.socket)) for argument in arguments)]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        said = subprocess.run([*tool, *program], env=environment, capture_output=True, text=True, check=True).stderr
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise RuntimeError(f"callgrind has counted nothing: {said}")
    return int(found[1])


def called(api: str, call: str, listening: str) -> int:
    """Return the instructions of a call."""
    run = "-m", "handfast_lab.bench.client_instructions", "--listening", listening, "--run", api, call
    return round((collected(*run, str(SHORT + MORE), "{}") - collected(*run, str(SHORT), "{}")) / MORE)


def started() -> dict[str, int]:
    """Return the instructions of an import, without redis-py's, and of a whole command."""
    compileall.compile_dir(Path(handfast.__file__).parent, quiet=2)
    alone = collected("-c", "import redis")
    return {
        "from handfast import Handfast": collected("-c", "import redis; from handfast import Handfast") - alone,
        "handfast run x -- true": collected("-m", "handfast", "run", "x", "--url", "unix://{}", "--", "true"),
    }


def main(argv: list[str] | None = None, tell: Callable[[str], object] = print) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ROW", help='one row, such as "asyncio with", or "start"')
    parser.add_argument("--listening", choices=LISTENING, default="nothing", help="what listens to the events")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures to a JSON file")
    parser.add_argument("--run", nargs=4, metavar=("API", "CALL", "CALLS", "SOCKET"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.run:
        api, call, calls, path = options.run
        if api == "asyncio":
            asyncio.run(run_asyncio(call, path, int(calls), options.listening))
        else:
            run_sync(call, path, int(calls), options.listening)
        return 0
    rows: list[dict[str, Any]] = []
    for api in ("sync", "asyncio"):
        for call in CALLS:
            if options.only in (None, f"{api} {call}"):
                count = called(api, call, options.listening)
                rows.append({"api": api, "call": call, "instructions": count})
                tell(f"{api:<8} {call:<18} {count:>8,}")
    starts = started() if options.only in (None, "start") else {}
    for name, count in starts.items():
        tell(f"{name:<30} {count:>12,}")
    if options.output:
        with PrivateServer() as server:
            found = {"machine": describe(server.url), "rows": rows, "start": starts}
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
