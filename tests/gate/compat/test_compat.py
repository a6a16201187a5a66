"""The drop-in locks: their results equal those of redis-py's locks on the same key, except for documented improvements."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import logging
import math
import pickle
import threading
import time

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import LockError, LockNotOwnedError

import handfast.compat
from handfast.compat import AsyncRedisLock, RedisLock
from handfast.compat import _shared as shared
from tests._support.apis import ASYNCIO, SYNC, Call
from tests._support.helpers import eventually_async, more, settled

OURS = {SYNC: RedisLock, ASYNCIO: AsyncRedisLock}

THEIRS = {SYNC: redis.lock.Lock, ASYNCIO: redis.asyncio.lock.Lock}

METHODS = "acquire", "release", "extend", "reacquire", "owned", "locked", "do_acquire", "do_release"

NEVER = 3000
"""A poll interval in seconds that no test lasts: a waiter that acquires was woken."""


class Face:
    """A lock of either API with awaitable methods.

    A sync lock blocks the test or, with ``apart``, the thread of its task.
    """

    def __init__(self, api, lock, *, apart):
        self.plain = lock
        self._api = api
        self._apart = apart

    def __getattr__(self, name):
        value = getattr(self.plain, name)
        return functools.partial(self._call, value) if name in METHODS else value

    async def _call(self, function, *args, **kwargs):
        if self._apart and self._api is SYNC:
            return await Call(function, *args, **kwargs)
        return await settled(function(*args, **kwargs))

    async def __aenter__(self):
        enter = self.plain.__enter__ if self._api is SYNC else self.plain.__aenter__
        return await self._call(enter)

    async def __aexit__(self, *error):
        leave = self.plain.__exit__ if self._api is SYNC else self.plain.__aexit__
        return await self._call(leave, *error)


class World:
    """A client of redis-py, and locks that use it."""

    def __init__(self, api, client, raw, cls=None, *, apart=False):
        self.api = api
        self.client = client
        self.raw = raw
        self.cls = cls or OURS[api]
        self._is_apart = apart

    def apart(self):
        """Return the same for tasks that block at the same time: in the sync API each gets a thread."""
        return World(self.api, self.client, self.raw, self.cls, apart=True)

    async def lock(self, name="a", cls=None, **options):
        """Make a lock in the thread that will use it, since the tokens of redis-py's class are thread-local."""
        make = functools.partial(cls or self.cls, self.client, name, **options)
        is_apart = self._is_apart and self.api is SYNC
        return Face(self.api, await Call(make) if is_apart else make(), apart=is_apart)

    def theirs(self, name="a", **options):
        return self.lock(name, THEIRS[self.api], **options)

    async def waits(self, **options):
        """Acquire and release at once; return whether the lock was granted."""
        lock = await self.apart().lock(**options)
        granted = await lock.acquire()
        if granted:
            await lock.release()
        return granted

    async def is_polling(self):
        """Wait until waiters have asked for a while."""

        def asked():
            return self.raw.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]

        begun = asked()
        await eventually_async(lambda: asked() >= begun + 5)


@pytest.fixture
def raw(raw):
    """Yield the client. Afterwards, only locks may lack a TTL."""
    yield raw
    for key in raw.scan_iter(count=1000):
        assert ":handfast:" not in key or raw.pttl(key) > 0, key


@pytest.fixture(params=[False, *more(True)], ids={False: "bytes", True: "decoded"}.get)
async def world(request, api, server, raw):
    async with api.users_client(unix_socket_path=server.socket, decode_responses=request.param) as client:
        yield World(api, client, raw)
    gc.collect()  # makes unclosed connections warn now


