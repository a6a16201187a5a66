"""A server that ends when the process that started it does, even after SIGKILL.

The two are connected by a pipe. A small shell script starts the server, reads from the pipe and waits for the server. When
we write a line or close our end, or the kernel closes it after a SIGKILL, the script kills the server, which has nothing to
save. When the server ends, so does the script.

Run as a program, this file supervises a shared server: it holds the pipe, and ends the server when it has had no client for
a while. To start fast, it imports from the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time

__all__ = ["START_TIMEOUT_S", "SupervisedServer", "answers", "server_pid"]

IDLE_TIMEOUT_S = 5.0
"""How long, in seconds, a shared server runs without a client."""

START_TIMEOUT_S = 10.0
"""How long, in seconds, a server may take until it answers."""

POLL_S = 0.5
"""Time, in seconds, between two checks of the server's clients."""

_SHELL = """
remove_dir=$1; folder=$2; shift 2
exec 3<&0
"$@" </dev/null >/dev/null 2>&1 3<&- &
server=$!
{ read -r _ <&3; kill -9 $server; } 2>/dev/null &
reader=$!
exec 3<&-
wait $server
kill $reader 2>/dev/null
[ -z "$remove_dir" ] || rm -rf "$folder"
"""


class SupervisedServer:
    """A server process that listens only on the unix socket ``<folder>/s`` and saves nothing.

    Args:
        binary: Path of the server program.
        folder: Private folder for its socket and log.
        options: More command line options.
        remove_dir: Remove the folder when the server has ended.

    """

    def __init__(self, binary: str, folder: str, *options: str, remove_dir: bool) -> None:
        command = [binary, "--port", "0", "--unixsocket", f"{folder}/s", "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", folder, "--logfile", f"{folder}/log", *options]
        # A session of its own: Ctrl-C in the terminal must not end the server, which is needed for cleanup.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "sh", "yes" if remove_dir else "", folder, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def has_exited(self) -> bool:
        """Whether the server process has ended."""
        return self._shell.poll() is not None

    def end(self) -> None:
        """Kill the server and wait for its end."""
        pipe = self._shell.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(b"\n")  # a forked child may hold the pipe open, so the line ends the server, not EOF
                pipe.flush()
            with contextlib.suppress(OSError):
                pipe.close()
        self._shell.wait()


def server_pid(path: str) -> int:
    """Return the process id of the server behind that socket."""
    with _connect(path) as connection:
        return _info(connection, b"process_id")[0]


def answers(path: str) -> bool:
    """Return whether a server answers PING on that socket."""
    with contextlib.suppress(OSError), _connect(path) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _info(connection: socket.socket, *fields: bytes) -> list[int]:
    connection.sendall(b"INFO\r\n")
    head, _, data = connection.recv(65536).partition(b"\r\n")
    while len(data) < int(head[1:]):
        data += connection.recv(65536)
    lines = dict(line.split(b":", 1) for line in data.split(b"\r\n") if b":" in line)
    return [int(lines[field]) for field in fields]


def supervise(binary: str, folder: str) -> None:
    """Run a shared server until it has had no client for `IDLE_TIMEOUT_S`."""
    server = SupervisedServer(binary, folder, remove_dir=False)
    path = f"{folder}/s"
    until = time.monotonic() + START_TIMEOUT_S
    while not answers(path):
        if server.has_exited or time.monotonic() > until:
            return
        time.sleep(0.005)
    with _connect(path) as connection:
        seen, idle_since = -1, time.monotonic()
        while not server.has_exited:
            clients, total = _info(connection, b"connected_clients", b"total_connections_received")
            if (
                clients > 1 or total != seen
            ):  # one client is this process; clients that came and left in between count too
                seen, idle_since = total, time.monotonic()
            elif time.monotonic() - idle_since > IDLE_TIMEOUT_S:
                # A new client looks for the server under the same lock, so it finds it running or gone, not ending.
                with open(f"{folder}/lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if _info(connection, b"total_connections_received") == [seen]:
                        server.end()
                        for name in ("s", "log"):
                            with contextlib.suppress(FileNotFoundError):
                                os.unlink(f"{folder}/{name}")  # noqa: PTH108 -- pathlib would be one more import
                        return
            time.sleep(POLL_S)


if __name__ == "__main__":
    os.chdir("/")
    with contextlib.suppress(OSError, ValueError):  # the server ended, perhaps in the middle of a reply
        supervise(sys.argv[1], sys.argv[2])
