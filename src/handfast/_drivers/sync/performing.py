"""Perform a protocol for a thread: send its calls, wait for messages, and try again after transient failures."""

from __future__ import annotations

import contextlib
import sys
import time
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.sync.connect import SyncConnector
from handfast._drivers.sync.session import Session
from handfast._engine.effects import PROBE, Answer, Call, Park, Steps
from handfast._engine.resp import ErrorReply
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.retry import Retry, time_left
from handfast.errors import ClientClosed, HandfastError, ServerRefused, ServerUnsupported

if TYPE_CHECKING:
    from handfast._drivers.sync.context import Context
    from handfast._drivers.sync.routed import RoutedSession

__all__ = ["loop_runs", "run"]

T = TypeVar("T")


def loop_runs() -> bool:
    """Return whether an event loop runs in this thread: a waiting call would block it."""
    events: Any = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None  # noqa: SLF001 -- documented; the public one raises


def run(  # noqa: PLR0912, PLR0915 -- the hot path is written out
    context: Context,
    steps: Steps[T],
    name: str,
    until: float | None = inf,
    *,
    retry_for: float | None = None,
    attempt: BaseAttempt | None = None,
) -> T:
    """Perform a protocol on a session of the pool, until the moment ``until`` at most, and return the result.

    With None the protocol has the response timeout.

    An attempt learns of a call that was not sent, since the session for it was refused, and of a call without a reply.
    """
    retry_for = context.retry_for if retry_for is None else retry_for
    pool = context.pool
    session, within = pool.take(), context.connector.response_timeout
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, Park):
                if not context.warned_of_loop and loop_runs():
                    context.warned_of_loop = True
                    log.blocked_loop(name)
                waking = session.park(effect)
                # `close` ends the waits, so a wait without a message may be one of a closed client.
                if pool.closed:
                    raise ClientClosed(name)
                effect = steps.send(waking)
                continue
            give_up_at = inf
            if until != inf:
                now = monotonic()
                # The response timeout of a protocol is counted from its first call.
                until = now + within if until is None else until
                give_up_at = now + time_left(until, now, effect)
                within = min(context.connector.response_timeout, give_up_at - now)
            # Such a call has one try. It is not to be spent on a connection that ended while it was idle.
            if effect.once:
                session.aim(effect)
                _ensure_open(context, session, name)
            try:
                outcome: Answer | ErrorReply | Exception = session.call(effect, within)
            except (RedisConnectionError, RedisTimeoutError) as error:
                outcome = error
            except (ServerRefused, ServerUnsupported):
                # Raised only while the session is opened: the call was
                # not sent. A refusal of the call itself is returned.
                if attempt is not None:
                    attempt.refused()
                raise
            if not isinstance(outcome, Answer):
                try:
                    retry = Retry(name, monotonic(), retry_for, give_up_at, once=effect.once)
                    outcome = _call_again(context.connector, session, effect, outcome, retry)
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
    except HandfastError:
        # No reply of the session is due, so it goes back to the pool as it is.
        raise
    except BaseException as error:
        # A call may have been cut off in the middle of its reply, which the next call would read as its own.
        session.close()
        if attempt is not None and isinstance(error, RedisConnectionError | RedisTimeoutError):
            attempt.is_unanswered = True
        context.connector.blame(error)
        raise
    finally:
        pool.give(session)


def _call_again(
    connector: SyncConnector,
    session: Session | RoutedSession,
    call: Call,
    failure: ErrorReply | Exception,
    retry: Retry,
) -> Answer:
    """Send a call again after a transient failure. Raise other failures."""
    while True:
        if isinstance(failure, Exception):
            reached, silent = connector.reached, isinstance(failure, RedisTimeoutError)
            verdict = retry.after_break(failure, monotonic(), may_recover=reached, silent=silent)
        else:
            verdict = retry.after_refusal(failure, monotonic())
        if verdict.reconnect:
            session.close()
        if verdict.error is not None:
            raise verdict.error
        time.sleep(verdict.pause)
        try:
            outcome = session.call(call, min(connector.response_timeout, retry.time_left(monotonic())))
        except (RedisConnectionError, RedisTimeoutError) as error:
            failure = error
        except ServerRefused as error:  # the session that was opened anew
            error.changed_nothing = not retry.may_have_run
            raise
        else:
            if isinstance(outcome, Answer):
                return outcome._replace(again=retry.may_have_run)
            failure = outcome


def _ensure_open(context: Context, session: Session | RoutedSession, name: str) -> None:
    """Open the session, with retries: the next call is sent only once."""
    if session.is_open:
        with contextlib.suppress(RedisConnectionError, RedisTimeoutError):
            session.listen()  # a connection that ended while it was idle is found out only now, and closed
    if not session.is_open:
        try:
            outcome: Answer | ErrorReply | Exception = session.call(PROBE, context.connector.response_timeout)
        except (RedisConnectionError, RedisTimeoutError) as error:
            outcome = error
        if not isinstance(outcome, Answer):
            retry = Retry(name, monotonic(), context.retry_for)
            _call_again(context.connector, session, PROBE, outcome, retry)
