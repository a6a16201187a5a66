"""Making, acquiring and releasing the primitive of a run: a lock, a semaphore's permit, or one side of a read-write lock.

All of these have the same methods. Which one it is matters only here, where it is made, and in `messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import click

from handfast._kinds import MAX_SLOTS
from handfast.cli.connect import server_url, unreachable
from handfast.cli.durations import limit
from handfast.cli.exits import UNAVAILABLE, USAGE
from handfast.cli.holding import fences_around
from handfast.cli.program import say
from handfast.cli.taking.messages import describe_conflict, describe_taken
from handfast.cli.taking.options import Options

if TYPE_CHECKING:
    from handfast import Handfast, Lease, Lock, ReadLock, Semaphore, WriteLock

__all__ = ["acquire", "connect", "release", "slot"]

Primitive: TypeAlias = "Lock | Semaphore | ReadLock | WriteLock"


def connect(options: Options) -> tuple[Handfast, Primitive]:
    """Return the client and the primitive that the options name. The embedded server is started if it is needed."""
    from handfast import Handfast, HandfastError

    try:
        client = Handfast(server_url(options.url), namespace=options.namespace, label=options.label)
        return client, _primitive(client, options)
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    except (HandfastError, OSError) as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _primitive(client: Handfast, options: Options) -> Primitive:
    name, ttl, max_hold = options.name, options.ttl, options.max_hold
    if options.slots is not None:
        return client.semaphore(name, options.slots, ttl=ttl, max_hold=max_hold)
    if options.shared:
        return client.rwlock(name, ttl=ttl, max_hold=max_hold).read()
    if options.exclusive:
        return client.rwlock(name, ttl=ttl, max_hold=max_hold).write()
    return client.lock(name, ttl=ttl, at_least=options.at_least, max_hold=max_hold)


def acquire(options: Options, primitive: Primitive) -> Lease:
    """Acquire the lease. Raises click's Exit with the exit code that says why it was not granted."""
    from redis.exceptions import RedisError

    from handfast import AcquireTimeout, HandfastError, QueueFull, Superseded

    try:
        # Asked before the wait, which would never end: a run that does not wait gets its answer anyway.
        if options.wait_timeout != 0 and _would_deadlock(options, primitive):
            say(
                f"{options.name!r} is held by a `handfast run` around this one, which ends only after it; use another NAME, or -n"
            )
            raise click.exceptions.Exit(USAGE)
        return _acquired(options, primitive)
    except AcquireTimeout as error:
        message = describe_conflict(options, error.status) if error.status else describe_taken(options)
        if error.timeout:
            message += f"; gave up after {limit(error.timeout)}"
    except Superseded as error:
        message = str(error)
    except QueueFull as error:
        message = f"the queue of {options.name!r} is full: {error.waiting} are waiting"
    except HandfastError as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    except (RedisError, OSError) as error:
        say(f"{options.name!r} was not acquired: {unreachable(error)}")
        raise click.exceptions.Exit(UNAVAILABLE) from None
    # Only the three errors of a taken name come here; the others end with a code of their own.
    if not options.skip_ok:
        say(message)
    raise click.exceptions.Exit(options.busy_code)


def _acquired(options: Options, primitive: Primitive) -> Lease:
    from handfast import Lock, Semaphore

    timeout = options.wait_timeout
    if not (options.preempt or options.replace):
        return primitive.acquire(timeout=timeout, head_start=options.head_start)
    assert isinstance(primitive, Lock | Semaphore)  # noqa: S101 -- see `Options.of`
    if options.replace:
        return primitive.replace(timeout=timeout)
    return primitive.preempt(
        timeout=timeout, grace=5.0 if options.grace is None else options.grace, reason="a later run"
    )


def slot(lease: Lease, options: Options) -> dict[str, str]:
    """Return the variable with the number of the slot; nothing for other kinds, and where there are too many slots.

    Raises click's Exit if the server does not give the number.
    """
    from redis.exceptions import RedisError

    from handfast import HandfastError, SemaphoreLease

    if not isinstance(lease, SemaphoreLease) or (options.slots or 0) > MAX_SLOTS:
        return {}
    try:
        return {"HANDFAST_SLOT": str(lease.slot())}
    except (HandfastError, RedisError, OSError, ValueError) as error:
        say(
            f"no slot of {options.name!r} was assigned: {error if isinstance(error, HandfastError) else unreachable(error)}"
        )
        raise click.exceptions.Exit(UNAVAILABLE) from None


def _would_deadlock(options: Options, primitive: Primitive) -> bool:
    """Return whether this run would wait for one that it is inside: the server has a lease with the fence of that one.

    Of slots, others may come free.
    """
    around = fences_around()
    if not around or options.slots is not None:
        return False
    status = primitive.status()
    return any(
        one.fence in around and not one.released and (one.exclusive or not options.shared or status.waiting)
        for one in status.holders
    )


def release(lease: Lease) -> None:
    """Release the lease. A lost lease is not released: that would only wait for a server that may be unreachable."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    if lease.lost:
        return
    try:
        lease.release()
    except (HandfastError, RedisError, OSError) as error:
        say(f"could not release the lease of {lease.name!r}, which expires after its ttl: {unreachable(error)}")
