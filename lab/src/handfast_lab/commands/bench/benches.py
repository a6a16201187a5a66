"""The benchmarks: each names its options and its contenders, measures, and shows what it found."""

from __future__ import annotations

import os
from typing import Any

import click

from handfast_lab.bench import cluster as clusters
from handfast_lab.bench import crowd as crowds
from handfast_lab.bench import handoffs, limiting, memory, stampedes
from handfast_lab.bench.classic.tables import TABLES
from handfast_lab.bench.classic.text import classic_table
from handfast_lab.bench.contenders import HANDFAST, LENIENT, LOCKS, SEMAPHORES, TASK_LOCKS, installed
from handfast_lab.bench.contention import Contention
from handfast_lab.bench.figures import DISTINCT, FLOOR, ONE, summarize, without_row
from handfast_lab.bench.runner import BenchPlan, run
from handfast_lab.bench.table import (
    asking_table,
    cost_table,
    crowd_table,
    frames_table,
    handoff_table,
    lines_table,
    lock_table,
    memory_table,
    ownership_table,
    script_table,
    semaphore_table,
    spread_table,
    stampedes_table,
    tasks_table,
)
from handfast_lab.bench.tasks import TaskContention
from handfast_lab.commands.bench.frame import (
    HOLD,
    Bench,
    any_of,
    bench,
    complain,
    fail,
    failures,
    number,
    rounds,
    several,
    show,
    tracked,
)
from handfast_lab.ownership import elections, groups, partitions, slots
from handfast_lab.policies import holds as holds_
from handfast_lab.policies import tenants
from handfast_lab.policies import turns as turns_
from handfast_lab.policies import urgent as urgents
from handfast_lab.rivals.limiters import LIMITERS
from handfast_lab.rivals.limiters import installed as installed_limiters
from handfast_lab.rivals.once import RUNNERS
from handfast_lab.rivals.once import installed as installed_runners

__all__ = ["command"]

MOST_WAITERS = 100_000

CLIENTS = several("clients", "1,2,5,10", "Numbers of processes that contend.")

SETTINGS = {DISTINCT: "each task its own lock", ONE: "all tasks one lock"}

SYNC = [name for name in LIMITERS if "asyncio" not in name]
"""Processes and threads ask, so that all limiters are measured with their sync API."""


@bench(CLIENTS, rounds(), HOLD, of=LOCKS, installed=lambda: installed(LOCKS))
def lock(bench: Bench, *, clients: tuple[int, ...], rounds: int, seconds: float, hold_ms: float) -> None:
    """Processes contend for one lock, Handfast and rivals.

    Contenders: the classic listings, redis-py, python-redis-lock, Handfast, and "floor", the scripts of Handfast over a
    bare socket. They take turns on one server, in several rounds; figures are medians. "x floor" and "x Lua" are ratios
    to the floor and to the classic Lua listing. Fails if a client hangs or two clients held the lock at once.
    """
    plan = BenchPlan(bench.address, {ONE: Contention(bench.names, hold_ms / 1000)}, clients, rounds, seconds)
    measurements = tracked(run(plan), len(plan))
    rows = summarize(measurements)
    bench.save(rows=rows, measurements=measurements)
    show(lock_table(rows, bench.title))
    complain(measurements)


@bench(
    number("clients", 10, 2, None, "Processes that contend."),
    rounds(seconds=1.0),
    of=LOCKS,
    installed=lambda: installed(LOCKS),
)
def handoff(bench: Bench, *, clients: int, rounds: int, seconds: float) -> None:
    """Count what an acquire of a contended lock and its release cost.

    Commands are those that the server executes, within scripts too. Received and sent are how often it read from a
    connection and wrote to one, and the bytes. Wake-ups are how often a client, and the server, had slept and was
    woken; they depend on the load of the machine, the other counts do not. Contenders are those of "bench lock"; they
    take turns, and figures are medians. The server must have this command's machine for itself.
    """
    measurements = handoffs.run(bench.address, bench.names, clients, rounds, seconds)
    found = tracked(measurements, rounds * len(bench.names))
    rows = sorted(handoffs.summarize(found), key=lambda row: bench.place(row.contender))
    bench.save(rows=rows, measurements=found)
    show(handoff_table(rows, f"{bench.title}; {clients} clients"))


