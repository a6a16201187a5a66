"""The errors of Handfast, by where the cause lies.

    HandfastError
    ├── AcquireTimeout      contention: the name stayed taken for the whole timeout (*)
    ├── AcquireCancelled    caller: cancel= was set while the call waited (sync API)
    ├── QueueFull           contention: the queue has max_waiters requests already
    ├── Superseded          contention: a later request took its place in the queue
    ├── LimitExceeded       operator: it was resized below what is requested
    ├── RateLimited         contention: a limiter did not admit it within the timeout (*)
    ├── BudgetExceeded      contention: the amount does not fit into the rest of a budget
    ├── BudgetMismatch      set-up: a budget was made with another period, zone or begin
    ├── WaitTimeout         contention: a latch was not open within the timeout (*)
    ├── AlreadyRunning      contention: another caller runs this key now
    ├── NotCompleted        run: it failed or did not end, and is not repeated
    ├── KeyReused           caller: the key was used with another fingerprint
    ├── LeaseLost           time or operator: the lease expired, was revoked, or vanished
    │   └── Preempted       contention: a later request asked the holder to end
    ├── NotHeld             caller: the lease was released or detached already
    ├── NotOwner            caller: another thread or task holds the rlock (**)
    ├── WouldDeadlock       caller: the acquire would wait for the caller's own block (**)
    ├── ClientClosed        caller: the client was closed before or during the call
    ├── NoServer            set-up: no server was named and none could be started
    ├── ScriptError         script: a Lua script of the user's failed, and on which line
    ├── ServerUnsupported   set-up: the server or the client lacks a feature
    ├── ServerRefused       server: out of memory, read-only, no permission
    │   ├── NotReplicated   server: fewer replicas than min_replicas have the lease
    │   └── UnknownLayout   versions: a newer Handfast stored the name in another layout
    └── StaleFence          resource: it has seen a larger fence (in ``handfast.fencing``)

(*) also a TimeoutError; (**) also a RuntimeError.

Every error has the ``name`` of its lock or script, and its message says what to do. Errors are picklable. Connection errors
of redis-py (``redis.exceptions.ConnectionError`` and ``TimeoutError``) are not wrapped: they pass through unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from handfast._amounts import amount_text
from handfast._naming import name_publicly

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from handfast.records import Holder, LockStatus

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "AlreadyRunning",
    "BudgetExceeded",
    "BudgetMismatch",
    "ClientClosed",
    "HandfastError",
    "KeyReused",
    "LeaseLost",
    "LimitExceeded",
    "NoServer",
    "NotCompleted",
    "NotHeld",
    "NotOwner",
    "NotReplicated",
    "Preempted",
    "QueueFull",
    "RateLimited",
    "ScriptError",
    "ServerRefused",
    "ServerUnsupported",
    "Superseded",
    "UnknownLayout",
    "WaitTimeout",
    "WouldDeadlock",
]


MAX_OTHERS = 2
"""How many holders a message names beside the first."""


class HandfastError(Exception):
    """Base class of all errors of Handfast.

    Attributes:
        name: The name of the lock or script concerned; None where there is none.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class: the arguments of the subclasses' __init__ are not in args.
        return _rebuild, (type(self), self.args, vars(self))


class AcquireTimeout(HandfastError, TimeoutError):
    """Others held the name, or stood before this request in the queue, for the caller's whole timeout.

    Neither a lease nor a queue entry remains on the server. A server that can't be reached or does not answer is never
    the cause: then the connection errors of redis-py are raised.

    Attributes:
        timeout: The timeout of the call, in seconds.
        status: Holders and waiters right after the timeout, as `LockStatus`; with several names, those of the first name
            not free. None if the server did not say.
        position: How many requests stood before this request in the queue, by the server's last reply; None if it was not
            in the queue.
    """

    def __init__(
        self,
        name: str,
        timeout: float,
        status: LockStatus | None = None,
        position: int | None = None,
        taken: str | None = None,
    ) -> None:
        what = f"could not be acquired within {timeout:g} s" if timeout else "is not free"
        which = "it" if taken in (name, None) else repr(taken)
        ahead = f"; {position} stood before it in the queue" if position else ""
        advice = "; use a longer timeout=" if timeout else ""
        super().__init__(f"{name!r} {what}: {_taken(which, status)}{ahead}{advice}", name=name)
        self.timeout = timeout
        self.status = status
        self.position = position


