"""Check the keys on a server, at any time and when all locks are free.

The checks read the keys with a plain redis-py client and without the engine's scripts. They therefore work while the
server refuses writes, and do not share errors of the scripts. Tokens are shown by their first characters only: a
complete token would allow its reader to release the lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import redis

from handfast._engine.validate import encode_name
from handfast_lab.checker.finding import Finding

__all__ = ["check_permits", "check_rest", "immortal_keys"]

PARTS = "holders", "queue", "tokens", "tombstones"
DATA = "autocomplete", "scores"
"""Kinds whose keys hold data and have no TTL."""
COUNTS = frozenset(("used", "fence", "limit"))
"""Fields of the hash `tokens` that are not records of tokens."""


class _Stored(NamedTuple):
    """The state stored for one name at one instant."""

    place: str
    now: float
    """The time of the server in microseconds."""
    holders: dict[str, float]
    queue: list[str]
    tokens: dict[str, str]

    @property
    def live(self) -> list[str]:
        """The tokens of the leases that have not expired."""
        return [token for token, deadline in self.holders.items() if deadline > self.now]

    def weight(self, token: str) -> int:
        """Return the number of permits that the token holds; 0 if its record is missing."""
        return int(self.tokens.get(token, "0").split(" ", 1)[0])

    def found(self, text: str) -> Finding:
        return Finding("rest", self.place, text)


def check_rest(client: redis.Redis, namespace: str = "hf") -> list[Finding]:
    """Return what remains after everything was released: leases, queue entries, records, keys without a TTL.

    A killed process leaves its leases until they expire, and its queue entry until another client cleans it up. Wait
    for the leases to expire, and request each name once, before this check.
    """
    found = [Finding("rest", key, "a key without a TTL") for key in immortal_keys(client, namespace)]
    for stored in _all_stored(client, namespace):
        found += [stored.found(f"{_short(token)} still holds it") for token in stored.live]
        found += [stored.found(f"{_short(token)} is still in the queue") for token in stored.queue]
        orphans = stored.tokens.keys() - stored.holders.keys() - set(stored.queue) - COUNTS
        found += [
            stored.found(f"a record of {_short(token)}, which neither holds nor waits") for token in sorted(orphans)
        ]
    return found


def check_permits(client: redis.Redis, namespace: str = "hf") -> list[Finding]:
    """Return the violations in the permits held now; the check may run at any time.

    Each name is read at one instant. The live leases together must fit the largest limit that their records contain,
    unless an operator has set a limit, which may be smaller than the weight already held. The counter `used` must equal
    the weight of all holders, including expired ones that no client has removed yet.
    """
    found = []
    for stored in _all_stored(client, namespace):
        out = sum(map(stored.weight, stored.live))
        most = max(
            (int(stored.tokens[token].split(" ")[1]) for token in stored.live if token in stored.tokens), default=0
        )
        if out > most and "limit" not in stored.tokens:
            found.append(stored.found(f"{out} of {most} permits are held"))
        found += [
            stored.found(f"{_short(token)} holds it without a record of its permits")
            for token in stored.holders
            if token not in stored.tokens
        ]
        counted, held = int(stored.tokens.get("used", "-1")), sum(map(stored.weight, stored.holders))
        if stored.holders and counted != held:
            found.append(stored.found(f"{counted} permits are counted as held, and {held} are held"))
    return found


def immortal_keys(client: redis.Redis, namespace: str = "hf") -> list[str]:
    """Return the keys of primitives that have no TTL; there must never be any."""
    keys = [key for key in _keys(client, namespace) if not _is_data(key)]
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.pttl(key)
        return [key for key, left in zip(keys, pipe.execute(), strict=True) if left == -1]


def _is_data(key: str) -> bool:
    kind, name = key.split(":", 2)[1:]
    return kind in DATA and "}:answer:" not in name


def _keys(client: redis.Redis, namespace: str) -> list[str]:
    pattern = f"{{{encode_name(namespace, 'namespace')}:*"
    return sorted(set(map(_text, client.scan_iter(pattern, count=1000))))


def _all_stored(client: redis.Redis, namespace: str) -> Iterator[_Stored]:
    parts = (key.rpartition(":") for key in _keys(client, namespace))
    tags = dict.fromkeys(tag for tag, _, part in parts if part in PARTS)
    for tag in tags:
        with client.pipeline(transaction=True) as pipe:
            pipe.time()
            pipe.zrange(f"{tag}:holders", 0, -1, withscores=True)
            pipe.zrange(f"{tag}:queue", 0, -1)
            pipe.hgetall(f"{tag}:tokens")
            (seconds, micros), holders, queue, tokens = pipe.execute()
        yield _Stored(
            tag,
            seconds * 1_000_000 + micros,
            {_text(token): deadline for token, deadline in holders},
            [_text(token) for token in queue],
            {_text(field): _text(value) for field, value in tokens.items()},
        )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _short(token: str) -> str:
    return token[:8]
