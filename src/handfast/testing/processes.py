"""Child processes for tests: they carry out orders, report with timestamps, and can be killed or frozen at any moment.

    def hold(parent: Parent, url: str) -> None:
        with Handfast(url) as hf, hf.lock("a", ttl=5) as lease:
            parent.report("holds", lease.fence)
            parent.receive()

    with ServerController() as server, ProcessGroup() as group:
        child = group.start(hold, server.url)
        child.expect("holds", timeout=10)
        child.kill()
        ...  # the lease of the dead process ends within 5 s

The function that a child runs is at the top level of an importable module; the function and its arguments are pickled. No
child outlives the process that started it, even if that one is killed: a child watches its pipe, and a frozen child, which
cannot, is thawed by a small shell that watches another pipe. A child leads a process group of its own, so a Ctrl-C in the
terminal does not reach it. What it prints is kept, and shown only when the child ends unexpectedly.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler, recv_handle, send_handle
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from types import TracebackType
from typing import IO, Any, NamedTuple, NoReturn, Self, TypeAlias

__all__ = ["ChildProcess", "Parent", "ProcessFailed", "ProcessGroup", "Report", "run_in_subprocess"]

START_TIMEOUT = 20.0
"""Seconds until the process that forks the others must be ready."""

SIGNAL_TIMEOUT = 5.0
"""Seconds until a signal that cannot be caught must have had its effect."""

LOOK = 0.0005
"""Seconds between two looks whether a signal has had its effect."""

PROGRESS_PERIOD = 0.1
"""Seconds between two progress reports: sending them must not disturb what is measured."""

SHOWN = 2_000
"""Bytes of a child's output that the error shows when the child ended unexpectedly."""

_START = "import sys; from handfast.testing.processes import _main; _main(int(sys.argv[1]))"

_FREEZER = 'kill -STOP "$1"; read -r _; kill -CONT "$1"'
"""Thaws the process when its standard input is closed, by `ChildProcess.thaw` or by the end of this process."""


class Report(NamedTuple):
    """What a child said.

    Attributes:
        word: The kind of report. ``done`` and ``failed`` come from `Parent.serve`, all others from the child's own code.
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
"""What a child runs: a function whose first argument is the `Parent`."""


class ChildProcess:
    """One child process, as its parent sees it. `ProcessGroup.start` makes it.

    Attributes:
        name: The name that it was given.
        pid: Its process id, which is also the id of its process group.
    """

    def __init__(
        self, name: str, process: subprocess.Popen[bytes] | _Forked, pipe: Connection, output: IO[bytes]
    ) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._pipe = pipe
        self._output = output
        self._freezer: subprocess.Popen[bytes] | None = None
        self._ending = threading.RLock()

    def send(self, message: Any) -> None:
        """Send a message to `Parent.receive`. A child that has ended does not get it, and `receive` says so.

        Args:
            message: Anything that can be pickled.
        """
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    def order(self, order: str, *args: Any, **options: Any) -> None:
        """Send an order to `Parent.serve`, without waiting for its end.

        Args:
            order: Which one.
            *args: Its arguments.
            **options: Its keyword arguments.
        """
        self.send((order, args, options))

    def ask(self, order: str, *args: Any, timeout_s: float = START_TIMEOUT, **options: Any) -> Any:
        """Send an order to ``Parent.serve(…, answer=True)`` and return its return value.

        Args:
            order: Which one.
            *args: Its arguments.
            timeout_s: Seconds that it may take. An order may have an option ``timeout`` of its own.
            **options: Its keyword arguments.

        Raises:
            ProcessFailed: The order failed, took too long, or the process has ended.
        """
        self.order(order, *args, **options)
        return self.expect("done", timeout_s).value

    @property
    def has_reported(self) -> bool:
        """Whether `receive` would return at once, or raise because the process has ended."""
        return self._pipe.poll()

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
        raise ProcessFailed(f"process {self.name} reported nothing for {timeout:g} s")

    def expect(self, word: str, timeout: float) -> Report:
        """Wait for the next report, which must have this word.

        Args:
            word: The kind of report.
            timeout: Seconds to wait.

        Raises:
            ProcessFailed: The next report has another word, there was none in time, or the process has ended.
        """
        report = self.receive(timeout)
        if report.word != word:
            raise ProcessFailed(f"process {self.name} reported {report.word!r} instead of {word!r}: {report.value}")
        return report

    def kill(self) -> None:
        """Kill the process (SIGKILL) and every process of its group; wait until it has gone. May be repeated."""
        with self._ending:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(SIGNAL_TIMEOUT)
            self.thaw()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): when this returns it does nothing until `thaw` or the end of this process.

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
        until = monotonic() + SIGNAL_TIMEOUT
        while not _is_stopped(self.pid):
            if monotonic() >= until:
                raise ProcessFailed(f"process {self.name} could not be frozen")
            sleep(LOOK)

    def thaw(self) -> None:
        """Let a frozen process continue (SIGCONT). Without effect on others."""
        freezer, self._freezer = self._freezer, None
        if freezer is not None:
            freezer.communicate(timeout=SIGNAL_TIMEOUT)

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
        if self._process.wait(SIGNAL_TIMEOUT):
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
        """How it ended, and what it printed last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(SIGNAL_TIMEOUT)
            printed = b""
            with contextlib.suppress(ValueError):  # closed
                file = self._output.fileno()
                printed = os.pread(file, SHOWN, max(0, os.fstat(file).st_size - SHOWN))
            how = "ended" if code is None else f"ended with {code}"
            return f"{how}: {printed.decode(errors='replace').strip()}" if printed else how
        return "closed its pipe"