class WaitTimeout(HandfastError, TimeoutError):
    """A latch was not open within the caller's whole timeout.

    Attributes:
        timeout: The timeout of the call, in seconds.
        left: How many parts were still to be done.
    """

    def __init__(self, name: str, timeout: float, left: int) -> None:
        what = f"was not open within {timeout:g} s" if timeout else "is not open"
        parts = "1 part is" if left == 1 else f"{left:,} parts are"
        super().__init__(f"{name!r} {what}: {parts} still to be done", name=name)
        self.timeout = timeout
        self.left = left


class AcquireCancelled(HandfastError):
    """The event passed as ``cancel`` was set, before the call or while it waited.

    Neither a lease nor a queue entry of the call remains on the server.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the wait for {name!r} ended because its cancel= was set; nothing was acquired", name=name)


class QueueFull(HandfastError):
    """The queue has as many requests as ``max_waiters`` allows. Nothing was changed.

    `Debounce.collect` raises it where no run has done 10,000 items.

    Attributes:
        waiting: Length of the queue.
    """

    def __init__(self, name: str, waiting: int, hint: str = "try again later or raise max_waiters=") -> None:
        super().__init__(f"{waiting} are already waiting for {name!r}; {hint}", name=name)
        self.waiting = waiting


class Superseded(HandfastError):
    """A later request took this request's place in the queue, by ``replace`` or ``preempt``. Nothing was acquired."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a later request for {name!r} took the place of this one in the queue", name=name)


class LimitExceeded(HandfastError):
    """More was requested than is ever given, as after a `Semaphore.resize` or a `Limiter.resize`. Nothing was changed.

    Attributes:
        limit: The limit in force: permits, or the cost that the tightest rate admits in a period.
        requested: The permits or the cost requested; None if not known.
        metric: The metric concerned, such as ``tokens``, of a limiter with metrics; else None.
        is_set: Whether an operator has set the limit; False where it is the caller's own.
    """

    def __init__(
        self, name: str, limit: int, requested: int | None = None, metric: str | None = None, *, is_set: bool = True
    ) -> None:
        of, by = f" {metric}" if metric else "", " (set by resize())" if is_set else ""
        wanted = "requested" if requested is None else f"the {requested} requested"
        advice = "raise the limit with resize()" if is_set else "make the limiter with a higher limit"
        super().__init__(
            f"{name!r} has a limit of {limit}{of}{by}, less than {wanted}; request less or {advice}", name=name
        )
        self.limit = limit
        self.requested = requested
        self.metric = metric
        self.is_set = is_set


class RateLimited(HandfastError, TimeoutError):
    """A limiter did not admit the call within its timeout, or was certain to take longer.

    The call counts under no rate.

    Attributes:
        timeout: The timeout of the call, in seconds; 0 if it was not to wait.
        retry_after: Seconds after which a call may be admitted, if no other call comes first. For the header
            ``Retry-After``, round it up.
        metric: Which metric has too little left, such as ``tokens``; None without metrics, or if others wait before it.
    """

    def __init__(self, name: str, timeout: float, retry_after: float, metric: str | None = None) -> None:
        what = f"does not admit this call within {timeout:g} s" if timeout else "does not admit this call now"
        short = f": too few {metric} are left" if metric else ""
        shown = f"{retry_after:.3g}" if retry_after < 100 else f"{retry_after:.0f}"
        super().__init__(f"{name!r} {what}{short}; try again after {shown} s", name=name)
        self.timeout = timeout
        self.retry_after = retry_after
        self.metric = metric


class BudgetExceeded(HandfastError):
    """The amount does not fit into the rest of a budget. Nothing is held, in no account.

    Attributes:
        scope: The account without room for it, which is also the ``name``: ``llm|acme|team-7``.
        amount: The requested amount.
        limit: The limit of the account in a period.
        spent: The sum of this period's settlements.
        held: The sum held by calls that go on, or were never settled.
        resets_at: When the next period begins, by the server's clock, in UTC; None for a budget in total.
    """

    def __init__(
        self,
        name: str,
        *,
        amount: Decimal,
        limit: Decimal,
        spent: Decimal,
        held: Decimal,
        resets_at: datetime | None,
    ) -> None:
        asked, most, used, kept = map(amount_text, (amount, limit, spent, held))
        advice = "raise the limit with set_limit()"
        if resets_at is not None:
            advice = f"the next period begins at {resets_at:%Y-%m-%d %H:%M:%S} UTC; wait, or {advice}"
        super().__init__(
            f"{asked} does not fit into the budget {name!r}: of {most}, {used} is spent and {kept} is held; {advice}",
            name=name,
        )
        self.scope = name
        self.amount = amount
        self.limit = limit
        self.spent = spent
        self.held = held
        self.resets_at = resets_at


