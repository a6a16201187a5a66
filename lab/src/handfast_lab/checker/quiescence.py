"""Check the keys on a server, at any time and when all locks are free.

The checks read the keys with a plain redis-py client and without the engine's scripts. They therefore work while the
server refuses writes, and do not share errors of the scripts. Tokens are shown by their first characters only: a
complete token would allow its reader to release the lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

from handfast._engine.validate import encode_name
from handfast_lab.checker.finding import Finding
from handfast_lab.stored import PARTS, Stored, read_stored

__all__ = ["check_permits", "check_rest", "immortal_keys"]

DATA = "autocomplete", "scores"
"""Kinds whose keys hold data and have no TTL."""


def check_rest(client: redis.Redis, namespace: str = "hf") -> list[Finding]:
    """Return what remains after everything was released: leases, queue entries, records, keys without a TTL.

    A killed process leaves its leases until they expire, and its queue entry until another client cleans it up. Wait
    for the leases to expire, and request each name once, before this check.
    """
    found = [Finding("rest", key, "a key without a TTL") for key in immortal_keys(client, namespace)]
    for stored in _all_stored(client, namespace):
        found += [_found(stored, f"{_short(token)} still holds it") for token in stored.live]
        found += [_found(stored, f"{_short(token)} is still in the queue") for token in stored.queue]
        orphans = stored.records.keys() - stored.holders.keys() - stored.queue.keys()
        found += [
            _found(stored, f"a record of {_short(token)}, which neither holds nor waits") for token in sorted(orphans)
        ]
    return found


def check_permits(client: redis.Redis, namespace: str = "hf") -> list[Finding]:
    """Return the violations in the permits held now; the check may run at any time.

    Each name is read at one instant. The live leases together must fit the largest limit that their records contain,
    unless an operator has set a limit, which may be smaller than the weight already held. The permits counted as held
    must equal the weight of all holders, including expired ones that no client has removed yet.
    """
    found = []
    for stored in _all_stored(client, namespace):
        out = sum(map(stored.weight, stored.live))
        most = max((stored.records[token].limit for token in stored.live if token in stored.records), default=0)
        if out > most and not stored.limit:
            found.append(_found(stored, f"{out} of {most} permits are held"))
        found += [
            _found(stored, f"{_short(token)} holds it without a record of its permits")
            for token in stored.holders
            if token not in stored.records
        ]
        held = sum(map(stored.weight, stored.holders))
        if stored.holders and stored.used != held:
            found.append(_found(stored, f"{stored.used} permits are counted as held, and {held} are held"))
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


def _all_stored(client: redis.Redis, namespace: str) -> Iterator[Stored]:
    parts = (key.rpartition(":") for key in _keys(client, namespace))
    for tag in dict.fromkeys(tag for tag, _, part in parts if part in PARTS):
        yield read_stored(client, tag)


def _found(stored: Stored, text: str) -> Finding:
    return Finding("rest", stored.place, text)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _short(token: str) -> str:
    return token[:8]
