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
from contextvars import Context
from typing import Any, TypeVarTuple

from handfast_lab.simulator.isolation import enter
from handfast_lab.simulator.world import Process

__all__ = ["VirtualLoop"]

Ts = TypeVarTuple("Ts")

ROUNDING_S = 1e-10
"""Timers expire this much late, so that rounding never makes one early; asyncio's own loops wait long enough too."""

MAX_TURNS = 10_000
"""Number of turns at one instant after which the loop counts as spinning."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one process. ``lag`` is the longest time between two turns, ``lagging`` how often one takes time.

    ``on_pause`` is called whenever the loop has nothing more to run for the moment, ``on_error`` with each exception that
    nothing in the process handles.
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
        self._process = process
        self._world = process.world
        self._lag = lag
        self._lagging = lagging
        self._on_pause = on_pause
        self._on_error = on_error
        self._ready: deque[asyncio.Handle] = deque()
        self._is_due = False
        """Whether a turn is scheduled, or running."""
        self._closed = False
        self.runs = 0
        """Number of turns that ran a callback."""

    # --- what asyncio and the library call: all that they need of a loop

    def time(self) -> float:
        return self._process.monotonic()

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
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_due:
            self._is_due = True
            self._world.at(self._world.now, self._process.fire, self._turn)
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
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        moment = max(self._world.now, when - self._process.offset + ROUNDING_S)
        self._world.at(moment, self._expire, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the event of a cancelled timer has no effect."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self._on_error(f"{context['message']}: {context.get('exception')!r}")

    def close(self) -> None:
        self._closed = True
        self._ready.clear()

    # --- what the world calls

    def arrive(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback as one that a socket has become ready for."""
        self._ready.append(asyncio.Handle(callback, args, self))
        if not self._is_due:
            self._turn()

    def _expire(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self._process.fire(self._run_timer, handle)

    def _run_timer(self, handle: asyncio.TimerHandle) -> None:
        self._ready.append(handle)
        if not self._is_due:
            self._turn()

    def _turn(self) -> None:
        """Run ready callbacks until none is ready or time passes between two turns."""
        ready, turns = self._ready, 0
        self.runs += 1
        self._is_due = True
        with enter(self._process):
            events._set_running_loop(self)  # noqa: SLF001 -- asyncio offers it to those who write loops
            try:
                while ready:
                    for _ in range(len(ready)):
                        handle = ready.popleft()
                        if not handle._cancelled:  # noqa: SLF001 -- as asyncio's own loops do
                            handle._run()  # noqa: SLF001 -- as asyncio's own loops do
                    turns += 1
                    if turns > MAX_TURNS:
                        raise RuntimeError(f"{MAX_TURNS:,} turns of an event loop at one moment")
                    if ready and self._lagging and self._world.chance() < self._lagging:
                        moment = self._world.now + self._lag * self._world.chance()
                        self._world.at(moment, self._process.fire, self._turn)
                        break
                else:
                    self._is_due = False
            finally:
                events._set_running_loop(None)  # noqa: SLF001 -- as above
            self._on_pause()
