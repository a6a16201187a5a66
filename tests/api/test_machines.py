"""Random programs against the models: several callers of two clients, on a real server, in both APIs.

Each machine does to one object whatever its callers and an operator may do, in any order, and after each step holds the
object against `handfast_lab.checker.models`: who holds what, who waits in which order, who got in and with which fence. What
the server hands over is looked for at once; only callers that have just been sent to stand in line are waited for, and
requests for several locks, since these come by themselves when they are rung.

A run is the same one every time, and shows what fails as it is. ``HANDFAST_EXAMPLES=1000`` does that many programs of
each machine instead, longer ones and other ones every time; what fails is then made as short as can be, which may take
minutes, and is remembered in ``.hypothesis``. ``-m slow`` shows that mistakes planted in the scripts are caught.

Two things stand for what takes time. A lease is over when its deadline is set to the past by hand and the line is looked
at; and a caller gives up when its task is cancelled, or its thread interrupted as by Ctrl-C. Real timeouts are in here too.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
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

import handfast._engine.calls
from handfast import AcquireTimeout, HandfastError, LeaseLost, LimitExceeded, NotOwner, WouldDeadlock
from handfast._engine.keys import KeySet
from handfast._engine.script import LuaScript
from handfast_lab.checker.models import MAX_PERMITS, Ask, Reentrant, State
from tests._support.apis import ASYNCIO, SYNC, Call
from tests._support.helpers import Engine, eventually_async

EXAMPLES = int(os.environ.get("HANDFAST_EXAMPLES", "0"))

BRIEF = settings(
    max_examples=settings.default.max_examples // 5,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),  # how long a program takes is the server's affair
    print_blob=False,
)
LONG = settings(
    max_examples=EXAMPLES or 1,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],  # to explain would trace everything, and take much longer
    suppress_health_check=list(HealthCheck),  # see BRIEF
)

RETRY_FOR = 10.0
"""Seconds within which what must happen has to happen."""

ACTORS = 4

OPTIONS = {"ttl": 60.0, "renew": False}
"""A machine that stalls for a while must not lose its leases."""

numbers = itertools.count(1)


# --- those who act


class Interrupted(BaseException):
    """What an interrupt raises in a thread."""


class Outcome(NamedTuple):
    value: object
    error: BaseException | None


class Actor:
    """A caller: one task, and in the sync API the thread that stands for it. It does one thing after the other."""

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
        """Do this; a future that will have the outcome."""
        self._under_way = asyncio.get_running_loop().create_future()
        self._orders.put_nowait((work, self._under_way))
        return self._under_way

    def interrupt(self):
        """Break off what it does. A thread that sleeps on its socket notices when something arrives there."""
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
            except BaseException as error:  # noqa: BLE001 -- whoever awaits the outcome raises it
                outcome = Outcome(None, error)
            if not under_way.done():  # unless everybody has left
                under_way.set_result(outcome)
            del order, work, outcome, under_way
            while asyncio.current_task().cancelling():
                asyncio.current_task().uncancel()


class Stage:
    """Two clients, and the actors that use them in turn. It is kept from one program to the next; only names change."""

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
        """A program has failed: whoever still waits gets what it waits for. What hung will hang again, so wait less for it."""
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
        for actor in self.actors[:2]:  # a client that has held a lease for a while hears of it when one is taken away
            lease = (await actor.begin(actor.client.lock("warm", **OPTIONS).acquire)).value
            home = self.raw.hget(KeySet("hf", "lock", "warm").key("tokens"), lease.token).split()[7]
            await eventually_async(lambda home=home: self.raw.pubsub_numsub(home)[0][1])
            await actor.begin(lease.release)

    async def _serve_all(self):
        """Forget all there is and ring everybody, who then ask again, until nobody waits. Whether it came to that."""
        until = time.monotonic() + self.patience
        while not (served := all(actor.is_idle for actor in self.actors)) and time.monotonic() < until:
            waiting = [record for key in self.raw.scan_iter("*:tokens") for record in self.raw.hgetall(key).items()]
            self.raw.flushall()
            for token, record in waiting:
                if token not in ("used", "fence", "limit"):
                    self.raw.publish(record.split(" ")[6], f"granted {token} 0 {10**17} 0")
            await asyncio.sleep(0.01)
        self.raw.flushall()
        return served

    async def _leave(self):
        everybody = (*self.actors, self.operator)
        for actor in everybody:
            if not actor.is_idle:
                actor.task.cancel()  # its thread, if it has one, hangs on
            actor.end()
        for client in self._clients:
            await client.close()
        await asyncio.wait([actor.task for actor in everybody], timeout=RETRY_FOR)


# --- what all machines do


def among(options):
    """One of what the machine offers at that moment."""
    return st.runner().flatmap(lambda machine: st.sampled_from(options(machine)))


def view(statuses):
    """Of each name: who holds how many permits, who waits for how many, how many there are, and how many are free."""
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
    """A rule that performs a method of the machine while there is something for it to do."""

    def perform(self, **values):
        self.play(getattr(self, method)(**values))

    perform.__name__ = method.removeprefix("_")
    performed = rule(**drawn)(perform)
    return performed if when is None else precondition(when)(performed)


IDLE = among(lambda machine: machine.idle())
WISH = st.runner().flatmap(lambda machine: machine.wishes)


class Machine(RuleBasedStateMachine):
    """One object of a fresh name, its callers, and its model. Requests are numbered; leases are called by their request."""

    stage: Stage
    kind = "lock"
    wishes = st.just("it")
    names = ("a",)
    own_limit = 1
    """The limit that the operator gives, which counts where none is set."""
    comes_by_itself = False
    """Whether what is handed over takes an answer of those who get it."""

    def __init__(self):
        super().__init__()
        self.prefix = f"m{next(numbers)}:"
        self.state = State()
        self.requests = itertools.count(1)
        self.calls = {}
        """The waiting callers: by request, who it is and the outcome to come."""
        self.leases = {}
        """The leases that nobody has released, lost ones too."""
        self.owners = {}
        self.tokens = {}
        self.fences = {}
        self.lost = set()
        self.failed = False

    # --- for the machines to say

    def thing(self, actor, wish):  # noqa: ARG002 -- there is only one
        """What the actor asks, and with which options."""
        return actor.client.lock(self.prefix + "a", **OPTIONS), {}

    def ask(self, request, actor, wish):  # noqa: ARG002 -- see thing
        """The same for the model."""
        return Ask(request)

    def refusal(self, actor, wish):
        """The error that a waiting acquire of this actor raises at once, if any."""

    async def look(self):
        """The status of each name."""
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
        if self.state.is_too_much(ask):
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
        """Somebody may come behind it meanwhile. In the end it is as if the first had never been there."""
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
        await self.eventually_async(lambda: token.isdisjoint(self.queue(ask)))  # a server that was slow is told again
        await self.settle(newcomer)

    give_up = step(
        "_give_up",
        lambda self: self.state.line,
        request=among(lambda machine: [ask.who for ask in machine.state.line]),
    )

    async def _give_up(self, request):
        actor, outcome = self.calls.pop(request)
        (ask,) = (ask for ask in self.state.line if ask.who == request)
        self.state = self.state.leave(request)
        (token,) = (token for token in self.queue(ask) if token.startswith(self.tokens[request]))
        inbox = self.stage.raw.hget(self.key(ask.names[0], "tokens"), token).split(" ")[6]
        actor.interrupt()
        self.stage.raw.publish(inbox, "granted nobody 0 0 0")
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
        for name in ask.names:
            assert self.stage.raw.zadd(self.key(name, "holders"), {self.leases[request].token: 1}, xx=True, ch=True)
        self.lost.add(request)
        self.state = self.state.gone(request).served()
        for name in ask.names:
            Engine(self.stage.raw, self.prefix + name, kind=self.kind).cancel("nobody")
        await self.settle()

    # --- how they do it

    def idle(self):
        """Those who do not wait, as far as the model knows."""
        return [actor for actor in self.stage.actors if self.is_idle(actor)]

    def is_idle(self, actor):
        return all(waiting is not actor for waiting, _ in self.calls.values())

    def releasable(self):
        return list(self.leases)

    def sharing(self, request):
        """The leases that share what was granted to this request."""
        return [self.leases[request]]

    def key(self, name, part):
        return KeySet("hf", self.kind, self.prefix + name).key(part)

    def queue(self, ask):
        """The tokens in the line of the first name that is asked for."""
        return self.stage.raw.zrange(self.key(ask.names[0], "queue"), 0, -1)

    def named(self, name):  # noqa: ARG002 -- some have several
        """One name, for an operator to look at."""
        return self.thing(self.stage.operator, "it")[0]

    def play(self, steps):
        try:
            self.stage.run(steps)
        except BaseException:
            self.failed = True
            raise

    async def outcome(self, under_way):
        await asyncio.wait((under_way,), timeout=self.stage.patience)
        assert under_way.done(), "it goes on and on"
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
            assert time.monotonic() < until, "it never came true"
            await asyncio.sleep(0.001)

    def begin(self, actor, wish):
        """Let the actor ask and wait; the number of its request."""
        thing, options = self.thing(actor, wish)
        ask = self.ask(next(self.requests), actor, wish)
        self.state = self.state.ask(ask)
        self.calls[ask.who] = actor, actor.begin(partial(thing.acquire, **options))
        return ask.who

    def take(self, ask, actor, lease):
        """The actor has got this lease."""
        assert all(lease.fence > self.fences.get(name, 0) for name in ask.names)
        self.fences.update(dict.fromkeys(ask.names, lease.fence))
        assert self.tokens.setdefault(ask.who, lease.token[:8]) == lease.token[:8]
        self.leases[ask.who], self.owners[ask.who] = lease, actor

    async def settle(self, newcomer=None):
        """The server has it as the model says, and then whoever is in gets its lease, and whoever is out is told so.

        The others need do nothing for what is handed to them; only a newcomer may be on its way.
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
        """The lease that a caller waits for."""
        actor, outcome = self.calls.pop(request)
        (ask,) = (ask for ask in self.state.holding if ask.who == request)
        self.take(ask, actor, await self.result(outcome))

    async def statuses(self, newcomer):
        """What the server says of each name, and which token a newcomer has that stands in line."""
        statuses = await self.look()
        for name, status in statuses.items():
            line = [waiter.token for waiter in status.waiters]
            asks = self.state.waiters(name)
            if newcomer in (ask.who for ask in asks) and newcomer not in self.tokens:
                self.tokens.update((newcomer, token) for token in line[-1:] if token not in self.tokens.values())
            for ask in asks:
                if self.state.is_too_much(ask) and self.tokens[ask.who] not in line:
                    self.state = self.state.leave(ask.who)  # it has been told
            first = self.state.waiters(name)[:1]
            assert not (status.free and any(map(self.state.is_too_much, first))), "who wants too much is in the way"
        return statuses

    def expected(self):
        """The `view` that the model has."""
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
        """Everybody releases until everybody has been served. Nothing is left then."""
        while self.leases or self.calls:
            if self.releasable():
                await self._release(self.releasable()[0])
            else:  # an owner waits, and nobody else may release for it
                await self._give_up(next(iter(self.calls)))
        assert self.state == State(resized=self.state.resized)
        await self.settle()
        for name in self.names:
            holders, queue, tokens, past = (
                self.key(name, part) for part in ("holders", "queue", "tokens", "tombstones")
            )
            assert self.stage.raw.exists(holders, queue) == 0
            assert {"used", "fence", "limit"}.issuperset(self.stage.raw.hkeys(tokens))
            assert all(self.stage.raw.pttl(key) != -1 for key in (tokens, past))


