"""SIGTERM as the normal end of a process, so that blocks are left and leases are released."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["exit_on_sigterm"]

_before: signal.Handlers | object = signal.SIG_DFL
"""The former handler of SIGTERM."""


def exit_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit in the main thread, unless the program has a handler, which still runs.

    Raises ValueError in another thread.
    """
    global _before  # noqa: PLW0603 -- a process has one handler
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("release_on_sigterm needs the main thread, which handles signals: make the client there")
    before = signal.getsignal(signal.SIGTERM)
    if before is _on_sigterm or before is None:  # None: a handler in C, which Python cannot call
        return
    _before = before
    signal.signal(signal.SIGTERM, _on_sigterm)
    os.register_at_fork(after_in_child=_forget)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    if callable(_before):
        _before(number, frame)
    elif _before is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the process at once
        raise SystemExit(128 + number)


def _forget() -> None:
    """Restore the former handler in a forked child: `multiprocessing` ends workers with SIGTERM."""
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, _before)  # type: ignore[arg-type]  # as getsignal gave it
