"""A wall clock that can be shifted, for one server.

The server is started with a small preloaded library that adds an offset to the system's wall clock. The offset is in a
file that both processes have mapped, so a shift takes effect at the next reading of the clock, without a system call.
The monotonic clock is not changed, as it is not when an administrator sets the time.

Needs Linux and a C compiler: the library is compiled once per process.
"""

from __future__ import annotations

import atexit
import mmap
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from importlib.resources import as_file, files
from pathlib import Path

from handfast.errors import NoServer

__all__ = ["ShiftedClock", "find_compiler"]

COMPILERS = ("cc", "gcc", "clang")

MAX_OFFSET_S = 10 * 366 * 86400.0
"""Largest offset of a clock, in seconds: ten years."""

_OFFSET = struct.Struct("=q")
_lock = threading.Lock()
_library: list[str] = []
"""Path of the compiled library, once this process has compiled it."""


def find_compiler() -> str | None:
    """Return the path of a C compiler, or None if there is none or if this system cannot preload libraries."""
    if not sys.platform.startswith("linux"):
        return None
    return next(filter(None, map(shutil.which, COMPILERS)), None)


class ShiftedClock:
    """An offset in a mapped file, and a start script for a server that reads it.

    Args:
        folder: Private folder of the server, which gets two files.

    Raises:
        NoServer: There is no C compiler, or the system is not Linux.

    """

    def __init__(self, folder: str) -> None:
        library = _compiled()
        self._offset_us = 0
        path = Path(folder, "clock")
        path.write_bytes(_OFFSET.pack(0))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _OFFSET.size)
        self._preload = f"HANDFAST_CLOCK={shlex.quote(str(path))} LD_PRELOAD={shlex.quote(library)}"
        self._starter = Path(folder, "server")

    @property
    def offset(self) -> float:
        """Seconds by which the clock is ahead of the system's."""
        return self._offset_us / 1e6

    def shift(self, seconds: float) -> None:
        """Move the clock forward by that many seconds, or back if negative.

        Raises:
            ValueError: The clock would be off by more than ten years.

        """
        offset_us = self._offset_us + round(seconds * 1e6) if abs(seconds) <= MAX_OFFSET_S else None
        if offset_us is None or abs(offset_us) > MAX_OFFSET_S * 1e6:
            raise ValueError(f"a clock can be off by at most ten years, so it cannot be shifted by {seconds!r} s")
        self._offset_us = offset_us
        self._page[:] = _OFFSET.pack(offset_us)

    def starter(self, binary: str) -> str:
        """Write a script that replaces itself by ``binary`` with this clock; return its path."""
        self._starter.write_text(f'#!/bin/sh\n{self._preload} exec {shlex.quote(binary)} "$@"\n')
        self._starter.chmod(0o700)
        return str(self._starter)

    def close(self) -> None:
        """Unmap the file."""
        self._page.close()


def _compiled() -> str:
    with _lock:
        if not _library:
            compiler = find_compiler()
            if compiler is None:
                raise NoServer(
                    f"a clock can be shifted only on Linux and with a C compiler ({', '.join(COMPILERS)}) on the PATH"
                )
            folder = tempfile.mkdtemp(prefix="handfast-clock-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            library = f"{folder}/clock.so"
            with as_file(files("handfast_lab.clocks") / "clock.c") as source:
                command = [compiler, "-shared", "-fPIC", "-O2", "-o", library, str(source), "-ldl"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoServer(f"{compiler} could not compile the clock: {done.stderr.strip()}")
            _library.append(library)
        return _library[0]
