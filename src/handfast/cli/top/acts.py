"""Acts of an operator from the screen: the same as the commands, with an entry in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import click
from redis.exceptions import RedisError

from handfast._watch.live import Row
from handfast.arguments import HeldKind
from handfast.cli.durations import parse_duration, span
from handfast.cli.operate.limits import ANY_RATE, MAX_PAUSE_S
from handfast.cli.operate.looking import note_failure
from handfast.cli.operate.tokens import primitive
from handfast.errors import HandfastError
from handfast.records import LimiterStatus, LockStatus

if TYPE_CHECKING:
    from handfast import Handfast, Limiter

__all__ = ["Act", "act_for"]


@dataclass(frozen=True, slots=True)
class Act:
    """An act on a name, before it is done."""

    asks: str
    """The text of the prompt."""
    do: Callable[[Handfast, str], str]
    """Does the act with the text that was typed, and returns a message. Raises ValueError for a wrong text."""

    def perform(self, client: Handfast, typed: str) -> str:
        """Do the act. Return a message: the result, or the error."""
        try:
            return self.do(client, typed)
        except (ValueError, HandfastError, RedisError, OSError) as error:
            return str(error)


def act_for(key: str, row: Row) -> Act | str:
    """Return the act of a key for a name, or why there is none."""
    status = row.status
    if key == "r":
        return _release(row, status) if isinstance(status, LockStatus) else "a name of this kind has no leases"
    if key == "h":
        if not isinstance(status, LockStatus) or row.kind not in get_args(HeldKind):
            return "a name of this kind cannot be put on hold"
        return _hold(row, status)
    return _pause(row, status) if isinstance(status, LimiterStatus) else "only limiters can be paused"


def _release(row: Row, status: LockStatus) -> Act | str:
    """Take the leases up to the latest fence that was shown: those who come later are safe."""
    if not status.holders:
        return "no one holds it"
    fence = max(status.fence, *(one.fence for one in status.holders))
    first = max(status.holders, key=lambda one: one.held_for)
    others = f" and {status.holding - 1:,} others" if status.holding > 1 else ""

    def do(client: Handfast, reason: str) -> str:
        count = primitive(client, row.kind, row.name).force_release(reason=_needed(reason), up_to_fence=fence)
        if not count:
            return "nothing was taken: who was shown has released it"
        return _noted(client, f"{count:,} taken", "release", row, reason, count=count, fence=fence)

    return Act(f"Take it from {first.label}{others}; reason:", do)


def _hold(row: Row, status: LockStatus) -> Act:
    kind: Any = row.kind

    def unhold(client: Handfast, reason: str) -> str:
        client.unhold(row.name, kind=kind, reason=_needed(reason))
        return _noted(client, "it is on hold no more", "unhold", row, reason)

    def hold(client: Handfast, typed: str) -> str:
        seconds, reason = _duration(typed)
        client.hold(row.name, seconds, kind=kind, reason=reason)
        return _noted(client, f"on hold for {span(seconds)}", "hold", row, reason)

    if status.hold is not None:
        return Act("End the hold; reason:", unhold)
    return Act("Hold, for how long and why (30m DB migration):", hold)


def _pause(row: Row, status: LimiterStatus) -> Act:
    def resume(client: Handfast, reason: str) -> str:
        _needed(reason)
        _limiter(client, row.name).resume()
        return _noted(client, "it is paused no more", "resume", row, reason)

    def pause(client: Handfast, typed: str) -> str:
        seconds, reason = _duration(typed)
        _limiter(client, row.name).pause(seconds, at_most=MAX_PAUSE_S)
        return _noted(client, f"paused for {span(seconds)}", "pause", row, reason)

    if status.paused_for:
        return Act("Resume; reason:", resume)
    return Act("Pause, for how long and why (10m they answer 429):", pause)


def _limiter(client: Handfast, name: str) -> Limiter:
    plain, *keys = name.split("|")
    limiter = client.limiter(plain, ANY_RATE)
    return limiter.keyed(*keys) if keys else limiter


def _noted(client: Handfast, done: str, what: str, row: Row, reason: str, **fields: Any) -> str:
    """Write an act into the audit, and return the message."""
    failure = note_failure(client, what, row.name, kind=row.kind, reason=reason, **fields)
    return f"{done}, but {failure}" if failure else done


def _needed(reason: str) -> str:
    if not reason:
        raise ValueError("nothing was done: a reason is needed")
    return reason


def _duration(typed: str) -> tuple[float, str]:
    """Read a duration and a reason."""
    first, _, reason = typed.partition(" ")
    try:
        seconds = parse_duration(None, None, first)
    except click.BadParameter as error:
        raise ValueError(f"nothing was done: {error.message}") from None
    return seconds or 0.0, _needed(reason.strip())
