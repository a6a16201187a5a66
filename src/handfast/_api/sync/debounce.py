# Generated from _api/aio/debounce.py by tools/unasync.py: edit that file and run the tool.
"""Debouncing: of calls that follow each other, the newest one runs when it has been quiet for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from handfast._api.decorators import CallKey, plain_function, replacing
from handfast._api.sync.object import Object, undoing
from handfast._naming import name_publicly
from handfast._protocol import debouncing
from handfast._protocol.asking import ObjectAttempt

__all__ = ["Debounce"]

P = ParamSpec("P")
R = TypeVar("R")


class Debounce(Object):
    """A debounced name. Made by the client's ``debounce()``.

    Calls of one name that follow each other are a burst, in however many processes they are. The newest call waits until
    it has been quiet, or until the burst has lasted long enough, and runs; each earlier one ends when a later call comes.
    So one worker waits for each burst, and it runs once.

    What runs may overlap with the run of the next burst: put a lock around it where it must not. If the process of the
    newest call dies while it waits, the burst ends without a run, as if the call had not been made.

    Example:
        rebuild = hf.debounce("reindex", 5.0, at_most=60.0)

        if rebuild.wait():
            reindex()
    """

    @undoing
    def wait(self, attempt: ObjectAttempt, /) -> bool:
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

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]:
        """Decorate a function: each call of it waits, and runs it if it is the newest one then.

        The decorated function returns the result, or None where a later call took over. With the ``by`` of the client's
        ``debounce()``, calls count for the key that their arguments make; it runs with the arguments of the newest one.

        Example:
            @hf.debounce("reindex", 5.0, at_most=60.0, by="customer")
            def reindex(customer): ...

        Args:
            function: What to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: ``by`` names what is no parameter of the function; or the name has braces, which stand for
                arguments in the names of locks: use ``by``.
        """
        function = plain_function(function)
        key = CallKey(self._by, function, self.name)

        @replacing(function)
        def debounced(*args: P.args, **kwargs: P.kwargs) -> R | None:
            one = self.keyed(*key.parts(args, kwargs)) if self._by else self
            return function(*args, **kwargs) if one.wait() else None

        return debounced


name_publicly(globals(), "handfast")
