"""Random programs against the models: several callers of two clients, on a real server, in both APIs.

Each machine applies the operations of callers and of an operator to one object in random order. After each step it
compares the object with `handfast_lab.checker.models`: holders, queue order, grants and fences. A handoff must be
visible at once. The machine waits only for callers that have just started to wait, and for requests for several locks,
which acquire by a second request after they are notified.

A run is deterministic and reports a failure as it is. ``HANDFAST_EXAMPLES=1000`` runs that many longer, random programs
of each machine instead, minimises a failure, which may take minutes, and stores it in ``.hypothesis``. ``tests/deep``
shows that mistakes planted in the scripts are detected.

Two operations replace the passing of time. A lease expires when the test sets its deadline to the past and cancels an
unknown request; and a caller gives up when its task is cancelled, or its thread interrupted as by Ctrl-C. Real timeouts
occur too.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import threading
import time
from functools import partial
from typing import NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from handfast import AcquireTimeout, LeaseLost, LimitExceeded, NotOwner, WouldDeadlock
from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles
from handfast._engine.records import read_record
from handfast_lab.checker.models import MAX_PERMITS, Reentrant, Request, State
from tests._support.apis import ASYNCIO, SYNC, Call
from tests._support.engine import Engine, hget, read_stored
from tests._support.helpers import eventually_async

EXAMPLES = int(os.environ.get("HANDFAST_EXAMPLES", "0"))

BRIEF = settings(
    max_examples=settings.default.max_examples // 5,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),  # the duration of a program depends on the server
    print_blob=False,
)
LONG = settings(
    max_examples=EXAMPLES or 1,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],  # the explain phase traces all code and is much slower
    suppress_health_check=list(HealthCheck),  # see BRIEF
)

RETRY_FOR = 10.0
"""Seconds within which an expected state must be reached."""

ACTORS = 4

OPTIONS = {"ttl": 60.0, "renew": False}
"""A machine that stalls for a while must not lose its leases."""

numbers = itertools.count(1)


# --- actors


class Interrupted(BaseException):
    """Raised in a thread by `Actor.interrupt`."""


class Outcome(NamedTuple):
    value: object
    error: BaseException | None


class Actor:
    """A caller: one task, and in the sync API its thread. It runs one call after the other."""

    def __init__(self, number, api, client):
        self.number = number
        self.client = client
        self._api = api
        self._orders = asyncio.Queue()
        self._under_way = None
        self.task = asyncio.create_task(self._play())

    def __repr__(self):
        return f"actor {self.number}"

    @property
    def is_idle(self):
        return self._under_way is None or self._under_way.done()

    def begin(self, work):
        """Start the work and return a future of its outcome."""
        self._under_way = asyncio.get_running_loop().create_future()
        self._orders.put_nowait((work, self._under_way))
        return self._under_way

    def interrupt(self):
        """Interrupt the current work. A thread that blocks on its socket notices when bytes arrive there."""
        if self._api is ASYNCIO:
            self.task.cancel()
        else:
            ident = ctypes.c_ulong(self._ident)
            assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Interrupted)) == 1

    def end(self):
        self._orders.put_nowait(None)

    async def _play(self):
        if self._api is SYNC:
            self._ident = await Call(threading.get_ident)
        while (order := await self._orders.get()) is not None:
            work, under_way = order
            try:
                outcome = Outcome(await work(), None)
            except BaseException as error:  # noqa: BLE001 -- raised where the outcome is awaited
                outcome = Outcome(None, error)
            if not under_way.done():  # unless the stage was left
                under_way.set_result(outcome)
            del order, work, outcome, under_way
            while asyncio.current_task().cancelling():
                asyncio.current_task().uncancel()


class Stage:
    """Two clients and the actors that share them. All programs use the same stage, each with new names."""

    def __init__(self, api, url):
        self.api = api
        self.patience = RETRY_FOR
        self.raw = redis.Redis.from_url(url, decode_responses=True)
        self._url = url
        self._loop = asyncio.new_event_loop()
        self.run(self._enter())

    def run(self, coroutine):
        return self._loop.run_until_complete(coroutine)

    def clear(self):
        """End all calls after a failed program. Later programs wait less, since a call that hung will hang again."""
        self.patience = 1.0
        if not self.run(self._serve_all()):
            self.run(self._leave())
            self.run(self._enter())

    def close(self):
        self.run(self._leave())
        self._loop.close()
        self.raw.close()

    async def _enter(self):
        self._clients = [self.api.client(self._url) for _ in range(2)]
        self.actors = [Actor(number, self.api, self._clients[number % 2]) for number in range(ACTORS)]
        self.operator = Actor("operator", self.api, self._clients[0])
        await asyncio.gather(*map(self._subscribe, self.actors[:2]))

    async def _subscribe(self, actor):
        """Have an actor's client subscribe to its control channel, which reports revoked leases."""
        name = f"warm {actor.number}"
        lease = (await actor.begin(actor.client.lock(name, **OPTIONS).acquire)).value
        channel = read_stored(self.raw, KeySet("hf", "lock", name)).records[lease.token].split()[6]
        await eventually_async(lambda: self.raw.pubsub_numsub(channel)[0][1])
        await actor.begin(lease.release)

    async def _serve_all(self):
        """Flush the server and notify all waiters, which then retry, until no actor waits.

        Return whether that was reached.
        """
        until = time.monotonic() + self.patience
        while not (served := all(actor.is_idle for actor in self.actors)) and time.monotonic() < until:
            waiting = [
                (token, read_record(hget(self.raw, key.removesuffix("tokens") + "state", token)))
                for key in self.raw.scan_iter("*:tokens")
                for token in self.raw.zrangebyscore(key, "-inf", "(0")
            ]
            self.raw.flushall()
            for token, record in waiting:
                if record is None:  # it was served between the two looks
                    continue
                self.raw.publish(record.inbox, f"granted {token} ".encode() + doubles(0, 10**15, 0))
            await asyncio.sleep(0.01)
        self.raw.flushall()
        return served

    async def _leave(self):
        actors = (*self.actors, self.operator)
        for actor in actors:
            if not actor.is_idle:
                actor.task.cancel()  # the thread of a sync actor goes on
            actor.end()
        for client in self._clients:
            await client.close()
        await asyncio.wait([actor.task for actor in actors], timeout=RETRY_FOR)


