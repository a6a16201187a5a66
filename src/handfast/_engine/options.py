"""The options of a lease, as a record that goes from the client's methods to the calls.

A new option is a field here, a parameter of the client's methods, and the code that reads the field.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from handfast._engine.defaults import DEFAULT_MAX_WAITERS
from handfast._engine.effects import Acknowledgement
from handfast._engine.validate import (
    check_int,
    check_value,
    head_start_microseconds,
    lease_times,
    milliseconds,
    wait_seconds,
)
from handfast._kinds import MAX_PERMITS
from handfast.arguments import Duration

__all__ = ["LeaseOptions", "Waiting", "lease_options", "waiting"]


class LeaseOptions(NamedTuple):
    """The options of a request for a lease."""

    ttl_ms: int
    renew: bool = True
    max_waiters: int = DEFAULT_MAX_WAITERS
    timeout: float | None = None
    """Seconds to wait unless a call has a ``timeout``; None without a limit, 0 not at all."""
    max_hold: float = inf
    """Seconds after which a lease ends in any case; inf without a limit. No ttl is longer."""
    at_least_ms: int = 0
    """Milliseconds from the grant for which the lock stays taken, also after a release."""
    acknowledgement: Acknowledgement | None = None
    """The replicas that grants and renewals wait for; None waits for none."""
    value: str = ""
    """Data that others read with the status, at most 1 KiB of UTF-8."""
    head_start_us: int = 0
    """By how many microseconds a request counts as earlier than it came."""
    yields: bool = True
    """Whether its holder is interrupted when a later request asks it to end."""


class Waiting(NamedTuple):
    """The options of a request that waits in the queue."""

    timeout: float | None = None
    max_waiters: int = DEFAULT_MAX_WAITERS
    head_start_us: int = 0


def waiting(timeout: Duration | None, max_waiters: int, head_start: Duration = 0.0) -> Waiting:
    """Check these options, given to a method of the client. Raises TypeError and ValueError."""
    max_waiters = check_int(max_waiters, "max_waiters", MAX_PERMITS)
    return Waiting(wait_seconds(timeout), max_waiters, head_start_microseconds(head_start))


def lease_options(
    ttl: Duration,
    waits: Waiting = Waiting(),  # noqa: B008 -- immutable
    acknowledgement: Acknowledgement | None = None,
    *,
    renew: bool = True,
    yields: bool = True,
    max_hold: Duration | None = None,
    at_least: Duration | None = None,
    value: str = "",
) -> LeaseOptions:
    """Check the options given to a method of the client. Raises TypeError and ValueError."""
    ttl_ms, longest = lease_times(ttl, max_hold)
    at_least_ms = 0 if at_least is None else milliseconds(at_least, "at_least")
    if at_least_ms > longest * 1000:
        raise ValueError(f"at_least must not be longer than max_hold, {longest:g} s, and is {at_least!r}")
    seconds, max_waiters, ahead_us = waits
    value = check_value(value)
    return LeaseOptions(
        ttl_ms, renew, max_waiters, seconds, longest, at_least_ms, acknowledgement, value, ahead_us, yields
    )
