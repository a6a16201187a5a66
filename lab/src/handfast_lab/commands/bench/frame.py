"""The frame of a benchmark: its options, its server, and how its results and failures are reported."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import cached_property
from typing import IO, Any, TypeVar

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from handfast.embedded import PrivateServer
from handfast_lab.bench.figures import Measurement
from handfast_lab.bench.machine import describe
from handfast_lab.bench.memory import Cost
from handfast_lab.bench.table import fitted

__all__ = [
    "HOLD",
    "Bench",
    "any_of",
    "bench",
    "complain",
    "fail",
    "failures",
    "number",
    "rounds",
    "several",
    "show",
    "tracked",
]

T = TypeVar("T")
Option = Callable[[Callable[..., None]], Callable[..., None]]


def counts(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse numbers such as 1,2,5,10, without duplicates."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter("must be numbers with commas between them, such as 1,2,5,10") from None
    if min(numbers) < 1:
        raise click.BadParameter("each must be at least 1")
    return numbers


def several(name: str, default: str, help: str) -> Option:  # noqa: A002 -- as click has it
    """An option for several numbers, each of which is measured."""
    return click.option(f"--{name}", default=default, callback=counts, show_default=True, help=help)


def number(name: str, default: float, least: float, most: float | None, help: str) -> Option:  # noqa: A002 -- as click has it
    """An option for a number: a whole one, if the default is."""
    kind = click.IntRange if isinstance(default, int) else click.FloatRange
    return click.option(f"--{name}", default=default, type=kind(least, most), show_default=True, help=help)  # type: ignore[arg-type]  # of the same kind as the default


def any_of(name: str, values: Iterable[str], help: str) -> Option:  # noqa: A002 -- as click has it
    """An option for some of these; all of them, if none is named."""
    every = tuple(values)

    def in_order(_ctx: click.Context, _param: click.Parameter, named: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value for value in every if not named or value in named)

    text, kind = f"{help} Repeatable. Default: all.", click.Choice(every)
    return click.option(f"--{name}", f"{name}s", multiple=True, type=kind, callback=in_order, help=text)


def rounds(default: int = 3, seconds: float = 2.0) -> Option:
    """How often everything is measured, and for how long."""

    def options(function: Callable[..., None]) -> Callable[..., None]:
        function = number("seconds", seconds, 0.05, None, "Duration of each measurement.")(function)
        return number("rounds", default, 1, None, "How often everything is measured.")(function)

    return options


HOLD = click.option(
    "--hold", "hold_ms", default=0.0, type=click.FloatRange(0, 1000), help="Milliseconds for which it is held."
)


class Bench:
    """One run of a benchmark."""

    def __init__(self, name: str, names: tuple[str, ...], settings: dict[str, Any], file: IO[str] | None) -> None:
        self.names = names
        """The contenders to measure, in the order of the table."""
        self.address = ""
        """The URL of the server to measure on."""
        self.is_private = False
        """Whether the server is only for this run."""
        self._name = name
        self._settings = settings
        self._file = file

    @cached_property
    def machine(self) -> dict[str, Any]:
        return describe(self.address)

    @property
    def title(self) -> str:
        """The server, the versions and the machine in one line; and how often and how long each case is measured."""
        title = "{server}, Python {python}, redis-py {redis}, {cores} cores".format(**self.machine)
        if "rounds" not in self._settings:
            return title
        return "{}; {rounds} rounds of {seconds:g} s".format(title, **self._settings)

    def place(self, name: str) -> int:
        """Return where a contender stands in the table."""
        return self.names.index(name)

    def save(self, **results: Any) -> None:
        """Write the raw results if a file was given. Lists of records are written as they are."""
        if self._file is None:
            return
        found = {"bench": self._name, "machine": self.machine, "settings": self._settings, **results}
        text = json.dumps(found, indent=1, default=asdict)
        # Write a list of numbers on a single line.
        self._file.write(re.sub(r"\[[-\d.,\s]*\]", lambda numbers: "".join(numbers[0].split()), text))


def bench(
    *options: Option,
    of: Iterable[str] = (),
    installed: Callable[[], Iterable[str]] = tuple,
    server: Callable[[Mapping[str, Any]], Sequence[str]] | None = lambda _: (),
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that measures. It gets a `Bench`, and its options.

    Args:
        options: Those that only some benchmarks have.
        of: The contenders that may be named, if there are any.
        installed: Returns those that are there.
        server: Returns the options of a private server. None starts none.
    """
    contenders = list(of)

    def decorate(measure: Callable[..., None]) -> click.Command:
        name = measure.__name__.removesuffix("_")

        def command(
            *, file: IO[str] | None, url: str | None = None, only: tuple[str, ...] = (), **settings: Any
        ) -> None:
            one = Bench(name, chosen(list(installed()), only), settings, file)
            one.is_private = url is None
            own = nullcontext() if url or server is None else PrivateServer(*server(settings))
            with own as started:
                one.address = url or (started.url if started else "")
                measure(one, **settings)

        command.__doc__ = measure.__doc__
        ours = [*options]
        if server is not None:
            ours.insert(0, click.option("--url", help="The server to measure on. Default: a private one."))
        if contenders:
            text = f"Measure only this contender. Repeatable. One of: {', '.join(contenders)}."
            ours.append(click.option("--only", multiple=True, type=click.Choice(contenders), metavar="NAME", help=text))
        text = "Write the raw results and the machine's description to this file."
        ours.append(click.option("--json", "file", type=click.File("w", lazy=False), help=text))
        for option in reversed(ours):
            command = option(command)
        return click.command(name)(command)

    return decorate


def chosen(available: list[str], only: tuple[str, ...]) -> tuple[str, ...]:
    """Return the contenders to measure, in the order of the table."""
    if missing := set(only) - set(available):
        raise click.UsageError(f"not installed: {', '.join(sorted(missing))}")
    return tuple(name for name in available if not only or name in only)


def tracked(steps: Iterable[T], count: int) -> list[T]:
    """Collect all steps; show the progress on a terminal."""
    console = Console(stderr=True)
    return list(track(steps, "measuring", count, console=console, transient=True, disable=not console.is_terminal))


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


def complain(
    found: Sequence[Measurement | Cost],
    blame: Iterable[str] | None = None,
    *,
    lenient: Collection[str] = (),
    violation: str = "two clients held the lock at once",
) -> None:
    """Print what went wrong, and exit with 1 if there were failures. See `failures`."""
    failed, reported = failures(found, blame, lenient=lenient, violation=violation)
    for text in reported:
        click.secho(text, err=True, fg="yellow")
    fail(failed)


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