# --- the base of all machines


def among(options):
    """Draw one of the options that the machine has at that moment."""
    return st.runner().flatmap(lambda machine: st.sampled_from(options(machine)))


def view(statuses):
    """Return the holders and waiters with their weights, the limit and the free permits of each name."""
    viewed = {}
    for name, status in statuses.items():
        assert status.waiting == len(status.waiters)
        holders, line = (
            [(entry.token, entry.weight, entry.exclusive) for entry in entries]
            for entries in (status.holders, status.waiters)
        )
        viewed[name] = set(holders), line, status.limit, status.free
    return viewed


def step(method, when=None, **drawn):
    """Return a rule that runs a method of the machine if `when` holds."""

    def perform(self, **values):
        self.play(getattr(self, method)(**values))

    perform.__name__ = method.removeprefix("_")
    performed = rule(**drawn)(perform)
    return performed if when is None else precondition(when)(performed)


IDLE = among(lambda machine: machine.idle())
WISH = st.runner().flatmap(lambda machine: machine.wishes)


class Machine(RuleBasedStateMachine):
    """One object with a new name, its callers and its model.

    Requests are numbered; a lease has the number of its request.
    """

    stage: Stage
    kind = "lock"
    wishes = st.just("it")
    names = ("a",)
    own_limit = 1
    """The limit of the operator's object, in force until a resize."""
    comes_by_itself = False
    """Whether a handoff completes by a second request of the waiter."""

    def __init__(self):
        super().__init__()
        self.prefix = f"m{next(numbers)}:"
        self.state = State()
        self.requests = itertools.count(1)
        self.calls = {}
        """The actor and the future outcome of each waiting request."""
        self.leases = {}
        """The leases that have not been released, lost ones included."""
        self.owners = {}
        self.tokens = {}
        self.fences = {}
        self.lost = set()
        self.failed = False

    # --- overridden by the machines

    def thing(self, actor, wish):  # noqa: ARG002 -- there is only one
        """Return the object that the actor acquires and the options of the call."""
        return actor.client.lock(self.prefix + "a", **OPTIONS), {}

    def ask(self, request, actor, wish):  # noqa: ARG002 -- see thing
        """Return the request for the model."""
        return Request(request)

    def refusal(self, actor, wish):
        """Return the error that acquire() of this actor raises at once, if any."""

    async def look(self):
        """Return the status of each name."""
        thing, _ = self.thing(self.stage.operator, "it")
        return {"a": await self.do(self.stage.operator, thing.status)}

    # --- steps

    acquire = step("_acquire", lambda self: self.idle(), actor=IDLE, wish=WISH)

    async def _acquire(self, actor, wish):
        error = self.refusal(actor, wish)
        if error is None:
            await self.settle(self.begin(actor, wish))
        else:
            thing, options = self.thing(actor, wish)
            with pytest.raises(error):
                await self.do(actor, partial(thing.acquire, **options))
            await self.settle()

    several_acquire = step("_several_acquire", lambda self: len(self.idle()) > 1, wishes=st.lists(WISH, min_size=2))

    async def _several_acquire(self, wishes):
        for actor, wish in zip(self.idle(), wishes, strict=False):
            await self._acquire(actor, wish)

    try_acquire = step("_try_acquire", lambda self: self.idle(), actor=IDLE, wish=WISH)

    async def _try_acquire(self, actor, wish):
        thing, options = self.thing(actor, wish)
        ask = self.ask(next(self.requests), actor, wish)
        self.state = self.state.attempt(ask)
        trying = partial(thing.try_acquire, **options)
        if self.state.exceeds_limit(ask):
            with pytest.raises(LimitExceeded):
                await self.do(actor, trying)
        else:
            lease = await self.do(actor, trying)
            assert (lease is not None) == self.state.holds(ask.who)
            if lease is not None:
                self.take(ask, actor, lease)
        await self.settle()

    time_out = step(
        "_time_out",
        lambda self: len(self.idle()) > 1 and self.state.holding,
        actor=IDLE,
        wish=WISH,
        follower=IDLE,
        follower_wish=WISH,
    )

    async def _time_out(self, actor, wish, follower, follower_wish):
        """Time out while another request may queue behind it. The request that timed out must have no effect."""
        ask = self.ask(0, actor, wish)
        if self.refusal(actor, wish) is not None or not self.state.ask(ask).waits(0):
            return
        thing, options = self.thing(actor, wish)
        before = self.queue(ask)
        outcome = actor.begin(partial(thing.acquire, timeout=0.01, **options))
        await self.eventually_async(lambda: outcome.done() or self.queue(ask) != before)
        token = set(self.queue(ask)).difference(before)
        newcomer = None
        if follower is not actor and self.refusal(follower, follower_wish) is None:
            newcomer = self.begin(follower, follower_wish)
        with pytest.raises(AcquireTimeout):
            await self.result(outcome)
        await self.eventually_async(
            lambda: token.isdisjoint(self.queue(ask))
        )  # after a slow reply, the cancel is retried
        await self.settle(newcomer)

    give_up = step(
        "_give_up",
        lambda self: self.state.queue,
        request=among(lambda machine: [ask.who for ask in machine.state.queue]),
    )

    async def _give_up(self, request):
        actor, outcome = self.calls.pop(request)
        (ask,) = (ask for ask in self.state.queue if ask.who == request)
        self.state = self.state.leave(request)
        (token,) = (token for token in self.queue(ask) if token.startswith(self.tokens[request]))
        inbox = read_record(hget(self.stage.raw, self.place(ask.names[0]).key("state"), token)).inbox
        actor.interrupt()
        self.stage.raw.publish(inbox, b"granted unknown " + doubles(0, 0, 0))
        error = (await self.outcome(outcome)).error
        assert isinstance(error, (Interrupted, asyncio.CancelledError))
        await self.settle()

    release = step("_release", lambda self: self.releasable(), request=among(lambda machine: machine.releasable()))

    async def _release(self, request):
        self.state = self.state.leave(request)
        owner, lease = self.owners.pop(request), self.leases.pop(request)
        done = await self.do(owner if self.is_idle(owner) else self.stage.operator, lease.release)
        assert done == (request not in self.lost)
        await self.settle()

    extend = step("_extend", lambda self: self.leases, request=among(lambda machine: list(machine.leases)))

    async def _extend(self, request):
        work = partial(self.sharing(request)[0].extend, 120)
        if request in self.lost:
            with pytest.raises(LeaseLost):
                await self.do(self.stage.operator, work)
        else:
            await self.do(self.stage.operator, work)
        await self.settle()

    force_release = step("_force_release", lambda self: self.state.holding, name=among(lambda machine: machine.names))

    async def _force_release(self, name):
        hit = [ask.who for ask in self.state.holders(name)]
        self.lost.update(hit)
        self.state = self.state.revoke(name)
        assert await self.do(self.stage.operator, self.named(name).force_release) == len(hit)
        await self.eventually_async(lambda: all(lease.lost for request in hit for lease in self.sharing(request)))
        await self.settle()

    expire = step(
        "_expire",
        lambda self: self.state.holding,
        request=among(lambda machine: [ask.who for ask in machine.state.holding]),
    )

    async def _expire(self, request):
        (ask,) = (ask for ask in self.state.holding if ask.who == request)
        engines = [Engine(self.stage.raw, self.prefix + name, kind=self.kind) for name in ask.names]
        for engine in engines:
            engine.end_lease(self.leases[request].token)
        self.lost.add(request)
        self.state = self.state.removed(request).served()
        for engine in engines:
            engine.cancel("unknown")
        await self.settle()

    # --- helpers

    def idle(self):
        """Return the actors that do not wait according to the model."""
        return [actor for actor in self.stage.actors if self.is_idle(actor)]

    def is_idle(self, actor):
        return all(waiting is not actor for waiting, _ in self.calls.values())

    def releasable(self):
        return list(self.leases)

    def sharing(self, request):
        """Return the leases that share the grant of this request."""
        return [self.leases[request]]

    def place(self, name):
        return KeySet("hf", self.kind, self.prefix + name)

    def queue(self, ask):
        """Return the queued tokens of the first name of the request."""
        return self.stage.raw.zrangebyscore(self.place(ask.names[0]).key("tokens"), "-inf", "(0")

    def named(self, name):  # noqa: ARG002 -- some have several
        """Return the object of one name, for the operator."""
        return self.thing(self.stage.operator, "it")[0]

    def play(self, steps):
        try:
            self.stage.run(steps)
        except BaseException:
            self.failed = True
            raise

    async def outcome(self, under_way):
        await asyncio.wait((under_way,), timeout=self.stage.patience)
        assert under_way.done(), "the call did not end"
        return under_way.result()

    async def result(self, under_way):
        value, error = await self.outcome(under_way)
        if error is not None:
            raise error
        return value

    async def do(self, actor, work):
        return await self.result(actor.begin(work))

    async def eventually_async(self, condition):
        until = time.monotonic() + self.stage.patience
        while not condition():
            assert time.monotonic() < until, "the condition never became true"
            await asyncio.sleep(0.001)

    def begin(self, actor, wish):
        """Start acquire() of the actor; return the number of the request."""
        thing, options = self.thing(actor, wish)
        ask = self.ask(next(self.requests), actor, wish)
        self.state = self.state.ask(ask)
        self.calls[ask.who] = actor, actor.begin(partial(thing.acquire, **options))
        return ask.who

    def take(self, ask, actor, lease):
        """Record the lease of the actor."""
        assert all(lease.fence > self.fences.get(name, 0) for name in ask.names)
        self.fences.update(dict.fromkeys(ask.names, lease.fence))
        assert self.tokens.setdefault(ask.who, lease.token[:8]) == lease.token[:8]
        self.leases[ask.who], self.owners[ask.who] = lease, actor

    async def settle(self, newcomer=None):
        """Check the server against the model, then receive all granted leases and all refusals.

        A handoff needs no call of its waiter, so only the request of a newcomer may still be on its way.
        """
        if self.state.holds(newcomer):
            await self.receive(newcomer)
        until = time.monotonic() + self.stage.patience
        while (seen := view(statuses := await self.statuses(newcomer))) != (expected := self.expected()):
            on_its_way = self.comes_by_itself or (self.state.waits(newcomer) and newcomer not in self.tokens)
            if not on_its_way or time.monotonic() > until:
                assert seen == expected
            await asyncio.sleep(0.001)
        for ask in self.state.holding:
            if ask.who in self.calls:
                await self.receive(ask.who)
        for request, (_, outcome) in list(self.calls.items()):
            if not self.state.waits(request):
                del self.calls[request]
                with pytest.raises(LimitExceeded):
                    await self.result(outcome)
        for name, status in statuses.items():
            assert status.fence == self.fences.get(name, 0)
            fences = {self.tokens[ask.who]: self.leases[ask.who].fence for ask in self.state.holders(name)}
            assert {holder.token: holder.fence for holder in status.holders} == fences

    async def receive(self, request):
        """Receive the lease of a waiting request."""
        actor, outcome = self.calls.pop(request)
        (ask,) = (ask for ask in self.state.holding if ask.who == request)
        self.take(ask, actor, await self.result(outcome))

    async def statuses(self, newcomer):
        """Return the status of each name, and record the token of a queued newcomer."""
        statuses = await self.look()
        for name, status in statuses.items():
            queue = [waiter.token for waiter in status.waiters]
            asks = self.state.waiters(name)
            if newcomer in (ask.who for ask in asks) and newcomer not in self.tokens:
                self.tokens.update((newcomer, token) for token in queue[-1:] if token not in self.tokens.values())
            for ask in asks:
                if self.state.exceeds_limit(ask) and self.tokens[ask.who] not in queue:
                    self.state = self.state.leave(ask.who)  # it was refused
            first = self.state.waiters(name)[:1]
            assert not (status.free and any(map(self.state.exceeds_limit, first))), (
                "a waiter above the limit blocks the queue"
            )
        return statuses

    def expected(self):
        """Return the `view` of the model."""
        expected = {}
        for name in self.names:
            holders, line = (
                [(self.tokens.get(ask.who), ask.weight, ask.weight >= self.state.limit_for(ask)) for ask in asks]
                for asks in (self.state.holders(name), self.state.waiters(name))
            )
            limit = self.state.resized or self.own_limit
            expected[name] = set(holders), line, limit, max(0, limit - self.state.out(name))
        return expected

    # --- the end

    def teardown(self):
        try:
            if not self.failed:
                self.play(self.finish())
        finally:
            if self.failed:
                self.stage.clear()

    async def finish(self):
        """Release leases until all waiters have been served, and check that no state is left."""
        while self.leases or self.calls:
            if self.releasable():
                await self._release(self.releasable()[0])
            else:  # the owner waits, and no other caller may release
                await self._give_up(next(iter(self.calls)))
        assert self.state == State(resized=self.state.resized)
        await self.settle()
        for name in self.names:
            stored = read_stored(self.stage.raw, self.place(name))
            assert stored.holders == stored.queue == stored.records == {}
            assert stored.used == 0
            assert all(self.stage.raw.pttl(self.place(name).key(part)) != -1 for part in PARTS)


