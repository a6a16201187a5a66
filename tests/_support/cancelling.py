"""Cancel every operation at every point where it can be cancelled, and count what is left behind.

An operation is stepped by hand to count its suspensions: the awaits that really suspend. Then it is run once more for
each of them and cancelled there, in up to four states:

    unsent    the request is still in the client's buffer
    sent      the request has left the client; how far it got is unknown
    executed  the server has run it (and granted the lock, if the client waited); the reply is not read yet
    answered  the reply has been read, and the task is about to continue

The cleanup that a cancelled operation still awaits is cancelled a second time, at each of its own suspensions.

``python -m tests._support.cancelling`` prints the table; ``--rounds`` adds that many rounds of cancellations at random
moments, ``--uvloop`` does it all on uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
from dataclasses import dataclass, field

import redis

from handfast import AcquireTimeout, AsyncHandfast
from handfast.embedded import PrivateServer
from handfast.testing import Stepper
from tests._support.engine import Engine
from tests._support.helpers import eventually_async

STATES = ("unsent", "sent", "executed", "answered")
AGAIN = ("sent", "answered")


def context_of(client):
    """Return the state of the client on this event loop."""
    return client._driver._contexts[asyncio.get_running_loop()]


def session_of(client):
    return context_of(client).session


async def settled(client):
    """Wait until this client has no request, renewal or cleanup under way."""
    context = context_of(client)
    await eventually_async(
        lambda: context.session.is_idle and context.renewer.is_idle and context.session._connection.opening is None
    )


def newest(raw):
    """Return the id of the server's newest connection."""
    return max(int(client["id"]) for client in raw.client_list())


def connections_since(number, raw):
    """Return the connections that are newer than that id and still open."""
    return [client for client in raw.client_list() if int(client["id"]) > number]


def barrier(raw):
    """Wait until the server has executed everything that had reached its sockets.

    The reply to the first PING may come from a poll of the sockets that missed the bytes; the reply to the second
    cannot.
    """
    raw.ping()
    raw.ping()