# --- the machines


class LockMachine(Machine):
    """One permit, one name."""


class SemaphoreMachine(Machine):
    """Several permits, clients that may differ on how many there are, and an operator who decides."""

    kind = "semaphore"
    wishes = st.integers(1, 4)
    limits = (1,) * ACTORS

    @initialize(
        limits=st.integers(1, 5).map(lambda limit: [limit] * ACTORS)
        | st.lists(st.integers(2, 5), min_size=ACTORS, max_size=ACTORS)
    )
    def begin_with(self, limits):
        """A handoff takes a limit of 1 for everybody's (lib/queue.lua), so it is never mixed with others here."""
        self.limits = limits

    def thing(self, actor, wish):
        limit = self.limit_of(actor)
        thing = actor.client.semaphore(self.prefix + "a", limit, **OPTIONS)
        return thing, {} if wish == "it" else {"permits": min(wish, limit)}

    def ask(self, request, actor, wish):
        limit = self.limit_of(actor)
        return Ask(request, weight=min(wish, limit), limit=limit)

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
    """Readers and writers, writers that go on as readers, and blocks in which nobody may wait for the same lock."""

    kind = "rwlock"
    own_limit = MAX_PERMITS
    wishes = st.sampled_from(["read", "write"])

    def __init__(self):
        super().__init__()
        self.blocks = []
        """The blocks that were entered and not left yet: the actor, the request, and the lease."""

    def thing(self, actor, wish):
        rwlock = actor.client.rwlock(self.prefix + "a", on_lost="warn", **OPTIONS)
        return rwlock if wish == "it" else getattr(rwlock, wish)(), {}

    def ask(self, request, actor, wish):  # noqa: ARG002 -- all alike
        return Ask(request, weight=1 if wish == "read" else MAX_PERMITS, limit=MAX_PERMITS)

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
        """Begin a block that holds this lease."""
        owner, lease = self.owners[request], self.leases[request]
        self.blocks.append((owner, request, lease))
        await self.do(owner, lease.__aenter__)

    def in_blocks(self):
        return [actor for actor in self.idle() if any(owner is actor for owner, _, _ in self.blocks)]

    nest = step("_nest", lambda self: self.in_blocks(), actor=among(lambda machine: machine.in_blocks()))

    async def _nest(self, actor):
        """Within a block, begin another one with what can be had without waiting."""
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
    """A lock whose callers come again, and others who want it as a plain lock."""

    wishes = st.sampled_from(["again", "again", "plain"])
    expire = None  # its callers could not know yet that they lost it, and would come again

    def __init__(self):
        self.model = Reentrant()
        super().__init__()
        self.shares = {}
        """The reentrant leases, by number. Those whose request was granted are in `leases` too, while any of them is."""

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
    """Locks of three names, wanted one by one and together, in one order and another."""

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
        return Ask(request, names=tuple(wish))

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


