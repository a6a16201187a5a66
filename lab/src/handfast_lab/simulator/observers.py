"""The oracles of elections and groups: those of leases, and what observers see of who holds them."""

from __future__ import annotations

from abc import abstractmethod
from struct import unpack_from
from typing import Any

from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import Target
from handfast_lab.simulator.watch import NOTICED_S, Watch

__all__ = ["ElectionWatch", "GroupWatch", "Observed", "ObserverWatch"]

SEEN_S = 7.0
"""Seconds after a change by which every observer has seen it: a poll and a slow reply."""

TOLD_S = 2.0
"""The same where nothing goes wrong: less than a poll, since a message tells, or the end of the lease that was seen."""

NUMBERS = 8 * 8
"""Bytes before the holder in the field ``s`` of a state."""

ENDED = 2**52
"""Scores of tombstones are larger, and those of waiters below zero."""

Fences = tuple[int, ...]


class Observed:
    """The fences that an observer has seen last."""

    __slots__ = ("client", "fences", "target")

    def __init__(self, client: Client, target: Target) -> None:
        self.client = client
        self.target = target
        self.fences: Fences | None = None
        """None if it has seen nothing."""


class ObserverWatch(Watch):
    """Checks leases, and each answer to an observer against the holders that the server has."""

    invariant = 0
    scripts: tuple[bytes, ...] = ()
    """The script for observers, and the script which sends messages."""

    def _begin(self, plan: Any) -> Any:
        self._places = [one.encode() for one in plan.tags]
        self._seen: dict[bytes, tuple[Fences, float]] = dict.fromkeys(self._places, ((), 0.0))
        self._noted_at = 0.0
        """When the holders were as recorded."""
        orders = [order for client in plan.clients for caller in client.callers for order in caller]
        # Nothing is announced by a candidate that gives up as it is elected, by a closed client, and for a lease that was
        # dropped and taken away; and late by a holder that blocks the event loop, or whose connection is slow.
        ends = [one.cancel_after or one.timeout for one in orders if one.verb != "observe"]
        others = [one.verb in ("close", "revoke") or one.block or one.cancel_at for one in orders]
        is_calm = not (plan.faults or plan.tempo > 0.001 or any(ends) or any(others))
        self._seen_s = TOLD_S if is_calm else SEEN_S
        return super()._begin(plan)

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script after the server has run it, before the reply."""
        self._note_holders()
        if command.name not in self.scripts:
            super().executed(command, frame, now_us)
            self._note_holders()
            return
        if isinstance(frame, ErrorReply):
            if frame.startswith("ERR") and not is_torn(frame):
                self.find(f"script: {command.name.decode()}: {frame}")
        elif command.name == self.scripts[0]:
            place = command.words[0].rpartition(b":")[0]
            there, _ = self._holders(place)
            said = self._said(command, frame, place)
            if said != there:
                self.find(f"invariant {self.invariant}: {place.decode()} is held by {there}, and the reply says {said}")

    @abstractmethod
    def _said(self, command: Command, frame: Any, place: bytes) -> Fences:
        """Return the fences of a reply; where nothing is new, the fences known to the caller."""

    def _read(self, place: bytes) -> tuple[int, list[tuple[float, int]]]:
        """Return the largest fence, and the ends and fences of the holders, those included whose leases have ended."""
        peek, now_us = self._network.server.model[b"peek"], self._network.now_us()
        state, tokens = peek(place + b":state", now_us), peek(place + b":tokens", now_us)
        text = b"" if state is None else state.fields[b"s"] or b""
        found = []
        if text:
            ends_us, fence = unpack_from("<2d", text)
            if ends_us:
                found.append((ends_us, int(unpack_from("<d", text, NUMBERS + 1 + text[NUMBERS])[0])))
        for token, score in () if tokens is None else tokens.scores.items():
            record = None if state is None else state.fields[token]
            if 0 < score < ENDED:
                found.append((score, 0 if record is None else int(unpack_from("<d", record)[0])))
        return int(fence) if text else 0, found

    def _holders(self, place: bytes) -> tuple[Fences, float]:
        """Return the fences of the holders with records, and since when these are all: the last end of a lease, or the present."""
        _, found = self._read(place)
        now_us = self._network.now_us()
        ended = [ends_us for ends_us, _ in found if ends_us <= now_us]
        fences = tuple(sorted(fence for ends_us, fence in found if fence and ends_us > now_us))
        return fences, self._network.moment(max(ended)) if ended else self._world.now

    def _note_holders(self) -> None:
        """Record who holds each name, and since when."""
        for place in self._places:
            fences, since = self._holders(place)
            if self._seen[place][0] != fences:
                self._seen[place] = fences, since if since > self._noted_at else self._world.now
        self._noted_at = self._world.now

    def observed(self, observer: Observed, fences: Fences) -> None:
        """Check that an observer sees something new, and soon."""
        if observer.fences == fences:
            self.find(f"invariant {self.invariant}: an observer of {observer.target.name} sees {fences} twice")
        self._late(observer, "sees others only")
        observer.fences = fences

    def leaves(self, observer: Observed) -> None:
        """Check that an observer has seen the holders when it goes."""
        self._late(observer, "has not seen that")

    def _late(self, observer: Observed, said: str) -> None:
        self._note_holders()
        fences, since = self._seen[observer.target.tags[0]]
        noticed_at = self.damage.last + NOTICED_S if self.damage.counts else 0.0
        due = max(since, noticed_at, observer.client.process.awake_since) + self._seen_s + self.damage.grace
        if self._world.now > due and observer.fences not in (fences, None) and not observer.client.closed:
            self.find(
                f"invariant {self.invariant}: an observer of {observer.target.name} {said} "
                f"{self._world.now - since:.3f} s after {fences} are there"
            )


class ElectionWatch(ObserverWatch):
    """Observers see the leader."""

    invariant = 39
    scripts = b"election_watch", b"election_announce"

    def _holders(self, place: bytes) -> tuple[Fences, float]:
        """Return the leader: no token but that in the state holds an election."""
        _, found = self._read(place)
        now_us = self._network.now_us()
        ends_us, fence = max((one for one in found if one[1]), default=(0, 0))
        if ends_us > now_us:
            return (fence,), self._world.now
        return (), self._network.moment(ends_us) if ends_us else self._world.now

    def _said(self, command: Command, frame: Any, place: bytes) -> Fences:  # noqa: ARG002 -- of a group
        (known,) = unpack_from("<d", command.words[command.key_count + 1])
        if isinstance(frame, list):
            return (int(unpack_from("<d", frame[5])[0]),)
        return (int(known),) if frame[:5] == b"waits" and known else ()


class GroupWatch(ObserverWatch):
    """Observers see the members."""

    invariant = 43
    scripts = b"group_watch", b"group_ring"

    def _said(self, command: Command, frame: Any, place: bytes) -> Fences:
        if isinstance(frame, list):
            return tuple(sorted(int(unpack_from("<d", record)[0]) for record in frame[4][1::2] if record))
        if frame[:5] != b"waits":
            return ()
        known = tuple(map(int, unpack_from("<2d", command.words[command.key_count + 1])))
        fence, found = self._read(place)
        live = [one for one in found if one[0] > self._network.now_us()]
        return self._holders(place)[0] if known == (fence, len(live)) else known
