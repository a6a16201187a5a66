# Generated from _api/aio/debounce.py by tools/unasync.py: edit that file and run the tool.
"""Debouncing: of calls that follow each other, the newest runs after a quiet time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from handfast._api.decorators import CallKey, plain_function, replacing
from handfast._api.results import Codec
from handfast._api.sync.collecting import Collecting
from handfast._api.sync.object import Object, undoing
from handfast._engine.validate import check_int, milliseconds, reply_seconds
from handfast._naming import name_publicly
from handfast._protocol import debouncing
from handfast._protocol.asking import ObjectAttempt
from handfast.arguments import Duration

if TYPE_CHECKING:
    from handfast.records import DebounceStatus

__all__ = ["Debounce"]

P = ParamSpec("P")
R = TypeVar("R")

MAX_ITEM_BYTES = 64 * 1024
"""Upper bound of an item as it is stored. Larger ones belong into a store of their own; leave where they are."""

MAX_ITEMS = 1000
"""Upper bound of the items of a run: the server hands them out in one step."""

MAX_WITHIN_MS = 24 * 3600 * 1000
"""Upper bound of the time for which a run has its items. The server keeps them for a week."""


class Debounce(Object):
    """A debounced name. Made by the client's ``debounce()``.

    Successive calls of a name are a burst, in however many processes they are. The newest call waits until it has been
    quiet, or until the burst has lasted long enough, and runs; each earlier call ends when a later call comes. So a
    single worker waits for each burst, and the burst runs once.

    A run may overlap with the run of the next burst: put a lock around it where it must not. If the process of the
    newest call dies while it waits, the burst ends without a run, as if the call had not been made.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        rebuild = hf.debounce("reindex", 5.0, at_most=60.0)

        if rebuild.wait():
            reindex()
    """

    @undoing
    def wait(self, attempt: ObjectAttempt, /) -> bool:
        """Wait until it has been quiet, or until a later call takes over.

        If it raises, is cancelled or is interrupted, the call is withdrawn; if it was the newest, the burst ends
        without a run.

        Returns:
            True for the newest call, when its time has come: the caller is to run. False as soon as a later call has
            taken over.

        Raises:
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
        """
        return self._driver.wait(attempt, debouncing.wait(attempt))

    def collect(
        self,
        item: Any,
        /,
        *,
        within: Duration = 60.0,
        max_items: int = MAX_ITEMS,
        dumps: Callable[[Any], bytes] | None = None,
        loads: Callable[[bytes], Any] | None = None,
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """Leave an item, and wait as in `wait`: the block of the newest call gets the items of the whole burst.

        The block of each other call gets no items, as soon as a later call takes over. When the block ends, the items
        are done, and the server forgets them. If it raises, if the process dies, or if it takes longer than ``within``,
        another run gets them: an item is done at least once. If nothing runs any more, they stay for a week, for the
        next burst.

        An item stays where it is if the call raises later, or is cancelled: it is independent of the call which runs.
        The items that such a call had taken already are there for the next run at once. A run may also get no items,
        where an earlier run was quicker. Calls of `wait` leave items alone: use only `wait` or only `collect` for a
        name.

        Example:
            comments = hf.debounce("comments", 30.0, at_most=300.0, by="post")

            with comments.keyed(post.id).collect(comment.id) as ids:
                if ids:
                    notify(post, ids)

        Args:
            item: The item for the run, up to 64 KiB as it is stored.
            within: Seconds after which the items of this run go to another run if the block has not ended: a number or
                a timedelta, from 0.001 s to a day.
            max_items: How many items a run gets at most, 1 to 1,000: the call that leaves the last of these runs at once.
            dumps: From an item to the bytes that are stored; by default JSON. Needs ``loads``, which reads them back;
                ``dumps=bytes`` stores bytes as they are.
            loads: From the bytes to the item.

        Returns:
            A context manager, for one block. Its value is a tuple of items, in the order of their arrival: empty where a
            later call has taken over.

        Raises:
            RuntimeError: The block was entered before.
            QueueFull: No run has done the last 10,000 items. This item was not taken.
            TypeError: An argument has the wrong type; or the item can't be stored.
            ValueError: An argument is out of range; or the item can't be stored, or is too large.
            ServerRefused: The server is out of memory, read-only, or lacks replicas or permissions.
            redis.exceptions.ConnectionError: The server can't be reached, or not again within the client's
                ``retry_for``. At the end of the block: the items may be done again.
            redis.exceptions.TimeoutError: The server does not answer. At the end of the block: the same.
        """
        codec = Codec(dumps, loads, "an item", MAX_ITEM_BYTES)
        within_ms, most = milliseconds(within, "within"), check_int(max_items, "max_items", MAX_ITEMS)
        if within_ms > MAX_WITHIN_MS:
            raise ValueError(f"within must be at most a day, not {within!r}")
        stored = codec.encode(item)[0]
        collect = partial(debouncing.collect, item=stored, most=most, within_ms=within_ms)
        return Collecting(self._driver, self._request, collect, codec.decode)

    def status(self, *, timeout: Duration | None = None) -> DebounceStatus:
        """Return whether a call waits, when it runs, and how many items there are. Takes a round trip.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for. None
                takes the ``socket_timeout`` of the client's settings.
        """
        return self._driver.look(debouncing.status(self._request), self.name, reply_seconds(timeout))

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]:
        """Decorate a function: each call of it waits, and runs it if it is the newest then.

        The decorated function returns the result, or None where a later call took over. With the ``by`` of the client's
        ``debounce()``, calls count for the key made of their arguments; the function runs with the arguments of the
        newest call.

        Example:
            @hf.debounce("reindex", 5.0, at_most=60.0, by="customer")
            def reindex(customer): ...

        Args:
            function: The function to decorate.

        Raises:
            TypeError: The function is of a kind that cannot be decorated.
            ValueError: A name in ``by`` is no parameter of the function; or the name has braces, which stand for
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