# --- the machines


class LockMachine(Machine):
    """One permit, one name."""


class SemaphoreMachine(Machine):
    """Several permits, clients that may have different limits, and an operator that resizes."""

    kind = "semaphore"
    wishes = st.integers(1, 4)
    limits = (1,) * ACTORS

    @initialize(
        limits=st.integers(1, 5).map(lambda limit: [limit] * ACTORS)
        | st.lists(st.integers(2, 5), min_size=ACTORS, max_size=ACTORS)
    )
    def begin_with(self, limits):
        """Mix only limits above 1: a handoff stops at a waiter with a limit of 1 (lib/handoff.lua)."""
        self.limits = limits

    def thing(self, actor, wish):
        limit = self.limit_of(actor)
        thing = actor.client.semaphore(self.prefix + "a", limit, **OPTIONS)
        return thing, {} if wish == "it" else {"permits": min(wish, limit)}

    def ask(self, request, actor, wish):
        limit = self.limit_of(actor)
        return Request(request, weight=min(wish, limit), limit=limit)

    def limit_of(self, actor):
        return self.limits[0 if actor is self.stage.operator else actor.number]

    @property
    def own_limit(self):
        return self.limits[0]

    resize = step("_resize", limit=st.none() | st.integers(1, 5))

    async def _resize(self, limit):
        self.state = self.state.resize(limit)
        thing, _ = self.thing(self.stage.operator, "it")
        await self.do(self.stage.operator, partial(thing.resize, limit))
        await self.settle()


