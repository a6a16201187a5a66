"""A table of all that a user can enter, have a function run by, or call: objects, policies and loops, in both APIs.

A row says how the thing is made, and what its shape is: a block, something that runs a function, or calls. What a
question needs beyond that is derived from the shape. `Visit` is a caller in a block or in a function, whichever it is.
The questions are in ``tests/gate/questions``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Literal

import handfast._api.sync
import handfast._drivers
import handfast._engine.exchange
import handfast._protocol
from handfast import Handfast
from handfast.testing import Run, cancel_everywhere, interrupt_everywhere
from tests._support.apis import ASYNCIO, Api
from tests._support.helpers import BOUND_S, awaited
from tests._support.objects import METRICS, OBJECTS, Sample

__all__ = [
    "ALWAYS_ASKED",
    "OPERATED",
    "ROWS",
    "Row",
    "Visit",
    "begin",
    "kept_out",
    "made",
    "stopped_everywhere",
    "until",
]

ALWAYS_ASKED = frozenset({"entered", "function", "user_error", "outage"})
"""Questions that a row can't refuse with ``no``: each answer there was a fault once."""

SHORT_TTL_S = 3.0
"""The ttl in seconds where a lease may be left on the server: its clock does not jump with ours."""

LONG_S = 3600
"""A grace in seconds that does not end in a test."""

POLL_S = 0.002
"""Seconds between two looks at a condition."""

QUICK = {"every": 0.05}
"""Items are assigned within a few milliseconds."""

BLOCK_ONLY = ("entered", "nested", "interrupted", "given_up", "without_server")
"""The questions of a policy that is entered otherwise, and then is as its object."""

FUNCTION_ONLY = ("function", "user_error")
"""The questions of a decorated function, which is in a block of the object."""

OPERATED: dict[str, Callable[[Any], Any]] = {
    "lock": lambda client: client.lock("a"),
    "semaphore": lambda client: client.semaphore("a", 2),
    "rwlock": lambda client: client.rwlock("a").write(),
    "election": lambda client: client.election("a"),
    "once": lambda client: client.once("a"),
}
"""What an operator can hold, by the kind of the name; each takes a client."""


def _holding(kind: str, there: Handfast) -> int:
    holding: int = OPERATED[kind](there).status().holding
    return holding


def _owned(partition: Any) -> int:
    """Return how many items have an owner, and how many workers there are."""
    owners: int = sum(owner is not None for owner in partition.owners().values())
    return owners + int(partition._group.size())


BUSY: dict[str, Callable[[Any], int]] = {
    **{kind: partial(_holding, kind) for kind in OPERATED},
    "once": lambda there: there.once("a").status().state == "running",
    "group": lambda there: there.group("a").size(),
    "partition": lambda there: _owned(there.partition("a", ["x", "y"])),
    "debounce": lambda there: there.debounce("a", 1.0).status().items,
    "limiter": lambda _: 0,
    "budget": lambda there: int(there.budget("a", "1000/total").status().held),
}
"""How many are in it, as the server tells, by the kind of the name; each takes a client of the sync API."""


# --- rows


def _itself(made: Any) -> Any:
    return made


