"""A rate limiter: so much in a period, first come first served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Never, ParamSpec, TypeVar

from handfast._api import foreign
from handfast._api.aio.object import AsyncObject, undoing
from handfast._api.decorators import CallKey, coroutine_function, replacing
from handfast._api.foreign import unknown_options
from handfast._drivers import log
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.clock import monotonic, wall_clock
from handfast._drivers.failures import OWN_ERRORS
from handfast._engine.limits import LimitRequest
from handfast._engine.validate import (
    check_int,
    check_reason,
    head_start_microseconds,
    milliseconds,
    pause_seconds,
    reply_seconds,
    wait_seconds,
)
from handfast._kinds import MAX_PERMITS
from handfast._naming import name_publicly
from handfast._objects import AsyncBlockOnly, Named
from handfast._protocol import limiting
from handfast.arguments import Duration
from handfast.errors import RateLimited

if TYPE_CHECKING:
    from handfast.records import LimiterStatus, Rate

__all__ = ["AsyncAdmission", "AsyncLimiter"]

ANNOUNCE_S = 1.0
"""For how long a call waits until its rates are announced, once in ten minutes at most."""

P = ParamSpec("P")
R = TypeVar("R")


class AsyncAdmission(Named):
    """What a limiter has decided about one call. It is true if the call was admitted.

    Example:
        admission = await limiter.try_acquire(cost=500)
        if not admission:
            return f"try again after {admission.retry_after} s"
        answer = await ask(question)
        await admission.settle(cost=answer.tokens)
    """

    __slots__ = ("_attempt", "_decision", "_driver", "_waited")

    def __init__(self, driver: AsyncDriver, attempt: limiting.LimitAttempt, decision: limiting.Decision) -> None:
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
    def cost(self) -> int:
        """What the call counts for: the cost that it was asked for with, or that of the last `settle`."""
        return self._attempt.request.cost

    @property
    def remaining(self) -> int:
        """What the tightest rate would have admitted right after this."""
        return self._decision.remaining

    @property
    def retry_after(self) -> float:
        """Seconds after which the call may be admitted, if no one else comes before; 0 if it was admitted.

        Of one that exceeds the rates, how long it would have had to wait at least.
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

    async def settle(self, *, cost: int) -> None:
        """Let the call count for what it really cost. Waiters are admitted at once if they fit then.

        The time of the admission stays. Once its period is over, nothing changes. If this raises, it may be called
        again with the same cost.

        Args:
            cost: From 0 to 1,000,000,000. 0 gives the admission back for good. A cost above a limit is taken as well:
                then no one is admitted until enough has lapsed.

        Raises:
            RuntimeError: The call was not admitted, or it was given back.
            TypeError: ``cost`` is not an int.
            ValueError: ``cost`` is out of range.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        new_cost = check_int(cost, "cost", MAX_PERMITS, least=0)
        if not self.admitted:
            raise RuntimeError(f"{self!r} has nothing to settle: the call was not admitted")
        if self.cost == 0:
            raise RuntimeError(f"{self!r} was given back; acquire another one")
        await self._driver.run(limiting.settle(self._attempt, new_cost), self._attempt.request.name)
        self._attempt.request = self._attempt.request.with_cost(new_cost)


class AsyncLimiter(AsyncBlockOnly, AsyncObject):
    """A named rate limiter. Made by the client's ``limiter()``.

    It is exact: at every moment of the server, under every rate, what was admitted within the last period costs at most
    the limit. Under several rates a call is admitted by all of them or by none. Waiters are admitted first come, first
    served: no one overtakes them, also not with a smaller cost. A waiter that died is skipped.

    The promise is about the moments of admission. A third party counts each call when it arrives there: at the edge of
    its period it may see a few more. The object holds nothing itself, so threads or tasks may share it.

    Where clients use different rates for one name, each call counts by those of its own client. After `resize`, those
    rates count for all.

    Example:
        limiter = hf.limiter("openai", "10/s; 500/min")

        async with limiter:
            await call()
    """

    _request: LimitRequest
    _attempts = limiting.LimitAttempt

    _elsewhere = foreign.LIMITS

    def __init__(self, driver: AsyncDriver, request: LimitRequest, by: tuple[str, ...] = ()) -> None:
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
    ) -> Awaitable[AsyncAdmission]:
        """Be admitted, and wait in the queue until it is this call's turn.

        It raises before it waits if it is certain to take longer than the timeout. If it raises, is cancelled or is
        interrupted, the call counts under no rate and is in no queue. If the server can't be reached then, it is taken
        back in the background when it answers again.

        Args:
            cost: What the call counts for, from 1 to the smallest limit.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout that the object was made with.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which the call counts as earlier than it
                came. It passes those who came within that time, and no one who has waited longer. None takes that of the
                object.

        Returns:
            The admission. There is nothing to release; `Admission.settle` is for calls whose cost is known only later.

        Raises:
            RateLimited: It was not admitted within the ``timeout``, or is certain not to be.
            LimitExceeded: An operator has set a rate with a limit below the cost.
            QueueFull: The queue has ``max_waiters`` calls already.
            TypeError: ``cost`` is not an int, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``cost``, ``timeout`` or ``head_start`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
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
    ) -> Awaitable[AsyncAdmission]:
        """Be admitted if the call fits now and no one waits. Does not wait.

        Takes one round trip; a few where hundreds of admissions have lapsed, or of waiters are gone, and two where
        other rates were set since the last call of the object.

        Args:
            cost: What the call counts for, from 1 to the smallest limit.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The admission, which is false if the call was not admitted. Its `Admission.retry_after` says when to try
            again.

        Raises:
            LimitExceeded: An operator has set a rate with a limit below the cost.
            TypeError: ``cost`` is not an int, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``cost`` or ``timeout`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached. A connection that broke is replaced once.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        reply_s = None if timeout is None else reply_seconds(timeout)  # most calls spare the frame
        if cost != 1 or type(cost) is not int:
            attempt.request = self._costing(cost)
        return self._admission(attempt, 0, reply_s)

    async def pause(
        self, seconds: Duration | str | None, *, at_most: Duration = 3600.0, reason: str | None = None
    ) -> float:
        """Have no one admitted for a while, in any process: for an answer such as 429 with ``Retry-After``.

        Waiters keep their places, and a call that would have to wait for longer than its timeout is refused at once. A
        pause that lasts longer already stays as it is. After a pause that is longer than a period, as much as the limit
        is admitted at once: take a second, shorter rate if that is too much. A pause is forgotten where the server
        loses its data.

        Example:
            async with limiter:
                answer = await call()
            if answer.status_code == 429:
                await limiter.pause(answer.headers.get("Retry-After"))

        Args:
            seconds: How long, from when the server gets it: a number or a timedelta. 0 or less changes nothing; `resume`
                ends a pause. Or a header ``Retry-After`` as it is: a text with seconds or an HTTP date, by the clock of
                this machine. One that is missing (None), empty or can't be read pauses for a second.
            at_most: What is taken of ``seconds``, from 0.001 s to 366 days: an hour, since the other side may ask for a
                day by mistake. What is cut is logged as a WARNING.
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8. Without one the seconds are noted.

        Returns:
            Seconds for which no one is admitted from now on: more than was asked for where a longer pause goes on; 0 where
            ``seconds`` changes nothing.

        Raises:
            TypeError: ``seconds`` is neither a number, a timedelta, a str nor None, ``at_most`` neither a number nor a
                timedelta, or ``reason`` no str.
            ValueError: One of these is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
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
        return await self._driver.run(limiting.pause(self._request, pause_ms, self._driver.label, reason), self.name)

    async def resume(self, *, reason: str | None = None) -> bool:
        """End a `pause` now, and admit the waiters who fit.

        It ends the pause that there is when it is called: one that another client sets in between goes on.

        Args:
            reason: Why, for `status`: 1 to 1,000 bytes of UTF-8, or None.

        Returns:
            True if the pause was ended; False if there was none, or another one goes on.

        Raises:
            TypeError: ``reason`` is no str.
            ValueError: ``reason`` is out of range.
            ServerRefused: The server is read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        if reason is not None:
            check_reason(reason)
        done = await self._driver.run(limiting.resume(self._request, self._driver.label, reason), self.name)
        return done == "done"

    async def resize(self, rates: str | Rate | Iterable[str | Rate] | None, *, reason: str | None = None) -> None:
        """Set the rates for all clients, whatever rates they use, from now on.

        Waiters keep their places. A rate with the period of one before counts what was admitted within it; another
        period begins empty. Waiters and callers whose cost is above a new limit get LimitExceeded. The server forgets the
        rates 30 days after the last call of the name, and where it loses its data. Of two calls at once, the later one
        counts. Each key of `keyed` is a limiter of its own, with rates of its own to set.

        Args:
            rates: As the client's ``limiter()`` takes them. None restores the rates that the clients use.
            reason: Why, for `status`, which shows the rates before it: 1 to 1,000 bytes of UTF-8, or None.

        Raises:
            TypeError: ``rates`` are no rates.
            ValueError: ``rates`` are out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        from handfast._engine.rates import rates_text, read_rates

        set_rates = () if rates is None else read_rates(rates)
        words = [rates_text(set_rates), "" if reason is None else check_reason(reason)]
        why = ": ".join(filter(None, words))
        steps = limiting.resize(self._request.under(set_rates), self._driver.label, why)
        await self._driver.run(steps, self.name)

    async def reset(self) -> None:
        """Forget all admissions until now, and admit the waiters that fit: a user who was locked out may come again.

        Takes two round trips, or more where thousands are forgotten. A `pause` and rates that were set stay. What is
        settled later, of a call that is forgotten, changes nothing.

        Example:
            await logins.keyed("ann").reset()

        Raises:
            ServerRefused: The server is read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        await self._driver.run(limiting.reset(self._request), self.name)

    async def status(self, *, timeout: Duration | None = None) -> LimiterStatus:
        """Return how much is used under each rate that counts, how many wait, how long a pause lasts, and who set what.

        Takes one round trip, or two where other rates were set, and changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The status at one instant of the server.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            redis.exceptions.ConnectionError: The server can't be reached. A connection that broke is replaced once.
            redis.exceptions.TimeoutError: The server does not answer.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return await self._driver.look(limiting.status(self._request), self.name, reply_seconds(timeout))

    @undoing
    def __aenter__(self, attempt: limiting.LimitAttempt, /) -> Awaitable[AsyncAdmission]:
        return self._admitted(attempt, self._request.timeout)

    async def __aexit__(self, *exc: object) -> None:
        """Do nothing: an admission has no end."""

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a function: each call of it is admitted first, and raises RateLimited if it is not.

        With the ``by`` of the client's ``limiter()``, calls count for the key that their arguments make.

        Example:
            @hf.limiter("login", "5/min", by="user", on_limit="raise")
            async def login(user, password): ...

        Args:
            function: What to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: ``by`` names what is no parameter of the function; or the name has braces, which stand for
                arguments in the names of locks: use ``by``.
        """
        function = coroutine_function(function)
        key = CallKey(self._by, function, self.name)

        @replacing(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self.keyed(*key.parts(args, kwargs)) if self._by else self:
                return await function(*args, **kwargs)

        return limited

    def _costing(self, cost: int) -> LimitRequest:
        request = self._request
        if check_int(cost, "cost", self._most) > request.most:  # it asks whether the rates that were set still count
            request = request.under(())
        return request.with_cost(cost)

    async def _admitted(
        self, attempt: limiting.LimitAttempt, timeout: float | None, reply_s: float | None = None
    ) -> AsyncAdmission:
        """Wait to be admitted. Raises RateLimited."""
        admission = await self._admission(attempt, timeout, reply_s)
        if not admission:
            raise RateLimited(self.name, timeout or 0, admission.retry_after)
        return admission

    async def _admission(
        self, attempt: limiting.LimitAttempt, timeout: float | None, reply_s: float | None = None
    ) -> AsyncAdmission:
        """Ask, and wait where there is a timeout. The next call begins with the rates that have counted for this one.

        Without one, the server has ``reply_s`` seconds to answer.
        """
        until = inf if timeout is None else attempt.asked_at + timeout
        steps = limiting.acquire(attempt, until)
        decision = await self._driver.wait(attempt, steps, until, once=timeout == 0, timeout=reply_s)
        if not decision.admitted:
            await self._driver.undo(attempt)
        is_nearly_full = decision.remaining * limiting.NEARLY_FULL <= attempt.request.most
        if is_nearly_full and self._driver.announcements.is_due(attempt):
            with suppress(*OWN_ERRORS):  # operators alone need it
                await self._driver.look(limiting.announce(attempt.request), self.name, ANNOUNCE_S)
        if (dispatcher := self._driver.events.dispatcher) is not None:  # nothing cancels the call from here on
            if decision.admitted:
                dispatcher.admitted(attempt, exceeded=decision.exceeded)
            else:
                dispatcher.refused(attempt, "timeout" if timeout else "busy")
        if attempt.request.rates != self._request.rates:
            self._request = attempt.request.with_cost(1)
        return AsyncAdmission(self._driver, attempt, decision)


name_publicly(globals(), "handfast")