class Scene:
    """Two clients of one server, and an operator. Every operation uses the lock "a"."""

    def __init__(self, url, raw):
        self.url = url
        self.raw = raw
        self.engine = Engine(raw)
        self.mine = AsyncHandfast(url)
        self.other = AsyncHandfast(url)
        self.lock = self.mine.lock("a")
        self.lease = self.held = self.third = self.waiter = None
        self.at_work = self.mine
        """The client whose operation is cancelled."""

    async def __aenter__(self):
        for client in (self.mine, self.other):  # load every script, and connect both clients
            lock = client.lock("warm")
            lease = await lock.acquire()
            await lease.extend(60)
            with contextlib.suppress(AcquireTimeout):
                await lock.acquire(timeout=0.001)
            await lease.release()
            await lock.force_release()
        self.known = newest(self.raw)
        return self

    async def __aexit__(self, *error):
        await self.mine.close()
        await self.other.close()

    # --- states in which operations begin

    async def free(self):
        """The lock is free."""

    async def held_by_other(self):
        self.held = await self.other.lock("a").acquire()

    async def held_by_me(self):
        self.lease = await self.lock.acquire()

    async def held_by_me_and_wanted(self):
        await self.held_by_me()
        self.waiter = asyncio.create_task(self.other.lock("a").acquire())
        await eventually_async(self.engine.queue)

    async def taken_from_me(self):
        await self.held_by_me()
        await self.other.lock("a").force_release()
        await eventually_async(lambda: self.lease.lost)

    async def newcomer(self):
        self.third = AsyncHandfast(self.url)
        self.at_work = self.third

    async def newcomer_at_home(self):
        await self.newcomer()
        await self.third.lock("b").locked()

    # --- events while the operation waits

    async def other_releases(self):
        """Release the lock as soon as there is a waiter."""
        if self.held is not None and self.engine.queue():
            await self.held.release()

    async def other_queues_and_releases(self):
        """The same, with a second waiter behind the first."""
        if self.held is not None and self.engine.queue():
            self.waiter = asyncio.create_task(self.other.lock("a").acquire())
            await eventually_async(lambda: len(self.engine.queue()) == 2)
            await self.held.release()

    # --- afterwards

    async def clear(self, result):
        """Release every lease that a client holds, unless it was lost to a force_release."""
        if hasattr(result, "release"):
            await result.release()
        if self.waiter is not None:
            self.lease = self.lease and (await self.lease.release(), None)[1]
            await (await asyncio.wait_for(self.waiter, 10)).release()
        for lease in (self.lease, self.held):
            if lease is not None and not lease._state.is_released:
                await lease.release()
        if self.third is not None:
            await self.third.close()
        self.lease = self.held = self.third = self.waiter = None
        self.at_work = self.mine

    async def complaints(self):
        """Return what is left although every lease was released."""
        found = []
        with contextlib.suppress(AssertionError):  # reported below
            await settled(self.mine)
            await eventually_async(lambda: not connections_since(self.known, self.raw))
        context = context_of(self.mine)
        books = {
            "requests unanswered": context.session.exchange.due,
            "requests unsent": context.session._outbox,
            "registered tokens": context.session.inbox,
            "cleanups": context.renewer._cleanups,
            "renewals": context.renewer.renewals,
            "leases in the table": context.leases.all(),
            "blocks entered": self.lock._blocks,
            "connections": connections_since(self.known, self.raw),
            "holders": self.engine.holders(),
            "waiters": self.engine.queue(),
            "tasks": asyncio.all_tasks() - {asyncio.current_task()},
        }
        found += [f"{what}: {left}" for what, left in books.items() if left]
        for client in (self.other, self.mine):
            lease = await client.lock("a").try_acquire()
            if lease is None or not await lease.release():
                found.append("the lock is not free")
        if found:
            self.raw.flushall()
        return found


@dataclass(frozen=True)
class Operation:
    """An operation to cancel. ``suspensions`` is its least number of suspensions when it is not disturbed."""

    name: str
    run: object
    suspensions: int
    begin: object = Scene.free
    meanwhile: object = None
    at_random: bool = True


async def _block(scene):
    async with scene.lock as lease:
        return lease.fence


async def _acquire_block(scene):
    async with scene.lock.acquire() as lease:
        return lease.fence


async def _sleepy_block(scene):
    async with scene.lock:
        await asyncio.sleep(0)


async def _timing_out(scene):
    with contextlib.suppress(AcquireTimeout):
        return await scene.lock.acquire(timeout=0.01)


async def _force(scene):
    await scene.lock.force_release()


OPERATIONS = (
    Operation("acquire, free", lambda scene: scene.lock.acquire(), 1),
    Operation(
        "acquire, held",
        lambda scene: scene.lock.acquire(),
        2,
        Scene.held_by_other,
        Scene.other_releases,
    ),
    Operation(
        "acquire, held, others behind",
        lambda scene: scene.lock.acquire(),
        2,
        Scene.held_by_other,
        Scene.other_queues_and_releases,
    ),
    Operation("acquire, timing out", _timing_out, 3, Scene.held_by_other),
    Operation(
        "acquire(timeout), held",
        lambda scene: scene.lock.acquire(timeout=20),
        2,
        Scene.held_by_other,
        Scene.other_releases,
    ),
    Operation(
        "acquire, not connected yet", lambda scene: scene.third.lock("a").acquire(), 1, Scene.newcomer, at_random=False
    ),
    Operation("try_acquire, free", lambda scene: scene.lock.try_acquire(), 1),
    Operation("try_acquire, held", lambda scene: scene.lock.try_acquire(), 1, Scene.held_by_other),
    Operation("async with lock, free", _block, 2),
    Operation("async with lock, held", _block, 3, Scene.held_by_other, Scene.other_releases),
    Operation("async with lock, awaiting", _sleepy_block, 3),
    Operation("async with lock.acquire()", _acquire_block, 2),
    Operation("release", lambda scene: scene.lease.release(), 1, Scene.held_by_me),
    Operation("release, others wait", lambda scene: scene.lease.release(), 1, Scene.held_by_me_and_wanted),
    Operation("release after a loss", lambda scene: scene.lease.release(), 1, Scene.taken_from_me),
    Operation("extend", lambda scene: scene.lease.extend(40), 1, Scene.held_by_me),
    Operation("status", lambda scene: scene.lock.status(), 1, Scene.held_by_other),
    Operation("force_release, other's", _force, 2, Scene.held_by_other),
    Operation("force_release, mine", _force, 2, Scene.held_by_me),
    Operation("close", lambda scene: scene.third.close(), 1, Scene.newcomer_at_home),
)


