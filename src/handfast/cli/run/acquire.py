"""What a run holds while its command runs: a lock, a slot of a semaphore, or a side of a read-write lock.

All of them have the same verbs. Which one it is shows here, where it is made, and in the words of `telling`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias

import click

from handfast.cli.connect import server_url
from handfast.cli.run.messages import say, was_taken, who_has
from handfast.cli.run.options import Order, Usage

if TYPE_CHECKING:
    from handfast import Handfast, Lease, Lock, ReadLock, Semaphore, WriteLock

__all__ = ["Wanted", "give_up", "take", "what_to_take"]

Wanted: TypeAlias = "Lock | Semaphore | ReadLock | WriteLock"

UNAVAILABLE = 69
"""As in sysexits.h."""


def what_to_take(order: Order) -> tuple[Handfast, Wanted]:
    """The client and what is to be taken, untouched."""
    from handfast import Handfast, HandfastError

    try:
        client = Handfast(server_url(order.url), namespace=order.namespace, label=order.label)
        return client, _wanted(client, order)
    except ValueError as error:
        raise Usage(str(error), click.get_current_context()) from None
    except (HandfastError, OSError) as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _wanted(client: Handfast, order: Order) -> Wanted:
    if order.slots is not None:
        return client.semaphore(order.name, order.slots, ttl=order.ttl)
    if order.shared:
        return client.rwlock(order.name, ttl=order.ttl).read()
    if order.exclusive:
        return client.rwlock(order.name, ttl=order.ttl).write()
    return client.lock(order.name, ttl=order.ttl)


def take(order: Order, wanted: Wanted) -> Lease:
    """The lease, or the end with the exit code that says why there is none."""
    from redis.exceptions import RedisError

    from handfast import AcquireTimeout, HandfastError, QueueFull

    try:
        if order.patience != 0:
            return wanted.acquire(timeout=order.patience)
        lease = wanted.try_acquire()
        if lease is not None:
            return lease
        message = _why_not(order, wanted)
    except AcquireTimeout as error:
        message = f"{_why_not(order, wanted)}; gave up after {error.timeout:g} s"
    except QueueFull as error:
        message = f"{error.waiting} are already waiting for {order.name!r}"
    except (HandfastError, RedisError, OSError) as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    if not order.skip_ok:
        say(message)
    raise click.exceptions.Exit(order.busy_code)


def _why_not(order: Order, wanted: Wanted) -> str:
    """Why there was nothing to be had, as far as it can still be seen."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    with contextlib.suppress(HandfastError, RedisError, OSError):
        return who_has(order, wanted.status())
    return was_taken(order)


def give_up(lease: Lease) -> None:
    """Release the lease, unless it is lost: there is nothing left then, and a server that is gone need not be asked."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    if lease.lost:
        return
    try:
        lease.release()
    except (HandfastError, RedisError, OSError) as error:
        say(f"could not release the lease of {lease.name!r}, it ends by itself after its ttl: {error}")
