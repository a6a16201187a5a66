"""Clients that use one primitive at random and record their operations.

One worker serves both APIs, as a coroutine that passes each call through `settled`: see `apis`.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import redis
import redis.asyncio

from handfast import AcquireTimeout, Handfast, HandfastError, Lease
from handfast._engine.calls import MAX_PERMITS
from handfast_lab.chaos.apis import Api, settled
from handfast_lab.checker.history import Kind, Operation, Outcome

__all__ = ["LIMIT", "PRIMITIVES", "Book", "Script", "play", "take_all"]

PRIMITIVES = "lock", "semaphore", "rwlock", "rlock", "lock_all"

SILENCE = 0.5
"""Socket timeout of the clients in seconds, after which a call is retried. It is short, so that lost replies cost little."""

FORGETTING = ("forget", 1), ("leave", 1), ("keep", 1)
"""What a worker with the habit ``forget`` does now and then with a lease, and with which weight."""

HANDS = 2
"""Threads or tasks that share a client."""

LIMIT = 3
"""Permits of a semaphore."""


class Script(NamedTuple):
    """What the workers of one history do."""

    primitive: str
    names: tuple[str, ...]
    players: int
    operations: int
    """Operations of all workers together; an acquire and a release are two."""
    ttl: float
    seed: int
    until: float
    """Moment of the monotonic clock at which the workers stop in any case, in seconds."""
    habits: frozenset[str] = frozenset()
    """``forget``: now and then a worker drops a lease, holds one for too long, or closes the client with the lease
    held. ``cancel``: now and then it cancels an acquire."""


class _Thing(NamedTuple):
    """A primitive that can be acquired."""

    primitive: Any
    names: tuple[str, ...]
    weight: int = 1
    limit: int = 1


@dataclass
class Book:
    """What the workers of one history recorded."""

    operations: list[Operation] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    """By lease, the token of its grant."""
    faults: list[str] = field(default_factory=list)
    """Failures of the workers themselves: stuck ones, and exceptions from neither Handfast nor redis-py."""


def play(api: Api, script: Script, url: str, namespace: str, patience: float) -> Book:
    """Run the workers and return what they recorded."""
    book = Book()

    def client() -> Any:
        return api.client_class(api.library.Redis.from_url(url, socket_timeout=SILENCE), namespace=namespace)

    async def all_of_them() -> None:
        seats = [_Seat(client) for _ in range(-(-script.players // HANDS))]
        players = [_Player(api, script, number, book, seats[number // HANDS]) for number in range(script.players)]
        if await api.late([api.start(player.live) for player in players], patience):
            book.faults.append(f"stuck: a player was not done {patience:g} s later")

    api.run(all_of_them())
    return book


def take_all(client: Handfast, primitive: str, name: str, timeout: float) -> Lease:
    """Acquire everything under a name, to check that it is available."""
    if primitive == "semaphore":
        return client.semaphore(name, LIMIT).acquire(permits=LIMIT, timeout=timeout)
    if primitive == "rwlock":
        return client.rwlock(name).write().acquire(timeout=timeout)
    return client.lock(name).acquire(timeout=timeout)


class _Seat:
    """A client that some workers share. When one of them deserts it, it is closed and replaced."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._players = 0
        self.client = make()

    def enter(self) -> None:
        """Count one more worker."""
        with self._lock:
            self._players += 1

    async def leave(self) -> None:
        """Count one worker less; the last one closes the client."""
        with self._lock:
            self._players -= 1
            last = not self._players
        if last:
            await settled(self.client.close())

    async def desert(self) -> None:
        """Replace the client and close the old one, even while other workers use it."""
        with self._lock:
            old, self.client = self.client, self._make()
        await settled(old.close())


