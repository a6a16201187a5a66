"""Performs a protocol on a session: what it calls is sent, what it parks for is listened for.

Scripts are idempotent, so a call that the server refuses for the moment (it is loading, or no primary any more) is sent
again, with growing pauses, but never beyond the caller's own time. A broken network is the session's affair.
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future
from math import inf
from time import monotonic
from typing import TypeVar, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.session import Outcome, Session
from handfast._drivers.timeouts import PAUSES, RETRY_FOR, UNDO_WAIT
from handfast._engine.effects import Answer, Call, Park, Steps
from handfast._engine.server_errors import is_failover, is_transient, refusal
from handfast.errors import ServerRefused

__all__ = ["perform"]

T = TypeVar("T")


async def perform(session: Session, steps: Steps[T], name: str, until: float = inf) -> T:
    """Go through the steps, until that moment at most, and give what they come to."""
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, Park):
                effect = steps.send(await session.ears.park(effect))
                continue
            try:
                answer = await _call(session, effect, name, until)
            except ServerRefused as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as end:
        return cast("T", end.value)


async def _call(session: Session, call: Call, name: str, until: float) -> Answer:
    asked_at, breaks = monotonic(), session.breaks
    coming = session.send(call)
    outcome = await coming if until == inf else await _within(coming, monotonic() + _left(until))
    if isinstance(outcome, Answer):
        return outcome if session.breaks == breaks else outcome._replace(again=True)
    if call.once:
        if is_failover(outcome):
            session.refresh(asked_at)
        raise refusal(outcome, name)
    give_up = monotonic() + min(RETRY_FOR, _left(until))
    for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
        if not is_transient(outcome) or monotonic() + pause >= give_up:
            raise refusal(outcome, name, again=session.breaks != breaks)
        if is_failover(outcome):
            session.refresh(asked_at)
        await asyncio.sleep(pause)
        asked_at, refused = monotonic(), outcome
        try:
            outcome = await _within(session.send(call), give_up)
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise refusal(refused, name, again=True) from error
        if isinstance(outcome, Answer):
            return outcome._replace(again=session.breaks != breaks)
    raise AssertionError("the pauses never end")


async def _within(coming: Future[Outcome], until: float) -> Outcome:
    """Wait for a reply, but no longer than until that moment."""
    alarm = coming.get_loop().call_later(until - monotonic(), _give_up, coming, until)
    try:
        return await coming
    finally:
        alarm.cancel()


def _give_up(coming: Future[Outcome], until: float) -> None:
    if coming.done():
        return
    early = until - monotonic()  # some loops count in whole milliseconds
    if early > 0:
        coming.get_loop().call_later(early, _give_up, coming, until)
    else:
        coming.set_exception(RedisTimeoutError("the server did not answer in time"))


def _left(until: float) -> float:
    """Seconds left to the caller. Past its time only taking back goes on, and gets a little time of its own."""
    left = until - monotonic()
    return left if left > 0 else UNDO_WAIT
