"""What is checked while a simulation runs: what the server stores, what clients believe, and how each token ends.

Which check holds under which faults stands at the top of `faults`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from handfast._engine.calls import ACQUIRE, CANCEL, MULTI_ACQUIRE, RELEASE, RESIZE
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState
from handfast_lab.checker.history import Kind, Operation, Outcome
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.network import Command, Network
from handfast_lab.simulator.orders import Plan, Target
from handfast_lab.simulator.world import Process, readable

__all__ = ["Believer", "Damage", "Note", "Watch"]

ROUNDING_S = 2e-6
"""The difference between two clocks that comes from one of them counting in microseconds."""

NOTICED_S = 8.0
"""Time after a fault in which even those clients notice it that nothing tells them of it."""

UNDONE_S = 3.0
"""Time within which a driver whose server answers has taken back what an operation may have left there."""

REMEMBERED_S = 20.0
"""Time for which the server remembers what was released."""

_ENDS = frozenset(script.name.encode() for script in (CANCEL, RELEASE))
_ACQUIRES = frozenset(script.name.encode() for script in (ACQUIRE, MULTI_ACQUIRE))
_MAY_BE_REFUSED = _ACQUIRES | {RESIZE.name.encode()}


@dataclass
class Damage:
    """What faults have done so far that a check must take into account."""

    counts: dict[str, int] = field(default_factory=dict)
    """How often each kind of fault struck."""
    lost_data: bool = False
    jumped_forward: bool = False
    stepped_back: bool = False
    grace: float = 0.0
    """Seconds by which everything may take longer."""
    last: float = 0.0
    """When the last fault came, or ended."""
    is_over: bool = False
    """Whether no fault strikes any more."""


class Note:
    """An operation that has begun."""

    __slots__ = ("client", "invoked", "kind", "lease", "limit", "target", "weight")

    def __init__(self, client: Client, kind: Kind, target: Target, lease: str, invoked: float) -> None:
        self.client = client
        self.kind = kind
        self.target = target
        self.lease = lease
        self.invoked = invoked
        self.limit = target.limit
        self.weight = target.weight


class Believer:
    """A lease that a client believes to hold. ``weight`` is what it counts on."""

    __slots__ = ("client", "deadline", "state", "target", "weight")

    def __init__(self, client: Client, target: Target, state: LeaseState) -> None:
        self.client = client
        self.target = target
        self.state = state
        self.weight = target.weight
        self.deadline = state.deadline
        """Until when it was believed in when that was last checked."""


class Watch:
    """Sees what is sent, what is executed and what is believed. What is wrong it adds to ``findings``."""

    def __init__(self, plan: Plan, network: Network, *, records: bool) -> None:
        self._network = network
        self._world = network.world
        self.damage = Damage()
        self._uniform = plan.uniform
        self._records = records
        self.findings: list[str] = []
        self.history: list[Operation] = []
        """What clients did, if it ``records`` that."""
        self.revoked = False
        """Whether leases were taken away by force."""
        self.fates: dict[bytes, str] = {}
        """The state of each token: ``asking``, ``held``, ``ending`` (its owner has left, and taking it back goes on),
        ``over``, ``dropped`` or ``dead``."""
        self._older: set[bytes] = set()
        """Tokens that are older than a loss of data: the server may have forgotten them, or may know them again."""
        self._torn: set[bytes] = set()
        """Those of which the server may have lost a part and kept the rest."""
        self._ended_at: dict[bytes, float] = {}
        self._returned: set[bytes] = set()
        """Tokens whose owners have an answer: nothing may be sent for them again."""
        self.held_unheard = False
        """Whether a request that was sent again found the lease over that its first copy was granted."""
        self._fences: dict[bytes, int] = {}
        self._entered: set[bytes] = set()
        """Tokens that the server has granted or queued."""
        self._released: dict[bytes, float] = {}
        self._believers: dict[bytes, Believer] = {}
        self._notes: dict[int, Note] = {}
        self._stamp = 0.0
        self._invariants = network.server.invariants
        self._invariants[b"begin"](*(tag.encode() for tag in plan.tags))
        self._after, self._belief = self._invariants[b"after"], self._invariants[b"belief"]

    def discard(self) -> None:
        """Let go of all clients, once the simulation is over."""
        self._believers.clear()
        self._notes.clear()

    def find(self, words: str) -> None:
        """Add a finding."""
        words = readable(words)
        if words not in self.findings:
            self.findings.append(words)
            self._world.say("FOUND", words)

    # --- what is sent and executed

    def sent(self, command: Command) -> None:
        """Check a command that is about to leave."""
        if command.token in self._returned:
            self.find(f"invariant 10: {command.name.decode()} is sent for {command.token.decode()}, which is over")

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, before any client learns of it."""
        name, token = command.name, command.token
        if isinstance(frame, ErrorReply):
            if frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name not in _MAY_BE_REFUSED:
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        assert isinstance(frame, list)  # noqa: S101 -- every script of ours answers with an array
        complaint = self._after(name, now_us)
        tag = frame[0]
        # A late copy of the first look may be answered "busy" while its token waits: no client gets that reply.
        if complaint is not None and not (command.late and tag == b"busy"):
            self.find(complaint.decode())
        if name in _ACQUIRES:
            self._answered(token, tag, frame[1] if tag == b"granted" else None)
        elif name in _ENDS:
            if tag == b"lost":
                if self._released.get(token, -inf) > self._world.now - REMEMBERED_S and token not in self._older:
                    self.find(f"invariant 4: {token.decode()} was released, and its release is answered with lost")
            else:
                self._released.setdefault(token, self._world.now)
                if self.fates[token] != "over":
                    self._over(token)

    def _answered(self, token: bytes, tag: bytes, fence: int | None) -> None:
        self.held_unheard = self.held_unheard or self._fences.get(token, fence) != fence
        if fence is not None:
            self._fences[token] = fence
        if tag in (b"granted", b"queued"):
            if self._network.out_of_memory and token not in self._entered:
                self.find(f"invariant 11: {token.decode()} is granted at maxmemory")
            self._entered.add(token)

    # --- what is believed

    def believes(self, client: Client, target: Target, state: LeaseState) -> None:
        """A client has acquired a lease."""
        self._believers[state.token] = believer = Believer(client, target, state)
        self._check(believer)

    def look(self, process: Process) -> None:
        """Check the leases of a process that were renewed since the last look."""
        for believer in list(self._believers.values()):
            if believer.state.deadline != believer.deadline and believer.client.process is process:
                believer.deadline = believer.state.deadline
                self._check(believer)

    def _check(self, believer: Believer) -> None:
        state, world = believer.state, self._world
        token = state.token
        ends = state.deadline - believer.client.process.offset
        if world.log is not None:
            lease = f"{ends - world.now:.6f} s, fence {state.fence}"
            world.say(believer.client.process.name, f"{token.decode()} of {believer.target.name}: {lease}")
        for tag in believer.target.tags:
            holds, until = self._belief(tag, token)
            if not holds and token not in self._older:
                self.find(f"invariant 4: {token.decode()} believes in a grant that was over when it asked again")
            is_too_long = until is None or ends > self._network.moment(until) + ROUNDING_S
            if is_too_long and not self.damage.jumped_forward:
                there = "never" if until is None else f"until {self._network.moment(until):.6f}"
                self.find(f"invariant 8: {token.decode()} believes until {ends:.6f}, the server {there}")
        if self._uniform and not (self.revoked or self.damage.lost_data or self.damage.jumped_forward):
            self._count_believers()

    def _count_believers(self) -> None:
        out: dict[bytes, int] = {}
        for believer in self._believers.values():
            state, offset = believer.state, believer.client.process.offset
            if not state.loss and state.deadline - offset > self._world.now:
                for tag in believer.target.tags:
                    out[tag] = out.get(tag, 0) + believer.weight
                    if out[tag] > believer.target.limit:
                        held = " ".join(sorted(token.decode() for token in self._believers))
                        found = f"{out[tag]} of {believer.target.limit} permits are believed to be held: {held}"
                        self.find(f"invariant 1: {found}")

    # --- how a token ends

    def asks(self, token: bytes) -> None:
        """A caller begins to acquire."""
        self.fates[token] = "asking"

    def holds(self, token: bytes) -> None:
        """A caller has its lease."""
        if self.fates[token] == "asking":
            self.fates[token] = "held"

    def downgrades(self, token: bytes) -> None:
        """Its owner counts on one permit from now on."""
        if token in self._believers:
            self._believers[token].weight = 1

    def gives_up(self, token: bytes) -> None:
        """Its owner lets go of it now."""
        self._believers.pop(token, None)
        if self.fates[token] != "over":
            self.fates[token] = "ending"

    def drops(self, token: bytes) -> None:
        """Its owner forgets it without a release."""
        self._believers.pop(token, None)
        self.fates[token] = "dropped"

    def ended(self, client: Client, token: bytes, *, certain: bool) -> None:
        """Its owner has got an answer, and is done with it; if it is certain, so is the server."""
        self._ended_at[token] = self._world.now
        if certain:
            self._returned.add(token)
        if self.fates[token] != "over":
            if certain:
                self._over(token)
            else:
                self.fates[token] = "ending"
                self._world.at(self._world.now + UNDONE_S, self._look_back, client, token)
        if client.closed and self.fates[token] != "over":
            self.fates[token] = "dropped"  # a closed client takes nothing back

    def _look_back(self, client: Client, token: bytes) -> None:
        """Where no fault has struck since, the driver must have taken back what it had to."""
        quiet_for = self._ended_at[token] - self.damage.last
        if self.fates[token] != "ending" or quiet_for < NOTICED_S or token in self._older or not client.process.alive:
            return
        for name, other in self._lines(b"present"):
            if other == token:
                self.find(f"invariant 7: {name} {token.decode()} is there long after its owner has left")

    def _over(self, token: bytes) -> None:
        self.fates[token] = "over"
        if token in self._older:
            return
        complaint = self._invariants[b"finish"](token, self._network.now_us())
        if complaint is not None:
            self.find(complaint.decode())

    def died(self, client: Client, tokens: list[bytes]) -> None:
        """A process is gone, and what these tokens of it have on the server will expire."""
        for token in tokens:
            self._believers.pop(token, None)
            if self.fates[token] != "over":
                self.fates[token] = "dead"
        for note in [note for note in self._notes.values() if note.client is client]:
            self.noted(note, "pending")

    # --- what cannot be known any more

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """The server lost data of a name, or of all. What is left may be ``torn``: some parts without the others."""
        self._invariants[b"lost"](tag and tag.encode(), torn, self.damage.stepped_back, self._network.now_us())
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """The server's clock went back, and the server may have forgotten the latest fence."""
        self._invariants[b"forget_fences"]()

    def forget_finished(self) -> None:
        """The server's clock jumped ahead, which ends tombstones and leases early."""
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
        """Check what is left when no caller does anything any more."""
        for name, token in self._lines(b"present"):
            fate = self.fates[token]
            forgotten = fate == "ending" and self._ended_at[token] > self.damage.last + 1
            if (fate == "over" or forgotten) and token not in self._older:
                self.find(f"rest: {name} {token.decode()} is still there")

    def check_all_expired(self) -> None:
        """Check that nothing is left when all leases have expired."""
        for name, token in self._lines(b"present"):
            # Of a token of which a part was evicted, the rest stays for as long as the key that it is in.
            if token not in self._torn:
                self.find(f"rest: {name} {token.decode()} never expires")

    def _lines(self, question: bytes) -> list[tuple[str, bytes]]:
        found = self._invariants[question](self._network.now_us())
        lines = [found] if isinstance(found, bytes) else found or ()
        return [(line.rpartition(b" ")[0].decode(), line.rpartition(b" ")[2]) for line in lines]

    # --- the history

    def note(self, client: Client, kind: Kind, target: Target, lease: str) -> Note:
        """An operation begins."""
        note = Note(client, kind, target, lease, self._moment())
        if self._records:
            self._notes[id(note)] = note
        return note

    def _moment(self) -> float:
        """Return the time, but never the same twice: the history must show which of two events came first."""
        self._stamp = max(self._world.now, self._stamp + 1e-9)
        return self._stamp

    def noted(self, note: Note, outcome: Outcome, state: LeaseState | None = None) -> None:
        """An operation has ended."""
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
                fence=state.fence if state is not None and outcome == "granted" else None,
                deadline=None if state is None else state.deadline - note.client.process.offset,
            )
        )
