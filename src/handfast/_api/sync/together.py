# Generated from _api/aio/together.py by tools/unasync.py: edit that file and run the tool.
"""Several limits at once: taken in order under a single timeout, and given back in reverse."""

# ruff: noqa: SLF001 -- it does what each of them does, with all of them

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Never, ParamSpec, Self, TypeVar, overload

from handfast._api.blocks import Blocks
from handfast._api.decorators import CallKey, NameTemplate, plain_function, replacing
from handfast._api.foreign import unknown_options
from handfast._api.nesting import Nesting
from handfast._api.sync.lease import Lease
from handfast._api.sync.limiter import Admission, Limiter
from handfast._api.sync.limits import AnyLimiter
from handfast._api.sync.metric_limiter import MetricLimiter
from handfast._api.sync.primitive import Primitive
from handfast._api.sync.scope import PrimitiveScope
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.validate import check_cancel, check_choice, check_int, reply_seconds, wait_seconds
from handfast._naming import name_publicly
from handfast._objects import BlockOnly, PublicObject
from handfast._protocol.acquire import Attempt, BaseAttempt
from handfast._protocol.lease import LeaseState
from handfast._protocol.limiting import LimitAttempt
from handfast.arguments import CancelEvent, Duration
from handfast.errors import AcquireTimeout, QueueFull, RateLimited, Superseded

__all__ = ["Held", "Together", "take_together"]

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16
"""Limits that are taken together at most."""


class Held(BlockOnly, PublicObject):
    """The leases of several limits, and an admission if a limiter is among these. Made by ``together()``.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        with hf.together(hf.semaphore("tenant:7", 2), hf.semaphore("gpu", 8)) as held:
            save(order, fence=held.fence)
    """

    __slots__ = ("_admission", "_leases")

    def __init__(self, leases: Sequence[Lease], admission: Admission | None) -> None:
        self._leases = tuple(leases)
        self._admission = admission

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(repr(one.name) for one in self._leases)}>"

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases, in the order in which they were acquired."""
        return self._leases

    @property
    def fence(self) -> int:
        """The fencing token of the last lease; those of the others are in `leases`."""
        return self._leases[-1].fence

    @property
    def admission(self) -> Admission | None:
        """The admission of the limiter; None without a limiter."""
        return self._admission

    def check(self) -> None:
        """Raise an error unless all leases are held; see `Lease.check`. Takes no I/O.

        Raises:
            LeaseLost: A lease was lost.
            NotHeld: A lease was released or detached.
        """
        for lease in self._leases:
            lease.check()

    def release(self) -> bool:
        """Release all leases, the last first. An admission stays: see `Admission.settle`.

        Returns:
            True if this call released all of them; False if any was lost or released before.

        Raises:
            ServerRefused: The server refused, for example because it is read-only. The others are released.
        """
        released, failure = True, None
        try:
            for lease in reversed(self._leases):
                try:
                    released = lease.release() and released
                except OWN_ERRORS as error:
                    failure = failure or error
        except BaseException as interrupt:
            self._leave(interrupt)
            raise
        if failure is not None:
            raise failure
        return released

    def __enter__(self) -> Self:
        for lease in self._leases:
            lease._check_entry()
        return self._begin(sys._getframe(1), None)

    def _begin(self, frame: Any, caller: Any) -> Self:
        """Enter the block of leases that were just acquired."""
        for lease in self._leases:
            lease._begin(frame, caller)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            error = self._leave(exc)
        except BaseException as interrupt:
            self._leave(interrupt)
            raise
        if error is not exc and error is not None:
            raise error

    def _leave(self, error: BaseException | None) -> BaseException | None:
        """Leave the blocks of all leases, as nested blocks are left. Return the error with which that has ended."""
        for lease in reversed(self._leases):
            try:
                lease.__exit__(None if error is None else type(error), error, None)
            except BaseException as raised:  # noqa: BLE001 -- it is raised when all blocks are left
                error = raised
        return error


class _Whole(BaseAttempt):
    """The attempts of all limits, which are undone together."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[BaseAttempt]) -> None:
        super().__init__(parts[0].request, b"", parts[0].asked_at)
        self._parts = tuple(parts)

    @property
    def parts(self) -> tuple[BaseAttempt, ...]:
        """The attempts, in the order in which they are made."""
        return self._parts


