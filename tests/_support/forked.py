"""Start ``python -m handfast`` without the start of an interpreter: a server that has imported the modules forks.

Each pytest worker has one server, from its first command to its end. A forked command has its own streams, environment,
working directory and session. It ends as any interpreter does, so exit handlers run and a signal is reported as a signal.

A forked command differs from a new process in two ways. Its modules are imported before its environment is set, and it
has the interpreter options and ``PYTHON…`` variables of the server. A test of these starts a new process. So does the
deep suite, and so does ``test_cli_start.py`` for each of these commands.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

PROGRAM = (sys.executable, "-m", "handfast")
"""The first words of a command that can be forked."""

MODULES = (
    *(
        "click.shell_completion",
        "difflib",
        "handfast.records",
        "hmac",
        "importlib.resources.readers",
        "redis",
        "secrets",
    ),
    *(f"handfast.cli.{name}" for name in ("elect", "latch", "limit", "once", "run")),
    *(
        f"handfast._api.sync.{name}"
        for name in ("client", "election", "latch", "limiter", "once", "rwlock", "semaphore")
    ),
    *(f"handfast._drivers.sync.{name}" for name in ("connect", "driver", "looping", "renewer")),
)
"""The modules that the server imports, and with them what they import."""

NUMBER = struct.Struct("i")
"""A process id, and later an exit code, in the connection of a command."""


# In the test


class Forked:
    """A forked command with the methods of `subprocess.Popen` that tests use. Its streams are text pipes."""

    def __init__(self, command, env=None):
        self.args, self.returncode = command, None
        self._connection, theirs = socket.socketpair()
        (stdin, given), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
        self.stdin = os.fdopen(given, "w", encoding="utf-8")
        self.stdout, self.stderr = (os.fdopen(pipe, encoding="utf-8") for pipe in (out, err))
        socket.send_fds(_server()[1], [b"."], [stdin, stdout, stderr, theirs.fileno()])
        theirs.close()
        for pipe in (stdin, stdout, stderr):
            os.close(pipe)
        words = [os.fspath(word) for word in command[len(PROGRAM) :]]
        request = {"words": words, "env": dict(os.environ if env is None else env), "cwd": str(Path.cwd())}
        self._connection.sendall(json.dumps(request).encode())
        self._connection.shutdown(socket.SHUT_WR)
        self.pid = self._receive()

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._receive()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            self._connection.close()
        return self.returncode

    def communicate(self, given="", timeout=None):
        said = {}
        readers = [
            threading.Thread(target=lambda pipe=pipe: said.update({pipe: pipe.read()}), daemon=True)
            for pipe in (self.stdout, self.stderr)
        ]
        for reader in readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(given)
        for reader in readers:
            reader.join(timeout)
        if len(said) < len(readers):
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        return said[self.stdout], said[self.stderr]

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _receive(self):
        data = self._connection.recv(NUMBER.size)
        assert data, "the fork server has ended"
        return NUMBER.unpack(data)[0]


@functools.cache
def _server():
    """Start the server of this worker. Return it and the socket for its requests."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=theirs,
            stdout=theirs,
            start_new_session=True,
            preexec_fn=take_signals,  # noqa: PLW1509 -- it takes no lock
        )
    return process, ours


def end_server():
    """End the server of this worker, if there is one."""
    if _server.cache_info().currsize:
        process, requests = _server()
        with process, requests:
            requests.shutdown(socket.SHUT_RDWR)


def take_signals():
    """Ignore none, whatever the parent ignores: under ``nohup`` a process begins with SIGHUP ignored, in the background with SIGINT."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


# In the server, and in the commands that it forks


def _serve(requests):
    """Fork for each request. Return None when the requests end, and in a child the socket and the streams of its command."""
    connections = {}

    def report(*_):
        while connections:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with contextlib.suppress(BrokenPipeError), connections.pop(pid) as connection:
                connection.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))

    signal.signal(signal.SIGCHLD, report)
    while True:
        request, streams, _, _ = socket.recv_fds(requests, 1, 4)
        if not request:
            return None
        connection = socket.socket(fileno=streams.pop())
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # the handler has to know the child
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for other in connections.values():
                other.close()
            return connection, streams
        connections[pid] = connection
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for stream in streams:
            os.close(stream)


def _become(connection, streams):
    """Give this process the streams, the session and the rest of what the test has asked for."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with connection, connection.makefile() as text:
        connection.sendall(NUMBER.pack(os.getpid()))  # not earlier: the test may end the session
        request = json.load(text)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["handfast", *request["words"]]


def main():
    for module in MODULES:
        import_module(module)
    gc.freeze()
    requests = socket.socket(fileno=sys.stdin.fileno())
    if (command := _serve(requests)) is not None:
        requests.detach()
        _become(*command)
        runpy.run_module("handfast", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