class BudgetMismatch(HandfastError):
    """A budget was made with another period, zone or begin, and is still in use. Nothing was changed.

    Attributes:
        asked: The period, the zone and the begin of this client: ``month Europe/Berlin 15``.
        stored: Those with which the budget was made.
    """

    def __init__(self, name: str, asked: str, stored: str) -> None:
        super().__init__(
            f"the budget {name!r} was made as {stored!r} (period, zone, begins), and this client has {asked!r}; make it "
            "alike in all programs, take another name, or delete the budget with forget()",
            name=name,
        )
        self.asked = asked
        self.stored = stored


class AlreadyRunning(HandfastError):
    """Another caller runs the key now, or others wait to run it, and the caller does not wait. Nothing was changed.

    Attributes:
        holder: Who runs it, as `Holder`; None if the server did not say.
    """

    def __init__(self, name: str, holder: Holder | None) -> None:
        who = "others run it" if holder is None else f"{holder.label} has run it for {holder.held_for:.1f} s"
        super().__init__(f"{name!r} is running: {who}; try again later", name=name)
        self.holder = holder


_NOT_COMPLETED = {
    "failed": "an earlier run of {!r} failed{}",
    "begun": "an earlier run of {!r} began and did not end{}: it may have done a part of its work, or all of it",
    "unstored": "{!r} was done, but its result could not be stored{}",
}


class NotCompleted(HandfastError):
    """The key was run, has no result, and is not run again until its record ends or is deleted with ``forget()``.

    Attributes:
        state: ``"failed"``: the run raised an exception, which is remembered with ``keep_failure``, and with
            ``rerun=False``; ``"begun"``: the run has not ended, and with ``rerun=False`` it is not repeated;
            ``"unstored"``: the run was done, and the result could not be stored.
        reason: The text of the exception; empty if there is none.
    """

    def __init__(self, name: str, state: Literal["failed", "begun", "unstored"], reason: str) -> None:
        what = _NOT_COMPLETED[state].format(name, f" ({reason})" if reason else "")
        super().__init__(f"{what}; it is not run again before its record ends, or forget() deletes it", name=name)
        self.state = state
        self.reason = reason


