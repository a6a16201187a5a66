"""Stops code at every place where it can be stopped, one run after the other, so that a test can see what was left behind.

A coroutine can be cancelled wherever it really suspends. `cancel_everywhere` runs it afresh for each of these suspensions:

    async for run in cancel_everywhere(lambda: transfer(client)):
        assert await is_consistent(client), run

Other code can be interrupted nearly anywhere, by a Ctrl-C or by a signal handler that raises. `interrupt_everywhere` does the
same for that:

    for run in interrupt_everywhere(lambda: transfer(client), within=bank):
        assert is_consistent(client), run

All in here strikes in the thread that calls it, and in no other.
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
"""The code that may be struck: modules, packages with all that is in them, files, folders; one or several."""

Points = Literal["signals", "bytecodes"]
"""Where an interrupt may strike.

    signals    where CPython itself lets a signal handler run: at the start of every function, at the end of every call of
               one that is written in C, and within those that wait
    bytecodes  before every single instruction: stricter than any signal is, as between the return of ``__enter__`` and
               the block, which nobody can guard
"""

_BLOCKING = frozenset(
    {"accept", "acquire", "connect", "poll", "recv", "recv_into", "select", "send", "sendall", "sleep"}
)
"""Functions in C that a signal ends while they wait, before they have done anything."""

RETRY_FOR = 30.0
"""Seconds after which a coroutine that was cancelled has to have ended."""


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """What came of one run that was to be struck."""

    steps: tuple[int, ...]
    """Where it was to be struck: numbers of its suspensions or points, counted from 1."""
    struck: int
    """How many of these it reached."""
    reached: int
    """How many suspensions or points there were in all, up to the end or to the interrupt."""
    how: Literal["stopped", "finished", "failed"]
    """``stopped`` by the cancellation or interrupt; or it gave a result all the same, or another error."""
    result: T | None = None
    error: BaseException | None = None
    """What it raised, if anything."""
    place: str | None = None
    """Where an interrupt struck: file, line and function."""


# --- coroutines


class Stepper(Generic[T]):
    """Drives an awaitable by hand, and is awaited in its place.

    ``before`` is called ahead of each step with the number of the suspension that may end it, counted from 1; ``at`` at each
    suspension with its number and the future that is waited for, or None where the turn is only passed on.
    """

    def __init__(
        self,
        awaitable: Awaitable[T],
        *,
        before: Callable[[int], object] = lambda _number: None,
        at: Callable[[int, asyncio.Future[Any] | None], object] = lambda _number, _future: None,
    ) -> None:
        self.suspensions = 0
        """How often it suspended so far."""
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
            except BaseException as error:  # noqa: BLE001 -- whatever comes is the awaitable's
                step = partial(_throw, steps, error)
            else:
                step = partial(next, steps)


async def cancel_at(
    make: Callable[[], Coroutine[Any, Any, T]], *steps: int, when: Literal["suspended", "ready"] = "suspended"
) -> Run[T]:
    """Run a coroutine in a task of its own, and cancel it at these suspensions.

    ``make`` makes the coroutine. ``suspended`` cancels as soon as it suspends; ``ready`` when what it waits for is there and
    it is about to go on, so that the two race. With several steps, a coroutine that is cleaning up is cancelled again.

    Raises ValueError for steps that are not positive and rising, and TimeoutError when it has not ended 30 s later.
    """
    if any(step < 1 for step in steps) or sorted(set(steps)) != list(steps):
        raise ValueError(f"suspensions are counted from 1, and each is given once, in their order, not {steps!r}")
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
            future.add_done_callback(lambda _: strike())  # comes before the task's own
        else:
            asyncio.get_running_loop().call_soon(strike)

    async def drive() -> T:
        return await stepper

    stepper = Stepper(make(), at=at)
    task = asyncio.create_task(drive())
    try:
        done, _ = await asyncio.wait((task,), timeout=RETRY_FOR)
        if not done:
            raise TimeoutError(f"it has not ended {RETRY_FOR:g} s after it was cancelled at {steps}")
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
    """Run a coroutine again and again, cancelled at its first suspension, at its second, and so on: one `Run` for each.

    The last one is a run that ended before it was struck. With ``twice``, each run that goes on after its cancellation is
    followed by runs that are cancelled a second time, at each of those suspensions. ``make`` and ``when`` as in
    `cancel_at`; ``both`` strikes at every suspension in either way.
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


