"""The course of the demo: set up, run the acts, show the findings, and clean up, also after an interrupt."""

from __future__ import annotations

import secrets
import sys
from contextlib import ExitStack
from string import ascii_uppercase
from typing import Any

from rich.padding import Padding
from rich.table import Table

from handfast._api.sync.client import Handfast
from handfast._engine.keys import KeySet
from handfast._engine.script import load
from handfast._protocol import auditing
from handfast.cli.connect import redis_client
from handfast.cli.demo import scene
from handfast.cli.demo.acts import ACTS, ITEMS
from handfast.cli.demo.stage import ActFailed, Finding, Stage
from handfast.cli.demo.worker import RATE
from handfast.embedded import PrivateServer
from handfast.fencing import guard_key

__all__ = ["play"]

_MARKS = {True: "[bold green]✓ yes", False: "[bold red]✗ NO", None: "[dim]no promise"}


def play(url: str | None, processes: int, pace: float, *, has_page: bool = False) -> int:
    """Run the demo and return its exit code.

    Raises NoServer, errors of redis-py, ValueError for a wrong URL, and ImportError if the page's extra is missing.
    """
    namespace = f"handfast-demo-{secrets.token_hex(6)}"
    where = "a private server" if url is None else "your server, in a namespace of its own"
    with ExitStack() as stack:
        url = stack.enter_context(PrivateServer("--appendonly", "yes")).url if url is None else url
        client: Any = redis_client(url, decode_responses=True, socket_timeout=5, socket_connect_timeout=5)
        stack.callback(client.close)
        client.ping()
        stack.callback(_delete_keys, client, namespace)
        hf = stack.enter_context(Handfast(url, namespace=namespace, label="demo"))
        stage = Stage(hf, lambda key: client.get(f"{namespace}:{key}"), processes, pace)
        stack.callback(stage.close)
        stage.title("Handfast: what a lock is for, and what a good one does")
        stage.tell(
            f"Real processes on {where}, about {40 * pace:.0f} seconds, {len(ACTS)} acts. "
            "Ctrl-C ends the demo at any moment. Nothing is left behind."
        )
        if has_page:
            from handfast.cli.demo.page import page_of

            stack.enter_context(scene.playing(url, namespace))
            stage.tell(f"In a browser: [b]{stack.enter_context(page_of(hf))}[/]")
        for name in ascii_uppercase[: max(processes, 6)]:  # a shorter queue could be in order by luck
            stage.start(name, url, namespace)
        findings = _perform(stage)
        if has_page and sys.stdin.isatty():
            stage.tell("The page shows what is left, until you press Enter.")
            sys.stdin.readline()
    stage.title("What you have seen")
    table = Table("tried", "seen", "as promised", box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for finding in findings:
        table.add_row(finding.what, finding.seen, _MARKS[finding.held])
    stage.console.print(Padding(table, (0, 0, 0, 2), expand=False))
    return int(any(finding.held is False for finding in findings))


def _perform(stage: Stage) -> list[Finding]:
    """Return the findings of all acts, up to and with the first unfinished act."""
    findings: list[Finding] = []
    title = "Start of the processes"
    try:
        stage.words("ready", len(stage.workers))
        for number, act in enumerate(ACTS, 1):
            title = (act.__doc__ or act.__name__.replace("_", " ").capitalize()).rstrip(".")
            stage.title(f"{number} of {len(ACTS)}  {title}")
            findings += act(stage)
    except ActFailed as failure:
        findings.append(Finding(title, str(failure), held=False))
    return findings


def _delete_keys(client: Any, namespace: str) -> None:
    """Delete all keys, until nothing is left: the last command of a killed process may arrive late."""
    places = [(KeySet(namespace, "lock", name), "permit_acquire") for name in ("counter", "door", "killed", "frozen")]
    places.append((KeySet(namespace, "once", "report"), "once_acquire"))
    bots = KeySet(namespace, "partition", "bots")
    places += [(bots, "group_watch"), *((bots.keyed((item,)), "permit_acquire") for item in ITEMS)]
    keys = [place.key(part) for place, script in places for part in load(script).header.keys]
    keys.append(KeySet(namespace, auditing.KIND, "operators").key("log"))  # where the page was used to act
    limiter = KeySet(namespace, "limiter", "service")
    keys += map(limiter.key, ("queue", "waiting", "tombstones", "rates", f"window:{1000 * RATE.per:g}"))
    resource = f"{namespace}:resource"
    keys += f"{namespace}:free", f"{namespace}:locked", resource, guard_key(resource)
    keys += scene.places(namespace)
    while client.unlink(*keys):
        pass