@pytest.fixture(scope="module", params=[SYNC, ASYNCIO], ids=lambda api: api.name)
def kept(request, server):
    """A stage of either API, for all machines one after the other."""
    stage = Stage(request.param, server.url)
    yield stage
    stage.close()


@pytest.fixture
def stage(kept, raw):
    kept.patience = RETRY_FOR
    return kept


@pytest.mark.hypothesis
@pytest.mark.timeout(0 if EXAMPLES else 120)
@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_its_callers_do_it_does_what_the_model_does(stage, machine):
    run(machine, stage, LONG if EXAMPLES else BRIEF)


# --- what they are good for


def script(names, old, new):
    """Plant a mistake in these scripts: in all whose text it is part of, or in the ones named."""

    def plant(monkeypatch):
        for name in names:
            sound = getattr(handfast._engine.calls, name)
            assert sound.source.count(old) == 1
            broken = LuaScript(sound.name, sound.source.replace(old, new), sound.header)
            monkeypatch.setattr(handfast._engine.calls, name, broken)

    return plant


def method(module, owner, name, broken):
    """Plant a mistake in a method of both APIs."""

    def plant(monkeypatch):
        for api, prefix in (("sync", ""), ("aio", "Async")):
            home = importlib.import_module(f"handfast._api.{api}.{module}")
            monkeypatch.setattr(getattr(home, owner.format(prefix)), name, broken)

    return plant


