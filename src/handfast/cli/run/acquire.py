"""Making, acquiring and releasing what a run holds: a lock, a semaphore's permit, or one side of a read-write lock.

All of these have the same methods. Which one it is matters only here, where it is made, and in `messages`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias

import click

from handfast.cli.connect import UNAVAILABLE, server_url
from handfast.cli.run.messages import describe_conflict, describe_taken, say
from handfast.cli.run.options import Options

if TYPE_CHECKING:
    from handfast import Handfast, Lease, Lock, ReadLock, Semaphore, WriteLock

__all__ = ["acquire", "connect", "release"]

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
    if options.slots is not None:
        return client.semaphore(options.name, options.slots, ttl=options.ttl)
    if options.shared:
        return client.rwlock(options.name, ttl=options.ttl).read()
    if options.exclusive:
        return client.rwlock(options.name, ttl=options.ttl).write()
    return client.lock(options.name, ttl=options.ttl)


def acquire(options: Options, primitive: Primitive) -> Lease:
    """Acquire the lease. Raises click's Exit with the exit code that says why it was not granted."""
    from redis.exceptions import RedisError

    from handfast import AcquireTimeout, HandfastError, QueueFull

    try:
        if options.wait_timeout != 0:
            return primitive.acquire(timeout=options.wait_timeout)
        lease = primitive.try_acquire()
        if lease is not None:
            return lease
        message = _conflict(options, primitive)
    except AcquireTimeout as error:
        message = f"{_conflict(options, primitive)}; gave up after {error.timeout:g} s"
    except QueueFull as error:
        message = f"the queue of {options.name!r} is full: {error.waiting} are waiting"
    except (HandfastError, RedisError, OSError) as error:
        say(str(error))
        raise click.exceptions.Exit(UNAVAILABLE) from None
    if not options.skip_ok:
        say(message)
    raise click.exceptions.Exit(options.busy_code)


def _conflict(options: Options, primitive: Primitive) -> str:
    """Ask the server who holds the name. Without an answer, say only that it was taken."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    with contextlib.suppress(HandfastError, RedisError, OSError):
        return describe_conflict(options, primitive.status())
    return describe_taken(options)


def release(lease: Lease) -> None:
    """Release the lease. A lost lease is not released: that would only wait for a server that may be unreachable."""
    from redis.exceptions import RedisError

    from handfast import HandfastError

    if lease.lost:
        return
    try:
        lease.release()
    except (HandfastError, RedisError, OSError) as error:
        say(f"could not release the lease of {lease.name!r}, which expires after its ttl: {error}")
