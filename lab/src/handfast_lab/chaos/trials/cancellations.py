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
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from typing import Any, Literal, NamedTuple

from handfast import AcquireTimeout, AsyncHandfast
from handfast.testing import ServerController
from handfast.testing.injection import Run, cancel_at
from handfast_lab.chaos.apis import log_silenced
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals import is_left
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import AioLock

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

HAND_OVER = 0.003
"""Seconds after which another client releases the lock that the operation waits for."""

WAIT = 0.25
"""Timeout of a rival's acquire while another client holds the lock, in seconds: two polls of a rival that polls."""

OUR_WAIT = 0.01
"""Timeout of Handfast's acquire while another client holds the lock, in seconds."""

REST, RIVALS_REST = 1.0, 0.2
"""Seconds that background cleanup may take, for Handfast and for rivals. Rivals clean up less and leave more behind."""

RETRY_FOR = 10.0
"""Seconds after which the trial gives up on a call."""


def applies(contender: Contender) -> bool:
    """Return True if the contender has an asyncio API: a thread cannot be cancelled."""
    return contender.aio is not None


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """Cancel at every await, then `count` times at random."""
    with ServerController() as server, log_silenced():
        return asyncio.run(_cancel(contender, server, count, seed, tell))


async def _cancel(contender: Contender, server: ServerController, count: int, seed: int, tell: Tell) -> list[Figure]:
    figures = []
    for what in ("cancel at every await", "cancel at random"):
        scene = _Scene(contender, server, tell)
        if what == "cancel at random":
            await scene.at_random(count, random.Random(seed))  # noqa: S311 -- timing, not security
        else:
            await scene.everywhere(count)
        figures.append(_figure(what, scene, seed))
    return figures


def _figure(what: str, scene: _Scene, seed: int) -> Figure:
    measured: dict[str, float | str] = {
        **({"awaits in all": sum(scene.awaits.values())} if scene.awaits else {}),
        "orphans": len(scene.orphans),
        "wrong answers afterwards": len(scene.dirty),
        "tasks left": len(scene.tasks),
        "connections left": scene.connections,
        "too late": scene.finished,
    }
    wrong = [*scene.orphans, *scene.dirty, *scene.tasks]
    return Figure(
        "R8",
        what,
        scene.contender.name,
        scene.struck,
        len(wrong),
        "leaks",
        measured,
        seed,
        examples_of(wrong),
        {f"awaits in {name}": number for name, number in scene.awaits.items()},
    )


class Act(NamedTuple):
    """One call to cancel, on one name."""

    make: Callable[[], Coroutine[Any, Any, Any]]
    give_back: Callable[[Any], Awaitable[object]]
    """Called with the result of the call, or None. Afterwards nothing may remain on the server."""


class Operation(NamedTuple):
    """An operation to cancel."""

    name: str
    begin: Callable[[str], Awaitable[Act]]
    """Prepare the operation on the given name."""


class _Stage(NamedTuple):
    """Two clients and the operations that use them."""

    operations: list[Operation]
    asks: Callable[[str], Awaitable[str]]
    """Make a few calls on a free name. Return what was wrong with the answers, or an empty string."""
    close: Callable[[], Awaitable[object]]


