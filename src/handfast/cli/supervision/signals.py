"""What arrives while one waits and works: signals, and the news that the lease is lost.

There are two halves. First we only wait for the lease: a signal raises `Interrupted` in the main thread, and whoever
waits there unwinds and leaves nothing behind. From `collect` on there is work in hand: nothing is raised any more.
Each signal is a byte in a pipe, written at once by the interpreter's own handler, and so is each `ring` of another
thread. Whoever reads the pipe misses nothing, however it falls between two looks, and learns all in the order it came.

The pipe is there from the start. So a signal on the border of the two halves is either raised or found in the pipe.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["FORWARDED", "LOST", "Interrupted", "Signals"]

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""They end a wait, as they would end a program that takes no care."""

FORWARDED = frozenset({*ENDING, signal.SIGWINCH})
"""They are meant for the program that is run. SIGTSTP is not among them: the default, to stop, is right for both."""

LOST = 0
"""The byte of a `ring`: no signal has this number."""


class Interrupted(BaseException):
    """A signal came while there was nothing to do but wait. Like KeyboardInterrupt, no ``except Exception`` stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number


class Signals:
    """Takes the signals of the process for the length of a ``with`` block, in the main thread.

    A signal that was ignored before stays ignored, here and in the programs that are started: that is how ``nohup``
    and the ``&`` of a shell script ask for it.
    """

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._former_pipe = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._former: dict[signal.Signals, Any] = {}
        self._raises = True
        self._take(*ENDING)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._raises = False
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_pipe)
        os.close(self._reader)
        os.close(self._writer)

    def collect(self) -> None:
        """Raise no more. From now on `wait` gives the signals, and the end or stop of a child wakes it."""
        self._raises = False
        self._take(signal.SIGWINCH, signal.SIGCHLD)

    def ring(self) -> None:
        """Let `wait` give `LOST`. For any thread."""
        with contextlib.suppress(BlockingIOError):  # full: whoever reads it is awake anyway
            os.write(self._writer, bytes((LOST,)))

    def wait(self, seconds: float) -> bytes:
        """What has arrived, a byte each; nothing after that many seconds (``inf``: without limit)."""
        limit = None if seconds == float("inf") else max(0.0, seconds * 1000)
        return os.read(self._reader, 4096) if self._poll.poll(limit) else b""

    def _take(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            if number is signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Only once: the first signal makes the main thread clean up, and a second must not disturb it at that.
        if self._raises:
            self._raises = False
            raise Interrupted(number)