async def outcome(awaitable):
    """Return the value of the call, or the type of its exception."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 -- the test compares the errors
        return type(error).__name__


def lasts(world, seconds, name="a"):
    """Return whether the remaining TTL of the key is about that long."""
    return (seconds - 5) * 1000 < world.raw.pttl(name) <= seconds * 1000


# --- the same programs with both classes


async def basics(world):
    lock = await world.lock()
    yield lock.name, lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout, lock.thread_local
    yield lock.redis is world.client, lock.local.token
    yield await lock.locked(), await lock.owned()
    yield await lock.acquire()
    yield (
        type(lock.local.token).mro()[-2] is bytes,
        len(lock.local.token),
        world.raw.get("a") == lock.local.token.decode(),
    )
    yield world.raw.pttl("a"), await lock.locked(), await lock.owned()
    yield await outcome(lock.extend(10)), await outcome(lock.reacquire())
    yield await lock.release()
    yield lock.local.token, await lock.locked(), await lock.owned(), world.raw.exists("a")
    yield await outcome(lock.release()), await outcome(lock.extend(10)), await outcome(lock.reacquire())


async def a_lock_that_is_held(world):
    mine, other = await world.lock(timeout=100), await world.lock(timeout=100)
    yield await mine.acquire(blocking=False), await other.acquire(blocking=False), await mine.acquire(blocking=False)
    yield await other.acquire(blocking_timeout=0), await other.acquire(blocking_timeout=-1)
    yield await mine.owned(), await other.owned(), await other.locked(), other.local.token
    yield await outcome(other.release()), await outcome(mine.release()), await outcome(other.acquire(blocking=False))


async def one_that_does_not_block(world):
    mine, other = await world.lock(blocking=False), await world.lock(blocking=False)
    yield await mine.acquire(), await other.acquire(), await other.acquire(blocking=True, blocking_timeout=0)


async def one_that_is_waited_for(world):
    world.raw.set("a", "another", px=50)
    lock = await world.lock(sleep=0.01, blocking_timeout=20)
    yield await lock.acquire(), await lock.owned()
    world.raw.pexpire("a", 50)
    yield await lock.acquire()


async def ttls(world):
    for timeout in (100, 0.5, 1e6, True):
        lock = await world.lock(timeout=timeout)
        yield await lock.acquire(), lasts(world, timeout), lock.timeout
        await lock.release()


async def tokens_that_are_given(world):
    mine, other = await world.lock(timeout=100), await world.lock(timeout=100)
    for token in ("text", b"bytes", "ünïcode", ""):
        yield (
            await mine.acquire(token=token),
            world.raw.get("a"),
            mine.local.token == (token.encode() if str(token) is token else token),
        )
        yield await mine.owned(), await other.owned(), await other.acquire(token=token, blocking=False)
        other.local.token = mine.local.token
        yield await other.owned(), await other.extend(100), await other.reacquire(), await other.release()
        yield await outcome(mine.release()), await outcome(mine.release())
    yield await outcome(mine.acquire(token=True)), await outcome(mine.acquire(token=object()))
    other.local.token = None
    yield world.raw.exists("a")


async def tokens_from_elsewhere(world):
    """Move a token from one lock object to another, as two processes may."""
    world.raw.set("a", "from elsewhere", px=50_000)
    lock = await world.lock(timeout=100)
    lock.local.token = b"from elsewhere"
    yield await lock.owned(), await lock.reacquire(), lasts(world, 100), await lock.release(), lock.local.token
    world.raw.set("a", "from elsewhere", px=50_000)
    lock.local.token = "from elsewhere"
    yield await lock.extend(100), await outcome(lock.release()), world.raw.exists("a")


async def losses(world):
    for lose in (lambda: world.raw.delete("a"), lambda: world.raw.set("a", "another", px=50_000), world.raw.flushall):
        lock = await world.lock(timeout=100)
        yield await lock.acquire()
        lose()
        yield await lock.owned(), await lock.locked(), lock.local.token is None
        yield await outcome(lock.extend(10)), await outcome(lock.extend(10, replace_ttl=True))
        yield await outcome(lock.reacquire()), await outcome(lock.release()), await outcome(lock.release())
        yield world.raw.get("a"), lock.local.token
        world.raw.delete("a")


async def a_text_that_is_too_short_to_be_true(world):
    lock = await world.lock(timeout=100)
    yield await lock.acquire()
    world.raw.set("a", "")
    yield await lock.owned(), await lock.locked(), await outcome(lock.release())


async def extensions(world):
    lock = await world.lock(timeout=100)
    yield await outcome(lock.extend(10)), await outcome(lock.reacquire())
    yield await lock.acquire(), lasts(world, 100)
    yield await lock.extend(100), lasts(world, 200)
    yield await lock.extend(0.5), lasts(world, 200.5)
    yield await lock.extend(-100), lasts(world, 100.5)
    yield await lock.extend(0), lasts(world, 100.5)
    yield await lock.extend(50, True), lasts(world, 50)
    yield await lock.extend(additional_time=20.5, replace_ttl=True), lasts(world, 20.5)
    yield await lock.reacquire(), lasts(world, 100)
    world.raw.persist("a")
    yield await outcome(lock.extend(10)), await outcome(lock.extend(10, replace_ttl=True)), world.raw.pttl("a")
    yield await outcome(lock.reacquire()), lasts(world, 100), await lock.release()


async def a_lock_that_is_shortened_to_nothing(world):
    lock = await world.lock(timeout=100)
    yield await lock.acquire(), await lock.extend(-1000), world.raw.exists("a"), await outcome(lock.release())


async def blocks(world):
    lock = await world.lock(timeout=100, blocking_timeout=0)
    async with lock as entered:
        yield entered is lock.plain, await lock.owned()
        other = await world.lock(blocking_timeout=0)
        yield await outcome(other.__aenter__())
    yield await lock.locked()

    async def failing():
        async with lock:
            raise KeyError

    yield await outcome(failing()), await lock.locked()

    async def losing():
        async with lock:
            world.raw.delete("a")

    yield await outcome(losing()), lock.local.token

    async def releasing():
        async with lock:
            await lock.release()

    yield await outcome(releasing()), await lock.locked()


async def a_key_that_is_no_text(world):
    world.raw.rpush("a", "x")
    lock = await world.lock(timeout=100)
    yield await lock.acquire(blocking=False), await lock.acquire(blocking_timeout=0)
    yield await outcome(lock.locked()), await outcome(lock.owned())
    lock.local.token = b"x"
    for act in (
        functools.partial(lock.extend, 5),
        functools.partial(lock.extend, 5, True),
        lock.reacquire,
        lock.release,
    ):
        yield await outcome(act())
    yield world.raw.lrange("a", 0, -1)


async def names(world):
    for name in ("ünïcode", b"bytes", "", "a:b", "{tag}a", "a{tag}", "a{", "{}a", "}{", "a b\n\0"):
        lock = await world.lock(name, timeout=100)
        yield (
            await lock.acquire(),
            world.raw.exists(name),
            await lock.owned(),
            await lock.release(),
            world.raw.exists(name),
        )


async def no_thread_local(world):
    lock = await world.lock(timeout=100, thread_local=False)
    yield lock.thread_local, isinstance(lock.local, threading.local), lock.local.token

    async def taken():
        return await lock.acquire()

    yield await asyncio.create_task(taken()), await lock.owned(), await lock.release()


SCENARIOS = [
    basics,
    a_lock_that_is_held,
    one_that_does_not_block,
    one_that_is_waited_for,
    ttls,
    tokens_that_are_given,
    tokens_from_elsewhere,
    losses,
    a_text_that_is_too_short_to_be_true,
    extensions,
    a_lock_that_is_shortened_to_nothing,
    blocks,
    a_key_that_is_no_text,
    names,
    no_thread_local,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_both_classes_give_the_same_results(world, scenario):
    seen = []
    for cls in (THEIRS[world.api], OURS[world.api]):
        world.raw.flushall()
        seen.append([step async for step in scenario(World(world.api, world.client, world.raw, cls))])
    theirs, ours = seen
    assert ours == theirs
    assert theirs


def test_the_signatures_equal_those_of_redis_py(api):
    ours, theirs = OURS[api], THEIRS[api]
    assert issubclass(ours, theirs)
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert public <= set(dir(ours))
    for name in ["__init__", *(name for name in public if callable(getattr(theirs, name)))]:
        mine, its = (inspect.signature(getattr(cls, name)).parameters for cls in (ours, theirs))
        listed = [(one.name, one.kind, one.default) for one in mine.values() if one.name != "raise_on_release_error"]
        assert listed == [
            (one.name, one.kind, one.default) for one in its.values() if one.name != "raise_on_release_error"
        ]


def test_the_package_exports_its_public_names():
    assert handfast.compat.__all__ == ["AsyncRedisLock", "RedisLock"]


async def test_a_client_makes_the_lock_through_lock_class(world):
    options = {"timeout": 5, "sleep": 0.2, "blocking": False, "blocking_timeout": 3, "thread_local": False}
    lock = world.client.lock("a", lock_class=OURS[world.api], **options)
    assert isinstance(lock, OURS[world.api])
    assert {name: getattr(lock, name) for name in options} == options
    assert lock.raise_on_release_error is True


@pytest.mark.parametrize("quiet", [False, True])
async def test_with_raise_on_release_error_off_a_failed_release_is_only_logged(world, caplog, quiet):
    lock = await world.lock(raise_on_release_error=not quiet)
    with contextlib.nullcontext() if quiet else pytest.raises(LockNotOwnedError):
        async with lock:
            world.raw.delete("a")
    logged = [record.name for record in caplog.records if record.levelno == logging.WARNING]
    assert logged == [THEIRS[world.api].__module__] * quiet


async def test_a_subclass_may_override_do_acquire_and_do_release(world):
    steps = []

    def told(name):
        def method(self, token, *args):
            steps.append((name, bytes(token)))
            return getattr(super(told_class, self), name)(token, *args)

        return method

    told_class = type("Told", (OURS[world.api],), {name: told(name) for name in ("do_acquire", "do_release")})
    lock = await world.lock(cls=told_class)
    async with lock:
        token = bytes(lock.local.token)
    assert steps == [("do_acquire", token), ("do_release", token)]


# --- old and new code exclude each other


@pytest.mark.parametrize("options", [{}, {"timeout": 100}], ids=["endless", "ttl"])
async def test_old_and_new_code_exclude_each_other(world, options):
    mine, old = await world.lock(**options), await world.theirs(**options)
    for first, second in ((mine, old), (old, mine)):
        for token in (None, "given"):
            assert await first.acquire(token=token) is True
            assert await second.acquire(blocking=False) is False
            assert await second.acquire(blocking=False, token="given") is False
            assert (await first.owned(), await second.owned()) == (True, False)
            assert await second.locked() is True
            with pytest.raises(LockError):
                await second.release()
            if options:
                assert await first.extend(10) is await first.reacquire() is True
            await first.release()
            assert await second.acquire(blocking=False) is True
            with pytest.raises(LockError):
                await first.release()
            await second.release()


async def test_tokens_are_interchangeable_between_old_and_new_code(world):
    mine, old = await world.lock(timeout=100), await world.theirs(timeout=100)
    for first, second in ((mine, old), (old, mine)):
        assert await first.acquire()
        second.local.token = pickle.loads(pickle.dumps(first.local.token))
        assert type(second.local.token) is bytes
        assert await second.owned()
        assert await second.extend(10) is await second.reacquire() is True
        await second.release()
        with pytest.raises(LockNotOwnedError):
            await first.release()


# --- waiting


@pytest.mark.parametrize("options", [{}, {"timeout": 1000}], ids=["endless", "ttl"])
async def test_waiters_acquire_after_a_release(world, options):
    lock = await world.lock(**options)
    assert await lock.acquire()
    waiters = [asyncio.create_task(world.waits(sleep=0.01)) for _ in range(3)]
    await world.is_polling()
    assert not any(waiter.done() for waiter in waiters)
    await lock.release()
    assert await asyncio.gather(*waiters) == [True] * 3


async def test_no_waiter_misses_a_release_while_tasks_alternate(world):
    async def work():
        lock = await world.apart().lock(sleep=0.001)
        for _ in range(20):
            async with lock:
                pass

    await asyncio.gather(*(work() for _ in range(4)))


async def test_a_waiter_acquires_when_the_ttl_ends(world):
    world.raw.set("a", "a dead holder", px=100)
    assert await world.waits(sleep=NEVER) is True


async def test_a_waiter_that_polls_notices_releases_by_other_code(world):
    old = await world.theirs()
    for let_go in (old.release, lambda: world.raw.delete("a"), lambda: world.raw.pexpire("a", 1)):
        assert await old.acquire()
        waiter = asyncio.create_task(world.waits(sleep=0.02))
        await world.is_polling()
        await settled(let_go())
        assert await waiter is True


async def test_a_waiter_waits_for_its_whole_blocking_timeout(world):
    """redis-py's class gives up at once if sleep is longer than the remaining time."""
    lock = await world.lock()
    assert await lock.acquire()
    begun = time.monotonic()
    assert await world.waits(sleep=NEVER, blocking_timeout=0.2) is False
    assert time.monotonic() - begun >= 0.2
    waiter = asyncio.create_task(world.waits(sleep=0.01, blocking_timeout=NEVER))
    await world.is_polling()
    await lock.release()
    assert await waiter is True


