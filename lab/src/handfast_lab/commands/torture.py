"""``handfast torture``: test locks under faults, and write the results page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from handfast.embedded import PrivateServer
from handfast_lab.bench.machine import describe
from handfast_lab.chaos.apis import APIS
from handfast_lab.chaos.faults import FAULTS
from handfast_lab.chaos.results import Results
from handfast_lab.chaos.trials import OF_OTHERS, TRIALS
from handfast_lab.chaos.workers import LIMITER, ONCE, PRIMITIVES
from handfast_lab.rivals import CONTENDERS
from handfast_lab.rivals.limiters import LIMITERS
from handfast_lab.rivals.once import RUNNERS

__all__ = ["command"]

RECORD, PAGE = Path("results/reliability"), Path("docs/results/reliability.md")
"""The record of a checkout of the repository, and the page that is made from it."""

PARTS = "histories", "schedules", "planted", "trials"
OURS = [name for name, contender in CONTENDERS.items() if contender.is_ours]
RIVALS = [name for name in (*CONTENDERS, *LIMITERS, *RUNNERS) if name not in OURS]
OTHERS: Mapping[str, Mapping[str, Any]] = {"limiters": LIMITERS, "once": RUNNERS}


def _several(name: str, parameter: str, choices: Sequence[str], text: str) -> Callable[[Any], Any]:
    text = f"{text} Repeatable. One of: {', '.join(choices)}."
    return click.option(name, parameter, multiple=True, type=click.Choice(list(choices)), metavar="NAME", help=text)


@dataclass
class _Run:
    """The options of a run, and its results."""

    results: Results
    faults: tuple[str, ...]
    primitives: tuple[str, ...]
    apis: tuple[str, ...]
    trials: tuple[str, ...]
    seconds: float | None
    histories: int | None
    schedules: int
    count: int | None
    rivals: tuple[str, ...]
    seed: int
    add: bool
    processes: int
    command: str = field(default_factory=lambda: shlex.join(["handfast", *sys.argv[1:]]))
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        with PrivateServer() as server:
            self.machine = describe(server.url)

    def first_seed(self, part: str) -> int:
        """Return the seed to begin with."""
        return self.results.next_seed(part) if self.add else self.seed

    def write(self, part: str, **result: Any) -> None:
        """Write a part, or add to it."""
        (self.results.add if self.add else self.results.write)(part, self.command, self.machine, **result)


@click.command("torture")
@_several("--part", "parts", PARTS, "What to run. Default: all; with --rival, trials.")
@_several("--fault", "faults", list(FAULTS), "Fault of the histories.")
@_several("--primitive", "primitives", (*PRIMITIVES, LIMITER, ONCE), "Primitive of the histories.")
@_several("--api", "apis", list(APIS), "API of the clients in histories.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    help="Duration of all histories together. Default: one history of each kind.",
)
@click.option("--histories", type=click.IntRange(1), help="Number of histories. Default: one of each kind.")
@click.option(
    "--schedules", type=click.IntRange(1), default=20_000, show_default=True, help="Number of simulated schedules."
)
@_several("--trial", "trials", list(TRIALS), "Trial to run.")
@click.option("--count", type=click.IntRange(1), help="Repetitions of each trial. Default: those of its row.")
@_several("--rival", "rivals", RIVALS, "Run the trials against this library instead of Handfast.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all random choices.")
@click.option(
    "--add", is_flag=True, help="Add histories and schedules to those of earlier runs, with the seeds after theirs."
)
@click.option(
    "--processes", type=click.IntRange(1), default=2, show_default=True, help="Processes that run in parallel."
)
@click.option(
    "--results",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the raw results.  [default: the record of a checkout, results/reliability]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page to write from them.  [default: that of a checkout, with its record]",
)
def command(parts: tuple[str, ...], folder: Path | None, report: Path | None, **chosen: Any) -> None:
    """Test locks under faults and keep the results.

    Histories: clients of every primitive and API use real servers under every fault, and their histories are checked.
    Schedules: clients, network and server are simulated in virtual time. Planted: mistakes are planted in copies of the
    scripts and clients, and each must be found. Trials: one fault is provoked many times, and violations are counted.
    Starts private servers and touches no other. Exits with 1 if Handfast violated a guarantee.
    """
    if folder is None:
        if not RECORD.is_dir():
            raise click.UsageError(
                "Name a folder for the results with --results: this is no checkout of the repository."
            )
        folder, report = RECORD, report or PAGE
    run = _Run(Results(folder), **chosen)
    work = {"histories": _run_histories, "schedules": _run_schedules, "planted": _run_planted, "trials": _run_trials}
    for part in parts or (["trials"] if run.rivals else PARTS):
        work[part](run)
    if report is not None:
        from handfast_lab.chaos.report import render

        report.write_text(render(run.results), encoding="utf-8")
        click.echo(f"{report} was written from the results in {folder}/")
    for failure in run.failures:
        click.secho(failure, err=True, fg="red", bold=True)
    sys.exit(1 if run.failures else 0)


def _run_histories(run: _Run) -> None:
    """Run histories on real servers."""
    from handfast_lab.chaos.campaign import Campaign, cells, played
    from handfast_lab.chaos.campaign import run as run_campaign
    from handfast_lab.checker.history import write_history

    chosen = cells(run.primitives or (*PRIMITIVES, LIMITER, ONCE), run.apis or list(APIS), run.faults or list(FAULTS))
    histories = run.histories or (inf if run.seconds else len(chosen))
    verdicts: list[Any] = []
    seed = run.first_seed("histories")
    with _progress("histories", None if histories == inf else int(histories)) as progress:

        def note(verdict: Any) -> None:
            verdicts.append(verdict)
            found = sum(bool(one.findings) for one in verdicts)
            done = f"{sum(one.operations for one in verdicts):,} operations, {found} with findings"
            progress(len(verdicts), f"{done}; {verdict.cell.primitive}, {verdict.cell.api}, {verdict.cell.fault}")

        run_campaign(Campaign(chosen, seed, histories, run.seconds or inf, run.processes), note)
    run.write("histories", seed=seed, played=played(verdicts))
    for verdict in verdicts:
        if verdict.findings:
            name = "-".join((*verdict.cell, str(verdict.seed))).replace(" ", "_").replace(",", "")
            with run.results.kept(f"{name}.jsonl") as file:
                write_history(verdict.history, file)
            run.failures += [f"{', '.join(verdict.cell)}, seed {verdict.seed}: {text}" for text in verdict.findings]


def _run_schedules(run: _Run) -> None:
    """Run schedules in virtual time: with one server, and a quarter as many in each of the other settings."""
    from handfast_lab.simulator.faults import SETTINGS

    for setting in SETTINGS:
        is_plain = setting == "server"
        part = "schedules" if is_plain else f"schedules_{setting.replace(' ', '_')}"
        _run_setting(run, part, setting, run.schedules if is_plain else -(-run.schedules // 4))


def _run_setting(run: _Run, part: str, setting: str, schedules: int) -> None:
    from handfast_lab.simulator.hunt import Tally, hunt
    from handfast_lab.simulator.plans import VERSION

    def note(tally: Tally) -> None:
        progress(tally.schedules, f"{len(tally.findings)} with findings")

    with _progress(part.replace("_", " "), schedules) as progress:
        first = run.first_seed(part)
        tally = hunt(
            *(first, first + schedules),
            processes=run.processes,
            setting=setting,
            found=run.failures.append,
            tell=note,
        )
    run.write(
        part,
        first_seed=first,
        plans=VERSION,
        schedules=tally.schedules,
        processes=run.processes,
        seconds=round(tally.seconds, 3),
        calls=tally.calls,
        virtual_days=round(tally.virtual_seconds / 86400, 3),
        histories=tally.histories,
        operations=tally.operations,
        faults=sum(tally.faults.values()),
        faults_by_kind=dict(tally.faults.most_common()),
        findings=[{"seed": seed, "texts": texts} for seed, texts in sorted(tally.findings.items())],
    )


def _run_planted(run: _Run) -> None:
    """Run the planted mistakes, which the schedules must find."""
    from handfast_lab.simulator.planted import PLANTED, catch_all

    caught = []
    with _progress("planted mistakes", len(PLANTED)) as progress:
        for one in catch_all(run.processes):
            caught.append(one)
            progress(len(caught), one.planted.name)
    run.failures += [f"not found: {one.planted.name}" for one in caught if not one.schedules]
    planted = [
        {
            "name": one.planted.name,
            "where": one.planted.where,
            "why": one.planted.why,
            "caught_after": one.schedules or None,
            "caught_by": one.finding,
        }
        for one in caught
    ]
    run.results.write("planted", run.command, run.machine, planted=planted)


def _run_trials(run: _Run) -> None:
    """Run the trials of Handfast or of the rivals."""
    from handfast_lab.chaos.trials import load

    for name in run.trials or TRIALS:
        trial = load(name)
        known: Mapping[str, Any] = OTHERS[OF_OTHERS[name]] if name in OF_OTHERS else CONTENDERS
        for contender in (known[who] for who in run.rivals or OURS if who in known):
            if contender.version is None:
                click.echo(f"{contender.name} is not installed")
                continue
            if not trial.applies(contender):
                continue
            count = run.count or trial.COUNT
            with _progress(f"{name}, {contender.name}", count) as progress:
                figures = trial.trial(contender, count, run.seed, progress)
            run.results.add_trial(name, run.command, run.machine, figures, count=count, seed=run.seed)
            for one in figures:
                click.echo(f"{one.id} {one.what}, {one.contender}: {one.bad:,} {one.unit} in {one.tried:,}")
                if one.bad and contender.is_ours:
                    run.failures.append(f"{one.id} {one.what}, {one.contender}: {'; '.join(one.examples)}")


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Yield a function that updates the progress and its description."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, now="": bar.update(task, completed=done, description=f"{what} {now}".strip())
