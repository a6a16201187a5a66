# Generated from _api/aio/semaphore.py by tools/unasync.py: edit that file and run the tool.
"""A semaphore: a number of permits, each held by lease, first come first served."""

from __future__ import annotations

from typing import Never

from handfast._api.foreign import unknown_options
from handfast._api.sync.inspectable import Inspectable
from handfast._api.sync.lease import Lease
from handfast._api.sync.preemptible import Preemptible
from handfast._engine.calls import PermitRequest
from handfast._engine.validate import check_int, head_start_microseconds, reply_seconds, wait_seconds
from handfast._kinds import MAX_PERMITS, MAX_SLOTS
from handfast._naming import name_publicly
from handfast._protocol import admin
from handfast._protocol.lease import LeaseState
from handfast.arguments import CancelEvent, Duration
from handfast.errors import NotHeld

__all__ = ["Semaphore", "SemaphoreLease"]


class SemaphoreLease(Lease):
    """A lease of permits of a semaphore. It comes from ``acquire`` and ``try_acquire``.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        with hf.semaphore("devices", 4) as lease:
            device = devices[lease.slot()]
    """

    __slots__ = ("_slot",)

    def slot(self, *, prefer: int | None = None) -> int:
        """Return a number from 0 to ``limit`` - 1 that no other holder of the semaphore has.

        The first call takes a round trip; later ones return the same number without I/O. The number is free when the
        lease ends: by a release, or after the death of the process when the ttl is over.

        As with the lease itself, a process that was paused may go on with the number after it has lost the lease, while
        another process has it: see `Lease.check` and `Lease.fence`. If clients use different limits, or after a
        `Semaphore.resize`, numbers are less than the largest limit of those who hold permits.

        Args:
            prefer: The number wanted, less than the limit; the lease gets the smallest free number if another holder has
                that. None takes the smallest free number.

        Raises:
            TypeError: The lease has several permits, or ``prefer`` is no int.
            ValueError: The limit is above 1,024, or ``prefer`` is out of range.
            LeaseLost: The lease was lost.
            NotHeld: The lease was released.
            ServerRefused: The server refused, for example because it is read-only.
        """
        request = self._state.request
        assert isinstance(request, PermitRequest)  # noqa: S101 -- as `Semaphore` makes it
        if request.weight > 1:
            raise TypeError(
                f"{self!r} has {request.weight} permits, and a lease has one number; acquire one permit for each"
            )
        if request.limit > MAX_SLOTS:
            raise ValueError(
                f"{self.name!r} has a limit of {request.limit}, and only up to {MAX_SLOTS:,} holders have numbers"
            )
        wanted = -1 if prefer is None else check_int(prefer, "prefer", request.limit - 1, least=0)
        self.check()
        found: int | None = getattr(self, "_slot", None)
        if found is None:
            numbers = self._driver.number(self._state, wanted)
            if not numbers:
                self.check()
                raise NotHeld(self.name)
            (found,) = numbers
            self._slot = found
        return found


