"""A program that is run on a condition, from its start to its end.

It stays in our process group, so that a terminal treats the two of us as one job: its keys reach the program by
themselves, and Ctrl-Z, ``fg`` and ``bg`` work as if we were not there. The other side of it: signals that we send go to
the program alone, not to programs that it has started in turn.

Nothing ends the program when we are killed with SIGKILL. Linux could (PR_SET_PDEATHSIG), but only by running Python code
between fork and exec, which is not safe in a process with threads.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Literal

from handfast.cli.supervision.signals import FORWARDED, LOST, Signals

__all__ = ["Child", "LossPlan"]

FROM_THE_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
"""A terminal sends these to every process of the job in its foreground."""


@dataclass(frozen=True, slots=True)
class LossPlan:
    """What becomes of the program when its condition is lost; ``kill_after`` is the grace of ``term`` in seconds."""

    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float


class Child:
    """A running program. Raises OSError, as exec does, when it cannot be run.

    It has our standard streams and every other file that was handed down to us. ``say`` tells a human.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._say = say
        # Our own files are closed by exec anyway; those that our caller opened for the program stay open.
        self._process = subprocess.Popen(command, env=environment, close_fds=False)
        self._title = f"{command[0]!r} (process {self._process.pid})"
        self.knew_of_loss = False
        """Whether the loss was known, and acted on, before the program ended."""

    def supervise(self, signals: Signals, plan: LossPlan) -> int:
        """Pass on what arrives until the program has ended; its exit code as a shell counts: 128+n for signal n."""
        kill_at = inf
        while (status := self._process.poll()) is None:
            for number in signals.wait(kill_at - monotonic()):
                if number == LOST:
                    kill_at = self._on_loss(plan)
                elif number in FORWARDED and not self._has_it_already(number):
                    self._send(signal.Signals(number))
            if monotonic() >= kill_at:
                kill_at = inf
                if self._send(signal.SIGKILL):
                    self._say(f"sent SIGKILL to {self._title}")
        return 128 - status if status < 0 else status

    def _on_loss(self, plan: LossPlan) -> float:
        """Begin to end the program; the moment from which on it is to be killed."""
        self.knew_of_loss = True
        if plan.on_lost == "ignore":
            self._say(f"{self._title} goes on although the lease is lost: others may have got in by now")
            return inf
        if plan.on_lost == "kill":
            return monotonic()
        if self._send(signal.SIGTERM):
            self._say(
                f"sent SIGTERM to {self._title}, since the lease is lost; SIGKILL follows in {plan.kill_after:g} s"
            )
        self._send(signal.SIGCONT)  # a stopped program would not notice
        return monotonic() + plan.kill_after

    def _send(self, number: signal.Signals) -> bool:
        try:
            self._process.send_signal(number)
        except PermissionError:
            self._say(f"may not send {number.name} to {self._title}: it runs as another user")
            return False
        return True

    def _has_it_already(self, number: int) -> bool:
        """Whether the terminal that sent us this signal has sent it to the program too.

        There is no telling a key from a ``kill -INT`` of ours alone; in the foreground it is taken for a key, because
        to hear Ctrl-C twice means "now, at once" to many programs.
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
