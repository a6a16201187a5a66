"""Generate ``docs/results/reliability.md`` from the raw results.

This module contains no figures: the report shows only what the results contain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from handfast_lab.chaos.results import Results

__all__ = ["render"]

TARGETS = {
    "R4": "no orphan, no wrong answer",
    "R5": "no wrong error",
    "R6": "no lease longer than requested",
    "R7": "no permit missing at rest",
    "R8": "nothing left behind",
    "R10": "no fenced update lost",
    "R11": "loss known without I/O",
    "R12": "at most ttl + 50 ms (p99)",
    "R13": "no inversion, no stall",
    "R14": "no position lost",
    "R15": "no waiter stuck",
    "R25": "nothing grows",
    "R31": "at most 50 ms, or a quarter second to a silent server",
    "R36": "all go to the new primary",
    "R37": "no acknowledged lease is lost",
    "R38": "each admission is counted once",
    "R39": "no window above the limit",
    "R40": "in order, no time beyond 1.1 s",
    "R41": "the limit",
    "R42": "one result for all",
    "R43": "one result for all, no late one",
    "R44": "one run",
    "R45": "no one waits",
}
"""The target of each scoreboard row, in a few words."""

SETTINGS = "cut off", "replicas", "cluster"
"""The settings of the simulator beside one server."""

RIVALS = "R4", "R5", "R6", "R7", "R8", "R13", "R25"
"""Rows that the locks of every contender are tested for."""

RIVAL_LIMITERS = "R38", "R39", "R40", "R41"
"""Rows that the rate limiters of every contender are tested for."""

RIVAL_ONCE = "R42", "R43", "R44", "R45"
"""Rows that all that do something once are tested for."""

HEAD = """---
search:
  exclude: true
---

# Reliability

The faults under which Handfast was tested, and the violations that were found. This page is generated from the raw results in
`results/reliability/`, made by the commands that each section names. Where the target is 0, any other number is a bug or a
documented limit. `python tools/evidence.py` in a clone shows what has changed since the commits of the runs.
"""


def render(results: Results) -> str:
    """Return the whole page."""
    parts = [
        [HEAD],
        _scoreboard(results),
        _histories(results),
        _schedules(results),
        _planted(results),
        _mutants(results),
        _rivals(
            results,
            RIVALS,
            "The rivals",
            "The same trials with the libraries that have the operation, at their defaults except for the lease",
        ),
        _rivals(
            results,
            RIVAL_LIMITERS,
            "Rate limiters",
            "The same trials with other rate limiters, of which those of throttled-py do not promise exact windows",
        ),
        _rivals(
            results,
            RIVAL_ONCE,
            "Once",
            "The same trials with caches that let one of several callers run; their results may be made again at any time",
        ),
        _record(results),
    ]
    return "\n".join(text for text in map("\n".join, parts) if text).rstrip() + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> Iterator[str]:
    """Yield a table. Columns whose letter in ``right`` is ``r`` are right-aligned."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join("--:" if letter == "r" else "---" for letter in right.ljust(len(head), "l")) + "|"
    for row in rows:
        yield "| " + " | ".join(_cell(value) for value in row) + " |"
    yield ""


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|")


def _made(part: dict[str, Any]) -> str:
    """Return the command, the machine, the date and the commit that a part was made with."""
    machine = part["machine"]
    where = f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"
    return f"`{part['command']}`, {_made_at(machine)}; {where}.\n"


def _made_at(machine: dict[str, Any]) -> str:
    """Return the date and the commit of a run, and the first later commit that changed its sources if one is stored."""
    commit = f", commit {machine['commit']}" if "commit" in machine else ""
    older = f", older than its sources since {machine['older']}" if "older" in machine else ""
    return f"{machine['date'][:10]}{commit}{older}"


def _measured(figure: dict[str, Any]) -> str:
    return "; ".join(f"{what} {_cell(value)}" for what, value in figure["measured"].items() if value)


def _is_ours(figure: dict[str, Any]) -> bool:
    return str(figure["contender"]).startswith("handfast")


def _row_of(figure: dict[str, Any]) -> int:
    return int(str(figure["id"]).lstrip("R"))


