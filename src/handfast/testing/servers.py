"""A real server that does what a test tells it to: dies, stalls, comes back, forgets its scripts, runs out of memory.

    with ServerController(persistent=True) as server, Handfast(server.url) as hf:
        lease = hf.lock("a").acquire()
        server.kill()
        server.restart(keep_data=True)
        assert lease.extend()

It is a Valkey or Redis of this process alone, found as `Handfast.embedded` finds one. It listens on a unix socket in a private
folder, and on 127.0.0.1 only when it has replicas. Whatever happens to this process, server and folder go with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from handfast.embedded import find_binary, supervisor
from handfast.errors import NoServer
from handfast.testing.clock import ShiftedClock

__all__ = ["ServerController"]

LOOPBACK = "127.0.0.1"

RETRY_FOR = 10.0
"""Seconds that a server may take to start, and a replica to be up to date."""

STALE = 0.005
"""Seconds after which the server has looked at its clock again: some do so only once in a millisecond."""

SHRINKING = 40
"""How many times the memory is made 1 % less at most, until keys are evicted."""

_GUARD = (
    'read -r _; i=0; while [ -e "$1" ] && [ $i -lt 100 ]; do rm -rf "$1" 2>/dev/null || sleep 0.05; i=$((i+1)); done'
)
"""Removes the folder when this process lets go of its pipe. The server may still be dying in it, so more than once."""


class ServerController:
    """A private server, running from now on until `close` or the end of the ``with`` block.

    ``options`` are passed on to it, such as ``"--maxclients", "10"``. ``persistent`` has it write every change to disk before
    it answers. ``clock`` gives it a wall clock that can be shifted. ``binary`` is the server to run.

    `admin` is a plain client of redis-py. Raises NoServer when it cannot be started.
    """

    def __init__(self, *options: str, persistent: bool = False, clock: bool = False, binary: str | None = None) -> None:
        self._binary = binary or find_binary()
        self._options = ["--bind", LOOPBACK, "--repl-diskless-sync-delay", "0", *options]
        if persistent:
            self._options += ["--appendonly", "yes", "--appendfsync", "always"]
        self._persistent = persistent
        self._folder = tempfile.mkdtemp(prefix="handfast-")
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is for us
        )
        self.socket = f"{self._folder}/s"
        """The path of its unix socket."""
        self.pid = 0
        """The process id of the server itself; 0 while it does not run."""
        self.admin = redis.Redis(unix_socket_path=self.socket, decode_responses=True, retry=Retry(NoBackoff(), 1))
        """A client of its own, to look behind the scenes; it answers in str and does not insist."""
        self._leash: supervisor.SupervisedServer | None = None
        self._clock: ShiftedClock | None = None
        self._replicas: list[ServerController] = []
        self._primary: ServerController | None = None
        self._nowhere: socket.socket | None = None
        try:
            if clock:
                self._clock = ShiftedClock(self._folder)
            self._start()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<ServerController of {self.url}, {'pid ' + str(self.pid) if self.pid else 'not running'}>"

    @property
    def url(self) -> str:
        """Where clients find it, also after a restart."""
        return f"unix://{self.socket}"

    @property
    def running(self) -> bool:
        """Whether the server's process is there, be it paused or not."""
        return self._leash is not None and not self._leash.loose

    # --- its process

    def kill(self) -> None:
        """End it by SIGKILL and wait until it is gone. Clients that connect are refused until `restart`."""
        self._must_run()
        self._end()

    def restart(self, *, keep_data: bool = False) -> None:
        """Start it again at the same URL after `kill`, with the data it had or with none.

        Raises RuntimeError while it runs, ValueError for data that were kept nowhere.
        """
        if keep_data and not self._persistent:
            raise ValueError("only a ServerController(persistent=True) has its data after a restart")
        if self._guard.poll() is not None:
            raise RuntimeError("this server was closed; make a new one")
        if self.running:
            raise RuntimeError("the server runs; kill() it before it can be started again")
        self._end()
        if not keep_data:
            self._forget_data()
        self._start()

    def pause(self) -> None:
        """Stop its process (SIGSTOP): connections stay, and nothing is answered until `resume`."""
        self._must_run()
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`. Whatever it was sent meanwhile is executed now."""
        self._must_run()
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """`pause` for the length of the block."""
        self.pause()
        try:
            yield
        finally:
            if self.running:
                self.resume()

    def close(self) -> None:
        """End it and its replicas, and remove its folder. Nothing of it is left when this returns."""
        for replica in self._replicas:
            replica.close()
        self.admin.close()
        self._end()
        if self._clock is not None:
            self._clock.close()
        if self._nowhere is not None:
            self._nowhere.close()
        if self._guard.poll() is None:
            with contextlib.suppress(OSError):
                self._guard.communicate(b"\n")  # a forked child may hold the pipe open too: the line counts
        elif self._guard.stdin is not None:
            self._guard.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- its state

    @contextlib.contextmanager
    def flushing_scripts(self, *, every: float = 0.01) -> Iterator[None]:
        """Within the block the server forgets all scripts again and again, ``every`` so many seconds."""
        if not 0 < every < threading.TIMEOUT_MAX:
            raise ValueError(f"scripts are flushed every so many seconds, more than 0, not {every!r}")
        over = threading.Event()

        def flush() -> None:
            with self._client() as client:
                while not over.wait(every):
                    with contextlib.suppress(redis.RedisError):  # it is down for a while
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
        """Within the block the server has used up its memory.

        With ``noeviction`` it refuses whatever needs more; with another policy it evicts keys. ``limit`` is its maxmemory in
        bytes: if not given, 1 for ``noeviction``, so that nothing that ends meanwhile makes room; and for the others so little
        less than what is used now that the first keys are evicted. Afterwards everything is as it was.

        Raises ValueError for a limit that is none.
        """
        before = {name: self._setting(name) for name in ("maxmemory-policy", "maxmemory")}
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of 0 is none; give the bytes of memory there are, not {limit!r}")
        try:
            self.admin.config_set("maxmemory-policy", policy)
            if limit is None and policy != "noeviction":
                self._begin_to_evict()
            else:
                self.admin.config_set("maxmemory", limit or 1)
            yield
        finally:
            with contextlib.suppress(redis.ConnectionError):  # it died meanwhile, and has forgotten the limit
                for name, value in before.items():
                    self.admin.config_set(name, value)

    def kill_clients(self, kind: Literal["normal", "pubsub"] | None = None) -> int:
        """Have the server close connections: those that have subscribed, those that have not, or all but our own; how many.

        Raises ValueError for another kind.
        """
        if kind not in ("normal", "pubsub", None):
            raise ValueError(f"clients are 'normal' or 'pubsub', not {kind!r}")
        kinds = ("normal", "pubsub") if kind is None else (kind,)
        return sum(int(self.admin.client_kill_filter(_type=one, skipme=True)) for one in kinds)

    def shift_clock(self, seconds: float) -> None:
        """Set its wall clock that much ahead of where it is, or back if negative; it stays so, also over a restart.

        Raises RuntimeError unless it was made with ``clock=True``, ValueError for more than ten years.
        """
        if self._clock is None:
            raise RuntimeError("only a ServerController(clock=True) has a clock that can be shifted")
        self._clock.shift(seconds)
        time.sleep(STALE)

    @property
    def clock_offset(self) -> float:
        """Seconds that its wall clock is ahead of the system's."""
        return self._clock.offset if self._clock is not None else 0.0

    # --- its replicas

    def replica(self, *options: str) -> ServerController:
        """A second server that replicates this one, and is up to date when this returns. It is closed with this one at the latest.

        For that, this server listens on a port of 127.0.0.1 as well.
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
        """Of a replica: wait until it has all that its primary has now. Raises NoServer when it does not get there."""
        primary = self._must_be_replica()
        wanted = primary.admin.info("replication")["master_repl_offset"]

        def has_all() -> bool:
            state = self.admin.info("replication")
            return bool(state.get("master_link_status") == "up" and state["slave_repl_offset"] >= wanted)

        _eventually(has_all, "the replica did not catch up with its primary")

    def freeze(self) -> None:
        """Of a replica: let it hear nothing more from its primary. It goes on answering, with what gets older and older.

        Raises RuntimeError for what is no replica.
        """
        self._must_be_replica()
        if self._nowhere is None:
            self._nowhere = socket.socket()  # a port that is ours, and where nobody listens
            self._nowhere.bind((LOOPBACK, 0))
        self.admin.replicaof(LOOPBACK, self._nowhere.getsockname()[1])

    def thaw(self) -> None:
        """Of a replica that was frozen: follow the primary again, and be up to date when this returns."""
        primary = self._must_be_replica()
        self.admin.replicaof(LOOPBACK, primary._listening_port())  # noqa: SLF001 -- of the same class
        self.catch_up()

    def promote(self) -> None:
        """Of a replica: become a primary, with what is known here, whatever the old one may know."""
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
            raise RuntimeError("this server is no replica; replica() makes one")
        return self._primary

    # --- starting and ending

    def _start(self) -> None:
        binary = self._clock.starter(self._binary) if self._clock is not None else self._binary
        self._leash = supervisor.SupervisedServer(binary, self._folder, *self._options, tidy=False)
        _eventually(self._answers, f"the server {self._binary} did not answer", self._log)
        self.pid = supervisor.server_pid(self.socket)

    def _answers(self) -> bool:
        if not self.running:
            raise NoServer(f"the server {self._binary} ended as soon as it was started: {self._log()}")
        return supervisor.answers(self.socket)

    def _end(self) -> None:
        """Kill it if it runs, a paused one as well, and let go of what is left of it if it ended by itself."""
        self.pid = 0
        if self._leash is not None:
            self._leash.end()

    def _must_run(self) -> None:
        if not self.running:
            raise RuntimeError("the server does not run; restart() it first")

    def _log(self) -> str:
        log = Path(self._folder, "log")
        return log.read_text(errors="replace")[-300:] if log.exists() else "it wrote no log"

    def _forget_data(self) -> None:
        for path in Path(self._folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix in (".aof", ".rdb"):
                path.unlink()

    def _begin_to_evict(self) -> None:
        """Lower the limit until it counts: how much memory is used depends on who is asking, too."""
        limit = int(self.admin.info("memory")["used_memory"])
        before = self.admin.info("stats")["evicted_keys"]
        for _ in range(SHRINKING):
            limit -= limit // 100
            self.admin.config_set("maxmemory", limit)
            if self.admin.info("stats")["evicted_keys"] > before:
                return

    def _setting(self, name: str) -> str:
        return str(self.admin.config_get(name)[name])

    def _client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, retry=Retry(NoBackoff(), 0))


def _eventually(condition: Callable[[], bool], otherwise: str, detail: Callable[[], str] = str) -> None:
    until = time.monotonic() + RETRY_FOR
    while not condition():
        if time.monotonic() > until:
            raise NoServer(f"{otherwise} within {RETRY_FOR:g} s {detail()}".rstrip())
        time.sleep(0.005)
