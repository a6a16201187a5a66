"""Do something once: begin a run, and see how far it has come.

To become the caller that runs, or to find a record, is an `acquire`. A
message never begins a run, since its result may have been recorded in between: a waiter that gets one asks again. How a
run has ended is recorded by its `release`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from handfast._engine.effects import Answer, Found, Steps
from handfast._engine.once import OnceRequest, Record, read_stored
from handfast._protocol.acquire import Attempt, Grant
from handfast._protocol.admin import read_status
from handfast._protocol.lease import GONE, LeaseState
from handfast.errors import LeaseLost, UnknownLayout

if TYPE_CHECKING:
    from handfast.records import OnceStatus

__all__ = ["begin", "forget", "found", "read", "status"]


def begin(lease: LeaseState) -> Steps[None]:
    """Record that a run begins, so that it is not run again if it does not end. Raises LeaseLost."""
    request: OnceRequest = lease.request  # type: ignore[assignment]  # all runs have one
    answer: Answer = yield request.begin(lease.token)
    if answer.fields[0] == b"lost":
        raise LeaseLost(request.name, lease.fence, GONE.format("begun"))


def found(attempt: Attempt, recorded: Found, now: float) -> LeaseState:
    """Return what stands for the lease of a run that has ended already."""
    lease = LeaseState(attempt.request, attempt.token, Grant(recorded.fence, now, 0.0), None, attempt.asked_at)
    lease.let_go(now)
    return lease


def status(request: OnceRequest) -> Steps[OnceStatus]:
    """Read who runs and who waits, and then what was recorded: what has ended in between is recorded by then."""
    from handfast.records import OnceStatus

    inspected: Answer = yield request.inspect()
    record = yield from read(request)
    now_us = inspected.fields[1]
    key = read_status(inspected.fields, request.limit)
    holder = key.holders[0] if key.holders else None
    if record is None:
        return OnceStatus("running" if holder else "idle", None, holder, key.waiting)
    state = "running" if holder and record.outcome == "begun" else record.outcome
    return OnceStatus(state, max(0, now_us - record.at_us) / 1e6, holder, key.waiting)


def read(request: OnceRequest) -> Steps[Record | None]:
    """Read what is recorded."""
    answer: Answer = yield request.read()
    if answer.reply is None:
        return None
    if found := re.match(rb"layout \d+", answer.reply):  # lua/lib/outcome.lua
        raise UnknownLayout(request.name, found[0].decode())
    return read_stored(answer.reply)


def forget(request: OnceRequest) -> Steps[bool]:
    """Delete the record. Return whether there was one."""
    answer: Answer = yield request.forget()
    return bool(answer.reply) or answer.again
