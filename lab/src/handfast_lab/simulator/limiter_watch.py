"""The checks of limiters during a simulation: after each script by ``limits.lua``, and what callers believe.

A token has ended when its caller was not admitted, or gave the admission back. An admission itself has no end.
"""

from __future__ import annotations

from struct import iter_unpack
from typing import Any

from handfast._engine import batches
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import Plan
from handfast_lab.simulator.watch import Watch

__all__ = ["LimiterWatch"]

_ACQUIRE, _INSPECT, _PAUSE, _RESIZE, _SETTLE = (
    b"limit_" + verb for verb in (b"acquire", b"inspect", b"pause", b"resize", b"settle")
)
_ADMIT = batches.ADMIT.name.encode()


class LimiterWatch(Watch):
    """Checks the commands, scripts and admissions of limiters."""

    def _begin(self, plan: Plan) -> Any:
        limits = self._network.server.limits
        windows = (part.partition(":")[2] for part in plan.parts if part.startswith("window:"))
        limits[b"begin"](" ".join(plan.tags).encode(), " ".join(windows).encode())
        return limits

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, before its reply is sent."""
        name, token, is_cut = command.name, command.token, is_torn(frame)
        if isinstance(frame, ErrorReply) and not is_cut:
            if frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and not self._takes(command):
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        complaint = self._after(name, is_cut, now_us, now_us - self._network.jump_us)
        if complaint is not None:
            self.find(f"{'cut off: ' * is_cut}{complaint.decode()}")
        if name in (_INSPECT, _PAUSE, _RESIZE):
            return
        if is_cut:
            self._entered.update(command.tokens)
        elif name == _ADMIT:
            left = iter_unpack("<d", frame)  # type: ignore[arg-type]  # bytes
            next(left)
            for one, (admits,) in zip(command.tokens, left, strict=True):
                if admits >= 0:
                    self._has_entered(one, b"admitted")
        else:
            self._answered_with(command, read_reply(frame))

    def _answered_with(self, command: Command, reply: list[Any]) -> None:
        token, (tag, *numbers) = command.token, reply
        if command.name == _SETTLE:
            if self._costs_nothing(command) and self.fates[token] != "over":
                self._over(token)
        elif tag in (b"admitted", b"queued"):
            if tag == b"queued" and command.ticket not in (None, numbers[3]):
                self.find(f"L2: {token.decode()} is queued at {numbers[3]}, and its place was {command.ticket}")
            self._has_entered(token, tag)

    def _has_entered(self, token: bytes, tag: bytes) -> None:
        if self._network.out_of_memory and token not in self._entered:
            self.find(f"invariant 11: {token.decode()} is {tag.decode()} at maxmemory")
        self._entered.add(token)

    @staticmethod
    def _takes(command: Command) -> bool:
        """Whether it asks for something, and does not give it back: the first argument tells."""
        name, first = command.name, command.token
        return name in (_ACQUIRE, _ADMIT) or (name == _PAUSE and any(first)) or (name == _RESIZE and first == b"1")

    @staticmethod
    def _costs_nothing(command: Command) -> bool:
        return command.words[command.key_count + 1][8:16] == bytes(8)

    def forget(self, tag: str | None, *, torn: bool) -> None:
        """Record that the server lost the data of a limiter, or of all; if ``torn``, only some of its keys."""
        now_us = self._network.now_us()
        self._invariants[b"lost"](tag and tag.encode(), torn, now_us, now_us - self._network.jump_us)
        self._older.update(self.fates)
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """Do nothing: a limiter has no fences."""

    def check_acknowledged(self) -> None:
        """Do nothing: no admission waits for replicas."""

    def admitted(self, token: bytes) -> tuple[int, ...]:
        """Record that a caller was told its admission. Return the instants at which the server admitted it."""
        self.holds(token)
        found: Any = self._invariants[b"admitted"](token)
        instants = tuple(map(int, found if isinstance(found, tuple) else () if found is None else (found,)))
        if not instants and token not in self._older and token not in self._strays:
            self.find(f"L5: {token.decode()} believes that it is admitted")
        # A script that was cut off has admitted it to some of its windows, and one that was sent again to the others.
        return () if len(instants) > 1 and self.damage.counts.get("cut off") else instants
