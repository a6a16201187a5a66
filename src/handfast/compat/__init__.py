"""Drop-in replacements for the locks of redis-py, on the same keys: swap the class, keep everything else.

    lock = client.lock("report", timeout=30, lock_class=RedisLock)
    lock = client.lock("report", timeout=30, lock_class=AsyncRedisLock)

`RedisLock` and `AsyncRedisLock` are subclasses of ``redis.lock.Lock`` and ``redis.asyncio.lock.Lock``, so code
typed, patched or checked with ``isinstance`` for those classes takes them. The lock is the same plain key with the same
kind of value: clients with redis-py's class and clients with this class exclude each other, so both may run during a
migration.

Improvements:

- ``blocking_timeout`` is waited out. redis-py gives up as soon as another ``sleep`` would exceed it.
- Waiters ask at once when the key's TTL ends, too.
- A lost reply, after which redis-py sends the command again, does no harm: an acquire recognises its own grant
  (redis-py's returns False and leaves the key), a release stays a release, and an ``extend`` is added once.
- An acquire that raises or is cancelled takes back any grant it may have got, and an interrupted release is completed.
  The caller waits for this at most 1 s; then it continues in the background for up to 20 s, in a thread or a task. If the
  server can't be reached for 20 s, a warning is logged (``handfast.compat``) and the key stays until its
  ``timeout`` ends; a key without a ``timeout`` stays until it is deleted.
- The token is dropped only when the server has confirmed the release, so ``release`` may be called again.
- In a thread without a token, ``release`` raises LockError. redis-py raises AttributeError.
- Tokens can't be guessed. redis-py makes them of the time and the network card's address.
- A ``timeout`` of 0 raises ValueError. In redis-py it makes an endless lock; None still does, and is the
  default.

Unchanged: waiters ask every ``sleep`` seconds. By default the token is in thread-local storage, which all
tasks of an event loop share. A loss is found only by the next call, there is neither renewal nor a fence, and waiters
are not served in order. `handfast.Handfast.lock` has all of these.

Each release, each ``extend`` that adds, and each acquire taken back or given a ``token`` is remembered for one
to ten minutes in a small key. The key's name begins with the lock's, it shares its slot in a cluster, and it always has a
TTL.
"""

from __future__ import annotations

from handfast._naming import name_publicly
from handfast.compat._aio import AsyncRedisLock
from handfast.compat._sync import RedisLock

__all__ = ["AsyncRedisLock", "RedisLock"]

name_publicly(globals())
