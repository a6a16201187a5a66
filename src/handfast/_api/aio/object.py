"""The base of objects without leases: a name, keys, and methods that leave nothing on the server when they fail."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from handfast._drivers.aio.driver import AsyncDriver
from handfast._engine.effects import Answer
from handfast._engine.objects import ObjectRequest
from handfast._engine.validate import key_parts
from handfast._objects import Named
from handfast._protocol.acquire import BaseAttempt
from handfast._protocol.asking import ObjectAttempt, watch
from handfast._signatures import signature_of
from handfast.arguments import KeyPart

__all__ = ["AsyncObject", "undoing"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=BaseAttempt)


S = TypeVar("S")


def undoing(
    method: Callable[Concatenate[S, A, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Give a method an attempt, and undo the attempt if the call fails. Callers do not see this parameter.

    The object has a driver, a request and the class of the attempts, as an `AsyncObject` has.

    The inner function below returns the result straight to the caller, so no interrupt comes in between. The method may
    return any awaitable.
    """

    @functools.wraps(method)
    async def undone(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        attempt: Any = self._driver.begin(self._attempts, self._request)
        try:
            return await method(self, attempt, *args, **kwargs)
        except BaseException as error:
            await self._driver.undo(attempt, error)
            raise

    shown = signature_of(method)
    hidden = [one for name, one in shown.parameters.items() if name != "attempt"]
    undone.__annotations__ = {name: kind for name, kind in method.__annotations__.items() if name != "attempt"}
    undone.__signature__ = shown.replace(parameters=hidden)  # type: ignore[attr-defined]  # of any function
    del undone.__wrapped__  # its signature has the parameter
    return undone


class AsyncObject(Named):
    """An object without leases."""

    _request: ObjectRequest
    _attempts: ClassVar[type[BaseAttempt]] = ObjectAttempt

    def __init__(self, driver: AsyncDriver, request: ObjectRequest, by: tuple[str, ...] = ()) -> None:
        self._driver = driver
        self._request = request
        self._by = by

    def keyed(self, *parts: KeyPart) -> Self:
        """Return the object of a key, independent of other keys. No I/O.

        Example:
            await hf.limiter("login", "5/min").keyed(user.id).try_acquire()

        Args:
            parts: The parts of the key, at least one; see `handfast.arguments.KeyPart`. 1 and "1" are the same.

        Returns:
            The object of this key, with the same options.

        Raises:
            TypeError: A part is of another type, or there is none.
            ValueError: A part is out of range.
        """
        return type(self)(self._driver, self._request.keyed(key_parts(parts)), self._by)

    async def _watch(self, verb: str, timeout: float | None) -> list[Any]:
        """Ask until the reply is not ``waits``, for ``timeout`` seconds at most. Return tag and numbers of the last reply."""
        attempt = self._driver.begin(ObjectAttempt, self._request)
        until = inf if timeout is None else attempt.asked_at + timeout
        answer: Answer = await self._driver.watch(attempt, lambda until: watch(attempt, verb, until), until)
        return answer.fields