async def test_a_block_is_not_entered_after_a_blocking_timeout(world):
    lock, other = await world.lock(), await world.lock(blocking_timeout=0.05)
    async with lock:
        with pytest.raises(LockError, match="within the time"):
            async with other:
                pytest.fail("the block was entered")
    assert other.local.token is None


async def test_waiting_does_not_exhaust_the_pool(api, server, raw):
    pool = api.library.BlockingConnectionPool(
        connection_class=api.library.UnixDomainSocketConnection, path=server.socket, max_connections=1, timeout=5
    )
    async with api.users_client(connection_pool=pool) as client:
        world = World(api, client, raw)
        lock = await world.lock()
        assert await lock.acquire()
        waiters = [asyncio.create_task(world.waits(sleep=0.01)) for _ in range(3)]
        await world.is_polling()
        await settled(client.ping())
        await lock.release()
        assert await asyncio.gather(*waiters) == [True] * 3
        await settled(pool.disconnect())


@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_lock_works_with_both_protocols(api, server, raw, protocol):
    async with api.users_client(unix_socket_path=server.socket, protocol=protocol) as client:
        world = World(api, client, raw)
        lock = await world.lock(timeout=1000)
        assert await lock.acquire()
        assert await lock.extend(1000) is await lock.reacquire() is await lock.owned() is True
        waiter = asyncio.create_task(world.waits(sleep=0.01))
        await world.is_polling()
        await lock.release()
        assert await waiter is True


