"""What is stored of one lock, semaphore or read-write lock, read at one instant and without the engine's scripts.

So the checks of the laboratory do not share the scripts' errors. ``lua/lib/state.lua`` describes the two keys.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from typing import Any, NamedTuple

import redis

from handfast._engine.calls import PARTS
from handfast._engine.records import Record, read_record

__all__ = ["PARTS", "Stored", "read_stored"]

_STATE, _MORE = Struct("<8dB"), Struct("<4d")
_FINISHED = 2**52
"""What is added to the end of a tombstone for its score; a waiter's score is its ticket less this."""

_READ = """return {
  redis.call('TIME'), redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
}"""


class Stored(NamedTuple):
    """What is stored of one name. Times are in microseconds."""

    place: str
    """What its keys have in common."""
    now: int
    """The time of the server."""
    holders: dict[str, int]
    """The ends of leases by token."""
    queue: dict[str, int]
    """The tickets of waiters by token, in their order."""
    records: dict[str, Record]
    used: float
    """The permits that are counted as held; infinite if that is not known."""
    limit: int
    """The limit that an operator has set, 0 if none."""
    fence: int

    @property
    def live(self) -> list[str]:
        """The tokens of the leases that have not expired."""
        return [token for token, its_end in self.holders.items() if its_end > self.now]

    @property
    def is_busy(self) -> bool:
        """Whether the name has a holder or a waiter."""
        return bool(self.live or self.queue)

    def weight(self, token: str) -> int:
        """Return the number of permits that the token holds; 0 if its record is missing."""
        return self.records[token].weight if token in self.records else 0


def read_stored(client: redis.Redis, place: str) -> Stored:
    """Read what is stored of a name; ``place`` is what its keys have in common."""
    keys = [f"{place}:{part}" for part in PARTS]
    read: Any = client.execute_command("EVAL", _READ, len(keys), *keys, NEVER_DECODE=True)  # type: ignore[no-untyped-call]  # redis-py's
    (seconds, micros), state, tokens = read
    texts = dict(zip(state[::2], state[1::2], strict=True))
    scores = {token.decode(): float(score) for token, score in zip(tokens[::2], tokens[1::2], strict=True)}
    holders = {token: int(score) for token, score in scores.items() if 0 < score < _FINISHED}
    own, more, _ = (texts.pop(field, None) for field in (b"s", b"q", b"last"))
    for field in (b"over", b"pause"):
        texts.pop(field, None)
    records = {token.decode(): record for token, text in texts.items() if (record := read_record(text))}
    used, limit, fence = 0.0, 0, 0
    if more is not None:
        used, _, limit, _ = _MORE.unpack(more)
    if own is not None:
        lease_end, fence, *_, length = _STATE.unpack_from(own)
        token, record = own[_STATE.size : _STATE.size + length].decode(), read_record(own[_STATE.size + length :])
        if lease_end and record:
            holders[token], records[token] = int(lease_end), record
            used += record.weight
    return Stored(
        place,
        int(seconds) * 1_000_000 + int(micros),
        holders,
        {token: int(score) + _FINISHED for token, score in scores.items() if score < 0},
        records,
        used if used == inf else int(used),
        int(limit),
        int(fence),
    )
