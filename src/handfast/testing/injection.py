"""Stop code at every point where it can be stopped, one run per point, so a test can check the state left behind.

A coroutine can be cancelled wherever it suspends. `cancel_everywhere` runs it once for each suspension:

    async for run in cancel_everywhere(lambda: transfer(client)):
        assert await is_consistent(client), run

Other code can be interrupted nearly anywhere, by Ctrl-C or by a raising signal handler. `interrupt_everywhere` runs
it once for each of these points:

    for run in interrupt_everywhere(lambda: transfer(client), within=bank):
        assert is_consistent(client), run

All functions here act on the calling thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

__all__ = [
    "Points",
    "Run",
    "Stepper",
    "Within",
    "calm",
    "cancel_at",
    "cancel_everywhere",
    "interrupt_after",
    "interrupt_at",
    "interrupt_everywhere",
]

T = TypeVar("T")

Within: TypeAlias = ModuleType | str | Path | Iterable[ModuleType | str | Path]
"""The code that may be interrupted: modules, packages with their submodules, files, folders; one or several."""

Points: TypeAlias = Literal["signals", "bytecodes"]
"""Where an interrupt may happen.

    signals    where CPython runs signal handlers: at the start of every function, at the end of every call of a function
               written in C, and within the C functions that wait
    bytecodes  before every instruction. This is stricter than any signal, since no code can guard itself between the
               return of ``__enter__`` and the first instruction of the block, for example
