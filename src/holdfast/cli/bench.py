"""``holdfast bench``: measure locks against each other on this machine. `holdfast.bench` says how, and with which doubt."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any, TypeVar

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from holdfast.bench import aio_contenders, contenders, memory, tasks
from holdfast.bench.aio_contenders import AIO_CONTENDERS, OURS
from holdfast.bench.contenders import CONTENDERS
from holdfast.bench.crowd import inversions, load_scripts, logging_all, script_times
from holdfast.bench.crowd import run as crowd
from holdfast.bench.figures import DISTINCT, FLOOR, ONE, Measurement, summarize, without_row
from holdfast.bench.machine import describe
from holdfast.bench.memory import Cost
from holdfast.bench.runner import Plan, run
from holdfast.bench.table import cost_table, crowd_table, lock_table, script_table, tasks_table
from holdfast.drivers.embedded import PrivateServer

__all__ = ["command"]

LONGEST_HOLD_MS = 1000.0

MOST_WAITERS = 100_000
"""As many as a line takes by default."""

SETTINGS = {DISTINCT: "each task its own lock", ONE: "all tasks one lock"}

T = TypeVar("T")
Command = Callable[..., None]


@click.group()
def command() -> None:
    """Measure locks against each other on this machine."""


def _counts(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        counts = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter("must be numbers with commas between them, such as 1,2,5,10") from None
    if min(counts) < 1:
        raise click.BadParameter("each must be at least 1")
    return counts


url_option = click.option("--url", help="The server to measure on. Default: one of its own, started for this.")
json_option = click.option(
    "--json", "file", type=click.File("w", lazy=False), help="Write raw results and machine to this file."
)


def _rounds_and_seconds(function: Command) -> Command:
    rounds = click.option(
        "--rounds", default=3, type=click.IntRange(1), show_default=True, help="How often all is measured."
    )
    seconds = click.option(
        "--seconds", default=2.0, type=click.FloatRange(0.05), show_default=True, help="Of each measurement."
    )
    return rounds(seconds(function))


def _only(names: Iterable[str]) -> Callable[[Command], Command]:
    return click.option(
        "--only", multiple=True, type=click.Choice(list(names)), help="These contenders alone; repeatable."
    )


@command.command()
@url_option
@click.option("--clients", default="1,2,5,10", callback=_counts, show_default=True, help="How many processes contend.")
@_rounds_and_seconds
@click.option("--hold", default=0.0, type=click.FloatRange(0, LONGEST_HOLD_MS), help="Milliseconds to hold the lock.")
@_only(CONTENDERS)
@json_option
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
    names = _chosen(contenders.available(), only)
    with _server(url) as address:
        machine = describe(address)
        plan = Plan(address, names, clients, rounds, seconds, hold / 1000)
        measurements = _track(run(plan), len(plan))
    rows = summarize(measurements)
    settings = {"clients": clients, "rounds": rounds, "seconds": seconds, "hold_ms": hold}
    _save(file, "lock", machine, settings, rows=_plain(rows), measurements=_plain(measurements))
    _show(lock_table(rows, f"{_title(machine)}; {rounds} rounds of {seconds:g} s"))
    _complain(measurements)


@command.command("async")
@url_option
@click.option(
    "--tasks", "counts", default="1,10,100,1000", callback=_counts, show_default=True, help="How many contend."
)
@_rounds_and_seconds
@click.option(
    "--setting",
    "chosen",
    multiple=True,
    type=click.Choice([DISTINCT, ONE]),
    help="Whether each task has a lock of its own, or all want one; repeatable. Default: both.",
)
@click.option(
    "--waiters",
    default=1000,
    type=click.IntRange(0, MOST_WAITERS),
    show_default=True,
    help="How many tasks wait when the memory of each is taken; 0 leaves that out.",
)
@_only((*AIO_CONTENDERS, FLOOR))
@json_option
def async_(
    *,
    url: str | None,
    counts: tuple[int, ...],
    rounds: int,
    seconds: float,
    chosen: tuple[str, ...],
    waiters: int,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Let the tasks of one event loop contend: today's asyncio locks, Holdfast, and the wire floor.

    Once with a lock for each task and once with one lock for all; and what a task costs that waits. Contenders take
    turns on one server, in several rounds; figures are medians. "x floor" compares with our own scripts over one bare
    connection, "x redis" with the lock of redis.asyncio.

    A rival that fails is reported. The command fails when Holdfast or the floor does, or when two tasks held one lock at
    once.
    """
    names = _chosen(aio_contenders.available(), only)
    settings = tuple(setting for setting in (DISTINCT, ONE) if not chosen or setting in chosen)
    weighed = tuple(name for name in names if name != FLOOR) if waiters else ()
    with _server(url) as address:
        machine = describe(address)
        plan = Plan(address, names, counts, rounds, seconds, settings=settings)
        measurements = _track(tasks.run(plan), len(plan))
        found = _track(memory.run(address, weighed, waiters, rounds), len(weighed) * rounds)
    rows, costs = summarize(measurements), memory.summarize(found)
    _save(
        file,
        "async",
        machine,
        {"tasks": counts, "settings": settings, "rounds": rounds, "seconds": seconds, "waiters": waiters},
        rows=_plain(rows),
        measurements=_plain(measurements),
        memory=_plain(found),
    )
    failed = without_row(measurements)
    for setting in settings:
        title = f"{_title(machine)}; {rounds} rounds of {seconds:g} s; {SETTINGS[setting]}"
        _show(tasks_table(rows, failed, setting, title))
    if costs:
        _show(cost_table(costs, "What a task costs that waits"))
    _complain([*measurements, *found], blame=(OURS, FLOOR))


