"""The checks of debounced names during a simulation: the reply of each script against a plain model, and what callers believe.

The model is what is stored after each script: the newest call and its time. And it knows in which order the calls came, how
each of them has ended, and how long each one took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from struct import unpack
from typing import Any, NamedTuple

from handfast._engine.constants import CLAIM_MS
from handfast._engine.packing import read_reply
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.items import SCRIPTS, ItemWatch
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.network import is_torn
from handfast_lab.simulator.orders import Plan
from handfast_lab.simulator.watch import REMEMBERED_S, Watch

__all__ = ["BurstWatch"]

_ENTER, _CANCEL = b"debounce_enter", b"debounce_cancel"

SLACK_S = 2.0
"""How much longer than its time a call may take without a fault, in seconds: a few trips."""

MAX_TEMPO_S = 0.03
"""Slower connections break now and then."""

STEP_S = 1.0
"""How much a clock that is set back may delay a call each time, in seconds."""


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
    def times(self) -> tuple[float, float, float, float]:
        """Quiet and at_most in microseconds, the time that is left, and the ticket."""
        quiet_ms, at_most_ms, left_us, ticket = unpack("<dddd", self.command.words[self.command.key_count + 1])
        return quiet_ms * 1000, at_most_ms * 1000, left_us, ticket

    @property
    def is_over(self) -> bool:
        """Whether the time of the burst that it found had come."""
        return self.before.newest is not None and self.before.due_us <= self.now_us

    @property
    def may_run(self) -> bool:
        """Whether the newest call runs though a newcomer has come: its question may be on its way."""
        in_time = self.now_us < self.before.due_us + CLAIM_MS * 1000
        return self.is_over and in_time and self.before.first_us + self.times[1] > self.now_us

    @property
    def dues_us(self) -> set[float]:
        """When a call that comes now may be told to run."""
        _, at_most_us, left_us, *_ = self.times
        now, first = float(self.now_us), min(self.before.first_us, self.now_us)
        if self.before.newest is None or self.may_run or self.now_us >= self.before.due_us + CLAIM_MS * 1000:
            firsts = {now}
        elif self.is_over:
            firsts = {now, first}  # whether the newest call is dead is not known here
        else:
            firsts = {first}
        return {max(now, min(now + left_us, one + at_most_us)) for one in firsts}

    @property
    def due_us(self) -> float:
        """When the newest call is to run, if it asks now."""
        quiet_us, _, left_us, *_ = self.times
        return min(self.before.due_us, self.now_us + max(0.0, left_us) + min(quiet_us, STEP_S * 1e6))


class BurstWatch(Watch):
    """Checks the commands, scripts and calls of debounced names."""

    def _begin(self, plan: Plan) -> Any:
        self._bursts = {tag.encode(): _Burst() for tag in plan.tags}
        self._ends: dict[bytes, str] = {}
        """How each call has ended on the server: ``ran``, ``may run``, ``cut off``, or ``superseded``, which one that was
        withdrawn is, too."""
        self._ended_at_server: dict[bytes, float] = {}
        self._arrived: dict[bytes, int] = {}
        """In which order the calls came."""
        self._ran = dict.fromkeys(self._bursts, -1)
        """Which call has run that came last, by that order."""
        self._open_us = dict.fromkeys(self._bursts, inf)
        """Since when calls come of which none has run."""
        self._asked_at: dict[bytes, float] = {}
        self.items = ItemWatch(self._network, self.find)
        orders = [order for client in plan.clients for caller in client.callers for order in caller]
        self._only_jumps = {*plan.faults} == {"jump"} and plan.tempo < MAX_TEMPO_S
        self._is_plain = not plan.faults and not any(
            order.cancel_after or order.cancel_at or order.verb == "close" for order in orders
        )
        return {b"after": None, b"belief": None, b"present": self._present, b"finish": self._finish}

    def executed(self, command: Command, frame: object, now_us: int) -> None:
        """Check a script that the server has run, before its reply is sent."""
        name, token = command.name, command.token
        tag = command.words[0].rpartition(b":")[0]
        if name in SCRIPTS:
            self.items.executed(command, frame, tag, now_us)
            return
        before = self._bursts[tag]
        if before.expires_ms < now_us // 1000:
            before = _Burst()
        after = self._bursts[tag] = self._look(tag)
        if isinstance(frame, ErrorReply):
            if is_torn(frame):
                self.items.torn(tag, token)
                self._ends.update({one: "cut off" for one in (before.newest, token) if one not in (None, after.newest)})
            elif frame.startswith("ERR"):
                self.find(f"script: {name.decode()}: {frame}")
            elif frame.startswith("OOM") and (name != _ENTER or token == before.newest):
                self.find(f"invariant 11: {name.decode()} of {token.decode()} is refused at maxmemory")
            return
        if name == _CANCEL:
            self.items.cancelled(tag, token, now_us)
        reply, *numbers = read_reply(frame)
        step = _Step(command, reply, numbers, before, after, now_us)
        for number in self._cancelled(step) if name == _CANCEL else self._violated(step, tag):
            if token not in self._older and self._ends.get(token) != "cut off":
                words = f"{tag.decode()} {name.decode()} of {token.decode()} is answered {reply.decode()}"
                self.find(f"invariant {number}: {words}")
        self._note(step, tag)

    def strayed(self, command: Command, messages: Sequence[bytes]) -> None:
        """Note a script that a server has run which was the primary."""
        super().strayed(command, messages)
        if command.name in SCRIPTS:
            self.items.strayed(command)

    def _note(self, step: _Step, tag: bytes) -> None:
        """Record which calls have come and ended."""
        name, token, reply, before, after = step.command.name, step.command.token, step.reply, step.before, step.after
        if before.newest not in (None, after.newest, token):
            self._ends.setdefault(before.newest, "may run" if name == _ENTER and step.may_run else "superseded")
            self._ended_at_server.setdefault(before.newest, self._world.now)
        if name == _CANCEL:
            self._ends.setdefault(token, "superseded")
            if self.fates[token] != "over":
                self._over(token)
        elif reply in (b"waits", b"runs"):
            self._arrived.setdefault(token, len(self._arrived))
        if reply == b"runs":
            self._ends[token] = "ran"
            self._ended_at_server.setdefault(token, self._world.now)
            self._ran[tag] = max(self._ran[tag], self._arrived[token])
            self._open_us[tag] = inf
        elif reply == b"waits":
            self._open_us[tag] = since = min(self._open_us[tag], step.now_us)
            if self._is_plain and step.now_us > since + step.times[1] + SLACK_S * 1e6:
                self.find(f"invariant 34: of {tag.decode()} no call runs, long after the first one came")

    def _cancelled(self, step: _Step) -> Iterator[int]:
        if step.after.newest != (None if step.command.token == step.before.newest else step.before.newest):
            yield 35

    def _violated(self, step: _Step, tag: bytes) -> Iterator[int]:
        """Yield the numbers of the invariants that an answer violates."""
        token, reply, before, after = step.command.token, step.reply, step.before, step.after
        if step.times[3] == 0 and self._world.now > self._ended_at_server.get(token, inf) + REMEMBERED_S:
            return  # its first reply was lost: no one knows any more that it was there
        end, is_newest = self._ends.get(token), token == before.newest
        newer_ran = self._ran[tag] > self._arrived.get(token, inf)
        dues_us = {step.due_us} if is_newest else step.dues_us
        if reply == b"waits":
            if after.newest != token or step.numbers[:2] != [step.now_us, after.due_us] or after.due_us not in dues_us:
                yield 34
            if not is_newest and end is not None:
                yield 35
            elif not is_newest and self._arrived.get(token, inf) < self._arrived.get(before.newest or b"", -1):
                yield 33
        elif reply == b"runs":
            if (is_newest or end is None) and min(dues_us) > step.now_us:
                yield 34
            if end == "superseded" or newer_ran:
                yield 33
        elif end is None or (end == "ran" and not newer_ran):
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

    def asks(self, token: bytes) -> None:
        """Record that a caller begins to wait."""
        super().asks(token)
        self._asked_at[token] = self._world.now

    def told(self, token: bytes, *, runs: bool, quiet: float) -> None:
        """Check what a call has been told, and that it took no longer than its time."""
        end = self._ends.get(token)
        known = end in ("ran", "cut off") if runs else end is not None
        if not known and token not in self._older | self._strays:
            self.find(f"invariant 33: {token.decode()} {'runs' if runs else 'does not run'}, and no reply said so")
        took, longest = (
            self._world.now - self._asked_at[token],
            quiet + SLACK_S + STEP_S * sum(self.damage.counts.values()),
        )
        if self._only_jumps and took > longest:
            self.find(f"invariant 34: {token.decode()} took {took:.3f} s, and {longest:.3f} s are the most")

    def returned(self, token: bytes) -> None:
        """Record that a call is over."""
        if self.fates[token] != "over":
            self._over(token)

    def forget(self, tag: str | None, *, torn: bool) -> None:  # noqa: ARG002 -- all are looked at
        """Record that the server lost the data of a name, or of all."""
        self._bursts = {tag: self._look(tag) for tag in self._bursts}
        self._older.update(self.fates)
        self.items.forget()
        if torn:
            self._torn.update(self.fates)

    def forget_fences(self) -> None:
        """Do nothing: a call has no fence."""

    def forget_finished(self) -> None:
        """Record that the server's clock jumped forward: it may not remember which calls are over."""
        self._older.update(self.fates)
        self.items.forget()

    def check_acknowledged(self) -> None:
        """Do nothing: no call waits for replicas."""

    def check_all_expired(self) -> None:
        """Check that what is left has a TTL: a burst outlives the time of a newest call that is dead by an hour."""
        self._present(0)

    def idle(self) -> list[tuple[str, bytes]]:
        """Return nothing: each call asks by itself."""
        return []
