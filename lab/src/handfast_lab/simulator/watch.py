"""The checks during a simulation: the data on the server, the leases that clients rely on, and the end of each token.

The docstring of `faults` lists the faults under which each check holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from struct import unpack
from typing import Any

from handfast._engine import batches, once
from handfast._engine.calls import ACQUIRE, CANCEL, MULTI_ACQUIRE, RELEASE, RESIZE, REVOKE, SLOT
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState
from handfast_lab.checker.history import Kind, Operation, Outcome
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.links import SPARE, Command
from handfast_lab.simulator.network import Network, is_torn
from handfast_lab.simulator.orders import Plan, Target
from handfast_lab.simulator.world import Process, readable

__all__ = ["Damage", "HeldLease", "Note", "Watch"]

ROUNDING_S = 2e-6
"""Largest difference between two clocks that results from rounding to microseconds."""

NOTICED_S = 8.0
"""Time after a fault within which every client has noticed it, also without a message."""

UNDONE_S = 3.0
"""Time within which a driver has undone an operation, if its server answers."""

REMEMBERED_S = 20.0
"""Time for which the server keeps tombstones of releases."""

_LOSING_MESSAGES = frozenset({"lost messages", "lost reply"})
"""Faults after which a connection on which nothing is sent may have missed a message."""

_ENDS = frozenset(script.name.encode() for script in (CANCEL, RELEASE, once.CANCEL))
_ACQUIRES = frozenset(script.name.encode() for script in (ACQUIRE, MULTI_ACQUIRE, once.ACQUIRE))
_REVOKE = REVOKE.name.encode()
_MAY_BE_REFUSED = _ACQUIRES | {RESIZE.name.encode(), SLOT.name.encode(), batches.ACQUIRE.name.encode()}


@dataclass
class Damage:
    """The effects of faults that the checks must take into account."""

    counts: dict[str, int] = field(default_factory=dict)
    """Number of faults of each kind."""
    lost_data: bool = False
    lost_acknowledged: bool = False
    """Whether data was lost that the replicas had, too."""
    jumped_forward: bool = False
    stepped_back: bool = False
    grace: float = 0.0
    """Seconds by which operations may take longer."""
    last: float = 0.0
    """When the last fault began or ended."""
    is_over: bool = False
    """Whether the faults have ended."""


class Note:
    """The start of an operation."""

    __slots__ = ("client", "fence", "invoked", "kind", "lease", "limit", "target", "value", "weight")

    def __init__(self, client: Client, kind: Kind, target: Target, lease: str, invoked: float) -> None:
        self.client = client
        self.kind = kind
        self.target = target
        self.lease = lease
        self.invoked = invoked
        self.limit = target.limit
        self.weight = target.weight
        self.value: str | None = None
        """The result that a release records, or that an acquire has found."""
        self.fence: int | None = None
        """Of a revoke of one lease, its fence."""


class HeldLease:
    """A lease that a client relies on. ``weight`` is the number of permits it relies on."""

    __slots__ = ("client", "deadline", "slot", "state", "target", "weight")

    def __init__(self, client: Client, target: Target, state: LeaseState) -> None:
        self.client = client
        self.target = target
        self.state = state
        self.weight = target.weight
        self.slot: int | None = None
        self.deadline = state.deadline
        """The deadline at the last check."""


class Watch:
    """Checks commands, scripts and leases, and adds violations to ``findings``."""

    def __init__(self, plan: Plan, network: Network, *, records: bool) -> None:
        self._network = network
        self._world = network.world
        self.damage = Damage()
        self._uniform = plan.uniform
        self._records = records
        self.findings: list[str] = []
        self.history: list[Operation] = []
        """The operations of the clients, if ``records`` is true."""
        self.revoked: bool = plan.overtakes and not plan.calm
        """Whether an operator, or a request that preempts, may have taken leases away."""
        self.fates: dict[bytes, str] = {}
        """The state of each token: ``asking``, ``held``, ``ending`` (its owner has left, and the driver is undoing it),
        ``over``, ``dropped`` or ``dead``."""
        self._older: set[bytes] = set()
        """Tokens that existed before a loss of data: the server may have forgotten them, or may know them again."""
        self._torn: set[bytes] = set()
        """Tokens of which the server may have lost some data and kept the rest."""
        self._strays: set[bytes] = set()
        """Tokens that a server which was the primary has seen."""
        self._halves: set[bytes] = set()
        """Tokens whose release was cut off, perhaps between the end of the lease and the tombstone that says so."""
        self._tickets: dict[bytes, int] = {}
        """The ticket of each token whose client has had a `queued` reply."""
        self._ended_at: dict[bytes, float] = {}
        self._returned: set[bytes] = set()
        """Tokens whose operations have returned: no command may be sent for them again."""
        self.held_unheard = False
        """Whether a repeated request found that the lease of its first copy had expired."""
        self._fences: dict[bytes, int] = {}
        self._entered: set[bytes] = set()
        """Tokens that the server has granted or queued."""
        self._released: dict[bytes, float] = {}
        self._held: dict[bytes, HeldLease] = {}
        self._notes: dict[int, Note] = {}
        self._stamp = 0.0
        self._invariants = self._begin(plan)
        self._after, self._belief = self._invariants[b"after"], self._invariants[b"belief"]

    def _begin(self, plan: Plan) -> Any:
        """Start the checks that follow each script, and return them."""
        invariants = self._network.server.invariants
        invariants[b"begin"](*(tag.encode() for tag in plan.tags))
        return invariants

    def discard(self) -> None:
        """Drop the references to all clients after the simulation."""
        self._held.clear()
        self._notes.clear()

    def find(self, text: str) -> None:
        """Add a finding."""
        text = readable(text)
        if text not in self.findings:
            self.findings.append(text)
            self._world.say("FOUND", text)

    # --- commands and scripts

    def sent(self, command: Command) -> None:
        """Check a command before it is sent."""
        command.ticket = self._tickets.get(command.token)
        for token in command.tokens:
            if token in self._returned:
                self.find(f"invariant 10: {command.name.decode()} is sent for {token.decode()} after its end")

    def delivered(self, command: Command, frame: object) -> None:
        """Record the ticket in a reply that reaches its client."""
        if isinstance(frame, bytes) and frame.startswith(b"queued "):
            self._tickets.setdefault(command.token, read_reply(frame)[4])

    def strayed(self, command: Command, messages: Sequence[bytes]) -> None:
        """Note a script that a server has run which was the primary, and whom it granted something."""
        tokens = self.fates.keys() & {*command.tokens, *(message.split(b" ", 2)[1] for message in messages[1::2])}
        self._strays |= tokens
        self._older |= tokens

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, before its reply is sent."""
        name, token = command.name, command.token
        is_cut = is_torn(frame)
        complaint = self._after(name, is_cut, now_us) if is_cut or not isinstance(frame, ErrorReply) else None
        if isinstance(frame, ErrorReply):
            if is_cut:
                self._entered.update(command.tokens)
                if command.words[command.key_count + 1 :][:1] == [b"copies"]:
                    self._halves.add(token)
            if complaint is not None:
                self.find(f"cut off: {complaint.decode()}")
            if frame.startswith("ERR") and not is_cut:
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name not in _MAY_BE_REFUSED:
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        if name in SPARE:
            self._batch_executed(command.tokens, frame, complaint)
            return
        tag, *numbers = read_reply(frame)
        # A late copy of the first request may get the reply "busy" while its token waits: no client receives that
        # reply.
        if complaint is not None and not (command.late and tag == b"busy"):
            self.find(complaint.decode())
        if tag == b"queued" and command.ticket not in (None, numbers[3]):
            self.find(f"invariant 2: {token.decode()} is queued at {numbers[3]}, and its place was {command.ticket}")
        if name in _ACQUIRES:
            self._answered(token, tag, numbers[0] if tag == b"granted" else None)
        elif name == _REVOKE:
            self._revoke(command.words[0].rpartition(b":")[0])
        elif name in _ENDS and tag != b"unknown":  # nothing is remembered of a release
            self._end(token, lost=tag == b"lost")

    def _end(self, token: bytes, *, lost: bool) -> None:
        if not lost:
            self._released.setdefault(token, self._world.now)
            if self.fates[token] != "over":
                self._over(token)
        elif self._released.get(token, -inf) > self._world.now - REMEMBERED_S and token not in self._older:
            self.find(f"invariant 4: {token.decode()} was released, and the reply to its release is lost")

    def _batch_executed(self, tokens: tuple[bytes, ...], frame: Any, complaint: bytes | None) -> None:
        if complaint is not None:
            self.find(complaint.decode())
        if len(frame) == len(tokens):
            for token in (token for token, answer in zip(tokens, frame, strict=True) if answer == ord("1")):
                self._end(token, lost=False)
            return
        for token, fence in zip(tokens, unpack(f"<{len(tokens)}d", frame), strict=True):
            if fence:
                self._answered(token, b"granted", int(fence))

    def _answered(self, token: bytes, tag: bytes, fence: int | None) -> None:
        self.held_unheard = self.held_unheard or self._fences.get(token, fence) != fence
        if fence is not None:
            self._fences[token] = fence
        if tag in (b"granted", b"queued"):
            if self._network.out_of_memory and token not in self._entered:
                self.find(f"invariant 11: {token.decode()} is granted at maxmemory")
            self._entered.add(token)

    # --- leases of the clients

    def acquired(self, client: Client, target: Target, state: LeaseState) -> None:
        """Record that a client has acquired a lease."""
        self._held[state.token] = lease = HeldLease(client, target, state)
        self._check(lease)

    def look(self, process: Process) -> None:
        """Check the leases of a process that were renewed since the last call."""
        for lease in list(self._held.values()):
            if lease.state.deadline != lease.deadline and lease.client.process is process:
                lease.deadline = lease.state.deadline
                self._check(lease)

    def _check(self, lease: HeldLease) -> None:
        state, world = lease.state, self._world
        token = state.token
        ends = state.deadline - lease.client.process.offset
        if world.log is not None:
            text = f"{ends - world.now:.6f} s, fence {state.fence}"
            world.say(lease.client.process.name, f"{token.decode()} of {lease.target.name}: {text}")
        for tag in lease.target.tags:
            holds, until = self._belief(tag, token)
            if not holds and token not in self._older:
                self.find(
                    f"invariant 4: {token.decode()} relies on a grant that had ended when it repeated its request"
                )
            is_too_long = until is None or ends > self._network.moment(until) + ROUNDING_S
            if is_too_long and not self.damage.jumped_forward and token not in self._strays:
                there = "never" if until is None else f"until {self._network.moment(until):.6f}"
                self.find(f"invariant 8: {token.decode()} relies on its lease until {ends:.6f}, the server {there}")
        self._check_acknowledged(lease)
        if self._uniform and not (self.revoked or self.damage.lost_acknowledged or self.damage.jumped_forward):
            self._count_permits()

    def _is_relied_on(self, lease: HeldLease) -> bool:
        return not lease.state.loss and lease.state.deadline - lease.client.process.offset > self._world.now

    def _count_permits(self) -> None:
        """Check that no more permits are relied on than there are; after a loss of data, of leases that replicas have."""
        out: dict[bytes, int] = {}
        for lease in self._held.values():
            if self._is_relied_on(lease) and (lease.target.replicas or not self.damage.lost_data):
                for tag in lease.target.tags:
                    out[tag] = out.get(tag, 0) + lease.weight
                    if out[tag] > lease.target.limit:
                        held = " ".join(sorted(token.decode() for token in self._held))
                        found = f"{out[tag]} of {lease.target.limit} permits are relied on: {held}"
                        self.find(f"invariant 1: {found}")

    def numbered(self, token: bytes, number: int) -> None:
        """Check the number that a holder has got: no other has it, and it never changes."""
        lease = self._held.get(token)
        if lease is None:
            return
        if lease.slot not in (None, number):
            self.find(f"invariant 45: {token.decode()} has the slot {number}, and had {lease.slot}")
        lease.slot = number
        if self.damage.lost_data or self.damage.jumped_forward or self.revoked:
            return
        for other, one in self._held.items():
            if (
                other != token
                and one.target.tags == lease.target.tags
                and one.slot == number
                and self._is_relied_on(one)
            ):
                self.find(f"invariant 44: {token.decode()} and {other.decode()} both have the slot {number}")

    def check_acknowledged(self) -> None:
        """Check that a new primary has the leases that count only once replicas have them."""
        for lease in self._held.values():
            self._check_acknowledged(lease)

    def _check_acknowledged(self, lease: HeldLease) -> None:
        damage = self.damage
        if not lease.target.replicas or damage.lost_acknowledged or damage.jumped_forward or self.revoked:
            return
        token, ends = lease.state.token, lease.state.deadline - lease.client.process.offset
        for tag in lease.target.tags:
            until = self._invariants[b"lease_end"](tag, token, self._network.now_us())
            if self._is_relied_on(lease) and self._network.moment(until) + ROUNDING_S < ends:
                there = f"until {self._network.moment(until):.6f}" if until else "not at all"
                self.find(
                    f"acknowledged: {token.decode()} is relied on until {ends:.6f}, and the primary has it {there}"
                )

    def _revoke(self, tag: bytes) -> None:
        """Check that those who have lost their leases of a name learn of it."""
        there = {token for _, token in self._lines(b"present")}
        for token, lease in self._held.items():
            if tag in lease.target.tags and token not in there:
                _, deadline = self._belief(tag, token)
                if (
                    deadline is not None and deadline > self._network.now_us()
                ):  # else the server's clock had ended it before
                    self._check_told(lease, self._world.now)

    def _check_told(self, lease: HeldLease, since: float) -> None:
        """Check that the holder of a lease that was taken away knows of it, some time after that and the last fault."""
        world, state, process = self._world, lease.state, lease.client.process
        is_held = self._held.get(state.token) is lease and not state.loss and state.deadline > process.monotonic()
        if not is_held or not process.alive or lease.client.closed or self.damage.lost_data:
            return
        renewed_after = lease.target.ttl_ms / 3000 if lease.target.renew else 0.0
        if not lease.target.renew and not _LOSING_MESSAGES.isdisjoint(self.damage.counts):
            return
        due = max(since, self.damage.last, process.awake_since) + NOTICED_S + renewed_after
        if due > world.now:
            world.at(min(due, world.now + NOTICED_S), self._check_told, lease, since)
        else:
            self.find(f"told: {state.token.decode()} is relied on long after it was taken away")

    def blocked(self, client: Client, target: Target, state: LeaseState, *, lost: bool) -> None:
        """Check a lease whose holder has blocked its event loop, as another task may have done before: it lasts as long as its ttl."""
        is_over = client.process.monotonic() >= state.acquired_at + target.ttl_ms / 1000
        if lost and not (is_over or self.damage.counts or self.revoked):
            self.find(f"claim: {state.token.decode()} is lost before its ttl, without a fault")
        self.damage.last = max(self.damage.last, self._world.now)

    # --- the end of a token

    def asks(self, token: bytes) -> None:
        """Record that a caller begins to acquire."""
        self.fates[token] = "asking"

    def holds(self, token: bytes) -> None:
        """Record that a caller has its lease."""
        if self.fates[token] == "asking":
            self.fates[token] = "held"

    def downgrades(self, token: bytes) -> None:
        """Record that the owner keeps one permit only."""
        if token in self._held:
            self._held[token].weight = 1

    def gives_up(self, token: bytes) -> None:
        """Record that the owner begins to release it."""
        self._held.pop(token, None)
        if self.fates[token] != "over":
            self.fates[token] = "ending"

    def drops(self, token: bytes) -> None:
        """Record that the owner drops it without a release."""
        self._held.pop(token, None)
        self.fates[token] = "dropped"

    def ended(self, client: Client, token: bytes, *, certain: bool) -> None:
        """Record that the operation has returned; if ``certain``, the token has ended on the server too."""
        self._ended_at[token] = self._world.now
        if certain:
            self._returned.add(token)
        if self.fates[token] != "over":
            if certain:
                self._over(token)
            else:
                self.fates[token] = "ending"
                self._world.at(self._world.now + UNDONE_S, self._check_undone, client, token)
        if client.closed and self.fates[token] != "over":
            self.fates[token] = "dropped"  # a closed client undoes nothing

    def _check_undone(self, client: Client, token: bytes) -> None:
        """Check that the driver has undone the operation, unless faults have occurred since."""
        quiet_for = self._ended_at[token] - self.damage.last
        if self.fates[token] != "ending" or quiet_for < NOTICED_S or token in self._older or not client.process.alive:
            return
        for name, other in self._lines(b"present"):
            if other == token:
                self.find(f"invariant 7: {name} {token.decode()} remains long after its owner has left")

    def _over(self, token: bytes) -> None:
        self.fates[token] = "over"
        if token in self._older:
            return
        complaint = self._invariants[b"finish"](token, self._network.now_us())
        if complaint is not None:
            self.find(complaint.decode())

    def died(self, client: Client, tokens: list[bytes]) -> None:
        """Record that a process died; the data of these tokens expires."""
        for token in tokens:
            self._held.pop(token, None)
            if self.fates[token] != "over":
                self.fates[token] = "dead"
        for note in [note for note in self._notes.values() if note.client is client]:
            self.noted(note, "pending")

    # --- lost data

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """Record that the server lost the data of a name, or of all names; if ``torn``, only some of its keys."""
        self._invariants[b"lost"](tag and tag.encode(), torn, self.damage.stepped_back, self._network.now_us())
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """Record that the server's clock was set back and the latest fence may be lost."""
        self._invariants[b"forget_fences"]()

    def forget_finished(self) -> None:
        """Record that the server's clock jumped forward: tombstones and leases may have expired early."""
        self._invariants[b"forget_finished"]()
        self._older.update(self.fates)

    # --- at the end

    def idle(self) -> list[tuple[str, bytes]]:
        """Return the names that are free although a waiter fits, and the waiters."""
        found = self._lines(b"idle")
        # A token that an older state of the server has in its queue, and whose owner holds its lease, is not waiting.
        back = {token for token in self._older if self.fates[token] == "held"}
        return [one for one in found if self.fates[one[1]] not in ("dead", "ending") and one[1] not in back]

    def check_remains(self) -> None:
        """Check the data on the server after the last operation."""
        for name, token in self._lines(b"present"):
            fate = self.fates[token]
            forgotten = fate == "ending" and self._ended_at[token] > self.damage.last + 1
            if (fate == "over" or forgotten) and token not in self._older:
                self.find(f"rest: {name} {token.decode()} remains at the end")

    def check_all_expired(self) -> None:
        """Check that all leases and queue entries have expired."""
        for name, token in self._lines(b"present"):
            # If a part of a token's data was evicted, the rest stays as long as its key.
            if token not in self._torn:
                self.find(f"rest: {name} {token.decode()} never expires")

    def _lines(self, question: bytes) -> list[tuple[str, bytes]]:
        found = self._invariants[question](self._network.now_us())
        lines = [found] if isinstance(found, bytes) else found or ()
        return [(line.rpartition(b" ")[0].decode(), line.rpartition(b" ")[2]) for line in lines]

    # --- the history

    def note(self, client: Client, kind: Kind, target: Target, lease: str, value: str | None = None) -> Note:
        """Record the start of an operation."""
        note = Note(client, kind, target, lease, self._moment())
        note.value = value
        if self._records:
            self._notes[id(note)] = note
        return note

    def is_uncertain(self, token: bytes) -> bool:
        """Return whether the reply that a lease was lost may be wrong."""
        return token in self._halves

    def _moment(self) -> float:
        """Return the time, each value only once: a history must show which of two events came first."""
        self._stamp = max(self._world.now, self._stamp + 1e-9)
        return self._stamp

    def noted(
        self,
        note: Note,
        outcome: Outcome,
        state: LeaseState | None = None,
        counted: tuple[int, ...] = (),
        value: str | None = None,
    ) -> None:
        """Record the end of an operation."""
        if not self._records:
            return
        del self._notes[id(note)]
        self.history.append(
            Operation(
                client=note.client.process.name,
                kind=note.kind,
                names=note.target.names,
                lease=note.lease,
                invoked=note.invoked,
                returned=None if outcome == "pending" else self._moment(),
                outcome=outcome,
                weight=note.weight,
                limit=note.limit,
                fence=state.fence if state is not None and outcome == "granted" else note.fence,
                deadline=None if state is None else state.deadline - note.client.process.offset,
                counted=counted,
                value=note.value if value is None else value,
            )
        )
