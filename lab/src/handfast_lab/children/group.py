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

The function that a child runs is at the top level of an importable module; the function and its arguments are pickled.
No child outlives the process that started it, even if that one is killed. A child leads a process group of its own, so
a Ctrl-C in the terminal does not reach it. What it prints is kept, and shown only if the child ends unexpectedly.

`children` has the two ends of the pipe between a child and its parent; here processes are started and forked.
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
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler, recv_handle, send_handle
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from handfast_lab.children.child import (
    START_TIMEOUT_S,
    ChildProcess,
    ForkedProcess,
    Parent,
    ProcessFailed,
    Report,
    Target,
)

__all__ = ["ProcessGroup", "run_in_subprocess"]

PROGRESS_PERIOD_S = 0.1
"""Seconds between two progress reports: sending them must not disturb what is measured."""

_START = "import sys; from handfast_lab.children.group import _main; _main(int(sys.argv[1]))"

_Child = TypeVar("_Child", bound=ChildProcess)


class ProcessGroup:
    """Start child processes, and end all of them at the end of the ``with`` block.

    Args:
        preload: Modules to import once, in a process from which the children are then forked. A child then starts
            within milliseconds. Without any, each child is a new interpreter.
    """

    def __init__(self, *, preload: Sequence[str] = ()) -> None:
        self._preload = tuple(preload)
        self._forker: _Forker | None = None
        self._starting = threading.Lock()
        self._children: dict[ChildProcess, None] = {}

    def start(self, target: Target, *args: Any, name: str = "") -> ChildProcess:
        """Start a process that calls ``target(parent, *args)``. Does not wait for it. May be called from any thread.

        Args:
            target: A function at the top level of a module.
            *args: Its arguments after the `Parent`; pickled.
            name: The name of the process in errors; its number by default.
        """
        with self._starting:
            name = name or str(len(self._children) + 1)
            child = self._fork(name, target, args) if self._preload else _start(ChildProcess, name, target, args)
            self._children[child] = None
        return child

    def receive(self, timeout: float) -> list[tuple[ChildProcess, Report]]:
        """Wait for reports of the children; return at most one of each, and an empty list if there were none in time.

        Args:
            timeout: Seconds to wait.

        Raises:
            ProcessFailed: A child has ended.
        """
        ready: list[Any] = wait([*self], max(0.0, timeout))
        return [(child, child.receive(0)) for child in ready]

    def discard(self, child: ChildProcess) -> None:
        """Kill a child and remove it from the group.

        Args:
            child: A process of this group.
        """
        child.close()
        self._children.pop(child, None)

    def kill_all(self) -> None:
        """Kill all children. A thread that waits for a report of theirs gets `ProcessFailed`."""
        for child in self:
            child.kill()

    def close(self) -> None:
        """Kill all children and remove them from the group."""
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
        if self._forker is None:
            self._forker = _start(_Forker, "forker", _fork_on_request, (self._preload,), listen=False)
            self._forker.expect("ready", START_TIMEOUT_S)
        return self._forker.fork(name, target, args)


def run_in_subprocess(
    function: Callable[..., Any],
    *args: Any,
    on_progress: Callable[[int], object] = lambda _: None,
    timeout: float = 1800.0,
) -> Any:
    """Call a function in a new interpreter, which has no other threads and may be interrupted and forked.

    Args:
        function: A function at the top level of a module. It is called with ``args`` and, as last argument, a function
            that takes an int and reports it as progress.
        *args: Its other arguments; pickled, as its return value is.
        on_progress: Called here with what the function reports, at most ten times a second.
        timeout: Seconds without any report after which the process is killed.

    Returns:
        The return value of the function.

    Raises:
        RuntimeError: The function failed, with its traceback; or its process ended, with its last output.
        ProcessFailed: There was no report in time.
    """
    child = _start(ChildProcess, "of its own", _call, (function, args), listen=False)
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


class _Forker(ChildProcess):
    """The process that has imported the modules to preload, and forks the children of a group."""

    def fork(self, name: str, target: Target, args: tuple[Any, ...]) -> ChildProcess:
        work = ForkingPickler.dumps((target, args, True))
        ours, theirs = Pipe()
        with theirs:
            send_handle(self._pipe, theirs.fileno(), self.pid)
            pid = self.expect("forked", START_TIMEOUT_S).value
        output = os.fdopen(os.dup(self._output.fileno()), "rb")
        child = ChildProcess(name, ForkedProcess(pid), ours, output)
        ours.send_bytes(work)
        return child


def _start(kind: type[_Child], name: str, target: Target, args: tuple[Any, ...], *, listen: bool = True) -> _Child:
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
    child = kind(name, process, ours, output)
    try:
        ours.send_bytes(work)
    except BaseException:
        child.close()
        raise
    return child


def _main(descriptor: int) -> None:
    """Run in a new interpreter."""
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
    """Fork a child for each descriptor received, which is that of the child's end of its pipe."""
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps them
    parent.report("ready")
    pipe = parent._pipe  # noqa: SLF001 -- of this package
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
        with contextlib.suppress(OSError):  # the child does the same; either may be first
            os.setpgid(pid, pid)
        os.close(descriptor)
        parent.report("forked", pid)


def _call(parent: Parent, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    reported = 0.0

    def progress(done: int) -> None:
        nonlocal reported
        now = monotonic()
        if now - reported >= PROGRESS_PERIOD_S:
            reported = now
            parent.report("progress", done)

    parent.report("done", function(*args, progress))
