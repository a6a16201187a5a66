"""Forced orders: the steps of two or three clients in every possible order, on a real server.

The steps of one client keep their order. Each step is a script, called by hand in the order in which it is to reach the
server. After each one its reply and all stored state are compared with `handfast_lab.checker.models`. So the races
around a handoff, a timeout, an expiry, a resize and a downgrade are tested without concurrency.

Two steps replace events without a call: ``expire`` sets the deadline of a lease to a time before now, and ``die`` ends
the subscription to a waiter's inbox. Only the next call shows their effect, so until then either state is accepted.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading

import pytest

from handfast._engine.calls import PARTS
from handfast._engine.keys import KeySet
from handfast._engine.packing import doubles, read_reply
from handfast._engine.records import read_record
from handfast._engine.script import load
from handfast_lab.checker.models import MAX_PERMITS, Request, State
from tests._support.apis import SYNC, Call, until_queued
from tests._support.engine import CALLER, TTL_MS, WAIT_MS, Engine, hget
from tests._support.helpers import THOROUGH, eventually


def orders(scripts):
    """Every order of the steps of these clients, each of whom does its own steps in turn."""
    if not any(scripts):
        yield []
    for number, script in enumerate(scripts):
        if script:
            for rest in orders([*scripts[:number], script[1:], *scripts[number + 1 :]]):
                yield [script[0], *rest]


@pytest.fixture
def subscriber(raw):
    """A subscriber to the inbox of every waiter."""
    pubsub = raw.pubsub()
    pubsub.subscribe("live")
    eventually(lambda: raw.pubsub_numsub("live")[0][1])
    yield
    pubsub.close()


class Scene:
    """The scripts of a few names, the model of them, and what their callers know."""

    def __init__(self, raw, prefix, kind, names="a"):
        self.raw = raw
        self.prefix = prefix
        self.kind = kind
        self.names = names
        self.state = State()
        self.asks = {}
        self.over = set()
        """The tokens that were released or cancelled, or found lost when they were to be released."""
        self.lost = set()
        """Those of them that were found lost."""
        self.silent = set()
        """The waiters that died in the queue."""
        self.grants = {}
        """The fence of each token that has a lease, as far as its caller knows."""
        self.fences = {name: {} for name in names}
        """The fence of each holder that was ever seen."""

    # --- steps

    def ask(self, token, names="a", weight=1, limit=1):
        """Send an acquire for the first time, or once more."""
        ask = self.asks[token] = Request(token, tuple(names), weight, limit)
        reply = self.acquire(ask, WAIT_MS)
        if token in self.over:
            assert reply == ["finished"]
            return
        knows = self.state.holds(token) or self.state.waits(token)
        self.state = self.state.served() if knows else self.state.ask(ask)
        if self.state.holds(token):
            assert reply[0] == "granted"
            assert reply[1] == self.grants.setdefault(token, reply[1])
        elif self.state.waits(token):
            assert reply[0] == "queued"
        else:
            assert reply == ["exceeds_limit", self.state.limit_for(ask)]

    def attempt(self, token, names="a", weight=1, limit=1):
        ask = self.asks[token] = Request(token, tuple(names), weight, limit)
        reply = self.acquire(ask, 0)
        asked = self.state.attempt(ask)
        if asked.holds(token):
            self.state = asked
            self.grants[token] = reply[1]
            assert reply[0] == "granted"
        else:
            assert reply[0] == ("exceeds_limit" if self.state.exceeds_limit(ask) else "busy")

    def release(self, token):
        """A lease that is over can still be released until the next call; of several names, each for itself.

        Requests arrive twice and late here, so each release says that there may be copies.
        """
        had = [name for name in self.asks[token].names if self.is_there(name, token)]
        whole = len(had) == len(self.asks[token].names)
        is_released = whole or token in self.over - self.lost
        assert self.run("release", token, options=["copies"])[0] == ("released" if is_released else "lost")
        if not is_released:
            self.lost.add(token)
        self.over.add(token)
        if had or self.state.waits(token) or self.state.holds(token):
            self.state = self.state.leave(token)

    def cancel(self, token):
        assert self.run("cancel", token) == ["cancelled", 0]
        self.over.add(token)
        self.lost.discard(token)
        self.state = self.state.leave(token)

    def renew(self, token):
        assert self.run("renew", token, ttl_ms=TTL_MS)[0] == ("renewed" if self.is_held(token) else "lost")

    def lower(self, token, weight):
        held = self.is_held(token)
        assert self.run("lower", token, weight=weight)[0] == ("lowered" if held else "lost")
        if held:
            self.state = self.state.lower(token, weight)

    def revoke(self, name="a"):
        taken = [ask.who for ask in self.state.holders(name) if not self.is_awaited(ask)]
        engine = self.engine(name)
        assert engine.revoke(engine.inspect()[2]) == ["revoked", len(taken), 0]
        self.state = self.state.revoke(name) if taken else self.state.served()

    def resize(self, limit):
        assert self.engine("a").resize(limit or 0) == ["resized", 0]
        self.state = self.state.resize(limit)

    def expire(self, token):
        if self.is_held(token):
            for name in self.asks[token].names:
                self.engine(name).end_lease(token)
            self.state = self.state.removed(token)

    def die(self, token):
        if self.state.waits(token):
            state = self.engine("a").key("state")
            self.raw.hset(state, token, hget(self.raw, state, token).replace(b"live ", b"unheard "))
            self.silent.add(token)
            self.state = self.state.removed(token)

    # --- how they are done

    def engine(self, name, limit=1):
        return Engine(self.raw, self.prefix + name, limit=limit, kind=self.kind)

    def acquire(self, ask, wait_ms):
        if len(ask.names) == 1:
            return self.engine(ask.names[0], ask.limit).acquire(ask.who, weight=ask.weight, wait=wait_ms, inbox="live")
        request, wants = doubles(TTL_MS, wait_ms, 1000, 0), doubles(1, 1, 0, CALLER) + b"live control me"
        return self.run("acquire", ask.who, request=request, wants=wants)

    def run(self, verb, token, **args):
        """The script for the name that the token wants, or for all of them."""
        names = self.asks[token].names if token in self.asks else ("a",)
        if len(names) == 1:
            return self.engine(names[0]).run(verb, token=token, **args)
        script = load("multi_acquire" if verb == "acquire" else f"permit_{verb}")
        keys = [KeySet("hf", self.kind, self.prefix + name).key(part) for name in names for part in PARTS]
        options = args.pop("options", ())
        argv = [(args | {"token": token})[name] for name in script.header.args if name != "options"] + [*options]
        reply = self.raw.execute_command("EVAL", script.source, len(keys), *keys, *argv, NEVER_DECODE=True)
        tag, *numbers = read_reply(reply, TTL_MS)
        return [tag.decode(), *numbers]

    def is_there(self, name, token):
        """Whether the server still counts it as a holder, be its lease over or not."""
        return token in self.engine(name).holders()

    def is_held(self, token):
        """Whether it has a lease of all its names that goes on."""
        return any(
            ask.who == token and ask.names == self.asks[token].names and not self.is_awaited(ask)
            for ask in self.state.holding
        )

    def is_awaited(self, ask):
        """Whether it may have the several names that it wants, and has not come to take them."""
        return len(self.asks[ask.who].names) > 1 and ask.who not in self.grants

    # --- what must hold after each step

    def check(self):
        """What is stored is what the model says. What it says is pending may be done already."""
        inspections = self.look()
        stored = {name: self.stored(inspection) for name, inspection in inspections.items()}
        for state in (self.state, self.state.served()):
            for ask in state.queue:
                if state.exceeds_limit(ask) and ask.who not in stored[ask.names[0]][1]:
                    state = state.leave(ask.who)  # noqa: PLW2901 -- it was told, and that may have been pending too
            if stored == {name: self.expected(state, name) for name in self.names}:
                break
        assert stored == {name: self.expected(state, name) for name in self.names}
        self.state = state
        for name in self.names:
            self.check_fences(name, inspections[name])

    def look(self):
        """What the scripts tell of each name. No key is without a TTL."""
        source, inspections = load("permit_inspect").source, {}
        for name in self.names:
            keys = [self.engine(name).key(part) for part in PARTS]
            inspections[name] = self.raw.execute_command("EVAL", source, 2, *keys, 100, NEVER_DECODE=True)
            assert -1 not in map(self.raw.pttl, keys)
        return inspections

    def expected(self, state, name):
        """The holders, the queue (claimed grants before all others), how many permits are out, and the limit set."""
        holders = {ask.who: ask.weight for ask in state.holders(name) if not self.is_awaited(ask)}
        awaited = [ask.who for ask in state.holders(name) if self.is_awaited(ask)]
        line = awaited + [ask.who for ask in state.waiters(name)]
        return holders, line, sum(holders.values()), state.resized or 0

    def stored(self, inspection):
        _, _, _, limit, out, holding, waiting, *_, held_by, waited_by = inspection
        assert (holding, waiting) == (len(held_by) // 3, len(waited_by) // 3)
        holders = {token: record.weight for token, record in rows(held_by)}
        return holders, [token for token, _ in rows(waited_by) if token not in self.silent], out, limit

    def check_fences(self, name, inspection):
        """They grow with every grant, in the order of the grants."""
        _, _, latest, *_, held_by, _ = inspection
        known, fences = self.fences[name], {token: record.mark for token, record in rows(held_by)}
        for ask in self.state.holders(name):
            if not self.is_awaited(ask) and known.get(ask.who) != fences[ask.who]:
                assert fences[ask.who] > max(known.values(), default=0)
                known[ask.who] = fences[ask.who]
        assert latest >= max(known.values(), default=0)

    def end(self):
        """Everybody goes. Nothing is left then, and the next one gets all."""
        for token in self.asks:
            self.cancel(token)
        self.check()
        assert self.state == State(resized=self.state.resized)
        for name in self.names:
            engine, most = self.engine(name), self.state.resized or MAX_PERMITS
            assert {"s", "q", "last"}.issuperset(self.raw.hkeys(engine.key("state")))
            self.attempt(f"last {name}", name, most, most)
            assert self.state.holds(f"last {name}")


def rows(flat):
    """Return each token with its record."""
    return [(token.decode(), read_record(record)) for token, _, record in zip(*[iter(flat)] * 3, strict=True)]


def play(raw, kind, scripts, names="a"):
    for number, order in enumerate(orders(scripts)):
        scene = Scene(raw, f"{number}:", kind, names)
        try:
            for verb, *args in order:
                getattr(scene, verb)(*args)
                scene.check()
            scene.end()
        except BaseException as error:
            error.add_note(f"in the order {order}")
            raise


# --- the scenes

READ = ("a", 1, MAX_PERMITS)
WRITE = ("a", MAX_PERMITS, MAX_PERMITS)

SCENES = {
    "a handoff and a timeout": (
        "lock",
        [("ask", "A"), ("release", "A")],
        [("ask", "B"), ("cancel", "B")],
        [("ask", "C"), ("release", "C")],
    ),
    "requests that arrive twice and late": (
        "lock",
        [("ask", "A"), ("release", "A"), ("release", "A")],
        [("ask", "B"), ("ask", "B"), ("cancel", "B"), ("ask", "B")],
    ),
    "a lease that is over, and its holder who does not know": (
        "lock",
        [("ask", "A"), ("expire", "A"), ("renew", "A"), ("release", "A")],
        [("ask", "B"), ("ask", "B")],
        [("attempt", "C")],
    ),
    "a holder who is forced out": (
        "lock",
        [("ask", "A"), ("renew", "A"), ("release", "A")],
        [("ask", "B"), ("cancel", "B")],
        [("revoke",)],
    ),
    "a waiter who dies": (
        "semaphore",
        [("ask", "A", "a", 2, 3), ("release", "A")],
        [("ask", "B", "a", 2, 3), ("die", "B")],
        [("ask", "C", "a", 1, 3), ("attempt", "D", "a", 1, 3)],
    ),
    "large and small requests": (
        "semaphore",
        [("ask", "A", "a", 2, 3), ("release", "A")],
        [("ask", "B", "a", 3, 3), ("cancel", "B")],
        [("ask", "C", "a", 1, 3), ("release", "C")],
    ),
    "leases of many permits that are over": (
        "semaphore",
        [("ask", "A", "a", 2, 3), ("expire", "A"), ("release", "A")],
        [("ask", "B", "a", 2, 3), ("expire", "B")],
        [("ask", "C", "a", 3, 3)],
    ),
    "clients that differ on the limit": (
        "semaphore",
        [("ask", "A", "a", 2, 2), ("release", "A")],
        [("ask", "B", "a", 1, 2), ("release", "B")],
        [("ask", "C", "a", 2, 4)],
    ),
    "fewer permits, and more again": (
        "semaphore",
        [("ask", "A", "a", 1, 2), ("release", "A")],
        [("ask", "B", "a", 2, 2)],
        [("resize", 1), ("resize", 3)],
    ),
    "fewer permits while a waiter gives up": (
        "semaphore",
        [("ask", "A", "a", 2, 2), ("release", "A")],
        [("ask", "B", "a", 2, 2), ("cancel", "B")],
        [("resize", 1), ("resize", None)],
    ),
    "a writer that goes on reading": (
        "rwlock",
        [("ask", "W", *WRITE), ("lower", "W", 1), ("release", "W")],
        [("ask", "R", *READ), ("cancel", "R")],
        [("ask", "V", *WRITE)],
    ),
    "a downgrade that comes late": (
        "rwlock",
        [("ask", "W", *WRITE), ("expire", "W"), ("lower", "W", 1)],
        [("ask", "R", *READ), ("release", "R")],
        [("ask", "V", *WRITE)],
    ),
    "a downgrade of a holder that is revoked": (
        "rwlock",
        [("ask", "W", *WRITE), ("lower", "W", 1), ("lower", "W", 1)],
        [("ask", "R", *READ)],
        [("revoke",), ("attempt", "V", *WRITE)],
    ),
}

SCENES_OF_SEVERAL = {
    "several names, and one of them": (
        "lock",
        [("ask", "A", "a"), ("release", "A")],
        [("ask", "X", "ab"), ("ask", "X", "ab"), ("release", "X")],
        [("ask", "B", "b")],
    ),
    "several names in both orders": (
        "lock",
        [("ask", "X", "ab"), ("ask", "X", "ab"), ("release", "X")],
        [("ask", "Y", "ba"), ("ask", "Y", "ba"), ("cancel", "Y")],
    ),
    "several names, and their waiter gives up": (
        "lock",
        [("ask", "A", "a"), ("release", "A")],
        [("ask", "X", "ab"), ("cancel", "X")],
        [("ask", "B", "b")],
    ),
    "several names, one of which is lost": (
        "lock",
        [("ask", "X", "ab"), ("renew", "X"), ("release", "X")],
        [("ask", "B", "b")],
        [("revoke", "b")],
    ),
    "several names whose lease is over": (
        "lock",
        [("ask", "X", "ab"), ("expire", "X"), ("release", "X")],
        [("ask", "Y", "ba"), ("ask", "Y", "ba")],
        [("ask", "B", "b")],
    ),
}


QUICK = {
    "a handoff and a timeout",
    "a waiter who dies",
    "requests that arrive twice and late",
    "several names in both orders",
    "several names, one of which is lost",
}


def by_effort(scenes):
    return [scene for scene in scenes if THOROUGH or scene in QUICK]


@pytest.mark.parametrize("scene", by_effort(SCENES))
def test_in_every_order_it_does_what_the_model_does(raw, subscriber, scene):
    kind, *scripts = SCENES[scene]
    play(raw, kind, scripts)


@pytest.mark.parametrize("scene", by_effort(SCENES_OF_SEVERAL))
def test_in_every_order_several_names_do_what_the_model_does(raw, subscriber, scene):
    kind, *scripts = SCENES_OF_SEVERAL[scene]
    play(raw, kind, scripts, "ab")


# --- a grant and an interrupt at the same moment


class Interrupted(BaseException):
    """What an interrupt raises in a thread."""


LASTING = {"ttl": 60.0, "renew": False}
"""Long, so that a grant that is not passed on blocks the test."""

WANTED = {
    "lock": lambda client: client.lock("a", **LASTING),
    "semaphore": lambda client: client.semaphore("a", 1, **LASTING),
    "read": lambda client: client.rwlock("a", **LASTING).read(),
    "write": lambda client: client.rwlock("a", **LASTING).write(),
    "rlock": lambda client: client.rlock("a", **LASTING),
    "lock_all": lambda client: client.lock_all(["b", "a"], **LASTING),
}


@pytest.mark.parametrize("wanted", WANTED)
async def test_a_waiter_that_is_interrupted_by_its_own_grant_passes_it_on(api, here, there, raw, wanted):
    """The interrupt is there first, and the grant wakes the one who sleeps: it must not keep what it never learns of."""
    kind = {"semaphore": "semaphore", "read": "rwlock", "write": "rwlock"}.get(wanted, "lock")
    holders = {"read": WANTED["write"], "lock_all": WANTED["lock"]}
    first = await holders.get(wanted, WANTED[wanted])(here).acquire()
    status, ident = WANTED["lock" if wanted == "lock_all" else wanted](here), []

    async def wait():
        if api is SYNC:
            ident.append(await Call(threading.get_ident))
        await WANTED[wanted](there).acquire()

    waiter = asyncio.create_task(wait())
    await until_queued(status)
    follower = asyncio.create_task(take(WANTED[wanted](here)))
    await until_queued(status, 2)
    if api is SYNC:
        struck = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident[0]), ctypes.py_object(Interrupted))
        assert struck == 1
    else:
        waiter.cancel()
    assert Engine(raw, kind=kind).release(first.token)[0] == "released"
    with pytest.raises((Interrupted, asyncio.CancelledError)):
        await waiter
    fence = await follower
    assert fence > first.fence
    assert (await status.status()).holders == (await status.status()).waiters == ()


async def take(thing):
    """Wait for it, give it back at once, and tell its fence."""
    async with thing.acquire(timeout=10) as lease:
        return lease.fence
