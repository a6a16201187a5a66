"""``await lock.acquire()`` and ``async with lock.acquire() as lease``: one call that can be used both ways."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from handfast._api.aio.lease import AsyncLease

__all__ = ["AcquireContext", "acquire_context"]

P = ParamSpec("P")
L = TypeVar("L", bound="AsyncLease")


class AcquireContext(Coroutine[Any, Any, L]):
    """A coroutine that gives a lease; entered as a block, it holds the lease for as long as the block lasts."""

    def __init__(self, coroutine: Coroutine[Any, Any, L], name: str) -> None:
        self._coroutine = coroutine
        self.__name__ = self.__qualname__ = name  # for whoever shows a task that runs it

    def __await__(self) -> Generator[Any, Any, L]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """As a coroutine does."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine does."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """As a coroutine does."""
        self._coroutine.close()

    async def __aenter__(self) -> L:
        self._lease = await self._coroutine
        return await self._lease.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lease.__aexit__(exc_type, exc, traceback)


def acquire_context(method: Callable[P, Coroutine[Any, Any, L]]) -> Callable[P, AcquireContext[L]]:
    """Let a method that gives a lease be awaited, or entered."""

    @functools.wraps(method)
    def entering(*args: P.args, **kwargs: P.kwargs) -> AcquireContext[L]:
        return AcquireContext(method(*args, **kwargs), method.__qualname__)

    return entering
