"""Requests: the calls of the engine's scripts, packed as far as they can be before there is a token.

A `PermitRequest` asks for permits of a name, with a weight and a limit; a lock has weight 1 and limit 1. A
`MultiRequest` asks for a permit of each of several locks. Protocols and drivers treat the two alike. In a cluster a
call reaches the names of a single slot only: there the ``groups`` of a request are acquired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, ClassVar, Self

from handfast._engine.constants import CLAIM_MS, TOKEN_SIZE, WAIT_MS
from handfast._engine.effects import Acknowledgement, Answer, Call, Found, Joining, make_call
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.records import encode_label, owner_text, reason_word, ttl_word, words_of
from handfast._engine.resp import bulk
from handfast._engine.script import LuaScript, load, pack
from handfast._engine.slots import slot_of_key
from handfast._engine.validate import check_value
from handfast._kinds import MAX_PERMITS
from handfast.errors import LimitExceeded, QueueFull

__all__ = ["ANY_HOLD", "NO_HOLD", "MultiRequest", "PermitRequest", "Request"]

ACQUIRE, CONFIRM, RENEW, RELEASE = (load(f"permit_{verb}") for verb in ("acquire", "confirm", "renew", "release"))
CANCEL, REVOKE, INSPECT = load("permit_cancel"), load("permit_revoke"), load("permit_inspect")
LOWER, RESIZE, MULTI_ACQUIRE = load("permit_lower"), load("permit_resize"), load("multi_acquire")
ADOPT, SLOT, OVERTAKE = load("permit_adopt"), load("permit_slot"), load("permit_overtake")
HOLD = load("permit_hold")

ANY_HOLD, NO_HOLD = -1, 0
"""In place of the end of a hold: the caller knows nothing, or that there was none."""

PARTS = "state", "tokens"
"""The keys of a name."""

_pack_caller = Struct("<d").pack
"""The caller's number, packed: the last number of a record."""


_TICKET_SIZE = len(doubles(0) + b"\r\n")


def _with_ticket(request: bytes, ticket: int) -> bytes:
    """Replace the ticket at the end of a packed request, and return the result."""
    return b"%b%b\r\n" % (request[:-_TICKET_SIZE], doubles(ticket))


class Request(ABC):
    """The request of a caller, as calls ready to be sent."""

    __slots__ = (
        *("acknowledgement", "at_least_ms", "grant_ms", "max_hold", "name", "options", "renew"),
        *("timeout", "ttl_ms"),
    )

    trusts_messages: ClassVar[bool] = True
    """Whether a grant message is a grant. Else it only wakes the waiter, which then asks again."""

    def __init__(self, name: str, options: LeaseOptions) -> None:
        self.name: str = name
        self.options: LeaseOptions = options
        self.ttl_ms: int = options.ttl_ms
        self.renew: bool = options.renew
        self.timeout: float | None = options.timeout
        self.max_hold: float = options.max_hold
        self.at_least_ms: int = options.at_least_ms
        self.acknowledgement: Acknowledgement | None = options.acknowledgement
        self.grant_ms: int = max(self.ttl_ms, self.at_least_ms)
        """How long a grant lasts before its first renewal, in milliseconds."""

    def is_acknowledged(self, answer: Answer) -> bool:
        """Return whether at least the requested number of replicas has the writes of this renewal."""
        return self.acknowledgement is None or answer.replicas >= self.acknowledgement.replicas

    @property
    @abstractmethod
    def parts(self) -> tuple[PermitRequest, ...]:
        """The requests for the single names."""

    @property
    @abstractmethod
    def groups(self) -> tuple[Request, ...]:
        """The same request split by slot, in the order of the slots."""

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return self.parts[0].place.kind

    @property
    def names(self) -> tuple[str, ...]:
        """The requested names."""
        return tuple(part.name for part in self.parts)

    @abstractmethod
    def adapted(self, rename: Callable[[str], str], timeout: float | None) -> Self:
        """Return the same request for other names, and with another timeout."""

    def with_head_start(self, head_start_us: int) -> Request:  # noqa: ARG002 -- for permits of one name
        """Return the same request with another head start. Raises TypeError where there is none."""
        raise TypeError(f"{self.name!r} are several locks, whose queues have no head start; leave head_start out")

    @abstractmethod
    def acquire(self, token: bytes, ticket: int = 0, *, caller: int = 0) -> Call:
        """Acquire, or enter the queue: at the end less the head start; with a ticket, where the token stood before."""

    @abstractmethod
    def try_acquire(self, token: bytes, *, caller: int = 0) -> Call:
        """Acquire, or leave the queue as it is."""

    @abstractmethod
    def release(self, token: bytes, *, copies: bool = False) -> Call:
        """Release a lease. ``copies``: whether a copy of the acquire may still be on the way to the server."""

    @abstractmethod
    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease last ``ttl_ms`` from now, or longer if it already does."""

    def confirm(self, token: bytes) -> Call | None:  # noqa: ARG002 -- for subclasses
        """Confirm a grant that was handed over, for all of ``grant_ms``.

        Return None where the grant lasts so long already, or waiters are only woken.
        """
        return None

    @abstractmethod
    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, whatever it has reached."""

    def found(self, tag: bytes, *fields: Any) -> Found | None:  # noqa: ARG002 -- for `once`
        """Return the record in a reply, if it comes in place of a lease; None if there is none."""
        return None

    def rejection(self, tag: bytes, *fields: Any) -> Exception:
        """Return the error for a reply by which the request is neither granted nor in the queue."""
        return QueueFull(self.name, fields[0]) if tag == b"full" else LimitExceeded(self.name, fields[0])