@command.command("crowd")
@url_option
@click.option(
    "--waiters", default=10_000, type=click.IntRange(1, MOST_WAITERS), show_default=True, help="How many tasks come."
)
@json_option
def crowd_(*, url: str | None, waiters: int, file: IO[str] | None) -> None:
    """Let a crowd of tasks wait for one lock, and then in, one after the other.

    All are tasks of one client. The times of the scripts come from the server's slow log, which a server of its own is
    told to keep of everything; on another one nothing is changed, and they are left out. Fails when not everybody gets
    in, or not in the order of coming.
    """
    with _server(url, *logging_all(waiters)) as address:
        machine = describe(address)
        if not url:
            load_scripts(address)
        seen, trouble = crowd(address, f"bench-crowd-{os.getpid()}", waiters)
        scripts = [] if url else script_times(address)
    result = {} if seen is None else seen._asdict() | {"inversions": inversions(seen.order)}
    _save(file, "crowd", machine, {"waiters": waiters}, crowd=result, scripts=_plain(scripts), trouble=trouble)
    if seen is not None:
        _show(crowd_table(seen, waiters, f"{_title(machine)}; a crowd at one lock"))
        if scripts:
            _show(script_table(scripts))
        if len(seen.order) != waiters or result["inversions"]:
            trouble.append("not everybody got in, in the order of coming")
    _fail([f"FAILED: {text}" for text in trouble])


def _chosen(available: list[str], only: tuple[str, ...]) -> tuple[str, ...]:
    if missing := set(only) - set(available):
        raise click.UsageError(f"not installed: {', '.join(sorted(missing))}")
    return tuple(name for name in available if not only or name in only)


@contextmanager
def _server(url: str | None, *options: str) -> Iterator[str]:
    """The URL of that server, or of one of our own, started with these options."""
    if url:
        yield url
        return
    with PrivateServer(*options) as server:
        yield server.url


def _track(steps: Iterable[T], count: int) -> list[T]:
    console = Console(stderr=True)
    return list(track(steps, "measuring", count, console=console, transient=True, disable=not console.is_terminal))


def _title(machine: dict[str, Any]) -> str:
    return f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"


def _show(grid: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 100)  # a file takes any width
    title, grid.title = grid.title, None  # a table wraps a title of its own to its width
    console.print(title, style="italic", highlight=False)
    console.print(grid)


def _plain(records: Iterable[Any]) -> list[dict[str, Any]]:
    return list(map(asdict, records))


def _save(file: IO[str] | None, bench: str, machine: dict[str, Any], settings: dict[str, Any], **results: Any) -> None:
    if file is not None:
        text = json.dumps({"bench": bench, "machine": machine, "settings": settings, **results}, indent=1)
        # A row of numbers takes a line and not a column.
        file.write(re.sub(r"\[[-\d.,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text))


def _complain(found: Sequence[Measurement | Cost], blame: Iterable[str] | None = None) -> None:
    """Say loudly what must not happen, and fail; not, though, where only those failed who are not to ``blame``."""
    failures, pities, violations = [], [], []
    for one in found:
        for trouble in one.trouble:
            if blame is None or one.contender in blame:
                failures.append(f"FAILED: {one.where}: {trouble}")
            else:  # the last line says it; a rival's whole traceback is in the raw results
                pities.append(f"FAILED: {one.where}: {trouble.strip().splitlines()[-1]}")
        if isinstance(one, Measurement) and one.violations:
            violations.append(f"VIOLATION: {one.where}: {one.violations} times two clients held the lock at once")
    for pity in pities:
        click.secho(pity, err=True, fg="yellow")
    _fail(failures + violations)


def _fail(complaints: list[str]) -> None:
    for complaint in complaints:
        click.secho(complaint, err=True, fg="red", bold=True)
    if complaints:
        sys.exit(1)
