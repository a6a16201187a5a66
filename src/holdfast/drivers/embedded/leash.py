"""A server on a leash: it ends when the process that holds the leash does, however that one ends.

The leash is a pipe. A small shell starts the server and reads from the pipe; when we write a line or close our end, or
the kernel does it for us after a SIGKILL, the shell removes the socket, so that nobody finds it any more, kills the
server, which has nothing to save, and removes its folder's traces.

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

__all__ = ["START_TIMEOUT", "answers", "end", "server_pid", "start"]

LINGER = 5.0
"""Seconds that a shared server waits for another client after its last one left."""

START_TIMEOUT = 10.0
"""Seconds that a server may take until it answers."""

LOOK = 0.5
"""Seconds between two looks at who is connected."""

_SHELL = """
folder=$1; shift
"$@" </dev/null >/dev/null 2>&1 &
pid=$!
echo $pid >"$folder/pid"
read -r _
rm -f "$folder/s"
kill -9 $pid 2>/dev/null
wait $pid
rm -f "$folder/pid" "$folder/log"
rmdir "$folder" 2>/dev/null
"""


def start(binary: str, folder: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a server that listens on ``<folder>/s`` only, keeps nothing, and ends with us."""
    command = [binary, "--port", "0", "--unixsocket", f"{folder}/s", "--unixsocketperm", "700"]
    command += ["--save", "", "--appendonly", "no", "--dir", folder, "--logfile", f"{folder}/log", *options]
    # A session of its own: a Ctrl-C in the terminal is for us, and we may still need the server to clean up.
    return subprocess.Popen(
        ["/bin/sh", "-c", _SHELL, "sh", folder, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end(leash: subprocess.Popen[bytes]) -> None:
    """Let go of the leash and wait until the server is gone."""
    if leash.stdin is not None and not leash.stdin.closed:
        with contextlib.suppress(OSError):
            leash.stdin.write(b"\n")  # a forked child may still hold the pipe open: the line counts, not the end
            leash.stdin.flush()
        with contextlib.suppress(OSError):
            leash.stdin.close()
    leash.wait()


def server_pid(folder: str) -> int:
    """The process id of the server."""
    with open(f"{folder}/pid") as file:
        return int(file.read())


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
    leash = start(binary, folder)
    path = f"{folder}/s"
    until = time.monotonic() + START_TIMEOUT
    while not answers(path):
        if leash.poll() is not None or time.monotonic() > until:
            return
        time.sleep(0.005)
    with _connect(path) as connection:
        seen, quiet_since = -1, time.monotonic()
        while True:
            time.sleep(LOOK)
            clients, met = _info(connection, b"connected_clients", b"total_connections_received")
            if clients > 1 or met != seen:  # one is us; who came and left in between counts as well
                seen, quiet_since = met, time.monotonic()
            elif time.monotonic() - quiet_since > LINGER:
                # Behind the same lock a newcomer looks for the server, so it finds it wholly there or wholly gone.
                with open(f"{folder}/lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if _info(connection, b"total_connections_received") == [seen]:
                        end(leash)
                        return


if __name__ == "__main__":
    os.chdir("/")
    with contextlib.suppress(OSError, ValueError):  # the server went away, or in the middle of a reply
        supervise(sys.argv[1], sys.argv[2])