class _Armed:
    """A thread's harness at work. Others within it are not expected."""

    def __init__(self) -> None:
        self.armed = True


_at_work = threading.local()


def calm() -> None:
    """Called by code that is being interrupted: from here on it is left in peace, for the rest of this run.

    Some places cannot be guarded in Python, such as the very beginning of an ``__exit__``. Where no harness is at work it does
    nothing.
    """
    harness: _Armed | None = getattr(_at_work, "harness", None)
    if harness is not None:
        harness.armed = False


def interrupt_at(
    call: Callable[[], T],
    step: int,
    *,
    within: Within,
    points: Points = "signals",
    exception: type[BaseException] = KeyboardInterrupt,
) -> Run[T]:
    """Call something and raise ``exception`` in it, at that point of all that it passes in the code ``within``.

    Where it ends before, the run was not struck, and tells how many points there are. Raises ValueError for a step that is
    not positive and for code that is nowhere.
    """
    if step < 1:
        raise ValueError(f"points are counted from 1, not {step!r}")
    prefixes = tuple(_prefixes(within))
    harness = _Armed()
    reached, place = 0, None

    def is_within(frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return file.startswith(prefixes) and file != __file__

    def pass_point(frame: FrameType) -> None:
        nonlocal reached, place
        if harness.armed:
            reached += 1
            if reached == step:
                harness.armed = False
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
            frame.f_trace, frame.f_trace_lines = trace, False  # 3.13 asks a frame for its function before its opcodes
            frame.f_trace_opcodes = True
        elif event == "call":
            return None
        return trace

    before: Any
    install: Callable[[Any], None]
    before, install = (sys.getprofile(), sys.setprofile) if points == "signals" else (sys.gettrace(), sys.settrace)
    sys._getframe().f_trace_opcodes = points == "bytecodes"  # noqa: SLF001 -- 3.12 looks at this when it is installed
    with _at_work_as(harness), _no_strangers_finalized():
        install(profile if points == "signals" else trace)
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 -- it is told of
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
    """Call something again and again, interrupted at its first point, at its second, and so on: one `Run` for each.

    The last one is a run that ended before it was struck. ``every`` leaves out all but each so many-th point. The rest as in
    `interrupt_at`.
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
    """Call something and have a signal (SIGALRM) raise ``exception`` in it after so many seconds, wherever it is by then.

    In contrast to the others this strikes within a blocking call as well. It works in the main thread only. Raises ValueError
    for a time that is not positive, and in any other thread.
    """
    if not seconds > 0:
        raise ValueError(f"it can be interrupted after more than 0 s, not {seconds!r}")
    harness = _Armed()
    place = None

    def strike(_number: int, frame: FrameType | None) -> None:
        nonlocal place
        if harness.armed:
            harness.armed = False
            place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}" if frame else "nowhere"
            raise exception

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with _at_work_as(harness):
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                result = call()
                harness.armed = False
            except BaseException as error:  # noqa: BLE001 -- it is told of
                harness.armed = False
                how: Literal["stopped", "failed"] = "stopped" if place and isinstance(error, exception) else "failed"
                return Run((1,), int(place is not None), 1, how, None, error, place)
            return Run((1,), 0, 0, "finished", result)
    finally:
        harness.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _at_work_as(harness: _Armed) -> Iterator[None]:
    outer = getattr(_at_work, "harness", None)
    _at_work.harness = harness
    try:
        yield
    finally:
        _at_work.harness = outer


@contextlib.contextmanager
def _no_strangers_finalized() -> Iterator[None]:
    """Let no garbage be collected: an interrupt in a finalizer is only printed, and it would be that of anybody's garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _prefixes(within: Within) -> Iterator[str]:
    """How the names of the files begin whose code may be struck."""
    several = [within] if isinstance(within, ModuleType | str | Path) else list(within)
    if not several:
        raise ValueError("name the code that may be interrupted: a module, a package, a file or a folder")
    for one in several:
        if isinstance(one, ModuleType):
            folders = list(getattr(one, "__path__", ()))
            file = getattr(one, "__file__", None)
            if not folders and file is None:
                raise ValueError(f"{one.__name__} is not written in Python: nothing within it can be interrupted")
            yield from (f"{folder}/" for folder in folders)
            if not folders:
                yield str(file)
        else:
            path = Path(one).absolute()
            if not path.exists():
                raise ValueError(f"there is no file or folder {one!s}")
            yield f"{path}/" if path.is_dir() else str(path)
