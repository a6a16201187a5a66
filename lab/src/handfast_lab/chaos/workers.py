"""Clients that use one primitive at random and write down what they did.

One player serves both APIs, as a coroutine that awaits only what is to be awaited: see `APIs`.
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
"""Seconds after which players give up on a reply and send again: less than a user would wait, so that faults cost less."""

FORGETTING = ("forget", 1), ("leave", 1), ("keep", 1)
"""What those do now and then who forget: of a hundred leases, so many each."""

HANDS = 2
"""Threads or tasks that share a client."""

LIMIT = 3
"""Permits of a semaphore."""


class Script(NamedTuple):
    """What the players of one history do."""

    primitive: str
    names: tuple[str, ...]
    players: int
    operations: int
    """Of all players together; acquiring and releasing are two."""
    ttl: float
    seed: int
    until: float
    """The moment at which they stop in any case."""
    habits: frozenset[str] = frozenset()
    """``forget``: they now and then forget a lease, keep one for too long, or leave without a word. ``cancel``: they
    cancel what they wait for."""


class _Thing(NamedTuple):
    """Something that can be acquired."""

    primitive: Any
    names: tuple[str, ...]
    weight: int = 1
    limit: int = 1


@dataclass
class Book:
    """What the players of one history wrote down."""

    operations: list[Operation] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    """Of the leases that were granted."""
    faults: list[str] = field(default_factory=list)
    """What they must never see: exceptions that are none of ours and none of the client library's."""


def play(api: Api, script: Script, url: str, namespace: str, patience: float) -> Book:
    """Let them play, and give what they wrote down."""
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
    """All that there is of a name, for whoever wants to know whether it can be had."""
    if primitive == "semaphore":
        return client.semaphore(name, LIMIT).acquire(permits=LIMIT, timeout=timeout)
    if primitive == "rwlock":
        return client.rwlock(name).write().acquire(timeout=timeout)
    return client.lock(name).acquire(timeout=timeout)


class _Seat:
    """A client that some players share. When one of them leaves, it is closed, and there is another one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._players = 0
        self.client = make()

    def enter(self) -> None:
        """One more plays here."""
        with self._lock:
            self._players += 1

    async def leave(self) -> None:
        """One less does; the last one closes the client."""
        with self._lock:
            self._players -= 1
            last = not self._players
        if last:
            await settled(self.client.close())

    async def desert(self) -> None:
        """Close the client, whatever others are doing with it, and sit down with another one."""
        with self._lock:
            old, self.client = self.client, self._make()
        await settled(old.close())


class _Player:
    """One thread or task and what it does."""

    def __init__(self, api: Api, script: Script, number: int, book: Book, seat: _Seat) -> None:
        self._api, self._script, self._book, self._seat = api, script, book, seat
        self._name = f"{api.name}-{number}"
        self._chance = random.Random(f"{script.seed}/{number}")  # noqa: S311 -- what is played is no secret
        self._attempts = 0
        seat.enter()

    async def live(self) -> None:
        """Play until enough was done."""
        try:
            while self._goes_on():
                await self._use(self._seat.client)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it should not have come
            self._book.faults.append(f"{type(error).__name__}: {error}")
        finally:
            await self._seat.leave()

    async def _use(self, client: Any) -> None:
        """Take and give back, for as long as this is the client."""
        things = self._things(client)
        while self._goes_on() and client is self._seat.client:
            thing = self._chance.choice(things)
            if self._script.primitive == "semaphore":
                thing = thing._replace(weight=self._chance.randint(1, LIMIT))
            held = await self._acquire(thing)
            if held is not None:
                await self._hold(held)

    async def _hold(self, held: _Held) -> None:
        """Do with a lease what people do with leases."""
        habit = self._draw(("none", 70), ("linger", 25), ("lower", 15), *FORGETTING[: 3 * self._forgets])
        if habit in ("forget", "leave"):
            held.note.begin("release")
            held.note.leave(held.until())
            del held.lease  # it runs out by itself
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
        """What was asked for, unless it is cancelled meanwhile, at any moment."""
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
    """A player has cancelled what it waited for."""


class _Note:
    """Writes down the operations of one attempt."""

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
        """What was begun never ends."""
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
        """Until when it is believed in. What was lost meanwhile was believed in as long as was known then."""
        now = monotonic()
        if remaining := self.lease.remaining():
            self.known = now + remaining
        return self.known
