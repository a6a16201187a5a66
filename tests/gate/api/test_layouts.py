"""Names that a newer version has stored in another layout: every call says so, and changes nothing."""

from __future__ import annotations

import asyncio

import pytest
import redis

from handfast import AsyncHandfast, ServerRefused, UnknownLayout
from tests._support.apis import ASYNCIO, settled
from tests._support.helpers import eventually_async

SAID = r"^'a' is stored in layout 2 on the server, and this version of Handfast knows layout 1 alone; update it"

CALLS = {
    "lock": [
        lambda hf: hf.lock("a").acquire(),
        lambda hf: hf.lock("a").acquire(timeout=0),
        lambda hf: hf.lock("a").try_acquire(),
        lambda hf: hf.lock("a").status(),
        lambda hf: hf.lock("a").locked(),
        lambda hf: hf.lock("a").force_release(),
        lambda hf: hf.rlock("a").acquire(),
        lambda hf: hf.lock_all(["a"]).acquire(),
    ],
    "semaphore": [
        lambda hf: hf.semaphore("a", 2).acquire(),
        lambda hf: hf.semaphore("a", 2).try_acquire(),
        lambda hf: hf.semaphore("a", 2).resize(3),
        lambda hf: hf.semaphore("a", 2).resize(None),
    ],
    "rwlock": [lambda hf: hf.rwlock("a").read().acquire(), lambda hf: hf.rwlock("a").write().try_acquire()],
    "once": [
        lambda hf: hf.once("a").acquire(),
        lambda hf: hf.once("a").try_acquire(),
        lambda hf: hf.once("a").status(),
    ],
    "limiter": [
        lambda hf: hf.limiter("a", "1/s").acquire(),
        lambda hf: hf.limiter("a", "1/s").try_acquire(),
        lambda hf: hf.limiter("a", "1/s").status(),
        lambda hf: hf.limiter("a", "1/s").pause(1),
        lambda hf: hf.limiter("a", "1/s").resume(),
        lambda hf: hf.limiter("a", "1/s").reset(),
        lambda hf: hf.limiter("a", "1/s").resize(["2/s"]),
    ],
    "budget": [
        lambda hf: hf.budget("a", "1/day").status(),
        lambda hf: hf.budget("a", "1/day").set_limit(1),
        lambda hf: hf.budget("a", "1/day").at_least_spent(1),
    ],
    "debounce": [lambda hf: hf.debounce("a", quiet=0.001).wait()],
}

PLACES = {"budget": ("account", "s"), "limiter": ("settings", "paused_until"), "debounce": ("burst", "due")}


def foreign(raw, kind):
    """Store a name as a newer version would. Return all stored keys."""
    part, field = PLACES.get(kind, ("state", "s"))
    key = f"{{hf:{kind}:a}}:{part}"
    raw.hset(key, mapping={field: "layout 2", "s2": "what only the newer version knows"})
    raw.pexpire(key, 600_000)
    return everything(raw)


def everything(raw):
    return {key: raw.dump(key) for key in raw.keys("*:a}:*")}


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind, calls in CALLS.items() for number in range(len(calls))]
)
async def test_another_layout_is_refused_with_a_sentence_and_left_as_it_is(api, plain, raw, kind, number):
    there = foreign(raw, kind)
    with pytest.raises(UnknownLayout, match=SAID) as caught:
        await settled(CALLS[kind][number](plain))
    assert (caught.value.name, caught.value.layout, caught.value.changed_nothing) == ("a", "layout 2", True)
    assert isinstance(caught.value, ServerRefused)
    assert everything(raw) == there


@pytest.mark.parametrize("ask", [0, 1, 2])
async def test_a_result_of_another_layout_is_refused_too(api, plain, raw, ask):
    raw.set("{hf:once:a}:result", b"layout 7".ljust(32, b"\0") + b"\xff what only the newer version knows", px=600_000)
    there = everything(raw)
    with pytest.raises(UnknownLayout, match="'a' is stored in layout 7"):
        await settled(CALLS["once"][ask](plain))
    assert everything(raw) == there
    assert await settled(plain.once("a").forget()) is True


async def test_a_holder_whose_name_gets_another_layout_loses_it_at_its_deadline_and_not_before(api, plain, raw, server):
    lease, state = await settled(plain.lock("a").acquire()), "{hf:lock:a}:state"
    with redis.Redis(unix_socket_path=server.socket) as client:
        stored = client.hget(state, "s")
    there = foreign(raw, "lock")
    with pytest.raises(UnknownLayout):
        await settled(lease.extend(60))
    lease.check()
    with pytest.raises(UnknownLayout):
        await settled(lease.release())
    assert everything(raw) == there
    raw.hset(state, "s", stored)  # so that the cleanup of the release ends


async def test_names_beside_it_in_a_batch_are_served(server, raw):
    foreign(raw, "lock")
    async with AsyncHandfast(server.url) as client:
        results = await asyncio.gather(*(client.lock(name).acquire() for name in "abc"), return_exceptions=True)
        assert isinstance(results[0], UnknownLayout)
        for lease in results[1:]:
            assert await lease.release() is True


@pytest.mark.parametrize("kind", ["lock", "limiter"])
async def test_unknown_words_of_a_waiter_do_not_keep_it_from_its_turn(api, plain, server, kind):
    one, field = {
        "lock": (plain.lock("a"), "{hf:lock:a}:state"),
        "limiter": (plain.limiter("a", "1/300ms"), "{hf:limiter:a}:waiting"),
    }[kind]
    held = await settled(one.acquire())
    waiter = asyncio.ensure_future(asyncio.to_thread(one.acquire) if api is not ASYNCIO else one.acquire())
    with redis.Redis(unix_socket_path=server.socket) as client:
        await eventually_async(lambda: client.hlen(field) > (kind == "lock"))
        (token,) = {*client.hkeys(field)} - {b"s"}
        client.hset(field, token, client.hget(field, token) + b" value=x ahead=9")
        assert (await settled(one.status())).waiting == 1
        if kind == "lock":
            assert await settled(held.release()) is True
            lease = await waiter
            assert client.hget(field, "s").endswith(b" value=x ahead=9")
            assert await settled(lease.release()) is True
        else:
            assert (await waiter).admitted is True


async def test_words_of_a_record_that_are_not_known_are_passed_over_and_kept(api, plain, server):
    """A later version says more of a holder or a waiter."""
    semaphore, state, words = plain.semaphore("a", 2), "{hf:semaphore:a}:state", b" value=x%20y ttl=5"
    with redis.Redis(unix_socket_path=server.socket) as client:
        leases = [await settled(semaphore.acquire()) for _ in range(2)]
        (token,) = {*client.hkeys(state)} - {b"s", b"q"}
        client.hset(state, token, client.hget(state, token) + words)
        client.hset(state, "s", client.hget(state, "s") + words)
        assert len({holder.label for holder in (await settled(semaphore.status())).holders}) == 1
        adopted = [await settled(semaphore.adopt(await settled(lease.detach()), label="there")) for lease in leases]
        assert [holder.label for holder in (await settled(semaphore.status())).holders] == ["there"] * 2
        assert client.hget(state, token).endswith(b" there" + words)
        assert client.hget(state, "s").endswith(b" there" + words)
        for lease in adopted:
            assert await settled(lease.release()) is True