@dataclass(frozen=True)
class Row:
    """An object, a policy or a loop. What is not said is as of a lock."""

    make: Callable[..., Any]
    """Takes a client, the name, by default "a", and options."""
    of: str
    """The kind of its name, as in `handfast._kinds`."""
    enter: Callable[[Any], Any] | None = _itself
    """Returns a block of what was made; None where there is no block."""
    run: Callable[[Any, Any], Any] | None = None
    """Has a function of the user run by what was made. Where there is one, it is asked, and not the block."""
    calls: Sample | None = None
    """The calls of an object without leases."""
    places: float | None = None
    """How many can be in it at once; by default one, and any number where an operator can't hold it."""
    reenters: bool = False
    """Whether a caller that is in it may enter it again, where there is one place."""
    single: bool = False
    """Whether what `enter` returns is for one block, and is refused a second time."""
    takes_over: bool = False
    """Whether a caller that comes ends the one that is in it, or the one that waits."""
    loop: Literal["", "leads", "serves", "watches"] = ""
    """What goes on after an outage, a loss or a hold: it leads until its function ends; it serves for as long as the process
    lives, also if its function raises; or it is the user's own loop over news."""
    plain: bool = False
    """Whether the asyncio API takes plain functions, too, as its documentation says."""
    also: Callable[[Handfast], int] = lambda _: 0
    """How many are in its other names, as `BUSY` has them."""
    like: str = ""
    """The row that has the same answers, but those to the questions in ``own``."""
    own: tuple[str, ...] = ()
    """With ``like``: the questions that it is asked itself."""
    no: dict[str, str] = field(default_factory=dict)
    """Questions that do not apply, and why. Those in `ALWAYS_ASKED` can't be refused."""

    @property
    def shape(self) -> str:
        """How one uses it: "block", "run" or "calls"."""
        return "run" if self.run else "block" if self.enter else "calls"

    @property
    def held(self) -> bool:
        """Whether an operator can hold its name, and end who is in it."""
        return self.of in OPERATED and self.loop != "watches"

    @property
    def room(self) -> float:
        """How many can be in it at once."""
        return self.places or (1 if self.held else inf)

    @property
    def endless(self) -> bool:
        """Whether it goes on after its function has returned, so that only its task or its client ends it."""
        return self.loop in {"serves", "watches"}

    @property
    def decorates(self) -> bool:
        """Whether what is made decorates functions."""
        return self.enter is _itself and self.loop == ""

    def has(self, attribute: str) -> bool:
        """Return whether what is made has that attribute, and it is not false."""
        with Handfast("null:") as client:
            return bool(getattr(self.make(client), attribute, False))

    def takes(self, **option: Any) -> bool:
        """Return whether it is made with that option."""
        with Handfast("null:") as client, contextlib.suppress(TypeError):
            return bool(self.make(client, **option))
        return False

    def make_with(self, client: Any, **options: Any) -> Any:
        """Make it with those of the options that it takes."""
        return self.make(
            client, **{option: value for option, value in options.items() if self.takes(**{option: value})}
        )

    def block(self, made: Any) -> Any:
        """Return a block of what was made."""
        assert self.enter is not None
        return self.enter(made)

    def busy(self, there: Handfast) -> int:
        """Return how many are in it, as the server tells."""
        return BUSY[self.of](there) + self.also(there)

    def is_free(self, there: Handfast) -> bool:
        """Return whether nothing is held after an end that was none: of items, whether the next run does them all."""
        if self.of == "debounce":
            with there.debounce("a", POLL_S).collect("next"):
                pass
        return not self.busy(there)

    def forget(self, there: Handfast) -> None:
        """Have the next caller run it, although a run has ended well."""
        if self.of == "once":
            there.once("a").forget()

    def refusal(self, question: str) -> str | None:
        """Return why this question does not apply; None if it does."""
        if self.like and question not in self.own:
            return f"as of the row {self.like}"
        return self.no.get(question)


def _made(method: str, *args: Any, **fixed: Any) -> Callable[..., Any]:
    """Return what calls that method of a client."""

    def make(client: Any, name: str = "a", **options: Any) -> Any:
        return getattr(client, method)(name, *args, **fixed | options)

    return make


def _lock_all(client: Any, name: str = "a", **options: Any) -> Any:
    return client.lock_all([name, "b"], **options)


def _together(client: Any, name: str = "a", **options: Any) -> Any:
    return client.together(client.lock(name), client.semaphore("b", 1), client.limiter("c", "1000/h"), **options)


def _serving(client: Any, name: str = "a") -> Any:
    """Return what serves the items that a function returns."""
    return lambda items: partial(client.partition(name, items).run, lambda _item, _lease: None)


def _permit(there: Handfast) -> int:
    return there.semaphore("b", 1).status().holding


def _decorated(made: Any, function: Any) -> Any:
    return made(function)()


def _each(found: Any, function: Any) -> Any:
    """Call the function for each value of an iterator of either API, until it returns True."""
    if not hasattr(found, "__aiter__"):
        return any(map(function, found))

    async def called() -> None:
        async with contextlib.aclosing(found):
            async for value in found:
                if await function(value):
                    return

    return called()


