"""What the commands of ``handfast bench`` share: options, servers, and how results are shown, saved and complained of."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from handfast.embedded import PrivateServer
from handfast_lab.bench.figures import Measurement
from handfast_lab.bench.memory import Cost

__all__ = [
    "MOST_WAITERS",
    "chosen",
    "clients_option",
    "complain",
    "counted",
    "counts",
    "fail",
    "json_option",
    "only_option",
    "plain",
    "rounds_option",
    "save",
    "seconds_option",
    "server",
    "show",
    "title",
    "tracked",
    "url_option",
]

MOST_WAITERS = 100_000
"""As many as a line takes by default."""

T = TypeVar("T")
Command = Callable[..., None]
Option = Callable[[Command], Command]


def counts(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    """The numbers in a text such as 1,2,5,10, each once."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter("must be numbers with commas between them, such as 1,2,5,10") from None
    if min(numbers) < 1:
        raise click.BadParameter("each must be at least 1")
    return numbers


url_option = click.option("--url", help="The server to measure on. Default: one of its own, started for this.")
json_option = click.option(
    "--json", "file", type=click.File("w", lazy=False), help="Write raw results and machine to this file."
)
clients_option = click.option(
    "--clients", default="1,2,5,10", callback=counts, show_default=True, help="How many processes contend."
)


def rounds_option(default: int = 3) -> Option:
    """How often all is measured."""
    return click.option(
        "--rounds", default=default, type=click.IntRange(1), show_default=True, help="How often all is measured."
    )


def seconds_option(default: float = 2.0) -> Option:
    """For how long each measurement counts."""
    return click.option(
        "--seconds", default=default, type=click.FloatRange(0.05), show_default=True, help="Of each measurement."
    )


def only_option(names: Iterable[str]) -> Option:
    """Which of these contenders are measured."""
    return click.option(
        "--only", multiple=True, type=click.Choice(list(names)), help="These contenders alone; repeatable."
    )


def chosen(available: list[str], only: tuple[str, ...]) -> tuple[str, ...]:
    """The contenders to measure, in their own order."""
    if missing := set(only) - set(available):
        raise click.UsageError(f"not installed: {', '.join(sorted(missing))}")
    return tuple(name for name in available if not only or name in only)


@contextmanager
def server(url: str | None, *options: str) -> Iterator[str]:
    """The URL of that server, or of one of our own, started with these options."""
    if url:
        yield url
        return
    with PrivateServer(*options) as own:
        yield own.url


def tracked(steps: Iterable[T], count: int) -> list[T]:
    """All that these steps give; meanwhile a terminal shows how far they are."""
    console = Console(stderr=True)
    return list(track(steps, "measuring", count, console=console, transient=True, disable=not console.is_terminal))


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Something to be told how much is done; meanwhile a terminal shows it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def title(machine: dict[str, Any]) -> str:
    """Where and with what, in one line."""
    return f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"


def show(grid: Table) -> None:
    """Print a table."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 100)  # a file takes any width
    text, grid.title = grid.title, None  # a table wraps a title of its own to its width
    console.print(text, style="italic", highlight=False)
    console.print(grid)


def plain(records: Iterable[Any]) -> list[dict[str, Any]]:
    """Records as they go into the raw results."""
    return list(map(asdict, records))


def save(file: IO[str] | None, bench: str, machine: dict[str, Any], settings: dict[str, Any], **results: Any) -> None:
    """Write the raw results, where they are wanted."""
    if file is not None:
        text = json.dumps({"bench": bench, "machine": machine, "settings": settings, **results}, indent=1)
        # A row of numbers takes a line and not a column.
        file.write(re.sub(r"\[[-\d.,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text))


def complain(
    found: Sequence[Measurement | Cost],
    blame: Iterable[str] | None = None,
    *,
    lenient: Collection[str] = (),
    violation: str = "two clients held the lock at once",
    also: Iterable[str] = (),
) -> None:
    """Say loudly what must not happen, and fail; not, though, where only those failed who are not to ``blame``.

    Those who are known for a ``violation`` are ``lenient``: theirs are only told. ``also`` is what else went wrong.
    """
    failures, pities, violations = [], [], []
    for one in found:
        for trouble in one.trouble:
            if blame is None or one.contender in blame:
                failures.append(f"FAILED: {one.where}: {trouble}")
            else:  # the last line says it; a rival's whole traceback is in the raw results
                pities.append(f"FAILED: {one.where}: {trouble.strip().splitlines()[-1]}")
        if isinstance(one, Measurement) and one.violations:
            text = f"{one.where}: {one.violations} times {violation}"
            if one.contender in lenient:
                pities.append(f"a known flaw: {text}")
            else:
                violations.append(f"VIOLATION: {text}")
    for pity in pities:
        click.secho(pity, err=True, fg="yellow")
    fail([*failures, *violations, *also])


def fail(complaints: list[str]) -> None:
    """Print what went wrong and end with 1, if anything did."""
    for complaint in complaints:
        click.secho(complaint, err=True, fg="red", bold=True)
    if complaints:
        sys.exit(1)