@bench(
    several("tasks", "1,10,100,1000", "Numbers of tasks that contend."),
    rounds(),
    any_of("setting", SETTINGS, "Each task has its own lock, or all want one."),
    number("waiters", 1000, 0, MOST_WAITERS, "Tasks that wait while their memory is measured; 0 skips that."),
    of=(*TASK_LOCKS, FLOOR),
    installed=lambda: [*installed(TASK_LOCKS), FLOOR],
)
def async_(
    bench: Bench, *, tasks: tuple[int, ...], rounds: int, seconds: float, settings: tuple[str, ...], waiters: int
) -> None:
    """Tasks of one event loop contend for locks.

    Measures a lock for each task, one lock for all, and the memory and connections of a waiting task. Contenders take
    turns on one server, in several rounds; figures are medians. "floor" is the scripts of Handfast over one bare
    connection; "x floor" and "x redis" are ratios to the floor and to the lock of redis.asyncio.

    A rival that fails is reported. Fails if Handfast or the floor does, or if two tasks held one lock at once.
    """
    weighed = tuple(name for name in bench.names if name != FLOOR) if waiters else ()
    workloads = {setting: TaskContention(bench.names, setting) for setting in settings}
    plan = BenchPlan(bench.address, workloads, tasks, rounds, seconds)
    measurements = tracked(run(plan), len(plan))
    found = tracked(memory.run(bench.address, weighed, waiters, rounds), len(weighed) * rounds)
    rows, costs = summarize(measurements), memory.summarize(found)
    bench.save(rows=rows, measurements=measurements, memory=found)
    failed = without_row(measurements)
    for setting in settings:
        show(tasks_table(rows, failed, setting, f"{bench.title}; {SETTINGS[setting]}"))
    if costs:
        show(cost_table(costs, "What a task costs that waits"))
    complain([*measurements, *found], blame=(HANDFAST, FLOOR))


@bench(
    number("waiters", 10_000, 1, MOST_WAITERS, "How many tasks come."),
    server=lambda settings: crowds.logging_all(settings["waiters"]),
)
def crowd(bench: Bench, *, waiters: int) -> None:
    """Very many tasks wait for one lock, and acquire it one after the other.

    All are tasks of one client. The times of the scripts come from the slow log of a private server, which logs every
    command. With --url the server's settings are left unchanged, and these times are left out. Fails if a task does not
    acquire the lock, or if the tasks do not acquire it in the order of their requests.
    """
    if bench.is_private:
        crowds.load_scripts(bench.address)
    seen, trouble = crowds.run(bench.address, f"bench-crowd-{os.getpid()}", waiters)
    scripts = crowds.script_times(bench.address) if bench.is_private else []
    result = {} if seen is None else seen._asdict() | {"inversions": crowds.inversions(seen.order)}
    bench.save(crowd=result, scripts=scripts, trouble=trouble)
    if seen is not None:
        show(crowd_table(seen, waiters, f"{bench.title}; a crowd at one lock"))
        if scripts:
            show(script_table(scripts))
        if len(seen.order) != waiters or result["inversions"]:
            trouble.append("not all tasks acquired the lock in the order of their requests")
    fail([f"FAILED: {text}" for text in trouble])


@bench(
    CLIENTS,
    number("limit", 3, 1, None, "Permits of the semaphore."),
    rounds(),
    HOLD,
    of=SEMAPHORES,
    installed=lambda: installed(SEMAPHORES),
)
def semaphore(
    bench: Bench, *, clients: tuple[int, ...], limit: int, rounds: int, seconds: float, hold_ms: float
) -> None:
    """Processes contend for the permits of a semaphore.

    The classic listings, py-redis-semaphore, Handfast and "floor" (the scripts of Handfast over a bare socket), one
    permit each time. They take turns on one server, in several rounds; figures are medians. "x floor" and "x Lua"
    are ratios to the floor and to the classic Lua listing. A rival that fails is reported; the first forms of the
    listings are known to exceed the limit, which is reported too.

    Fails if Handfast or the floor does, or if another contender exceeded the limit.
    """
    plan = BenchPlan(bench.address, {ONE: Contention(bench.names, hold_ms / 1000, limit)}, clients, rounds, seconds)
    measurements = tracked(run(plan), len(plan))
    rows = summarize(measurements)
    bench.save(rows=rows, measurements=measurements)
    show(semaphore_table(rows, without_row(measurements), f"{bench.title}; {limit} permits"))
    violation = f"more than {limit} permits were held at once"
    complain(measurements, blame=(HANDFAST, FLOOR), lenient=LENIENT, violation=violation)