ROWS: dict[str, Row] = {
    # --- objects
    "lock": Row(_made("lock"), "lock"),
    "rlock": Row(_made("rlock"), "lock", reenters=True),
    "lock_all": Row(_lock_all, "lock", also=lambda there: there.lock("b").status().holding),
    "semaphore": Row(_made("semaphore", limit=2), "semaphore", places=2),
    "read": Row(lambda client, name="a", **options: client.rwlock(name, **options).read(), "rwlock", places=inf),
    "write": Row(lambda client, name="a", **options: client.rwlock(name, **options).write(), "rwlock"),
    "election": Row(_made("election"), "election"),
    "group": Row(_made("group"), "group", lambda made: made.join()),
    "partition": Row(_made("partition", ["x", "y"], **QUICK), "partition", lambda made: made.join(), single=True),
    "once": Row(_made("once"), "once"),
    "limiter": Row(_made("limiter", "1000/h"), "limiter", calls=OBJECTS["limiter"]),
    "limiter of metrics": Row(_made("limiter", {"requests": "1000/h", "tokens": "9000/h"}), "limiter", calls=METRICS),
    "budget": Row(
        _made("budget", "1000/total"),
        "budget",
        lambda made: made.reserve(1),
        calls=OBJECTS["budget"],
        single=True,
        no={"two": "what a closed client has held counts until the period ends"},
    ),
    "debounce": Row(_made("debounce", 0.01), "debounce", run=_decorated, calls=OBJECTS["debounce"], takes_over=True),
    "latch": Row(_made("latch", 1), "latch", None, calls=OBJECTS["latch"]),
    **{
        kind: Row(_made(kind), kind, None, calls=sample)
        for kind, sample in OBJECTS.items()
        if kind not in ("limiter", "budget", "debounce", "latch")  # which have arguments of their own
    },
    # --- policies
    "preempt": Row(
        _made("lock"), "lock", lambda made: made.preempt(grace=LONG_S), takes_over=True, like="lock", own=BLOCK_ONLY
    ),
    "replace": Row(_made("lock"), "lock", lambda made: made.replace(), like="lock", own=BLOCK_ONLY),
    "together": Row(_together, "lock", also=_permit),
    "collect": Row(
        _made("debounce", 0.01),
        "debounce",
        lambda made: made.collect("item"),
        single=True,
        takes_over=True,
        no={"two": "what a closed client had begun is another one's after `within`"},
    ),
    # --- functions
    "lock decorated": Row(_made("lock"), "lock", run=_decorated, like="lock", own=FUNCTION_ONLY),
    "limiter decorated": Row(_made("limiter", "1000/h"), "limiter", run=_decorated, like="limiter", own=FUNCTION_ONLY),
    "together decorated": Row(_together, "lock", run=_decorated, also=_permit, like="together", own=FUNCTION_ONLY),
    "once decorated": Row(_made("once", by=()), "once", run=_decorated, like="once.run", own=FUNCTION_ONLY),
    "once.run": Row(_made("once"), "once", run=lambda made, function: made.run(function), plain=True),
    # --- loops
    "election.run": Row(_made("election"), "election", run=lambda made, function: made.run(function), loop="leads"),
    "partition.run": Row(
        _made("partition", ["x"], **QUICK), "partition", run=lambda made, function: made.run(function), loop="serves"
    ),
    "partition items": Row(_serving, "partition", run=_decorated, plain=True, like="partition.run", own=("function",)),
    "observe": Row(
        _made("election"), "election", run=lambda made, function: _each(made.observe(), function), loop="watches"
    ),
    "watch": Row(_made("group"), "group", run=lambda made, function: _each(made.watch(), function), loop="watches"),
}
"""By the name that the matrix shows."""


def made(kind: str, client: Any, name: str = "a", *, places: int | None = None, **options: Any) -> Any:
    """Return what a row makes; of a semaphore, with so many places."""
    return ROWS[kind].make(client, name, **options, **{"limit": places} if places and kind == "semaphore" else {})


# --- callers

ALL_PLACES = {"semaphore": {"permits": 2}}
"""By the kind of the name: what a request for all places says. Of the others one is all."""


@contextlib.contextmanager
def kept_out(row: Row, there: Handfast) -> Any:
    """Let no one else in during the block: another process has all places."""
    lease = OPERATED[row.of](there).acquire(**ALL_PLACES.get(row.of, {}))
    try:
        yield
    finally:
        lease.release()  # no block: that of once would record a result


def begin(api: Api, call: Callable[[], Any]) -> asyncio.Task[Any]:
    """Begin a call of either API as a caller of its own, and return its task."""
    return asyncio.create_task(awaited(call()) if api is ASYNCIO else asyncio.to_thread(call))


WITHIN = [handfast._api.sync, handfast._drivers, handfast._protocol, handfast._engine.exchange]
"""The code that is interrupted."""


async def stopped_everywhere(
    api: Api, call: Callable[[], Any], *, fails: type[Exception] | tuple[()] = ()
) -> AsyncIterator[Run[Any]]:
    """Call it repeatedly, stopped at each point in turn: a function by Ctrl-C, a coroutine function by cancellations.

    A run that fails otherwise than by `fails` ends the loop. Here that is an error, since no later point would be asked.
    """
    if api is ASYNCIO:
        async for outcome in cancel_everywhere(lambda: awaited(call()), twice=True):
            assert outcome.how != "failed" or isinstance(outcome.error, fails), outcome
            yield outcome
    else:
        for outcome in interrupt_everywhere(call, within=WITHIN):
            assert outcome.how != "failed" or isinstance(outcome.error, fails), outcome
            yield outcome