def _scoreboard(results: Results) -> Iterator[str]:
    figures = sorted(filter(_is_ours, results.figures()), key=lambda one: (_row_of(one), one["what"], one["contender"]))
    if not figures:
        return
    yield "## Faults on real servers\n"
    yield (
        "Each fault was provoked many times, and violations were counted: `bad / tried`. The rows are numbered as in the "
        "[catalogue of faults](../design/faults.md).\n"
    )
    contenders = list(dict.fromkeys(figure["contender"] for figure in figures))
    tried = dict.fromkeys((figure["id"], figure["what"]) for figure in figures)
    cells = {(figure["id"], figure["what"], figure["contender"]): figure for figure in figures}
    rows = (
        (row, what, TARGETS.get(row, ""), *(_tried(cells.get((row, what, contender))) for contender in contenders))
        for row, what in tried
    )
    yield from _table(("", "what was tried", "target", *contenders), rows, "lll" + "r" * len(contenders))
    for figure in figures:
        if figure["bad"] and figure["examples"]:
            wrong = f"{figure['bad']:,} {figure['unit']}: {'; '.join(figure['examples'])}"
            yield f"- {figure['id']}, {figure['what']}, {figure['contender']}: {wrong}"
    yield "\nFurther measurements that are not 0:\n"
    yield from _table(
        ("", "what was tried", "measured", *contenders),
        (
            (row, what, name, *values)
            for row, what in tried
            for name, *values in _side_by_side([cells.get((row, what, contender)) for contender in contenders])
        ),
        "lll" + "r" * len(contenders),
    )
    runs = dict.fromkeys(f"`{figure['command']}` ({_made_at(figure['machine'])})" for figure in figures)
    yield "Made by " + "; ".join(runs) + ".\n"


def _side_by_side(figures: Sequence[dict[str, Any] | None]) -> Iterator[tuple[str, ...]]:
    """Yield each further measurement with its value in every figure, unless all values are 0."""
    measured = [figure["measured"] if figure else {} for figure in figures]
    for name in dict.fromkeys(name for one in measured for name in one):
        values = [one.get(name) for one in measured]
        if any(values):
            yield name, *("-" if value is None else _cell(value) for value in values)


def _tried(figure: dict[str, Any] | None) -> str:
    return f"{figure['bad']:,} / {figure['tried']:,}" if figure else "-"


def _histories(results: Results) -> Iterator[str]:
    part = results.read("histories")
    if part is None:
        return
    total = _sum(part["played"])
    yield "## Histories (R1)\n"
    yield (
        f"**{total['histories']:,} histories with {total['operations']:,} operations under "
        f"{len({entry['fault'] for entry in part['played']}) - 1} kinds of faults, which struck {total['strikes']:,} times: "
        f"{total['findings']} anomalies.** Each was checked for exclusion, queue order, growing fences, linearizability and "
        "state left at rest; where the fault makes the server lose granted leases, for growing fences and state left at rest "
        "alone.\n"
    )
    yield _made(part)
    for by in ("fault", "primitive", "api"):
        groups = defaultdict(list)
        for entry in part["played"]:
            groups[entry[by]].append(entry)
        sums = ((name, _sum(group)) for name, group in groups.items())
        rows = ((name, s["histories"], s["operations"], s["strikes"], s["findings"]) for name, s in sums)
        yield from _table((by, "histories", "operations", "faults", "anomalies"), rows, "lrrrr")
    for entry in part["played"]:
        for finding in entry["findings"]:
            yield f"- {entry['primitive']}, {entry['api']}, {entry['fault']}, seed {finding['seed']}: {finding['text']}"


