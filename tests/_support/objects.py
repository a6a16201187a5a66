"""Samples of the objects without leases, for the tests of every object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["METRICS", "OBJECTS", "WAITING", "Sample", "is_waiting"]


class Sample(NamedTuple):
    """Calls of an object. Each function takes a client and a name."""

    make: Callable[[Any, str], Any]
    use: Callable[[Any, str], Any]
    """A call that ends at once, or in a moment."""
    script: str
    """The script or command of that call."""
    short: Callable[[Any, str], Any] | None = None
    """A call that waits, and ends by itself in a moment; None if no method waits."""
    wait: Callable[[Any, str], Any] | None = None
    """A call that waits until `let_go`."""
    let_go: Callable[[Any, str], Any] | None = None
    waits: str = ""
    """The key that exists while a call waits, and behind a dot a field of the key."""
    forgets: bool = False
    """Whether a call that gives up leaves the key ``waits`` until a TTL ends."""
    others: tuple[str, ...] = ()
    """Methods without arguments."""


def _limited(slow: Any, quick: Any) -> Sample:
    """Return the calls of a limiter under rates that admit one an hour, or one soon."""
    return Sample(
        lambda client, name: client.limiter(name, slow),
        lambda client, name: client.limiter(name, slow).try_acquire(),
        "limit_acquire",
        lambda client, name: client.limiter(name, quick).acquire(),
        lambda client, name: client.limiter(name, slow).acquire(),
        lambda client, name: client.limiter(name, slow).reset(),
        "queue",
    )


METRICS = _limited({"requests": "1/h", "tokens": "90/h"}, {"requests": "1/4ms", "tokens": "90/h"})
"""The calls of a limiter of several metrics."""


def _through(block: Any) -> Any:
    """Enter and leave a block of either API."""

    async def through() -> None:
        async with block:
            pass

    if hasattr(block, "__aenter__"):
        return through()
    with block:
        return None


OBJECTS = {
    "limiter": _limited("1/h", "1/4ms"),
    "budget": Sample(
        lambda client, name: client.budget(name, "1000/total"),
        lambda client, name: _through(client.budget(name, "1000/total").reserve(1)),
        "budget_reserve",
        others=("status", "forget"),
    ),
    "debounce": Sample(
        lambda client, name: client.debounce(name, 300.0),
        lambda client, name: client.debounce(name, 0.01).wait(),
        "debounce_enter",
        lambda client, name: client.debounce(name, 0.002).wait(),
        lambda client, name: client.debounce(name, 300.0).wait(),
        lambda client, name: client.debounce(name, 0.01).wait(),
        "burst.token",
    ),
    "latch": Sample(
        lambda client, name: client.latch(name, 2),
        lambda client, name: client.latch(name, 2).done("x"),
        "latch_done",
        lambda client, name: client.latch(name, 2).wait(timeout=0.002),
        lambda client, name: client.latch(name, 2).wait(),
        lambda client, name: client.latch(name, 2).done("x", "y"),
        "watchers",
        forgets=True,
        others=("status", "forget"),
    ),
    "autocomplete": Sample(
        lambda client, name: client.autocomplete(name), lambda client, name: client.autocomplete(name).add("x"), "ZADD"
    ),
    "scores": Sample(
        lambda client, name: client.scores(name),
        lambda client, name: client.scores(name).advance({"x": 1}),
        "scores_advance",
    ),
}
"""By the kind of their keys."""
WAITING = [kind for kind, sample in OBJECTS.items() if sample.wait is not None]
"""The kinds with a call that waits."""


def is_waiting(server: Any, kind: str, name: str) -> bool:
    """Return whether a call waits on the server, a connection of redis-py."""
    part, _, field = OBJECTS[kind].waits.partition(".")
    key = f"{{hf:{kind}:{name}}}:{part}"
    return bool(server.hexists(key, field) if field else server.exists(key))