async def test_the_lock_works_with_a_single_connection_client(api, server, raw, world):
    # Before redis-py 5.3, two threads must not share such a client: here only the waiter uses it.
    lock = await world.lock()
    assert await lock.acquire()
    async with api.users_client(unix_socket_path=server.socket, single_connection_client=True) as client:
        waiter = asyncio.create_task(World(api, client, raw).waits(sleep=0.01))
        await world.is_polling()
        await lock.release()
        assert await waiter is True


async def test_the_lock_works_with_another_encoding(api, server, raw):
    async with api.users_client(unix_socket_path=server.socket, encoding="latin-1") as client:
        lock = await World(api, client, raw).lock("ü", timeout=100)
        assert await lock.acquire(token="ö")
        assert client.get_encoder().encode("ü") == b"\xfc" == next(iter(await settled(client.keys())))[:1]
        assert await lock.owned()
        await lock.release()
    raw.flushall()  # the check after the test could not decode these names


# --- invalid arguments


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.5, 0.0001, math.nan, math.inf, -math.inf, 1e300, False])
async def test_invalid_timeouts_are_refused_before_any_io(world, timeout):
    lock = await world.lock(timeout=100)
    assert await lock.acquire()
    world.raw.config_resetstat()
    with pytest.raises(ValueError, match="timeout must be"):
        await world.lock(timeout=timeout)
    lock.plain.timeout = timeout
    for act in (lock.acquire, lock.reacquire):
        with pytest.raises(ValueError, match="timeout must be"):
            await act()
    with pytest.raises(ValueError, match="additional_time must be"):
        await lock.extend(timeout, replace_ttl=True)
    if not math.isfinite(timeout):
        with pytest.raises(ValueError, match="additional_time must be"):
            await lock.extend(timeout)
    calls = {name.removeprefix("cmdstat_") for name in world.raw.info("commandstats")}
    assert calls <= {"config", "config|resetstat", "info"}
    assert lasts(world, 100)