ALL = ["ACQUIRE", "RELEASE", "CANCEL", "REVOKE", "LOWER", "RESIZE", "MULTI_ACQUIRE"]
FIRST = "local head = redis.call('ZRANGE', s.queue, 0, 0)[1]"
FIRST_THAT_FITS = """
    local head
    for _, waiter in ipairs(redis.call('ZRANGE', s.queue, 0, -1)) do
      local record = read_record(redis.call('HGET', s.tokens, waiter))
      head = head or waiter
      if s.used + record.weight <= (s.limit or record.limit) then
        head = waiter
        break
      end
    end"""

MISTAKES = {
    "a release hands nothing over": (LockMachine, script(["RELEASE"], "hand_over(s) or more", "0 or more")),
    "a timeout leaves its place in line": (
        LockMachine,
        script(["CANCEL"], "redis.call('ZREM', queue, token)", ""),
    ),
    "a fence is used again": (LockMachine, script(ALL, "fence = math.max(fence + 1, now,", "fence = math.max(fence,")),
    "a revocation spares those who came late": (
        LockMachine,
        script(["REVOKE"], "record.fence <= up_to_fence", "record.fence < 9"),
    ),
    "small requests overtake in the line": (SemaphoreMachine, script(ALL, FIRST, FIRST_THAT_FITS)),
    "a newcomer overtakes": (SemaphoreMachine, script(["ACQUIRE"], "if not last[1] and s.used", "if s.used")),
    "a release does not settle": (
        SemaphoreMachine,
        script(["RELEASE"], "if not s.stored_used or s.used == s.stored_used then", "if true then"),
    ),
    "a resize hands nothing over": (
        SemaphoreMachine,
        script(["RESIZE"], "local more = hand_over(s)", "local more = 0"),
    ),
    "a downgrade hands nothing over": (RWLockMachine, script(["LOWER"], "local more = hand_over(s)", "local more = 0")),
    "a downgrade makes nothing free": (
        RWLockMachine,
        script(["LOWER"], "s.used = s.used - (held.weight - weight)", ""),
    ),
    "who is in a block waits for itself": (
        RWLockMachine,
        method("rwlock", "_Side", "_existing_lease", lambda *_, **__: None),
    ),
    "the first release of several gives a reentrant lock up": (
        RLockMachine,
        method("rlock", "{}RLease", "_is_last", lambda *_: True),
    ),
    "a caller that comes again waits for itself": (
        RLockMachine,
        method("rlock", "{}RLock", "_existing_lease", lambda *_, **__: None),
    ),
    "a part of the names will do": (LockAllMachine, script(["MULTI_ACQUIRE"], "if position == 0", "if position <= 1")),
    "only the first of several names is given back": (
        LockAllMachine,
        script(["RELEASE"], "for k = 1, #KEYS, 4 do", "for k = 1, 4, 4 do"),
    ),
    "somebody who wants several names is passed": (
        LockAllMachine,
        script(ALL, "waiter.claim_ms == 0 and", "waiter.claim_ms < 0 and"),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(stage, monkeypatch, mistake):
    machine, plant = MISTAKES[mistake]
    run(machine, stage, settings(BRIEF, max_examples=1))
    plant(monkeypatch)
    stage.patience = 1.0
    with pytest.raises((AssertionError, HandfastError, pytest.fail.Exception)):
        run(machine, stage, settings(BRIEF, max_examples=100, report_multiple_bugs=False))
