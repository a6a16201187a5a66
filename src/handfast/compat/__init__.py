"""Locks of redis-py, done better on the very same key: swap the class, keep everything else.

    lock = client.lock("report", timeout=30, lock_class=RedisLock)
    lock = client.lock("report", timeout=30, lock_class=AsyncRedisLock)

`RedisLock` and `AsyncRedisLock` are subclasses of ``redis.lock.Lock`` and ``redis.asyncio.lock.Lock``: whatever is typed,
patched or asked with ``isinstance`` for those takes ours, and what is not better here is redis-py's own code. The lock is
the same plain key with the same kind of value, so that code with redis-py's class and code with ours exclude each
other, in both directions: during a migration both may run.

What is better:

- A release wakes those who wait with our class at once. What others do, redis-py's class among them, is noticed by
  asking again: every ``sleep`` seconds, and when the key's TTL ends.
- ``blocking_timeout`` is waited out. redis-py gives up as soon as another ``sleep`` would go past it.
- A reply that got lost, after which redis-py sends again by itself, does no harm: an acquire recognises its own grant
  (redis-py's answers False and leaves the key behind), a release stays a release, an ``extend`` is added once.
- An acquire that ends in an exception (a cancellation, Ctrl-C, an error of the network) takes back what it may have got,
  and so does a release that is interrupted. The caller waits a second for that at most, then it goes on in the
  background for 20 s: in a thread, or in a task of the event loop. If the server cannot be reached for that long, it is
  logged, and the key stays until its ``timeout`` ends, without one until somebody deletes it.
- The token is forgotten once the server agreed to the release, in both colours, and ``release`` may be called again.
- Tokens cannot be guessed. redis-py's are made of the time and the network card's address.
- A ``timeout`` of 0 is refused with ValueError, as is any other that is no time: redis-py makes a lock of it that never
  ends. None still means that, and stays the default.

What stays as it is, for better or worse: by default the token is in thread-local storage, where all tasks of an event
loop share it. Another thread has none: there ``release`` raises LockError, where redis-py's class raises AttributeError.
A loss is found out when it is too late, there is no renewal and no fence, and nobody stands in line: whoever asks first
when the lock is free gets it. For these there is ``hf.lock``; ``docs/moving-from-redis-lock.md`` shows the way.

Beside the lock's own key, each release, each ``extend`` that adds, and each acquire that was taken back or had a given
``token=`` is remembered in a small key of its own, for one to ten minutes, never without a TTL. The names of these keys
begin with the lock's and share its slot in a cluster.
"""

from __future__ import annotations

from handfast.compat._aio import AsyncRedisLock
from handfast.compat._sync import RedisLock

__all__ = ["AsyncRedisLock", "RedisLock"]

AsyncRedisLock.__module__ = RedisLock.__module__ = __name__  # as users import them: in reprs, tracebacks and help()
