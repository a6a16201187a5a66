"""The worker processes, from the demo's side: give orders, hear what comes of them, freeze, kill, and leave none.

A worker is in a process group of its own, so that a Ctrl-C in the terminal reaches the demo and nobody else. Its standard
input is its lifeline (see `handfast.cli.demo.worker`).

A frozen process cannot notice that its lifeline broke. So it is not we who freeze it, but a small shell on a lifeline of
its own, which thaws it when that one ends: when we say so, or when we are no more.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Iterable
from time import monotonic, sleep
from types import TracebackType
from typing import IO, Self

from handfast.cli.demo.records import Heard

__all__ = ["Crew", "CrewLost"]

SIGNAL_TIMEOUT = 5.0
"""Seconds until a signal that nobody can catch must have had its effect."""

_FREEZER = """
kill -STOP "$1"
read -r _
kill -CONT "$1"
"""


class CrewLost(Exception):
    """A worker ended that was not told to."""


class Crew:
    """Workers by name. Ends them all on leaving its ``with`` block."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._freezers: dict[str, subprocess.Popen[bytes]] = {}
        self._unread: dict[str, bytes] = {}
        self._last_words: dict[str, str] = {}
        self._ears = selectors.DefaultSelector()

    def start(self, names: Iterable[str]) -> None:
        """Start workers; each says ``ready`` when it is."""
        for name in names:
            # The URL may hold a password: an environment is not for others to see, a command line is.
            worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "handfast.cli.demo.worker", self._namespace, name],
                env=os.environ | {"HANDFAST_URL": self._url},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,
            )
            self._workers[name] = worker
            self._unread[name] = b""
            self._ears.register(_pipe(worker.stdout), selectors.EVENT_READ, name)

    @property
    def names(self) -> list[str]:
        """Who is there and has not been killed."""
        return list(self._workers)

    def tell(self, name: str, *orders: str) -> None:
        """Give a worker orders, to be carried out one after the other."""
        with contextlib.suppress(BrokenPipeError):  # it has ended: `hear` knows why
            _pipe(self._workers[name].stdin).write("".join(f"{order}\n" for order in orders).encode())

    def hear(self, seconds: float) -> list[Heard]:
        """What the workers say within so many seconds, in the order in which it came. Raises CrewLost."""
        heard: list[Heard] = []
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            for key, _ in self._ears.select(left):
                heard += self._read(key.data)
        return heard

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone. What it was about to say is not heard any more."""
        worker = self._workers.pop(name)
        worker.kill()
        worker.wait(SIGNAL_TIMEOUT)
        self._ears.unregister(_pipe(worker.stdout))
        for stream in (worker.stdin, worker.stdout):
            _pipe(stream).close()

    def freeze(self, name: str) -> None:
        """SIGSTOP: when this returns the worker does nothing, until it is thawed."""
        pid = self._workers[name].pid
        self._freezers[name] = subprocess.Popen(
            ["/bin/sh", "-c", _FREEZER, "sh", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        until = monotonic() + SIGNAL_TIMEOUT
        changed = status = 0
        while not changed and monotonic() < until:
            sleep(0.002)
            changed, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if not os.WIFSTOPPED(status):
            raise CrewLost(f"process {name} could not be frozen")

    def thaw(self, name: str) -> None:
        """SIGCONT: the worker goes on where it was."""
        freezer = self._freezers.pop(name)
        _pipe(freezer.stdin).close()
        freezer.wait(SIGNAL_TIMEOUT)

    def close(self) -> None:
        """End everybody, and wait until they are gone."""
        for name in list(self._freezers):
            self.thaw(name)
        for worker in self._workers.values():
            worker.kill()
        for name in self.names:
            self.kill(name)
        self._ears.close()

    def _read(self, name: str) -> list[Heard]:
        said = os.read(_pipe(self._workers[name].stdout).fileno(), 65536)
        if not said:
            raise CrewLost(f"process {name} ended by itself: {self._last_words.get(name, 'without a word')}")
        *lines, self._unread[name] = (self._unread[name] + said).split(b"\n")
        heard = []
        for line in lines:
            verb, _, number = line.decode(errors="replace").partition(" ")
            if number.isdecimal():
                heard.append(Heard(name, verb, int(number), monotonic()))
            elif line:
                self._last_words[name] = line.decode(errors="replace")
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process was started without a pipe")
    return stream
