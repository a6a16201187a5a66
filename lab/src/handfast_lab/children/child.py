"""One child process: what it sees of its parent, and what its parent sees of it.

The two exchange pickled messages through a pipe. The child sends reports with timestamps; the parent sends messages and
orders, and may kill or freeze the child at any moment. A child that loses its pipe exits. A frozen child cannot, so a
small shell that watches another pipe thaws it when its parent ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias

__all__ = ["START_TIMEOUT_S", "ChildProcess", "ForkedProcess", "Parent", "ProcessFailed", "Report", "Target"]

START_TIMEOUT_S = 20.0
"""Seconds until the process that forks the others must be ready."""

SIGNAL_TIMEOUT_S = 5.0
"""Seconds until a signal that cannot be caught must have had its effect."""

POLL_S = 0.0005
"""Seconds between two checks whether a signal has had its effect."""

SHOWN_BYTES = 2_000
"""Bytes of a child's output that the error shows when the child ended unexpectedly."""

_FREEZER = 'kill -STOP "$1"; read -r _; kill -CONT "$1"'
"""Thaws the process when its standard input is closed, by `ChildProcess.thaw` or by the end of this process."""


class Report(NamedTuple):
    """A report of a child process.

    Attributes:
        word: The kind of report. ``done`` and ``failed`` come from `Parent.serve`, all others from the child's own
            code.
        at: When the child sent it, in seconds on `time.monotonic`, which all processes of a machine share.
        value: Anything that can be pickled.
    """

    word: str
    at: float
    value: Any = None


class ProcessFailed(Exception):
    """A child process ended, reported an error, or did not report in time."""


class Parent:
    """The parent process, as its child sees it: the first argument of the function that the child runs."""

    def __init__(self, pipe: Connection, *, listen: bool = True) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._messages: SimpleQueue[Any] = SimpleQueue()
        if listen:
            threading.Thread(target=self._listen, name="handfast-parent", daemon=True).start()

    def report(self, word: str, value: Any = None) -> None:
        """Send a report. May be called from any thread.

        Args:
            word: The kind of report.
            value: Anything that can be pickled.
        """
        with self._sending:
            try:
                self._pipe.send(Report(word, monotonic(), value))
            except OSError:
                os._exit(1)  # the parent has gone

    def receive(self) -> Any:
        """Wait for the next message of `ChildProcess.send` and return it."""
        return self._messages.get()

    @property
    def has_sent(self) -> bool:
        """Whether `receive` would return at once."""
        return not self._messages.empty()

    def serve(self, orders: Mapping[str, Callable[..., Any]], *, answer: bool = False) -> NoReturn:
        """Carry out the orders of `ChildProcess.order`, one after the other, until the process is ended.

        An exception of an order is reported as ``failed`` with its type and text, and the next order is carried out.

        Args:
            orders: A function for each order.
            answer: Whether the return value of each order is reported, as ``done``.
        """
        while True:
            order, args, options = self.receive()
            try:
                value = orders[order](*args, **options)
            except Exception as error:  # noqa: BLE001 -- the parent judges it
                self.report("failed", f"{type(error).__name__}: {error}")
            else:
                if answer:
                    self.report("done", value)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._messages.put(self._pipe.recv())
        os._exit(0)  # the parent has gone


Target: TypeAlias = Callable[..., object]
"""A function that a child runs; its first argument is the `Parent`."""