class PermitRequest(Request):
    """Permits of a name: ``weight`` of ``limit``. A lock stays taken for ``at_least_ms`` since the grant."""

    __slots__ = (
        "_head",
        "_join",
        "_keys",
        "_queue",
        "_tail",
        "_try_tail",
        "_value",
        "_wants",
        "_whole_grant",
        "limit",
        "place",
        "weight",
    )

    def __init__(self, place: KeySet, options: LeaseOptions, *, limit: int = 1, weight: int = 1) -> None:
        super().__init__(place.name, options)
        grant_ms, max_waiters = self.grant_ms, options.max_waiters
        self.place: KeySet = place
        self.limit: int = limit
        self.weight: int = weight
        keys = [bulk(place.key(part)) for part in PARTS]
        self._keys = b"".join(keys)
        self._head = b"%b$%d\r\n" % (self._keys, TOKEN_SIZE)
        self._whole_grant = bulk(grant_ms)
        words = words_of(options.value, options.head_start_us)
        self._value = words + ttl_word(options.ttl_ms)
        self._join = Joining(keys[0], self._whole_grant) if limit == 1 and not words else None
        self._queue = bulk(doubles(grant_ms, WAIT_MS, max_waiters, -options.head_start_us))
        self._tail = b"\r\n" + self._queue
        self._try_tail = b"\r\n" + bulk(doubles(grant_ms, 0, max_waiters, 0))
        self._wants = doubles(weight, limit, min(grant_ms, CLAIM_MS))

    def with_weight(self, weight: int) -> PermitRequest:
        """Return the same request for ``weight`` permits."""
        return self if weight == self.weight else self._like(self.place, weight)

    def with_head_start(self, head_start_us: int) -> PermitRequest:
        """Return the same request with another head start."""
        if head_start_us == self.options.head_start_us:
            return self
        return self._like(self.place, self.weight, head_start_us=head_start_us)

    def overtaking(self, head_start_us: int) -> PermitRequest:
        """Return the same request with another head start, to be sent where the queue is full, too."""
        return self._like(self.place, self.weight, head_start_us=head_start_us, max_waiters=MAX_PERMITS)

    def granted(self, weight: int, at_least_ms: int) -> PermitRequest:
        """Return the same request with the weight and ``at_least_ms`` of another client's grant."""
        return self._like(self.place, weight, at_least_ms=at_least_ms)

    def showing(self, value: str) -> PermitRequest:
        """Return the same request with a value for others to see."""
        return self._like(self.place, self.weight, value=check_value(value))

    @property
    def parts(self) -> tuple[PermitRequest, ...]:
        """The request itself."""
        return (self,)

    @property
    def groups(self) -> tuple[PermitRequest, ...]:
        """The request itself."""
        return (self,)

    def adapted(self, rename: Callable[[str], str], timeout: float | None) -> PermitRequest:
        """Return the same request for another name, and with another timeout."""
        return self._like(self.place.renamed(rename(self.name)), self.weight, timeout=timeout)

    def acquire(self, token: bytes, ticket: int = 0, *, caller: int = 0) -> Call:
        number = _pack_caller(caller)
        if ticket or len(token) != TOKEN_SIZE:
            args = self._keys + bulk(token) + _with_ticket(self._queue, ticket)
            return Call(ACQUIRE.prefix, args, waiter=token, wants=self._wants, caller=number, value=self._value)
        return make_call(
            (
                ACQUIRE.prefix,
                self._head,
                token,
                self._tail,
                token,
                self._wants,
                number,
                self._join,
                False,
                None,
                None,
                self._value,
            )
        )

    def try_acquire(self, token: bytes, *, caller: int = 0) -> Call:
        number = _pack_caller(caller)
        if len(token) != TOKEN_SIZE:
            args = b"%b$%d\r\n%b%b" % (self._keys, len(token), token, self._try_tail)
            return Call(ACQUIRE.prefix, args, waiter=token, wants=self._wants, caller=number, value=self._value)
        return make_call(
            (
                ACQUIRE.prefix,
                self._head,
                token,
                self._try_tail,
                token,
                self._wants,
                number,
                self._join,
                False,
                None,
                None,
                self._value,
            )
        )

    def release(self, token: bytes, *, copies: bool = False) -> Call:
        options = ("copies" * copies, self.at_least_ms * 1000) if copies or self.at_least_ms else ()
        if options or len(token) != TOKEN_SIZE:
            return Call(RELEASE.prefix_for(len(PARTS), 1 + len(options)), self._keys + pack((token, *options)))
        return make_call(
            (RELEASE.prefix, self._head, token, b"\r\n", b"", b"", b"", self._join, False, None, None, b"")
        )

    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        args = self._keys + bulk(token) + bulk(ttl_ms)
        return Call(RENEW.prefix, args, acknowledgement=self.acknowledgement)

    def confirm(self, token: bytes) -> Call | None:
        if self.grant_ms <= CLAIM_MS:
            return None
        return Call(CONFIRM.prefix, b"%b$%d\r\n%b\r\n%b" % (self._keys, len(token), token, self._whole_grant))

    def cancel(self, token: bytes) -> Call:
        return Call(CANCEL.prefix, self._keys + bulk(token))

    def rejection(self, tag: bytes, *fields: Any) -> Exception:
        if tag == b"exceeds_limit":
            return LimitExceeded(self.name, fields[0], self.weight)
        return super().rejection(tag, *fields)

    def adopt(self, token: bytes, control: str, label: str) -> Call:
        """Note the control channel and the label of the client that keeps a lease from now on."""
        return self._call(ADOPT, token, f"{control} {encode_label(label)}")

    def slot(self, token: bytes, prefer: int) -> Call:
        """Give a holder a number: ``prefer`` if it is free; if not, and for -1, the smallest free number."""
        return self._call(SLOT, token, prefer)

    def overtake(self, token: bytes, grace_ms: int, by: str, reason: str) -> Call:
        """Dismiss all who came before a waiter, and ask the holders to end within ``grace_ms``; -1 asks none.

        ``by``: the label of the client.
        """
        return self._call(OVERTAKE, token, grace_ms, encode_label(by), reason)

    def lower(self, token: bytes) -> Call:
        """Keep only this request's weight of a lease."""
        return self._call(LOWER, token, self.weight)

    def resize(self, limit: int, by: str = "") -> Call:
        """Set the limit in force for all clients; 0 lets each client bring a limit again.

        ``by``: the operator's label.
        """
        return self._call(RESIZE, limit, encode_label(by))

    def revoke(self, up_to_fence: int, reason: str, start: int = 0, by: str = "", least_fence: int = 0) -> Call:
        """Take away the leases with a fence from ``least_fence`` to ``up_to_fence``, in the order of their ends.

        ``start``: the lease end to begin at.
        """
        return self._call(REVOKE, up_to_fence, reason, start, encode_label(by), least_fence)

    def hold(
        self, ttl_ms: int, grace_ms: int, reason: str, by: str, *, shown_us: int = ANY_HOLD, start: int = 0
    ) -> Call:
        """Let no caller in for ``ttl_ms``. Ask the holders to end within ``grace_ms``; -1 asks none.

        A ``ttl_ms`` of 0 ends the hold; with a grace the hold goes on, and the holders are asked again, from the lease
        end ``start`` on. ``by``: the label of the operator's client. ``shown_us``: the end of the only hold meant;
        `NO_HOLD` where there was none.
        """
        owner = owner_text("-", "-", by).encode() + reason_word(reason)
        return self._call(HOLD, doubles(ttl_ms, grace_ms, shown_us, start), encode_label(by), reason, owner)

    def inspect(self, max_shown: int = 100) -> Call:
        """Read the state of the name, with at most ``max_shown`` holders and as many waiters."""
        return Call(INSPECT.prefix, self._keys + bulk(max_shown))

    def _like(self, place: KeySet, weight: int, **changed: Any) -> PermitRequest:
        return PermitRequest(place, self.options._replace(**changed), limit=self.limit, weight=weight)

    def _call(self, script: LuaScript, *args: bytes | str | int) -> Call:
        return Call(script.prefix, pack((*map(self.place.key, script.header.keys), *args)))


