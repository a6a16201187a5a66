"""Names and options of other libraries, such as redis-py, threading, filelock and limits, and our names for them.

They lead to an error with the right call. The tables are read only after an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BLOCKS", "BUDGETS", "CLIENT", "LIMITS", "PERMITS", "RUNS", "unknown_options"]

CLIENT: Mapping[str, str] = {
    **dict.fromkeys(("Lock", "mutex", "Mutex", "redlock", "Redlock", "RedLock", "FileLock", "get_lock"), "use lock()"),
    **dict.fromkeys(("RLock", "reentrant_lock", "ReentrantLock"), "use rlock()"),
    **dict.fromkeys(("Semaphore", "BoundedSemaphore", "bounded_semaphore", "sem"), "use semaphore()"),
    **dict.fromkeys(("RWLock", "rw_lock", "read_write_lock", "ReadWriteLock"), "use rwlock()"),
    **dict.fromkeys(("multi_lock", "multilock", "MultiLock", "locks", "lock_many"), "use lock_all()"),
    **dict.fromkeys(
        ("rate_limit", "ratelimit", "rate_limiter", "ratelimiter", "RateLimiter", "Limiter", "limit", "throttle"),
        "use limiter()",
    ),
    **dict.fromkeys(
        ("idempotent", "idempotency", "cache", "cached", "memoize", "run_once", "singleflight"), "use once()"
    ),
    **dict.fromkeys(("quota", "spending_limit", "cost_limit", "budgets", "Budget"), "use budget()"),
    **dict.fromkeys(("disconnect", "aclose", "shutdown", "stop", "quit"), "use close()"),
    **dict.fromkeys(("keys", "list", "list_locks", "locked"), "use names() for all names, or status() of an object"),
    **dict.fromkeys(("ping", "health", "check"), "use check_server()"),
    **dict.fromkeys(("leader", "leader_election", "election"), "use lock(): its holder is the leader"),
}
"""Other names for methods of a client."""

BLOCKS = ("__enter__", "__aenter__")
"""The blocks of both APIs."""

_LEASE = "the lease has it: lease = {0}.acquire(), then lease.{1}()"

PERMITS: Mapping[str, str] = {
    **{name: _LEASE.format("lock", name) for name in ("release", "extend", "detach", "check")},
    **dict.fromkeys(("unlock", "do_release", "signal"), _LEASE.format("lock", "release")),
    **dict.fromkeys(
        ("reacquire", "renew", "refresh", "touch", "expire"),
        "leases are renewed by themselves; by hand it is lease.extend(), with lease = lock.acquire()",
    ),
    **dict.fromkeys(("owned", "is_owned", "is_mine", "lost"), "use lease.lost, with lease = lock.acquire()"),
    **dict.fromkeys(("token", "fence", "id"), "the lease has it: lease = lock.acquire()"),
    **dict.fromkeys(("is_locked", "is_acquired", "isLocked"), "use locked()"),
    **dict.fromkeys(("lock", "wait"), "use acquire()"),
    **dict.fromkeys(
        ("try_lock", "tryLock", "acquire_nowait", "acquire_lock"), "use acquire(), or try_acquire() not to wait"
    ),
    **dict.fromkeys(("owner", "get_owner_id", "lock_counter", "value", "count", "statistics"), "use status()"),
    **dict.fromkeys(("reset", "break_lock", "force_unlock", "clear"), "use force_release(reason=…)"),
}
"""Other names for methods of a lock, a semaphore or a side of a read-write lock."""

BUDGETS: Mapping[str, str] = {
    **dict.fromkeys(("spend", "charge", "consume", "debit", "hold", "authorize", "acquire"), "use reserve()"),
    **dict.fromkeys(("spent", "remaining", "balance", "usage"), "use status()"),
    **dict.fromkeys(
        ("settle", "commit", "capture", "refund", "give_back"), "the value of the block of reserve() has it"
    ),
}
"""Other names for methods of a budget."""

LIMITS: Mapping[str, str] = {
    **dict.fromkeys(("hit", "consume", "allow", "allowed", "try_acquire_nowait", "is_allowed"), "use try_acquire()"),
    **dict.fromkeys(("wait", "limit", "throttle"), "use acquire()"),
    **dict.fromkeys(("test", "peek", "get_window_stats", "get_usage", "remaining"), "use status()"),
    **dict.fromkeys(("clear", "delete", "flush"), "use reset()"),
    **dict.fromkeys(("release",), "there is nothing to release; Admission.settle() corrects a cost"),
}
"""Other names for methods of a limiter."""

RUNS: Mapping[str, str] = {
    **dict.fromkeys(("get", "get_or_set", "get_or_create", "call", "do", "execute"), "use run(function)"),
    **dict.fromkeys(("delete", "invalidate", "clear", "reset", "expire"), "use forget()"),
    **dict.fromkeys(("set", "put"), "use acquire(), and finish() of the run that it returns"),
}
"""Other names for methods of ``once``."""

_OPTIONS: Mapping[str, str] = {
    "blocking": "use try_acquire(), which does not wait",
    "block": "use try_acquire(), which does not wait",
    "nowait": "use try_acquire(), which does not wait",
    **dict.fromkeys(
        ("blocking_timeout", "acquire_timeout", "wait", "wait_timeout", "max_wait"),
        "the seconds that acquire() waits are its timeout=",
    ),
    **dict.fromkeys(
        ("expire", "expires", "expiry", "ex", "px", "lock_timeout", "lease_time", "lease", "lifetime"),
        "the seconds that a lease lasts unrenewed are ttl= of the object",
    ),
    **dict.fromkeys(("auto_renewal", "auto_renew", "auto_extend", "watchdog", "heartbeat"), "use renew="),
    **dict.fromkeys(
        (
            "sleep",
            "interval",
            "poll_interval",
            "poll_intervall",
            "retry_interval",
            "retry_delay",
            "retry_times",
            "retries",
        ),
        "leave it out: waiters queue and do not poll",
    ),
    **dict.fromkeys(
        ("thread_local", "is_singleton", "lock_class"),
        "leave it out: a token belongs to a lease, and objects hold nothing",
    ),
    **dict.fromkeys(("value", "capacity", "size", "max_leases", "permit_count"), "use limit="),
    **dict.fromkeys(("amount", "tokens", "weight", "hits"), "use cost="),
    **dict.fromkeys(("key", "keys", "identifier"), "use by= of the object, or keyed()"),
    "key_func": "use by= of the object, or keyed()",
    **dict.fromkeys(("masters", "redis", "client", "connection"), "pass the server to Handfast(…) or AsyncHandfast(…)"),
    "strict": "leave it out",
}
"""Other names for options."""


def unknown_options(method: Any, args: tuple[object, ...], options: Mapping[str, object]) -> TypeError:
    """Return the error for unknown arguments of a method, with the right call."""
    from difflib import get_close_matches

    from handfast._signatures import signature_of

    parameters = signature_of(method).parameters.values()
    name, known = method.__name__, [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    if not options:
        shown = ", ".join(map(repr, args))
        example = f"write {name}({known[0]}=…)" if args[0] is not False else "use try_acquire(), which does not wait"
        return TypeError(f"{name}() takes its options by name, and got {shown:.80}: {example}")
    unknown = next(iter(options))
    close = [f"did you mean {option}=?" for option in get_close_matches(unknown, known, 1)]
    advice = _OPTIONS.get(unknown) or "".join(close) or f"it has {', '.join(known)}"
    return TypeError(f"{name}() has no option {unknown!r}: {advice}")
