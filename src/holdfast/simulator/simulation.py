"""One seed, from its plan to its verdict: callers that do what they are told, and all that is looked at meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple, cast

from redis.exceptions import RedisError

from holdfast.checking import check_all, check_fences, check_holds
from holdfast.checking.history import Kind, Operation, Outcome
from holdfast.protocol import looking
from holdfast.protocol.holding import Holding
from holdfast.simulator.client import Client, Watcher
from holdfast.simulator.faults import Faults
from holdfast.simulator.network import Network, Request
from holdfast.simulator.plans import ClientPlan, Order, Plan, draw
from holdfast.simulator.server import ENGINE_DIGESTS, SimulatedServer
from holdfast.simulator.tasks import TaskClient
from holdfast.simulator.threads import ThreadClient
from holdfast.simulator.world import Cancelled, Process, Steps, Task, World
from holdfast.wire.permits import (
    ACQUIRE,
    ACQUIRE_ALL,
    CANCEL,
    CANCEL_ALL,
    RELEASE,
    RELEASE_ALL,
    RESIZE,
    Bundle,
    Permits,
    Want,
)
from holdfast.wire.resp import ErrorReply
from holdfast.words.errors import AcquireTimeout, HoldfastError, LimitExceeded, QueueFull

__all__ = ["Result", "Simulation"]

ROUNDING = 2e-6
"""Seconds by which two clocks may differ for no other reason than that one counts in microseconds."""

LONGEST = 400.0
"""Seconds after the last fault in which everybody must have come to an end."""

TOO_MANY = 5_000
"""Scripts that no plan comes near to, unless somebody asks again and again."""

IDLE = 4.0
"""Seconds for which something that is free may stay so though somebody waits for it, when nothing goes wrong any more: a
waiter that was not rung asks after two, and a call may take its time."""

REMEMBERED = 20.0
"""Seconds for which the server remembers what was released."""

_ENDS = frozenset(script.name.encode() for script in (CANCEL, CANCEL_ALL, RELEASE, RELEASE_ALL))
_ACQUIRES = frozenset(script.name.encode() for script in (ACQUIRE, ACQUIRE_ALL))
_MAY_BE_REFUSED = _ACQUIRES | {RESIZE.name.encode()}


class Result(NamedTuple):
    """What came of a seed."""

    seed: int
    findings: list[str]
    calls: int
    faults: dict[str, int]
    seconds: float
    """Of virtual time."""
    history: list[Operation]


class Simulation(Watcher):
    """One world. ``log`` takes what happens, line by line."""

    def __init__(
        self,
        seed: int,
        server: SimulatedServer,
        *,
        log: Callable[[str], None] | None = None,
        plan: Plan | None = None,
        every: int = 8,
    ) -> None:
        self.world = World(seed, log)
        self._seed = seed
        self._records = seed % every == 0
        """Whether its history is kept and checked as a whole: not of all seeds, since that takes as long as all the rest."""
        self.plan = draw(self.world.chance) if plan is None else plan
        self.tags = self.plan.tags
        self.findings: list[str] = []
        self.history: list[Operation] = []
        self.clients: list[Client] = []
        self.is_quiet = False
        self.grace = 0.0
        self.revoked = False
        self._busy = 0
        self._believers: dict[bytes, tuple[Client, Holding]] = {}
        self.fates: dict[bytes, str] = {}
        """What became of each token: ``asking``, ``held``, ``ending`` (its owner has left, and taking it back goes on),
        ``over``, ``dropped`` or ``dead``."""
        self._ended_at: dict[bytes, float] = {}
        self._returned: set[bytes] = set()
        self._stamp = 0.0
        self._entered: set[bytes] = set()
        """Tokens that the server has let in or put in line."""
        self._released: dict[bytes, float] = {}
        self._lowered: dict[bytes, int] = {}
        self._older: set[bytes] = set()
        """Tokens that are older than a loss of data: whatever was known of them may be back, or gone."""
        self._notes: dict[int, _Note] = {}
        self._watch = server.invariants
        server.reset()
        self._watch[b"begin"](*(tag.encode() for tag in self.tags))
        self._after, self._belief = self._watch[b"after"], self._watch[b"belief"]
        self.network = Network(self.world, server, self.plan.tempo)
        self.faults = Faults(self, self.plan.faults, self.plan.rate, self.plan.most_faults)
        if self.plan.scripts_known:
            self.network.known.update(ENGINE_DIGESTS)
        self.network.on_send = self._sending
        self.network.on_executed = self._executed
        for number, client in enumerate(self.plan.clients):
            self._begin(chr(ord("A") + number), client)

    def run(self) -> Result:
        """Let it take its course, and look at what is left."""
        world, plan = self.world, self.plan
        if world.log is not None:
            world.say("plan", f"{plan.kind} {' '.join(plan.names)}, faults: {', '.join(plan.faults) or 'none'}")
        world.at(plan.quiet_at, self._quiet)
        world.run(inf)
        if self._busy:
            self.find(f"liveness: {self._busy} callers never come to an end")
        else:
            self._at_rest()
        self._judge()
        return Result(self._seed, self.findings, self.network.calls, self.faults.counts, world.now, self.history)

    def find(self, words: str) -> None:
        """Something that must not be."""
        if words not in self.findings:
            self.findings.append(words)
            self.world.say("FOUND", words)

    # --- what faults do

    def kill(self, process: Process, noticed: bool) -> None:  # noqa: FBT001 -- called by the clock
        """A process is gone. Its connections end at once, or are noticed to be gone much later."""
        if not process.alive:
            return
        process.die()
        self.world.say(process.name, "dies")
        for link in self.network.links:
            if link.process is process and link.here:
                link.here = False
                wait = self.network.travel() if noticed else self.world.between(1, 60)
                self.world.at(max(self.world.now + wait, link.to_server), self.network.drop, link)
        for token, (client, _) in list(self._believers.items()):
            if client.process is process:
                del self._believers[token]
        mark = process.name.encode() + b"-"
        for token, fate in self.fates.items():
            if token.startswith(mark) and fate != "over":
                self.fates[token] = "dead"
        for note in [note for note in self._notes.values() if note.client.process is process]:
            self.noted(note, "pending")
        for client in self.clients:
            if client.process is process:
                self._busy -= client.callers
                client.callers = 0
        self._end_if_done()

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """The server lost data of a name, or of all of them."""
        stepped = self.faults.stepped_back
        self._watch[b"lost"](tag and tag.encode(), torn, stepped, self.network.now_us())
        self._older.update(self.fates)
        if self.world.log is not None:
            self.world.say("FAULT", f"data of {tag or 'all names'} is lost")

    def note(self, client: Client, kind: Kind, order: Order, lease: str, limit: int | None = None) -> _Note:
        """An operation begins."""
        limit = getattr(order.want, "limit", 1) if limit is None else limit
        note = _Note(client, kind, order, lease, self._moment(), limit)
        if self._records:
            self._notes[id(note)] = note
        return note

    def _moment(self) -> float:
        """Now, but never the same moment twice: what came first is to be seen in the history."""
        self._stamp = max(self.world.now, self._stamp + 1e-9)
        return self._stamp

    def noted(self, note: _Note, outcome: Outcome, holding: Holding | None = None) -> None:
        """It has ended."""
        if not self._records:
            return
        del self._notes[id(note)]
        want = note.order.want
        names = tuple(part.name for part in want.parts) if isinstance(want, Bundle) else (want.name,)
        self.history.append(
            Operation(
                client=note.client.process.name,
                kind=note.kind,
                names=names,
                lease=note.lease,
                invoked=note.invoked,
                returned=None if outcome == "pending" else self._moment(),
                outcome=outcome,
                weight=getattr(want, "weight", 1),
                limit=note.limit,
                fence=holding.fence if holding is not None and outcome == "granted" else None,
                deadline=None if holding is None else holding.deadline - note.client.process.offset,
            )
        )

    def forget_fences(self) -> None:
        """The server's clock went back, and it may have forgotten the latest fence."""
        self._watch[b"forget_fences"]()

    def forget_past(self) -> None:
        """The server's clock jumped ahead: what it remembers of those that are over ended with that, too."""
        self._watch[b"forget_past"]()
        self._older.update(self.fates)

    # --- what is looked at

    def _sending(self, request: Request) -> None:
        if request.token in self._returned:
            self.find(f"invariant 10: {request.name.decode()} is sent for {request.token.decode()}, which is over")
        self.faults.strike(request)

    def _executed(self, request: Request, frame: Any) -> None:
        if self.network.calls > TOO_MANY:
            self.find(f"liveness: {TOO_MANY:,} scripts, and no end of it")
            self.world.stopped = True
        name, token = request.name, request.token
        if type(frame) is ErrorReply:
            if frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name not in _MAY_BE_REFUSED:
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        complaint = self._after(name, self.network.now_us())
        if complaint is not None:
            self.find(complaint.decode())
        tag = frame[0]
        if name in _ACQUIRES and tag in (b"granted", b"queued"):
            if self.network.out_of_memory and token not in self._entered:
                self.find(f"invariant 11: {token.decode()} is let in at maxmemory")
            self._entered.add(token)
        elif name in _ENDS:
            if tag == b"lost":
                if self._released.get(token, -inf) > self.world.now - REMEMBERED and token not in self._older:
                    self.find(f"invariant 4: {token.decode()} was released, and its release is told lost")
            else:
                self._released.setdefault(token, self.world.now)
                if self.fates[token] != "over":
                    self._over(token)

    def believes(self, client: Client, holding: Holding) -> None:
        """The client holds a lease, or one was renewed."""
        token, world = holding.token, self.world
        ends = holding.deadline - client.process.offset
        if world.log is not None:
            lease = f"{ends - world.now:.6f} s, fence {holding.fence}"
            world.say(client.process.name, f"{token.decode()} of {holding.permits.name}: {lease}")
        for tag in _tags(holding.permits):
            holds, until = self._belief(tag, token)
            if not holds and token not in self._older:
                self.find(f"invariant 4: {token.decode()} believes in a grant that was over when it asked again")
            if not self.faults.jumped_forward and (until is None or ends > self.network.moment(until) + ROUNDING):
                there = "never" if until is None else f"until {self.network.moment(until):.6f}"
                self.find(f"invariant 8: {token.decode()} believes until {ends:.6f}, the server {there}")
        self._believers[token] = client, holding
        self._look_at_believers()

    def loses(self, client: Client, holding: Holding) -> None:
        """The client has been told that a lease is lost."""
        del client
        self._believers.pop(holding.token, None)

    def _look_at_believers(self) -> None:
        if not self.plan.uniform or self.revoked or self.faults.lost_data or self.faults.jumped_forward:
            return
        out: dict[bytes, int] = {}
        for client, holding in self._believers.values():
            if not holding.given_up and not holding.loss and holding.deadline - client.process.offset > self.world.now:
                permits = holding.permits
                weight, limit = (permits.weight, permits.limit) if isinstance(permits, Permits) else (1, 1)
                weight = min(weight, self._lowered.get(holding.token, weight))
                for tag in _tags(permits):
                    out[tag] = out.get(tag, 0) + weight
                    if out[tag] > limit:
                        held = " ".join(sorted(token.decode() for token in self._believers))
                        self.find(f"invariant 1: {out[tag]} of {limit} permits are believed to be held: {held}")

    # --- what becomes of tokens, and what is noted of operations

    def lowers(self, holding: Holding, permits: Permits) -> None:
        """Its owner counts on what it keeps from now on."""
        self._lowered[holding.token] = permits.weight

    def gives_up(self, holding: Holding) -> None:
        """Its owner lets go of it now."""
        self._believers.pop(holding.token, None)
        if self.fates[holding.token] != "over":
            self.fates[holding.token] = "ending"

    def ended(self, token: bytes, *, certain: bool) -> None:
        """Its owner has got an answer, and is done with it; if it is certain, so is the server."""
        self._ended_at[token] = self.world.now
        if certain:
            self._returned.add(token)
        if self.fates[token] != "over":
            if certain:
                self._over(token)
            else:
                self.fates[token] = "ending"

    def left_alone(self, client: Client, token: bytes) -> None:
        """Its client was closed: it runs out by itself."""
        if client.closed and self.fates[token] != "over":
            self.fates[token] = "dropped"

    def _over(self, token: bytes) -> None:
        self.fates[token] = "over"
        if token in self._older:
            return
        complaint = self._watch[b"is_over"](token, self.network.now_us())
        if complaint is not None:
            self.find(complaint.decode())

    def _at_rest(self) -> None:
        """Nothing is left of those who are done with what they had, and what others left runs out."""
        self.world.stopped = False
        self.world.run(self.world.now + 25)
        present = self._watch[b"present"](self.network.now_us())
        for line in _lines(present):
            token = line.split(b" ")[1]
            fate = self.fates[token]
            left = fate == "ending" and self._ended_at[token] > self.faults.last + 1
            if (fate == "over" or left) and token not in self._older:
                self.find(f"rest: {line.decode()} is still there")
        self.world.run(self.world.now + 1_000)
        for line in _lines(self._watch[b"present"](self.network.now_us())):
            self.find(f"rest: {line.decode()} is there for ever")

    def _judge(self) -> None:
        """The history as a whole."""
        faults = self.faults
        if not self._records:
            return
        if faults.lost_data or faults.jumped:
            if not (faults.lost_data and faults.stepped_back):
                self.findings += map(str, check_fences(self.history))
        elif self.plan.uniform:
            self.findings += map(str, check_all(self.history))
        else:
            self.findings += map(str, [*check_holds(self.history), *check_fences(self.history, exclusive=True)])

    # --- how it ends

    def _quiet(self) -> None:
        """Faults end."""
        if self.is_quiet:
            return
        self.is_quiet = True
        self.world.say("FAULT", "no more faults")
        self.faults.end()
        self.world.at(self.world.now + LONGEST + 2 * self.grace, self._give_up)
        self._end_if_done()
        if self._busy:
            self.world.at(self.world.now + 30, self._probe, ())

    def _probe(self, before: tuple[bytes, ...]) -> None:
        """What is free and waited for is taken soon."""
        idle = _lines(self._watch[b"idle"](self.network.now_us()))
        for line in idle:
            if line in before and self.fates.get(line.split(b" ")[1]) not in ("dead", "ending"):
                self.find(f"liveness: {line.decode()} waits for what is free")
        if self._busy:
            self.world.at(self.world.now + IDLE, self._probe, tuple(idle))

    def _give_up(self) -> None:
        self.world.stopped = True

    def _end_if_done(self) -> None:
        if not self._busy:
            self._quiet()
            self.world.stopped = True

    # --- what clients do

    def _begin(self, name: str, plan: ClientPlan) -> None:
        process = Process(self.world, name, plan.offset)
        client: Client
        if plan.threads:
            client = ThreadClient(process, self.network, self, plan.response_timeout, plan.places)
        else:
            client = TaskClient(process, self.network, self, plan.response_timeout)
        self.clients.append(client)
        for orders in plan.callers:
            self._busy += 1
            client.callers += 1
            process.begin(self._call(client, orders))

    def _call(self, client: Client, orders: list[Order]) -> Steps[None]:
        me = cast("Task", self.world.current)
        for order in orders:
            yield self.world.now + order.pause
            number = me.number = me.number + 1
            me.fragile = order.strike_at
            if order.strike is not None:
                self.world.at(self.world.now + order.strike, client.process.meet, _strike, me, number)
            try:
                yield from _Doing(self, client, order).steps()
            except (RedisError, HoldfastError, Cancelled) as error:
                if self.world.log is not None:
                    self.world.say(client.process.name, f"{order.verb} ends with {type(error).__name__}: {error}")
            me.number += 1
            me.fragile = 0
        client.callers -= 1
        self._busy -= 1
        self._end_if_done()