class Together(BlockOnly, PublicObject, PrimitiveScope[Held]):
    """Several limits, taken one after the other in the given order. Made by the client's ``together()``.

    All share a timeout, and are given back in reverse. If any is not acquired in time, the others are given back. No
    script takes them in one step: take the narrow limit first and the wide limit last, so that a request which waits
    for the narrow limit keeps no permit from others.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        tenant, everyone = hf.semaphore("tenant:7", 2), hf.semaphore("gpu", 8)
        with hf.together(tenant, everyone, timeout=10) as held:
            ...
    """

    def __init__(
        self,
        driver: SyncDriver,
        parts: Sequence[Primitive[Any] | Limiter],
        timeout: float | None,
        nesting: Nesting,
    ) -> None:
        self._driver = driver
        self._limiter = parts[-1] if isinstance(parts[-1], Limiter) else None
        self._parts: tuple[Primitive[Any], ...] = tuple(one for one in parts if isinstance(one, Primitive))
        self._timeout = timeout
        self._nesting = nesting
        self._blocks: Blocks[Held] = Blocks(driver)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """The names of all, separated by commas."""
        names = [one._request.name for one in self._parts]
        return ", ".join(names if self._limiter is None else [*names, self._limiter.name])

    def acquire(
        self,
        *_args: Never,
        timeout: Duration | None = None,
        cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> Held:
        """Acquire all, one after the other, and wait in each queue.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server, and the
        limiter has counted nothing.

        Args:
            timeout: Seconds to wait at most, for all of them: a number or a timedelta. 0 or less does not wait; more
                than 366 days (`math.inf`) waits indefinitely. None takes the timeout of the object.
            cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
                anything is sent, and then every 50 ms, but not during the wait for a limiter.

        Returns:
            The leases, and the admission.

        Raises:
            AcquireTimeout: Others held one of them for the rest of the ``timeout``; the error has its name.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            RateLimited: The limiter did not admit the call in time.
            QueueFull: A queue has ``max_waiters`` requests already.
            LeaseLost: A lease was lost while the call waited for the others.
            WouldDeadlock: The caller holds one of them in an enclosing block.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is not a number (``nan``).
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        if cancel is not None:
            check_cancel(cancel)
        seconds = self._timeout if timeout is None else wait_seconds(timeout)
        attempt, attempts, admitting = self._attempt()
        try:
            leases = self._take(
                attempts,
                lambda one: self._driver.acquire(one, seconds, cancel),
                waits=True,
            )
            held = Held(leases, self._admitted(admitting, seconds))
            held.check()  # one may have been lost during the wait for the limiter
            return held
        except BaseException as error:
            self._abandon(attempt, attempts, error)
            raise

    def try_acquire(self, *_args: Never, timeout: Duration | None = None, **_options: Never) -> Held | None:
        """Acquire all if they are free and have no waiters. Takes a round trip for each, and does not wait.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for, for
                each of them; it has a quarter of a second at least. None takes the ``socket_timeout`` of the client's
                settings, 5 s by default.

        Returns:
            The leases, and the admission; None if any of them was not acquired. Then the others are given back.

        Raises:
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        seconds = reply_seconds(timeout)
        attempt, attempts, admitting = self._attempt()
        try:
            leases = self._take(attempts, lambda one: self._driver.try_acquire(one, seconds), waits=False)
            if len(leases) < len(attempts):
                self._abandon(attempt, attempts)
                return None
            try:
                admission = self._admitted(admitting, 0, seconds)
            except RateLimited as error:
                self._abandon(attempt, attempts, error)
                return None
            return Held(leases, admission)
        except BaseException as error:
            self._abandon(attempt, attempts, error)
            raise

    def __enter__(self) -> Held:
        frame = sys._getframe(1)
        attempt, attempts, admitting = self._attempt()
        held = None
        try:
            leases = self._take(attempts, lambda one: self._driver.acquire(one, self._timeout), waits=True)
            held = Held(leases, self._admitted(admitting, self._timeout))
            held.check()  # as in `acquire`
            return self._blocks.enter(frame, held)
        except BaseException as error:
            if held is not None:
                self._blocks.forget(self._driver.caller(), held)
            self._abandon(attempt, attempts, error)
            raise

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: Literal["raise"] = "raise"
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: Literal["raise", "skip"]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        timeout: Duration | None = None,
        on_busy: Literal["raise", "skip"] = "raise",
    ) -> Callable[..., Any]:
        """Decorate a function to hold all of them while it runs.

        The names of locks and semaphores may be templates, as in the decorator of a lock. Of a limiter, ``by`` makes
        the key. A call raises ValueError if its arguments make two names the same, or an order that contradicts an
        earlier order of the same names in this client.

        Example:
            @hf.together(hf.semaphore("tenant:{tenant}", 2), hf.semaphore("gpu", 8))
            def render(tenant, job): ...

        Args:
            function: The function to decorate. Without it, a decorator is returned.
            timeout: Seconds that a call waits at most, for all of them; as in `acquire`.
            on_busy: How a call reacts if it does not get all of them in time: "raise", or "skip" the function and
                return None, without a wait unless there is a timeout.

        Raises:
            TypeError: The function is of a kind that cannot be decorated, or an argument has the wrong type.
            ValueError: A field of a name is no parameter of the function, or an argument is out of range.
        """
        skips = check_choice(on_busy, "on_busy", Literal["raise", "skip"]) == "skip"
        seconds = self._timeout if timeout is None else wait_seconds(timeout)
        if skips and timeout is None and seconds is None:
            seconds = 0.0
        decorate = functools.partial(self._decorated, timeout=seconds, skips=skips)
        return decorate if function is None else decorate(function)

    def _decorated(self, function: Callable[P, R], *, timeout: float | None, skips: bool) -> Callable[P, R | None]:
        function = plain_function(function)
        names = [name for part in self._parts for name in part._request.names]
        template = NameTemplate.of(names, function)
        limiter, by = self._limiter, self._limiter._by if self._limiter else ()
        key = CallKey(by, function, limiter.name) if limiter else None

        @replacing(function)
        def holding(*args: P.args, **kwargs: P.kwargs) -> R | None:
            filled = str if template is None else template.filled(args, kwargs)
            parts: list[Primitive[Any] | Limiter] = [
                part._like(part._request.adapted(filled, timeout)) for part in self._parts
            ]
            if limiter is not None and key is not None:
                parts.append(limiter.keyed(*key.parts(args, kwargs)) if by else limiter)
            made = type(self)(self._driver, parts, timeout, self._nesting)
            if template is not None:
                made._note_order()
            is_held = False
            try:
                with made:
                    is_held = True
                    return function(*args, **kwargs)
            except (AcquireTimeout, QueueFull, RateLimited, Superseded):
                if is_held or not skips:
                    raise
                return None

        return holding

    def _note_order(self) -> None:
        """Raise ValueError if a name is taken twice, or in an order that contradicts an earlier order."""
        self._nesting.note([[part.place.tag for part in one._request.parts] for one in self._parts])

    def _attempt(self) -> tuple[BaseAttempt, list[Attempt], LimitAttempt | None]:
        """Begin: return the common attempt, which undoes all, and that of each. All count their time from now."""
        attempts = [self._driver.attempt(one._request) for one in self._parts]
        admitting = self._driver.begin(LimitAttempt, self._limiter._request) if self._limiter else None
        parts: list[BaseAttempt] = [part for one in attempts for part in one.parts]
        return _Whole([*parts, *([admitting] if admitting else [])]), attempts, admitting

    def _take(
        self, attempts: Sequence[Attempt], acquire: Callable[[Attempt], LeaseState | None], *, waits: bool
    ) -> list[Lease]:
        """Acquire one after the other, up to the first that ``acquire`` does not get. The caller gives them back."""
        leases: list[Lease] = []
        for part, attempt in zip(self._parts, attempts, strict=True):
            attempt.held = [lease._state for lease in leases]
            lease = part._existing_lease(attempt, waits=waits)
            if lease is None and (state := acquire(attempt)) is not None:
                lease = part._lease(state)
            if lease is None:
                break
            leases.append(lease)
        return leases

    def _admitted(
        self, attempt: LimitAttempt | None, timeout: float | None, reply_s: float | None = None
    ) -> Admission | None:
        """Be admitted by the limiter, if any."""
        if attempt is None or self._limiter is None:
            return None
        return self._limiter._admitted(attempt, timeout, reply_s)

    def _abandon(self, attempt: BaseAttempt, attempts: Sequence[Attempt], error: BaseException | None = None) -> None:
        """Give back what was acquired so far."""
        for part, one in zip(self._parts, attempts, strict=True):
            part._abandon(one)
        self._driver.undo(attempt, error)


