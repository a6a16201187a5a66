"""Many tasks of one event loop, in one process, that contend for locks; and the figures taken from them.

Each task acquires and releases its lock until the end. A task that still waits a little later is cancelled, repeatedly,
because some contenders occasionally swallow a cancellation. If all tasks share one lock they hold it for one turn of
the loop: without an await in between, two tasks could never be observed to hold it at once, however faulty the lock.
"""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any, NamedTuple

from handfast_lab.bench.baseline import Bare
from handfast_lab.bench.baseline_pipeline import Pipeline
from handfast_lab.bench.contenders import HANDFAST, LEASE, TASK_LOCKS
from handfast_lab.bench.figures import DISTINCT, FLOOR, ONE, Notes
from handfast_lab.bench.process_metrics import Counter, take_all_files
from handfast_lab.bench.worker import Job, Start, wait_until
from handfast_lab.bench.workload import Report, Scene, Workload
from handfast_lab.rivals.verbs import AioClient, AioLock

__all__ = ["TaskContention", "TasksJob", "end", "hush", "open_client"]

END_TIMEOUT, CANCEL_AGAIN, CANCEL_TIMEOUT = 0.5, 0.2, 5.0
"""Seconds that tasks may take to end on their own, between two cancellations, and in total after the first."""


class TaskContention(Workload):
    """The tasks of one process contend for one lock, or in the setting `DISTINCT` each for its own."""

    def __init__(self, contenders: Collection[str], setting: str) -> None:
        self.contenders = contenders
        self.limit = 1 if setting == ONE else None
        self._setting = setting

    def jobs(self, scene: Scene) -> Sequence[Job[Report]]:
        return [TasksJob(scene.contender, scene.url, scene.name, self._setting, scene.clients)]


class TasksJob(NamedTuple):
    """Let many tasks contend."""

    contender: str
    url: str
    name: str
    setting: str
    tasks: int

    def do(self, start: Start) -> Report:
        """Contend, and count the connections before the tasks end."""
        take_all_files()
        with Counter(self.url) as counter:
            if self.contender == FLOOR:
                return self._pipeline(start, counter)
            return asyncio.run(self._contend(start, counter))

    @property
    def _own(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.tasks)]

    def _pipeline(self, start: Start, counter: Counter) -> Report:
        bare = Bare(self.url)
        try:
            pipeline = Pipeline(bare, self._own if self.setting == DISTINCT else [self.name] * self.tasks)
            gc.collect()
            schedule = start()
            wait_until(schedule.begin)
            return Report(pipeline.contend(schedule.until), counter.count())
        finally:
            bare.close()

    async def _contend(self, start: Start, counter: Counter) -> Report:
        hush(self.contender)
        async with open_client(self.contender, self.url, self.tasks) as client:
            locks = [client.lock(name, LEASE) for name in self._own]
            await asyncio.gather(*map(_once, locks))  # to open connections and load scripts
            if self.setting == ONE:
                locks = [client.lock(self.name, LEASE) for _ in locks]
            notes = [Notes(0, array("d"), array("d")) for _ in locks]
            gc.collect()
            schedule = start()
            await asyncio.sleep(schedule.begin - monotonic())
            tasks = [
                asyncio.create_task(_contend(own, note, schedule.until, pause=self.setting == ONE))
                for own, note in zip(locks, notes, strict=True)
            ]
            try:
                await _watch(tasks, schedule.until)
                return Report(notes, counter.count())
            finally:
                await end(tasks)


def open_client(contender: str, url: str, tasks: int) -> AbstractAsyncContextManager[AioClient]:
    """Open a client with enough connections for each task to wait on one and release with another."""
    opening = TASK_LOCKS[contender].aio
    if opening is None:
        raise TypeError(f"{contender} has no asyncio API")
    return opening(url, 2 * tasks + 10)


def hush(contender: str) -> None:
    """Silence the loop's exception handler for rivals.

    Their tasks and callbacks leave unhandled errors when they are ended.
    """
    if contender != HANDFAST:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)


async def _once(own: AioLock) -> None:
    await own.acquire()
    await own.release()


async def _contend(own: AioLock, notes: Notes, until: float, *, pause: bool) -> None:
    acquire, release = own.acquire, own.release
    acquired, released = notes.succeeded, notes.released
    while monotonic() < until:
        await acquire()
        moment = monotonic()
        if pause:
            await asyncio.sleep(0)
        acquired.append(moment)
        released.append(monotonic())
        await release()


async def _watch(tasks: Sequence[asyncio.Task[None]], until: float) -> None:
    """Let the tasks run until then, but raise the error of the first that fails."""
    done, _ = await asyncio.wait(tasks, timeout=until - monotonic(), return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        await task


async def end(tasks: Iterable[asyncio.Future[Any]], timeout: float = END_TIMEOUT) -> None:
    """Let the tasks end within ``timeout`` seconds, then cancel them. Raises TimeoutError if they ignore that."""
    done, pending = await asyncio.wait(tasks, timeout=timeout)
    give_up_at = monotonic() + CANCEL_TIMEOUT
    while pending:
        if monotonic() >= give_up_at:
            raise TimeoutError(
                f"{len(pending)} tasks had not ended {CANCEL_TIMEOUT:g} s after they were cancelled first"
            )
        for task in pending:
            task.cancel()
        ended, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN)
        done |= ended
    for task in done:
        _ = task.cancelled() or task.exception()  # retrieve it: asyncio logs exceptions that are never retrieved
