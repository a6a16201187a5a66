"""``holdfast bench``: measure locks against each other on this machine. `holdfast.bench` says how, and with which doubt."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import IO

import click
from rich.console import Console
from rich.progress import track

from holdfast.bench.contenders import CONTENDERS, available
from holdfast.bench.figures import Measurement, summarize
from holdfast.bench.machine import describe
from holdfast.bench.runner import Plan, run
from holdfast.bench.table import table
from holdfast.drivers.embedded import PrivateServer

__all__ = ["command"]

LONGEST_HOLD_MS = 1000.0


@click.group()
def command() -> None:
    """Measure locks against each other on this machine."""


def _counts(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        counts = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter("must be numbers with commas between them, such as 1,2,5,10") from None
    if min(counts) < 1:
        raise click.BadParameter("a count of clients must be at least 1")
    return counts


@command.command()
@click.option("--url", help="The server to measure on. Default: one of its own, started for this.")
@click.option("--clients", default="1,2,5,10", callback=_counts, show_default=True, help="How many processes contend.")
@click.option("--rounds", default=3, type=click.IntRange(1), show_default=True, help="How often all is measured.")
@click.option("--seconds", default=2.0, type=click.FloatRange(0.05), show_default=True, help="Of each measurement.")
@click.option("--hold", default=0.0, type=click.FloatRange(0, LONGEST_HOLD_MS), help="Milliseconds to hold the lock.")
@click.option("--only", multiple=True, type=click.Choice(list(CONTENDERS)), help="These contenders alone; repeatable.")
@click.option("--json", "file", type=click.File("w", lazy=False), help="Write raw results and machine to this file.")
def lock(
    *,
    url: str | None,
    clients: tuple[int, ...],
    rounds: int,
    seconds: float,
    hold: float,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Let processes contend for one lock: the classic listings, today's locks, Holdfast, and the wire floor.

    Contenders take turns on one server, in several rounds; figures are medians. "x floor" compares with our own scripts
    over a bare socket, "x Lua" with the classic listing. Fails when a client hangs or two clients held the lock at once.
    """
    contenders = tuple(name for name in available() if not only or name in only)
    if missing := set(only) - set(contenders):
        raise click.UsageError(f"not installed: {', '.join(missing)}")
    with nullcontext(url) if url else PrivateServer() as server:
        plan = Plan(
            server if isinstance(server, str) else server.url, contenders, clients, rounds, seconds, hold / 1000
        )
        machine = describe(plan.url)
        measurements = _measure(plan)
    rows = summarize(measurements)
    if file is not None:
        settings = {"clients": clients, "rounds": rounds, "seconds": seconds, "hold_ms": hold}
        raw = {"bench": "lock", "machine": machine, "settings": settings}
        json.dump(
            raw | {"rows": list(map(asdict, rows)), "measurements": list(map(asdict, measurements))}, file, indent=1
        )
    title = f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 100)  # a file takes any width
    console.print(table(rows, f"{title}; {rounds} rounds of {seconds:g} s"))
    _complain(measurements)


def _measure(plan: Plan) -> list[Measurement]:
    console = Console(stderr=True)
    steps = track(run(plan), "measuring", len(plan), console=console, transient=True, disable=not console.is_terminal)
    return list(steps)


def _complain(measurements: list[Measurement]) -> None:
    """Say loudly what must not happen, and fail."""
    complaints = []
    for one in measurements:
        where = f"{one.contender}, {one.clients} clients, round {one.round + 1}"
        complaints += [f"FAILED: {where}: {trouble}" for trouble in one.trouble]
        if one.violations:
            complaints.append(f"VIOLATION: {where}: {one.violations} times two clients held the lock at once")
    for complaint in complaints:
        click.secho(complaint, err=True, fg="red", bold=True)
    if complaints:
        sys.exit(1)
