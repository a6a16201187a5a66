"""What was found, for people: who holds a name, for how long, and who waits."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from handfast._engine.validate import MAX_HEAD_START_S
from handfast._watch.held import SILENT_S, HeldName
from handfast.cli.durations import limit, span
from handfast.cli.operate.table import fitted, lines, printable
from handfast.records import Hold, Holder, LockStatus, OnceStatus, OperatorAction, ServerFinding, Waiter

__all__ = ["action", "described", "diagnosis", "role_of", "summary"]

QUEUE_SHOWN = 10
"""Waiters that `described` lists, unless all are wanted."""

HEAD = ("NAME", "KIND", "HELD BY", "HELD", "ENDS IN", "QUEUE", "WAITED", "LAST USED")

VALUED = ("election", "group", "partition")
"""Kinds whose holders and waiters show a value."""

MANY = {"group": "member", "partition": "worker"}
"""Kinds with any number of holders, and the noun for each."""

RECORDED = {"begun": "began, did not end", "unstored": "done, not stored"}
"""The words of a table for the state of a record, where the state itself is unclear."""

SEVERITIES = {"ok": "ok", "info": "info", "warning": "WARN", "failure": "FAIL"}


def summary(found: Sequence[HeldName], most: int | None, *, last_used: bool) -> Iterator[str]:
    """Yield a table with a line for each name, by default without a column for when it was last used."""
    columns = len(HEAD) if last_used else len(HEAD) - 1
    rows = [row[:columns] for row in (HEAD, *map(_row, found))]
    yield from lines(rows, most, flexible=(0, 2), right=range(3, columns))


def _recorded(record: OnceStatus) -> str:
    """Say how far a key of `once` has come."""
    ago = f"{span(record.age or 0)} ago"
    return {
        "done": f"done {ago}",
        "running": f"running since {ago}",
        "failed": f"failed {ago}, and is not run again",
        "begun": f"began {ago} and did not end; it is not run again",
        "unstored": f"done {ago}, and its result could not be stored",
    }.get(record.state, record.state)


def described(found: HeldName, most: int | None, *, whole_queue: bool) -> Iterator[str]:
    """Yield all that is known of a name."""
    status, record = found.status, found.recorded
    yield fitted(f"{found.kind} {printable(found.name)}", most)
    if record is not None:
        yield f"  {_recorded(record)}"
    if record is None or status.grants or status.waiting:
        yield f"  {_permits(found)}; {status.waiting:,} waiting"
    if status.hold is not None:
        yield fitted(f"  {_on_hold(status.hold)}", most)
    if status.grants:
        mean = span(status.waited / status.grants)
        latest = "" if status.holding or status.granted_ago is None else f"; the latest {_last_used(status)}"
        yield f"  {status.grants:,} grant{'s' * (status.grants != 1)}, {mean} mean wait{latest}"
    if status.holders:
        yield ""
        holders = sorted(status.holders, key=lambda one: -one.held_for)
        holds = [
            (
                _label(one),
                role_of(found, one),
                span(one.held_for),
                span(one.remaining),
                str(one.fence),
                *_value(found, one),
            )
            for one in holders
        ]
        head = ("HELD BY", "AS", "FOR", "ENDS IN", "FENCE", *_value(found, None))
        yield from lines([head, *holds], most, flexible=(0, 5)[: len(head) - 4], right=(2, 3), indent="  ")
        yield from _more(status.holding - len(status.holders))
    if status.waiters:
        yield ""
        queue = status.waiters if whole_queue else status.waiters[:QUEUE_SHOWN]
        waits = [
            (str(one.position + 1), _label(one), role_of(found, one), span(one.waited_for), *_value(found, one))
            for one in queue
        ]
        head = ("QUEUE", "WAITS", "AS", "FOR", *_value(found, None))
        yield from lines([head, *waits], most, flexible=(1, 4)[: len(head) - 3], right=(0, 3), indent="  ")
        yield from _more(status.waiting - len(queue))
        yield from (f"  {line}" for line in _circles(status))
    if status.last is not None:
        yield ""
        yield from (f"  {line}" for line in action(status.last))


def _row(found: HeldName) -> tuple[str, ...]:
    status = found.status
    held = span(max(one.held_for for one in status.holders)) if status.holders else ""
    ends = span(min(one.remaining for one in status.holders)) if status.holders else ""
    if status.hold is not None and not status.holders:
        ends = span(status.hold.remaining)
    queue, waited = (f"{status.waiting:,}", span(status.waiters[0].waited_for)) if status.waiters else ("", "")
    last_used = _last_used(status)
    if found.recorded is not None and found.recorded.age is not None and not status.holding:
        last_used = f"{span(found.recorded.age)} ago"
    return (printable(found.name), found.kind, _held_by(found), held, ends, queue, waited, last_used)


def _held_by(found: HeldName) -> str:
    """Say who holds a name, in one cell: the role or the number of permits, a label, and how many others there are."""
    status = found.status
    if not status.holders:
        if status.hold is not None:
            return f"on hold {printable(status.hold.by)}"
        return "" if found.recorded is None else RECORDED.get(found.recorded.state, found.recorded.state)
    first = max(status.holders, key=lambda one: one.held_for)
    others = f" +{status.holding - 1}" if status.holding > 1 else ""
    match found.kind:
        case "semaphore":
            role = f"{status.held}/{status.limit} "
        case "rwlock":
            role = f"{_plain_role(found, first)} "
        case _:
            role = "released " if first.released else ""
    return f"{role}{_label(first)}{others}"


def _last_used(status: LockStatus) -> str:
    """Say when a name was last granted."""
    if status.holding:
        return "now"
    return "" if status.granted_ago is None else f"{span(status.granted_ago)} ago"


def _permits(found: HeldName) -> str:
    status = found.status
    if found.kind == "semaphore" and status.limit:
        return f"{status.held:,} of {status.limit:,} permits held"
    if found.kind in MANY and not any(one.exclusive for one in status.holders):
        return f"{status.holding:,} {MANY[found.kind]}{'s' * (status.holding != 1)}"
    return "held" if status.holding == 1 else f"held by {status.holding:,}" if status.holding else "not held"


def role_of(found: HeldName, one: Holder | Waiter) -> str:
    """Return the role of a holder or a waiter: ``writer``, ``2 permits, slot 0``, ``lock, silent for 40s``."""
    role = _plain_role(found, one)
    if isinstance(one, Holder):
        return role if one.wanted is None else f"{role}, to end in {span(one.wanted)}"
    if one.head_start > MAX_HEAD_START_S:
        role += ", preempts"
    elif one.head_start:
        role += f", {limit(one.head_start)} ahead"
    return f"{role}, silent for {span(one.silent_for)}" if one.silent_for > SILENT_S else role


def _plain_role(found: HeldName, one: Holder | Waiter) -> str:
    match found.kind:
        case "semaphore":
            slot = "" if not isinstance(one, Holder) or one.slot is None else f", slot {one.slot}"
            return "1 permit" + slot if one.weight == 1 else f"{one.weight:,} permits"
        case "rwlock":
            return "writer" if one.exclusive else "reader"
        case "election":
            return "leader" if isinstance(one, Holder) else "candidate"
    role = MANY.get(found.kind, found.kind)
    if isinstance(one, Holder) and one.released:
        return "released"
    return "lock_all" if one.lock_all else role


def _on_hold(hold: Hold) -> str:
    until = f"on hold for {span(hold.remaining)}, until {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{until}, by {printable(hold.by)}: {printable(hold.reason)}"


def _value(found: HeldName, one: Holder | Waiter | None) -> tuple[str, ...]:
    """Return the cell of a value, or without a holder or waiter the head of the column: of kinds that have values only."""
    if found.kind not in VALUED:
        return ()
    return ("VALUE",) if one is None else (printable(one.value),)


def _label(one: Holder | Waiter) -> str:
    return printable(one.label) or "?"


def _more(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  … {count:,} more"


def _circles(status: LockStatus) -> Iterator[str]:
    """Name the waiters whose own thread, task or client holds the name: the first sign of a program that hangs."""
    threads = {one.owner for one in status.holders}
    clients = {_client(owner) for owner in threads}
    own = [one.owner in threads for one in status.waiters if _client(one.owner) in clients]
    if count := sum(own):
        they = "1 waits for its" if count == 1 else f"{count} wait for their"
        yield f"{they} own thread or task, and perhaps without end"
    if count := len(own) - count:
        they = "1 waits for another thread or task of its" if count == 1 else f"{count} wait for others of their"
        yield f"{they} own client"


def _client(owner: str) -> str:
    return owner.partition(".")[0]


def action(last: OperatorAction) -> Iterator[str]:
    """Yield the last act of an operator."""
    yield f"last: {last.what} by {printable(last.by)} at {last.at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"      {'limit ' if last.what == 'resize' else ''}{printable(last.why)}"


def diagnosis(found: Sequence[ServerFinding], most: int | None) -> Iterator[str]:
    """Yield what was found out about a server, and below it what to do."""
    for one in found:
        yield from _wrapped(f"{SEVERITIES[one.severity]:<6}{one.text}", most)
        if one.advice or one.command:
            yield from _wrapped(" " * 6 + ": ".join(filter(None, (one.advice, one.command))), most)


def _wrapped(text: str, most: int | None) -> list[str]:
    """Break a line where the terminal is too narrow for it."""
    return [text] if most is None else textwrap.wrap(text, most, subsequent_indent=" " * 6, break_on_hyphens=False)