class ProcessGroup:
    """Starts child processes, and ends all of them at the end of its ``with`` block.

    Args:
        preload: Modules to import once, in a process from which the children are then forked. A child is then there after
            milliseconds; without any, each child is a new interpreter.
    """

    def __init__(self, *, preload: Sequence[str] = ()) -> None:
        self._preload = tuple(preload)
        self._forker: ChildProcess | None = None
        self._starting = threading.Lock()
        self._children: dict[ChildProcess, None] = {}

    def start(self, target: Target, *args: Any, name: str = "") -> ChildProcess:
        """Start a process that calls ``target(parent, *args)``. Does not wait for it. May be called from any thread.

        Args:
            target: A function at the top level of a module.
            *args: What it gets besides its `Parent`; pickled.
            name: What errors call the process; its number by default.
        """
        with self._starting:
            name = name or str(len(self._children) + 1)
            child = self._fork(name, target, args) if self._preload else _start(name, target, args)
            self._children[child] = None
        return child

    def receive(self, timeout: float) -> list[tuple[ChildProcess, Report]]:
        """Wait for reports of any of them; an empty list if there were none in time. Each process has one at most.

        Args:
            timeout: Seconds to wait.

        Raises:
            ProcessFailed: One of them has ended.
        """
        ready: list[Any] = wait([*self], max(0.0, timeout))
        return [(child, child.receive(0)) for child in ready]

    def discard(self, child: ChildProcess) -> None:
        """Kill a process and forget it.

        Args:
            child: One of them.
        """
        child.close()
        self._children.pop(child, None)

    def kill_all(self) -> None:
        """Kill all of them. A thread that waits for a report of theirs gets `ProcessFailed`."""
        for child in self:
            child.kill()

    def close(self) -> None:
        """Kill and forget all of them."""
        for child in self:
            self.discard(child)
        if self._forker is not None:
            self._forker.close()
            self._forker = None

    def __iter__(self) -> Iterator[ChildProcess]:
        return iter(list(self._children))

    def __len__(self) -> int:
        return len(self._children)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _fork(self, name: str, target: Target, args: tuple[Any, ...]) -> ChildProcess:
        work = ForkingPickler.dumps((target, args, True))
        if self._forker is None:
            self._forker = _start("forker", _fork_on_request, (self._preload,), listen=False)
            self._forker.expect("ready", START_TIMEOUT)
        forker = self._forker
        ours, theirs = Pipe()
        with theirs:
            send_handle(forker._pipe, theirs.fileno(), forker.pid)  # noqa: SLF001 -- of this module
            pid = forker.expect("forked", START_TIMEOUT).value
        output = os.fdopen(os.dup(forker._output.fileno()), "rb")  # noqa: SLF001 -- see above
        child = ChildProcess(name, _Forked(pid), ours, output)
        ours.send_bytes(work)
        return child


