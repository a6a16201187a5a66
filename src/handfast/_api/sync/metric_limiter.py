# Generated from _api/aio/metric_limiter.py by tools/unasync.py: edit that file and run the tool.
"""A rate limiter of several metrics, such as requests and tokens: a call fits under all of them, or waits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Never, cast

from handfast._api.foreign import unknown_options
from handfast._api.sync.limits import Admitting, AnyAdmission, AnyLimiter
from handfast._api.sync.object import undoing
from handfast._engine.limits import LimitRequest
from handfast._engine.validate import reply_seconds
from handfast._naming import name_publicly
from handfast._protocol import limiting
from handfast.arguments import Duration
from handfast.errors import LimitExceeded

if TYPE_CHECKING:
    from handfast._engine.rates import Rates

__all__ = ["MetricAdmission", "MetricLimiter"]


class MetricAdmission(AnyAdmission):
    """The decision of a limiter with metrics about a call. It is true if the call was admitted.

    Example:
        admission = gpt.try_acquire(cost={"tokens": 2_400})
        if not admission:
            return f"too few {admission.metric}; try again after {admission.retry_after} s"
        answer = ask(question)
        admission.settle(tokens=answer.tokens)
    """

    __slots__ = ()

    @property
    def cost(self) -> Mapping[str, int]:
        """The cost of the call in each metric: as it was asked for, or since the last `settle`."""
        return MappingProxyType(self._costs)

    @property
    def remaining(self) -> Mapping[str, int]:
        """How much more of each metric would have been admitted right after this."""
        return MappingProxyType(limiting.remaining(self._attempt.request, self._decision))

    @property
    def metric(self) -> str | None:
        """The metric that has too little left for the call; None if it was admitted, or if others wait before it."""
        return limiting.short(self._attempt.request, self._decision)

    def settle(self, **costs: int) -> None:
        """Set the real cost of the call. Waiters are admitted at once if they fit then.

        Metrics that are not given stay. The time of the admission stays, too. Once the period is over, nothing changes.
        If this raises, it may be called again with the same costs.

        Args:
            costs: By metric, from 0 to 1,000,000,000. A cost above a limit is taken as well: then no call is admitted
                until enough has lapsed. Zeros for all metrics are an `undo`.

        Raises:
            RuntimeError: The call was not admitted, or it was given back.
            TypeError: A cost is not an int, or there is none.
            ValueError: A cost is out of range, or a metric is none of the limiter.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
        """
        from handfast._engine.rates import check_costs

        if not costs:
            raise TypeError("settle() takes the cost of the call, such as settle(tokens=500)")
        new_costs = self._costs | check_costs(costs, self._attempt.request.own)
        self._settle(new_costs if any(new_costs.values()) else 0)

    @property
    def _costs(self) -> dict[str, int]:
        request = self._attempt.request
        return cast("dict[str, int]", request.cost or dict.fromkeys((rate.metric for rate in request.own), 0))


class MetricLimiter(AnyLimiter[MetricAdmission]):
    """A named rate limiter of several metrics. Made by the client's ``limiter()`` from a mapping of rates.

    A call is admitted under all metrics in a single step, or under none of them. The limiter is as exact as a `Limiter`,
    with a queue over all metrics: first come, first served, so small calls do not overtake a call that needs many tokens.

    A call counts 1 for a metric ``requests``, and 0 for any other, unless ``cost`` says otherwise. Where the real cost
    shows later, ask with an estimate, and `MetricAdmission.settle` it.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        gpt = hf.limiter("openai:gpt-5", {"requests": "500/min", "tokens": "200000/min"})

        with gpt.admit(cost={"tokens": 2_400}, timeout=30) as admission:
            answer = ask(question)
            admission.settle(tokens=answer.tokens)
    """

    _admissions = MetricAdmission

    @undoing
    def acquire(
        self,
        attempt: limiting.LimitAttempt,
        /,
        *_args: Never,
        cost: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
        head_start: Duration | None = None,
        **_options: Never,
    ) -> MetricAdmission:
        """Be admitted, and wait in the queue until it is this call's turn. As `Limiter.acquire`.

        Args:
            cost: By metric, from 0 to the smallest limit of the metric, and above 0 for a metric at least. A metric that is
                left out costs 1 if it is ``requests``, and else 0.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout of the object.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which the call counts as earlier than it
                came. None takes the head start of the object.

        Returns:
            The admission.

        Raises:
            RateLimited: It was not admitted within the ``timeout``, or is certain not to be; `RateLimited.metric` says
                which metric has too little left.
            LimitExceeded: A cost is above a limit: of the limiter, or of rates that an operator has set.
            QueueFull: The queue has ``max_waiters`` calls already.
            TypeError: ``cost`` is no mapping of ints, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``cost`` has an unknown metric, or nothing above 0; or an argument is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        attempt.request, seconds = self._asking(cost, timeout, head_start)
        return self._admitted(attempt, seconds)

    @undoing
    def try_acquire(
        self,
        attempt: limiting.LimitAttempt,
        /,
        *_args: Never,
        cost: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
        **_options: Never,
    ) -> MetricAdmission:
        """Be admitted if the call fits now under all metrics and no one waits. Does not wait. As `Limiter.try_acquire`.

        Args:
            cost: By metric, from 0 to the smallest limit of the metric, and above 0 for a metric at least. A metric that is
                left out costs 1 if it is ``requests``, and else 0.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The admission, which is false if the call was not admitted. `MetricAdmission.metric` says which metric has too
            little left, and `MetricAdmission.retry_after` when to try again.

        Raises:
            LimitExceeded: A cost is above a limit: of the limiter, or of rates that an operator has set.
            TypeError: ``cost`` is no mapping of ints, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``cost`` has an unknown metric, or nothing above 0; or an argument is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        reply_s = None if timeout is None else reply_seconds(timeout)
        attempt.request = self._costing(cost)
        return self._admission(attempt, 0, reply_s)

    def admit(
        self,
        *,
        cost: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
        head_start: Duration | None = None,
    ) -> AbstractContextManager[MetricAdmission]:
        """Return a block for a call of this cost: it begins when the call is admitted, as with `acquire`. No I/O.

        Example:
            with gpt.admit(cost={"tokens": 2_400}, timeout=30) as admission:
                answer = ask(question)
                admission.settle(tokens=answer.tokens)

        Args:
            cost: By metric, from 0 to the smallest limit of the metric, and above 0 for a metric at least. A metric that is
                left out costs 1 if it is ``requests``, and else 0.
            timeout: As for `acquire`.
            head_start: As for `acquire`.

        Returns:
            A context manager for ``with``. Entering the block raises the errors of `acquire`.

        Raises:
            LimitExceeded: A cost is above a limit of the limiter.
            TypeError: ``cost`` is no mapping of ints, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``cost`` has an unknown metric, or nothing above 0; or an argument is out of range.
        """
        return Admitting(self._driver, *self._asking(cost, timeout, head_start), self._admitted)

    def resize(self, rates: Mapping[str, Rates] | None, *, reason: str | None = None) -> None:
        """Set the rates for all clients, whatever rates they use, from now on. As `Limiter.resize`.

        Args:
            rates: As the client's ``limiter()`` takes them, of some metrics or all: the others keep the rates of this
                client. None restores the rates that the clients use.
            reason: Why, for `status`, which shows the rates before it: 1 to 1,000 bytes of UTF-8, or None.

        Raises:
            TypeError: ``rates`` are no rates.
            ValueError: ``rates`` are out of range, or of an unknown metric.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        from handfast._engine.rates import merged

        self._resize(() if rates is None else merged(self._request.own, rates), reason)

    @undoing
    def __enter__(self, attempt: limiting.LimitAttempt, /) -> MetricAdmission:
        attempt.request, seconds = self._asking(None, None, None)
        return self._admitted(attempt, seconds)

    def _costing(self, cost: Mapping[str, int] | None) -> LimitRequest:
        from handfast._engine.rates import check_costs

        request = self._request
        costs = cast("dict[str, int]", request.cost)
        if cost is not None:
            costs = costs | check_costs(cost, request.own)
        if not any(costs.values()):
            raise ValueError(f"a call must count for something; give cost= a number above 0 for {' or '.join(costs)}")
        own = request.under(())
        if rate := own.too_much(costs):
            raise LimitExceeded(self.name, rate.limit, costs[rate.metric], rate.metric, is_set=False)
        if request.too_much(costs):  # it asks whether the rates that were set still count
            request = own
        return request.with_cost(costs)


name_publicly(globals(), "handfast")
