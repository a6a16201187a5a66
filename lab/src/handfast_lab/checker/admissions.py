"""Limiters: no period admits more than its limit, waiters are admitted in their order, and each admission counts once.

Two clocks say when a request was admitted. The server's instant, where it was observed, is exact. The caller's clock
says that it was between the call and its return: what was called and had returned within one period was admitted within
it. Both checks report real violations only: an admission counts with the least cost that its `settle` calls may have
left by then.

A request that was certainly in the queue before another one was called is admitted first, at an earlier instant or in
the same step. That holds for smaller costs and for calls that do not wait, too. Only admitted requests with a known
instant are compared.

A request that is sent again is counted again only if all its windows have forgotten it: two instants are at least the
longest period apart.

All callers of a name must use the same rates. A server that lost its windows, or whose clock jumped ahead, may admit up
to the limit once more: such a history is not for these checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import ended

__all__ = ["RateSpec", "check_admissions"]

_invoked = attrgetter("invoked")


class RateSpec(NamedTuple):
    """One rate of a limiter."""

    limit: int
    per_us: int


class _Admission(NamedTuple):
    """An admitted request, and the later changes of its cost in the order of their calls."""

    acquire: Operation
    settles: tuple[Operation, ...]

    @property
    def at_us(self) -> int | None:
        """The latest instant at which it was counted."""
        return max(self.acquire.counted, default=None)

    def least_cost(self, since: float, until: float) -> int:
        """Return the least cost that it may have had at an instant in that period of the callers' clock."""
        costs = {self.acquire.weight}
        for settle in self.settles:
            if settle.invoked > until:
                break
            is_done = settle.outcome == "done" and ended(settle) < since
            costs = {settle.weight} | (set() if is_done else costs)
        return min(costs)


def check_admissions(history: Sequence[Operation], rates: Mapping[str, Sequence[RateSpec]]) -> list[Finding]:
    """Return the findings in a history of limiters, whose rates are given by name."""
    found: list[Finding] = []
    for name, of_name in rates.items():
        admissions = _admissions_of(name, history)
        for rate in of_name:
            found += _excesses_by_instants(name, rate, admissions)
            found += _excesses_by_calls(name, rate, admissions)
        found += _overtakings(name, admissions)
        found += _counted_again(name, max(rate.per_us for rate in of_name), history)
    return found


def _admissions_of(name: str, history: Sequence[Operation]) -> list[_Admission]:
    settles: dict[str, list[Operation]] = {}
    for one in sorted(history, key=_invoked):
        if one.kind == "settle":
            settles.setdefault(one.lease, []).append(one)
    return [
        _Admission(one, tuple(settles.get(one.lease, ())))
        for one in history
        if one.outcome == "granted" and name in one.names
    ]


def _excesses_by_instants(name: str, rate: RateSpec, admissions: Sequence[_Admission]) -> Iterator[Finding]:
    """Yield the admissions that made a window too full, by the server's instants."""
    known = sorted(((one.at_us, one) for one in admissions if one.at_us is not None), key=lambda pair: pair[0])
    first = 0
    for place, (at_us, last) in enumerate(known):
        while known[first][0] <= at_us - rate.per_us:
            first += 1
        beyond = place + 1
        while beyond < len(known) and known[beyond][0] == at_us:
            beyond += 1  # of those admitted in one step the last one shows the sum
        if beyond == place + 1:
            window = [one for _, one in known[first:beyond]]
            since, until = last.acquire.invoked, ended(last.acquire)
            yield from _excess(name, rate, last, [(one, one.least_cost(since, until)) for one in window])


def _excesses_by_calls(name: str, rate: RateSpec, admissions: Sequence[_Admission]) -> Iterator[Finding]:
    """Yield the admissions that made a window too full, by the callers' clock: all calls of the window lie within it."""
    by_return = sorted(admissions, key=lambda one: ended(one.acquire))
    first = 0
    for place, last in enumerate(by_return):
        until = ended(last.acquire)
        since = until - rate.per_us / 1e6
        while ended(by_return[first].acquire) <= since:
            first += 1
        window = [one for one in by_return[first : place + 1] if one.acquire.invoked > since]
        yield from _excess(name, rate, last, [(one, one.least_cost(since, until)) for one in window])


def _excess(name: str, rate: RateSpec, last: _Admission, window: Sequence[tuple[_Admission, int]]) -> Iterator[Finding]:
    used = sum(cost for _, cost in window)
    if used > rate.limit:
        operations = (last.acquire, *(one.acquire for one, _ in window if one is not last))
        text = f"{used} of {rate.limit} were admitted within {rate.per_us / 1e6:g} s: {describe(operations)}"
        yield Finding("windows", name, text, operations)


def _overtakings(name: str, admissions: Sequence[_Admission]) -> Iterator[Finding]:
    """Yield the admissions that overtook a request that was in the queue before they were called."""
    known = [one for one in admissions if one.at_us is not None]
    waiters = sorted(
        (one for one in known if one.acquire.queued is not None), key=lambda one: one.acquire.queued or 0.0
    )
    place, last = 0, None
    for one in sorted(known, key=lambda one: one.acquire.invoked):
        while place < len(waiters) and (waiters[place].acquire.queued or 0.0) < one.acquire.invoked:
            waiter = waiters[place]
            if last is None or (waiter.at_us or 0) > (last.at_us or 0):
                last = waiter
            place += 1
        if last is not None and (last.at_us or 0) > (one.at_us or 0):
            operations = (one.acquire, last.acquire)
            since = f"that was in the queue since {last.acquire.queued:.6f}"
            yield Finding(
                "order", name, f"it was admitted before a request {since}: {describe(operations)}", operations
            )


def _counted_again(name: str, longest_us: int, history: Sequence[Operation]) -> Iterator[Finding]:
    for one in history:
        if one.kind in ("acquire", "try_acquire") and name in one.names:
            instants = sorted(one.counted)
            if any(later - earlier < longest_us for earlier, later in pairwise(instants)):
                yield Finding("once", name, f"it was counted {len(instants)} times: {describe((one,))}", (one,))