class KeyReused(HandfastError):
    """The key was used with another fingerprint: its record belongs to another request. Nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was used for something with another fingerprint; use another key for another request", name=name
        )


class LeaseLost(HandfastError):
    """The lease ended before it was released; another client may hold the name now.

    Attributes:
        fence: The fencing token of the lost lease.
        reason: Why it was lost: it expired, it was revoked (with the operator's reason), or the server no longer had
            it.
    """

    def __init__(self, name: str, fence: int, reason: str) -> None:
        super().__init__(
            f"the lease of {name!r} with fence {fence} was lost: {reason}; "
            "stop the protected work, and discard what it has not written yet",
            name=name,
        )
        self.fence = fence
        self.reason = reason


class Preempted(LeaseLost):
    """A later request asked the holder to end, and the block ended, or is to end now, while it still holds the lease.

    Nothing was lost: everything the block has written is safe, and so are the writes of its cleanup, within the grace.

    Attributes:
        by: The label of the client with the later request.
        grace: Seconds left to the holder, counted from that request.
    """

    def __init__(self, name: str, fence: int, reason: str, by: str, grace: float) -> None:
        what = f"the lease of {name!r} with fence {fence} is to be given up within {grace:g} s"
        super(LeaseLost, self).__init__(f"{what}: {by} asks for it: {reason}", name=name)
        self.fence = fence
        self.reason = reason
        self.by = by
        self.grace = grace


class NotHeld(HandfastError):
    """The lease was released or detached already, so it can't be checked, extended, detached or downgraded."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease of {name!r} was already released or detached; acquire a new one", name=name)


class NotOwner(HandfastError, RuntimeError):
    """A reentrant lock was to be released by another thread or task than the one that acquired it.

    A call of ``release()`` has changed nothing. A ``with`` block left in the other thread or task has released its lease.
    """

    def __init__(self, name: str, what: str = "release it there") -> None:
        super().__init__(
            f"the reentrant lock {name!r} can only be released by the thread or task that acquired it; {what}; use "
            "lock() for a lease that any thread or task may release",
            name=name,
        )


class WouldDeadlock(HandfastError, RuntimeError):
    """The acquire would wait for a ``with`` block of the calling thread or task itself.

    Or, in the sync API, for a lease of a thread whose event loop this call would block.

    Nothing of it is left on the server.
    """

    def __init__(
        self, name: str, advice: str, why: str = "this caller already holds it in an enclosing with block"
    ) -> None:
        super().__init__(f"acquiring {name!r} here would deadlock: {why}; {advice}", name=name)


class ClientClosed(HandfastError):
    """The client was closed: before the call, or in another thread or task while the call waited.

    Neither a lease nor a queue entry of the call remains on the server.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__("this client was closed; 'with' opens it again", name=name)


class NoServer(HandfastError):
    """No server was named, or the embedded server can't be started here."""


class ScriptError(HandfastError):
    """A Lua script failed. Everything written before stays: scripts are atomic but are not rolled back.

    Attributes:
        line: The failed line of the script, counted from 1.
        source_line: The text of that line.
        reason: The server's message, without the position.
    """

    def __init__(self, name: str, line: int, source_line: str, reason: str) -> None:
        shown = f"\n    {line} | {source_line}" if source_line else ""
        super().__init__(f"the script {name!r} failed on line {line}: {reason}{shown}", name=name)
        self.line = line
        self.source_line = source_line
        self.reason = reason


class ServerUnsupported(HandfastError):
    """The server, or the client object passed in, lacks a feature required by Handfast."""


class ServerRefused(HandfastError):
    """The server refused the command: out of memory, read-only, too few replicas or missing permissions.

    Attributes:
        changed_nothing: True if the server is known to have refused before it wrote anything.
        reply: The server's error reply.
    """

    def __init__(self, message: str, *, name: str, changed_nothing: bool, reply: str = "") -> None:
        super().__init__(message, name=name)
        self.changed_nothing = changed_nothing
        self.reply = reply


class NotReplicated(ServerRefused):
    """Fewer replicas than ``min_replicas`` had the lease within ``replica_timeout``. An acquire has given it back.

    Attributes:
        replicas: How many had it.
    """

    def __init__(self, name: str, replicas: int, wanted: int, seconds: float) -> None:
        message = (
            f"{replicas} of {wanted} replica{'s' * (wanted != 1)} had the lease of {name!r} after {seconds:g} s; "
            "see whether the primary has its replicas, or ask for fewer with min_replicas"
        )
        super().__init__(message, name=name, changed_nothing=False)
        self.replicas = replicas


class UnknownLayout(ServerRefused):
    """The name is stored in a layout of another version of Handfast. Nothing was changed.

    Attributes:
        layout: The stored layout, such as ``layout 2``.
    """

    def __init__(self, name: str, layout: str, *, changed_nothing: bool = True, reply: str = "") -> None:
        message = (
            f"{name!r} is stored in {layout} on the server, and this version of Handfast knows layout 1 alone; update it, "
            "or use another namespace until all clients are updated"
        )
        super().__init__(message, name=name, changed_nothing=changed_nothing, reply=reply)
        self.layout = layout


def _taken(which: str, status: LockStatus | None) -> str:
    """Say who has a name, the longest holder first, or who waits for it."""
    if status is not None and status.hold is not None:
        return f"{which} is {status.hold}"
    if status is None or not (status.holders or status.waiters):
        return f"others hold {which}"
    if not status.holders:
        return f"{status.waiters[0].label} is first in its queue, for {status.waiters[0].waited_for:.1f} s"
    first, *others = sorted(status.holders, key=lambda holder: -holder.held_for)
    also = [f"{one.label} for {one.held_for:.1f} s" for one in others[:MAX_OTHERS]]
    also += [f"and {len(others) - MAX_OTHERS} more"] * (len(others) > MAX_OTHERS)
    if first.released:
        return f"{first.label} has released {which}, and it stays taken for {first.remaining:.1f} s"
    return ", ".join([f"{first.label} has held {which} for {first.held_for:.1f} s", *also])


def _rebuild(kind: type[HandfastError], args: tuple[object, ...], state: dict[str, object]) -> HandfastError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


name_publicly(globals(), "handfast")
