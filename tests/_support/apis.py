"""One suite for both APIs: tests are coroutines, and the wrappers here make sync objects awaitable.

Each task of a test stands for one caller. With the sync API every task gets a thread of its own, in which its calls
block, so one thread enters and leaves a ``with`` block. A method is awaitable if it is a coroutine function of the
asyncio twin class; a new method needs no change here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import ModuleType

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import handfast
from handfast import AsyncHandfast, Handfast
from tests._support.helpers import eventually_async, settled

__all__ = ["ASYNCIO", "CROWDED", "SYNC", "Api", "renewer_of", "take", "until_queued", "use"]

TWINS = {
    getattr(handfast, name.removeprefix("Async")): getattr(handfast, name)
    for name in handfast.__all__
    if name.startswith("Async")
} | {threading.Event: asyncio.Event}


@dataclass(frozen=True)
class Api:
    """One of the two APIs, with the names that differ between them."""

    name: str
    handfast: type
    other: type
    """The client of the other API."""
    library: ModuleType
    """The package of redis-py that has the clients of this API."""

    def client(self, server=None, **options):
        """Make a client of Handfast, awaitable in both APIs."""
        return awaitable(self.handfast(server, **options))

    def embedded(self, **options):
        """Make a client of the shared embedded server."""
        return awaitable(self.handfast.embedded(**options))

    @contextlib.asynccontextmanager
    async def users_client(self, **options):
        """Make a client of redis-py; close it at the end."""
        client = self.library.Redis(**options)
        if self.library is redis:
            with client:
                yield client
        else:
            async with client:
                yield client

    @contextlib.asynccontextmanager
    async def users_sentinel(self, port, password):
        """Connect redis-py to the Sentinel at that port. All its services have that password, too."""
        options = {"socket_timeout": 1, "password": password}
        sentinel = self.library.sentinel.Sentinel([("127.0.0.1", port)], sentinel_kwargs=options, **options)
        try:
            yield sentinel
        finally:
            for client in sentinel.sentinels:
                await settled(client.close() if self.library is redis else client.aclose())

    def function(self, body):
        """Return a function or coroutine function, for a lock of this API to decorate."""
        if self.library is redis:
            return body

        @functools.wraps(body)
        async def function(*args, **kwargs):
            return body(*args, **kwargs)

        return function


@dataclass(frozen=True)
class CrowdedApi(Api):
    """The sync API when all sessions are in use, so that every call goes over the connection that threads share."""

    def client(self, server=None, **options):
        client = self.handfast(server, **options, max_sessions=1)
        client._driver.taken = client._driver._here.pool.take()
        return awaitable(client)


SYNC = Api("sync", Handfast, AsyncHandfast, redis)
CROWDED = CrowdedApi("crowded", Handfast, AsyncHandfast, redis)
ASYNCIO = Api("asyncio", AsyncHandfast, Handfast, redis.asyncio)


def renewer_of(client):
    """Return what renews the leases of a client: its thread, or what it has on this event loop."""
    driver = client._driver
    return driver._running_context().renewer if isinstance(client, AsyncHandfast) else driver._here.renewer


async def until_queued(lock, waiting=1):
    """Wait until the lock has at least that many waiters."""

    async def enough():
        return (await lock.status()).waiting >= waiting

    await eventually_async(enough)


async def all_of(found):
    """Return what an iterator of either API yields."""
    return [one async for one in found] if hasattr(found, "__aiter__") else list(found)


# --- sync objects, awaitable


def awaitable(value):
    """Wrap a sync object that has an asyncio twin; return anything else unchanged."""
    return Awaitable(value) if type(value) in TWINS else value


def _bare(value):
    """Return the sync object behind an awaitable one."""
    return value._thing if isinstance(value, Awaitable) else value


class Awaitable:
    """A sync object whose methods are awaitable wherever those of its asyncio twin are."""

    def __init__(self, thing):
        self._thing = thing
        self._twin = TWINS[type(thing)]

    def __repr__(self):
        return repr(self._thing)

    def __bool__(self):
        return bool(self._thing)

    def __getattr__(self, name):
        value = getattr(self._thing, name)
        if inspect.iscoroutinefunction(inspect.unwrap(getattr(self._twin, name, None))):
            return partial(Call, value)
        if inspect.ismethod(value):
            return lambda *args, **kwargs: awaitable(value(*map(_bare, args), **kwargs))
        return awaitable(value)

    def __call__(self, function):
        held = self._thing(function)

        @functools.wraps(held)
        async def awaited(*args, **kwargs):
            return await Call(held, *args, **kwargs)

        return awaited

    async def __aenter__(self):
        return await Call(self._thing.__enter__)

    async def __aexit__(self, *exc):
        return await Call(self._thing.__exit__, *exc)


class Call:
    """A call that blocks the thread of the task that awaits it. ``async with`` also enters its result."""

    def __init__(self, function, *args, **kwargs):
        self._function = partial(function, *args, **kwargs)

    def __await__(self):
        return self._made().__await__()

    async def _made(self):
        return awaitable(await thread_of(asyncio.current_task()).call(self._function))

    async def __aenter__(self):
        self._entered = await self
        return await self._entered.__aenter__()

    async def __aexit__(self, *exc):
        return await self._entered.__aexit__(*exc)


class Caller:
    """The thread of one task: makes its calls one after the other and ends with the task."""

    def __init__(self, task):
        self._calls = SimpleQueue()
        task.add_done_callback(lambda _: self._calls.put(None))
        threading.Thread(
            target=self._run, name="caller", daemon=True
        ).start()  # if a call hangs, the process still ends

    async def call(self, function):
        """Run the function and return its result.

        The thread keeps no reference: a lease that the test drops must be collected.
        """
        loop, done, box = asyncio.get_running_loop(), asyncio.Event(), [function]

        def work():
            try:
                box.append((box.pop()(), None))
            except BaseException as error:  # noqa: BLE001 -- it is raised in the task
                box.append((None, error))
            with contextlib.suppress(RuntimeError):  # the test has failed and its loop is closed
                loop.call_soon_threadsafe(done.set)

        self._calls.put(work)
        await done.wait()
        value, error = box.pop()
        if error is not None:
            raise error
        return value

    def _run(self):
        for work in iter(self._calls.get, None):
            work()


_callers = weakref.WeakKeyDictionary()


def thread_of(task):
    """Return the thread of this task; start it at the first call."""
    if task not in _callers:
        _callers[task] = Caller(task)
    return _callers[task]


async def use(client, ttl=60.0, *, name="a"):
    """Wait, extend, hand over: everything that needs a session."""
    lock = client.lock(name, ttl=ttl)
    async with lock as lease:
        await lease.extend(2.0)
        assert await lock.try_acquire() is None
        assert await lock.locked()
        async with asyncio.TaskGroup() as tasks:
            waiter = tasks.create_task(take(lock))
            await until_queued(lock)
            assert await lease.release() is True
        assert waiter.result() > lease.fence
    assert not await lock.locked()


async def take(lock):
    """Acquire and release, and return the fence."""
    async with lock.acquire(timeout=20) as lease:
        return lease.fence