def run_in_subprocess(
    function: Callable[..., Any],
    *args: Any,
    on_progress: Callable[[int], object] = lambda _: None,
    timeout: float = 1800.0,
) -> Any:
    """Call a function in a new interpreter that has no other threads, and which may be interrupted and forked.

    Args:
        function: A function at the top level of a module. It is called with ``args`` and, as last argument, a function that
            takes an int and reports it as progress.
        *args: Its other arguments; pickled, as its return value is.
        on_progress: Called here with what the function reports, at most ten times a second.
        timeout: Seconds without any report after which the process is killed.

    Returns:
        What the function returned.

    Raises:
        RuntimeError: The function failed, with its traceback; or its process ended, with what it printed last.
        ProcessFailed: There was no report in time.
    """
    child = _start("of its own", _call, (function, args), listen=False)
    try:
        while (report := child.receive(timeout)).word == "progress":
            on_progress(report.value)
    except ProcessFailed as failure:
        raise RuntimeError(str(failure)) from None
    finally:
        child.close()
    if report.word == "failed":
        raise RuntimeError(f"it failed in a process of its own:\n{report.value}")
    return report.value


class _Forked:
    """A process that another one forked, which also collects its exit code: nothing but its id is known here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._gone = False

    def wait(self, timeout: float) -> None:
        """Wait until it is gone. Its id may then belong to another process, so this is noted."""
        until = monotonic() + timeout
        while not self._gone:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                self._gone = True
                return
            if monotonic() >= until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            sleep(LOOK)


def _start(name: str, target: Target, args: tuple[Any, ...], *, listen: bool = True) -> ChildProcess:
    """Start a new interpreter."""
    work = ForkingPickler.dumps((target, args, listen))
    ours, theirs = Pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    child = ChildProcess(name, process, ours, output)
    try:
        ours.send_bytes(work)
    except BaseException:
        child.close()
        raise
    return child


def _main(descriptor: int) -> None:
    """What a new interpreter does."""
    os.set_inheritable(descriptor, False)
    _live(Connection(descriptor))


def _live(pipe: Connection) -> None:
    target, args, listen = pipe.recv()
    parent = Parent(pipe, listen=listen)
    try:
        target(parent, *args)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 -- the parent judges it
        parent.report("failed", traceback.format_exc())
        os._exit(1)


def _fork_on_request(parent: Parent, modules: Sequence[str]) -> None:
    """Fork a child for each descriptor that comes: of the child's end of its pipe."""
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets them when they end
    parent.report("ready")
    pipe = parent._pipe  # noqa: SLF001 -- of this module
    while True:
        try:
            descriptor = recv_handle(pipe)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            pipe.close()
            os.setpgid(0, 0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _live(Connection(descriptor))
            finally:
                os._exit(0)
        with contextlib.suppress(OSError):  # whichever of the two comes first
            os.setpgid(pid, pid)
        os.close(descriptor)
        parent.report("forked", pid)


def _call(parent: Parent, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    reported = 0.0

    def progress(done: int) -> None:
        nonlocal reported
        now = monotonic()
        if now - reported >= PROGRESS_PERIOD:
            reported = now
            parent.report("progress", done)

    parent.report("done", function(*args, progress))


def _is_stopped(pid: int) -> bool:
    """Whether every thread of it is stopped."""
    with contextlib.suppress(OSError):
        threads = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        if threads:
            return all(stat.rpartition(")")[2].split()[0] == "T" for stat in threads)
    found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)  # noqa: S607
    return found.stdout.strip().startswith(b"T")
