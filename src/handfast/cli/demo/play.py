"""The course of the demo: set up, run the acts, show what they found, and clean up.

Cleaning up happens in the opposite order on every path, an interrupted one too: first the processes, then their keys on the
server, then the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from string import ascii_uppercase
from types import ModuleType

import redis

from handfast._api.sync.client import Handfast
from handfast.cli.connect import redis_client
from handfast.cli.demo import counting, dying, freezing, limiting, making, queueing
from handfast.cli.demo.interruption import Interruption
from handfast.cli.demo.records import FULL_LENGTH, DemoSettings, Finding, exit_code
from handfast.cli.demo.screen import Screen
from handfast.cli.demo.shared import Shared, new_namespace
from handfast.cli.demo.stage import ActFailed, Stage
from handfast.cli.demo.worker import work
from handfast.embedded import PrivateServer
from handfast.testing import ProcessFailed, ProcessGroup

__all__ = ["play"]

ACTS: tuple[ModuleType, ...] = (counting, queueing, dying, freezing, limiting, making)

MIN_WORKERS = 6
"""A shorter queue could be in order by luck."""

SERVER_TIMEOUT = 5.0
"""Seconds that the server may take for a reply to the demo itself."""


def play(settings: DemoSettings, url: str | None, interruption: Interruption) -> int:
    """Run the demo and return its exit code. Raises Interrupted, NoServer, errors of redis-py, and ValueError for a wrong URL."""
    screen = Screen()
    screen.title("Handfast: what a lock is for, and what a good one does")
    where = "a private server" if url is None else "your server, in a namespace of its own"
    screen.tell(
        f"Real processes on {where}, about {FULL_LENGTH * settings.pace:.0f} seconds, {len(ACTS)} acts. "
        "Ctrl-C ends the demo at any moment. Nothing is left behind."
    )
    with ExitStack() as stack:
        stage = _set_up(stack, settings, url, screen, interruption)
        findings = list(_perform(stage))
    screen.title("What you have seen")
    screen.summary(findings)
    return exit_code(findings)


def _set_up(
    stack: ExitStack, settings: DemoSettings, url: str | None, screen: Screen, interruption: Interruption
) -> Stage:
    if url is None:
        url = stack.enter_context(PrivateServer()).url
    limits = {"socket_timeout": SERVER_TIMEOUT, "socket_connect_timeout": SERVER_TIMEOUT}
    client = redis_client(url, decode_responses=True, **limits)
    stack.callback(client.close)
    client.ping()
    namespace = new_namespace()
    shared = Shared(client, namespace)
    stack.callback(_delete_keys, shared, screen)
    handfast = stack.enter_context(Handfast(url, namespace=namespace, label="demo"))
    group = stack.enter_context(ProcessGroup())
    for name in ascii_uppercase[: max(settings.processes, MIN_WORKERS)]:
        group.start(work, url, namespace, name, name=name)
    return Stage(settings, screen, group, shared, handfast, interruption)


def _delete_keys(shared: Shared, screen: Screen) -> None:
    try:
        shared.delete_keys()
    except redis.RedisError as error:
        screen.tell(f"The keys of the demo could not be deleted; they expire within two minutes: {error}")


def _perform(stage: Stage) -> Iterator[Finding]:
    """Yield the findings of all acts, up to and with the first that does not come to its end."""
    title = "Start of the processes"
    try:
        for _ in stage.reports("the processes to start", len(stage.group), "ready"):
            pass
        for number, act in enumerate(ACTS, 1):
            title = act.TITLE
            stage.screen.title(f"{number} of {len(ACTS)}  {title}")
            perform: Callable[[Stage], Iterator[Finding]] = act.act
            yield from perform(stage)
    except (ActFailed, ProcessFailed) as failure:
        yield Finding(title, str(failure), held=False)
