"""Debouncing: of calls that follow each other, the newest one runs when it has been quiet for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from handfast._api.aio.object import AsyncObject, undoing
from handfast._api.decorators import CallKey, coroutine_function, replacing
from handfast._naming import name_publicly
from handfast._protocol import debouncing
from handfast._protocol.asking import ObjectAttempt

__all__ = ["AsyncDebounce"]

P = ParamSpec("P")
R = TypeVar("R")


class AsyncDebounce(AsyncObject):
    """A debounced name. Made by the client's ``debounce()``.

    Calls of one name that follow each other are a burst, in however many processes they are. The newest call waits until
    it has been quiet, or until the burst has lasted long enough, and runs; each earlier one ends when a later call comes.
    So one worker waits for each burst, and it runs once.

    What runs may overlap with the run of the next burst: put a lock around it where it must not. If the process of the
    newest call dies while it waits, the burst ends without a run, as if the call had not been made.

    Example:
        rebuild = hf.debounce("reindex", 5.0, at_most=60.0)

        if await rebuild.wait():
            await reindex()
    """

    @undoing
    def wait(self, attempt: ObjectAttempt, /) -> Awaitable[bool]:
        """Wait until it has been quiet, or until a later call takes over.

        If it raises, is cancelled or is interrupted, the call is withdrawn; if it was the newest one, its burst ends
        without a run.

        Returns:
            True for the newest call, when its time has come: the caller is to run. False as soon as a later call has
            taken over.

        Raises:
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``.
            redis.exceptions.TimeoutError: The server does not answer.
        """
        return self._driver.wait(attempt, debouncing.wait(attempt))

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """Decorate a function: each call of it waits, and runs it if it is the newest one then.

        The decorated function returns the result, or None where a later call took over. With the ``by`` of the client's
        ``debounce()``, calls count for the key that their arguments make; it runs with the arguments of the newest one.

        Example:
            @hf.debounce("reindex", 5.0, at_most=60.0, by="customer")
            async def reindex(customer): ...

        Args:
            function: What to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: ``by`` names what is no parameter of the function; or the name has braces, which stand for
                arguments in the names of locks: use ``by``.
        """
        function = coroutine_function(function)
        key = CallKey(self._by, function, self.name)

        @replacing(function)
        async def debounced(*args: P.args, **kwargs: P.kwargs) -> R | None:
            one = self.keyed(*key.parts(args, kwargs)) if self._by else self
            return await function(*args, **kwargs) if await one.wait() else None

        return debounced


name_publicly(globals(), "handfast")
