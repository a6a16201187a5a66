"""Generate ``docs/results/reliability.md`` from the raw results.

This module contains no figures: the report shows only what the results contain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from handfast_lab.chaos.results import Results

__all__ = ["render"]

BARS = {
    "R4": "no orphan, no wrong answer",
    "R5": "no wrong error",
    "R6": "no time beyond what was asked for",
    "R7": "no permit missing at rest",
    "R8": "nothing left behind",
    "R9": "nothing left behind",
    "R10": "no update lost that is fenced",
    "R11": "known without I/O",
    "R12": "at most ttl + 50 ms (p99)",
    "R13": "no inversion, no stall",
    "R14": "never dropped",
    "R15": "nobody stuck",
    "R16": "never smaller",
    "R17": "give back always, take nothing",
    "R19": "no error seen",
    "R22": "told by the fence",
    "R23": "no change",
    "R24": "the child touches nothing",
    "R25": "nothing grows",
    "R26": "no key without an end",
    "R27": "nothing sent after the release",
    "R28": "in order, told when it is full, scripts below 1 ms (p99.9)",
    "R30": "nothing more, nothing less",
    "R31": "at most 50 ms or the socket's timeout",
}
"""The target of each scoreboard row, in a few words."""

RIVALS = "R4", "R5", "R6", "R7", "R8", "R13", "R25", "R26", "R27"
"""Rows that every contender is tested for."""

HEAD = """# Reliability

What Handfast was put through, and what came of it. Everything below is made by the commands that stand beside it, from
raw results in [`reliability/`](reliability/); `handfast torture` writes both. A number that is not 0 where 0 is the bar is
a bug or a limit, and is told as such.
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
        _rivals(results),
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
    """Return the command, machine and date that a part was made with."""
    machine = part["machine"]
    where = f"{machine['server']}, Python {machine['python']}, redis-py {machine['redis']}, {machine['cores']} cores"
    return f"`{part['command']}`, {machine['date'][:10]}; {where}.\n"


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
        "Each fault was provoked many times, and counted how often what must not happen did: `bad / tried`. Rows have the "
        "numbers of our catalogue of faults.\n"
    )
    contenders = list(dict.fromkeys(figure["contender"] for figure in figures))
    cells = {(figure["id"], figure["what"], figure["contender"]): figure for figure in figures}
    rows = (
        (row, what, BARS.get(row, ""), *(_tried(cells.get((row, what, contender))) for contender in contenders))
        for row, what in dict.fromkeys((figure["id"], figure["what"]) for figure in figures)
    )
    yield from _table(("", "what was tried", "the bar", *contenders), rows, "lll" + "r" * len(contenders))
    for figure in figures:
        if figure["bad"] and figure["examples"]:
            wrong = f"{figure['bad']:,} {figure['unit']}: {'; '.join(figure['examples'])}"
            yield f"- {figure['id']}, {figure['what']}, {figure['contender']}: {wrong}"
    yield "\nWhat was measured besides, where it is not 0:\n"
    besides = ((one["id"], one["what"], one["contender"], _measured(one)) for one in figures)
    yield from _table(("", "what was tried", "who", "measured"), (row for row in besides if row[-1]))
    commands = dict.fromkeys(figure["command"] for figure in figures)
    yield "Made by " + ", ".join(f"`{command}`" for command in commands) + ".\n"


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
        f"{total['findings']} anomalies.** Each was checked for exclusion, order, growing fences and linearizability, "
        "and for what is left at rest; where the fault makes the server forget what it had granted, for growing fences "
        "and rest alone.\n"
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


def _rivals(results: Results) -> Iterator[str]:
    figures = [figure for figure in results.figures() if figure["id"] in RIVALS]
    if all(map(_is_ours, figures)):
        return
    yield "## The rivals\n"
    yield "The same trials, of those who have the operation; each at its defaults but for a lease. `bad / tried`.\n"
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
    versions = results.read("trials")[-1]["machine"]
    names = dict.fromkeys(name.removesuffix(" (asyncio)") for name in contenders)
    known = (f"{name} {version}" for name in names if (version := versions.get(name.removesuffix("-py"))))
    yield f"{', '.join(known)}. A `-` stands where the operation does not exist, or its trial came to no end.\n"
    for figure in figures:
        if not _is_ours(figure) and figure["bad"] and figure["measured"]:
            yield f"- {figure['contender']}, {figure['what']}: {_measured(figure)}"
    yield ""


def _schedules(results: Results) -> Iterator[str]:
    part = results.read("schedules")
    if part is None:
        return
    yield "## Simulated schedules (R2)\n"
    yield (
        f"**{part['schedules']:,} schedules with {part['calls']:,} calls of scripts and {part['faults']:,} faults: "
        f"{len(part['findings'])} anomalies; {part['schedules'] / part['seconds']:,.0f} schedules a second** on "
        f"{part['processes']} processes. The protocols and the scripts are the real ones; time, network, server and death are "
        f"simulated, and everything follows from a seed: {part['virtual_days']:,.0f} days went by. After each call the state "
        f"of the server was checked, at the end that everybody got through and nothing was left, and of {part['histories']:,} "
        f"histories with {part['operations']:,} operations what the clients were told. "
        "`python -m handfast_lab.simulator SEED` shows one, event by event.\n"
    )
    yield _made(part)
    yield from _table(("fault", "times"), part["faults_by_kind"].items(), "lr")
    for finding in part["findings"]:
        yield f"- `python -m handfast_lab.simulator {finding['seed']}`: {'; '.join(finding['texts'])}"


def _planted(results: Results) -> Iterator[str]:
    part = results.read("planted")
    if part is None:
        return
    caught = [one for one in part["planted"] if one["caught_after"] is not None]
    yield "## Planted bugs (R3)\n"
    yield (
        f"A checker that finds nothing may be blind. So {len(part['planted'])} mistakes were planted in scripts, clients and "
        f"classic listings: **{len(caught)} of {len(part['planted'])} were caught.**\n"
    )
    yield _made(part)
    rows = ((one["name"], one["why"], one["caught_after"], one["caught_by"]) for one in part["planted"])
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
        "mistake: a comparison turned, a call left out, a number moved, a key swapped. Why the justified ones may live "
        "stands in `lab/src/handfast_lab/mutants/justified.toml`.\n"
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
    yield "What all this has found in Handfast. Each was mended at its root, and its test stays.\n"
    rows = ((one["found"], one["by"], one["bug"], one["test"]) for one in record["bugs"])
    yield from _table(("found", "by", "what was wrong", "what holds it now"), rows)