class _Player:
    """One thread or task and its operations."""

    def __init__(self, api: Api, script: Script, number: int, book: Book, seat: _Seat) -> None:
        self._api, self._script, self._book, self._seat = api, script, book, seat
        self._name = f"{api.name}-{number}"
        self._chance = random.Random(f"{script.seed}/{number}")  # noqa: S311 -- test data, not security
        self._attempts = 0
        seat.enter()

    async def live(self) -> None:
        """Run until enough operations were done."""
        try:
            while self._goes_on():
                await self._use(self._seat.client)
        except Exception as error:  # noqa: BLE001 -- any other exception is a finding
            self._book.faults.append(f"{type(error).__name__}: {error}")
        finally:
            await self._seat.leave()

    async def _use(self, client: Any) -> None:
        """Acquire and release until the client is replaced."""
        things = self._things(client)
        while self._goes_on() and client is self._seat.client:
            thing = self._chance.choice(things)
            if self._script.primitive == "semaphore":
                thing = thing._replace(weight=self._chance.randint(1, LIMIT))
            held = await self._acquire(thing)
            if held is not None:
                await self._hold(held)

    async def _hold(self, held: _Held) -> None:
        """Use a lease as applications do: hold, downgrade, forget or release it."""
        habit = self._draw(("none", 70), ("linger", 25), ("lower", 15), *FORGETTING[: 3 * self._forgets])
        if habit in ("forget", "leave"):
            held.note.begin("release")
            held.note.leave(held.until())
            del held.lease  # it expires by itself
            if habit == "leave":
                await self._seat.desert()
            return
        if habit == "linger":
            await settled(self._api.sleep(self._chance.uniform(0, 0.003)))
        elif habit == "keep":
            await settled(self._api.sleep(self._script.ttl * self._chance.uniform(0.5, 1.5)))
        elif habit == "lower" and held.note.weight == MAX_PERMITS:
            await self._tell(held, "lower", held.lease.downgrade)
        await self._tell(held, "release", held.lease.release)

    def _draw(self, *weighted: tuple[str, int]) -> str:
        (drawn,) = self._chance.choices([word for word, _ in weighted], [weight for _, weight in weighted])
        return drawn

    @property
    def _forgets(self) -> bool:
        return "forget" in self._script.habits

    def _goes_on(self) -> bool:
        return len(self._book.operations) < self._script.operations and monotonic() < self._script.until

    def _things(self, client: Any) -> list[_Thing]:
        kind, names = self._script.primitive, self._script.names
        options = {"ttl": self._script.ttl, "renew": self._chance.random() < 0.8}
        if kind == "semaphore":
            return [_Thing(client.semaphore(name, LIMIT, **options), (name,), limit=LIMIT) for name in names]
        if kind == "rwlock":
            locks = [(client.rwlock(name, **options), (name,)) for name in names]
            reads = [_Thing(lock.read(), name, limit=MAX_PERMITS) for lock, name in locks]
            return [*reads, *reads, *(_Thing(lock.write(), name, MAX_PERMITS, MAX_PERMITS) for lock, name in locks)]
        make = client.rlock if kind == "rlock" else client.lock
        things = [_Thing(make(name, **options), (name,)) for name in names]
        if kind == "lock_all":
            pairs = [(one, other) for one in names for other in names if one != other]
            things += [_Thing(client.lock_all(pair, **options), pair) for pair in pairs]
        return things

    async def _acquire(self, thing: _Thing) -> _Held | None:
        self._attempts += 1
        note = _Note(self._book, self._name, f"{self._name}/{self._attempts}", thing)
        options = {"permits": thing.weight} if self._script.primitive == "semaphore" else {}
        primitive = thing.primitive
        waits = self._draw(("wait", 80), ("try", 20)) == "wait"
        timeout = self._chance.choice((None, None, 5.0, 0.02, 0.002))
        note.begin("acquire" if waits else "try_acquire")
        try:
            asked = primitive.acquire(timeout=timeout, **options) if waits else primitive.try_acquire(**options)
            lease = await self._awaited(asked)
        except AcquireTimeout as error:
            note.end("failed" if error.__cause__ else "timeout")
        except (redis.RedisError, HandfastError, _Cancelled):
            note.end("failed")
        except BaseException:
            note.end("failed")
            raise
        else:
            if lease is not None:
                held = _Held(lease, note)
                self._book.tokens[note.lease] = lease.token
                note.end("granted", fence=lease.fence, deadline=held.until())
                return held
            note.end("refused")
        return None

    async def _awaited(self, asked: Any) -> Any:
        """Await the acquire, or cancel it at a random moment if the worker has the habit ``cancel``."""
        if not inspect.isawaitable(asked) or "cancel" not in self._script.habits or self._chance.random() < 0.5:
            return await settled(asked)
        task = asyncio.ensure_future(settled(asked))
        asyncio.get_running_loop().call_later(self._chance.uniform(0, 0.004), task.cancel)
        await asyncio.wait((task,))
        if task.cancelled():
            raise _Cancelled
        return task.result()

    async def _tell(self, held: _Held, kind: Kind, verb: Callable[[], Any]) -> None:
        until = held.until()
        held.note.begin(kind)
        outcome: Outcome = "failed"
        try:
            answer = await settled(verb())
            outcome = "done" if kind == "lower" else "released" if answer else "lost"
        except (redis.RedisError, HandfastError):
            pass
        finally:
            held.note.end(outcome, deadline=until)


class _Cancelled(Exception):
    """The worker cancelled its own acquire."""


class _Note:
    """Records the operations of one attempt."""

    def __init__(self, book: Book, client: str, lease: str, thing: _Thing) -> None:
        self._book, self._client, self.lease, self._thing = book, client, lease, thing
        self.weight = thing.weight
        self._kind: Kind = "acquire"
        self._invoked = 0.0

    def begin(self, kind: Kind) -> None:
        self._kind = kind
        if kind == "lower":
            self.weight = 1
        self._invoked = monotonic()

    def end(self, outcome: Outcome, *, fence: int | None = None, deadline: float | None = None) -> None:
        self._write(monotonic(), outcome, fence, deadline)

    def leave(self, deadline: float) -> None:
        """Record that the operation never ended."""
        self._write(None, "pending", None, deadline)

    def _write(self, returned: float | None, outcome: Outcome, fence: int | None, deadline: float | None) -> None:
        operation = Operation(
            client=self._client,
            kind=self._kind,
            names=self._thing.names,
            lease=self.lease,
            invoked=self._invoked,
            returned=returned,
            outcome=outcome,
            weight=self.weight,
            limit=self._thing.limit,
            fence=fence,
            deadline=deadline,
        )
        self._book.operations.append(operation)


@dataclass
class _Held:
    lease: Any
    note: _Note
    known: float = 0.0

    def until(self) -> float:
        """Return until when the worker believes to hold the lease. For a lost lease this is the last known end."""
        now = monotonic()
        if remaining := self.lease.remaining():
            self.known = now + remaining
        return self.known
