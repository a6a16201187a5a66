# Generated from _api/aio/primitive.py by tools/unasync.py: edit that file and run the tool.
"""The base of all primitives: the verbs ``acquire`` and ``try_acquire``, the ``with`` block and the decorator.

A primitive holds nothing itself: each acquire gives a lease, so callers (threads or tasks) may share one primitive.

Every method that gives a lease undoes the attempt if it raises, in the frame that returns the lease: an interrupt can
come at any instruction of a frame further down, after the return of the lease and before the caller has it. So the
``try`` can't be moved into a helper.
"""

from __future__ import annotations

import functools
import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Never, ParamSpec, Self, TypeVar, overload

from handfast._api import foreign
from handfast._api.blocks import Blocks
from handfast._api.decorators import NameTemplate, plain_function, replacing
from handfast._api.foreign import unknown_options
from handfast._api.sync.lease import Lease
from handfast._api.sync.scope import PrimitiveScope
from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.calls import PermitRequest, Request
from handfast._engine.validate import (
    MAX_LABEL_BYTES,
    check_cancel,
    check_choice,
    grace_milliseconds,
    head_start_microseconds,
    reply_seconds,
    utf8,
    wait_seconds,
)
from handfast._objects import BlockOnly, PublicObject
from handfast._protocol.acquire import Attempt
from handfast._protocol.lease import LeaseState
from handfast.arguments import CancelEvent, Duration, OnBusy, OnLost
from handfast.errors import AcquireTimeout, QueueFull, Superseded

__all__ = ["Primitive"]

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Lease)


