"""Flush the server's script cache every 10 ms, which no caller may notice.

    R19  Errors raised by any operation of any primitive, and leases that are lost, while SCRIPT FLUSH is sent
         repeatedly. `scripts the server did not know` counts the NOSCRIPT errors that were retried.

Some callers run all operations at random on few names, so that they wait for each other. One holds leases that must be
renewed meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from handfast import AcquireTimeout, Script
from handfast.fencing import set_if_newer
from handfast.testing import ServerController
from handfast_lab.chaos.apis import log_silenced, settled
from handfast_lab.chaos.figures import Figure
from handfast_lab.chaos.operations import LIMIT, PRIMITIVES
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.trials.soak import Soak
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R19",)
COUNT = 10_000
"""Operations of all callers together; acquire, use and release count as one."""

EVERY = 0.01
"""Seconds between two flushes."""

CALLERS = 4
NAMES = 3

SHORT, SOON = 0.2, 0.003
"""Duration of a lease that must be renewed, and timeout of an acquire that must fail, in seconds."""

RETRY_FOR = 20.0
"""Timeout of any other acquire, in seconds."""

SLOWEST = 50
"""Operations per second below which the trial gives up."""

COUNTER = Script("-- KEYS counter\n-- ARGV by\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])", name="counter")


def applies(contender: Contender) -> bool:
    """Return True for Handfast, which has all the primitives."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run `count` operations."""
    soak, kinds = Soak(contender, count, seed, progress, RETRY_FOR + count / SLOWEST), set[str]()
    with log_silenced(), ServerController() as server:
        with server.flushing_scripts(every=EVERY):
            soak.api.run(_run(soak, server.url, kinds))
        flushes = _calls(server, "commandstats", "cmdstat_script|flush", "cmdstat_script")
        unknown = _calls(server, "errorstats", "errorstat_NOSCRIPT")
    measured = {"flushes": flushes, "scripts the server did not know": unknown, "kinds of operations": len(kinds)}
    return [soak.figure("R19", f"SCRIPT FLUSH every {EVERY * 1000:g} ms", "errors seen", {**measured})]


async def _run(soak: Soak, url: str, kinds: set[str]) -> None:
    async with soak.api.client(url) as client:
        callers = [_Caller(soak, client, number).run for number in range(CALLERS)]
        workers = [*(partial(caller, kinds) for caller in callers), partial(_hold_renewed, soak, client)]
        await soak.run(workers, soak.remaining + RETRY_FOR)


async def _hold_renewed(soak: Soak, client: Any) -> None:
    """Hold short leases that must be renewed."""
    while soak.goes_on:
        leases = [await settled(client.lock(f"kept-{number}", ttl=SHORT).acquire()) for number in range(NAMES)]
        await soak.api.sleep(3 * SHORT)
        for lease in leases:
            soak.step("" if await settled(lease.release()) else "renewals: the lease was lost")


class _Caller:
    """Runs random operations."""

    def __init__(self, soak: Soak, client: Any, number: int) -> None:
        self._soak, self._client, self._chance = soak, client, soak.chance(number)
        self._own = f"own-{number}"
        primitives = {**PRIMITIVES, "lock_all": lambda client, name: client.lock_all([name, "a-0"])}
        self._operations: dict[str, Callable[[], Awaitable[None]]] = {
            **{kind: partial(self._hold, make) for kind, make in primitives.items()},
            "timeout": self._time_out,
            "downgrade": self._downgrade,
            "status": self._status,
            "resize": self._resize,
            "force_release": self._force_release,
            "autocomplete": self._autocomplete,
            "scores": self._scores,
            "fenced write": self._fenced_write,
            "user's script": self._script,
        }

    async def run(self, kinds: set[str]) -> None:
        """Run operations until enough are done, and add their kinds."""
        while self._soak.claim() is not None:
            kind = self._chance.choice(list(self._operations))
            kinds.add(kind)
            try:
                await self._operations[kind]()
            except Exception as error:  # noqa: BLE001 -- any error would reach a user
                self._soak.step(f"{kind}: {type(error).__name__}: {error}")
            else:
                self._soak.step()

    def _name(self) -> str:
        return f"a-{self._chance.randrange(NAMES)}"

    async def _hold(self, make: Callable[..., Any]) -> None:
        thing = make(self._client, self._name())
        tries = self._chance.random() < 0.5
        lease = await settled(thing.try_acquire() if tries else thing.acquire(timeout=RETRY_FOR))
        if lease is None:
            return
        if self._chance.random() < 0.5:
            await settled(lease.extend(60))
        await _release(lease)

    async def _time_out(self) -> None:
        lock = self._client.lock(self._own)
        lease = await settled(lock.acquire(timeout=RETRY_FOR))
        try:
            late = await settled(lock.acquire(timeout=SOON))
        except AcquireTimeout:
            await _release(lease)
        else:
            raise RuntimeError(f"{late!r} was granted although {lease!r} was held")

    async def _downgrade(self) -> None:
        lease = await settled(self._client.rwlock(self._name()).write().acquire(timeout=RETRY_FOR))
        await settled(lease.downgrade())
        await _release(lease)

    async def _status(self) -> None:
        await settled(self._client.lock(self._name()).status())

    async def _resize(self) -> None:
        await settled(self._client.semaphore(self._name(), LIMIT).resize(self._chance.randint(2, LIMIT)))

    async def _force_release(self) -> None:
        lock = self._client.lock(self._own, renew=False)
        lease = await settled(lock.acquire(timeout=RETRY_FOR))
        await settled(lock.force_release(reason="a trial"))
        if await settled(lease.release()):
            raise RuntimeError("a lease outlived force_release")

    async def _autocomplete(self) -> None:
        names = self._client.autocomplete("names", ranked=True)
        await settled(names.add({self._name(): self._chance.random()}))
        await settled(names.complete("a"))

    async def _scores(self) -> None:
        scores = self._client.scores("scores")
        await settled(scores.advance({self._name(): self._chance.random()}))
        await settled(scores.newest())

    async def _fenced_write(self) -> None:
        lease = await settled(self._client.lock(self._own).acquire(timeout=RETRY_FOR))
        await settled(set_if_newer(self._client, f"value-{self._own}", "x", lease.fence))
        await _release(lease)

    async def _script(self) -> None:
        await settled(COUNTER(self._client, counter="counter", by=1))


async def _release(lease: Any) -> None:
    """Release the lease. Raises RuntimeError if it was lost."""
    if not await settled(lease.release()):
        raise RuntimeError(f"the lease of {lease.name!r} was lost")


def _calls(server: ServerController, section: str, *names: str) -> int:
    """Return how many such calls or errors the server counted, under the first name that it knows."""
    stats: Any = server.admin.info(section)
    found: dict[str, Any] = next((stats[name] for name in names if name in stats), {})
    return int(found.get("calls", found.get("count", 0)))