def _sum(entries: Iterable[dict[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for entry in entries:
        for what in ("histories", "operations", "strikes"):
            total[what] += entry[what]
        total["findings"] += len(entry["findings"])
    return total


def _rivals(results: Results, rows_of_all: Sequence[str], title: str, what_is_shown: str) -> Iterator[str]:
    figures = [figure for figure in results.figures() if figure["id"] in rows_of_all]
    if all(map(_is_ours, figures)):
        return
    yield f"## {title}\n"
    yield f"{what_is_shown}: `bad / tried`.\n"
    contenders = list(
        dict.fromkeys(figure["contender"] for figure in sorted(figures, key=lambda one: not _is_ours(one)))
    )
    cells = {(figure["id"], figure["what"], figure["contender"]): figure for figure in figures}
    rows = []
    for row, what in sorted(
        {(figure["id"], figure["what"]) for figure in figures}, key=lambda one: (int(one[0][1:]), one)
    ):
        found = [cells.get((row, what, contender)) for contender in contenders]
        rows.append((row, what, *map(_tried, found)))
    yield from _table(("", "what", *contenders), rows, "ll" + "r" * len(contenders))
    machines = {figure["contender"]: figure["machine"] for figure in results.figures()}
    known = dict.fromkeys(
        version for contender in contenders if (version := _version_of(contender, machines[contender]))
    )
    runs = dict.fromkeys(_made_at(figure["machine"]) for figure in figures if not _is_ours(figure))
    yield f"{', '.join(known)}. Made on {'; '.join(runs)}. A `-` means that the operation does not exist or that its trial did not finish.\n"
    for figure in figures:
        if not _is_ours(figure) and figure["bad"] and figure["measured"]:
            yield f"- {figure['contender']}, {figure['what']}: {_measured(figure)}"
    yield ""


def _version_of(contender: str, machine: dict[str, Any]) -> str | None:
    """Return the name and the version of its package, if it is recorded."""
    package = contender.partition(" (")[0]
    version = machine.get(package) or machine.get(package.removesuffix("-py"))
    return f"{package} {version}" if version else None


def _schedules(results: Results) -> Iterator[str]:
    part = results.read("schedules")
    if part is None:
        return
    yield "## Simulated schedules (R2)\n"
    yield (
        f"**{part['schedules']:,} schedules with {part['calls']:,} calls of scripts and {part['faults']:,} faults: "
        f"{len(part['findings'])} anomalies; {part['schedules'] / part['seconds']:,.0f} schedules a second** on "
        f"{part['processes']} processes. The asyncio API, its driver, the protocols and the scripts are the real code; the "
        "network, the server's commands and time are simulated. The sync driver is tested by the histories and trials above. "
        f"Everything follows from a seed, and {part['virtual_days']:,.0f} days of virtual time passed. The state of the server "
        "was checked after each call. At the end it was checked that every caller had finished and that nothing was left, and the answers that clients received "
        f"in {part['histories']:,} histories with {part['operations']:,} operations. "
        "`python -m handfast_lab.simulator SEED` shows one schedule, event by event.\n"
    )
    yield _made(part)
    yield from _table(("fault", "times"), part["faults_by_kind"].items(), "lr")
    others = {setting: results.read(f"schedules_{setting.replace(' ', '_')}") for setting in SETTINGS}
    made = {setting: other for setting, other in others.items() if other is not None}
    if made:
        yield "In other settings, which [the fault catalogue](../design/faults.md#settings-of-the-schedules) describes:\n"
        fields = "schedules", "calls", "faults", "histories"
        rows = (
            (setting, *(other[field] for field in fields), len(other["findings"])) for setting, other in made.items()
        )
        yield from _table(("setting", *fields, "anomalies"), rows, "lrrrrr")
    for setting, other in {"": part, **made}.items():
        option = setting and f" --setting '{setting}'"
        for finding in other["findings"]:
            yield f"- `python -m handfast_lab.simulator {finding['seed']}{option}`: {'; '.join(finding['texts'])}"


def _planted(results: Results) -> Iterator[str]:
    part = results.read("planted")
    if part is None:
        return
    caught = [one for one in part["planted"] if one["caught_after"] is not None]
    yield "## Planted bugs (R3)\n"
    yield (
        f"A checker that finds nothing may be blind. So {len(part['planted'])} mistakes were planted in scripts and clients: "
        f"**{len(caught)} of {len(part['planted'])} were caught.**\n"
    )
    yield _made(part)
    # The names of mutants are code.
    names = (f"`{one['name']}`" if ": " in one["name"] else one["name"] for one in part["planted"])
    rows = (
        (name, one["why"], one["caught_after"], one["caught_by"])
        for name, one in zip(names, part["planted"], strict=True)
    )
    yield from _table(("mistake", "what it does", "schedules until caught", "caught by"), rows, "llrl")


def _mutants(results: Results) -> Iterator[str]:
    part = results.read("mutants")
    if part is None:
        return
    total = part["all"]
    yield "## Mutants of the scripts (R29)\n"
    yield (
        f"**{total['mutants']:,} mutants, {total['killed'] + total['timed out']:,} killed by the tests, "
        f"{total['justified']:,} justified by name, {total['survived']:,} survived.** A mutant is a script with one small "
        "mistake: a comparison turned, a call left out, a number moved, a key swapped. The reasons of the justified ones are "
        "in `lab/src/handfast_lab/mutants/justified.toml`.\n"
    )
    yield _made(part)
    rows = (
        (name, one["mutants"], one["killed"] + one["timed out"], one["justified"], one["survived"])
        for name, one in part["scripts"].items()
    )
    yield from _table(("script", "mutants", "killed", "justified", "survived"), rows, "lrrrr")


def _record(results: Results) -> Iterator[str]:
    record = results.read("record")
    if record is None:
        return
    yield "## Track record\n"
    yield "The bugs that these tests have found in Handfast. Each is fixed, and has a test of its own. The commit that mends a fault adds its line.\n"
    rows = ((one["found"], one["by"], one["bug"], one["test"]) for one in record["bugs"])
    yield from _table(("found in", "by", "bug", "test"), rows)
