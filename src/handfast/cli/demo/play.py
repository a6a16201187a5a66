"""The whole evening: set the stage, play the acts, say what they showed, and clear everything away.

What is set up is cleared away in the opposite order on every path, an interrupted one too: first the processes, then
what they left on the server, then the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from string import ascii_uppercase
from types import ModuleType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from handfast._api.sync.client import Handfast
from handfast.cli.demo import counting, dying, freezing, queueing
from handfast.cli.demo.crew import Crew, CrewLost
from handfast.cli.demo.interruption import Interruption
from handfast.cli.demo.records import Finding, Plan, exit_code
from handfast.cli.demo.screen import Screen
from handfast.cli.demo.shared import Shared, new_namespace
from handfast.cli.demo.stage import Broken, Stage
from handfast.embedded import PrivateServer
from handfast.errors import NoServer

__all__ = ["play"]

ACTS: tuple[ModuleType, ...] = (counting, queueing, dying, freezing)

FEWEST = 6
"""Processes on stage at least: a line of fewer would be in order by luck."""

SERVER_TIMEOUT = 5.0
"""Seconds that the server may take for an answer to the demo itself."""


def play(plan: Plan, url: str | None, interruption: Interruption) -> int:
    """Show everything; the exit code. Raises Interrupted, NoServer and the client library's errors."""
    screen = Screen()
    screen.title("Handfast: what a lock is for, and what a good one does")
    where = "a private server" if url is None else "your server, in a namespace of its own"
    screen.tell(
        f"Real processes on {where}, {30 * plan.pace:.0f} seconds, {len(ACTS)} acts. "
        "Ctrl-C ends it at any moment. Nothing is left behind."
    )
    with ExitStack() as stack:
        stage = _set(stack, plan, url, screen, interruption)
        findings = list(_perform(stage))
    screen.title("What you have seen")
    screen.summary(findings)
    return exit_code(findings)


def _set(stack: ExitStack, plan: Plan, url: str | None, screen: Screen, interruption: Interruption) -> Stage:
    if url is None:
        url = stack.enter_context(PrivateServer()).url
    client = _client(url)
    stack.callback(client.close)
    client.ping()
    namespace = new_namespace()
    shared = Shared(client, namespace)
    stack.callback(_sweep, shared, screen)
    handfast = stack.enter_context(Handfast(url, namespace=namespace, label="demo"))
    crew = stack.enter_context(Crew(url, namespace))
    crew.start(ascii_uppercase[: max(plan.processes, FEWEST)])
    return Stage(plan, screen, crew, shared, handfast, interruption)


def _client(url: str) -> redis.Redis:
    try:
        return redis.Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=SERVER_TIMEOUT,
            socket_connect_timeout=SERVER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise NoServer(str(error)) from error


def _sweep(shared: Shared, screen: Screen) -> None:
    try:
        shared.sweep()
    except redis.RedisError as error:
        screen.tell(f"The server could not be asked to delete our keys, which expire by themselves: {error}")


def _perform(stage: Stage) -> Iterator[Finding]:
    """The findings of all acts, up to and with the first that does not come to its end."""
    title = "The processes start"
    try:
        for _ in stage.listen("the processes to start", len(stage.crew.names), "ready"):
            pass
        for number, act in enumerate(ACTS, 1):
            title = act.TITLE
            stage.screen.title(f"{number} of {len(ACTS)}  {title}")
            perform: Callable[[Stage], Iterator[Finding]] = act.act
            yield from perform(stage)
    except (Broken, CrewLost) as failure:
        yield Finding(title, str(failure), held=False)