class _Note(NamedTuple):
    """An operation that has begun."""

    client: Client
    kind: Kind
    order: Order
    lease: str
    invoked: float
    limit: int


class _Doing:
    """One order as it is carried out."""

    def __init__(self, simulation: Simulation, client: Client, order: Order) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._client = client
        self._order = order

    def steps(self) -> Steps[None]:
        """Do it."""
        order, client, simulation = self._order, self._client, self._simulation
        want = order.want
        if order.verb in ("acquire", "try"):
            holding = yield from self._get()
            if holding is not None:
                yield from self._have(holding)
            return
        permits = cast("Permits", want)
        if order.verb == "close":
            yield from client.close()
        elif order.verb == "status":
            yield from client.ask(looking.status(permits), want.name)
        elif order.verb == "revoke":
            simulation.revoked = True
            yield from self._plain("revoke", client.ask(looking.force_release(permits, "by order"), want.name))
        else:
            yield from self._plain("resize", client.ask(looking.resize(permits, order.limit), want.name), order.limit)

    def _get(self) -> Steps[Holding | None]:
        order, client, simulation = self._order, self._client, self._simulation
        attempt = client.attempt(order.want)
        token = attempt.token
        waits = order.verb == "acquire"
        if self._world.log is not None:
            within = "" if order.timeout is None or not waits else f" within {order.timeout:.3f} s"
            self._world.say(client.process.name, f"{order.verb} {token.decode()} of {order.want.name}{within}")
        simulation.fates[token] = "asking"
        note = simulation.note(client, "acquire" if waits else "try_acquire", order, token.decode())
        try:
            steps = client.acquire(attempt, order.timeout) if waits else client.try_acquire(attempt)
            holding = yield from steps
        except (RedisError, HoldfastError, Cancelled) as error:
            simulation.ended(token, certain=not attempt.pending)
            simulation.left_alone(client, token)
            told = waits and isinstance(error, AcquireTimeout | Cancelled)
            outcome: Outcome = (
                "timeout" if told else "refused" if isinstance(error, QueueFull | LimitExceeded) else "failed"
            )
            simulation.noted(note, outcome if simulation.fates[token] == "over" else "failed")
            raise
        if holding is None:
            simulation.ended(token, certain=not attempt.pending)
            simulation.noted(note, "refused")
            return None
        if simulation.fates[token] == "asking":
            simulation.fates[token] = "held"
        simulation.noted(note, "granted", holding)
        return holding

    def _have(self, holding: Holding) -> Steps[None]:
        order, client, world = self._order, self._client, self._world
        trouble: BaseException | None = None
        try:
            if order.extend_ms:
                yield world.now + order.hold / 2
                yield from client.extend(holding, order.extend_ms)
            if order.lower is not None:
                yield world.now + order.hold / 2
                yield from self._lower(holding, order.lower)
            yield world.now + order.hold
        except (RedisError, HoldfastError, Cancelled) as error:
            trouble = error
        if order.end == "drop" and trouble is None:
            client.let_go(holding)
            self._simulation.fates[holding.token] = "dropped"
            return
        yield from self._leave(holding, failed=trouble is not None or order.end == "fail")

    def _lower(self, holding: Holding, permits: Permits) -> Steps[None]:
        simulation, client = self._simulation, self._client
        simulation.lowers(holding, permits)
        note = simulation.note(client, "lower", self._order._replace(want=permits), holding.token.decode())
        try:
            kept = yield from client.lower(holding, permits)
        except (RedisError, HoldfastError, Cancelled):
            simulation.noted(note, "failed", holding)
            raise
        simulation.noted(note, "done" if kept else "lost", holding)

    def _leave(self, holding: Holding, *, failed: bool) -> Steps[None]:
        simulation, client = self._simulation, self._client
        simulation.gives_up(holding)
        known = holding.lost(client.monotonic())
        note = simulation.note(client, "release", self._order, holding.token.decode())
        try:
            released = yield from client.leave(holding, failed=failed)
        except (RedisError, HoldfastError, Cancelled):
            simulation.ended(holding.token, certain=False)
            simulation.left_alone(client, holding.token)
            simulation.noted(note, "failed", holding)
            raise
        outcome: Outcome = "released" if released else "lost"
        # At the end of a block that failed, and after a loss that was known, nobody waits until it is done.
        simulation.ended(holding.token, certain=not failed and not known)
        simulation.left_alone(client, holding.token)
        simulation.noted(note, "failed" if failed or known else outcome, holding)

    def _plain(self, kind: Kind, steps: Steps[Any], limit: int = 1) -> Steps[None]:
        simulation = self._simulation
        note = simulation.note(self._client, kind, self._order, "", limit)
        try:
            yield from steps
        except (RedisError, HoldfastError, Cancelled):
            simulation.noted(note, "failed")
            raise
        simulation.noted(note, "done")


def _strike(task: Task, number: int) -> None:
    if task.number == number:
        task.strike(Cancelled())


@lru_cache(10_000)
def _tags(want: Want) -> list[bytes]:
    parts = want.parts if isinstance(want, Bundle) else (cast("Permits", want),)
    return [part.place.tag.encode() for part in parts]


def _lines(found: Any) -> list[bytes]:
    return [found] if isinstance(found, bytes) else list(found or ())