class ChildProcess:
    """One child process, as its parent sees it, made by `ProcessGroup.start`.

    Attributes:
        name: The name that it was given.
        pid: Its process id, which is also the id of its process group.
    """

    def __init__(
        self, name: str, process: subprocess.Popen[bytes] | ForkedProcess, pipe: Connection, output: IO[bytes]
    ) -> None:
        self.name = name
        self.pid: int = process.pid
        self._process = process
        self._pipe = pipe
        self._output = output
        self._freezer: subprocess.Popen[bytes] | None = None
        self._ending = threading.RLock()

    def send(self, message: Any) -> None:
        """Send a message to `Parent.receive`. If the child has ended it is lost, and the next `receive` raises.

        Args:
            message: Anything that can be pickled.
        """
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    def order(self, order: str, *args: Any, **options: Any) -> None:
        """Send an order to `Parent.serve`, without waiting for its end.

        Args:
            order: The name of the order.
            *args: Its arguments.
            **options: Its keyword arguments.
        """
        self.send((order, args, options))

    def ask(self, order: str, *args: Any, timeout_s: float = START_TIMEOUT_S, **options: Any) -> Any:
        """Send an order to ``Parent.serve(…, answer=True)`` and return its return value.

        Args:
            order: The name of the order.
            *args: Its arguments.
            timeout_s: Seconds to wait for its end. (An order may have an option ``timeout`` of its own.)
            **options: Its keyword arguments.

        Raises:
            ProcessFailed: The order failed, took too long, or the process has ended.
        """
        self.order(order, *args, **options)
        return self.expect("done", timeout_s).value

    def receive(self, timeout: float) -> Report:
        """Wait for the next report.

        Args:
            timeout: Seconds to wait; with 0 the report must be there already.

        Raises:
            ProcessFailed: There was no report in time, or the process has ended.
        """
        try:
            if self._pipe.poll(max(0.0, timeout)):
                report: Report = self._pipe.recv()
                return report
        except (EOFError, OSError):
            raise ProcessFailed(f"process {self.name} {self._end()}") from None
        raise ProcessFailed(f"process {self.name} reported nothing for {timeout:.3g} s")

    def expect(self, word: str, timeout: float) -> Report:
        """Wait for the next report, which must be of this kind.

        Args:
            word: The kind of report.
            timeout: Seconds to wait.

        Raises:
            ProcessFailed: The next report is of another kind, there was none in time, or the process has ended.
        """
        report = self.receive(timeout)
        if report.word != word:
            raise ProcessFailed(f"process {self.name} reported {report.word!r} instead of {word!r}: {report.value}")
        return report

    def kill(self) -> None:
        """Kill the process (SIGKILL) and every process of its group, and wait for its end. May be repeated."""
        with self._ending:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(SIGNAL_TIMEOUT_S)
            self.thaw()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP). It is stopped when this returns, and until `thaw` or the end of this process.

        Raises:
            ProcessFailed: It could not be stopped.
        """
        self._freezer = subprocess.Popen(
            ["/bin/sh", "-c", _FREEZER, "sh", str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        until = monotonic() + SIGNAL_TIMEOUT_S
        while not _is_stopped(self.pid):
            if monotonic() >= until:
                raise ProcessFailed(f"process {self.name} could not be frozen")
            sleep(POLL_S)

    def thaw(self) -> None:
        """Let a frozen process continue (SIGCONT). A process that is not frozen is not affected."""
        freezer, self._freezer = self._freezer, None
        if freezer is not None:
            freezer.communicate(timeout=SIGNAL_TIMEOUT_S)

    def join(self, timeout: float) -> None:
        """Wait until the function that the process runs has returned.

        Args:
            timeout: Seconds to wait.

        Raises:
            ProcessFailed: It did not return in time, or failed. Reports that were not received are lost.
        """
        until = monotonic() + timeout
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll(max(0.0, until - monotonic())):
                report = self._pipe.recv()
                if report.word == "failed":
                    raise ProcessFailed(f"process {self.name} failed: {report.value}")
            raise ProcessFailed(f"process {self.name} did not end in time")
        if self._process.wait(SIGNAL_TIMEOUT_S):
            raise ProcessFailed(f"process {self.name} {self._end()}")

    def close(self) -> None:
        """Kill the process and close its pipe. May be repeated."""
        with self._ending:
            self.kill()
            self._pipe.close()
            self._output.close()

    def fileno(self) -> int:
        """The descriptor of the pipe, to wait for reports of several processes."""
        return self._pipe.fileno()

    def _end(self) -> str:
        """Describe the end of the process, with its last output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(SIGNAL_TIMEOUT_S)
            printed = b""
            with contextlib.suppress(ValueError):  # closed
                file = self._output.fileno()
                printed = os.pread(file, SHOWN_BYTES, max(0, os.fstat(file).st_size - SHOWN_BYTES))
            how = "ended" if code is None else f"ended with {code}"
            return f"{how}: {printed.decode(errors='replace').strip()}" if printed else how
        return "closed its pipe"


class ForkedProcess:
    """A process that another child forked and reaps, so that only its id is known here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._gone = False

    def wait(self, timeout: float) -> None:
        """Wait for its end, and remember it: its id may then be given to another process."""
        until = monotonic() + timeout
        while not self._gone:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                self._gone = True
                return
            if monotonic() >= until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    """Return whether every thread of a process is stopped."""
    with contextlib.suppress(OSError):
        threads = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        if threads:
            return all(stat.rpartition(")")[2].split()[0] == "T" for stat in threads)
    found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S607
    return found.stdout.strip().startswith(b"T")
