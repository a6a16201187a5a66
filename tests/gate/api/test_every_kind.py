"""What all objects have in common: their options, their names, and what they say once their client is closed."""

from __future__ import annotations

import pytest

from handfast import ClientClosed
from tests._support.apis import SYNC
from tests._support.family import NOWHERE

KINDS = {
    "lock": lambda client, name="a b", **options: client.lock(name, **options),
    "rlock": lambda client, name="a b", **options: client.rlock(name, **options),
    "semaphore": lambda client, name="a b", **options: client.semaphore(name, 2, **options),
    "read lock": lambda client, name="a b", **options: client.rwlock(name, **options).read(),
    "write lock": lambda client, name="a b", **options: client.rwlock(name, **options).write(),
    "lock_all": lambda client, name="a b", **options: client.lock_all([name], **options),
}
NAMES = {
    "lock": ("Lock", "Lease"),
    "rlock": ("RLock", "RLease"),
    "semaphore": ("Semaphore", "Lease"),
    "read lock": ("ReadLock", "RWLease"),
    "write lock": ("WriteLock", "RWLease"),
    "lock_all": ("LockAll", "LeaseOfAll"),
}
CLOSED = "this client was closed; make a new one"

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": -1}, ValueError),
        ({"ttl": float("nan")}, ValueError),
        ({"ttl": "30"}, TypeError),
        ({"on_lost": "ignore"}, ValueError),
        ({"max_waiters": 0}, ValueError),
        ({"permits": 2}, TypeError),
        ({"name": ""}, ValueError),
    ],
    ids=str,
)
async def test_bad_options_are_refused_before_any_io(api, kind, options, error):
    async with api.client(NOWHERE) as client:
        with pytest.raises(error, match=next(iter(options))):
            KINDS[kind](client, **options)


@kinds
@pytest.mark.parametrize("timeout", [float("nan"), "1", True])
async def test_bad_timeouts_are_refused_before_any_io(api, kind, timeout):
    async with api.client(NOWHERE) as client:
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            await KINDS[kind](client).acquire(timeout=timeout)
        with pytest.raises((ValueError, TypeError), match="timeout must"):
            async with KINDS[kind](client).acquire(timeout=timeout):
                pytest.fail("the block was entered")


@kinds
async def test_a_closed_client_raises_an_error(api, server, raw, kind):
    async with api.client(server.url) as client:
        async with KINDS[kind](client):
            pass
    made = KINDS[kind](client)
    for use in (made.acquire, made.try_acquire, *([made.status] if hasattr(made, "status") else [])):
        with pytest.raises(ClientClosed, match=CLOSED):
            await use()
    with pytest.raises(ClientClosed, match=CLOSED):
        async with made:
            pytest.fail("the block was entered")
    await client.close()


async def test_what_a_closed_client_does_without_leases_raises_that_error_too(api, server, raw):
    async with api.client(server.url) as client:
        semaphore, names, scores = client.semaphore("a", 2), client.autocomplete("a"), client.scores("a")
        await names.add("a")
        await scores.advance({"a": 1})
    for use in (
        lambda: semaphore.resize(2),
        *(lambda: names.add("b"), lambda: names.complete("a"), names.size, names.clear),
        *(lambda: scores.advance({"a": 2}), scores.oldest, scores.newest, scores.size, scores.clear),
    ):
        with pytest.raises(ClientClosed, match=CLOSED):
            await use()


@kinds
async def test_class_names_and_reprs_show_the_api(api, here, kind):
    prefix = "" if api is SYNC else "Async"
    made, (its_class, lease_class) = KINDS[kind](here), NAMES[kind]
    assert repr(made) == f"<{prefix}{its_class} 'a b'>"
    async with made as lease:
        assert repr(lease).startswith(f"<{prefix}{lease_class} of 'a b', fence {lease.fence}, ")
        assert lease.name == "a b"
    assert "released" in repr(lease)


@pytest.mark.parametrize("make", ["autocomplete", "scores", "rwlock"])
async def test_the_others_have_names_and_reprs(api, here, make):
    made = getattr(here, make)("a b")
    its_class = {"autocomplete": "Autocomplete", "scores": "Scores", "rwlock": "RWLock"}[make]
    assert (made.name, repr(made)) == ("a b", f"<{'' if api is SYNC else 'Async'}{its_class} 'a b'>")
