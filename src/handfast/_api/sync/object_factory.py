# Generated from _api/aio/object_factory.py by tools/unasync.py: edit that file and run the tool.
"""The part of the client for objects without leases, and for `once`: limits, results, indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Never, overload

from handfast._api.foreign import unknown_options
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.defaults import DEFAULT_KEEP_S, DEFAULT_MAX_WAITERS, DEFAULT_TTL_S, REFRESH_PAUSE_S
from handfast._engine.keys import KeySet
from handfast._engine.options import lease_options, waiting
from handfast._engine.validate import (
    check_choice,
    check_int,
    head_start_microseconds,
    milliseconds,
    parameter_names,
    wait_seconds,
)
from handfast._kinds import MAX_PERMITS
from handfast.arguments import Duration, OnLimit, OnRunning

if TYPE_CHECKING:
    from handfast._api.sync.autocomplete import Autocomplete
    from handfast._api.sync.budget import Budget
    from handfast._api.sync.debounce import Debounce
    from handfast._api.sync.latch import Latch
    from handfast._api.sync.limiter import Limiter
    from handfast._api.sync.metric_limiter import MetricLimiter
    from handfast._api.sync.once import Once
    from handfast._api.sync.scores import Scores
    from handfast._engine.money import Amount
    from handfast.records import Rate

__all__ = ["ObjectFactory"]


class ObjectFactory:
    """The objects that count, remember or store."""

    _driver: SyncDriver
    _namespace: str

    @overload
    def limiter(  # type: ignore[overload-overlap]  # a mapping is an iterable of texts, too
        self,
        name: str,
        rates: Mapping[str, str | Rate | Iterable[str | Rate]],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> MetricLimiter: ...

    @overload
    def limiter(
        self,
        name: str,
        rates: str | Rate | Iterable[str | Rate],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> Limiter: ...

    def limiter(
        self,
        name: str,
        rates: str | Rate | Iterable[str | Rate] | Mapping[str, str | Rate | Iterable[str | Rate]],
        *_args: Never,
        on_limit: OnLimit = "wait",
        timeout: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        enforce: bool = True,
        **_options: Never,
    ) -> Limiter | MetricLimiter:
        """Return the rate limiter of a name: so much in a period, first come first served. No I/O.

        Example:
            limiter = hf.limiter("openai", "10/s; 500/min")
            with limiter:
                ...

            gpt = hf.limiter("openai:gpt-5", {"requests": "500/min", "tokens": "200000/min"})
            with gpt.admit(cost={"tokens": 2_400}) as admission:
                ...

            @hf.limiter("login", "5/min", by="user", on_limit="raise")
            def login(user, password): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the limiter if they use the same namespace and name.
            rates: 1 to 4 rates with different periods, under all of which a call has to fit: a text such as ``"10/s;
                500/min"`` or ``"1/100ms"`` with the units ms, s, min, h and d or ``"10 per 2 hours"``, a `Rate`, or
                several of these. A limit is from 1 to 1,000,000,000, a period from 1 ms to 31 days. A short period
                paces calls; give large limits short periods, since the server keeps up to 100 bytes for each admission
                of a period. Or a mapping with such rates for each of 1 to 4 metrics, 8 rates at most, under all of which
                a call has to fit: names of 1 to 20 characters a-z, 0-9 and _, such as ``requests`` and ``tokens``.
            on_limit: How ``with``, a decorator and ``acquire()`` treat a call that does not fit now: "wait" for its
                turn, or "raise" RateLimited.
            timeout: Seconds that they wait at most, unless they are given another limit: a number or a timedelta; 0 or
                less does not wait. None, or more than 366 days, waits indefinitely.
            max_waiters: Queue length at which acquire raises QueueFull, from 1 to 1,000,000,000.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a waiting call counts as earlier
                than it came, unless ``acquire()`` is given another head start. As in `lock`.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several. Each key has
                separate limits; see `Limiter.keyed`.
            enforce: With False, all calls are admitted at once and counted, and `Admission.exceeded` marks those which
                would not have been: to try rates out. A window stores at most twice its limit. Use the same in all
                clients: calls admitted this way also count for enforcing clients.

        Returns:
            The limiter: a `Limiter`, or with metrics a `MetricLimiter`. Nothing is counted yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or ``timeout`` is given with ``on_limit="raise"``.
        """
        if _args or _options:
            raise unknown_options(self.limiter, _args, _options)
        from handfast._engine.limits import LimitRequest
        from handfast._engine.rates import read_metrics, read_rates

        if check_choice(on_limit, "on_limit", OnLimit) == "raise" and timeout is not None:
            raise ValueError("timeout has no use with on_limit='raise', which does not wait; leave one of them out")
        request = LimitRequest(
            KeySet(self._namespace, "limiter", name),
            read_metrics(rates) if isinstance(rates, Mapping) else read_rates(rates),
            max_waiters=check_int(max_waiters, "max_waiters", MAX_PERMITS),
            timeout=0.0 if on_limit == "raise" else wait_seconds(timeout),
            enforce=enforce,
            head_start_us=head_start_microseconds(head_start),
        )
        if request.has_metrics:
            from handfast._api.sync.metric_limiter import MetricLimiter

            return MetricLimiter(self._driver, request, parameter_names(by))
        from handfast._api.sync.limiter import Limiter

        return Limiter(self._driver, request, parameter_names(by))

    def debounce(
        self, name: str, quiet: Duration, *, at_most: Duration | None = None, by: str | Iterable[str] | None = None
    ) -> Debounce:
        """Return the debounced name: of calls that follow each other, only the newest runs, after a quiet time. No I/O.

        Example:
            @hf.debounce("reindex", 5.0, at_most=60.0, by="customer")
            def reindex(customer): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the bursts if they use the same namespace and name.
            quiet: Seconds without a further call after which the newest call runs: a number or a timedelta, from
                0.001 s to 366 days.
            at_most: Seconds after the first call of a burst, at which the newest call runs in any case: from ``quiet``
                to 366 days. With None, calls that never stop are never run.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several. Each key has
                separate bursts; see `Debounce.keyed`.

        Returns:
            The debounced name.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.debounce import Debounce
        from handfast._engine.objects import ObjectRequest

        quiet_ms = milliseconds(quiet, "quiet")
        at_most_ms = inf if at_most is None else milliseconds(at_most, "at_most")
        if at_most_ms < quiet_ms:
            raise ValueError(f"at_most must be at least quiet, and {at_most!r} is less than {quiet!r}")
        place = KeySet(self._namespace, "debounce", name)
        request = ObjectRequest(place, quiet_ms=quiet_ms, at_most_ms=at_most_ms)
        return Debounce(self._driver, request, parameter_names(by))

    def budget(self, name: str, budget: str | tuple[Amount, str], *, zone: str = "UTC", begins: int = 1) -> Budget:
        """Return the budget of a name: an amount that may be spent in a period of the calendar. No I/O.

        Example:
            budget = hf.budget("llm", "100.00/month", zone="Europe/Berlin", begins=15)

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the budget if they use the same namespace and name.
            budget: Limit and period: "100.00/month", or as a tuple, such as (Decimal(100), "month"). The limit is from
                0 to 4,503,599,627.370496 with at most six decimals, of money or anything else that is counted; the
                period is day, week, month, quarter, year, or total for a period without end.
            zone: The time zone in whose midnight a period begins: a name of the IANA database.
            begins: Where a period begins: of a month or a quarter the day from 1 to 31, in a shorter month the last
                day; of a week the weekday from 1, Monday, to 7; of a year the month from 1 to 12.

        Returns:
            The budget. Nothing is sent yet.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, or this machine does not know the time zone.
        """
        from handfast._api.sync.budget import Budget
        from handfast._engine.budgets import BudgetRequest, Terms
        from handfast._engine.calendar import Calendar, read_budget
        from handfast._engine.money import millionths

        limit, period = read_budget(budget)
        terms = Terms(millionths(limit, "the limit of a budget"), Calendar.checked(period, zone, begins))
        return Budget(self._driver, BudgetRequest([KeySet(self._namespace, "budget", name)], terms))

    def latch(self, name: str, count: int, *, ttl: Duration = 86400.0) -> Latch:
        """Return the latch of a name, which opens once `count` parts are done. No I/O.

        Example:
            latch = hf.latch("import:2026-11-22", 8)

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the latch if they use the same namespace and name.
            count: How many parts there are, from 1 to 100,000. Each client waits for its own.
            ttl: Seconds for which parts are remembered after the last part, from 0.001 s to 366 days: a number or a
                timedelta.

        Returns:
            The latch.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.latch import Latch
        from handfast._engine.objects import ObjectRequest

        count, ttl_ms = check_int(count, "count", 100_000), milliseconds(ttl, "ttl")
        place = KeySet(self._namespace, "latch", name)
        return Latch(self._driver, ObjectRequest(place, count=count, ttl_ms=ttl_ms))

    def once(
        self,
        name: str,
        *_args: Never,
        keep: Duration = DEFAULT_KEEP_S,
        ttl: Duration = DEFAULT_TTL_S,
        refresh: Duration | None = None,
        keep_failure: Duration | None = None,
        rerun: bool = True,
        on_running: OnRunning = "wait",
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        max_waiters: int = DEFAULT_MAX_WAITERS,
        head_start: Duration = 0.0,
        by: str | Iterable[str] | None = None,
        dumps: Callable[[Any], bytes] | None = None,
        loads: Callable[[bytes], Any] | None = None,
        **_options: Never,
    ) -> Once:
        """Return the `Once` of a name: a single caller does the work, the others get the result. No I/O.

        Example:
            body = hf.once("invoice", keep=86400).keyed(order.id).run(lambda: render(order))

            @hf.once("report", by=("user", "day"), keep=3600, refresh=3000)
            def report(user, day): ...

        Args:
            name: 1 byte to 16 KiB of UTF-8. Clients share the results if they use the same namespace and name.
            keep: Seconds for which a result counts, from the end of the run on: a number or a timedelta, from 0.001 s
                to 366 days. Idempotency is as durable as the server: a server that loses its data, or evicts keys,
                forgets the results.
            ttl: Seconds after which the lease of a run ends if the process dies or can't reach the server, from 0.001 s
                to 366 days. It is renewed three times per ttl.
            refresh: Seconds after which a result is made anew, less than ``keep``: the first caller after that time
                runs it, and all others get the old result meanwhile. If this run fails, for whatever reason, all get
                the old result until ``keep`` is over, the caller of the failed `Once.run` included; a WARNING says so,
                and the next try is not before ``keep_failure``, or 5 seconds. All get it where the server refuses
                writes, such as for lack of memory. None keeps it until ``keep`` is over. Not with ``rerun=False``.
            keep_failure: Seconds for which an exception counts: callers get NotCompleted with its text, or the old
                result that was to be made anew. With None the next caller runs it. Cancellations and interrupts are
                never recorded.
            rerun: Whether a run is repeated if it began and did not end. With False callers get NotCompleted until
                ``keep`` is over, which then counts from the beginning of the run, or until `Once.forget`; the same
                holds after an exception. A beginning replaces the result that ``refresh`` makes anew.
            on_running: How a call reacts while another call runs it: "wait" for the result, or "raise" AlreadyRunning.
            timeout: Seconds that a call waits at most unless it says otherwise: a number or a timedelta; 0 or less does
                not wait. None, or more than 366 days, waits indefinitely.
            max_hold: Seconds (a number or a timedelta), from 0.001 s to 366 days, after which a run counts as lost
                though the process lives: the lease is not renewed any longer. None renews it without a limit.
            max_waiters: Queue length at which a call raises QueueFull, from 1 to 1,000,000,000.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which a waiting call counts as earlier
                than it came. As in `lock`.
            by: Parameters of a decorated function, whose arguments make the key: one name, or several; see
                `Once.keyed`. A function with parameters needs it; ``()`` gives all calls the same result.
            dumps: Function that turns a result into bytes, 1 MiB at most. None stores JSON. ``bytes`` stores bytes as
                they are.
            loads: Function that turns these bytes into the result. It belongs to ``dumps``.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range, ``refresh`` is not less than ``keep``, ``timeout`` is given with
                ``on_running="raise"``, ``refresh`` with ``rerun=False``, or one of ``dumps`` and ``loads`` without the
                other.
        """
        if _args or _options:
            raise unknown_options(self.once, _args, _options)
        from handfast._api.results import Codec
        from handfast._api.sync.once import Once, OnceOptions
        from handfast._engine.once import NEVER, OnceRequest

        waits = check_choice(on_running, "on_running", OnRunning) == "wait"
        if not waits and timeout is not None:
            raise ValueError("timeout has no use with on_running='raise', which does not wait; leave one of them out")
        keep_ms = milliseconds(keep, "keep")
        refresh_ms = NEVER if refresh is None else milliseconds(refresh, "refresh")
        # The record ends with `keep`: there would be no old result left while a caller makes the new one.
        if refresh_ms >= keep_ms:
            raise ValueError(f"refresh must be less than keep, {keep_ms / 1000:g} s, not {refresh!r}")
        if refresh is not None and not rerun:
            raise ValueError("refresh runs again what was done, which rerun=False is to prevent; leave one of them out")
        failure_ms = milliseconds(keep_failure, "keep_failure") if keep_failure is not None else None
        request = OnceRequest(
            KeySet(self._namespace, "once", name),
            lease_options(ttl, waiting(timeout if waits else 0.0, max_waiters, head_start), max_hold=max_hold),
            keep_ms=keep_ms,
            refresh_ms=refresh_ms,
            pause_ms=round(REFRESH_PAUSE_S * 1000) if failure_ms is None else failure_ms,
        )
        # Behind the request, whose `pause_ms` is for a failed refresh: with rerun=False there is none, and a
        # failure counts for as long as a result.
        if failure_ms is None and not rerun:
            failure_ms = keep_ms
        key = None if by is None else parameter_names(by)
        options = OnceOptions(Codec(dumps, loads), failure_ms, rerun, waits, key)
        return Once(self._driver, request, options)

    def autocomplete(self, name: str, *, fold_case: bool = False, ranked: bool = False) -> Autocomplete:
        """Return the index of a name, which completes prefixes to entries. No I/O.

        All clients of an index must use the same ``fold_case`` and ``ranked``: they are part of its keys.

        Args:
            name: 1 byte to 16 KiB of UTF-8.
            fold_case: Ignore case when completing. Entries are returned as they were added.
            ranked: Give entries scores, and return those with the highest scores first.

        Returns:
            The index.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.autocomplete import Autocomplete
        from handfast._engine.autocomplete import AutocompleteRequest

        place = KeySet(self._namespace, "autocomplete", name)
        return Autocomplete(self._driver, AutocompleteRequest(place, fold_case=fold_case, ranked=ranked))

    def scores(self, name: str) -> Scores:
        """Return the scores of a name: a sorted set whose scores only grow. No I/O.

        Args:
            name: 1 byte to 16 KiB of UTF-8.

        Returns:
            The scores.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
        """
        from handfast._api.sync.scores import Scores
        from handfast._engine.objects import ObjectRequest

        return Scores(self._driver, ObjectRequest(KeySet(self._namespace, "scores", name)))
