"""One suite for both APIs: tests are coroutines, and here the sync objects learn to be awaited.

A task of a test stands for a caller: a task of the asyncio API, a thread of the sync one. So in the sync API every
task gets a thread of its own, in which all its calls block, and a block is entered and left by one and the same thread.
Which methods are to be awaited is asked of the asyncio twin, so a method that is new needs no word here.
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

__all__ = ["ASYNCIO", "SYNC", "Api", "until_queued"]

TWINS = {
    getattr(handfast, name.removeprefix("Async")): getattr(handfast, name)
    for name in handfast.__all__
    if name.startswith("Async")
} | {threading.Event: asyncio.Event}


@dataclass(frozen=True)
class Api:
    """What a test says only once, and each API calls something else."""

    name: str
    handfast: type
    other: type
    """The client of the other API."""
    library: ModuleType
    """Where the user's own clients come from."""

    def client(self, server=None, **options):
        """A client of ours, to be awaited in either API."""
        return face(self.handfast(server, **options))

    def embedded(self, **options):
        """A client of the user's shared server."""
        return face(self.handfast.embedded(**options))

    @contextlib.asynccontextmanager
    async def users_client(self, **options):
        """A client of redis-py, as users have one; closed at the end."""
        client = self.library.Redis(**options)
        if self is SYNC:
            with client:
                yield client
        else:
            async with client:
                yield client

    @contextlib.asynccontextmanager
    async def users_sentinel(self, port):
        """The Sentinel at that port, as redis-py asks it for primaries."""
        sentinel = self.library.sentinel.Sentinel([("127.0.0.1", port)], socket_timeout=1)
        try:
            yield sentinel
        finally:
            for client in sentinel.sentinels:
                await settled(client.close() if self is SYNC else client.aclose())

    def function(self, body):
        """A function of this API, for a lock of this API to decorate."""
        if self is SYNC:
            return body

        @functools.wraps(body)
        async def function(*args, **kwargs):
            return body(*args, **kwargs)

        return function


SYNC = Api("sync", Handfast, AsyncHandfast, redis)
ASYNCIO = Api("asyncio", AsyncHandfast, Handfast, redis.asyncio)


async def until_queued(lock, waiting=1):
    """Wait until that many stand in line for the lock."""

    async def enough():
        return (await lock.status()).waiting >= waiting

    await eventually_async(enough)


# --- the sync objects, awaited


def face(value):
    """A sync object as its asyncio twin would look; anything else as it is."""
    return Face(value) if type(value) in TWINS else value


class Face:
    """A sync object whose methods are awaited wherever those of its asyncio twin are."""

    def __init__(self, thing):
        self._thing = thing
        self._twin = TWINS[type(thing)]

    def __repr__(self):
        return repr(self._thing)

    def __getattr__(self, name):
        value = getattr(self._thing, name)
        if inspect.iscoroutinefunction(inspect.unwrap(getattr(self._twin, name, None))):
            return partial(Call, value)
        if inspect.ismethod(value):
            return lambda *args, **kwargs: face(value(*args, **kwargs))
        return face(value)

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
    """A call that blocks the thread of the task that awaits it, or that enters its result."""

    def __init__(self, function, *args, **kwargs):
        self._function = partial(function, *args, **kwargs)

    def __await__(self):
        return self._made().__await__()

    async def _made(self):
        return face(await thread_of(asyncio.current_task()).call(self._function))

    async def __aenter__(self):
        self._entered = await self
        return await self._entered.__aenter__()

    async def __aexit__(self, *exc):
        return await self._entered.__aexit__(*exc)


class Caller:
    """A thread that makes the calls of one task, one after the other, and ends with it."""

    def __init__(self, task):
        self._calls = SimpleQueue()
        task.add_done_callback(lambda _: self._calls.put(None))
        threading.Thread(target=self._run, name="caller", daemon=True).start()  # if it hangs, nobody waits for it

    async def call(self, function):
        """What the function gives. Nothing of it stays in the thread, where a lease that the test drops would live on."""
        loop, done, box = asyncio.get_running_loop(), asyncio.Event(), [function]

        def work():
            try:
                box.append((box.pop()(), None))
            except BaseException as error:  # noqa: BLE001 -- it is raised in the task
                box.append((None, error))
            with contextlib.suppress(RuntimeError):  # the test failed, and its loop is gone
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
    """The thread that stands for this task."""
    if task not in _callers:
        _callers[task] = Caller(task)
    return _callers[task]
