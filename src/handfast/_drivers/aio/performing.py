"""Perform a protocol for a task: send its calls, wait for messages, and try again after transient failures."""

from __future__ import annotations

import asyncio
from asyncio import Future
from math import inf
from typing import TYPE_CHECKING, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.context import Context
from handfast._drivers.aio.deadlines import give_up
from handfast._drivers.aio.pending import Outcome
from handfast._drivers.clock import monotonic
from handfast._engine.effects import Answer, Call, Park, Steps
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import refusal
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.retry import Retry, time_left
from handfast.errors import ClientClosed, ServerRefused, ServerUnsupported

if TYPE_CHECKING:
    from handfast._drivers.aio.router import Router
    from handfast._drivers.aio.session import Session

__all__ = ["run"]

T = TypeVar("T")


async def run(  # noqa: PLR0912, PLR0915 -- the hot path is written out
    context: Context,
    steps: Steps[T],
    name: str,
    until: float | None = inf,
    *,
    retry_for: float | None = None,
    attempt: BaseAttempt | None = None,
) -> T:
    """Perform a protocol, until the moment ``until`` at most, and return the result.

    With None each call has the response timeout.

    An attempt learns of a call that was not sent, since the connection for it was refused; of a call without a reply;
    and of a message for the holder of the grant. Later messages are of no use.
    """
    retry_for = context.session.retry_for if retry_for is None else retry_for
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, Park):
                effect = steps.send(await context.session.park(effect))
                continue
            session = context.session if effect.acknowledgement is None else context.session_for(effect)
            breaks, sent = session.breaks, session.send(effect, retry_for)
            give_up_at = inf
            if until is None and effect.acknowledgement is None:
                context.deadlines.add(session, sent)
            elif until != inf:
                give_up_at = _end_of_call(context.soon() if until is None else until, effect)
            try:
                outcome = await sent if give_up_at == inf else await _within(session, sent, give_up_at)
            except (ServerRefused, ServerUnsupported):
                # The connection that was opened for the call was refused, or the one after a break: then it may have
                # run.
                if attempt is not None and session.breaks == breaks:
                    attempt.refused()
                raise
            if not isinstance(outcome, Answer):
                try:
                    give_up_at = context.soon() if until is None else give_up_at
                    retry = Retry(name, monotonic(), retry_for, give_up_at, once=effect.once)
                    outcome = await _call_again(session, effect, outcome, breaks, retry)
                except ServerRefused as error:
                    if attempt is not None:
                        attempt.answered(effect, error)
                    effect = steps.throw(error)
                    continue
            if attempt is not None and outcome.again:
                attempt.answered(effect, outcome)
            effect = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
    except ClientClosed as closed:  # of the session, which has no name
        closed.name = name
        raise
    except RedisError as error:
        if attempt is not None and isinstance(error, RedisConnectionError | RedisTimeoutError):
            attempt.is_unanswered = True
        context.connector.blame(error)
        raise
    except GeneratorExit:  # the coroutine is closed, and may not await anything
        if attempt is not None:
            attempt.is_unanswered = True
        raise
    finally:
        if attempt is not None:
            attempt.told = context.session.forget(attempt.token)


async def _call_again(session: Session | Router, call: Call, refused: ErrorReply, breaks: int, retry: Retry) -> Answer:
    """Send a call again while the refusals of the server are transient, and return the reply.

    The session itself sends again after a broken connection; ``breaks`` is how many broke before the call was first
    sent.
    """
    latest = breaks
    while True:
        # Judged before the refusal: after a break the session sends again
        # by itself, so a copy may have run although this one was refused.
        retry.may_have_run = retry.may_have_run or session.breaks != breaks
        verdict = retry.after_refusal(refused, monotonic())
        if verdict.reconnect and session.reconnect(latest):
            breaks += 1  # on which the call had its reply
        if verdict.error is not None:
            raise verdict.error
        await asyncio.sleep(verdict.pause)
        # Read before the call is sent: `reconnect` then leaves a connection alone that was opened since.
        latest = session.breaks
        try:
            until = monotonic() + retry.time_left(monotonic())
            outcome = await _within(session, session.send(call, retry.retry_for), until)
        except ServerRefused as error:
            error.changed_nothing = not retry.may_have_run and session.breaks == breaks
            raise
        except (RedisConnectionError, RedisTimeoutError) as error:
            # The refusal says why there was another try. The break
            # behind it is only the last thing that happened.
            raise refusal(refused, retry.name, again=True) from error
        if isinstance(outcome, Answer):
            return outcome._replace(again=retry.may_have_run or session.breaks != breaks)
        refused = outcome


def _end_of_call(until: float, call: Call) -> float:
    """Return the moment until which a call of an operation is waited for, which itself ends at ``until``."""
    now = monotonic()
    return now + time_left(until, now, call)


async def _within(session: Session | Router, sent: Future[Outcome], until: float) -> Outcome:
    """Wait for a reply until the moment ``until`` at most."""
    if until == inf:
        return await sent
    alarm = sent.get_loop().call_later(until - monotonic(), _give_up, session, sent, until)
    try:
        return await sent
    finally:
        alarm.cancel()


def _give_up(session: Session | Router, sent: Future[Outcome], until: float) -> None:
    if sent.done():
        return
    early = until - monotonic()  # some event loops round timers to whole milliseconds
    if early > 0:
        sent.get_loop().call_later(early, _give_up, session, sent, until)
    else:
        give_up(session, sent)