bound_s = BOUND_S
"""Seconds that a question waits for an answer. No answer depends on it: what is right and what is wrong both show before."""


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition is true and return its value."""
    end = time.monotonic() + bound_s
    while not (value := condition()):
        assert time.monotonic() < end, f"still false after {bound_s} s"
        await asyncio.sleep(POLL_S)
    return value


class Visit:
    """A caller of its own, a task or a thread, which is in the block or the function of a row until it may leave.

    The block is entered in a frame of the caller's own, by which a block of the sync API is recognised.
    """

    def __init__(
        self, row: Row, api: Api, made: Any, *, block: Any = None, act: Callable[[], Any] | None = None
    ) -> None:
        self.begun = 0
        """How often it was in so far."""
        self.inside = 0
        self.leases: list[Any] = []
        """What tells of a loss, of each time; None where nothing does."""
        self.may_leave = False
        self.error: BaseException | None = None
        """What it ended with; None while it goes on, or if it ended well."""
        self._row, self._is_async, self._made, self._block, self._act = row, api is ASYNCIO, made, block, act
        if self._is_async:
            self._task = asyncio.create_task(self._visit_async())
        else:
            self._thread = threading.Thread(target=self._visit, name="visitor", daemon=True)
            self._thread.start()

    @property
    def ended(self) -> bool:
        return self._task.done() if self._is_async else not self._thread.is_alive()

    def is_blind(self) -> bool:
        """Return whether its code can't learn that it is to end: in the sync API a function that gets no lease."""
        return not self._is_async and self.leases[-1] is None

    async def until(self, condition: Callable[[], Any]) -> bool:
        """Wait until the condition holds, or the caller has ended and it can't any more. Return whether it holds."""
        await until(lambda: self.ended or condition())
        return bool(condition())

    async def enters(self, times: int = 1) -> bool:
        """Wait until it was in so often, or has ended. Return whether it was."""
        return await self.until(lambda: self.begun >= times)

    async def leaves(self) -> BaseException | None:
        """Have it leave, and return its error. What is endless in the sync API ends with its client only: close it before."""
        self.may_leave = True
        if self._row.endless and self._is_async:
            self._task.cancel()
        await until(lambda: self.ended)
        return self.error

    def cancel(self) -> None:
        """End it, whatever it waits for; a thread ends with its client."""
        self.may_leave = True
        if self._is_async:
            self._task.cancel()

    def _visit(self) -> None:
        try:
            if self._row.run is not None:
                self._row.run(self._made, self._stay)
            else:
                with self._row.block(self._made) if self._block is None else self._block as entered:
                    self._stay(entered)
        except BaseException as error:  # noqa: BLE001 -- the question judges it
            self.error = _without_frames(error)

    async def _visit_async(self) -> None:
        try:
            if self._row.run is not None:
                await self._row.run(self._made, self._stay_async)
            else:
                async with self._row.block(self._made) if self._block is None else self._block as entered:
                    await self._stay_async(entered)
        except BaseException as error:  # noqa: BLE001 -- asyncio would end its loop by a SystemExit
            self.error = _without_frames(error)

    def _stay(self, *entered: Any) -> bool:
        with self._in(entered):
            if self._act is not None:
                self._act()
            while self._stays():
                time.sleep(POLL_S)
                self._look()
        return self.may_leave

    async def _stay_async(self, *entered: Any) -> bool:
        with self._in(entered):
            if self._act is not None and inspect.isawaitable(acted := self._act()):
                await acted
            while self._stays():  # noqa: ASYNC110 -- one flag for both APIs
                await asyncio.sleep(POLL_S)
        return self.may_leave

    @contextlib.contextmanager
    def _in(self, entered: tuple[Any, ...]) -> Any:
        self.leases.append(_lease_of(*entered[-1:]))
        self.inside += 1
        self.begun += 1
        try:
            yield
        finally:
            self.inside -= 1

    def _stays(self) -> bool:
        return not self.may_leave and self._row.loop != "watches"

    def _look(self) -> None:
        """Look after the lease, as code of the sync API must."""
        lease = self.leases[-1]
        if lease is not None and (lease.lost or getattr(lease, "wanted", None)):
            lease.check()


def _lease_of(entered: Any = None) -> Any:
    """Return what has ``lost`` of that in which a caller is; None if nothing has."""
    return entered if hasattr(entered, "lost") else next(iter(getattr(entered, "leases", ())), None)


def _without_frames(error: BaseException) -> BaseException:
    """Return the error without its tracebacks, whose frames keep leases alive."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__context__
    return error
