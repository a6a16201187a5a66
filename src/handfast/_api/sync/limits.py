# Generated from _api/aio/limits.py by tools/unasync.py: edit that file and run the tool.
"""The base of limiters with and without metrics: admissions, pauses, and how a call asks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar

from handfast._api import foreign
from handfast._api.decorators import CallKey, plain_function, replacing
from handfast._api.sync.object import Object, undoing
from handfast._drivers import log
from handfast._drivers.clock import monotonic, wall_clock
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.limits import Cost, Limit, LimitRequest
from handfast._engine.validate import (
    check_reason,
    head_start_microseconds,
    milliseconds,
    pause_seconds,
    reply_seconds,
    wait_seconds,
)
from handfast._objects import BlockOnly, Named
from handfast._protocol import limiting
from handfast.arguments import Duration
from handfast.errors import RateLimited

if TYPE_CHECKING:
    from handfast.records import LimiterStatus

__all__ = ["Admitting", "AnyAdmission", "AnyLimiter"]

ANNOUNCE_S = 1.0
"""For how long a call waits until its rates are announced, once in ten minutes at most."""

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="AnyAdmission")


class AnyAdmission(Named):
    """The decision of a limiter about a call. It is true if the call was admitted."""

    __slots__ = ("_attempt", "_decision", "_driver", "_waited")

    def __init__(self, driver: SyncDriver, attempt: limiting.LimitAttempt, decision: limiting.Decision) -> None:
        self._driver = driver
        self._attempt = attempt
        self._decision = decision
        self._waited = monotonic() - attempt.asked_at

    def __repr__(self) -> str:
        what = "admitted" if self.admitted else f"refused, retry after {self.retry_after:.3g} s"
        what += ", and it exceeds the rates" if self.exceeded else ""
        return f"<{type(self).__name__} of {self._attempt.request.name!r}: {what}>"

    def __bool__(self) -> bool:
        return self._decision.admitted

    @property
    def admitted(self) -> bool:
        """Whether the call was admitted."""
        return self._decision.admitted

    @property
    def retry_after(self) -> float:
        """Seconds after which the call may be admitted, if no other call comes before; 0 if it was admitted.

        For a call that exceeds the rates, how long it would have had to wait at least.
        """
        return self._decision.retry_after

    @property
    def exceeded(self) -> bool:
        """Whether the call was admitted only because the limiter was made with ``enforce=False``."""
        return self._decision.exceeded

    @property
    def waited(self) -> float:
        """Seconds from the call until this was decided."""
        return self._waited

    def undo(self) -> None:
        """Give the admission back for good: the call was not made. Waiters are admitted at once if they fit then.

        If this raises, it may be called again.

        Raises:
            RuntimeError: The call was not admitted, or it was given back.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
        """
        self._settle(0)

    def _settle(self, new_cost: Cost) -> None:
        """Let the call count for this. Raises RuntimeError if there is nothing to settle."""
        if not self.admitted:
            raise RuntimeError(f"{self!r} has nothing to settle: the call was not admitted")
        if not self._attempt.request.cost:
            raise RuntimeError(f"{self!r} was given back; acquire another one")
        self._driver.run(limiting.settle(self._attempt, new_cost), self._attempt.request.name)
        self._attempt.request = self._attempt.request.with_cost(new_cost)


class AnyLimiter(BlockOnly, Object, Generic[A]):
    """A named rate limiter."""

    _request: LimitRequest
    _attempts = limiting.LimitAttempt
    _admissions: ClassVar[type[AnyAdmission]]

    _elsewhere = foreign.LIMITS

    def pause(self, seconds: Duration | str | None, *, at_most: Duration = 3600.0, reason: str | None = None) -> float:
        """Admit no calls for a while, in any process: for an answer such as 429 with ``Retry-After``.

        Waiters keep their places, and a call is refused at once if it would have to wait for longer than its timeout. A
        longer pause already in force stays as it is. After a pause longer than a period, as much as the limit is
        admitted at once: take a second, shorter rate if this is too much. A pause is forgotten where the server loses
        its data.

        Example:
            with limiter:
                answer = call()
            if answer.status_code == 429:
                limiter.pause(answer.headers.get("Retry-After"))

        Args:
            seconds: How long, from when the server gets it: a number or a timedelta. 0 or less changes nothing;
                `resume` ends a pause. Or a header ``Retry-After`` as it is: a text with seconds or an HTTP date, by the
                clock of this machine. A header which is missing (None), empty or unreadable pauses for a second.
            at_most: The upper bound of ``seconds``, from 0.001 s to 366 days: an hour, since the other side may ask for
                a day by mistake. A longer pause is cut, and logged as a WARNING.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8. Without a reason the seconds are noted.

        Returns:
            Seconds for which no call is admitted from now on: more than was asked for where a longer pause goes on; 0
            where ``seconds`` changes nothing.

        Raises:
            TypeError: ``seconds`` is neither a number, a timedelta, a str nor None, ``at_most`` neither a number nor a
                timedelta, or ``reason`` no str.
            ValueError: An argument is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        from handfast._engine.retry_after import retry_after

        if seconds is None or isinstance(seconds, str):
            asked = retry_after(seconds, wall_clock())
        else:
            asked = pause_seconds(seconds)
        most_ms = milliseconds(at_most, "at_most")
        if asked * 1000 > most_ms:
            log.pause_cut(self.name, asked, most_ms / 1000)
        if reason is not None:
            check_reason(reason)
        if asked <= 0:
            return 0.0
        pause_ms = max(1, round(min(asked * 1000, most_ms)))
        return self._driver.run(limiting.pause(self._request, pause_ms, self._driver.label, reason), self.name)

    def resume(self, *, reason: str | None = None) -> bool:
        """End a `pause` now, and admit the waiters who fit.

        It ends the pause in force at the time of the call: a pause set by another client meanwhile goes on.

        Args:
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8, or None.

        Returns:
            True if the pause was ended; False if there was none, or another pause goes on.

        Raises:
            TypeError: ``reason`` is no str.
            ValueError: ``reason`` is out of range.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
        """
        if reason is not None:
            check_reason(reason)
        done = self._driver.run(limiting.resume(self._request, self._driver.label, reason), self.name)
        return done == "done"

    def reset(self) -> None:
        """Forget all admissions until now, and admit the waiters who fit: a locked-out user may come again.

        Takes two round trips, or more where thousands are forgotten. A `pause` and rates set by ``resize()`` stay.
        Settling a forgotten call later changes nothing.

        Example:
            logins.keyed("ann").reset()

        Raises:
            ServerRefused: The server is read-only, or lacks replicas or permissions.
        """
        self._driver.run(limiting.reset(self._request), self.name)

    def status(self, *, timeout: Duration | None = None) -> LimiterStatus:
        """Return the use of each rate in force, the number of waiters, the rest of a pause, and who set these.

        Takes one round trip, or two where other rates were set, and changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The status at one instant of the server.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return self._driver.look(limiting.status(self._request), self.name, reply_seconds(timeout))

    @undoing
    def __enter__(self, attempt: limiting.LimitAttempt, /) -> A:
        return self._admitted(attempt, self._request.timeout)

    def __exit__(self, *exc: object) -> None:
        """Do nothing: an admission has no end."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function: each call of it is admitted first, and raises RateLimited if it is not.

        With the ``by`` of the client's ``limiter()``, calls count for the key made of their arguments.

        Example:
            @hf.limiter("login", "5/min", by="user", on_limit="raise")
            def login(user, password): ...

        Args:
            function: The function to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: A name in ``by`` is no parameter of the function; or the name has braces, which stand for
                arguments in the names of locks: use ``by``.
        """
        function = plain_function(function)
        key = CallKey(self._by, function, self.name)

        @replacing(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.keyed(*key.parts(args, kwargs)) if self._by else self:
                return function(*args, **kwargs)

        return limited

    @abstractmethod
    def _costing(self, cost: Any) -> LimitRequest:
        """Return the request for a cost."""

    def _asking(
        self, cost: Any, timeout: Duration | None, head_start: Duration | None
    ) -> tuple[LimitRequest, float | None]:
        """Return the request for a cost, and for how long it waits."""
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        request = self._costing(cost)
        if head_start is not None:
            request = request.with_head_start(head_start_microseconds(head_start))
        return request, seconds

    def _resize(self, set_rates: Sequence[Limit], reason: str | None) -> None:
        """Set these rates for all, or none."""
        from handfast._engine.rates import rates_text

        words = [rates_text(set_rates), "" if reason is None else check_reason(reason)]
        why = ": ".join(filter(None, words))
        self._driver.run(limiting.resize(self._request.under(set_rates), self._driver.label, why), self.name)

    def _admitted(self, attempt: limiting.LimitAttempt, timeout: float | None, reply_s: float | None = None) -> A:
        """Wait to be admitted. Raises RateLimited."""
        admission = self._admission(attempt, timeout, reply_s)
        if not admission:
            short = limiting.short(attempt.request, admission._decision)  # noqa: SLF001 -- its own class
            raise RateLimited(self.name, timeout or 0, admission.retry_after, short)
        return admission

    def _admission(self, attempt: limiting.LimitAttempt, timeout: float | None, reply_s: float | None = None) -> A:
        """Ask, and wait where there is a timeout. The next call begins with the rates which counted for this call.

        Without a timeout, the server has ``reply_s`` seconds to answer.
        """
        until = inf if timeout is None else attempt.asked_at + timeout
        steps = limiting.acquire(attempt, until)
        decision = self._driver.wait(attempt, steps, until, once=timeout == 0, timeout=reply_s)
        if not decision.admitted:
            self._driver.undo(attempt)
        if decision.remaining <= attempt.request.nearly_full and self._driver.announcements.is_due(attempt):
            with suppress(*OWN_ERRORS):  # operators alone need it
                self._driver.look(limiting.announce(attempt.request), self.name, ANNOUNCE_S)
        if (dispatcher := self._driver.events.dispatcher) is not None:  # nothing cancels the call from here on
            if decision.admitted:
                dispatcher.admitted(attempt, exceeded=decision.exceeded)
            else:
                dispatcher.refused(attempt, "timeout" if timeout else "busy")
        if attempt.request.rates != self._request.rates:
            self._request = attempt.request.with_cost(self._request.cost)
        return self._admissions(self._driver, attempt, decision)  # type: ignore[return-value]  # of the class


class Admitting(Generic[A]):
    """A block that begins when a call of some cost is admitted. Made by ``admit()``."""

    _attempts = limiting.LimitAttempt

    def __init__(
        self,
        driver: SyncDriver,
        request: LimitRequest,
        timeout: float | None,
        admitted: Callable[[limiting.LimitAttempt, float | None], A],
    ) -> None:
        self._driver, self._request, self._timeout, self._admitted = driver, request, timeout, admitted

    @undoing
    def __enter__(self, attempt: limiting.LimitAttempt, /) -> A:
        return self._admitted(attempt, self._timeout)

    def __exit__(self, *exc: object) -> None:
        """Do nothing: an admission has no end."""
