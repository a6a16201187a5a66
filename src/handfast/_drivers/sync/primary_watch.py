"""A thread that waits for a Sentinel to name a new primary."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

from handfast._drivers.failures import OWN_ERRORS, connection_broke, server_silent
from handfast._drivers.primary_watch import ASK_EVERY_S, PAUSE_S, News
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.waker import Waker
from handfast._engine.resp import Reader

__all__ = ["PrimaryWatch"]


class PrimaryWatch:
    """Calls these functions when another server is the primary. It begins with the first `start`."""

    def __init__(self, connector: SyncConnector, *on_switch: Callable[[], object]) -> None:
        self._connector = connector
        self._on_switch = on_switch
        self._news = News(connector)
        self._waker = Waker()
        self._connection: Any = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._running = threading.Lock()
        """Held by the thread while it runs, and for good after the end. Never waited for."""

    def start(self) -> None:
        """Start the thread unless it runs, from any thread.

        Of several threads started at once, only the first goes on.
        """
        if not self._running.locked() and not self._stopping:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                threading.Thread(target=self._run, name="handfast-primary-watch", daemon=True).start()

    def stop(self) -> None:
        """End the thread and the connection."""
        self._stopping = True
        self._waker.wake()
        self._run()  # does what the thread does at its end, if there is none
        if self._thread is not threading.current_thread() and self._thread is not None:
            self._thread.join(self._connector.response_timeout)

    def abandon(self) -> None:
        """Drop the connection in a forked child, which does not have the thread."""
        self._stopping = True
        self._disconnect()
        self._waker.close()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        self._waker.open()
        try:
            while not self._stopping:
                self._wait(self._listen_to_one())
        finally:
            if self._stopping:
                self._waker.close()
            else:  # killed: the next connection starts another thread
                self._running.release()

    def _listen_to_one(self) -> float:
        """Listen to the first Sentinel that names the primary, until it is gone. Return for how long to pause then."""
        for sentinel in self._connector.sentinels():
            try:
                self._listen(sentinel)
            except (*OWN_ERRORS, OSError) as error:
                self._news.note_failure(error)
            finally:
                self._disconnect()
            if self._stopping or self._news.has_answered:
                return PAUSE_S
        self._news.warn()
        return ASK_EVERY_S

    def _listen(self, sentinel: SyncConnector) -> None:
        greeting = self._news.greet()
        self._connection = sentinel.connect()
        sock = cast("socket.socket", self._connection._sock)  # noqa: SLF001 -- redis-py has no public way to its socket
        sock.settimeout(sentinel.response_timeout)
        sock.sendall(greeting)
        reader, is_due = Reader(), True
        while not self._stopping:
            if self._wait(ASK_EVERY_S, sock):
                data = sock.recv(16384)
                if not data:
                    raise connection_broke("it was closed at the other end")
                reader.feed(data)
                is_due = False
                while reader.frames:
                    if self._news.is_switch(reader.frames.popleft()):
                        for function in self._on_switch:
                            function()
            elif is_due:
                raise server_silent()
            else:
                sock.sendall(self._news.question)
                is_due = True

    def _wait(self, seconds: float, sock: socket.socket | None = None) -> bool:
        """Wait ``seconds``, unless the watch is stopped. Return whether there is something to read."""
        poll = select.poll()
        if sock is not None:
            if getattr(sock, "pending", int)():  # decrypted already
                return True
            poll.register(sock, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(self._waker.end(poll, seconds) * 1000)]
        return sock is not None and sock.fileno() in ready

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.disconnect()