async def test_a_timeout_of_none_still_means_no_expiry(world):
    lock = await world.lock(timeout=None)
    assert await lock.acquire()
    assert world.raw.pttl("a") == -1


async def test_other_invalid_durations_are_refused(world):
    with pytest.raises(ValueError, match="sleep must be"):
        await world.lock(sleep=-1)
    with pytest.raises(ValueError, match="sleep must be"):
        await world.lock(sleep=math.nan)
    with pytest.raises(ValueError, match="blocking_timeout must be"):
        await world.lock(blocking_timeout=math.nan)
    lock = await world.lock()
    with pytest.raises(ValueError, match="blocking_timeout must be"):
        await lock.acquire(blocking_timeout=math.nan)
    lock.plain.sleep = math.nan
    with pytest.raises(ValueError, match="sleep must be"):
        await lock.acquire()
    assert not world.raw.keys()


async def test_a_ttl_is_never_shorter_than_requested(world):
    lock = await world.lock()
    for timeout, ms in ((0.001, 1), (0.0011, 2), (0.003, 3), (2.0005, 2001)):
        assert shared.lifetime_ms(timeout) == ms
    assert shared.lifetime_ms(None) == 0
    assert await lock.acquire()


# --- tokens


async def test_tokens_are_unpredictable(world):
    lock = await world.lock()
    tokens = set()
    for _ in range(50):
        async with lock:
            tokens.add(bytes(lock.local.token))
    assert len(tokens) == 50
    assert all(len(bytes.fromhex(token.decode())) == 16 for token in tokens)
    assert all(len({token[place] for token in tokens}) > 3 for place in range(32))