@dataclass
class Tally:
    """The results of one operation."""

    name: str
    suspensions: int = 0
    points: int = 0
    again: int = 0
    """Points with a second cancellation."""
    executed: int = 0
    """Points at which the server had a lease or a waiter of this client."""
    finished: int = 0
    """Points at which the cancellation came too late and the operation returned its result."""
    orphans: list = field(default_factory=list)


class _Strike:
    """One run of an operation, cancelled at one suspension or at two."""

    def __init__(self, scene, operation, strikes):
        self.scene = scene
        self.operation = operation
        self.strikes = strikes
        self.struck = 0
        self.witnessed = False
        self._helpers = []

    async def run(self):
        """Return how it ended ("cancelled" or "finished") and its result."""
        self.stepper = Stepper(self.operation.run(self.scene), before=self.before, at=self.at)
        self.task = asyncio.create_task(self.drive())
        try:
            async with asyncio.timeout(20):
                await asyncio.wait((self.task,))
            while self._helpers:
                await self._helpers.pop()
        finally:
            self.open_up()
        if self.task.cancelled():
            return "cancelled", None
        return "finished", self.task.result()

    async def drive(self):
        return await self.stepper

    def session(self):
        context = self.scene.at_work._driver._contexts.get(asyncio.get_running_loop())
        return context and context.session

    def transport(self):
        session = self.session()
        return session and session._connection.transport

    def open_up(self):
        transport = self.transport()
        if transport is not None:
            if transport.paused:
                transport.resume_writing()
            transport._transport.resume_reading()

    def before(self, number):
        if self.strikes.get(number) == "unsent" and (transport := self.transport()):
            transport.pause_writing()

    def at(self, number, future):
        state = self.strikes.get(number)
        waits = number >= 2 and self.operation.meanwhile is not None and not self.struck
        if waits and state not in ("unsent", "sent"):
            self.helped(self.operation.meanwhile(self.scene))
        if state is None:
            return
        if state in ("unsent", "sent"):
            self.strike()
            if state == "unsent":
                self.helped(self.later_open_up())
        elif state == "answered" and future is not None:
            future.add_done_callback(lambda _: self.strike())  # runs before the task's own callback
        elif state == "answered":
            asyncio.get_running_loop().call_soon(self.strike)
        else:
            if transport := self.transport():
                transport._transport.pause_reading()
            self.helped(self.when_executed())

    def helped(self, coroutine):
        self._helpers.insert(0, asyncio.create_task(coroutine))

    def strike(self):
        self.struck += 1
        self.witnessed = self.witnessed or bool(self.mine_on_server())
        self.task.cancel()

    def mine_on_server(self):
        held = {lease.token for lease in (self.scene.held, self.scene.lease) if lease is not None}
        return set(self.scene.engine.holders() + self.scene.engine.queue()) - held

    async def later_open_up(self):
        await asyncio.sleep(0)
        self.open_up()

    async def when_executed(self):
        await asyncio.sleep(0)
        for helper in self._helpers[1:]:
            await helper
        while (session := self.session()) and session._outbox:  # noqa: ASYNC110 -- one iteration of the loop at a time
            await asyncio.sleep(0)
        barrier(self.scene.raw)
        self.strike()
        for _ in range(3):
            await asyncio.sleep(0)
        self.open_up()