"""

_BLOCKING = frozenset(
    {"accept", "acquire", "connect", "poll", "recv", "recv_into", "select", "send", "sendall", "sleep"}
)
"""C functions that a signal interrupts while they wait, before they have done anything."""

END_TIMEOUT_S = 30.0
"""How long, in seconds, a cancelled coroutine may take to end."""


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """The outcome of a run to be stopped.

    Attributes:
        steps: Where it was to be stopped: numbers of suspensions or points, counted from 1.
        struck: How many of these it reached.
        reached: How many suspensions or points it passed in all, up to the run's end or to the interrupt.
        how: ``"stopped"`` by the cancellation or interrupt, ``"finished"`` with a result, or ``"failed"`` with another
            error.
        result: The returned value, if it finished.
        error: The raised exception, if any.
        place: Where an interrupt happened: file, line and function.

    """

    steps: tuple[int, ...]
    struck: int
    reached: int
    how: Literal["stopped", "finished", "failed"]
    result: T | None = None
    error: BaseException | None = None
    place: str | None = None


# --- coroutines


class Stepper(Generic[T]):
    """Awaits an awaitable step by step. Await the stepper in place of the awaitable.

    Args:
        awaitable: The awaitable to run.
        before: Called before each step with the number of the suspension that may end it, counted from 1.
        at: Called at each suspension with the number and the awaited future; None for a bare ``yield`` to the
            loop.

    Attributes:
        suspensions: How often the awaitable has suspended so far.

    """

    def __init__(
        self,
        awaitable: Awaitable[T],
        *,
        before: Callable[[int], object] = lambda _number: None,
        at: Callable[[int, asyncio.Future[Any] | None], object] = lambda _number, _future: None,
    ) -> None:
        self.suspensions: int = 0
        self._awaitable = awaitable
        self._before = before
        self._at = at

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaitable.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            self._before(self.suspensions + 1)
            try:
                future = step()
            except StopIteration as end:
                result: T = end.value
                return result
            self.suspensions += 1
            self._at(self.suspensions, future)
            try:
                yield future
            except BaseException as error:  # noqa: BLE001 -- forwarded to the awaitable
                step = partial(_throw, steps, error)
            else:
                step = partial(next, steps)


async def cancel_at(
    make: Callable[[], Coroutine[Any, Any, T]], *steps: int, when: Literal["suspended", "ready"] = "suspended"
) -> Run[T]:
    """Run a coroutine in a separate task and cancel it at the given suspensions.

    Args:
        make: Makes the coroutine.
        steps: Numbers of suspensions, counted from 1, in rising order. With several, the coroutine is cancelled again
            while it handles the earlier cancellation.
        when: ``"suspended"`` cancels as soon as it suspends; ``"ready"`` when the awaited future is done and the
            coroutine is about to continue, so the two race.

    Returns:
        The outcome of the run.

    Raises:
        ValueError: The steps are not positive and rising.
        TimeoutError: The coroutine has not ended after 30 s.

    """
    if any(step < 1 for step in steps) or sorted(set(steps)) != list(steps):
        raise ValueError(f"steps are numbers of suspensions, counted from 1, in rising order, not {steps!r}")
    struck = 0

    def strike() -> None:
        nonlocal struck
        struck += 1
        task.cancel()

    def at(number: int, future: asyncio.Future[Any] | None) -> None:
        if number not in steps:
            return
        if when == "suspended":
            strike()
        elif future is not None:
            future.add_done_callback(lambda _: strike())  # runs before the task's own callback
        else:
            asyncio.get_running_loop().call_soon(strike)

    async def drive() -> T:
        return await stepper

    stepper = Stepper(make(), at=at)
    task = asyncio.create_task(drive())
    try:
        done, _ = await asyncio.wait((task,), timeout=END_TIMEOUT_S)
        if not done:
            raise TimeoutError(f"the coroutine, cancelled at {steps}, has not ended after {END_TIMEOUT_S:g} s")
    finally:
        if not task.done():
            task.cancel()
    if task.cancelled():
        return Run(steps, struck, stepper.suspensions, "stopped")
    error = task.exception()
    how: Literal["finished", "failed"] = "failed" if error is not None else "finished"
    return Run(steps, struck, stepper.suspensions, how, None if error is not None else task.result(), error)


async def cancel_everywhere(
    make: Callable[[], Coroutine[Any, Any, T]],
    *,
    when: Literal["suspended", "ready", "both"] = "both",
    twice: bool = False,
) -> AsyncIterator[Run[T]]:
    """Run a coroutine repeatedly, cancelled at the first suspension, then at the second, and so on.

    Args:
        make: Makes the coroutine, once for each run.
        when: As in `cancel_at`; ``"both"`` makes a run of either kind for each suspension.
        twice: After each run that suspends again after the cancellation, add runs cancelled a second time, at
            each of those suspensions.

    Yields:
        A `Run` for each run. The last run ended before it reached the step.

    Raises:
        TimeoutError: A cancelled run has not ended after 30 s.

    """
    ways: tuple[Literal["suspended", "ready"], ...] = ("suspended", "ready") if when == "both" else (when,)
    first, struck = 1, True
    while struck:
        for way in ways:
            run = await cancel_at(make, first, when=way)
            struck = bool(run.struck)
            yield run
            if not struck:
                break
            if twice:
                for second in range(first + 1, run.reached + 1):
                    yield await cancel_at(make, first, second, when=way)
        first += 1


def _throw(steps: Iterator[Any], error: BaseException) -> Any:
    if isinstance(steps, Generator) or hasattr(steps, "throw"):
        return steps.throw(error)
    raise error  # a future of asyncio's own, which has nothing to clean up


# --- interrupts


class _Injector:
    """The active injector of a thread. They are not nested."""

    def __init__(self) -> None:
        self.armed = True


_active = threading.local()


def calm() -> None:
    """Let the rest of the current run pass without an interrupt. Called by the code under test.

    Some places cannot be guarded in Python, such as the first instructions of an ``__exit__``. Does nothing outside of
    `interrupt_at`, `interrupt_everywhere` and `interrupt_after`.
    """
    injector: _Injector | None = getattr(_active, "injector", None)
    if injector is not None:
        injector.armed = False


def interrupt_at(
    call: Callable[[], T],
    step: int,
    *,
    within: Within,
    points: Points = "signals",
    exception: type[BaseException] = KeyboardInterrupt,
) -> Run[T]:
    """Call a function and raise an exception in it at the given point.

    Args:
        call: The function, called without arguments.
        step: Number of the point, counted from 1 over all points passed by the call in the code ``within``.
        within: The code open to interrupts.
        points: Which points count; see `Points`.
        exception: The exception raised there.

    Returns:
        The outcome of the run. If the call ended before the point, ``struck`` is 0 and ``reached`` the number of
        points.

    Raises:
        ValueError: ``step`` is not positive, or ``within`` names no Python code.

    """
    if step < 1:
        raise ValueError(f"points are counted from 1, not {step!r}")
    prefixes = tuple(_prefixes(within))
    injector = _Injector()
    reached, place = 0, None

    def is_within(frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return file.startswith(prefixes) and file != __file__

    def pass_point(frame: FrameType) -> None:
        nonlocal reached, place
        if injector.armed:
            reached += 1
            if reached == step:
                injector.armed = False
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
                raise exception

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "return" or (event == "c_call" and getattr(called, "__name__", "") not in _BLOCKING):
            return
        if is_within(frame):
            pass_point(frame)

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            pass_point(frame)
        elif event == "call" and is_within(frame):
            frame.f_trace, frame.f_trace_lines = trace, False  # 3.13 needs f_trace before f_trace_opcodes
            frame.f_trace_opcodes = True
        elif event == "call":
            return None
        return trace

    before: Any
    install: Callable[[Any], None]
    before, install = (sys.getprofile(), sys.setprofile) if points == "signals" else (sys.gettrace(), sys.settrace)
    sys._getframe().f_trace_opcodes = points == "bytecodes"  # noqa: SLF001 -- 3.12 reads this when settrace is called
    with _activated(injector), _gc_disabled():
        install(profile if points == "signals" else trace)
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 -- it is in the Run
            how: Literal["stopped", "failed"] = "stopped" if place and isinstance(error, exception) else "failed"
            return Run((step,), int(place is not None), reached, how, None, error, place)
        finally:
            install(before)
    return Run((step,), int(place is not None), reached, "finished", result, None, place)


def interrupt_everywhere(
    call: Callable[[], T],
    *,
    within: Within,
    points: Points = "signals",
    exception: type[BaseException] = KeyboardInterrupt,
    every: int = 1,
) -> Iterator[Run[T]]:
    """Call a function repeatedly, interrupted at the first point, then at the second, and so on.

    Args:
        call: The function, called without arguments once for each run.
        within: The code open to interrupts.
        points: Which points count; see `Points`.
        exception: The exception raised there.
        every: Distance between the points of two runs; more than 1 skips points, for long calls.

    Yields:
        A `Run` for each run. The last run ended before it reached the step.

    Raises:
        ValueError: ``every`` is not positive, or ``within`` names no Python code.

    """
    if every < 1:
        raise ValueError(f"every must be at least 1, not {every!r}")
    step, struck = 1, True
    while struck:
        run = interrupt_at(call, step, within=within, points=points, exception=exception)
        struck = bool(run.struck)
        yield run
        step += every


def interrupt_after(
    call: Callable[[], T], seconds: float, *, exception: type[BaseException] = KeyboardInterrupt
) -> Run[T]:
    """Call a function and raise an exception in it by a signal (SIGALRM) after some time, wherever it is by then.

    In contrast to `interrupt_at`, this interrupts blocking calls too. Works in the main thread only.

    Args:
        call: The function, called without arguments.
        seconds: When the signal arrives; more than 0.
        exception: The exception raised by the signal's handler.

    Returns:
        The outcome of the run.

    Raises:
        ValueError: ``seconds`` is not positive, or this is not the main thread.

    """
    if not seconds > 0:
        raise ValueError(f"seconds must be more than 0, not {seconds!r}")
    injector = _Injector()
    place = None

    def strike(_number: int, frame: FrameType | None) -> None:
        nonlocal place
        if injector.armed:
            injector.armed = False
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}" if frame else "nowhere"
            raise exception

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with _activated(injector):
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                result = call()
                injector.armed = False
            except BaseException as error:  # noqa: BLE001 -- it is in the Run
                injector.armed = False
                how: Literal["stopped", "failed"] = "stopped" if place and isinstance(error, exception) else "failed"
                return Run((1,), int(place is not None), 1, how, None, error, place)
            return Run((1,), 0, 0, "finished", result)
    finally:
        injector.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _activated(injector: _Injector) -> Iterator[None]:
    outer = getattr(_active, "injector", None)
    _active.injector = injector
    try:
        yield
    finally:
        _active.injector = outer


@contextlib.contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable garbage collection: an interrupt in a finalizer, perhaps of unrelated garbage, would only be printed."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _prefixes(within: Within) -> Iterator[str]:
    """Yield the prefixes of the names of the files open to interrupts."""
    several = [within] if isinstance(within, ModuleType | str | Path) else list(within)
    if not several:
        raise ValueError("name the code that may be interrupted: a module, a package, a file or a folder")
    for one in several:
        if isinstance(one, ModuleType):
            # A namespace package has folders and no file; a package has its own file in its folder.
            folders = list(getattr(one, "__path__", ()))
            file = getattr(one, "__file__", None)
            if not folders and file is None:
                raise ValueError(f"{one.__name__} is not written in Python: nothing within it can be interrupted")
            # With a slash, so that another package whose name begins alike is not open to interrupts.
            yield from (f"{folder}/" for folder in folders)
            if not folders:
                yield str(file)
        else:
            path = Path(one).absolute()
            if not path.exists():
                raise ValueError(f"there is no file or folder {one!s}")
            yield f"{path}/" if path.is_dir() else str(path)
