"""Acts of an operator from the screen: the same as the commands, with an entry in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from redis.exceptions import RedisError

from handfast._watch.acts import NO_VERSION
from handfast._watch.rows import Row
from handfast.cli.durations import parse_duration, span
from handfast.errors import HandfastError

if TYPE_CHECKING:
    from handfast import Handfast

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
    acts = row.face.acts
    if key == "r":
        return _release(row) if "release" in acts else "a name of this kind has no leases"
    if key == "h":
        return _hold(row) if "hold" in acts else "a name of this kind cannot be put on hold"
    return _pause(row) if "pause" in acts else "only limiters can be paused"


def _release(row: Row) -> Act | str:
    """Take the leases up to the latest fence that was shown: those who come later are safe."""
    holders = row.facts.holders
    if not holders:
        return "no one holds it"
    fence = max(row.facts.fence, *(one.fence for one in holders))
    others = f" and {row.facts.holding - 1:,} others" if row.facts.holding > 1 else ""

    def do(client: Handfast, reason: str) -> str:
        done = row.named.release(client, reason=reason, fence=fence)
        return done.text(f"{done.taken:,} taken") if done.taken else "nothing was taken: who was shown has released it"

    return Act(f"Take it from {holders[0].label}{others}; reason:", do)


def _hold(row: Row) -> Act:
    stop = row.facts.stop

    def unhold(client: Handfast, reason: str) -> str:
        done = row.named.unhold(client, reason=reason, version=stop.version if stop else "")
        return done.text("it is on hold no more") if done.taken else "it was not on hold any more"

    def hold(client: Handfast, typed: str) -> str:
        seconds, reason = _duration(typed)
        done = row.named.hold(client, seconds=seconds, reason=reason, version=NO_VERSION)
        return done.text(f"on hold for {span(seconds)}")

    if stop is not None:
        return Act("End the hold; reason:", unhold)
    return Act("Hold, for how long and why (30m DB migration):", hold)


def _pause(row: Row) -> Act:
    stop = row.facts.stop

    def resume(client: Handfast, reason: str) -> str:
        done = row.named.resume(client, reason=reason, version=stop.version if stop else "")
        return done.text("it is paused no more") if done.taken else "it was not paused any more"

    def pause(client: Handfast, typed: str) -> str:
        seconds, reason = _duration(typed)
        return row.named.pause(client, seconds=seconds, reason=reason).text(f"paused for {span(seconds)}")

    if stop is not None:
        return Act("Resume; reason:", resume)
    return Act("Pause, for how long and why (10m they answer 429):", pause)


def _duration(typed: str) -> tuple[float, str]:
    """Read a duration and a reason."""
    first, _, reason = typed.partition(" ")
    try:
        seconds = parse_duration(None, None, first)
    except click.BadParameter as error:
        raise ValueError(f"nothing was done: {error.message}") from None
    return seconds or 0.0, reason.strip()
