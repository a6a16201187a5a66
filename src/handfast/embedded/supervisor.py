"""A server on a leash: it ends when the process that holds the leash does, however that one ends.

The leash is a pipe. A small shell starts the server, reads from the pipe and waits for the server; when we write a line
or close our end, or the kernel does it for us after a SIGKILL, it kills the server, which has nothing to save. When the
server ends by itself, so does the shell.

Run as a program, this file is the supervisor of a shared server: it holds the leash and lets go of it when the server
has had no client for a while. So that it starts fast it uses the standard library only, and nothing of ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time

__all__ = ["START_TIMEOUT", "SupervisedServer", "answers", "server_pid"]

LINGER = 5.0
"""Seconds that a shared server waits for another client after its last one left."""

START_TIMEOUT = 10.0
"""Seconds that a server may take until it answers."""

LOOK = 0.5
"""Seconds between two looks at who is connected."""

_SHELL = """
tidy=$1; folder=$2; shift 2
exec 3<&0
"$@" </dev/null >/dev/null 2>&1 3<&- &
server=$!
{ read -r _ <&3; kill -9 $server; } 2>/dev/null &
reader=$!
exec 3<&-
wait $server
kill $reader 2>/dev/null
[ -z "$tidy" ] || rm -rf "$folder"
"""


class SupervisedServer:
    """A running server that listens on ``<folder>/s`` only and keeps nothing. Who is ``tidy`` has the folder removed."""

    def __init__(self, binary: str, folder: str, *options: str, tidy: bool) -> None:
        command = [binary, "--port", "0", "--unixsocket", f"{folder}/s", "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", folder, "--logfile", f"{folder}/log", *options]
        # A session of its own: a Ctrl-C in the terminal is for us, and we may still need the server to clean up.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "sh", "tidy" if tidy else "", folder, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def loose(self) -> bool:
        """Whether the server has ended."""
        return self._shell.poll() is not None

    def end(self) -> None:
        """Let go of the leash and wait until the server is gone."""
        pipe = self._shell.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(b"\n")  # a forked child may still hold the pipe open: the line counts, not the end
                pipe.flush()
            with contextlib.suppress(OSError):
                pipe.close()
        self._shell.wait()


def server_pid(path: str) -> int:
    """The process id of the server that answers at that socket."""
    with _connect(path) as connection:
        return _info(connection, b"process_id")[0]


def answers(path: str) -> bool:
    """Whether a server answers at that socket, at once."""
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
    """Keep a shared server while it has clients, and a little longer."""
    leash = SupervisedServer(binary, folder, tidy=False)
    path = f"{folder}/s"
    until = time.monotonic() + START_TIMEOUT
    while not answers(path):
        if leash.loose or time.monotonic() > until:
            return
        time.sleep(0.005)
    with _connect(path) as connection:
        seen, quiet_since = -1, time.monotonic()
        while not leash.loose:
            clients, met = _info(connection, b"connected_clients", b"total_connections_received")
            if clients > 1 or met != seen:  # one is us; who came and left in between counts as well
                seen, quiet_since = met, time.monotonic()
            elif time.monotonic() - quiet_since > LINGER:
                # Behind the same lock a newcomer looks for the server, so it finds it wholly there or wholly gone.
                with open(f"{folder}/lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if _info(connection, b"total_connections_received") == [seen]:
                        leash.end()
                        for trace in ("s", "log"):
                            with contextlib.suppress(FileNotFoundError):
                                os.unlink(f"{folder}/{trace}")  # noqa: PTH108 -- pathlib would be one more import
                        return
            time.sleep(LOOK)


if __name__ == "__main__":
    os.chdir("/")
    with contextlib.suppress(OSError, ValueError):  # the server went away, or in the middle of a reply
        supervise(sys.argv[1], sys.argv[2])