async def _one(scene, operation, tally, strikes):
    """Run it once with these strikes. Return its number of suspensions, or 0 if it was not struck."""
    await operation.begin(scene)
    strike = _Strike(scene, operation, strikes)
    how, result = await strike.run()
    await scene.clear(result)
    wrong = await scene.complaints()
    if strikes and not strike.struck:
        return 0
    tally.points += bool(strikes)
    tally.again += len(strikes) > 1
    tally.executed += strike.witnessed
    tally.finished += bool(strikes) and how == "finished"
    if wrong:
        tally.orphans.append((strikes, wrong))
    return strike.stepper.suspensions


async def try_every_point(scene, operation):
    """Cancel the operation at every suspension, in every state."""
    tally = Tally(operation.name)
    tally.suspensions = await _one(scene, operation, tally, {})
    for first in range(1, tally.suspensions + 1):
        for state in STATES:
            in_all = await _one(scene, operation, tally, {first: state})
            for second in range(first + 1, in_all + 1):
                for again in AGAIN:
                    await _one(scene, operation, tally, {first: state, second: again})
    return tally


async def try_at_random(scene, rounds, seed, longest=0.002):
    """Cancel random operations at random moments. Return how many were cancelled, and what was left behind."""
    chance = random.Random(seed)
    tally = Tally("at random moments")
    loop = asyncio.get_running_loop()
    for number in range(rounds):
        operation = chance.choice([operation for operation in OPERATIONS if operation.at_random])
        await operation.begin(scene)
        task = asyncio.create_task(_awaited(operation.run(scene)))
        spin = asyncio.create_task(_spin()) if chance.random() < 0.7 else None
        for moment in sorted(chance.uniform(0, longest) for _ in range(chance.choice((1, 1, 2, 3)))):
            loop.call_later(moment, task.cancel)
        release = scene.held and operation.meanwhile and chance.uniform(0, longest)
        if release:
            await asyncio.sleep(release)
            await scene.held.release()
        await asyncio.wait((task,))
        if spin is not None:
            spin.cancel()
            await asyncio.wait((spin,))
        tally.points += 1
        tally.finished += not task.cancelled()
        await scene.clear(None if task.cancelled() else task.result())
        if wrong := await scene.complaints():
            tally.orphans.append(((seed, number, operation.name), wrong))
    return tally


async def _awaited(awaitable):
    return await awaitable


async def _spin():
    while True:  # noqa: ASYNC110 -- sleeping would take milliseconds
        await asyncio.sleep(0)


async def _print_table(url, rounds, seed):
    with redis.Redis.from_url(url, decode_responses=True) as raw:
        async with Scene(url, raw) as scene:
            tallies = [await try_every_point(scene, operation) for operation in OPERATIONS]
            if rounds:
                tallies.append(await try_at_random(scene, rounds, seed))
    row = "{:30}{:>12}{:>8}{:>7}{:>11}{:>10}{:>9}".format
    print(row("operation", "suspensions", "points", "twice", "on server", "too late", "orphans"))
    for tally in tallies:
        counts = (tally.suspensions, tally.points, tally.again, tally.executed, tally.finished, len(tally.orphans))
        print(row(tally.name, *counts))
    for tally in tallies:
        for where, wrong in tally.orphans:
            print(f"{tally.name} {where}: {wrong}")
    return sum(len(tally.orphans) for tally in tallies)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    factory = None
    if options.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with PrivateServer() as server, asyncio.Runner(loop_factory=factory) as runner:
        return 1 if runner.run(_print_table(server.url, options.rounds, options.seed)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
