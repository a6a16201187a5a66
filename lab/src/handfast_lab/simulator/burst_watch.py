"""The checks of debounced names during a simulation: the reply of each script against a plain model, and what callers believe.

The model is what is stored after each script: the newest call and its time. And it knows how each other call has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack
from typing import Any, NamedTuple

from handfast._engine.debounce import CANCEL, CLAIM, ENTER
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import Plan
from handfast_lab.simulator.watch import Watch

__all__ = ["BurstWatch"]

_ENTER, _CLAIM, _CANCEL = (script.name.encode() for script in (ENTER, CLAIM, CANCEL))


class _Burst(NamedTuple):
    """What is stored of a name while a call waits."""

    newest: bytes | None = None
    first_us: float = 0.0
    due_us: float = 0.0
    expires_ms: float = 0.0


class _Step(NamedTuple):
    """A script, and what it found and left."""

    command: Command
    reply: bytes
    numbers: list[int]
    before: _Burst
    after: _Burst
    now_us: int

    @property
    def due_us(self) -> float:
        """When a call that comes now is to run."""
        quiet_ms, at_most_ms = unpack("<dd", self.command.words[self.command.key_count + 1])
        first_us = self.before.first_us if self.before.newest else self.now_us
        return float(max(self.now_us, min(self.now_us + quiet_ms * 1000, first_us + at_most_ms * 1000)))


class BurstWatch(Watch):
    """Checks the commands, scripts and calls of debounced names."""

    def _begin(self, plan: Plan) -> Any:
        self._bursts = {tag.encode(): _Burst() for tag in plan.tags}
        self._ends: dict[bytes, str] = {}
        """How each call has ended on the server: ``ran`` or ``superseded``, which one that was withdrawn is, too."""
        return {b"after": None, b"belief": None, b"present": self._present, b"finish": self._finish}

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, before its reply is sent."""
        name, token = command.name, command.token
        tag = command.words[0].rpartition(b":")[0]
        before = self._bursts[tag]
        if before.expires_ms < now_us // 1000:
            before = _Burst()
        after = self._bursts[tag] = self._look(tag)
        if isinstance(frame, ErrorReply):
            if is_torn(frame):
                self._ends.update({one: "cut off" for one in (before.newest, token) if one not in (None, after.newest)})
            elif frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and name != _ENTER:
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        reply, *numbers = read_reply(frame)
        step = _Step(command, reply, numbers, before, after, now_us)
        for number in self._violated(step):
            if token not in self._older and self._ends.get(token) != "cut off":
                words = f"{tag.decode()} {name.decode()} of {token.decode()} is answered {reply.decode()}"
                self.find(f"invariant {number}: {words}")
        if before.newest not in (None, after.newest):
            self._ends.setdefault(before.newest, "ran" if reply == b"runs" else "superseded")
        if reply == b"runs" or name == _CANCEL:
            self._ends.setdefault(token, "ran" if reply == b"runs" else "superseded")
        if name == _CANCEL and self.fates[token] != "over":
            self._over(token)

    def _violated(self, step: _Step) -> Iterator[int]:
        """Yield the numbers of the invariants that an answer violates."""
        token, reply, before, after = step.command.token, step.reply, step.before, step.after
        end, is_newest, claims = self._ends.get(token), token == before.newest, step.command.name == _CLAIM
        if reply == b"cancelled":
            if after.newest != (None if is_newest else before.newest):
                yield 35
        elif reply == b"waits":
            if (
                after.newest != token
                or step.numbers != [step.now_us, after.due_us]
                or (is_newest and (after[:3] != before[:3] or (claims and step.now_us >= before.due_us)))
                or (not is_newest and (claims or after.due_us != step.due_us))
            ):
                yield 34
            elif not is_newest and end is not None:
                yield 35
        elif reply == b"runs":
            if end != "ran" and not is_newest:
                yield 33
            elif end != "ran" and step.now_us < before.due_us:
                yield 34
        elif end is None or (reply == b"superseded") != (end == "superseded"):
            yield 33

    def _look(self, tag: bytes) -> _Burst:
        found = self._network.server.model[b"peek"](tag + b":burst", self._network.now_us())
        if found is None or found.fields[b"token"] is None:
            return _Burst()
        if not found.expires:
            self.find(f"invariant 5: {tag.decode()} has no TTL")
        return _Burst(found.fields[b"token"], float(found.fields[b"first"]), float(found.fields[b"due"]), found.expires)

    def _present(self, _: int) -> tuple[bytes, ...]:
        self._bursts = {tag: self._look(tag) for tag in self._bursts}
        return tuple(tag + b" " + burst.newest for tag, burst in self._bursts.items() if burst.newest)

    def _finish(self, token: bytes, _: int) -> bytes | None:
        is_there = any(burst.newest == token for burst in self._bursts.values())
        return b"invariant 35: " + token + b" waits after its end" if is_there else None

    def returned(self, token: bytes, *, runs: bool) -> None:
        """Check what a call has returned."""
        known = self._ends.get(token) in ("ran" if runs else "superseded", "cut off")
        if not known and token not in self._older | self._strays:
            self.find(f"invariant 33: {token.decode()} {'runs' if runs else 'does not run'}, and no reply said so")
        if self.fates[token] != "over":
            self._over(token)

    def forget(self, tag: str | None, *, torn: bool) -> None:  # noqa: ARG002 -- all are looked at
        """Record that the server lost the data of a name, or of all."""
        self._bursts = {tag: self._look(tag) for tag in self._bursts}
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """Do nothing: a call has no fence."""

    def forget_finished(self) -> None:
        """Record that the server's clock jumped forward: it may not remember which calls are over."""
        self._older.update(self.fates)

    def check_acknowledged(self) -> None:
        """Do nothing: no call waits for replicas."""

    def idle(self) -> list[tuple[str, bytes]]:
        """Return nothing: each call asks by itself."""
        return []
