"""What the tests of ``handfast run`` share: its processes, the commands that they run, and waits for both."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from queue import Empty, SimpleQueue

import pytest

from tests._support import forked
from tests._support.helpers import eventually

HANDFAST = [*forked.PROGRAM, "run"]
PYTHON = [sys.executable, "-I", "-S", "-c"]
BOUND = 30
"""Seconds after which a test gives up waiting."""

LISTENER = [
    *PYTHON,
    """
import os, signal
heard = {signal.Signals["SIG" + name] for name in "HUP INT QUIT USR1 USR2 WINCH TERM CONT".split()}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # a handler would miss the signal that comes just before pause()
os.write(1, b"ready\\n")
while True:
    number = signal.sigwait(heard)
    os.write(1, number.name.encode() + b"\\n")
    if number == signal.SIGTERM:
        os._exit(5)
""",
]
"""A command that reports its signals, and exits with code 5 on SIGTERM."""

CAT = ["sh", "-c", "echo ready; exec cat"]
"""A command that runs until its input ends."""


@contextlib.contextmanager
def starting(*, forks=False):
    """Starts processes with pipes, each in a session of its own, and kills the whole session afterwards.

    With ``forks``, commands that begin with ``python -m handfast`` are forked, at a fraction of the CPU time.
    """
    started = []

    def start(*command, **options):
        if forks and command[: len(forked.PROGRAM)] == forked.PROGRAM:
            process = forked.Forked(command, **options)
        else:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen(
                command,
                start_new_session=True,
                preexec_fn=forked.take_signals,  # noqa: PLW1509 -- it takes no lock
                **pipes | options,
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            _end(process)


def _end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait(BOUND)


def done(process, given=""):
    """Wait for the process to end; return its exit code, output and errors."""
    out, err = process.communicate(given, timeout=BOUND)
    return process.returncode, out, err


def line_of(process):
    """Return the next line that the process writes to its output. Fails if none comes."""
    lines = SimpleQueue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()
    try:
        return lines.get(timeout=BOUND)
    except Empty:
        pytest.fail(f"no line within {BOUND} s from {process.args}")


def ready(process):
    """Wait until the command writes to its output."""
    assert line_of(process) == "ready\n"
    return process


def until_queued(job, count=1):
    """Wait until the lock has that many waiters."""
    eventually(lambda: len(job.status().waiters) == count)