class RWLockMachine(Machine):
    """Readers, writers, downgrades, and blocks in which acquiring the same lock would deadlock."""

    kind = "rwlock"
    own_limit = MAX_PERMITS
    wishes = st.sampled_from(["read", "write"])

    def __init__(self):
        super().__init__()
        self.blocks = []
        """The actor, request and lease of each block that is entered."""

    def thing(self, actor, wish):
        rwlock = actor.client.rwlock(self.prefix + "a", on_lost="warn", **OPTIONS)
        return rwlock if wish == "it" else getattr(rwlock, wish)(), {}

    def ask(self, request, actor, wish):  # noqa: ARG002 -- all alike
        return Request(request, weight=1 if wish == "read" else MAX_PERMITS, limit=MAX_PERMITS)

    def refusal(self, actor, wish):  # noqa: ARG002 -- to read, or to write
        blocks = (lease for owner, request, lease in self.blocks if owner is actor and request in self.leases)
        return WouldDeadlock if any(not lease.lost for lease in blocks) else None

    def acquire_context(self):
        entered = {request for _, request, _ in self.blocks}
        return [
            request
            for request, owner in self.owners.items()
            if self.is_idle(owner) and request not in self.lost and request not in entered
        ]

    enter = step(
        "_enter", lambda self: self.acquire_context(), request=among(lambda machine: machine.acquire_context())
    )

    async def _enter(self, request):
        """Enter a block with this lease."""
        owner, lease = self.owners[request], self.leases[request]
        self.blocks.append((owner, request, lease))
        await self.do(owner, lease.__aenter__)

    def in_blocks(self):
        return [actor for actor in self.idle() if any(owner is actor for owner, _, _ in self.blocks)]

    nest = step("_nest", lambda self: self.in_blocks(), actor=among(lambda machine: machine.in_blocks()))

    async def _nest(self, actor):
        """Try to acquire within a block, and enter another block with the lease."""
        before = set(self.leases)
        await self._try_acquire(actor, "read")
        for request in set(self.leases) - before:
            await self._enter(request)

    leave = step("_leave", lambda self: self.in_blocks(), actor=among(lambda machine: machine.in_blocks()))

    async def _leave(self, actor):
        """Leave the innermost block of this actor."""
        block = next(block for block in reversed(self.blocks) if block[0] is actor)
        self.blocks.remove(block)
        _, request, lease = block
        leaving = partial(lease.__aexit__, None, None, None)
        if request in self.leases and request in self.lost:
            with pytest.warns(RuntimeWarning, match="was lost"):
                await self.do(actor, leaving)
        else:
            await self.do(actor, leaving)
        self.state = self.state.leave(request)
        self.leases.pop(request, None)
        self.owners.pop(request, None)
        await self.settle()

    def writers(self):
        return [ask.who for ask in self.state.holding if ask.weight == MAX_PERMITS]

    downgrade = step("_downgrade", lambda self: self.writers(), request=among(lambda machine: machine.writers()))
    downgrade_any = step("_downgrade", lambda self: self.leases, request=among(lambda machine: list(machine.leases)))

    async def _downgrade(self, request):
        lease = self.leases[request]
        if request in self.lost and (lease.lost or lease.writes):
            with pytest.raises(LeaseLost):
                await self.do(self.stage.operator, lease.downgrade)
        else:
            self.state = self.state.lower(request, 1)
            await self.do(self.stage.operator, lease.downgrade)
            assert not lease.writes
        await self.settle()

    async def finish(self):
        await super().finish()
        while self.blocks:
            await self._leave(self.blocks[-1][0])