@bench(
    several("clients", "1,10", "Numbers of processes that ask."),
    number("waiters", 60, 2, None, "Threads that wait at 10/s."),
    several("admissions", "100,10000", "Admissions whose memory is measured."),
    rounds(seconds=1.0),
    of=SYNC,
    installed=lambda: installed_limiters(SYNC),
)
def limiter(
    bench: Bench, *, clients: tuple[int, ...], waiters: int, admissions: tuple[int, ...], rounds: int, seconds: float
) -> None:
    """Compare rate limiters: calls, waiters and memory.

    Processes ask without waiting, under a limit that admits them and under one that refuses them. Threads wait for a
    rate of 10/s. Contenders take turns, and figures are medians. Fails if a waiter of Handfast is not admitted.
    """
    address, names = bench.address, bench.names
    waiting = [name for name in names if LIMITERS[name].waits]
    asked = tracked(limiting.ask(address, names, clients, rounds, seconds), rounds * 2 * len(clients) * len(names))
    lines = tracked(limiting.line_up(address, waiting, waiters, rounds), rounds * len(waiting))
    remembered = tracked(limiting.remember(address, names, admissions), len(names) * len(admissions))
    asking, waited = limiting.summarize_asking(asked), limiting.summarize_lines(lines)
    asking.sort(key=lambda row: (row.setting, row.clients, bench.place(row.contender)))
    waited.sort(key=lambda row: bench.place(row.contender))
    bench.save(asking=asking, waiting=waited, memory=remembered, measurements=asked, lines=lines)
    show(asking_table(asking, bench.title))
    show(lines_table(waited, f"{waiters} waiters at 10/s"))
    show(memory_table(remembered, "Memory of a limiter on the server"))
    fail(
        [
            f"FAILED: {one.contender}, round {one.round + 1}: {one.waiters - one.admitted} waiters were not admitted"
            for one in lines
            if LIMITERS[one.contender].is_ours and one.admitted < one.waiters
        ]
    )


@bench(
    number("callers", 1000, 1, None, "Callers that ask at once."),
    number("processes", 10, 1, None, "Processes that they are in."),
    number("work", 0.5, 0, None, "Seconds that the run takes."),
    rounds(seconds=1.0),
    of=RUNNERS,
    installed=installed_runners,
)
def once(bench: Bench, *, callers: int, processes: int, work: float, rounds: int, seconds: float) -> None:
    """Compare how one caller makes a result while the others wait for it.

    Callers ask for one key at the same moment, in several processes. Contenders take turns, and figures are medians.
    Fails if Handfast runs it more than once, or leaves a caller without an answer.
    """
    callers -= callers % processes
    if not callers:
        raise click.UsageError("there must be as many callers as processes at least")
    plan = stampedes.Plan(callers, processes, work, seconds)
    measured = tracked(stampedes.measure(bench.address, bench.names, plan, rounds), rounds * len(bench.names))
    rows = sorted(stampedes.summarize(measured), key=lambda row: bench.place(row.contender))
    bench.save(rows=rows, measurements=measured)
    show(stampedes_table(rows, f"{bench.title}; {callers} callers in {processes} processes, a run of {work:g} s"))
    fail(
        [
            f"FAILED: {one.contender}, round {one.round + 1}: {one.runs} runs, {one.callers - one.answered} without an answer"
            for one in measured
            if RUNNERS[one.contender].is_ours and (one.runs != 1 or one.answered < one.callers)
        ]
    )


