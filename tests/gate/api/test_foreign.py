"""Names, options and blocks of other libraries lead to an error with the right call, before anything is sent."""

from __future__ import annotations

import inspect
import re

import pytest

from handfast import AsyncHandfast, Handfast
from handfast._api import foreign

CLIENTS = {"sync": Handfast, "asyncio": AsyncHandfast}


@pytest.fixture(params=CLIENTS)
def client(request):
    """Nothing listens there: a request would fail in another way."""
    return CLIENTS[request.param]("redis://127.0.0.1:1")


def made_by(client):
    """Return each kind of object with the other names for its methods."""
    return {
        client: foreign.CLIENT,
        client.lock("a"): foreign.PERMITS,
        client.rlock("a"): foreign.PERMITS,
        client.semaphore("a", 2): foreign.PERMITS,
        client.rwlock("a").read(): foreign.PERMITS,
        client.limiter("a", "5/s"): foreign.LIMITS,
        client.once("a"): foreign.RUNS,
    }


def test_what_others_call_something_leads_to_our_name_for_it(client):
    for one, names in made_by(client).items():
        for name, advice in names.items():
            if hasattr(type(one), name):
                continue
            with pytest.raises(AttributeError, match="has no attribute") as caught:
                getattr(one, name)
            assert str(caught.value).endswith(f"no attribute {name!r}; {advice}")
            assert (caught.value.name, caught.value.obj) == (name, one)
        with pytest.raises(AttributeError, match=r"has no attribute 'unheard_of'$"):
            getattr(one, "unheard_of")  # noqa: B009 -- type checkers know that there is none


def test_no_object_pays_for_that_at_each_access_of_an_attribute_nor_lists_it(client):
    """CPython cannot specialize the attributes of a class with __getattr__: 4 % of the instructions of a lock."""
    for one, names in made_by(client).items():
        assert not any("__getattr__" in vars(kind) for kind in type(one).__mro__)
        listed = {*dir(one)} & {*dir(type(one))}
        assert all(hasattr(one, name) for name in listed if not name.startswith("_"))
        assert "status" in listed or one is client
        assert not {name for name in names if not hasattr(one, name)} & {*dir(one), *dir(type(one))}


def test_what_the_advice_names_is_there(client):
    for one, names in made_by(client).items():
        for advice in names.values():
            for name in re.findall(r"\buse (\w+)\(", advice):
                assert callable(getattr(one, name)) or name == "force_release"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda hf: hf.lock("a", blocking=False), r"^lock\(\) has no option 'blocking': use try_acquire\(\)"),
        (lambda hf: hf.lock("a", 30), r"^lock\(\) takes its options by name, and got 30: write lock\(ttl=…\)"),
        (lambda hf: hf.rlock("a", lock_timeout=5), "unrenewed are ttl="),
        (lambda hf: hf.rwlock("a", tll=5), r"did you mean ttl=\?"),
        (lambda hf: hf.lock_all(["a"], nonsense=5), "it has ttl, renew, on_lost"),
        (lambda hf: hf.semaphore("a", 1, value=3), "use limit="),
        (lambda hf: hf.limiter("a", "5/s", key_func=str), "use by="),
        (lambda hf: hf.once("a", expire=3), "ttl= of the object"),
        (lambda hf: hf.lock("a").acquire(blocking=False), r"use try_acquire\(\), which does not wait"),
        (lambda hf: hf.lock("a").acquire(False), r"use try_acquire\(\), which does not wait"),
        (lambda hf: hf.lock("a").acquire(5), r"got 5: write acquire\(timeout=…\)"),
        (lambda hf: hf.semaphore("a", 2).acquire(blocking_timeout=5), "its timeout="),
        (lambda hf: hf.limiter("a", "5/s").acquire(3), r"write acquire\(cost=…\)"),
        (lambda hf: hf.once("a").acquire(sleep=1), "do not poll"),
        (lambda hf: hf.lock("a").try_acquire(5), r"write try_acquire\(timeout=…\)"),
        (lambda hf: hf.semaphore("a", 2).try_acquire(5), r"write try_acquire\(permits=…\)"),
        (lambda hf: hf.limiter("a", "5/s").try_acquire(amount=5), "use cost="),
        (lambda hf: hf.once("a").try_acquire(5), r"write try_acquire\(fingerprint=…\)"),
        (lambda hf: hf.once("a").run(function_of(hf), tiemout=5), r"did you mean timeout=\?"),
    ],
)
async def test_options_of_others_lead_to_ours(client, call, said):
    with pytest.raises(TypeError, match=said):
        outcome = call(client)
        if inspect.isawaitable(outcome):
            await outcome


def function_of(client):
    async def function(): ...

    return function if isinstance(client, AsyncHandfast) else lambda: None


async def test_a_block_of_the_other_api_or_of_neither_is_refused(client):
    made = [client, *made_by(client)]
    for one in made[:1] + made[2:]:
        if isinstance(client, AsyncHandfast):
            with pytest.raises(AttributeError, match="it is of the asyncio API: use 'async with'"), one:
                pass
        else:
            with pytest.raises(AttributeError, match="of the sync API: use 'with', or AsyncHandfast in coroutines"):
                async with one:
                    pass
        assert hasattr(one, "__enter__") is not hasattr(one, "__aenter__"), "others look which of the two there is"
    both = client.rwlock("a")
    with pytest.raises(AttributeError, match=r"'(Async)?RWLock' object .*; use its read\(\) or write\(\)"):
        with both:
            pass
    with pytest.raises(AttributeError, match=r"use its read\(\) or write\(\)"):
        async with both:
            pass
    with pytest.raises(AttributeError, match=r"'acquire'; use its read\(\) or write\(\)"):
        both.acquire()


async def nothing(_):
    """It is not called."""


@pytest.mark.parametrize(
    "call",
    [
        lambda hf: hf.lock("a").acquire(),
        lambda hf: hf.lock("a").status(),
        lambda hf: hf.limiter("a", "1/s").try_acquire(),
        lambda hf: hf.once("a").run(nothing),
        lambda hf: hf.election("a").run(nothing),
        lambda hf: hf.partition("a", ["b"]).run(nothing),
    ],
)
def test_a_coroutine_without_a_loop_of_asyncio_as_in_trio_says_what_is_missing(call, caplog):
    coroutine = call(AsyncHandfast("redis://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match=r"needs a running event loop of asyncio, .*; in trio, call Handfast in a"):
        coroutine.send(None)
    assert not caplog.records, "it is not tried again"