@dataclass
class _Scene:
    """Runs operations and checks what they leave behind."""

    contender: Contender
    server: ServerController
    tell: Tell
    struck: int = 0
    finished: int = 0
    """Cancellations that came too late: the operation returned its result."""
    awaits: dict[str, int] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    dirty: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._numbers = counting()
        self._stage: _Stage | None = None

    async def everywhere(self, most: int) -> None:
        """Cancel at every suspension of every operation. If `most` is small, some operations are skipped."""
        operations = len((await self._ready()).operations)
        for number in range(0, operations, max(1, operations * EACH // most)):
            await self._through(number)
        await self._close()

    async def at_random(self, count: int, chance: random.Random) -> None:
        """Cancel at random moments until `count` cancellations have taken effect."""
        operations = len((await self._ready()).operations)
        while self.struck < count:
            await self._play(chance.randrange(operations), partial(_cancel_after, seconds=chance.uniform(0, LONGEST)))
        await self._close()

    async def _through(self, number: int) -> None:
        ways: tuple[Literal["suspended", "ready"], ...] = ("suspended", "ready")
        for first in counting(1):
            for way in ways:
                for _ in range(TIMES):  # a run with fewer suspensions may only have had quick replies
                    run = await self._play(number, partial(_cancel_at, steps=(first,), way=way))
                    if run.struck:
                        break
                if not run.struck:
                    self.awaits[(await self._ready()).operations[number].name] = first - 1
                    return
                for second in range(first + 1, run.reached + 1) if self.contender.is_ours else ():
                    await self._play(number, partial(_cancel_at, steps=(first, second), way=way))

    async def _play(self, number: int, strike: Callable[..., Awaitable[Run[Any]]]) -> Run[Any]:
        """Run an operation once, on a clean stage, and check what it left."""
        name = f"cancelled-{next(self._numbers)}"
        operation = (await self._ready()).operations[number]
        act = await operation.begin(name)
        run = await strike(act.make)
        with contextlib.suppress(Exception):  # a contender may raise anything; only leftovers count
            await asyncio.wait_for(act.give_back(run.result), RETRY_FOR)
        self.struck += bool(run.struck)
        self.finished += bool(run.struck) and run.how == "finished"
        await self._look(name, f"{operation.name}, at {', '.join(map(str, run.steps)) or 'random'}")
        self.tell(self.struck)
        return run

    async def _look(self, name: str, where: str) -> None:
        """Record what the operation left behind. A stage with leftovers is closed and replaced."""
        wrong = False
        for _ in range(2):  # requests sent before are executed by the time of the second reply
            self.server.admin.ping()
        if not await self._comes_true(lambda: not self._is_left(name)):
            wrong = True
            self.orphans.append(f"{where}: it is held, or waited for, by nobody")
        if not await self._comes_true(lambda: len(asyncio.all_tasks()) <= self._known_tasks):
            wrong = True
            self.tasks.append(f"{where}: {len(asyncio.all_tasks()) - self._known_tasks} tasks go on")
        if found := await self._asked():
            wrong = True
            self.dirty.append(f"{where}: {found}")
        if wrong:
            await self._close()

    async def _asked(self) -> str:
        try:
            return await asyncio.wait_for((await self._ready()).asks(f"asked-{next(self._numbers)}"), RETRY_FOR)
        except Exception as error:  # noqa: BLE001 -- a contender may raise anything
            return f"what it asked next raised {error!r}"

    def _is_left(self, name: str) -> bool:
        return any(is_left(self.contender, self.server.admin, each) for each in (name, _second(name)))

    async def _comes_true(self, condition: Callable[[], bool]) -> bool:
        """Poll until the condition holds; return whether it did in time."""
        until = time.monotonic() + (REST if self.contender.is_ours else RIVALS_REST)
        while not condition():
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.005)
        return True

    async def _ready(self) -> _Stage:
        """Return a stage on which each operation ran once, so that connections, scripts and tasks exist."""
        if self._stage is None:
            self.server.admin.flushall()
            open_stage = _our_stage if self.contender.is_ours else _rivals_stage
            stage = await open_stage(self.contender, self.server)
            for operation in stage.operations:
                act = await operation.begin(f"warm-{next(self._numbers)}")
                run = await _cancel_at(act.make, (), "suspended")
                await act.give_back(run.result)
            if found := await stage.asks(f"asked-{next(self._numbers)}"):
                raise RuntimeError(f"{self.contender.name} does not work: {found}")
            self._stage = stage
            self._known_tasks = len(asyncio.all_tasks())
            self._known_connections = len(self.server.admin.client_list())
        return self._stage

    async def _close(self) -> None:
        if self._stage is not None:
            self.connections += max(0, len(self.server.admin.client_list()) - self._known_connections)
            stage, self._stage = self._stage, None
            with contextlib.suppress(Exception):
                async with asyncio.timeout(RETRY_FOR):  # within this task: some rivals require it
                    await stage.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


async def _cancel_at(
    make: Callable[[], Coroutine[Any, Any, Any]], steps: tuple[int, ...], way: Literal["suspended", "ready"]
) -> Run[Any]:
    return await cancel_at(make, *steps, when=way)


async def _cancel_after(make: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> Run[Any]:
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


# --- Handfast


def _second(name: str) -> str:
    """Return the second name of a pair that is locked together."""
    return f"{name}-too"


async def _our_stage(contender: Contender, server: ServerController) -> _Stage:  # noqa: ARG001 -- see _rivals_stage
    mine, other = AsyncHandfast(server.url), AsyncHandfast(server.url)

    async def close() -> None:
        await mine.close()
        await other.close()

    async def asks(name: str) -> str:
        lock = mine.lock(name)
        lease = await lock.try_acquire()
        answers = lease is not None, await lock.try_acquire() is None, lease is not None and await lease.release()
        return "" if all(answers) else f"it was answered {answers}"

    return _Stage([*_acquires(mine, other), *_others(mine, other)], asks, close)


class _Kind(NamedTuple):
    """A primitive to acquire, and how another client blocks it."""

    name: str
    mine: Callable[[str], Any]
    others: Callable[[str], Awaitable[Any]]


def _acquires(mine: AsyncHandfast, other: AsyncHandfast) -> list[Operation]:
    kinds = [
        _Kind("a lock", lambda name: mine.lock(name, ttl=TTL), lambda name: other.lock(name).acquire()),
        _Kind(
            "a semaphore",
            lambda name: mine.semaphore(name, 3, ttl=TTL),
            lambda name: other.semaphore(name, 3).acquire(permits=3),
        ),
        _Kind("a reader", lambda name: mine.rwlock(name).read(), lambda name: other.rwlock(name).write().acquire()),
        _Kind("a writer", lambda name: mine.rwlock(name).write(), lambda name: other.rwlock(name).read().acquire()),
        _Kind("a reentrant lock", lambda name: mine.rlock(name, ttl=TTL), lambda name: other.lock(name).acquire()),
        _Kind(
            "two locks",
            lambda name: mine.lock_all([name, _second(name)], ttl=TTL),
            lambda name: other.lock(_second(name)).acquire(),
        ),
    ]

    def free(kind: _Kind) -> Operation:
        async def begin(name: str) -> Act:
            thing = kind.mine(name)
            return Act(thing.acquire, _release)

        return Operation(f"acquire of {kind.name}", begin)

    def held(kind: _Kind) -> Operation:
        async def begin(name: str) -> Act:
            thing, lease = kind.mine(name), await kind.others(name)

            async def give_back(got: Any) -> None:
                await _release(got)
                await lease.release()

            return Act(lambda: _until_timeout(thing), give_back)

        return Operation(f"acquire of {kind.name}, timing out", begin)

    def handed(kind: _Kind) -> Operation:
        async def begin(name: str) -> Act:
            thing, handing = kind.mine(name), _hand_over(await kind.others(name))

            async def give_back(got: Any) -> None:
                await _release(got)
                await handing

            return Act(thing.acquire, give_back)

        return Operation(f"acquire of {kind.name}, handed over", begin)

    def block(kind: _Kind) -> Operation:
        async def begin(name: str) -> Act:
            thing, handing = kind.mine(name), _hand_over(await kind.others(name))

            async def inside() -> None:
                async with thing:
                    await asyncio.sleep(0)

            return Act(inside, lambda _: handing)

        return Operation(f"async with {kind.name}, handed over", begin)

    return [make(kind) for kind in kinds for make in (free, held, handed, block)]


def _others(mine: AsyncHandfast, other: AsyncHandfast) -> list[Operation]:
    """Return the operations other than acquire."""

    async def nothing(_: Any) -> None:
        """Give back nothing: the operation itself releases, even if it was cancelled."""

    async def tries(name: str) -> Act:
        return Act(mine.lock(name).try_acquire, _release)

    async def releases(name: str) -> Act:
        lease = await mine.lock(name).acquire()
        return Act(lease.release, nothing)

    async def hands_over(name: str) -> Act:
        lease = await mine.lock(name).acquire()
        waiter = asyncio.ensure_future(other.lock(name).acquire())
        while not (await other.lock(name).status()).waiting:
            pass

        async def give_back(_: Any) -> None:
            await (await waiter).release()

        return Act(lease.release, give_back)

    async def releases_two(name: str) -> Act:
        lease = await mine.lock_all([name, _second(name)]).acquire()
        return Act(lease.release, nothing)

    async def extends(name: str) -> Act:
        lease = await mine.lock(name, ttl=TTL).acquire()
        return Act(lambda: lease.extend(2 * TTL), lambda _: lease.release())

    async def lowers(name: str) -> Act:
        lease = await mine.rwlock(name).write().acquire()
        return Act(lease.downgrade, lambda _: lease.release())

    async def forces(name: str) -> Act:
        lease = await other.lock(name).acquire()
        return Act(mine.lock(name).force_release, lambda _: lease.release())

    async def looks(name: str) -> Act:
        lease = await other.lock(name).acquire()
        return Act(mine.lock(name).status, lambda _: lease.release())

    return [
        Operation("try_acquire", tries),
        Operation("release", releases),
        Operation("release, others wait", hands_over),
        Operation("release of two locks", releases_two),
        Operation("extend", extends),
        Operation("downgrade", lowers),
        Operation("force_release", forces),
        Operation("status", looks),
    ]


async def _release(lease: Any) -> None:
    if lease is not None:
        await lease.release()


async def _until_timeout(thing: Any) -> Any:
    with contextlib.suppress(AcquireTimeout):
        return await thing.acquire(timeout=OUR_WAIT)


def _hand_over(lease: Any) -> asyncio.Future[Any]:
    """Release the lease after `HAND_OVER` seconds, in a task of its own."""

    async def later() -> None:
        await asyncio.sleep(HAND_OVER)
        await lease.release()

    return asyncio.ensure_future(later())


# --- rivals


async def _rivals_stage(contender: Contender, server: ServerController) -> _Stage:
    assert contender.aio is not None  # noqa: S101 -- applies() is false without asyncio
    stack = contextlib.AsyncExitStack()
    mine = await stack.enter_async_context(contender.aio(server.url))
    other = await stack.enter_async_context(contender.aio(server.url))

    async def give_up(lock: AioLock, taken: Any) -> None:
        """Release the lock if the cancelled task had acquired it: such a lease is not an orphan."""
        if taken:
            try:
                await lock.release()
            except Exception:  # noqa: BLE001 -- a contender may raise anything
                server.admin.flushall()

    async def asks(name: str) -> str:
        lock, again = mine.lock(name), mine.lock(name)
        answers = await lock.acquire(0), await again.acquire(0), await lock.release()
        return "" if answers == (True, False, True) else f"it was answered {answers}"

    async def free(name: str) -> Act:
        lock = mine.lock(name)
        return Act(lambda: lock.acquire(0), lambda taken: give_up(lock, taken))

    async def held(name: str) -> Act:
        lock, others = mine.lock(name), other.lock(name)
        await others.acquire(0)

        async def give_back(taken: Any) -> None:
            await give_up(lock, taken)
            await others.release()

        return Act(lambda: lock.acquire(WAIT), give_back)

    async def handed(name: str) -> Act:
        lock, others = mine.lock(name), other.lock(name)
        await others.acquire(0)
        handing = _hand_over(others)

        async def give_back(taken: Any) -> None:
            await give_up(lock, taken)
            await handing

        return Act(lambda: lock.acquire(RETRY_FOR), give_back)

    async def nothing(_: Any) -> None:
        """Give back nothing: a cancelled release is not called again."""

    async def releases(name: str) -> Act:
        lock = mine.lock(name)
        await lock.acquire(0)
        return Act(lock.release, nothing)

    async def extends(name: str) -> Act:
        lock = mine.lock(name)
        await lock.acquire(0)
        return Act(lambda: lock.extend(60), lambda _: lock.release())

    operations = [
        Operation("acquire", free),
        Operation("acquire, timing out", held),
        Operation("acquire, handed over", handed),
        Operation("release", releases),
    ]
    if contender.extends:
        operations.append(Operation("extend", extends))
    return _Stage(operations, asks, stack.aclose)
