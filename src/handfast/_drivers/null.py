"""The driver of a client without a server: every request is granted at once, to any number of holders.

For unit tests of code that uses locks. Names in `TAKEN` are granted to no one: so tests reach the other branch of this
code, too.

The protocols are those of the real drivers, and get the replies of a server on which every name is free. So the bounds
of arguments, the errors of a released lease, and the end of a lease without renewal are the same as with a server; and
the holder is notified of this end.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from binascii import hexlify
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import inf
from struct import Struct
from typing import Any, Literal, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from handfast._drivers.clock import monotonic, wall_clock
from handfast._drivers.driver import A
from handfast._drivers.events import Events
from handfast._drivers.losses import run_lost_callbacks
from handfast._engine.budgets import BudgetRequest
from handfast._engine.calendar import END_US
from handfast._engine.calls import PARTS, Request
from handfast._engine.contract import contract_of
from handfast._engine.defaults import DEFAULT_RESPONSE_S, NULL
from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.packing import doubles
from handfast._engine.script import lua_texts
from handfast._protocol.acquire import Attempt, BaseAttempt, Grant, try_acquire
from handfast._protocol.detached import DetachedLease, adopt
from handfast._protocol.lease import LeaseState, downgrade, number, release, renew
from handfast._protocol.limiting import Announcements, LimitAttempt
from handfast.arguments import CancelEvent
from handfast.errors import AcquireCancelled, AcquireTimeout, ClientClosed, ServerUnsupported, WouldDeadlock

__all__ = ["NullDriver"]

T = TypeVar("T")

_TIMES = Struct("<4d")
"""The first argument of ``permit_hold``."""


RETRY_AFTER_US = 1_000_000
"""After how long a limiter whose name is taken says that a call may come again."""

TAKEN: set[str] = set()
"""The names that `handfast.testing.busy` has taken."""


def _is_taken(request: Any) -> bool:
    return bool(TAKEN) and not TAKEN.isdisjoint((request.name, *getattr(request, "names", ())))


def _now_us() -> int:
    return int(wall_clock().timestamp() * 1e6)


def _arguments(call: Call) -> list[bytes]:
    found, rest = [], call.packed
    while rest:
        size, _, rest = rest.removeprefix(b"$").partition(b"\r\n")
        found.append(rest[: int(size)])
        rest = rest[int(size) + 2 :]
    return found


def _on_hold(call: Call) -> bytes:
    ttl_ms, grace_ms, shown_us, _ = _TIMES.unpack(_arguments(call)[len(PARTS)])
    if not ttl_ms and grace_ms < 0:
        return b"ended " + doubles(0, 0)
    return b"held " + doubles(int(_now_us() + ttl_ms * 1000 if ttl_ms else shown_us), 0, -1, 0)


def _states(call: Call) -> list[Any]:
    names = len(_arguments(call)) // len(PARTS)
    found = [[b"state", _now_us(), 0, 0, 0, 0, 0, 0, 0, b"", [], []] for _ in range(names)]
    return found[0] if names == 1 else found


_REPLIES: Mapping[str, Callable[[Call], Any]] = {
    "permit_renew": lambda call: b"renewed " + doubles(int(_arguments(call)[-1]) * 1000),
    "permit_inspect": _states,
    "permit_hold": _on_hold,
    "debounce_take": lambda _: [b"taken", -1, 0, 0, []],  # as of a server that has lost the item: its caller has it
    "limit_inspect": lambda call: [
        b"state",
        _now_us(),
        0,
        0,
        b"",
        b"",
        [0] * (2 * (len(_arguments(call)[-1]) // 8)),
        0,
        b"",
    ],
    "budget_inspect": lambda _: [b"state", _now_us(), 0, 0, 0, 0, -1, 0, b"", b"", 0, 0],
    "debounce_inspect": lambda _: [b"state", _now_us(), 0, 0, 0],
    "latch_inspect": lambda _: [b"state", 0, 0, []],
    "GET": lambda _: None,
    "HGETALL": lambda _: {},
    "SET": lambda _: b"OK",
    "DEL": lambda _: 0,
    "XADD": lambda _: b"0-1",
    "PEXPIRE": lambda _: 1,
    "XRANGE": lambda _: [],
    "XREVRANGE": lambda _: [],
}
"""Replies computed from the call. The headers of scripts have the others (``ALONE``). `NullDriver.acquire` makes grants."""


def _answer(call: Call) -> Answer:
    name = call.prefix.name
    alone = contract_of(name).alone if f"{name}.lua" in lua_texts() else ()
    if name in _REPLIES:
        reply = _REPLIES[name](call)
    elif alone:
        tag, *numbers = alone
        reply = f"{tag} ".encode() + doubles(*(_now_us() if word == "now_us" else int(word) for word in numbers))
    else:
        raise ServerUnsupported(
            f"{call.prefix.name!r} needs a server, and there is none behind {NULL!r}; in tests, use "
            "handfast.testing.ServerController or .embedded()"
        )
    replicas = 0 if call.acknowledgement is None else call.acknowledgement.replicas
    return Answer(monotonic(), reply, replicas=replicas)


def _perform(steps: Steps[T], first: Answer | None = None) -> T:
    """Run a protocol to its end. ``first`` answers the first call."""
    try:
        call = next(steps)
        while True:
            call = steps.send(first or _answer(cast("Call", call)))  # nothing is waited for
            first = None
    except StopIteration as end:
        result: T = end.value
        return result


class NullDriver:
    """The methods that both null drivers share. Nothing here waits, so in asyncio the same methods are awaitable."""

    address, hears, is_cluster, is_embedded, reply_s = NULL, True, False, False, DEFAULT_RESPONSE_S

    def __init__(self, label: str | None = None) -> None:
        self._label = label
        self._last_fence = 0
        self._closed = False
        self.openings = 0
        self._alarms: WeakKeyDictionary[LeaseState, Any] = WeakKeyDictionary()
        """Of the leases that end, what calls `_look` then."""
        self.callbacks = self
        self.events = Events()
        self.announcements = Announcements()

    @property
    def label(self) -> str:
        """The name by which people call this client: by default host and process."""
        return self._label or f"{os.uname().nodename}:{os.getpid()}"

    @staticmethod
    def call(callback: Callable[[], object], _name: str) -> None:
        """Call a callback for a lost lease, here and now."""
        callback()

    def receive(self, lease: LeaseState) -> None:
        """Renew a lease at its end, as a thread would have done before."""
        if lease.is_renewed:
            lease.renewed(monotonic(), lease.request.ttl_ms * 1000)

    def attempt(self, request: Request) -> Attempt:
        """Start to acquire."""
        if self._closed:
            raise ClientClosed(request.name)
        return Attempt(request, hexlify(os.urandom(16)), monotonic(), owner=self)

    def acquire(self, attempt: Attempt, timeout: float | None, cancel: CancelEvent | None = None) -> LeaseState:
        """Return a lease."""
        name = attempt.request.name
        if cancel is not None and cancel.is_set():
            raise AcquireCancelled(name)
        if _is_taken(attempt.request):
            if timeout is None:
                raise WouldDeadlock(
                    name, "give it a timeout=", "busy() has taken it in this test, and the call would wait forever"
                )
            raise AcquireTimeout(name, max(0.0, timeout))
        self._last_fence = max(self._last_fence + 1, _now_us())
        first = Answer(monotonic(), b"granted " + doubles(self._last_fence, attempt.request.grant_ms * 1000))
        grant = cast("Grant", _perform(try_acquire(attempt), first))
        lease = self._watched(LeaseState(attempt.request, attempt.token, grant, self, attempt.asked_at))
        self.events.acquired(lease, attempt)
        return lease

    @staticmethod
    @abstractmethod
    def _later(seconds: float, function: Callable[[], object]) -> Any:
        """Call a function after so many seconds, unless the returned object is cancelled."""

    def _watched(self, lease: LeaseState) -> LeaseState:
        """Notify the holder when the lease ends, as a server would let it end."""
        if not lease.is_renewed or lease.ends_at < inf:
            self._alarms[lease] = self._later(max(0.0, lease.deadline - monotonic()), partial(self._look, ref(lease)))
        return lease

    def _look(self, there: Callable[[], LeaseState | None]) -> None:
        lease = there()
        if lease is None or lease.is_released:
            return
        if lease.lost(monotonic()):
            self.events.lost(lease)
            run_lost_callbacks(lease)
        else:
            self._watched(lease)

    def _forget(self, lease: LeaseState) -> None:
        if alarm := self._alarms.pop(lease, None):
            alarm.cancel()

    def acquire_in_turns(self, attempt: Attempt, timeout: float | None, _question: Hashable) -> LeaseState:
        """Return a lease."""
        return NullDriver.acquire(self, attempt, timeout)

    def try_acquire(self, attempt: Attempt, _timeout: float | None = None) -> LeaseState | None:
        """Return a lease; None if the name is taken."""
        return None if _is_taken(attempt.request) else NullDriver.acquire(self, attempt, 0.0)

    def begin(self, kind: Callable[[Any, bytes, float], A], request: Any) -> A:
        """Start an attempt without a lease."""
        if self._closed:
            raise ClientClosed(request.name)
        return kind(request, hexlify(os.urandom(16)), monotonic())

    def wait(
        self,
        attempt: BaseAttempt,
        steps: Steps[T],
        _until: float = 0.0,
        *,
        once: bool = False,  # noqa: ARG002 -- nothing is waited for
        timeout: float | None = None,  # noqa: ARG002 -- see above
    ) -> T:
        """Perform the protocol of such an attempt. A limiter whose name is taken refuses it."""
        if isinstance(attempt, LimitAttempt) and _is_taken(attempt.request):
            return _perform(steps, Answer(monotonic(), b"refused " + doubles(RETRY_AFTER_US, 0)))
        return _perform(steps)

    def watch(self, _attempt: BaseAttempt, steps: Callable[[float], Steps[Answer]], until: float) -> Answer:
        """Return the answer without waiting."""
        return _perform(steps(until))

    def perform_later(self, lease: LeaseState, steps: Steps[object]) -> None:
        """Do nothing: there are no others."""

    def undo(self, attempt: BaseAttempt, error: BaseException | None = None) -> None:
        """Do nothing: there is nothing to leave behind."""

    def release(self, lease: LeaseState, _until: float = 0.0) -> bool:
        """Release a lease. Return False if it was lost or released before."""
        self._forget(lease)
        if lease.lost(monotonic()) or lease.is_released:
            lease.let_go(monotonic())
            return False
        released = _perform(release(lease)) and lease.claim_release()
        if released:
            self.events.released(lease)
        return released

    def leave(self, lease: LeaseState, error: BaseException | None) -> bool:
        """Release at the end of a scope that ended with this error.

        Return False if the caller is to raise LeaseLost.
        """
        return NullDriver.release(self, lease) or lease.loss is None or error is not None

    def extend(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now. Return False if it was lost."""
        return _perform(renew(lease, ttl_ms))

    def downgrade(self, lease: LeaseState, request: Any) -> bool:
        """Keep only these permits of a lease."""
        return _perform(downgrade(lease, request))

    def number(self, lease: LeaseState, prefer: int) -> tuple[int] | Literal[False]:
        """Give a lease the number 0."""
        return _perform(number(lease, prefer))

    def detach(self, lease: LeaseState, ttl_ms: int) -> bool:
        """Leave a lease to another client."""
        _perform(renew(lease, ttl_ms))
        self._forget(lease)
        lease.let_go(monotonic())
        return True

    def claim(self, _detached: DetachedLease, _name: str) -> object:
        """Return a right: any token may be adopted."""
        return self

    def adopt(self, detached: DetachedLease, request: Any, _label: str | None) -> LeaseState:
        """Hold a lease acquired by another client."""
        return self._watched(_perform(adopt(request, detached, self, None)))

    def forget(self, detached: DetachedLease) -> None:
        """Do nothing."""

    def stop_renewing(self, _lease: LeaseState) -> bool:
        """Return False: no dropped lease stays taken."""
        return False

    def run(self, steps: Steps[T], name: str, attempt: BaseAttempt | None = None) -> T:
        """Perform a protocol. A budget whose name is taken has nothing left."""
        if self._closed:
            raise ClientClosed(name)
        request = None if attempt is None else attempt.request
        if isinstance(request, BudgetRequest) and _is_taken(request):
            number = next(n for n, account in enumerate(request.accounts, 1) if account.name in TAKEN)
            limit = request.terms.limit
            return _perform(steps, Answer(monotonic(), b"exceeded " + doubles(number, limit, 0, limit, END_US)))
        return _perform(steps)

    def finish(self, steps: Callable[[], Steps[T]], name: str, _error: BaseException | None = None) -> T:
        """Perform a protocol."""
        return NullDriver.run(self, steps(), name)

    def look(self, steps: Steps[T], name: str, _timeout: float | None = None) -> T:
        """Perform a protocol without changes."""
        return NullDriver.run(self, steps, name)

    def open(self) -> None:
        """Take calls again after `close`."""
        if self._closed:
            self._closed, self.openings = False, self.openings + 1

    def is_open_since(self, opening: int) -> bool:
        """Return whether the client is open, and was not closed since opening number ``opening``."""
        return not self._closed and self.openings == opening

    def close(self, *, release: bool | None) -> None:  # noqa: ARG002 -- there is nothing to release
        """Have every further call raise ClientClosed."""
        self._closed = True
