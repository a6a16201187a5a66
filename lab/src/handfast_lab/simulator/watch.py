"""What is looked at while a simulation goes on: what the server stores, what clients believe, and what becomes of tokens.

Which of it holds under which faults stands at the top of `faults`.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, cast

from handfast._drivers.timeouts import UNDO_WAIT
from handfast._engine.calls import (
    ACQUIRE,
    ACQUIRE_ALL,
    CANCEL,
    CANCEL_ALL,
    RELEASE,
    RELEASE_ALL,
    RESIZE,
    MultiRequest,
    PermitRequest,
    Request,
)
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState
from handfast_lab.checker.history import Kind, Operation, Outcome
from handfast_lab.simulator.callers import Note
from handfast_lab.simulator.client import Client, Watcher
from handfast_lab.simulator.network import SentCall
from handfast_lab.simulator.plans import Order
from handfast_lab.simulator.world import Process

if TYPE_CHECKING:
    from handfast_lab.simulator.simulation import Simulation

__all__ = ["Watch"]

ROUNDING = 2e-6
"""Seconds by which two clocks may differ for no other reason than that one counts in microseconds."""

LONG = 8.0
"""Seconds after a fault in which even those have noticed it who were told nothing."""

REMEMBERED = 20.0
"""Seconds for which the server remembers what was released."""

_ENDS = frozenset(script.name.encode() for script in (CANCEL, CANCEL_ALL, RELEASE, RELEASE_ALL))
_ACQUIRES = frozenset(script.name.encode() for script in (ACQUIRE, ACQUIRE_ALL))
_MAY_BE_REFUSED = _ACQUIRES | {RESIZE.name.encode()}


class Watch(Watcher):
    """Sees what is sent, what was executed and what is believed. What it finds wrong is in ``findings``."""

    def __init__(self, simulation: Simulation, *, records: bool) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._records = records
        self.findings: list[str] = []
        self.history: list[Operation] = []
        """What clients did, if it ``records`` that."""
        self.revoked = False
        """Whether leases were taken away by force."""
        self.fates: dict[bytes, str] = {}
        """What became of each token: ``asking``, ``held``, ``ending`` (its owner has left, and taking it back goes on),
        ``over``, ``dropped`` or ``dead``."""
        self._older: set[bytes] = set()
        """Tokens that are older than a loss of data: whatever was known of them may be back, or gone."""
        self._torn: set[bytes] = set()
        """Those of which the server may have lost a part and kept the rest."""
        self._ended_at: dict[bytes, float] = {}
        self.returned: set[bytes] = set()
        """Tokens whose owners have an answer, and send nothing for them ever again."""
        self.held_unheard = False
        """Whether a request that was sent again found the lease over that its first copy was granted."""
        self._fences: dict[bytes, int] = {}
        self._entered: set[bytes] = set()
        """Tokens that the server has let in or put in line."""
        self._released: dict[bytes, float] = {}
        self._lowered: dict[bytes, int] = {}
        self._believers: dict[bytes, tuple[Client, LeaseState]] = {}
        self._notes: dict[int, Note] = {}
        self._stamp = 0.0
        self._invariants = simulation.network.server.invariants
        self._invariants[b"begin"](*(tag.encode() for tag in simulation.tags))
        self._after, self._belief = self._invariants[b"after"], self._invariants[b"belief"]

    def find(self, words: str) -> None:
        """Something that must not be."""
        if words not in self.findings:
            self.findings.append(words)
            self._world.say("FOUND", words)

    # --- what is sent, executed and believed

    def sent_after_all(self, request: SentCall) -> None:
        """A script is about to leave for a token whose owner is done with it."""
        self.find(f"invariant 10: {request.name.decode()} is sent for {request.token.decode()}, which is over")

    def executed(self, request: SentCall, frame: Any, now_us: int) -> None:
        """The server has answered a script, and nobody knows it yet."""
        name, token = request.name, request.token
        if type(frame) is ErrorReply:
            if frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name not in _MAY_BE_REFUSED:
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        complaint = self._after(name, now_us)
        tag = frame[0]
        # A copy of the first look that comes late may be told busy while its token waits: nobody hears it.
        if complaint is not None and not (request.late and tag == b"busy"):
            self.find(complaint.decode())
        if name in _ACQUIRES:
            self._answered(token, tag, frame)
        elif name in _ENDS:
            if tag == b"lost":
                if self._released.get(token, -inf) > self._world.now - REMEMBERED and token not in self._older:
                    self.find(f"invariant 4: {token.decode()} was released, and its release is told lost")
            else:
                self._released.setdefault(token, self._world.now)
                if self.fates[token] != "over":
                    self._over(token)

    def _answered(self, token: bytes, tag: bytes, frame: Any) -> None:
        fence = frame[1] if tag == b"granted" else None
        self.held_unheard = self.held_unheard or self._fences.get(token, fence) != fence
        if fence is not None:
            self._fences[token] = fence
        if tag in (b"granted", b"queued"):
            if self._simulation.network.out_of_memory and token not in self._entered:
                self.find(f"invariant 11: {token.decode()} is let in at maxmemory")
            self._entered.add(token)

    def believes(self, client: Client, holding: LeaseState) -> None:
        """The client holds a lease, or one was renewed."""
        token, world = holding.token, self._world
        ends = holding.deadline - client.process.offset
        if world.log is not None:
            lease = f"{ends - world.now:.6f} s, fence {holding.fence}"
            world.say(client.process.name, f"{token.decode()} of {holding.permits.name}: {lease}")
        for tag in _tags(holding.permits):
            holds, until = self._belief(tag, token)
            if not holds and token not in self._older:
                self.find(f"invariant 4: {token.decode()} believes in a grant that was over when it asked again")
            is_too_long = until is None or ends > self._simulation.network.moment(until) + ROUNDING
            if is_too_long and not self._simulation.faults.jumped_forward:
                there = "never" if until is None else f"until {self._simulation.network.moment(until):.6f}"
                self.find(f"invariant 8: {token.decode()} believes until {ends:.6f}, the server {there}")
        self._believers[token] = client, holding
        self._look_at_believers()

    def loses(self, client: Client, holding: LeaseState) -> None:
        """The client has been told that a lease is lost."""
        del client
        self._believers.pop(holding.token, None)

    def _look_at_believers(self) -> None:
        if (
            not self._simulation.plan.uniform
            or self.revoked
            or self._simulation.faults.lost_data
            or self._simulation.faults.jumped_forward
        ):
            return
        out: dict[bytes, int] = {}
        for client, holding in self._believers.values():
            if not holding.given_up and not holding.loss and holding.deadline - client.process.offset > self._world.now:
                permits = holding.permits
                weight, limit = (permits.weight, permits.limit) if isinstance(permits, PermitRequest) else (1, 1)
                weight = min(weight, self._lowered.get(holding.token, weight))
                for tag in _tags(permits):
                    out[tag] = out.get(tag, 0) + weight
                    if out[tag] > limit:
                        held = " ".join(sorted(token.decode() for token in self._believers))
                        self.find(f"invariant 1: {out[tag]} of {limit} permits are believed to be held: {held}")

    # --- what becomes of tokens

    def lowers(self, holding: LeaseState, permits: PermitRequest) -> None:
        """Its owner counts on what it keeps from now on."""
        self._lowered[holding.token] = permits.weight

    def gives_up(self, holding: LeaseState) -> None:
        """Its owner lets go of it now."""
        self._believers.pop(holding.token, None)
        if self.fates[holding.token] != "over":
            self.fates[holding.token] = "ending"

    def ended(self, client: Client, token: bytes, *, certain: bool) -> None:
        """Its owner has got an answer, and is done with it; if it is certain, so is the server."""
        self._ended_at[token] = self._world.now
        if certain:
            self.returned.add(token)
        if self.fates[token] != "over":
            if certain:
                self._over(token)
            else:
                self.fates[token] = "ending"
                self._world.at(self._world.now + 3 * UNDO_WAIT, self._look_back, client, token)

    def _look_back(self, client: Client, token: bytes) -> None:
        """Where nothing has gone wrong since, what was to be taken back has been."""
        quiet_for = self._ended_at[token] - self._simulation.faults.last
        if self.fates[token] != "ending" or quiet_for < LONG or token in self._older or not client.process.alive:
            return
        for name, other in self._lines(b"present"):
            if other == token:
                self.find(f"invariant 7: {name} {token.decode()} is there long after its owner has left")

    def left_alone(self, client: Client, token: bytes) -> None:
        """Its client was closed: it runs out by itself."""
        if client.closed and self.fates[token] != "over":
            self.fates[token] = "dropped"

    def _over(self, token: bytes) -> None:
        self.fates[token] = "over"
        if token in self._older:
            return
        complaint = self._invariants[b"is_over"](token, self._simulation.network.now_us())
        if complaint is not None:
            self.find(complaint.decode())

    def died(self, process: Process) -> None:
        """What it had runs out by itself."""
        for token, (client, _) in list(self._believers.items()):
            if client.process is process:
                del self._believers[token]
        mark = process.name.encode() + b"-"
        for token, fate in self.fates.items():
            if token.startswith(mark) and fate != "over":
                self.fates[token] = "dead"
        for note in [note for note in self._notes.values() if note.client.process is process]:
            self.noted(note, "pending")

    # --- what cannot be known any more

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """The server lost data of a name, or of all of them. What is left may be ``torn``: some without the rest."""
        stepped = self._simulation.faults.stepped_back
        self._invariants[b"lost"](tag and tag.encode(), torn, stepped, self._simulation.network.now_us())
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """The server's clock went back, and it may have forgotten the latest fence."""
        self._invariants[b"forget_fences"]()

    def forget_past(self) -> None:
        """The server's clock jumped ahead: what it remembers of those that are over ended with that, too."""
        self._invariants[b"forget_past"]()
        self._older.update(self.fates)

    # --- at the end

    def idle(self) -> list[tuple[str, bytes]]:
        """Names that are free, and who waits for them."""
        found = self._lines(b"idle")
        # Whom an older state of the server has in line, while it believes to hold, is not waiting for it.
        back = {token for token in self._older if self.fates[token] == "held"}
        return [one for one in found if self.fates[one[1]] not in ("dead", "ending") and one[1] not in back]

    def left(self) -> None:
        """Look at what is left when nobody does anything any more."""
        for name, token in self._lines(b"present"):
            fate = self.fates[token]
            forgotten = fate == "ending" and self._ended_at[token] > self._simulation.faults.last + 1
            if (fate == "over" or forgotten) and token not in self._older:
                self.find(f"rest: {name} {token.decode()} is still there")

    def left_for_ever(self) -> None:
        """Look at what is left when all leases are over."""
        for name, token in self._lines(b"present"):
            # Of whom a part was evicted, the rest stays for as long as the key that it is in.
            if token not in self._torn:
                self.find(f"rest: {name} {token.decode()} is there for ever")

    def _lines(self, question: bytes) -> list[tuple[str, bytes]]:
        found = self._invariants[question](self._simulation.network.now_us())
        lines = [found] if isinstance(found, bytes) else found or ()
        return [(line.rpartition(b" ")[0].decode(), line.rpartition(b" ")[2]) for line in lines]

    # --- the history

    def note(self, client: Client, kind: Kind, order: Order, lease: str, limit: int | None = None) -> Note:
        """An operation begins."""
        limit = getattr(order.want, "limit", 1) if limit is None else limit
        note = Note(client, kind, order, lease, self._moment(), limit)
        if self._records:
            self._notes[id(note)] = note
        return note

    def _moment(self) -> float:
        """Now, but never the same moment twice: what came first is to be seen in the history."""
        self._stamp = max(self._world.now, self._stamp + 1e-9)
        return self._stamp

    def noted(self, note: Note, outcome: Outcome, holding: LeaseState | None = None) -> None:
        """It has ended."""
        if not self._records:
            return
        del self._notes[id(note)]
        want = note.order.want
        names = tuple(part.name for part in want.parts) if isinstance(want, MultiRequest) else (want.name,)
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


@lru_cache(10_000)
def _tags(want: Request) -> list[bytes]:
    parts = want.parts if isinstance(want, MultiRequest) else (cast("PermitRequest", want),)
    return [part.place.tag.encode() for part in parts]
