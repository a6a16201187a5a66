"""Work that needs a process of its own: a fresh interpreter with no other threads, which may be interrupted and forked.

What is to be done is a function at the top of a module; it and its arguments travel there, and what it gives travels back.
Its last argument is a `Tell`. It ends with the process that asked for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from handfast_lab.chaos.trials import Tell

__all__ = ["apart"]

LIMIT = 1_800.0
"""Seconds without a word after which the process is given up."""

EVERY = 0.1
"""Seconds between two words of how far it is: the trial is to be measured, and not the telling."""

SHOWN = 2_000
"""Bytes of what it printed that are shown when it died."""


def apart(function: Callable[..., Any], *arguments: Any, tell: Tell) -> Any:
    """Call it in a process of its own, with these arguments and a way to tell how far it is; what it gives.

    What it prints is not shown. Raises RuntimeError with the traceback of over there when it failed; when the process died,
    with what it had printed last.
    """
    mine, theirs = Pipe()
    with mine, theirs, tempfile.TemporaryFile() as printed:
        command = [sys.executable, "-W", "ignore", "-m", __name__, str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        # A group of its own, so that whatever it forked ends with it, and a Ctrl-C in the terminal is for us.
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            theirs.close()
            mine.send((function, arguments))
            return _hear(mine, tell)
        except EOFError:
            ended = process.wait()
            printed.seek(max(0, printed.tell() - SHOWN))
            words = printed.read().decode(errors="replace")
            raise RuntimeError(f"the process that was to do it ended with {ended}: {words}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _hear(pipe: Connection, tell: Tell) -> Any:
    """What comes of it, while it tells how far it is."""
    while pipe.poll(LIMIT):
        kind, value = pipe.recv()
        if kind == "done":
            tell(value)
        elif kind == "failed":
            raise RuntimeError(f"it failed in a process of its own:\n{value}")
        else:
            return value
    raise RuntimeError(f"the process that was to do it said nothing for {LIMIT:g} s")


def _main(descriptor: int) -> None:
    pipe = Connection(descriptor)
    os.set_inheritable(descriptor, False)
    told = 0.0

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= EVERY:
            told = now
            pipe.send(("done", done))

    function, arguments = pipe.recv()
    try:
        answer = ("result", function(*arguments, tell))
    except BaseException:  # noqa: BLE001 -- whatever it was, the other side raises it
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)


if __name__ == "__main__":
    # What is defined here has another name over there, where this module runs as the main one: nothing of it travels.
    _main(int(sys.argv[1]))
