"""No server, for tasks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.null import NullDriver

__all__ = ["AsyncNullDriver"]


def _awaitable(method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    async def awaitable(self: AsyncNullDriver, *args: Any, **options: Any) -> Any:
        return method(self, *args, **options)

    return awaitable


class AsyncNullDriver(NullDriver):
    """The driver behind the asyncio API of a client that coordinates nothing."""

    @staticmethod
    def _later(seconds: float, function: Callable[[], object]) -> Any:
        return asyncio.get_running_loop().call_later(seconds, function)

    caller, is_over = staticmethod(AsyncDriver.caller), staticmethod(AsyncDriver.is_over)

    acquire = _awaitable(NullDriver.acquire)
    acquire_in_turns = _awaitable(NullDriver.acquire_in_turns)
    try_acquire = _awaitable(NullDriver.try_acquire)
    wait = _awaitable(NullDriver.wait)
    watch = _awaitable(NullDriver.watch)
    undo = _awaitable(NullDriver.undo)
    release = _awaitable(NullDriver.release)
    leave = _awaitable(NullDriver.leave)
    extend = _awaitable(NullDriver.extend)
    downgrade = _awaitable(NullDriver.downgrade)
    number = _awaitable(NullDriver.number)
    detach = _awaitable(NullDriver.detach)
    adopt = _awaitable(NullDriver.adopt)
    run = _awaitable(NullDriver.run)
    finish = _awaitable(NullDriver.finish)
    look = _awaitable(NullDriver.look)
    close = _awaitable(NullDriver.close)