@bench(any_of("table", TABLES, "Table to measure."), CLIENTS, rounds(1, 10.0))
def classic(bench: Bench, *, tables: tuple[str, ...], clients: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Repeat the published tables of the classic listings.

    Locks and autocomplete: the first form of the listings, their Lua form, and Handfast. Contenders take turns on one
    server; the published figures are shown next to the measured ones. Retries are WatchErrors; "x first" is the ratio
    to the first form in the same round. Fails if a client hangs, or if two clients held a lock at once.
    """
    plan = BenchPlan(bench.address, {name: TABLES[name].workload for name in tables}, clients, rounds, seconds)
    minutes = plan.duration / 60
    click.echo(f"{len(plan)} measurements, about {minutes:.1f} minutes", err=True)
    measurements = tracked(run(plan), len(plan))
    rows = summarize(measurements)
    bench.save(rows=rows, measurements=measurements)
    failed: list[str] = []
    for name in tables:
        if any(row.setting == name for row in rows):
            show(classic_table(TABLES[name], rows, f"{TABLES[name].title}, totals; {bench.title}"))
        mine = [one for one in measurements if one.setting == name]
        failed += failures(mine, None, lenient=(), violation="two clients held it at once")[0]
    fail(failed)


@bench(
    number("clients", 2, 1, 100, "Processes that work."),
    number("names", 300, 1, 10_000, "Locks that each of them uses."),
    any_of("load", clusters.LOADS, "What each does."),
    rounds(5),
    server=None,
)
def cluster(bench: Bench, *, clients: int, names: int, loads: tuple[str, ...], rounds: int, seconds: float) -> None:
    """Locks on the primaries of a cluster, compared with one server.

    Processes acquire and release many locks: one thread of the sync API that goes through its own locks, asyncio with a
    task for each of its own locks, and asyncio with two tasks for each lock and all processes at the same locks, so
    that every release hands a lock over. One server, a cluster of one primary and a cluster of three take turns;
    figures are medians. "x server" is the ratio to one server in the same round. "client", "servers" and "busiest" are
    the CPU time of one acquire and its release in microseconds: in the clients, on all servers together, and on the
    busiest one. "conns" is how many connections a client has to each server. The second table counts Python frames of a
    call, on a plain session and through the router.

    All servers are private ones of this machine: three primaries share its cores with the clients, so read the CPU
    times before the rates.
    """
    with clusters.places() as where:
        bench.address = where[clusters.SERVER].url
        frames = clusters.count_frames(where)
        measurements = clusters.run(where, loads, clients=clients, names=names, rounds=rounds, seconds=seconds)
        found = tracked(measurements, rounds * len(loads) * len(clusters.PLACES))
        rows = clusters.summarize(found)
        bench.save(rows=rows, frames=frames, measurements=found)
    show(spread_table(rows, f"{bench.title}; {clients} x {names} names; CPU in µs"))
    show(frames_table(frames, "Python frames of a call"))


@bench(
    any_of("mode", elections.MODES, "How leaders end: they resign, are killed, are frozen, or are cut off."),
    number("names", 60, 1, 1000, "Elections at a time."),
    number("ttl", 1.0, 0.2, 60.0, "The ttl, in seconds."),
    number("failovers", 100, 1, None, "How many elections must find another leader, at least."),
    of=elections.CONTENDERS,
    installed=elections.installed,
)
def election(bench: Bench, *, modes: tuple[str, ...], names: int, ttl: float, failovers: int) -> None:
    """Let leaders end, and measure how long there is none, and whether there are ever two.

    Three processes are candidates. "gap ms" is the time from the end of a leader to the next less the ttl, by a release the
    whole time; "observed ms" how long after its beginning an observer sees a term; each as number / median / 99th percentile / maximum.
    "doubles" are pairs of terms of one election that overlap by the clocks of their leaders. "lost writes" were accepted
    under a fence, and are gone. Rivals: tooz and a loop around SET NX. They can't resign.

    Fails if Handfast has doubles or lost writes.
    """
    figures = [
        elections.measure(one, bench.address, mode, names=names, ttl=ttl, failovers=failovers)
        for mode in modes
        for one in bench.names
        if one == HANDFAST or mode in ("kill", "freeze")
    ]
    _report(bench, figures, "doubles", "lost_writes")


@bench(
    number("processes", 10, 2, 100, "Workers."),
    number("items", 1000, 1, 10_000, "Items."),
    number("ttl", 5.0, 0.2, 60.0, "The ttl, in seconds."),
    number("seconds", 60.0, 1.0, None, "For how long workers come and go."),
    of=partitions.CONTENDERS,
    installed=partitions.installed,
)
def partition(bench: Bench, *, processes: int, items: int, ttl: float, seconds: float) -> None:
    """Let workers come, die and go every five seconds, and measure how items move.

    Times are number / median / 99th percentile / maximum. "doubles" are spans of an item on two workers which overlap
    by the clocks of the workers. "moved per ideal" is how many items have another worker after a join, in units of the
    smallest number that keeps the balance. The rival is the partitioner of tooz.

    Fails if Handfast has doubles.
    """
    figures = [
        partitions.measure(one, bench.address, items=items, processes=processes, ttl=ttl, seconds=seconds)
        for one in bench.names
    ]
    _report(bench, figures, "doubles")


@bench(
    number("processes", 20, 2, 100, "Processes."),
    number("members", 50, 1, 500, "Members in each process."),
    number("ttl", 5.0, 0.2, 60.0, "The ttl, in seconds."),
    number("seconds", 60.0, 1.0, None, "For how long processes are killed."),
    number("every", 30.0, 0.5, None, "Seconds from one kill to the next."),
)
def group(bench: Bench, *, processes: int, members: int, ttl: float, seconds: float, every: float) -> None:
    """Kill processes with members of a group, and measure for how long these are listed.

    Fails if a live member is missing in a list, or a dead member is listed for more than the ttl and 50 ms.
    """
    found = groups.measure(bench.address, processes=processes, count=members, ttl=ttl, seconds=seconds, every=every)
    _report(bench, [found], "live_and_missing", late=found["that_less_ttl_ms"] > 50)


@bench(
    number("limit", 64, 1, 1024, "Permits, and numbers."),
    number("joins", 10_000, 4, None, "How many leases."),
)
def slot(bench: Bench, *, limit: int, joins: int) -> None:
    """Have four processes acquire numbered permits, a tenth of which is never released. Fails if two have a number at once."""
    _report(bench, [slots.measure(bench.address, limit=limit, joins=joins)], "doubles")


@bench(
    number("processes", 10, 1, 100, "Processes that send messages."),
    number("conversations", 200, 1, 100_000, "Conversations."),
    number("turns", 10_000, 10, None, "Messages in all."),
    number("every-ms", 50, 1, None, "Milliseconds between two messages of a process."),
)
def turn(bench: Bench, *, processes: int, conversations: int, turns: int, every_ms: int) -> None:
    """Have messages interrupt turns of conversations. Fails if turns overlap, or a cleanup is not over before the next."""
    figures = turns_.measure(
        bench.address, processes=processes, conversations=conversations, turns=turns, every=every_ms / 1000
    )
    _report(bench, [figures], "overlaps", "without cleanup", "newest did not run", "lost leases")


@bench(number("calls", 1000, 2, 100_000, "Calls of the burst."))
def replace(bench: Bench, *, calls: int) -> None:
    """Make a burst of calls of which only the newest waits. Fails if others than the first and the newest run."""
    figures = turns_.measure_replace(bench.address, calls=calls)
    _report(bench, [figures | {"more than two": max(0, figures["ran"] - 2)}], "more than two")


@bench(
    number("rate", 1000, 100, 100_000, "Batch requests a second, and an urgent one for each hundred."),
    number("seconds", 10, 1, 600, "For how long."),
    number("load", 120, 1, 200, "Permits that are wanted, in percent of those that there are."),
)
def urgent(bench: Bench, *, rate: int, seconds: int, load: int) -> None:
    """Have urgent requests among many on a semaphore: in plain order, and with a head start."""
    _report(bench, urgents.measure(bench.address, rate=rate, seconds=seconds, load=load / 100))


@bench(
    number("jobs", 80, 2, 100_000, "Jobs of the busy tenant; the others have half as many."),
    number("others", 8, 1, 10_000, "Other tenants."),
)
def tenant(bench: Bench, *, jobs: int, others: int) -> None:
    """Take a limit for each tenant and one in all together, in both orders. Fails if one is exceeded."""
    _report(bench, tenants.measure(bench.address, jobs=jobs, others=others), "above a limit")


@bench(number("holds", 20, 1, 10_000, "Holds of each kind."))
def hold(bench: Bench, *, holds: int) -> None:
    """Put names under load on hold. Fails if a request is granted meanwhile."""
    figures = [holds_.measure(bench.address, kind=kind, holds=holds) for kind in holds_.KINDS]
    _report(bench, figures, "grants inside")


def _report(bench: Bench, figures: list[dict[str, Any]], *faults: str, late: bool = False) -> None:
    bench.save(figures=figures)
    show(ownership_table(figures, bench.title))
    ours = [one for one in figures if one.get("contender", HANDFAST) == HANDFAST]
    found = [f"FAILED: {one[fault]} {fault.replace('_', ' ')}" for one in ours for fault in faults if one[fault]]
    fail(found + ["FAILED: a dead member was listed for too long"] * late)


@click.group(
    commands=[
        lock,
        handoff,
        async_,
        crowd,
        semaphore,
        limiter,
        once,
        classic,
        cluster,
        election,
        partition,
        group,
        slot,
        turn,
        replace,
        urgent,
        tenant,
        hold,
    ],
    help="Compare Handfast with other libraries, on one server and in one run.",
)
def command() -> None: ...
