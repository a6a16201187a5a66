# Generated from _api/aio/limiter.py by tools/unasync.py: edit that file and run the tool.
"""A rate limiter: so much in a period, first come first served."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Never, cast

from handfast._api.foreign import unknown_options
from handfast._api.sync.limits import Admitting, AnyAdmission, AnyLimiter
from handfast._api.sync.object import undoing
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.limits import LimitRequest
from handfast._engine.validate import check_int, head_start_microseconds, reply_seconds, wait_seconds
from handfast._kinds import MAX_PERMITS
from handfast._naming import name_publicly
from handfast._protocol import limiting
from handfast.arguments import Duration

if TYPE_CHECKING:
    from handfast.records import Rate

__all__ = ["Admission", "Limiter"]


class Admission(AnyAdmission):
    """The decision of a limiter about a call. It is true if the call was admitted.

    Example:
        admission = limiter.try_acquire(cost=500)
        if not admission:
            return f"try again after {admission.retry_after} s"
        answer = ask(question)
        admission.settle(cost=answer.tokens)
    """

    __slots__ = ()

    @property
    def cost(self) -> int:
        """The cost of the call: as it was requested, or as the last `settle` has set it."""
        return cast("int", self._attempt.request.cost)

    @property
    def remaining(self) -> int:
        """How much more the tightest rate would have admitted right after this."""
        return self._decision.remaining

    def settle(self, *, cost: int) -> None:
        """Set the real cost of the call. Waiters are admitted at once if they fit then.

        The time of the admission stays. Once the period is over, nothing changes. If this raises, it may be called
        again with the same cost.

        Args:
            cost: From 0 to 1,000,000,000. 0 gives the admission back for good. A cost above a limit is taken as well:
                then no call is admitted until enough has lapsed.

        Raises:
            RuntimeError: The call was not admitted, or it was given back.
            TypeError: ``cost`` is not an int.
            ValueError: ``cost`` is out of range.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
        """
        self._settle(check_int(cost, "cost", MAX_PERMITS, least=0))


class Limiter(AnyLimiter[Admission]):
    """A named rate limiter. Made by the client's ``limiter()``.

    It is exact: at every moment of the server, under every rate, the calls admitted within the last period cost at most
    the limit. Under several rates a call is admitted by all of them or by none. Waiters are admitted first come, first
    served: no call overtakes them, not even with a smaller cost. A dead waiter is skipped.

    The promise is about the moments of admission. A third party counts each call when it arrives there: at the edge of
    a period it may see a few more. The object holds nothing itself, so threads or tasks may share it.

    Where clients use different rates for a name, each call counts by the rates of the calling client. After `resize`,
    the new rates count for all.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        limiter = hf.limiter("openai", "10/s; 500/min")

        with limiter:
            call()
    """

    _admissions = Admission

    def __init__(self, driver: SyncDriver, request: LimitRequest, by: tuple[str, ...] = ()) -> None:
        super().__init__(driver, request, by)
        self._most = request.most

    @undoing
    def acquire(
        self,
        attempt: limiting.LimitAttempt,
        /,
        *_args: Never,
        cost: int = 1,
        timeout: Duration | None = None,
        head_start: Duration | None = None,
        **_options: Never,
    ) -> Admission:
        """Be admitted, and wait in the queue until it is this call's turn.

        It raises before it waits if it is certain to take longer than the timeout. If it raises, is cancelled or is
        interrupted, the call counts under no rate and is in no queue. If the server can't be reached then, it is taken
        back in the background when it answers again.

        Args:
            cost: The cost of the call, from 1 to the smallest limit.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout of the object.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which the call counts as earlier than it
                came. It passes those who came within that time, but not those who waited longer. None takes the head
                start of the object.

        Returns:
            The admission. There is nothing to release; `Admission.settle` is for calls whose cost is known only later.

        Raises:
            RateLimited: It was not admitted within the ``timeout``, or is certain not to be.
            LimitExceeded: An operator has set a rate with a limit below the cost.
            QueueFull: The queue has ``max_waiters`` calls already.
            TypeError: ``cost`` is not an int, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``cost``, ``timeout`` or ``head_start`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        if cost != 1 or type(cost) is not int:
            attempt.request = self._costing(cost)
        if head_start is not None:
            attempt.request = attempt.request.with_head_start(head_start_microseconds(head_start))
        return self._admitted(attempt, seconds)

    @undoing
    def try_acquire(
        self,
        attempt: limiting.LimitAttempt,
        /,
        *_args: Never,
        cost: int = 1,
        timeout: Duration | None = None,
        **_options: Never,
    ) -> Admission:
        """Be admitted if the call fits now and no other call waits. Does not wait.

        Takes one round trip; a few where hundreds of admissions have lapsed, or of waiters are gone, and two where
        other rates were set since the last call of the object.

        Args:
            cost: The cost of the call, from 1 to the smallest limit.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The admission, which is false if the call was not admitted. `Admission.retry_after` says when to try again.

        Raises:
            LimitExceeded: An operator has set a rate with a limit below the cost.
            TypeError: ``cost`` is not an int, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``cost`` or ``timeout`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        reply_s = None if timeout is None else reply_seconds(timeout)  # most calls spare the frame
        if cost != 1 or type(cost) is not int:
            attempt.request = self._costing(cost)
        return self._admission(attempt, 0, reply_s)

    def admit(
        self, *, cost: int = 1, timeout: Duration | None = None, head_start: Duration | None = None
    ) -> AbstractContextManager[Admission]:
        """Return a block for a call of this cost: it begins when the call is admitted, as with `acquire`. No I/O.

        Example:
            with limiter.admit(cost=500, timeout=30) as admission:
                answer = ask(question)
                admission.settle(cost=answer.tokens)

        Args:
            cost: The cost of the call, from 1 to the smallest limit.
            timeout: As for `acquire`.
            head_start: As for `acquire`.

        Returns:
            A context manager for ``with``. Entering the block raises the errors of `acquire`.

        Raises:
            TypeError: ``cost`` is not an int, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``cost``, ``timeout`` or ``head_start`` is out of range.
        """
        return Admitting(self._driver, *self._asking(cost, timeout, head_start), self._admitted)

    def resize(self, rates: str | Rate | Iterable[str | Rate] | None, *, reason: str | None = None) -> None:
        """Set the rates for all clients, whatever rates they use, from now on.

        Waiters keep their places. A rate with the period of an earlier rate counts the admissions within the period;
        any other period begins empty. Waiters and callers whose cost is above a new limit get LimitExceeded. The server
        forgets the rates 30 days after the last call of the name, and where it loses its data. Of two calls at once,
        the later counts. Each key of `keyed` is a separate limiter, whose rates are set separately.

        Args:
            rates: As the client's ``limiter()`` takes them. None restores the rates that the clients use.
            reason: Why, for `status`, which shows the rates before it: 1 to 1,000 bytes of UTF-8, or None.

        Raises:
            TypeError: ``rates`` are no rates.
            ValueError: ``rates`` are out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        from handfast._engine.rates import read_rates

        self._resize(() if rates is None else read_rates(rates), reason)

    def _costing(self, cost: int) -> LimitRequest:
        request = self._request
        if check_int(cost, "cost", self._most) > request.most:  # it asks whether the rates that were set still count
            request = request.under(())
        return request.with_cost(cost)


name_publicly(globals(), "handfast")