def take_together(driver: SyncDriver, limits: Iterable[Any], timeout: Duration | None, nesting: Nesting) -> Together:
    """Check the limits, and return the object which takes them together."""
    found = list(limits)
    check_int(len(found), "the number of limits", MOST)
    if sum(isinstance(one, AnyLimiter) for one in found) > 1:
        raise ValueError(
            "together() takes one limiter; for several metrics use one limiter with metrics: "
            'limiter(name, {"requests": "500/min", "tokens": "200000/min"})'
        )
    for place, one in enumerate(found):
        if isinstance(one, MetricLimiter):
            raise TypeError(f"{one!r} has metrics: be admitted within the block, by its admit(cost=…)")
        if isinstance(one, Limiter) and place < len(found) - 1:
            raise ValueError(
                f"{one!r} must come last: an admission would be used up while the call waits for the others"
            )
        if not isinstance(one, Primitive | Limiter):
            raise TypeError(f"together() takes locks, semaphores, read-write locks and a limiter, not {one!r}")
        if one._driver is not driver:
            raise ValueError(f"{one!r} is of another client; make all of them with this one")
    made = Together(driver, found, wait_seconds(timeout), nesting)
    if not made._parts:
        raise ValueError("together() takes a lock, a semaphore or a read-write lock at least; use the limiter alone")
    made._note_order()
    return made


name_publicly(globals(), "handfast")