class RLockMachine(Machine):
    """A lock that callers reacquire, and that others acquire as a plain lock."""

    wishes = st.sampled_from(["again", "again", "plain"])
    expire = None  # a caller that does not know of the loss yet would reacquire

    def __init__(self):
        self.model = Reentrant()
        super().__init__()
        self.shares = {}
        """The reentrant leases by number. The one whose request was granted stays in `leases` until the last is
        released."""

    @property
    def state(self):
        return self.model.lock

    @state.setter
    def state(self, lock):
        self.model = Reentrant(lock, self.model.shares)

    def thing(self, actor, wish):
        verbs = actor.client.rlock if wish == "again" else actor.client.lock
        return verbs(self.prefix + "a", **OPTIONS), {}

    def take(self, ask, actor, lease):
        super().take(ask, actor, lease)
        if hasattr(lease, "_hold"):
            self.shares[ask.who] = lease
            self.model = self.model.enter(ask.who, actor)

    def refusal(self, actor, wish):
        grant = self.model.grant_of(actor) if wish == "again" else None
        return LeaseLost if grant in self.lost else None

    def sharing(self, request):
        return [self.shares[share] for share, grant, _ in self.model.shares if grant == request] or [
            self.leases[request]
        ]

    def comes_again(self, actor, wish):
        return wish == "again" and self.model.grant_of(actor) is not None

    async def _acquire(self, actor, wish):
        if self.comes_again(actor, wish):
            await self._again(actor, self.thing(actor, wish)[0].acquire)
        else:
            await super()._acquire(actor, wish)

    async def _try_acquire(self, actor, wish):
        if self.comes_again(actor, wish):
            await self._again(actor, self.thing(actor, wish)[0].try_acquire)
        else:
            await super()._try_acquire(actor, wish)

    async def _again(self, actor, work):
        grant = self.model.grant_of(actor)
        if grant in self.lost:
            with pytest.raises(LeaseLost):
                await self.do(actor, work)
        else:
            lease, first = await self.do(actor, work), self.leases[grant]
            assert (lease.token, lease.fence) == (first.token, first.fence)
            number = next(self.requests)
            self.shares[number] = lease
            self.model = self.model.enter(number, actor)
        await self.settle()

    async def _time_out(self, actor, wish, follower, follower_wish):
        if not (self.comes_again(actor, wish) or self.comes_again(follower, follower_wish)):
            await super()._time_out(actor, wish, follower, follower_wish)

    def releasable(self):
        plain = [request for request in self.leases if all(grant != request for _, grant, _ in self.model.shares)]
        return plain + [share for share, _, owner in self.model.shares if self.is_idle(owner)]

    async def _release(self, request):
        if request not in self.shares:
            await super()._release(request)
            return
        grant, owner = next((grant, owner) for share, grant, owner in self.model.shares if share == request)
        self.model = self.model.release(request)
        assert await self.do(owner, self.shares.pop(request).release) == (grant not in self.lost)
        if self.model.grant_of(owner) is None:
            del self.leases[grant], self.owners[grant]
        await self.settle()

    release_by_another = step(
        "_release_by_another",
        lambda self: self.model.shares and self.idle(),
        share=among(lambda machine: [share for share, _, _ in machine.model.shares]),
        intruder=IDLE,
    )

    async def _release_by_another(self, share, intruder):
        if (share, intruder) not in [(own, owner) for own, _, owner in self.model.shares]:
            with pytest.raises(NotOwner):
                await self.do(intruder, self.shares[share].release)
            await self.settle()


