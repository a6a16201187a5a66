"""The checks of keys of `once` during a simulation: after each script by ``outcomes.lua``, and what callers believe.

Its runs are leases of a lock, and are checked as such.
"""

from __future__ import annotations

from typing import Any

from handfast._engine.once import ACQUIRE, RECORD
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast._protocol.lease import LeaseState
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.orders import Plan, Target
from handfast_lab.simulator.watch import Watch

__all__ = ["OnceWatch"]

_ACQUIRE, _RECORD = (script.name.encode() for script in (ACQUIRE, RECORD))


class OnceWatch(Watch):
    """Checks the commands, scripts, runs and results of keys."""

    def _begin(self, plan: Plan) -> Any:
        self._results: dict[tuple[str, int], set[object]] = {}
        """What was to be recorded, by key and fence."""
        outcomes = self._network.server.outcomes
        outcomes[b"begin"](*(tag.encode() for tag in plan.tags))
        return outcomes

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, or the record that was read or deleted, before its reply is sent."""
        name, token = command.name, command.token
        if self.damage.stepped_back:
            self._invariants[b"set_back"]()
        if command.is_plain:
            if not isinstance(frame, ErrorReply):
                self._after(name, False, now_us)
            return
        super().executed(command, frame, now_us)
        if isinstance(frame, ErrorReply):
            complaint = self._invariants[b"refused"](now_us) if name == _ACQUIRE and frame.startswith("OOM") else None
            if complaint is not None:
                self.find(complaint.decode())
        elif name == _RECORD and self._ends(command, frame) and self.fates[token] != "over":
            self._over(token)

    @staticmethod
    def _ends(command: Command, frame: object) -> bool:
        """Return whether a run has recorded its end."""
        return command.words[command.key_count + 1] != b"begun" and read_reply(frame)[0] == b"recorded"

    def runs(self, target: Target, state: LeaseState) -> None:
        """Check a caller that begins to run: a reply granted that, and what must be recorded before it is."""
        token = state.token
        if token in self._older or token in self._strays:
            return
        recording = target.recording
        for tag in target.tags:
            is_granted, has_begun, other = self._invariants[b"run"](tag, token, self._network.now_us())
            if not is_granted:
                self.find(f"invariant 26: {token.decode()} runs, and no reply granted that")
            elif other is not None and self._invariants[b"lease_end"](tag, token, self._network.now_us()):
                self.find(f"invariant 26: {token.decode()} runs what {other.decode()} has recorded")
            if recording is not None and not recording.reruns and not has_begun:
                self.find(f"invariant 27: {token.decode()} runs, and its beginning is not recorded")

    def records(self, target: Target, fence: int, value: object) -> None:
        """Note that a run is about to record this result."""
        self._results.setdefault((target.name, fence), set()).add(value)

    def found(self, target: Target, token: bytes, fence: int, value: object) -> None:
        """Check the result that a caller has got: it is one that the run of this fence has recorded."""
        if value not in self._results.get((target.name, fence), ()):
            self.find(f"invariant 29: {token.decode()} finds {value} of the run with fence {fence}")
