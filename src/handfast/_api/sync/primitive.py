# Generated from _api/aio/primitive.py by tools/unasync.py: edit that file and run the tool.
"""What all primitives have in common: the verbs ``acquire`` and ``try_acquire``, the ``with`` block and the decorator.

A primitive holds nothing itself: each acquire gives a lease, so callers (threads or tasks) may share one primitive.

Every method that gives a lease undoes its attempt if it raises, in the frame that returns the lease: an interrupt can come
at any instruction of a frame further down, after it has returned the lease and before its caller has it. So the ``try`` can't
be moved into a helper.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from handfast._api.decorators import NameTemplate, require_plain_function
from handfast._api.sync.lease import Lease
from handfast._api.uncopied import Uncopied
from handfast._drivers.sync.driver import SyncDriver
from handfast._drivers.sync.scope import PrimitiveScope
from handfast._engine.calls import Request
from handfast._engine.validate import check_on_busy, wait_seconds
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnBusy, OnLost
from handfast.errors import AcquireTimeout, QueueFull

__all__ = ["Primitive"]

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Lease)


class Primitive(Uncopied, PrimitiveScope[L]):
    """A primitive: an object that can be acquired."""

    def __init__(self, driver: SyncDriver, request: Request, on_lost: OnLost) -> None:
        self._driver = driver
        self._request = request
        self._on_lost = on_lost
        self._entered: dict[object, list[tuple[FrameType, L]]] = {}
        """The ``with`` blocks that each caller has entered, in order: the frame that entered, and the lease."""

    def acquire(self, *, timeout: Duration | None = None) -> L:
        """Acquire it, and wait in the queue while others hold it.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server. If the
        server can't be reached then, they are removed in the background when it answers again.

        Example:
            lease = lock.acquire(timeout=5)
            try:
                ...
            finally:
                lease.release()

            with lock.acquire(timeout=5) as lease:
                ...

        Args:
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days (`math.inf`) waits
                indefinitely. None takes the timeout that the object was made with.

        Returns:
            The lease. Enter it with ``with``, or release it when the work is done.

        Raises:
            AcquireTimeout: It was not acquired within ``timeout``.
            QueueFull: The queue has ``max_waiters`` requests already.
            WouldDeadlock: Read-write locks only: the caller already holds it in an enclosing block.
            LeaseLost: Reentrant locks only: the caller's lease was lost and is not released yet.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within 10 s.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        attempt = self._driver.attempt(self._request)
        try:
            return self._existing_lease(attempt, waits=True) or self._lease(self._driver.acquire(attempt, seconds))
        except BaseException:
            self._abandon(attempt)
            self._driver.undo(attempt)
            raise

    def try_acquire(self) -> L | None:
        """Acquire it if it is free and no one waits for it. Takes one round trip and does not wait.

        Returns:
            The lease, or None if it was not acquired.

        Raises:
            LeaseLost: Reentrant locks only: the caller's lease was lost and is not released yet.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within 10 s.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        attempt = self._driver.attempt(self._request)
        try:
            if (existing := self._existing_lease(attempt, waits=False)) is not None:
                return existing
            state = self._driver.try_acquire(attempt)
            return None if state is None else self._lease(state)
        except BaseException:
            self._abandon(attempt)
            self._driver.undo(attempt)
            raise

    def _lease(self, state: LeaseState) -> L:
        """Return the lease that an acquire gives."""
        raise NotImplementedError

    def _existing_lease(self, attempt: Attempt, *, waits: bool) -> L | None:  # noqa: ARG002 -- for subclasses
        """Return a lease of what the caller holds already, if it is to get that instead of a new grant."""
        return None

    def _abandon(self, attempt: Attempt, lease: L | None = None) -> None:  # noqa: ARG002 -- for subclasses
        """Forget an attempt that raised: its block is not entered, and its lease does not reach the caller."""
        if lease is not None:
            self._forget_scope(self._driver.caller(), lease)

    def __enter__(self) -> L:
        frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        attempt, lease = self._driver.attempt(self._request), None
        try:
            lease = self._existing_lease(attempt, waits=True) or self._lease(
                self._driver.acquire(attempt, self._request.timeout)
            )
            self._entered.setdefault(self._driver.caller(), []).append((frame, lease))
            return lease._begin()  # noqa: SLF001 -- for a lease that was just acquired
        except BaseException:
            self._abandon(attempt, lease)
            self._driver.undo(attempt)
            raise

    def _current_scope(self, frame: FrameType) -> tuple[object, L] | None:
        """Return the block that is being left in that frame: the caller that entered it, and its lease.

        A framework may leave a block in another thread or task than the one that entered it: a generator's, for example,
        whose frame stays the same. An exit stack enters and leaves in frames of its own: then it is the caller's latest
        block, or else that of the only other caller; of several, none can be chosen without the risk that it is the wrong
        one.
        """
        mine = self._driver.caller()
        for caller in (mine, *self._entered):
            for entered_in, lease in reversed(self._entered.get(caller, ())):
                if entered_in is frame:
                    return caller, lease
        if blocks := self._entered.get(mine):
            return mine, blocks[-1][1]
        foreign = [(caller, blocks[0][1]) for caller in self._foreign_scopes() if (blocks := self._entered.get(caller))]
        return foreign[0] if len(foreign) == 1 else None

    def _unbalanced_exit(self) -> Exception:
        if len(self._entered) > 1:
            return RuntimeError(
                f"a with block of {self!r} was left by another caller than the one that entered it, and several "
                "others are in blocks of it: nothing was released; enter the lease instead, as in 'with lock.acquire()'"
            )
        return RuntimeError(f"the with block of {self!r} was left, but never entered; enter it with a with statement")

    def _forget_scope(self, caller: object, lease: L) -> None:
        blocks = self._entered.get(caller, [])
        for block in blocks:
            if block[1] is lease:
                blocks.remove(block)
                break
        if not blocks:
            self._entered.pop(caller, None)

    def _foreign_scopes(self) -> list[object]:
        """Return the callers whose blocks another caller may leave."""
        return list(self._entered)

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: Literal["raise"] = "raise"
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: OnBusy
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        timeout: Duration | None = None,
        on_busy: OnBusy = "raise",
    ) -> Callable[..., Any]:
        """Decorate a function to hold this while it runs. Each call acquires a lease of its own.

        A name with fields in braces is a template, which each call fills with its arguments: ``lock("order:{order_id}")``
        for a function with the parameter ``order_id``, or ``{order.id}``. Write ``{{`` and ``}}`` for braces themselves.

        Example:
            @hf.lock("order:{order_id}", timeout=5)
            def ship(order_id): ...

            @hf.lock("nightly")(on_busy="skip")
            def nightly(): ...

        Args:
            function: What to decorate. Without it, a decorator is returned.
            timeout: Seconds that a call waits at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout that the object was made with; if that is None, too, a
                call that would skip does not wait, and others wait indefinitely.
            on_busy: What a call does if it does not get a lease in time, or the queue is full: "raise" AcquireTimeout or
                QueueFull, or "skip" the function and return None.

        Raises:
            TypeError: The function is of a kind that cannot be decorated, or an argument has the wrong type.
            ValueError: A field of the name is no parameter of the function, or an argument is out of range.
        """
        skips = check_on_busy(on_busy) == "skip"
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        if skips and timeout is None and seconds is None:
            seconds = 0.0
        decorate = functools.partial(self._decorated, timeout=seconds, skips=skips)
        return decorate if function is None else decorate(function)

    def _decorated(self, function: Callable[P, R], *, timeout: float | None, skips: bool) -> Callable[P, R | None]:
        require_plain_function(function)
        template = NameTemplate.of(self._request.names, function)
        plain = self._like(self._request.adapted(str, timeout))

        @functools.wraps(function)
        def holding(*args: P.args, **kwargs: P.kwargs) -> R | None:
            primitive = plain
            if template is not None:
                primitive = self._like(self._request.adapted(template.filled(args, kwargs), timeout))
            is_held = False
            try:
                with primitive:
                    is_held = True
                    return function(*args, **kwargs)
            except (AcquireTimeout, QueueFull):
                if is_held or not skips:
                    raise
                return None

        return holding

    def _like(self, request: Any) -> Self:
        """Return a primitive of the same kind for another request."""
        return type(self)(self._driver, request, self._on_lost)
