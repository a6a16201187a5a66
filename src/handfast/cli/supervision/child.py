"""A program that runs on a condition, from its start to its end.

The program stays in our process group, so a terminal treats both processes as one job: the terminal sends its keys to
the program directly, and Ctrl-Z, ``fg`` and ``bg`` work as usual. In return, signals that we send reach the program
only, not the processes that it starts.

The program survives if we are killed with SIGKILL. Linux could end it (PR_SET_PDEATHSIG), but only by running Python
code between fork and exec, which is not safe in a process with threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Literal, NamedTuple

from handfast.cli.supervision.signals import FORWARDED, LOST, WANTED, Signals

__all__ = ["Child", "LossPlan", "for_shell"]

FROM_THE_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
"""A terminal sends these to every process of its foreground job."""


ASKS_TO_END = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
"""Signals by which people and systems end a program."""


class LossPlan(NamedTuple):
    """The plan for the program if the lease is lost; ``kill_after`` is the grace period of ``term`` in seconds."""

    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float


def for_shell(command: Sequence[str]) -> list[str]:
    """Return the command for a file that the system cannot execute itself: a script without ``#!``, as in execvp(3)."""
    return ["/bin/sh", shutil.which(command[0]) or command[0], *command[1:]]


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Our own files are close-on-exec; the files that our caller opened for the program must stay open.
    return subprocess.Popen(command, env=environment, close_fds=False)


class Child:
    """A running program, with our standard streams and every other inherited file. ``say`` writes a message.

    Raises OSError, as exec does, if the program cannot be run.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], signals: Signals, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._signals = signals
        with signals.as_inherited():
            try:
                self._process = _start(command, environment)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                self._process = _start(for_shell(command), environment)
        self._title = f"{command[0]!r} (process {self._process.pid})"
        self.knew_of_loss: bool = False
        """Whether the loss was known, and acted on, before the program ended."""
        self.told_to_end: bool = False
        """Whether a signal came that asks a program to end."""
        self.knew_of_request: bool = False
        """Whether a later request for the lease was known, and acted on, before the program ended."""

    @property
    def exited(self) -> bool:
        """Whether the program ended by itself, and not by a signal."""
        return (self._process.returncode or 0) >= 0

    def supervise(
        self, plan: LossPlan, why_wanted: Callable[[], str] = str, left_s: Callable[[], float] = float
    ) -> int:
        """Forward signals until the program ends. Return its exit code as a shell does: 128+n for signal n.

        ``why_wanted`` tells why a later request asks for the lease, once one does, and ``left_s`` how many seconds are left: the
        program does not outlive them.
        """
        kill_at = inf
        while (status := self._poll()) is None:
            for number in self._signals.wait(kill_at - monotonic()):
                # The earliest moment stays: a second reason to end does not give the program more time.
                if number == LOST:
                    kill_at = min(kill_at, self._on_loss(plan))
                elif number == WANTED:
                    kill_at = min(kill_at, self._on_wanted(plan, why_wanted(), left_s()))
                elif number in FORWARDED:
                    self.told_to_end = self.told_to_end or number in ASKS_TO_END
                    # A terminal signals all processes in the foreground. Many
                    # programs take a second Ctrl-C for one without cleanup.
                    if not self._terminal_sent(number):
                        self._send(number)
            if monotonic() >= kill_at:
                # Once: a program that outlives SIGKILL waits in the kernel, and is waited for.
                kill_at = inf
                if self._send(signal.SIGKILL):
                    self._say(f"sent SIGKILL to {self._title}")
        return 128 - status if status < 0 else status

    def _poll(self) -> int | None:
        """Return the program's status once it has ended.

        Take that of others, too: process 1 of a container gets all orphans.
        """
        with contextlib.suppress(ChildProcessError):  # to send it a signal has shown that it had ended
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid == self._process.pid:
                    break
                with contextlib.suppress(ChildProcessError):  # another thread has started it, and waited for it
                    os.waitpid(ended.si_pid, 0)
        return self._process.poll()

    def _on_loss(self, plan: LossPlan) -> float:
        """Begin to end the program; return the time at which to kill it."""
        self.knew_of_loss = True
        if plan.on_lost == "ignore":
            self._say(f"{self._title} continues although the lease is lost; another holder may be active")
            return inf
        if plan.on_lost == "kill":
            return monotonic()
        if self._send(signal.SIGTERM):
            self._say(f"sent SIGTERM to {self._title}: the lease is lost; SIGKILL follows in {plan.kill_after:g} s")
        self._send(signal.SIGCONT)  # a stopped program would not handle SIGTERM
        return monotonic() + plan.kill_after

    def _on_wanted(self, plan: LossPlan, why: str, left_s: float) -> float:
        """Ask the program to end, while it still holds the lease; return the time at which to kill it: with the lease."""
        if plan.on_lost == "ignore":
            self._say(f"{self._title} continues although {why}")
            return inf
        self.knew_of_request = True
        if self._send(signal.SIGTERM):
            self._say(f"sent SIGTERM to {self._title}: {why}; SIGKILL follows then")
        self._send(signal.SIGCONT)  # as above
        return monotonic() + left_s

    def _send(self, number: int) -> bool:
        try:
            self._process.send_signal(number)
        except PermissionError:
            self._say(f"may not send {signal.strsignal(number)!r} to {self._title}: it runs as another user")
            return False
        return True

    def _terminal_sent(self, number: int) -> bool:
        """Return whether the terminal that sent us this signal sent it to the program too.

        A key cannot be told from a ``kill -INT`` of our process alone. In the foreground it is taken for a key, because
        many programs read a second Ctrl-C as "quit immediately".
        """
        if number not in FROM_THE_TERMINAL:
            return False
        try:
            terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        except OSError:
            return False
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp() == os.getpgid(self._process.pid)
        except OSError:
            return False
        finally:
            os.close(terminal)
