"""Where a client of threads is used: in one process, which has a context of its own."""

from __future__ import annotations

import os
import threading
import weakref
from binascii import hexlify

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.driver import Driver
from handfast._drivers.losses import run_lost_callbacks
from handfast._drivers.sync.callbacks import CallbackThread
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.context import Context
from handfast._drivers.sync.entries import Entry
from handfast._drivers.sync.foreign import ForeignThread
from handfast._drivers.sync.performing import loop_runs
from handfast._engine.calls import Request
from handfast._protocol.acquire import Attempt
from handfast._protocol.waiting import Watch
from handfast.arguments import CancelEvent
from handfast.errors import ClientClosed

__all__ = ["Contexts"]


class Contexts(Driver[SyncConnector]):
    """The part of a driver that finds the context of the caller."""

    _here: Context
    callbacks: CallbackThread

    def __init__(
        self,
        connector: SyncConnector,
        namespace: str,
        label: str | None,
        retry_for: float,
        max_sessions: int,
        *,
        release_at_exit: bool,
    ) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions must be at least 1, not {max_sessions!r}")
        super().__init__(connector, namespace, label, retry_for, release_at_exit=release_at_exit)
        self._max_sessions = max_sessions
        self._start()

    def _start(self) -> None:
        """Start empty: at first, and again in a forked child."""
        self.callbacks = CallbackThread()
        self._here = Context(self._connector, self._namespace, self.label, self._retry_for, self._max_sessions)
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._here, gives_up=self._release_at_exit)

    @staticmethod
    def caller() -> object:
        """Return the current thread, or a stand-in for a thread not started by Python."""
        thread = threading.current_thread()
        return ForeignThread.current() if type(thread) is threading._DummyThread else thread  # noqa: SLF001 -- no public name

    @staticmethod
    def is_over(caller: object) -> bool:
        """Return whether a thread has ended."""
        return isinstance(caller, threading.Thread | ForeignThread) and not caller.is_alive()

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire. The caller must call `undo` on any exception.

        It must be called from the very frame that returns the lease, since an interrupt may arrive at any point
        before.
        """
        if self._pid != os.getpid():  # asked here, without a frame for it
            self._in_this_process()
        if self._closed:
            raise ClientClosed(request.name)
        return Attempt(request, hexlify(os.urandom(16)), monotonic(), threading.get_native_id(), self._here)

    def open(self) -> None:
        """Open the client again if it was closed. Former sessions stay closed, and former leases stay lost."""
        self._reopen()

    def close(self, *, release: bool | None) -> None:
        """Close the sessions, wake the waiting threads, and end the renewal thread.

        Release the held leases, or let them run out.
        """
        self._in_this_process()
        self._closed = True
        if self._finalizer.detach() is not None:
            for lease in self._here.close(gives_up=self._release_at_exit if release is None else release):
                if (dispatcher := self.events.dispatcher) is not None:
                    dispatcher.lost(lease, lease.loss)
                run_lost_callbacks(lease)

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and the renewal thread are the parent's."""
        self._finalizer.detach()
        self._here.abandon()
        if not self._closed:
            self._start()

    def _context(self, name: str) -> Context:
        """Return the context of this process."""
        if self._pid != os.getpid():  # asked here, without a frame for it
            self._in_this_process()
        if self._closed:
            raise ClientClosed(name)
        return self._here

    def _running_context(self) -> Context:
        self._in_this_process()
        return self._here

    def _holds(self, token: bytes) -> bool:
        return token in self._here.leases

    def _check_open(self, name: str) -> None:
        self._in_this_process()
        if self._closed:
            raise ClientClosed(name)

    def _watch(self, attempt: Attempt, cancel: CancelEvent | None = None) -> Watch:
        thread = attempt.caller if loop_runs() else None
        if (dispatcher := self.events.dispatcher) is not None:
            dispatcher.queued(attempt)
        return Watch(
            attempt.request,
            self._here.leases,
            Entry.is_around,
            log.own_wait,
            cancel,
            held=attempt.held,
            loop_thread=thread,
        )


def _close_in(pid: int, context: Context, *, gives_up: bool) -> None:
    """Close the context of this process.

    A child that was forked without Python's hooks, and has not called since, has nothing to close.
    """
    if os.getpid() == pid:
        context.close(gives_up=gives_up)
