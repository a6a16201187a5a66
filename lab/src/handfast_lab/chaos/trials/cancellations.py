"""R8: cancel a task at each of its awaits, in every operation, and at random moments.

An operation is run repeatedly and cancelled at its first suspension, at its second, and so on. Each suspension is tried
in two ways: when the operation suspends, and when the awaited result is ready and the operation is about to resume.
Operations of Handfast are also cancelled a second time, at each suspension after the first cancellation, while they
clean up. A cancelled release is not called again, because its task has ended.

After everything else has been released, no holder and no waiter may remain. The same client must then answer new calls
correctly: a connection returned to the pool with a pending reply would give that reply to another call. No task may be
left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from typing import Any, Literal, NamedTuple

import redis

from handfast import AsyncHandfast
from handfast.testing import ServerController
from handfast.testing.injection import Run, cancel_at
from handfast_lab.chaos.apis import APIS, log_silenced, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.operations import RETRY_FOR, OperationKind, Operations, second
from handfast_lab.chaos.rival_operations import async_operations
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals import is_left
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R8",)
COUNT = 5_000
"""Cancellations at random moments. The cancellations at every suspension are as many as there are suspensions."""

TTL = 30.0
"""Lease duration for Handfast, in seconds."""

EACH = 10
"""Rough number of cancellations per operation, used to skip operations when few cancellations are wanted."""

TIMES = 3
"""Runs that must end before the n-th suspension until the operation is taken to have fewer than n."""

LONGEST = 0.002
"""Latest moment of a random cancellation, in seconds after the start."""

HANDOFF = 0.003
"""Seconds after which another client releases the lock that the operation waits for."""

WAIT = 0.01
"""Timeout of Handfast's acquire while another client holds the lock, in seconds."""

REST, RIVALS_REST = 1.0, 0.2
"""Seconds that background cleanup may take, for Handfast and for rivals. Rivals clean up less and leave more behind."""

Way = Literal["suspended", "ready"]
WAYS: tuple[Way, ...] = ("suspended", "ready")


