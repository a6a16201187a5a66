"""A server under the control of a test: it can be killed, paused, restarted, or made to run out of memory.

    with ServerController(persistent=True) as server, Handfast(server.url) as hf:
        lease = hf.lock("a").acquire()
        server.kill()
        server.restart(keep_data=True)
        assert lease.extend()

It is a Valkey or Redis of this process, found in the same way as by `Handfast.embedded`. It listens on a unix
socket in a private folder, and on 127.0.0.1 too once it has replicas. Server and folder are removed when this process
ends, also by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from handfast.embedded import find_binary, private_folder, supervisor
from handfast.errors import NoServer

__all__ = ["ServerController"]

LOOPBACK = "127.0.0.1"

TIMEOUT_S = 10.0
"""How long, in seconds, a server may take to start, and a replica to catch up."""

MAX_SHRINKS = 40
"""How often maxmemory is lowered by 1 % until keys are evicted."""

_CLEANER = 'read -r _; PATH="$PATH:/usr/bin:/bin"; i=0; while [ -e "$1" ] && [ $i -lt 100 ]; do rm -rf "$1" 2>/dev/null || sleep 0.05; i=$((i+1)); done'
"""Shell script that removes the folder when this process closes its pipe or ends. It tries again while the server,
which may still be ending, writes to the folder."""


class ServerController:
    """A private server. It runs from its creation until `close` or the end of the ``with`` block.

    Args:
        options: Command line options of the server, such as ``"--maxclients", "10"``.
        persistent: Write every change to disk before the reply, so `restart` can keep the data.
        binary: Path of the server to run; by default the result of `handfast.embedded.find_binary`.

    Attributes:
        socket: Path of the server's unix socket.
        pid: Process id of the server; 0 while it does not run.
        admin: A redis-py client for looking at the server; it returns str and retries once.

    Raises:
        NoServer: The server cannot be started.

    """

    def __init__(self, *options: str, persistent: bool = False, binary: str | None = None) -> None:
        self._binary = binary or find_binary()
        self._options = ["--bind", LOOPBACK, "--repl-diskless-sync-delay", "0", *options]
        if persistent:
            self._options += ["--appendonly", "yes", "--appendfsync", "always"]
        self._persistent = persistent
        self._folder = private_folder()
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", _CLEANER, "sh", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )
        self.socket: str = f"{self._folder}/s"
        self.pid: int = 0
        self.admin: redis.Redis = redis.Redis(
            unix_socket_path=self.socket, decode_responses=True, retry=Retry(NoBackoff(), 1)
        )
        self._process: supervisor.SupervisedServer | None = None
        self._replicas: list[ServerController] = []
        self._primary: ServerController | None = None
        self._closed_port: socket.socket | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<ServerController of {self.url}, {'pid ' + str(self.pid) if self.pid else 'not running'}>"

    @property
    def url(self) -> str:
        """The URL of the server. It stays the same after a restart."""
        return f"unix://{quote(self.socket)}"

    @property
    def running(self) -> bool:
        """Whether the server's process exists, paused or not."""
        return self._process is not None and not self._process.has_exited

    # --- process

    def kill(self) -> None:
        """End the server with SIGKILL and wait until the process has ended. Connections are refused until `restart`.

        Raises:
            RuntimeError: The server does not run.

        """
        self._must_run()
        self._end()

    def restart(self, *, keep_data: bool = False) -> None:
        """Start the server again at the same URL after `kill`.

        Args:
            keep_data: Start with the former data; needs ``persistent=True``. By default it starts empty.

        Raises:
            RuntimeError: The server runs, or the controller is closed.
            ValueError: ``keep_data`` is true, but the server is not persistent.
            NoServer: The server does not start.

        """
        if keep_data and not self._persistent:
            raise ValueError("only a ServerController(persistent=True) has its data after a restart")
        if self._cleaner.poll() is not None:
            raise RuntimeError("this ServerController is closed; make a new one")
        if self.running:
            raise RuntimeError("the server runs; kill() it before restart()")
        self._end()
        if not keep_data:
            self._forget_data()
        self._start()

    def pause(self) -> None:
        """Stop the server's process (SIGSTOP): connections stay open, and nothing is answered until `resume`.

        Raises:
            RuntimeError: The server does not run.

        """
        self._must_run()
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the server's process after `pause`. It executes the commands received in between.

        Raises:
            RuntimeError: The server does not run.

        """
        self._must_run()
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the server within the ``with`` block."""
        self.pause()
        try:
            yield
        finally:
            if self.running:
                self.resume()

    def close(self) -> None:
        """End the server and the replicas and remove the folder, before this returns."""
        for replica in self._replicas:
            replica.close()
        self.admin.close()
        self._end()
        if self._closed_port is not None:
            self._closed_port.close()
        if self._cleaner.poll() is None:
            with contextlib.suppress(OSError):
                self._cleaner.communicate(
                    b"\n"
                )  # a forked child may hold the pipe open, so the line ends the cleaner, not EOF
        elif self._cleaner.stdin is not None:
            self._cleaner.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- state

    @contextlib.contextmanager
    def flushing_scripts(self, *, every: float = 0.01) -> Iterator[None]:
        """Flush the server's scripts (SCRIPT FLUSH) repeatedly within the ``with`` block.

        Args:
            every: Seconds between two flushes, more than 0.

        Raises:
            ValueError: ``every`` is out of range.

        """
        if not 0 < every < threading.TIMEOUT_MAX:
            raise ValueError(f"every must be more than 0 seconds, not {every!r}")
        over = threading.Event()

        def flush() -> None:
            with self._client() as client:
                while not over.wait(every):
                    with contextlib.suppress(redis.RedisError):  # the server may be down
                        client.script_flush()

        thread = threading.Thread(target=flush, name="handfast-flushing", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def out_of_memory(self, *, policy: str = "noeviction", limit: int | None = None) -> Iterator[None]:
        """Let the server run out of memory within the ``with`` block. The settings are restored afterwards.

        Args:
            policy: The server's maxmemory-policy. With ``"noeviction"`` it refuses commands that need memory; with others it
                evicts keys.
            limit: The server's maxmemory in bytes. By default 1 with ``"noeviction"``, so no expired key makes room; with
                other policies just below the memory in use, so the first keys are evicted.

        Raises:
            ValueError: ``limit`` is less than 1.

        """
        before = {name: self._setting(name) for name in ("maxmemory-policy", "maxmemory")}
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 byte (0 would turn the limit off), not {limit!r}")
        try:
            self.admin.config_set("maxmemory-policy", policy)
            if limit is None and policy != "noeviction":
                self._begin_to_evict()
            else:
                self.admin.config_set("maxmemory", limit or 1)
            yield
        finally:
            with contextlib.suppress(redis.ConnectionError):  # killed within the block: a restart forgets the limit
                for name, value in before.items():
                    self.admin.config_set(name, value)

    def kill_clients(self, kind: Literal["normal", "pubsub"] | None = None) -> int:
        """Let the server close connections, except the connection of `admin`.

        Args:
            kind: ``"pubsub"`` for subscribed connections, ``"normal"`` for the others, None for both.

        Returns:
            How many connections were closed.

        Raises:
            ValueError: There is no such kind.

        """
        if kind not in ("normal", "pubsub", None):
            raise ValueError(f"clients are 'normal' or 'pubsub', not {kind!r}")
        kinds = ("normal", "pubsub") if kind is None else (kind,)
        return sum(int(self.admin.client_kill_filter(_type=one, skipme=True)) for one in kinds)

    # --- replicas

    def replica(self, *options: str) -> ServerController:
        """Start a replica of this server and wait until it is up to date. `close` closes it too.

        From then on this server listens on a port of 127.0.0.1 as well.

        Args:
            options: Command line options of the replica.

        Returns:
            The replica.

        Raises:
            RuntimeError: The server does not run.
            NoServer: The replica does not start, or does not catch up.

        """
        self._must_run()
        port = self._listening_port()
        replica = ServerController(*options, binary=self._binary)
        replica._primary = self
        self._replicas.append(replica)
        replica.admin.replicaof(LOOPBACK, port)
        replica.catch_up()
        return replica

    def catch_up(self) -> None:
        """Wait until this replica has all of the primary's present data.

        Raises:
            RuntimeError: This server does not run, or is not a replica.
            NoServer: It did not catch up within 10 s.

        """
        primary = self._must_be_replica()
        wanted = primary.admin.info("replication")["master_repl_offset"]

        def has_all() -> bool:
            state = self.admin.info("replication")
            return bool(state.get("master_link_status") == "up" and state["slave_repl_offset"] >= wanted)

        _eventually(has_all, "the replica did not catch up with its primary")

    def freeze(self) -> None:
        """Disconnect this replica from the primary. It continues to answer, with stale data.

        Raises:
            RuntimeError: This server does not run, or is not a replica.

        """
        self._must_be_replica()
        if self._closed_port is None:
            self._closed_port = socket.socket()  # a bound port without a listener, so no other process can take it
            self._closed_port.bind((LOOPBACK, 0))
        self.admin.replicaof(LOOPBACK, self._closed_port.getsockname()[1])

    def thaw(self) -> None:
        """Let this replica follow the primary again after `freeze`, and wait until it is up to date.

        Raises:
            RuntimeError: This server does not run, or is not a replica.
            NoServer: It did not catch up within 10 s.

        """
        primary = self._must_be_replica()
        self.admin.replicaof(LOOPBACK, primary._listening_port())  # noqa: SLF001 -- of the same class
        self.catch_up()

    def promote(self) -> None:
        """Make this replica a primary with the data it has, whatever data the former primary may have.

        Raises:
            RuntimeError: This server does not run, or is not a replica.

        """
        self._must_be_replica()
        self.admin.replicaof("NO", "ONE")
        self._primary = None

    def _listening_port(self) -> int:
        port = int(self._setting("port"))
        if not port:
            with socket.socket() as probe:
                probe.bind((LOOPBACK, 0))
                port = probe.getsockname()[1]
            self.admin.config_set("port", port)
            self._options += ["--port", str(port)]  # also after a restart
        return port

    def _must_be_replica(self) -> ServerController:
        self._must_run()
        if self._primary is None:
            raise RuntimeError("this server is not a replica; replica() makes one")
        return self._primary

    # --- starting and ending

    def _start(self) -> None:
        self._process = supervisor.SupervisedServer(self._binary, self._folder, *self._options)
        _eventually(self._answers, f"the server {self._binary} did not answer", self._log)
        self.pid = supervisor.server_pid(self.socket)

    def _answers(self) -> bool:
        if not self.running:
            raise NoServer(f"the server {self._binary} ended as soon as it was started: {self._log()}")
        return supervisor.answers(self.socket)

    def _end(self) -> None:
        """Kill the server if it runs, paused or not, and reap the process."""
        self.pid = 0
        if self._process is not None:
            self._process.end()

    def _must_run(self) -> None:
        if not self.running:
            raise RuntimeError("the server does not run; restart() it first")

    def _log(self) -> str:
        log = Path(self._folder, "log")
        return log.read_text(errors="replace")[-300:] if log.exists() else "there is no log"

    def _forget_data(self) -> None:
        for path in Path(self._folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix in (".aof", ".rdb"):
                path.unlink()

    def _begin_to_evict(self) -> None:
        """Lower maxmemory until a key is evicted.

        The memory in use also depends on the connections, so it is not exact.
        """
        limit = int(self.admin.info("memory")["used_memory"])
        before = self.admin.info("stats")["evicted_keys"]
        for _ in range(MAX_SHRINKS):
            limit -= limit // 100
            self.admin.config_set("maxmemory", limit)
            if self.admin.info("stats")["evicted_keys"] > before:
                return

    def _setting(self, name: str) -> str:
        return str(self.admin.config_get(name)[name])

    def _client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, retry=Retry(NoBackoff(), 0))


def _eventually(condition: Callable[[], bool], failure: str, detail: Callable[[], str] = str) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > until:
            raise NoServer(f"{failure} within {TIMEOUT_S:g} s {detail()}".rstrip())
        time.sleep(0.005)
