"""The calls of a key of once: a separate lock, with a record of how the run ended."""

from __future__ import annotations

import struct
from copy import copy
from hashlib import sha1, sha256
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from handfast._engine.calls import PermitRequest
from handfast._engine.constants import WAIT_MS
from handfast._engine.defaults import REFRESH_PAUSE_S
from handfast._engine.effects import Call, Found
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.packing import doubles
from handfast._engine.resp import bulk
from handfast._engine.script import command, load, pack
from handfast.errors import KeyReused

__all__ = ["DROPPED", "NEVER", "Ending", "OnceRequest", "Outcome", "Record", "read_stored", "version_of"]

ACQUIRE, RECORD, CANCEL = load("once_acquire"), load("once_record"), load("once_cancel")
FORGET = load("once_forget")

VERSIONED_BYTES = 54
"""The bytes of a record that tell it from others: its time, fence, state and token."""

NEVER = -1
"""``refresh_ms`` of a record that is not made anew."""

Outcome: TypeAlias = Literal["begun", "done", "failed", "unstored"]
"""What is recorded of a run, as lua/lib/outcome.lua says."""

DROPPED: Final = "dropped"
"""The end of a run that records nothing, and leaves an earlier result as it is."""


class Ending(NamedTuple):
    """How a run has ended, for so many milliseconds."""

    outcome: Outcome | Literal["dropped"]
    value: bytes
    keep_ms: int


class Record(NamedTuple):
    """The record of a key, as the server has it."""

    at_us: int
    fence: int
    outcome: Outcome
    value: bytes


def read_stored(stored: bytes) -> Record:
    """Read a record, as lua/lib/outcome.lua says."""
    at, fence = struct.unpack_from("<dd", stored)
    rest = stored[16:]
    texts = []
    for _ in range(3):
        size = rest[0]
        texts.append(rest[1 : size + 1])
        rest = rest[size + 1 :]
    outcome = next(one for one in get_args(Outcome) if one.encode() == texts[0])
    return Record(int(at), int(fence), outcome, rest)


def version_of(stored: bytes) -> str:
    """Return a digest to tell this record from others, without giving the token away; empty without a record."""
    return sha1(stored[:VERSIONED_BYTES], usedforsecurity=False).hexdigest() if stored else ""


class OnceRequest(PermitRequest):
    """A caller's request for a key: to get the record, or to run."""

    __slots__ = ("_result", "ending", "fingerprint", "keep_ms", "pause_ms", "refresh_ms")

    trusts_messages: ClassVar[bool] = False  # a run may have been recorded since the message was sent

    def __init__(
        self,
        place: KeySet,
        options: LeaseOptions,
        *,
        keep_ms: int,
        refresh_ms: int,
        pause_ms: int = round(REFRESH_PAUSE_S * 1000),
    ) -> None:
        super().__init__(place, options)
        self._join = None  # no batch knows of records
        self.keep_ms: int = keep_ms
        self.refresh_ms: int = refresh_ms
        self.pause_ms: int = pause_ms
        """For how long no one makes a result anew after a run that has not."""
        self.ending: Ending | None = None
        """What its release records; None for a plain release, after which the next one runs."""
        self.fingerprint: bytes = b""
        """A digest of what is requested; empty where any will do."""
        self._result = bulk(place.key("result"))

    @property
    def question(self) -> tuple[str, bytes, int, int, int]:
        """The question of the request: equal questions have the same answer, unless the answer is to run."""
        options = self.options
        return self.place.tag, self.fingerprint, self.refresh_ms, options.max_waiters, options.head_start_us

    def keyed(self, parts: tuple[str, ...]) -> OnceRequest:
        """Return the same request for a name with these parts behind it."""
        return OnceRequest(
            self.place.keyed(parts),
            self.options,
            keep_ms=self.keep_ms,
            refresh_ms=self.refresh_ms,
            pause_ms=self.pause_ms,
        )

    def for_call(self, timeout: float | None, fingerprint: bytes) -> OnceRequest:
        """Return the same request with another timeout, and for this fingerprint; an empty fingerprint fits any."""
        if timeout == self.timeout and not fingerprint and not self.fingerprint:
            return self
        request = copy(self)
        request.timeout, request.fingerprint = timeout, fingerprint and sha256(fingerprint).digest()
        return request

    def ending_as(self, outcome: Outcome | Literal["dropped"], value: bytes, keep_ms: int | None = None) -> OnceRequest:
        """Return the same request, whose release records how the run has ended."""
        request = copy(self)
        request.ending = Ending(outcome, value, self.keep_ms if keep_ms is None else keep_ms)
        return request

    def acquire(self, token: bytes, ticket: int = 0, *, caller: int = 0) -> Call:
        """Find the record, or run, or enter the queue: at the end, or with a ticket where the token stood before."""
        return self._ask(token, WAIT_MS, ticket or -self.options.head_start_us, caller)

    def try_acquire(self, token: bytes, *, caller: int = 0) -> Call:
        """Find the record, or run, or leave the queue as it is."""
        return self._ask(token, 0, 0, caller)

    def begin(self, token: bytes) -> Call:
        """Record the start of the run."""
        return self._record(token, Ending("begun", b"", self.keep_ms), copies=False)

    def cancel(self, token: bytes) -> Call:
        """Undo an acquire, whatever it has reached: also the start of a run that the caller never got."""
        return Call(CANCEL.prefix, self._keys + self._result + bulk(token))

    def release(self, token: bytes, *, copies: bool = False) -> Call:
        """End a run. ``copies``: whether a copy of the acquire may still be on the way to the server."""
        if self.ending is None:
            return super().release(token, copies=copies)
        return self._record(token, self.ending, copies=copies)

    def confirm(self, token: bytes) -> Call | None:  # noqa: ARG002 -- as for other permits
        """Return None: a waiter asks again for a grant that is handed over, before it runs."""
        return None

    def found(self, tag: bytes, *fields: Any) -> Found | None:
        if tag != b"done":
            return None
        outcome, age_us, fence, value = fields
        return Found(outcome.decode(), age_us / 1e6, fence, value)

    def rejection(self, tag: bytes, *fields: Any) -> Exception:
        return KeyReused(self.name) if tag == b"reused" else super().rejection(tag, *fields)

    def read(self) -> Call:
        """Read the record."""
        return Call(command("GET", 1), self._result)

    def forget(self) -> Call:
        """Delete the record."""
        return Call(command("DEL", 1), self._result)

    def forget_shown(self, stored: bytes) -> Call:
        """Delete the record if it begins as ``stored`` does."""
        return Call(FORGET.prefix, self._result + bulk(stored[:VERSIONED_BYTES]))

    def _ask(self, token: bytes, wait_ms: int, ticket: int, caller: int) -> Call:
        request = doubles(self.grant_ms, wait_ms, self.options.max_waiters, self.refresh_ms, self.pause_ms, ticket)
        args = b"".join((self._keys, self._result, bulk(token), bulk(request), bulk(self.fingerprint)))
        return Call(ACQUIRE.prefix, args, waiter=token, wants=self._wants, caller=doubles(caller), value=self._value)

    def _record(self, token: bytes, ending: Ending, *, copies: bool) -> Call:
        outcome, value, keep_ms = ending
        args = (token, outcome, doubles(keep_ms, copies, self.pause_ms), self.fingerprint, value)
        return Call(RECORD.prefix, self._keys + self._result + pack(args))
