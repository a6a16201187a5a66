"""An asyncio event loop in virtual time: the tasks and futures are asyncio's own, the clock and the timers are the world's.

A callback takes no time. Between two turns of the loop some time may pass, drawn from the world's random numbers: what
arrives then comes between a callback and those that it has scheduled, as it may on a busy machine. The loop of a frozen
process does not run while time passes; the loop of a dead one never runs again.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeVarTuple

from handfast_lab.simulator.world import Process

__all__ = ["VirtualLoop"]

Ts = TypeVarTuple("Ts")

ROUNDING_S = 1e-10
"""Timers expire this much late, so that rounding never makes one early; asyncio's own loops wait long enough too."""

MAX_TURNS = 10_000
"""Number of turns at one instant after which the loop counts as spinning."""


def _nothing() -> None:
    """Stand for the callback of a handle that was cancelled."""


class _Handle(asyncio.TimerHandle):
    """A scheduled callback: asyncio's handle without its support of debugging, since there are hundreds in a schedule."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._callback, self._args = callback, args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one process.

    ``lag`` is the longest time between two turns, ``lagging`` how often one takes time.

    ``on_pause`` is called whenever the loop has nothing more to run for the moment, ``on_error`` with each exception
    that nothing in the process handles.
    """

    def __init__(
        self,
        process: Process,
        *,
        lag: float = 0.0,
        lagging: float = 0.0,
        on_pause: Callable[[], object] = lambda: None,
        on_error: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.process = process
        self._world = process.world
        self._lag = lag
        self._lagging = lagging
        self._on_pause = on_pause
        self._on_error = on_error
        self._ready: deque[_Handle] = deque()
        self._is_due = False
        """Whether a turn is scheduled, or running."""
        self._closed = False
        self.runs = 0
        """Number of turns that ran a callback."""

    # --- what asyncio and the library call: all that they need of a loop

    def time(self) -> float:
        return self.process.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self  # noqa: SLF001 -- asyncio offers it to those who write loops

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        if self._closed:
            coro.close()
        return asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        if not self._is_due:
            self._is_due = True
            self._world.at(self._world.now, self.process.fire, self._turn)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(callback, args, context)
        moment = max(self._world.now, when - self.process.offset + ROUNDING_S)
        self._world.at(moment, self.process.fire, self._expire, handle)
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self._on_error(f"{context['message']}: {context.get('exception')!r}")

    def close(self) -> None:
        self._closed = True
        self._ready.clear()

    # --- what the world calls

    def arrive(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback as one that a socket has become ready for."""
        self._ready.append(_Handle(callback, args, None))
        if not self._is_due:
            self._turn()

    def _expire(self, handle: _Handle) -> None:
        if not handle._cancelled:  # noqa: SLF001 -- as asyncio's own loops do
            self._ready.append(handle)
            if not self._is_due:
                self._turn()

    def _turn(self) -> None:
        """Run ready callbacks until none is ready or time passes between two turns."""
        ready, turns = self._ready, 0
        self.runs += 1
        self._is_due = True
        events._set_running_loop(self)  # noqa: SLF001 -- asyncio offers it to those who write loops
        try:
            while ready:
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    if handle._cancelled:  # noqa: SLF001 -- as asyncio's own loops do
                        continue
                    try:
                        handle._context.run(handle._callback, *handle._args)  # noqa: SLF001 -- as above
                    except Exception as error:  # noqa: BLE001 -- as above: the loop goes on
                        self.call_exception_handler({"message": "Exception in callback", "exception": error})
                turns += 1
                if turns > MAX_TURNS:
                    raise RuntimeError(f"{MAX_TURNS:,} turns of an event loop at one moment")
                if ready and self._lagging and self._world.chance() < self._lagging:
                    moment = self._world.now + self._lag * self._world.chance()
                    self._world.at(moment, self.process.fire, self._turn)
                    break
            else:
                self._is_due = False
        finally:
            events._set_running_loop(None)  # noqa: SLF001 -- as above
        self._on_pause()
