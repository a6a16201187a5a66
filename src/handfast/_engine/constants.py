"""The constants that Python and the scripts share: lifetimes, and the places of fields in stored data.

A script names a constant of `IN_SCRIPTS`, and `load` writes the number there.
"""

from __future__ import annotations

__all__ = ["CLAIM_MS", "IN_SCRIPTS", "REPEAT_MS", "TOKEN_SIZE", "WAIT_MS"]

CLAIM_MS = 2_000
"""The claim window in ms: the longest first lease of a grant that is handed over. Its receiver confirms it at once for
the whole ttl, and a frozen waiter, which does not, blocks the others for no longer."""

WAIT_MS = 60_000
"""The wait-lease in ms: after this time without a call a waiter counts as gone. Waiters call at least three times as
often."""

REPEAT_MS = 20_000
"""For how long a call is repeated and cleaned up after, in ms. What recognises a late copy lasts as long: tombstones
and replies."""

TOKEN_SIZE = 32
"""The size in bytes of the tokens that clients make: 128 bits in hexadecimal. Calls are packed around a gap of this size.
A call for a token of another size is packed as a whole, and joins no batch."""

FINISHED = 2**52
"""Added to the end of a tombstone, and taken from a ticket: all sums are whole numbers, and clocks stay below it."""

_NUMBER = 8
"""Bytes of a double."""

IN_SCRIPTS = {
    "CLAIM_US": CLAIM_MS * 1000,
    "WAIT_US": WAIT_MS * 1000,
    "REPEAT_MS": REPEAT_MS,
    "GRACE_MS": 60_000,  # how much longer than its waiters the queue of a limiter lives
    "HOUR_US": 3_600_000_000,
    "AHEAD_FROM_US": 1_000_000,  # waits from which on a head start is looked for, so that short ones cost no more
    "ASKED_US": 500_000,  # how long after its time the lease of a holder ends that was asked to end: who has asked takes it before
    "FINISHED": FINISHED,
    "SUPERSEDED": 514,  # the last ten bits of a tombstone's time; even, so earlier versions take it for a cancelled request
    # the field `s` of a name, by lib/state.lua; places count from 1
    "FENCE_AT": 1 + _NUMBER,
    "KEEP_AT": 1 + 2 * _NUMBER,
    "LENGTH_AT": 1 + 7 * _NUMBER,
    "HOLDER_AT": 1 + 8 * _NUMBER,  # a byte for the length of the token, and the token
    # a record, by lib/record.lua
    "WEIGHT_AT": 1 + _NUMBER,
    "LIMIT_AT": 1 + 2 * _NUMBER,
    "INBOX_AT": 1 + 5 * _NUMBER,
    "CALLER_IN_WANTS": 1 + 3 * _NUMBER,  # behind weight, limit and claim_ms
}
"""The numbers that stand in scripts, by their names there."""
