"""Shared parts of the ``handfast bench`` commands: options, the server, and the output of results and failures."""

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
from handfast_lab.bench.table import fitted

__all__ = [
    "MOST_WAITERS",
    "chosen",
    "clients_option",
    "complain",
    "counted",
    "counts",
    "fail",
    "failures",
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
"""The default maximum length of a queue."""

T = TypeVar("T")
Command = Callable[..., None]
Option = Callable[[Command], Command]


def counts(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse numbers such as 1,2,5,10, without duplicates."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter("must be numbers with commas between them, such as 1,2,5,10") from None
    if min(numbers) < 1:
        raise click.BadParameter("each must be at least 1")
    return numbers


url_option = click.option("--url", help="The server to measure on. Default: a private one.")
json_option = click.option(
    "--json",
    "file",
    type=click.File("w", lazy=False),
    help="Write the raw results and the machine's description to this file.",
)
clients_option = click.option(
    "--clients", default="1,2,5,10", callback=counts, show_default=True, help="Numbers of processes that contend."
)


def rounds_option(default: int = 3) -> Option:
    return click.option(
        "--rounds", default=default, type=click.IntRange(1), show_default=True, help="How often everything is measured."
    )


def seconds_option(default: float = 2.0) -> Option:
    return click.option(
        "--seconds",
        default=default,
        type=click.FloatRange(0.05),
        show_default=True,
        help="Duration of each measurement.",
    )


def only_option(names: Iterable[str]) -> Option:
    names = list(names)
    text = f"Measure only this contender. Repeatable. One of: {', '.join(names)}."
    return click.option("--only", multiple=True, type=click.Choice(names), metavar="NAME", help=text)


def chosen(available: list[str], only: tuple[str, ...]) -> tuple[str, ...]:
    """Return the contenders to measure, in the order of the table."""
    if missing := set(only) - set(available):
        raise click.UsageError(f"not installed: {', '.join(sorted(missing))}")
    return tuple(name for name in available if not only or name in only)


@contextmanager
def server(url: str | None, *options: str) -> Iterator[str]:
    """Yield the URL, or that of a private server started with these options."""
    if url:
        yield url
        return
    with PrivateServer(*options) as own:
        yield own.url


def tracked(steps: Iterable[T], count: int) -> list[T]:
    """Collect all steps; show the progress on a terminal."""
    console = Console(stderr=True)
    return list(track(steps, "measuring", count, console=console, transient=True, disable=not console.is_terminal))


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that updates the progress; show it on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def title(machine: dict[str, Any]) -> str:
    """Describe the server, the versions and the machine in one line."""
    return f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"


def show(grid: Table) -> None:
    """Print a table."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 100)  # a file has no fixed width
    text, grid.title = grid.title, None  # a table would wrap its title to its own width
    console.print(text, style="italic", highlight=False)
    grid, left_out = fitted(grid, console.width)
    console.print(grid)
    if left_out:
        console.print(f"Left out for the width of the terminal: {', '.join(left_out)}.", highlight=False)


def plain(records: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the records as they go into the raw results."""
    return list(map(asdict, records))


def save(file: IO[str] | None, bench: str, machine: dict[str, Any], settings: dict[str, Any], **results: Any) -> None:
    """Write the raw results if a file was given."""
    if file is not None:
        text = json.dumps({"bench": bench, "machine": machine, "settings": settings, **results}, indent=1)
        # Write a list of numbers on a single line.
        file.write(re.sub(r"\[[-\d.,\s]*\]", lambda numbers: " ".join(numbers[0].split()), text))


def complain(
    found: Sequence[Measurement | Cost],
    blame: Iterable[str] | None = None,
    *,
    lenient: Collection[str] = (),
    violation: str = "two clients held the lock at once",
    also: Iterable[str] = (),
) -> None:
    """Print what went wrong, and exit with 1 if there were failures, of which ``also`` has more. See `failures`."""
    failed, reported = failures(found, blame, lenient=lenient, violation=violation)
    for text in reported:
        click.secho(text, err=True, fg="yellow")
    fail([*failed, *also])


def failures(
    found: Sequence[Measurement | Cost], blame: Iterable[str] | None, *, lenient: Collection[str], violation: str
) -> tuple[list[str], list[str]]:
    """Return the failures, and what is only reported.

    Errors of contenders that are not in ``blame`` (None: all are), and violations of ``lenient`` ones are not failures.
    """
    failed, reported, violations = [], [], []
    for one in found:
        for trouble in one.trouble:
            if blame is None or one.contender in blame:
                failed.append(f"FAILED: {one.where}: {trouble}")
            else:  # the last line is enough; the raw results have the whole traceback
                reported.append(f"FAILED: {one.where}: {trouble.strip().splitlines()[-1]}")
        if isinstance(one, Measurement) and one.violations:
            text = f"{one.where}: {one.violations} times {violation}"
            if one.contender in lenient:
                reported.append(f"a known flaw: {text}")
            else:
                violations.append(f"VIOLATION: {text}")
    return failed + violations, reported


def fail(complaints: list[str]) -> None:
    """Print the complaints and exit with 1, if there are any."""
    for complaint in complaints:
        click.secho(complaint, err=True, fg="red", bold=True)
    if complaints:
        sys.exit(1)