class MultiRequest(Request):
    """Several locks, all or none of them. A group of them has the name of the whole, which errors and records show."""

    __slots__ = ("_groups", "_keys", "_parts", "_queue", "_try")

    def __init__(self, places: Sequence[KeySet], options: LeaseOptions, *, name: str | None = None) -> None:
        super().__init__(name or ", ".join(place.name for place in places), options)
        ttl_ms, renew, max_waiters = options[:3]
        self._parts = tuple(PermitRequest(place, LeaseOptions(ttl_ms, renew)) for place in places)
        self._groups: tuple[MultiRequest, ...] = ()
        self._keys = pack(place.key(part) for place in places for part in PARTS)
        self._queue = bulk(doubles(ttl_ms, WAIT_MS, max_waiters, 0))
        self._try = bulk(doubles(ttl_ms, 0, max_waiters, 0))

    @property
    def parts(self) -> tuple[PermitRequest, ...]:
        """The requests for the single locks."""
        return self._parts

    @property
    def groups(self) -> tuple[MultiRequest, ...]:
        """The same request split by slot, in the order of the slots, which all callers share."""
        if not self._groups:
            slots: dict[int, list[KeySet]] = {}
            for part in self.parts:
                slots.setdefault(slot_of_key(part.place.tag.encode()), []).append(part.place)
            several = (MultiRequest(slots[slot], self.options, name=self.name) for slot in sorted(slots))
            self._groups = (self,) if len(slots) == 1 else tuple(several)
        return self._groups

    def adapted(self, rename: Callable[[str], str], timeout: float | None) -> MultiRequest:
        """Return the same request for other names, and with another timeout. Equal new names count once."""
        places = {part.name: part.place for part in (one.adapted(rename, timeout) for one in self.parts)}
        return MultiRequest([*places.values()], self.options._replace(timeout=timeout))

    def acquire(self, token: bytes, ticket: int = 0, *, caller: int = 0) -> Call:
        """Acquire all, or enter every queue."""
        return self._call(MULTI_ACQUIRE, bulk(token) + _with_ticket(self._queue, ticket), token, caller)

    def try_acquire(self, token: bytes, *, caller: int = 0) -> Call:
        return self._call(MULTI_ACQUIRE, bulk(token) + self._try, token, caller)

    def release(self, token: bytes, *, copies: bool = False) -> Call:
        """Release a lease, or the locks left of it."""
        prefix = RELEASE.prefix_for(len(self.parts) * len(PARTS), 1 + copies)
        return Call(prefix, self._keys + bulk(token) + bulk("copies") * copies)

    def renew_for(self, token: bytes, ttl_ms: int) -> Call:
        """Let a lease that still has all its locks last ``ttl_ms`` from now, or longer if it already does."""
        return self._call(RENEW, pack((token, ttl_ms)))._replace(acknowledgement=self.acknowledgement)

    def cancel(self, token: bytes) -> Call:
        return self._call(CANCEL, bulk(token))

    def _call(self, script: LuaScript, args: bytes, waiter: bytes = b"", caller: int = 0) -> Call:
        prefix = script.prefix_for(len(self.parts) * len(PARTS), len(script.header.args))
        value = ttl_word(self.options.ttl_ms) if waiter else b""
        return Call(prefix, self._keys + args, waiter=waiter, wants=waiter and doubles(1, 1, 0, caller), value=value)
