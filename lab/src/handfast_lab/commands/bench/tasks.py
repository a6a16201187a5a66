"""``handfast bench async``: tasks of one event loop that contend for locks, and the cost of a waiting task."""

from __future__ import annotations

from typing import IO

import click

from handfast_lab.bench import memory
from handfast_lab.bench.contenders import HANDFAST, TASK_LOCKS, installed
from handfast_lab.bench.figures import DISTINCT, FLOOR, ONE, summarize, without_row
from handfast_lab.bench.machine import describe
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.table import cost_table, tasks_table
from handfast_lab.bench.tasks import TaskContention
from handfast_lab.commands.bench import common

__all__ = ["command"]

SETTINGS = {DISTINCT: "each task its own lock", ONE: "all tasks one lock"}


@click.command("async")
@common.url_option
@click.option(
    "--tasks",
    "clients",
    default="1,10,100,1000",
    callback=common.counts,
    show_default=True,
    help="Numbers of tasks that contend.",
)
@common.rounds_option()
@common.seconds_option()
@click.option(
    "--setting",
    "wanted",
    multiple=True,
    type=click.Choice([DISTINCT, ONE]),
    help="Each task has its own lock, or all want one. Repeatable. Default: both.",
)
@click.option(
    "--waiters",
    default=1000,
    type=click.IntRange(0, common.MOST_WAITERS),
    show_default=True,
    help="Tasks that wait while their memory is measured; 0 skips that.",
)
@common.only_option((*TASK_LOCKS, FLOOR))
@common.json_option
def command(
    *,
    url: str | None,
    clients: tuple[int, ...],
    rounds: int,
    seconds: float,
    wanted: tuple[str, ...],
    waiters: int,
    only: tuple[str, ...],
    file: IO[str] | None,
) -> None:
    """Tasks of one event loop contend for locks.

    Measures a lock for each task, one lock for all, and the memory and connections of a waiting task. Contenders take
    turns on one server, in several rounds; figures are medians. "floor" is the scripts of Handfast over one bare
    connection; "x floor" and "x redis" are ratios to the floor and to the lock of redis.asyncio.

    A rival that fails is reported. Fails if Handfast or the floor does, or if two tasks held one lock at once.
    """
    names = common.chosen([*installed(TASK_LOCKS), FLOOR], only)
    settings = tuple(setting for setting in (DISTINCT, ONE) if not wanted or setting in wanted)
    weighed = tuple(name for name in names if name != FLOOR) if waiters else ()
    with common.server(url) as address:
        machine = describe(address)
        workloads = {setting: TaskContention(names, setting) for setting in settings}
        plan = BenchPlan(address, workloads, clients, rounds, seconds)
        measurements = common.tracked(run(plan), len(plan))
        found = common.tracked(memory.run(address, weighed, waiters, rounds), len(weighed) * rounds)
    rows, costs = summarize(measurements), memory.summarize(found)
    common.save(
        file,
        "async",
        machine,
        {"tasks": clients, "settings": settings, "rounds": rounds, "seconds": seconds, "waiters": waiters},
        rows=common.plain(rows),
        measurements=common.plain(measurements),
        memory=common.plain(found),
    )
    failed = without_row(measurements)
    for setting in settings:
        heading = f"{common.title(machine)}; {rounds} rounds of {seconds:g} s; {SETTINGS[setting]}"
        common.show(tasks_table(rows, failed, setting, heading))
    if costs:
        common.show(cost_table(costs, "What a task costs that waits"))
    common.complain([*measurements, *found], blame=(HANDFAST, FLOOR))