def applies(contender: Contender) -> bool:
    """Return True if the contender has an asyncio API: a thread cannot be cancelled."""
    return contender.aio is not None


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Cancel at every await, then `count` times at random."""
    with ServerController() as server, log_silenced():
        return asyncio.run(_cancel(contender, server, count, seed, progress))


async def _cancel(
    contender: Contender, server: ServerController, count: int, seed: int, progress: Progress
) -> list[Figure]:
    everywhere, at_random = (_Cancellations(contender, server.admin, progress, server) for _ in range(2))
    await everywhere.everywhere(count)
    await at_random.at_random(count, random.Random(seed))  # noqa: S311 -- timing, not security
    return [everywhere.figure("cancel at every await", seed), at_random.figure("cancel at random", seed)]


class _Setup(NamedTuple):
    """Two clients, and the operations that use them."""

    operations: list[OperationKind]
    check: Callable[[str], Awaitable[str]]
    """Make a few calls on a free name. Return what was wrong with the answers, or an empty string."""
    close: Callable[[], Awaitable[object]]


@dataclass
class _Cancellations:
    """Runs operations of a contender, each on a name of its own, and cancels them."""

    contender: Contender
    admin: redis.Redis
    progress: Progress
    server: ServerController
    struck: int = 0
    """How often an operation was cancelled before its end."""
    finished: int = 0
    """Cancellations that came too late: the operation ended by itself."""
    awaits: dict[str, int] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """Wrong answers afterwards."""
    tasks: list[str] = field(default_factory=list)
    connections: int = 0
    _setup: _Setup | None = None

    def __post_init__(self) -> None:
        self.api = APIS["asyncio"]
        self._numbers = counting()

    async def everywhere(self, most: int) -> None:
        """Cancel at every suspension of every operation. If `most` is small, some operations are skipped."""
        operations = len((await self._ready()).operations)
        for number in range(0, operations, max(1, operations * EACH // most)):
            await self._cancel_operation(number)
        await self._close()

    async def at_random(self, count: int, chance: random.Random) -> None:
        """Cancel at random moments until `count` cancellations have taken effect."""
        operations = len((await self._ready()).operations)
        while self.struck < count:
            await self._cancel(chance.randrange(operations), partial(_cancel_after, seconds=chance.uniform(0, LONGEST)))
        await self._close()

    async def _cancel_operation(self, number: int) -> None:
        """Cancel an operation at each of its suspensions."""
        for first in counting(1):
            for way in WAYS:
                for _ in range(TIMES):  # a run with fewer suspensions may only have had quick replies
                    run = await self._cancel(number, partial(_cancel_at, steps=(first,), way=way))
                    if run.struck:
                        break
                if not run.struck:
                    self.awaits[(await self._ready()).operations[number].name] = first - 1
                    return
                for again in range(first + 1, run.reached + 1) if self.contender.is_ours else ():
                    await self._cancel(number, partial(_cancel_at, steps=(first, again), way=way))

    async def _cancel(self, number: int, stop: Callable[[Callable[[], Any]], Awaitable[Run[Any]]]) -> Run[Any]:
        """Run an operation once, with clients that nothing is left of, and check what it leaves."""
        operation = (await self._ready()).operations[number]
        name, run = await self._run(operation, stop)
        self.finished += bool(run.struck) and run.how != "stopped"
        await self._check(name, f"{operation.name}, at {', '.join(map(str, run.steps)) or 'random'}")
        self.progress(self.struck)
        return run

    async def _run(
        self, operation: OperationKind, stop: Callable[[Callable[[], Any]], Awaitable[Run[Any]]]
    ) -> tuple[str, Run[Any]]:
        """Run an operation, stop it by `stop`, and undo what it has done. Return its name and the outcome."""
        name = self._new_name()
        call = await operation.prepare(name)
        run = await stop(call.make)
        with contextlib.suppress(Exception):  # a contender may raise anything; only leftovers count
            await asyncio.wait_for(settled(call.undo(run.result)), RETRY_FOR)
        self.struck += bool(run.struck)
        for _ in range(2):  # requests sent before are executed by the time of the second reply
            self.admin.ping()
        return name, run

    def _new_name(self) -> str:
        """Return a name that nothing has used."""
        return f"stopped-{next(self._numbers)}"

    def _is_left(self, name: str) -> bool:
        """Return whether the name, or the one locked together with it, has a holder or a waiter."""
        return any(is_left(self.contender, self.admin, each) for each in (name, second(name)))

    async def _check(self, name: str, where: str) -> None:
        """Record what the operation left behind. Clients that left something are replaced."""
        rest = REST if self.contender.is_ours else RIVALS_REST
        leftovers = len(self.orphans + self.tasks + self.answers)
        if not await self.api.eventually(lambda: not self._is_left(name), rest):
            self.orphans.append(f"{where}: a holder or a waiter without a task")
        if not await self.api.eventually(lambda: len(asyncio.all_tasks()) <= self._known_tasks, rest):
            self.tasks.append(f"{where}: {len(asyncio.all_tasks()) - self._known_tasks} tasks go on")
        if wrong := await self._wrong_answers():
            self.answers.append(f"{where}: {wrong}")
        if len(self.orphans + self.tasks + self.answers) > leftovers:
            await self._close()

    async def _wrong_answers(self) -> str:
        try:
            return await asyncio.wait_for((await self._ready()).check(self._new_name()), RETRY_FOR)
        except Exception as error:  # noqa: BLE001 -- a contender may raise anything
            return f"the next call raised {error!r}"

    async def _ready(self) -> _Setup:
        """Return clients that ran each operation once, so that connections, scripts and tasks exist."""
        if self._setup is None:
            self.admin.flushall()
            setup = await (_our_setup if self.contender.is_ours else _rival_setup)(self.contender, self.server)
            for operation in setup.operations:
                await self._run(operation, partial(_cancel_at, steps=(), way="suspended"))
            if wrong := await setup.check(self._new_name()):
                raise RuntimeError(f"{self.contender.name} does not work: {wrong}")
            self._setup = setup
            self._known_tasks = len(asyncio.all_tasks())
            self._known_connections = len(self.admin.client_list())
        return self._setup

    async def _close(self) -> None:
        if self._setup is not None:
            self.connections += max(0, len(self.admin.client_list()) - self._known_connections)
            setup, self._setup = self._setup, None
            with contextlib.suppress(Exception):
                async with asyncio.timeout(RETRY_FOR):  # within this task: some rivals require it
                    await setup.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    def figure(self, what: str, seed: int) -> Figure:
        """Return the figure."""
        wrong = [*self.orphans, *self.answers, *self.tasks]
        return Figure(
            id="R8",
            what=what,
            contender=self.contender.name,
            tried=self.struck,
            bad=len(wrong),
            unit="leaks",
            measured={
                **({"awaits in all": sum(self.awaits.values())} if self.awaits else {}),
                "orphans": len(self.orphans),
                "wrong answers afterwards": len(self.answers),
                "tasks left": len(self.tasks),
                "connections left": self.connections,
                "too late": self.finished,
            },
            seed=seed,
            examples=examples_of(wrong),
            details={f"awaits in {name}": number for name, number in self.awaits.items()},
        )


async def _cancel_at(make: Callable[[], Any], steps: tuple[int, ...], way: Way) -> Run[Any]:
    return await cancel_at(make, *steps, when=way)


async def _cancel_after(make: Callable[[], Any], seconds: float) -> Run[Any]:
    task = asyncio.ensure_future(make())
    struck: list[bool] = []
    timer = asyncio.get_running_loop().call_later(seconds, lambda: struck.append(task.cancel()))
    await asyncio.wait((task,), timeout=RETRY_FOR)
    timer.cancel()
    if not task.done():
        task.cancel()
        return Run((), sum(struck), 0, "failed")
    if task.cancelled():
        return Run((), sum(struck), 0, "stopped")
    error = task.exception()
    return Run((), sum(struck), 0, "failed" if error else "finished", None if error else task.result(), error)


async def _our_setup(_contender: Contender, server: ServerController) -> _Setup:
    mine, other = AsyncHandfast(server.url), AsyncHandfast(server.url)

    async def close() -> None:
        await mine.close()
        await other.close()

    async def check(name: str) -> str:
        lock = mine.lock(name)
        lease = await lock.try_acquire()
        answers = lease is not None, await lock.try_acquire() is None, lease is not None and await lease.release()
        return "" if all(answers) else f"the answers were {answers}"

    return _Setup(Operations(APIS["asyncio"], mine, other, TTL, WAIT, HANDOFF).all(), check, close)


async def _rival_setup(contender: Contender, server: ServerController) -> _Setup:
    assert contender.aio is not None  # noqa: S101 -- applies() is false without asyncio
    stack = contextlib.AsyncExitStack()
    mine = await stack.enter_async_context(contender.aio(server.url))
    other = await stack.enter_async_context(contender.aio(server.url))

    async def check(name: str) -> str:
        lock, again = mine.lock(name), mine.lock(name)
        answers = await lock.acquire(0), await again.acquire(0), await lock.release()
        return "" if answers == (True, False, True) else f"the answers were {answers}"

    return _Setup(async_operations(contender, mine, other, HANDOFF, server.admin.flushall), check, stack.aclose)
