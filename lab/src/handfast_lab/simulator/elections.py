"""The oracle of elections: the oracle of locks, and checks of observers."""

from __future__ import annotations

from struct import unpack_from
from typing import Any

from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import Target
from handfast_lab.simulator.watch import NOTICED_S, Watch

__all__ = ["ElectionWatch", "Observed"]

SEEN_S = 7.0
"""Seconds after a change by which every observer has seen it: a poll and a slow reply."""

TOLD_S = 2.0
"""The same where nothing goes wrong: less than a poll, since a message tells, or the end of the lease that was seen."""

NUMBERS = 8 * 8
"""Bytes before the holder in the field ``s`` of a state."""


class Observed:
    """The last leader that an observer has seen."""

    __slots__ = ("client", "fence", "target")

    def __init__(self, client: Client, target: Target) -> None:
        self.client = client
        self.target = target
        self.fence: int | None = None
        """The fence of that leader; 0 for no leader, None for nothing."""


class ElectionWatch(Watch):
    """Checks terms as leases, and each answer to an observer against who leads."""

    def _begin(self, plan: Any) -> Any:
        self._places = [one.encode() for one in plan.tags]
        self._leaders: dict[bytes, tuple[int, float]] = dict.fromkeys(self._places, (0, 0.0))
        orders = [order for client in plan.clients for caller in client.callers for order in caller]
        # Nothing is announced by a candidate that gives up as it is elected, by a closed client, and for a lease that was
        # dropped and taken away; and late by a leader that blocks its event loop, or whose connection is slow.
        ends = [one.cancel_after or one.timeout for one in orders if one.verb != "observe"]
        others = [one.verb in ("close", "revoke") or one.block or one.cancel_at for one in orders]
        is_calm = not (plan.faults or plan.tempo > 0.001 or any(ends) or any(others))
        self._seen_s = TOLD_S if is_calm else SEEN_S
        return super()._begin(plan)

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script after the server has run it, before the reply."""
        self._note_leaders()
        if command.name not in (b"election_watch", b"election_announce"):
            super().executed(command, frame, now_us)
            self._note_leaders()
            return
        if isinstance(frame, ErrorReply):
            if frame.startswith("ERR") and not is_torn(frame):
                self.find(f"script: {command.name.decode()}: {frame}")
        elif command.name == b"election_watch":
            self._check_answer(command, frame)

    def _check_answer(self, command: Command, frame: Any) -> None:
        place = command.words[0].rpartition(b":")[0]
        (known,) = unpack_from("<d", command.words[command.key_count + 1])
        fence, _ = self._leader(place)
        leads = (
            int(unpack_from("<d", frame[5])[0]) if isinstance(frame, list) else known if frame[:5] == b"waits" else 0
        )
        if leads != fence:
            self.find(f"invariant 39: {place.decode()} is led by {fence}, and the reply says {leads:.0f}")

    def _leader(self, place: bytes) -> tuple[int, float]:
        """Return the fence of the leader and the present; or 0, and since when there is no leader."""
        found = self._network.server.model[b"peek"](place + b":state", self._network.now_us())
        text = b"" if found is None else found.fields[b"s"]
        ends_us = unpack_from("<d", text)[0] if text else 0
        if ends_us > self._network.now_us():
            return int(unpack_from("<d", text, NUMBERS + 1 + text[NUMBERS])[0]), self._world.now
        return 0, self._network.moment(ends_us) if ends_us else self._world.now

    def _note_leaders(self) -> None:
        """Record who leads, and since when."""
        for place in self._places:
            fence, since = self._leader(place)
            if self._leaders[place][0] != fence:
                self._leaders[place] = fence, since

    def observed(self, observer: Observed, fence: int) -> None:
        """Check that an observer sees something new, and soon."""
        if observer.fence == fence:
            self.find(f"invariant 39: an observer of {observer.target.name} sees {fence} twice")
        self._late(observer, "sees another only")
        observer.fence = fence

    def leaves(self, observer: Observed) -> None:
        """Check that an observer that goes now has seen the leader."""
        self._late(observer, "has not seen that")

    def _late(self, observer: Observed, said: str) -> None:
        self._note_leaders()
        fence, since = self._leaders[observer.target.tags[0]]
        noticed_at = self.damage.last + NOTICED_S if self.damage.counts else 0.0
        due = max(since, noticed_at, observer.client.process.awake_since) + self._seen_s + self.damage.grace
        if self._world.now > due and observer.fence not in (fence, None) and not observer.client.closed:
            self.find(
                f"invariant 39: an observer of {observer.target.name} {said} {self._world.now - since:.3f} s after "
                f"{fence} leads"
            )
