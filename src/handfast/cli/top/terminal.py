"""The screen of a terminal: lines that have changed are written, and keys are read."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

from handfast.cli.exits import SIGNALED

__all__ = ["KEYS", "Terminal", "keys_of"]

KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "back",
    "\b": "back",
    "\x1b": "escape",
}
"""The name of each key that has no character of its own."""

TYPED = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
"""Matches a key."""

ALTERNATE, NORMAL = b"\x1b[?1049h\x1b[?25l\x1b[2J", b"\x1b[0m\x1b[?25h\x1b[?1049l"
"""Show the second screen without a cursor; show the first one as it was."""

TOGETHER, APART = "\x1b[?2026h", "\x1b[H\x1b[?2026l"
"""Terminals show the output between the two in one go, where they can."""

ENDED_BY_SIGTERM = SIGNALED + signal.SIGTERM


class Terminal:
    """The second screen of a terminal, for a ``with`` block, whatever ends it."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._shown: list[str] = []
        self._size = (0, 0)

    def __enter__(self) -> Self:
        self._before: Any = termios.tcgetattr(self._in)
        self._handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._on_resize),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _exit),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._on_stop),
        }
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._end()
        os.close(self._wake_read)
        os.close(self._wake_write)

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines."""
        columns, lines = os.get_terminal_size(self._out)
        return columns, lines

    def paint(self, lines: Sequence[str], size: tuple[int, int]) -> None:
        """Show these lines. Only those that have changed are written, so nothing flickers."""
        if size != self._size:
            self._shown, self._size = [], size
        written = [TOGETHER] + (["\x1b[2J"] if not self._shown else [])
        for number, line in enumerate(lines):
            if number >= len(self._shown) or self._shown[number] != line:
                written.append(f"\x1b[{number + 1};1H{line}\x1b[K")
        self._shown = list(lines)
        data = ("".join(written) + APART).encode(errors="replace")
        while data:
            data = data[os.write(self._out, data) :]

    def wake(self) -> None:
        """Let `keys` return at once. May be called in any thread."""
        with contextlib.suppress(OSError):  # it is full: `keys` wakes anyway; or closed: no one waits
            os.write(self._wake_write, b".")

    def keys(self, seconds: float) -> list[str]:
        """Return the keys that were typed, waiting for so long at most."""
        ready, _, _ = select.select([self._in, self._wake_read], [], [], seconds)
        if self._wake_read in ready:
            os.read(self._wake_read, 1000)
        if self._in not in ready:
            return []
        text = os.read(self._in, 1000).decode(errors="replace")
        if not text:  # the terminal is gone
            raise EOFError
        return keys_of(text)

    def _begin(self) -> None:
        tty.setcbreak(self._in)
        os.write(self._out, ALTERNATE)

    def _end(self) -> None:
        os.write(self._out, NORMAL)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        """Show the first screen while the process is stopped by Ctrl-Z."""
        self._end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._on_stop)  # it goes on
        self._begin()
        self._shown = []
        self.wake()

    def _on_resize(self, _number: int, _frame: FrameType | None) -> None:
        self.wake()


def keys_of(text: str) -> list[str]:
    """Return the keys of a text: several, where a key is held down. Keys without a name here are left out."""
    found = [KEYS.get(one, one) for one in TYPED.findall(text)]
    return [key for key in found if not key.startswith("\x1b")]


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(ENDED_BY_SIGTERM)