async def test_a_lock_with_thread_local_tokens_belongs_to_its_thread(server, raw):
    """In the other thread, redis-py's class raises AttributeError."""
    with redis.Redis(unix_socket_path=server.socket) as client:
        lock = RedisLock(client, "a", timeout=100)
        assert lock.acquire()
        assert isinstance(lock.local, threading.local)

        def elsewhere():
            assert lock.local.token is None
            assert lock.owned() is False
            for act in (lock.release, lock.reacquire, lambda: lock.extend(1)):
                with pytest.raises(LockError):
                    act()

        await asyncio.to_thread(elsewhere)
        assert lock.owned() is True
        lock.release()


async def test_a_release_keeps_the_token_that_another_thread_has_just_acquired(server, raw):
    with redis.Redis(unix_socket_path=server.socket) as client:

        class Slow(RedisLock):
            def do_release(self, expected_token):
                super().do_release(expected_token)
                if threading.current_thread() is threading.main_thread():
                    other = threading.Thread(target=self.acquire)
                    other.start()
                    other.join()

        lock = Slow(client, "a", timeout=100, thread_local=False)
        assert lock.acquire()
        lock.release()
        assert lock.owned()
        lock.release()


async def test_tasks_share_a_token_as_with_redis_py(server, raw):
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        for cls in (redis.asyncio.lock.Lock, AsyncRedisLock):
            lock = cls(client, "a", timeout=100)
            assert await asyncio.create_task(lock.acquire())
            assert await lock.owned()
            await asyncio.create_task(lock.release())


# --- names


@settings(deadline=None)  # the first examples are the slowest
@given(st.binary(max_size=12) | st.text("{}:ab", max_size=8).map(str.encode))
def test_the_companion_key_of_a_lock_is_in_its_slot(name):
    beside = shared.beside(name, b"0" * 32)
    assert key_slot(beside) == key_slot(name)
    assert beside.startswith(name)
    assert b"0" * 32 in beside


def test_every_slot_has_a_hash_tag():
    assert {key_slot(b"x{%b}" % shared._tag(slot)) for slot in range(16384)} == set(range(16384))