class LockAllMachine(Machine):
    """Locks of three names, acquired alone and together in different orders."""

    names = ("a", "b", "c")
    wishes = st.sampled_from(["a", "b", "c", ("b",), ("a", "b"), ("b", "a"), ("c", "b"), ("a", "c"), ("c", "b", "a")])
    comes_by_itself = True

    def thing(self, actor, wish):
        if isinstance(wish, str) and wish != "it":
            return self.single(actor, wish), {}
        names = [self.prefix + name for name in (self.names if wish == "it" else wish)]
        return actor.client.lock_all(names, **OPTIONS), {}

    def single(self, actor, name):
        return actor.client.lock(self.prefix + name, **OPTIONS)

    def named(self, name):
        return self.single(self.stage.operator, name)

    def ask(self, request, actor, wish):  # noqa: ARG002 -- all alike
        return Request(request, names=tuple(wish))

    def take(self, ask, actor, lease):
        super().take(ask, actor, lease)
        if len(ask.names) > 1:
            assert lease.fences == {self.prefix + name: lease.fence for name in ask.names}

    async def look(self):
        everything, _ = self.thing(self.stage.operator, "it")
        statuses = await self.do(self.stage.operator, everything.status)
        return {name.removeprefix(self.prefix): status for name, status in statuses.items()}


# --- the runs

MACHINES = [LockMachine, SemaphoreMachine, RWLockMachine, RLockMachine, LockAllMachine]


def run(machine, stage, how):
    run_state_machine_as_test(type(machine.__name__, (machine,), {"stage": stage}), settings=how)


@pytest.fixture
def stage(api, server, raw):
    stage = Stage(api, server.url)
    yield stage
    stage.close()


@pytest.mark.hypothesis
@pytest.mark.timeout(0 if EXAMPLES else 120)
@pytest.mark.parametrize("machine", MACHINES)
def test_random_programs_agree_with_the_model(stage, machine):
    run(machine, stage, LONG if EXAMPLES else BRIEF)
