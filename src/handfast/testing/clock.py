"""A wall clock that can be shifted, for one server.

The server is started with a small library preloaded that adds an offset to what the system says. The offset stands in a
file that both sides have mapped, so that a shift counts from the next look at the clock on, without a system call. The
monotonic clock is left alone, as it is when an administrator sets the time.

Linux only, and a C compiler has to be there: the library is compiled once for each process.
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
LONGEST = 10 * 366 * 86400.0
"""Seconds that a clock may be off: ten years."""

_OFFSET = struct.Struct("=q")
_lock = threading.Lock()
_library: list[str] = []
"""The library of this process, once it is compiled."""


def find_compiler() -> str | None:
    """The C compiler on the PATH, if there is one and if preloading works on this system."""
    if not sys.platform.startswith("linux"):
        return None
    return next(filter(None, map(shutil.which, COMPILERS)), None)


class ShiftedClock:
    """An offset in a file, and a program that starts another one which sees it. Raises NoServer without a compiler."""

    def __init__(self, folder: str) -> None:
        library = _compiled()
        self._offset = 0
        path = Path(folder, "clock")
        path.write_bytes(_OFFSET.pack(0))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _OFFSET.size)
        self._preload = f"HANDFAST_CLOCK={shlex.quote(str(path))} LD_PRELOAD={shlex.quote(library)}"
        self._starter = Path(folder, "server")

    @property
    def offset(self) -> float:
        """Seconds that the clock is ahead of the system's."""
        return self._offset / 1e6

    def shift(self, seconds: float) -> None:
        """Set it that much ahead of where it is, or back. Raises ValueError where it would be ten years off."""
        offset = self._offset + round(seconds * 1e6) if abs(seconds) <= LONGEST else None
        if offset is None or abs(offset) > LONGEST * 1e6:
            raise ValueError(f"a clock can be off by at most ten years, so it cannot be shifted by {seconds!r} s")
        self._offset = offset
        self._page[:] = _OFFSET.pack(offset)

    def starter(self, binary: str) -> str:
        """A program that becomes that one, with this clock."""
        self._starter.write_text(f'#!/bin/sh\n{self._preload} exec {shlex.quote(binary)} "$@"\n')
        self._starter.chmod(0o700)
        return str(self._starter)

    def close(self) -> None:
        """Let go of the file."""
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
            with as_file(files("handfast.testing") / "clock.c") as source:
                command = [compiler, "-shared", "-fPIC", "-O2", "-o", library, str(source), "-ldl"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoServer(f"{compiler} could not compile the clock: {done.stderr.strip()}")
            _library.append(library)
        return _library[0]
