"""Do something once: begin a run, and see how far it has come.

An `acquire` makes the caller run, or finds a record. A message never begins a run, since a result may have been
recorded in between: a waiter with a message asks again. A `release` records how the run has ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from handfast._engine.effects import Answer, Found, Steps
from handfast._engine.names import outcome as outcome_of
from handfast._engine.once import OnceRequest, Record, read_stored, version_of
from handfast._protocol.acquire import Attempt, Grant
from handfast._protocol.admin import read_status
from handfast._protocol.asking import Acted
from handfast._protocol.lease import LeaseState
from handfast._protocol.loss import gone
from handfast.errors import LeaseLost, UnknownLayout

if TYPE_CHECKING:
    from handfast.records import OnceStatus

__all__ = ["begin", "forget", "forget_shown", "found", "outcome", "read", "read_record", "status", "version"]


def begin(lease: LeaseState) -> Steps[None]:
    """Record the start of a run, so that it is not repeated if it does not end. Raises LeaseLost."""
    request: OnceRequest = lease.request  # type: ignore[assignment]  # all runs have one
    answer: Answer = yield request.begin(lease.token)
    if answer.fields[0] == b"lost":
        raise LeaseLost(request.name, lease.fence, gone("begun").text)


def found(attempt: Attempt, recorded: Found, now: float) -> LeaseState:
    """Return a released lease in place of the lease of a run that has ended already."""
    lease = LeaseState(attempt.request, attempt.token, Grant(recorded.fence, now, 0.0), None, attempt.asked_at)
    lease.let_go(now)
    return lease


def status(request: OnceRequest) -> Steps[OnceStatus]:
    """Read who runs and who waits, and then the record: a run that ended in between is recorded by then."""
    inspected: Answer = yield request.inspect()
    return outcome(inspected.fields, (yield from read(request)))


def outcome(fields: list[Any], record: Record | None) -> OnceStatus:
    """Make the status of a reply of ``permit_inspect``, and of a record read after it."""
    from handfast.records import OnceStatus

    now_us, key = fields[1], read_status(fields, 1)
    holder = key.holders[0] if key.holders else None
    if record is None:
        return OnceStatus("running" if holder else "idle", None, holder, key.waiting)
    state = "running" if holder and record.outcome == "begun" else record.outcome
    return OnceStatus(state, max(0, now_us - record.at_us) / 1e6, holder, key.waiting)


def read(request: OnceRequest) -> Steps[Record | None]:
    """Read the record."""
    answer: Answer = yield request.read()
    return None if answer.reply is None else read_record(request.name, answer.reply)


def read_record(name: str, stored: bytes) -> Record:
    """Read a record, or the beginning of a record. Raises UnknownLayout."""
    if found := re.match(rb"layout \d+", stored):  # lua/lib/outcome.lua
        raise UnknownLayout(name, found[0].decode())
    return read_stored(stored)


def forget(request: OnceRequest) -> Steps[bool]:
    """Delete the record. Return whether there was a record."""
    answer: Answer = yield request.forget()
    return bool(answer.reply) or answer.again


def version(request: OnceRequest) -> Steps[str]:
    """Return a digest to tell the record from others; empty without a record."""
    answer: Answer = yield outcome_of(request.place)
    return version_of(answer.reply)


def forget_shown(request: OnceRequest, version: str) -> Steps[Acted]:
    """Delete the record if it has this version."""
    stored: Answer = yield outcome_of(request.place)
    if not stored.reply or version_of(stored.reply) != version:
        return "other"
    answer: Answer = yield request.forget_shown(stored.reply)
    if answer.fields[0] == b"forgotten":
        return "done"
    if not answer.again:
        return "other"
    left: Answer = yield outcome_of(request.place)
    return "unknown" if left.reply else "done"