class Primitive(BlockOnly, PublicObject, PrimitiveScope[L]):
    """A primitive: an object that can be acquired."""

    _adopts: ClassVar[bool] = True
    """Whether its leases can be detached and adopted."""

    _elsewhere = foreign.PERMITS

    _owned: ClassVar[bool] = False
    """Whether only the caller that entered a block may leave it, while it lives."""

    def __init__(self, driver: SyncDriver, request: Request, on_lost: OnLost) -> None:
        self._driver = driver
        self._blocks = Blocks(driver, owned=self._owned)
        self._request = request
        self._on_lost = on_lost

    def acquire(
        self,
        *_args: Never,
        timeout: Duration | None = None,
        head_start: Duration | None = None,
        cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> L:
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
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout of the object.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which the request counts as earlier than
                it came. It passes those who came within that time, but not those who waited longer. None takes the head
                start of the object.
            cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
                anything is sent, and then every 50 ms. A call to a server that does not answer is not
                interrupted.

        Returns:
            The lease. Enter it with ``with``, or release it when the work is done.

        Raises:
            AcquireTimeout: Others held it, or stood before this request, for the whole ``timeout``.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            QueueFull: The queue has ``max_waiters`` requests already.
            WouldDeadlock: The caller holds it in an enclosing block, and would wait for itself.
            LeaseLost: Reentrant locks: the caller's lease was lost and is not released yet. Several locks of a cluster:
                a lock was lost while the call waited for the others.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``timeout`` or ``head_start`` is neither a number nor a timedelta, ``head_start`` is given for several
                locks, or ``cancel`` can't be asked whether it is set.
            ValueError: ``timeout`` is not a number (``nan``), or ``head_start`` is out of range.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        if cancel is not None:
            check_cancel(cancel)
        seconds, request = self._request.timeout if timeout is None else wait_seconds(timeout), self._request
        if head_start is not None:
            request = request.with_head_start(head_start_microseconds(head_start))
        attempt = self._driver.attempt(request)
        try:
            return self._existing_lease(attempt, waits=True) or self._lease(
                self._driver.acquire(
                    attempt,
                    seconds,
                    cancel,
                )
            )
        except BaseException as error:
            self._abandon(attempt)
            self._driver.undo(attempt, error)
            raise

    def try_acquire(self, *_args: Never, timeout: Duration | None = None, **_options: Never) -> L | None:
        """Acquire it if it is free and has no waiters. Takes one round trip and does not wait.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The lease, or None if it was not acquired.

        Raises:
            LeaseLost: Reentrant locks only: the caller's lease was lost and is not released yet.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        seconds = reply_seconds(timeout)
        attempt = self._driver.attempt(self._request)
        try:
            if (existing := self._existing_lease(attempt, waits=False)) is not None:
                return existing
            state = self._driver.try_acquire(attempt, seconds)
            return None if state is None else self._lease(state)
        except BaseException as error:
            self._abandon(attempt)
            self._driver.undo(attempt, error)
            raise

    def adopt(self, token: str, *, label: str | None = None) -> L:
        """Turn a lease detached by another process into a lease of this client, which renews it from now on.

        The lease keeps the fence, the ``at_least``, the value and the slot of the acquirer, and lasts the ``ttl`` of this
        object from now, or longer if it already does. Takes two round trips. `status` shows this client from now on, and a
        `force_release` reaches it at once.

        Adopt a token once. The server can't tell two adopters apart: both hold the same lease, and when one has
        released it, the other loses it at the next renewal.

        Args:
            token: The result of `Lease.detach`, for this name and kind: a lock, a semaphore, a read-write lock or an
                election.
            label: How `status` shows the lease; 1 to 200 bytes of UTF-8. None takes the label of this client. The empty
                text keeps the label of the client that acquired the lease, which a `force_release` then reaches first.

        Returns:
            The lease. Enter it with ``with``, or release it when the work is done.

        Raises:
            LeaseLost: The lease has ended, or it is of another name.
            TypeError: ``token`` or ``label`` is no str, or it is a reentrant lock or several locks.
            ValueError: ``label`` is too long; or ``token`` is not from `detach`, is of another kind, or the lease is
                held by this client, or is being adopted by it.
            ServerRefused: The server refused, for example because it is read-only. The token can be used again.
            redis.exceptions.ConnectionError: The server can't be reached. The token can be used again.
            redis.exceptions.TimeoutError: The server does not answer. The token can be used again.
        """
        from handfast._protocol.detached import DetachedLease

        request = self._request
        if not self._adopts or not isinstance(request, PermitRequest):
            raise TypeError(f"{self!r} can't adopt a lease, since none of its kind can be detached; use lock() instead")
        detached = DetachedLease.parse(token, request)
        if label:
            utf8(label, "label", MAX_LABEL_BYTES)
        shown = self._driver.label if label is None else label or None
        claim = self._driver.claim(detached, request.name)
        try:
            return self._lease(self._driver.adopt(detached, request, shown))
        except BaseException:
            self._driver.forget(detached)
            raise
        finally:
            del claim  # its end lets others claim the token

    @abstractmethod
    def _lease(self, state: LeaseState) -> L:
        """Return the lease that an acquire gives."""

    def _existing_lease(self, attempt: Attempt, *, waits: bool) -> L | None:  # noqa: ARG002 -- for subclasses
        """Return a lease of the caller's present grant, if the caller is to get this instead of a new grant."""
        return None

    def _abandon(self, attempt: Attempt, lease: L | None = None) -> None:  # noqa: ARG002 -- for subclasses
        """Forget an attempt that raised: the block is not entered, and the lease does not reach the caller."""
        if lease is not None:
            self._blocks.forget(self._driver.caller(), lease)

    def __enter__(self) -> L:
        frame = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        attempt, lease = self._driver.attempt(self._request), None
        try:
            lease = self._existing_lease(attempt, waits=True) or self._lease(
                self._driver.acquire(attempt, self._request.timeout)
            )
            return self._blocks.enter(frame, lease)
        except BaseException as error:
            self._abandon(attempt, lease)
            self._driver.undo(attempt, error)
            raise

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: Literal["raise"] = "raise"
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def __call__(
        self, /, *, timeout: Duration | None = None, on_busy: OnBusy, grace: Duration | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        timeout: Duration | None = None,
        on_busy: OnBusy = "raise",
        grace: Duration | None = None,
    ) -> Callable[..., Any]:
        """Decorate a function to hold this while it runs. Each call acquires a lease of its own.

        A name with fields in braces is a template, which each call fills with its arguments:
        ``lock("order:{order_id}")`` for a function with the parameter ``order_id``, or ``{order.id}``. Write ``{{`` and
        ``}}`` for braces themselves.

        Example:
            @hf.lock("order:{order_id}", timeout=5)
            def ship(order_id): ...

            @hf.lock("nightly")(on_busy="skip")
            def nightly(): ...

            @hf.lock("turn:{conversation}")(on_busy="preempt", grace=5)
            def answer(conversation, message): ...

        Args:
            function: The function to decorate. Without it, a decorator is returned.
            timeout: Seconds that a call waits at most: a number or a timedelta. 0 or less does not wait; more than 366
                days (`math.inf`) waits indefinitely. None takes the timeout of the object; if that is None, too, a call
                that would skip does not wait, and others wait indefinitely.
            on_busy: How a call reacts while others hold it: wait, and "raise" AcquireTimeout or QueueFull if it does
                not get a lease in time; "skip" the function then, and return None; "replace" all waiting calls, see
                `Lock.replace`; or "preempt" the running call, see `Lock.preempt`. A call whose place in the queue a
                later call has taken returns None, except with "raise", where it raises Superseded. The last two are for
                locks.
            grace: With ``on_busy="preempt"``: seconds that the running call has to end, from 0 to 366 days; None for
                5 s.

        Raises:
            TypeError: The function is of a kind that cannot be decorated, an argument has the wrong type, or ``on_busy`` is
                for locks only.
            ValueError: A field of the name is no parameter of the function, or an argument is out of range.
        """
        check_choice(on_busy, "on_busy", OnBusy)
        if grace is not None and on_busy != "preempt":
            raise ValueError(f"grace has no use with on_busy={on_busy!r}; leave it out")
        if grace is not None:
            grace_milliseconds(grace)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        if on_busy == "skip" and timeout is None and seconds is None:
            seconds = 0.0
        enter = self._entering(on_busy, {} if grace is None else {"grace": grace})
        decorate = functools.partial(self._decorated, timeout=seconds, on_busy=on_busy, enter=enter)
        return decorate if function is None else decorate(function)

    def _decorated(
        self,
        function: Callable[P, R],
        *,
        timeout: float | None,
        on_busy: OnBusy,
        enter: Callable[[Self], Any],
    ) -> Callable[P, R | None]:
        function = plain_function(function)
        template = NameTemplate.of(self._request.names, function)
        plain = self._like(self._request.adapted(str, timeout))

        @replacing(function)
        def holding(*args: P.args, **kwargs: P.kwargs) -> R | None:
            primitive = plain
            if template is not None:
                primitive = self._like(self._request.adapted(template.filled(args, kwargs), timeout))
            is_held = False
            try:
                with enter(primitive):
                    is_held = True
                    return function(*args, **kwargs)
            except (AcquireTimeout, QueueFull):
                if is_held or on_busy != "skip":
                    raise
                return None
            except Superseded:
                if is_held or on_busy == "raise":
                    raise
                return None

        return holding

    def _entering(self, on_busy: OnBusy, _options: dict[str, Any]) -> Callable[[Self], Any]:
        """Return a function which makes the context of a decorated call. Raises TypeError for options of locks only."""
        if on_busy in ("replace", "preempt"):
            raise TypeError(
                f"on_busy={on_busy!r} needs a single holder, which {self!r} may not have; use a lock, lock()"
            )
        return lambda primitive: primitive

    def _like(self, request: Any) -> Self:
        """Return a primitive of the same kind for another request."""
        return type(self)(self._driver, request, self._on_lost)