class Semaphore(Inspectable, Preemptible[SemaphoreLease]):
    """A named semaphore: up to ``limit`` permits are held at a time. Made by the client's ``semaphore()``.

    Requests are served first come, first served. A request for many permits at the head of the queue keeps them as they
    come free, and smaller requests behind it wait. Permits of a dead holder are free when its lease ends. The object
    holds nothing itself, so threads or tasks may share it.

    If clients use different limits, each request is judged by the limit of the requesting client: it is granted if the
    permits held, together with the requested permits, are at most this limit. After `resize`, the new limit counts for
    all clients.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        with hf.semaphore("api", 10).acquire(permits=2, timeout=5) as lease:
            ...
    """

    _request: PermitRequest

    @property
    def limit(self) -> int:
        """The number of permits that this object was made with. `status` has the limit in force after a `resize`."""
        return self._request.limit

    def acquire(
        self,
        *_args: Never,
        permits: int = 1,
        timeout: Duration | None = None,
        head_start: Duration | None = None,
        cancel: CancelEvent | None = None,
        **_options: Never,
    ) -> SemaphoreLease:
        """Acquire permits, all of them or none, and wait in the queue until they are free.

        If this raises, is cancelled or is interrupted, neither a lease nor a queue entry remains on the server. If the
        server can't be reached then, they are removed in the background when it answers again.

        Example:
            with semaphore.acquire(permits=2, timeout=5) as lease:
                ...

        Args:
            permits: How many permits, from 1 to `limit`.
            timeout: Seconds to wait at most: a number or a timedelta. 0 or less does not wait; more than 366 days
                (`math.inf`) waits indefinitely. None takes the timeout of the object.
            head_start: Seconds (a number or a timedelta), from 0 to 86,400, by which the request counts as earlier than
                it came. It passes those who came within that time, but not those who waited longer. None takes the head
                start of the object.
            cancel: An event that ends the wait when it is set, such as a `threading.Event`. It is looked at before
                anything is sent, and then every 50 ms. A call to a server that does not answer is not
                interrupted.

        Returns:
            The lease of the permits. Enter it with ``with``, or release it when the work is done.

        Raises:
            AcquireTimeout: Others held them, or stood before this request, for the whole ``timeout``.
            AcquireCancelled: Sync API only: ``cancel`` was set.
            QueueFull: The queue has ``max_waiters`` requests already.
            LimitExceeded: The semaphore was resized to fewer permits than requested.
            TypeError: ``permits`` is not an int, or ``timeout`` or ``head_start`` neither a number nor a timedelta.
            ValueError: ``permits``, ``timeout`` or ``head_start`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.acquire, _args, _options)
        seconds = self._request.timeout if timeout is None else wait_seconds(timeout)
        request = self._request.with_weight(check_int(permits, "permits", self.limit))
        if head_start is not None:
            request = request.with_head_start(head_start_microseconds(head_start))
        attempt = self._driver.attempt(request)
        try:
            return self._lease(
                self._driver.acquire(
                    attempt,
                    seconds,
                    cancel,
                )
            )
        except BaseException as error:
            self._driver.undo(attempt, error)
            raise

    def try_acquire(
        self, *_args: Never, permits: int = 1, timeout: Duration | None = None, **_options: Never
    ) -> SemaphoreLease | None:
        """Acquire permits if they are free and there are no waiters. Takes one round trip and does not wait.

        Args:
            permits: How many permits, from 1 to `limit`.
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Returns:
            The lease of the permits, or None if they were not acquired.

        Raises:
            LimitExceeded: The semaphore was resized to fewer permits than requested.
            TypeError: ``permits`` is not an int, or ``timeout`` neither a number nor a timedelta.
            ValueError: ``permits`` or ``timeout`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        if _args or _options:
            raise unknown_options(self.try_acquire, _args, _options)
        seconds = reply_seconds(timeout)
        attempt = self._driver.attempt(self._request.with_weight(check_int(permits, "permits", self.limit)))
        try:
            state = self._driver.try_acquire(attempt, seconds)
            return None if state is None else self._lease(state)
        except BaseException as error:
            self._driver.undo(attempt, error)
            raise

    def resize(self, limit: int | None) -> None:
        """Set the number of permits for all clients, regardless of the limits that they use.

        With a larger limit, waiters are granted at once. With a smaller one, holders keep their permits, and waiters
        are granted when enough permits have been released; waiters that request more than the new limit get
        LimitExceeded. The server forgets the limit 30 days after the last acquire or renewal. Of two calls at once, the
        later counts.

        Args:
            limit: The number of permits, from 1 to 1,000,000,000. None restores the limits that the clients use.

        Raises:
            TypeError: ``limit`` is neither an int nor None.
            ValueError: ``limit`` is out of range.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        new_limit = 0 if limit is None else check_int(limit, "limit", MAX_PERMITS)
        self._driver.run(admin.resize(self._request, new_limit, self._driver.label), self.name)

    def _lease(self, state: LeaseState) -> SemaphoreLease:
        return SemaphoreLease(self._driver, state, self._on_lost)


name_publicly(globals(), "handfast")
