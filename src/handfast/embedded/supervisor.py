"""A server that ends together with the process that started it, even after SIGKILL.

The two are connected by a pipe. A small shell script starts the server, reads from the pipe and waits for the server.
When we write a line or close our end, or the kernel closes it after a SIGKILL, the script kills the server, which has
nothing to save. When the server ends, so does the script.

Run as a program, this file supervises a shared server: it holds the pipe, and ends the server when it is not used any
more. There is never more than one server for a folder: a lock of the folder (flock) is held by the supervisor and the
server together, so it is free only when both have ended. A supervisor without the lock ends at once. To start fast,
this file imports from the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time

__all__ = ["START_TIMEOUT_S", "SupervisedServer", "answers", "server_pid"]

IDLE_TIMEOUT_S = 5.0
"""How long, in seconds, a shared server runs without a client and without a key that expires."""

START_TIMEOUT_S = 10.0
"""How long, in seconds, a server may take until it answers."""

POLL_S = 0.5
"""Time, in seconds, between two checks of the server's clients."""

SPARE = ".spare"
"""End of the second name of the socket."""

MAX_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path that a unix socket can have, in bytes."""

_SHELL = """
remove_dir=$1; folder=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r _ <&3; kill -9 $server; } 2>/dev/null &
reader=$!
exec 3<&-
wait $server
kill $reader 2>/dev/null
PATH="$PATH:/usr/bin:/bin"
[ -z "$remove_dir" ] || { tail -n 5 "$folder/log"; rm -rf "$folder"; } 2>/dev/null
"""


class SupervisedServer:
    """A server process that listens only on the unix socket ``<folder>/s`` and saves nothing.

    Args:
        binary: Path of the server program.
        folder: Private folder for the server's socket and log.
        options: More command line options.
        remove_dir: Remove the folder when the server has ended.
        keep_open: A file descriptor inherited by the server, and kept open as long as the server lives.

    """

    def __init__(
        self, binary: str, folder: str, *options: str, remove_dir: bool = False, keep_open: tuple[int, ...] = ()
    ) -> None:
        command = [binary, "--port", "0", "--unixsocket", f"{folder}/s", "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", folder, "--logfile", f"{folder}/log", *options]
        # Errors before the server has a log, and the end of a log that is removed with the folder.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the server
        # A session of its own: Ctrl-C in the terminal must not end the server, which is needed for cleanup.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "sh", "yes" if remove_dir else "", folder, *command],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            pass_fds=keep_open,
        )

    @property
    def has_exited(self) -> bool:
        """Whether the server process has ended."""
        return self._shell.poll() is not None

    def said(self) -> str:
        """Return the last lines written by a server that did not start, once it `has_exited`."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        return " ".join(line.strip() for line in lines[-6:]).strip()

    def end(self) -> None:
        """Kill the server and wait until the process has ended."""
        pipe = self._shell.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(b"\n")  # a forked child may hold the pipe open, so the line ends the server, not EOF
                pipe.flush()
            with contextlib.suppress(OSError):
                pipe.close()
        self._shell.wait()
        self._output.close()


def server_pid(path: str) -> int:
    """Return the process id of the server behind the socket."""
    with _connect(path) as connection:
        return int(_info(connection)[b"process_id"])


def answers(path: str, within: float = START_TIMEOUT_S) -> bool:
    """Return whether a server answers PING on the socket. A listening server is given ``within`` seconds."""
    with contextlib.suppress(OSError), _connect(path) as connection:
        connection.settimeout(max(0.001, within))
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def supervise(binary: str, folder: str) -> None:
    """Run a shared server until it has not been used for `IDLE_TIMEOUT_S`. A slow server is waited for."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # a server runs in this folder, or is about to end
    # The server inherits the lock: the folder stays locked
    # for as long as it runs, even if this process is killed.
    server, path = SupervisedServer(binary, folder, keep_open=(lock,)), f"{folder}/s"
    until = time.monotonic() + START_TIMEOUT_S
    while not answers(path):
        if server.has_exited or time.monotonic() > until:
            return
        time.sleep(0.005)
    # A removed socket comes back by the second name: a new server in its place would have no leases.
    _keep_another_name(path)
    with _connect(path) as connection:
        seen, idle_since = -1, time.monotonic()
        while not server.has_exited and _is_there(folder, lock) and _can_be_reached(path):
            info = _info(connection)
            # One client is this process. Clients that came and left in between count, too.
            if int(info[b"connected_clients"]) > 1 or _connections(info) != seen or _has_leases(info):
                seen, idle_since = _connections(info), time.monotonic()
            elif time.monotonic() - idle_since > IDLE_TIMEOUT_S and _end_unused(server, folder, seen):
                return
            time.sleep(POLL_S)


def _end_unused(server: SupervisedServer, folder: str, seen: int) -> bool:
    """End the server, unless it has had more connections than these. Return whether it is ended.

    Without the socket no client can come any more. Earlier clients are served before this connection.
    """
    socket_path, moved = f"{folder}/s", f"{folder}/ending"
    os.rename(socket_path, moved)
    with _connect(moved) as last:
        if _connections(_info(last)) > seen + 1:
            os.rename(moved, socket_path)
            return False
    server.end()
    for path in (moved, f"{socket_path}{SPARE}", f"{folder}/log"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return True


def _is_there(folder: str, lock: int) -> bool:
    """Return whether the folder is still the locked folder. In another folder, another server may run by now."""
    try:
        return os.path.samestat(os.stat(folder), os.fstat(lock))
    except FileNotFoundError:
        return False


def _keep_another_name(path: str) -> None:
    """Give the socket a second name, from which a removed first name is restored. Not all systems can."""
    with contextlib.suppress(OSError):
        os.unlink(path + SPARE)
    with contextlib.suppress(OSError):
        os.link(path, path + SPARE)


def _can_be_reached(path: str) -> bool:
    """Return whether the socket is there, put back if it was removed: a cleaner of the folder may have done so."""
    if not os.path.exists(path):
        with contextlib.suppress(OSError):
            os.link(path + SPARE, path)
    return os.path.exists(path)


def _has_leases(info: dict[bytes, bytes]) -> bool:
    """Return whether any stored key expires, as do all keys left behind by a lease or a queue."""
    databases = (value.split(b",") for key, value in info.items() if key.startswith(b"db"))
    return any(field.startswith(b"expires=") and field != b"expires=0" for fields in databases for field in fields)


def _connections(info: dict[bytes, bytes]) -> int:
    return int(info[b"total_connections_received"])


def _info(connection: socket.socket) -> dict[bytes, bytes]:
    connection.sendall(b"INFO\r\n")
    head, _, data = connection.recv(65536).partition(b"\r\n")
    while len(data) < int(head[1:]):
        data += connection.recv(65536)
    return dict(line.split(b":", 1) for line in data.split(b"\r\n") if b":" in line)


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


if __name__ == "__main__":
    os.chdir("/")
    with contextlib.suppress(OSError, ValueError):  # the server ended, perhaps in the middle of a reply
        supervise(sys.argv[1], sys.argv[2])
