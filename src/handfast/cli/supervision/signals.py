"""The events of a run: signals, the loss of the lease, and a later request for it.

There are two phases. While the lease is awaited, a signal raises `Interrupted` in the main thread, which unwinds and
leaves nothing behind. From `collect` on the program runs, and nothing is raised any more: each signal is a byte in a
pipe, written by the interpreter's own handler, and so is each `notify_lost` and `notify_wanted` of another thread. The
reader of the pipe misses no event and sees them in order.

The pipe exists from the start, so a signal between the two phases is either raised or found in the pipe.

A signal may arrive while Python runs a finalizer, which ignores exceptions raised in it. Python reports them to a hook, and the
signal is raised again a moment later, when the finalizer is over.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["ENDING", "FORWARDED", "LOST", "WANTED", "Interrupted", "Signals"]

_OWN = {
    *(signal.SIGKILL, signal.SIGSTOP),  # which cannot be caught
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),  # faults of our own
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT),  # right for both processes, as they are
    *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH),  # by which no program ends
}

ENDING = frozenset(signal.valid_signals() - _OWN)
"""Signals that end a wait; their default action ends a program."""

FORWARDED = ENDING | {signal.SIGWINCH, signal.SIGURG}
"""Signals for the program."""

LOST, WANTED = 0, 255
"""The bytes of `Signals.notify_lost` and `Signals.notify_wanted`: no signal has these numbers."""


RAISE_AGAIN_S = 0.01
"""Seconds from a signal that was raised in a finalizer to its next try."""


class Interrupted(BaseException):
    """A signal arrived during the wait. Like KeyboardInterrupt, it passes through ``except Exception``."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


class Signals:
    """Handles the signals of the process within a ``with`` block, in the main thread.

    A signal that was ignored before stays ignored, here and in the programs that are started: ``nohup`` and the ``&``
    of a shell script rely on that.
    """

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._former_pipe = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._former: dict[int, Any] = {}
        self._waits = True
        self._raised: int | None = None
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._install(*ENDING)
        self._former_hook, sys.unraisablehook = sys.unraisablehook, self._on_ignored
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_wait()
        sys.unraisablehook = self._former_hook
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_pipe)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._mask & {signal.SIGCHLD})
        os.close(self._reader)
        os.close(self._writer)

    def collect(self) -> None:
        """Stop raising: from now on `wait` returns the signals, and a child that ends or stops wakes it.

        It does so, too, where our parent had SIGCHLD ignored or blocked, as some runtimes and window managers do.
        """
        self._end_wait()
        self._install(*FORWARDED - ENDING, signal.SIGCHLD)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    @contextlib.contextmanager
    def as_inherited(self) -> Iterator[None]:
        """Block the signals blocked when this process began, for a program started now."""
        own = signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, own)

    def notify_lost(self) -> None:
        """Let `wait` return `LOST`. Callable from any thread."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes its reader anyway
            os.write(self._writer, bytes((LOST,)))

    def notify_wanted(self) -> None:
        """Let `wait` return `WANTED`. Callable from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, bytes((WANTED,)))

    def wait(self, seconds: float) -> bytes:
        """Return the events that have arrived, one byte each, or b"" after that many seconds (``inf``: no limit)."""
        limit = None if seconds == float("inf") else max(0.0, seconds * 1000)
        return os.read(self._reader, 4096) if self._poll.poll(limit) else b""

    def _install(self, *numbers: int) -> None:
        for number in numbers:
            if number is signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Raises once only: the first signal makes the main thread clean up, which a second one must not interrupt. But
        # our own SIGALRM says that a finalizer has ignored it.
        if self._waits and (self._raised is None or number == signal.SIGALRM):
            self._raised = self._raised or number
            raise Interrupted(self._raised)

    def _on_ignored(self, ignored: sys.UnraisableHookArgs) -> None:
        if not isinstance(ignored.exc_value, Interrupted):
            self._former_hook(ignored)
        elif self._waits:
            signal.setitimer(signal.ITIMER_REAL, RAISE_AGAIN_S)

    def _end_wait(self) -> None:
        """Raise nothing from now on."""
        self._waits = False
        signal.setitimer(signal.ITIMER_REAL, 0)
