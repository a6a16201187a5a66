"""Where a client of tasks is used: on any number of event loops, each of which has a context.

A client may be made before any loop runs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from asyncio import AbstractEventLoop, _get_running_loop, get_running_loop
from asyncio import current_task as current_task_of
from binascii import hexlify
from typing import Any

from handfast._drivers import log
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.context import NO_LOOP, Context, current_task
from handfast._drivers.clock import monotonic
from handfast._drivers.driver import Driver
from handfast._engine.calls import Request
from handfast._protocol.acquire import Attempt
from handfast._protocol.waiting import Watch
from handfast.errors import ClientClosed

__all__ = ["Contexts"]

_parents: list[Context] = []
"""The parent's contexts in a forked child, which may not finalize them."""


class Contexts(Driver[AsyncConnector]):
    """The part of a driver that finds the context of the caller."""

    def __init__(
        self, connector: AsyncConnector, namespace: str, label: str | None, retry_for: float, *, release_at_exit: bool
    ) -> None:
        self._tasks: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._numbers = itertools.count(1)
        self._start()
        super().__init__(connector, namespace, label, retry_for, release_at_exit=release_at_exit)

    def _start(self) -> None:
        self._contexts: dict[AbstractEventLoop, Context] = {}
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._contexts)

    caller: staticmethod[[], asyncio.Task[Any] | None] = staticmethod(current_task)

    @staticmethod
    def is_over(caller: object) -> bool:
        """Return whether a task has ended."""
        return isinstance(caller, asyncio.Task) and caller.done()

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire. The caller must call `undo` on any exception."""
        if self._closed:
            raise ClientClosed(request.name)
        loop = _get_running_loop()  # None outside of asyncio, which has no context
        context = self._contexts.get(loop)  # type: ignore[arg-type]
        if context is None or self._pid != os.getpid():  # asked here, without a frame for it
            context = self._context(request.name)
        task = current_task_of(loop)
        known = self._tasks.get(id(task))
        number = self._number(task) if known is None else known[0]
        return Attempt(request, hexlify(os.urandom(16)), monotonic(), number, context)

    def open(self) -> None:
        """Open the client again if it was closed. Former connections stay closed, and former leases stay lost."""
        self._reopen()

    async def close(self, *, release: bool | None) -> None:
        """Close the connections. Release the leases held on this loop, or let them run out."""
        self._closed = True
        context = self._running_context()
        if context is not None:
            await context.close(gives_up=self._release_at_exit if release is None else release)
            self._contexts.pop(context.loop, None)
        self._finalizer()

    def disown_parent(self) -> None:
        """Start anew in a forked child: leases, sessions and renewers are the parent's."""
        self._finalizer.detach()
        for context in self._contexts.values():
            context.abandon()
        _parents.extend(self._contexts.values())
        self._start()

    def _context(self, name: str) -> Context:
        """Return the context of the running loop, which is made at first use."""
        if self._pid != os.getpid():  # asked here, without a frame for it
            self._in_this_process()
        try:
            loop = get_running_loop()
        except RuntimeError:
            raise RuntimeError(NO_LOOP) from None
        context = self._contexts.get(loop)
        if context is None:
            if self._closed:
                raise ClientClosed(name)
            for other in list(self._contexts.values()):
                if other.loop.is_closed():
                    self._contexts.pop(other.loop, None)
                    other.close_now()
            context = self._contexts[loop] = Context(
                self._connector, self._namespace, self.label, self._retry_for, release_at_end=self._release_at_exit
            )
        return context

    def _running_context(self) -> Context | None:
        """Return the context of the running loop, if both exist."""
        try:
            return self._contexts.get(get_running_loop())
        except RuntimeError:
            return None

    def _holds(self, token: bytes) -> bool:
        return any(token in context.leases for context in list(self._contexts.values()))

    def _check_open(self, name: str) -> None:
        if self._closed:
            raise ClientClosed(name)

    def _watch(self, attempt: Attempt) -> Watch:
        request = attempt.request
        if (dispatcher := self.events.dispatcher) is not None and attempt.position is not None:
            dispatcher.queued(attempt)
        return Watch(request, attempt.owner.leases, _is_of_running_task, log.own_wait, held=attempt.held)

    def _number(self, task: asyncio.Task[Any] | None) -> int:
        """Return a number for a task: tasks are numbered in the order in which they first acquire; 0 without a task."""
        if task is None:
            return 0
        tasks, key, number = self._tasks, id(task), next(self._numbers)
        tasks[key] = number, weakref.ref(task, lambda _: tasks.pop(key, None))
        return number


def _is_of_running_task(block: object) -> bool:
    """Return whether the running task entered a block, and so leaves it."""
    return block is current_task()


def _close_in(pid: int, contexts: dict[AbstractEventLoop, Context]) -> None:
    """Close the contexts of this process, and not those of the parent."""
    if os.getpid() != pid:
        return
    for context in list(contexts.values()):
        context.close_now()
    contexts.clear()
