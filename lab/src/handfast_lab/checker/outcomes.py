"""Keys of `once`: a result is recorded once, nothing runs that is done, late runs record nothing, and all get the recorded result.

A run is an acquire that was granted; it records a result by its release. The checks report real violations only. They order
operations by the callers' clock: what returned before another operation was called took effect before it. A ``forget`` that
may lie in between excuses what comes after it.

A run that is lost has not recorded its result, or the reply was lost and the record was gone when it was sent again.

Records must outlast the history, and no caller may make one anew. A server that loses records, or whose clock jumps ahead, may
run a key again: of such a history check only the results themselves, with ``keeps=False``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import inf
from operator import attrgetter

from handfast_lab.checker.finding import Finding, describe
from handfast_lab.checker.history import Operation
from handfast_lab.checker.history_index import ended

__all__ = ["check_outcomes"]

_invoked = attrgetter("invoked")


def check_outcomes(
    history: Sequence[Operation], *, keeps: bool = True, is_repeated: Callable[[str], bool] = lambda _: True
) -> list[Finding]:
    """Return the findings in a history of keys of `once`.

    Args:
        history: The operations.
        keeps: Whether the server keeps its records.
        is_repeated: Whether a run of a name that began and did not end is repeated.
    """
    of_names: dict[str, list[Operation]] = defaultdict(list)
    for one in sorted(history, key=_invoked):
        for name in one.names:
            of_names[name].append(one)
    found: list[Finding] = []
    for name, operations in of_names.items():
        key = _Key(name, operations)
        found += key.wrong_results()
        if keeps:
            found += key.recorded_twice()
            found += key.recorded_late()
            found += key.run_again(repeats=is_repeated(name))
    return found


class _Key:
    """The operations of one key, in the order of their calls."""

    def __init__(self, name: str, operations: Sequence[Operation]) -> None:
        self._name = name
        self._forgets = [one for one in operations if one.kind == "forget"]
        self._runs = [one for one in operations if one.outcome == "granted"]
        self._finds = [one for one in operations if one.outcome == "found"]
        self._records = [one for one in operations if one.kind == "release" and one.value is not None]
        self._recorded = [one for one in self._records if one.outcome == "released"]

    def wrong_results(self) -> Iterator[Finding]:
        """Yield those who found a result that no run may have recorded by then."""
        for one in self._finds:
            before = [other for other in self._records if other.invoked < ended(one)]
            if all(other.value != one.value for other in before):
                others = (one, *(other for other in self._records if other.value == one.value))
                yield self._finding("results", f"it found {one.value!r}, which was not recorded", others)

    def recorded_twice(self) -> Iterator[Finding]:
        """Yield the results that were recorded although there was one."""
        last: Operation | None = None
        for one in sorted(self._recorded, key=ended):
            if last is not None and not self._may_be_forgotten(last, one):
                may_be_first = one.invoked < ended(last)
                if not (may_be_first and self._may_be_forgotten(one, last)):
                    yield self._finding("results", "it was recorded after another result", (one, last))
            last = one

    def recorded_late(self) -> Iterator[Finding]:
        """Yield the results of runs that had ended for the server, since it had granted a later one."""
        runs = {one.lease: one for one in self._runs}
        for record in self._recorded:
            run = runs.get(record.lease)
            for other in self._runs:
                is_later = run is not None and (other.fence or 0) > (run.fence or 0)
                if is_later and ended(other) < record.invoked:
                    yield self._finding("late", "it was recorded after the grant of another run", (record, other))
                    break

    def run_again(self, *, repeats: bool) -> Iterator[Finding]:
        """Yield the runs that began although there was a result; or, unless it repeats, another run."""
        evidence = sorted([*self._recorded, *self._finds, *([] if repeats else self._runs)], key=ended)
        place, last = 0, None
        for run in self._runs:
            while place < len(evidence) and ended(evidence[place]) < run.invoked:
                last, place = evidence[place], place + 1
            if last is not None and not self._may_be_forgotten(last, run):
                yield self._finding("runs", "it was run again", (run, last))

    def _may_be_forgotten(self, before: Operation, after: Operation) -> bool:
        """Return whether a ``forget`` may lie between the effects of two operations."""
        return any(
            one.invoked < ended(after) and (ended(one) if one.outcome == "done" else inf) > before.invoked
            for one in self._forgets
        )

    def _finding(self, checker: str, text: str, operations: tuple[Operation, ...]) -> Finding:
        return Finding(checker, self._name, f"{text}: {describe(operations)}", operations)
