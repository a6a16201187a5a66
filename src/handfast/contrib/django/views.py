"""A view that holds a lock while it runs, around its transaction: it is committed before another request gets the lock."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from django.db import connections, transaction
from django.http import HttpResponse

from handfast import AcquireTimeout, QueueFull
from handfast._api.decorators import NameTemplate
from handfast._engine.validate import check_int
from handfast.arguments import Duration
from handfast.contrib._common import BUSY_TEXT, CHECKS, WAIT_S, Holding
from handfast.contrib.django.clients import DEFAULT, async_client, client

__all__ = ["check_no_transaction", "locked"]

LOG = logging.getLogger("handfast.django")

V = TypeVar("V", bound=Callable[..., Any])


class _Every(set[str]):
    """The databases whose transactions Django leaves to the view: all."""

    def __contains__(self, _: object) -> bool:
        return True


def locked(
    name: str, *, timeout: Duration = WAIT_S, busy: int = 423, alias: str = DEFAULT, **options: Any
) -> Callable[[V], V]:
    """Return a decorator for views, sync and async: the view runs one at a time for each name.

    The lock is taken before the transaction begins, and released after it is committed. With ``ATOMIC_REQUESTS`` the view has
    its transaction inside of the lock. Within a transaction of the caller it is refused: the next request would have the
    lock before the commit, and would read the old rows. After a lost lease the view raises LeaseLost, and the view's own
    transaction is rolled back.

    Example:
        @locked("order:{order_id}", timeout=2)
        def pay(request, order_id): ...

    Args:
        name: The name of the lock, in which fields in braces stand for arguments of the view, such as ``{request.user.pk}``.
        timeout: Seconds to wait at most, a number or a timedelta. 0 does not wait.
        busy: The status of the answer after the timeout, from 400 to 599. It has ``Retry-After: 1``.
        alias: The alias of the client, see `client`.
        options: As `Handfast.lock` takes them, such as ``ttl`` and ``max_waiters``.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: The name has a field that is no argument of the view, or an option is out of range.
        RuntimeError: When the view is called within a transaction.
    """
    if callable(name):
        raise TypeError("locked() needs a name: @locked('order:{order_id}')")
    check_int(busy, "busy, the status of the answer,", 599, least=400)
    options = {**options, "timeout": timeout}
    CHECKS.lock(name, **options)

    def decorate(view: V) -> V:
        try:
            template = NameTemplate.of([name], view)
        except ValueError as error:
            error.add_note("In a class-based view decorate the method itself, without method_decorator().")
            raise
        without: set[str] = getattr(view, "_non_atomic_requests", set())

        def filled(args: Any, kwargs: Any) -> str:
            return name if template is None else template.filled(args, kwargs)(name)

        def answer() -> HttpResponse:
            return HttpResponse(BUSY_TEXT, status=busy, headers={"Retry-After": "1"})

        @functools.wraps(view)
        def held(*args: Any, **kwargs: Any) -> Any:
            check_no_transaction()
            try:
                lease = client(alias).lock(filled(args, kwargs), **options).acquire()
            except (AcquireTimeout, QueueFull):
                return answer()
            with Holding(lease, LOG), ExitStack() as transactions:
                for database, its in connections.settings.items():
                    if its["ATOMIC_REQUESTS"] and database not in without:
                        transactions.enter_context(transaction.atomic(using=database))
                response = view(*args, **kwargs)
                if lease.lost:
                    lease.check()  # raises, so nothing is committed
                return response

        @functools.wraps(view)
        async def held_async(*args: Any, **kwargs: Any) -> Any:
            try:
                lease = await async_client(alias).lock(filled(args, kwargs), **options).acquire()
            except (AcquireTimeout, QueueFull):
                return answer()
            async with Holding(lease, LOG):
                return await view(*args, **kwargs)

        if inspect.iscoroutinefunction(view):  # Django has no transactions around async views
            return held_async  # type: ignore[return-value]
        vars(held)["_non_atomic_requests"] = _Every()  # as transaction.non_atomic_requests does
        return held  # type: ignore[return-value]

    return decorate


def check_no_transaction() -> None:
    """Raise RuntimeError within a transaction other than a TestCase's."""
    for one in connections.all(initialized_only=True):
        if any(not getattr(block, "_from_testcase", False) for block in one.atomic_blocks):
            raise RuntimeError(
                f"a lock was to be taken within a transaction of the database {one.alias!r}: it would be released before the "
                "commit; take the lock first, and begin the transaction inside of it"
            )
