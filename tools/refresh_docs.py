"""Write the generated sections of the documentation; ``--check`` fails if one of them is out of date.

A section stands between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``. Its source is the code or a raw result, so a
page cannot say anything else than they do:

- ``cli``: the commands, read from click;
- ``calls``: the engine's scripts by kind, for tests with faults;
- ``loops``: what ends a loop that runs for as long as the process lives, from `handfast._protocol.loops`;
- ``scripts``: the engine's scripts, with the first sentences of their headers;
- ``lint``: the rules of the linter;
- ``facts``: two figures of the front page, from ``lock.json`` and from R8 in ``results/reliability/trials.json``;
- ``lock`` and ``tasks``: one lock used by processes and by tasks, from ``lock.json`` and ``async.json`` there;
- ``handoff``: the counts of a contended handoff, from ``results/benchmarks/handoff.json``;
- ``cluster`` and ``routing``: locks on several primaries, and the frames of a routed call, from
  ``results/benchmarks/cluster.json``;
- ``limiters`` and ``waiters``: rate limiters, from ``results/benchmarks/limiter.json``;
- ``cutoffs``: leases that replicas had and had not, from R37 in ``results/reliability/trials.json``;
- ``servers``: the tests on every server, from ``results/servers/*.json``;
- ``deep``: the parts of the deep suite, from ``results/deep.json``;
- ``evidence_benchmarks``, ``evidence_reliability``, ``evidence_servers``: the commit of each part of a folder of results,
  and its mark;
- ``reliability``: the summary of ``results/reliability/*.json``, and what is newer than these records.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from evidence import files, runs
from handfast._kinds import KINDS
from handfast._protocol import loops as loop_rules
from handfast._protocol.loops import Cause, Rule
from handfast.cli import COMMANDS
from handfast_lab.simulator.planted import PLANTED
from handfast_lint import RULES

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
LUA = ROOT / "src/handfast/_engine/lua"
SOURCE = f"{tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['urls']['Source']}/blob/main"
SECTION = re.compile(r"(<!-- begin:(\w+) -->\n).*?(<!-- end:\2 -->)", re.DOTALL)

COUNTED = {
    "redis-py": "redis-py `Lock`",
    "redis-py-1ms": "redis-py `Lock`, sleep 1 ms",
    "python-redis-lock": "python-redis-lock",
    "handfast": "**Handfast**",
    "classic-first": "classic listing, first form",
    "classic-lua": "classic listing, Lua form",
    "floor": "baseline",
}
"""The names of contenders in the tables of processes."""

TASKS = COUNTED | {
    "redis-py": "redis.asyncio `Lock`",
    "redis-py-1ms": "redis.asyncio `Lock`, sleep 1 ms",
    "coredis": "coredis `Lock`",
}
"""The same of the table of tasks."""


def main() -> int:
    """Write all sections, or with ``--check`` name the files whose sections are out of date."""
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        before = path.read_text(encoding="utf-8")
        after = SECTION.sub(lambda match: match[1] + "\n".join(SECTIONS[match[2]]()) + "\n" + match[3], before)
        if after != before:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    for name in stale:
        print(f"{name} {'is out of date: run python tools/refresh_docs.py' if '--check' in sys.argv else 'written'}")
    return int(bool(stale) and "--check" in sys.argv)


def commands() -> Iterator[str]:
    """The reference of the command line, with that of the linter at the end."""
    linter = {"script": ("handfast_lint.command:command", "")}
    for name, (target, _) in (COMMANDS | linter).items():
        module, _, attribute = target.partition(":")
        yield from _command(getattr(import_module(module), attribute), f"handfast {name}", 2)


def _command(command: click.Command, path: str, level: int) -> Iterator[str]:
    with click.Context(command, info_name=path) as ctx:
        yield f"\n{'#' * level} `{path}`\n"
        if isinstance(command, click.Group):
            yield _prose(command.help)
            for name in command.list_commands(ctx):
                if (sub := command.get_command(ctx, name)) is not None:
                    yield from _command(sub, f"{path} {name}", level + 1)
            return
        yield "```text\n" + " ".join([path, *command.collect_usage_pieces(ctx)]) + "\n```\n"
        yield _prose(command.help)
        yield "\n| option | meaning |\n|---|---|"
        for param in command.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                yield _option(*record)
        if command.epilog:
            yield "\n" + _prose(command.epilog)


def _option(names: str, text: str) -> str:
    found = re.search(r"  \[(.*)\]$", text)
    text, notes = (text[: found.start()], found[1].split("; ")) if found else (text, [])
    shown = [note for note in notes if note.startswith("default: ") or note == "required"]
    return f"| `{names}` | {_cell(text)}{''.join(f' [{_cell(note)}]' for note in shown)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _prose(text: str | None) -> str:
    """Click's help as Markdown: paragraphs that must not be rewrapped become text blocks."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        if paragraph.startswith("\b\n"):
            kept = paragraph.removeprefix("\b\n")
            head, _, rest = ("", "", kept) if kept.startswith(" ") else kept.partition("\n")
            paragraphs.append(f"{head}\n\n```text\n{rest}\n```".lstrip("\n"))
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def scripts() -> Iterator[str]:
    """The engine's scripts, each with the first sentence of the contract and a link to the rest."""
    yield "| script | |\n|---|---|"
    for path in sorted(LUA.glob("*.lua")):
        header = takewhile(lambda line: line != "--", path.read_text(encoding="utf-8").splitlines())
        said = " ".join(line.removeprefix("-- ") for line in header).partition(": ")[2]
        sentence = re.split(r"(?<=\.) (?=[A-Z])", said, maxsplit=1)[0]
        yield f"| [`{path.stem}`]({SOURCE}/{path.relative_to(ROOT)}) | {_cell(sentence)} |"


def calls() -> Iterator[str]:
    """Yield which scripts are of which kinds. Kinds with leases also call those of locks."""
    yield "| of | scripts of Handfast |"
    yield "|---|---|"
    found: dict[str, list[str]] = {}
    for path in sorted(LUA.glob("*.lua")):
        found.setdefault(path.stem.partition("_")[0], []).append(f"`{path.stem}`")
    for prefix, scripts_of in found.items():
        kinds = [f"`{name}`" for name, kind in KINDS.items() if kind.scripts == prefix]
        yield f"| {', '.join(kinds) or 'several locks at once'} | {', '.join(scripts_of)} |"


def loops() -> Iterator[str]:
    """Yield what follows on each end of a turn, in each kind of loop."""
    said = {
        Rule.END: "the caller gets the error",
        Rule.AT_ONCE: "goes on at once",
        Rule.SOON: f"logged; goes on after {loop_rules.FIRST_PAUSE_S:g} s",
        Rule.LATER: f"logged; goes on after {loop_rules.FIRST_PAUSE_S:g}, 2, 4 … {loop_rules.LONGEST_PAUSE_S:g} s",
    }
    yield "| a turn ends since | `election.run`, `handfast elect` | `serve` and the items of a partition | `observe`, `watch` |"
    yield "|---|---|---|---|"
    for cause, rule in loop_rules.RULES.items():
        repeats = Rule.LATER if cause is Cause.FAILED else rule
        leads, serves, watches = said[rule], said[repeats], "" if cause in OF_A_FUNCTION else said[rule]
        yield f"| {cause.value} | {leads} | {serves} | {watches} |"


OF_A_FUNCTION = {Cause.TAKEN, Cause.FOREIGN, Cause.FAILED}
"""Ends that a loop without a lease and without a function of the user does not have."""


def rules() -> Iterator[str]:
    """The rules of the linter, in its own words."""
    yield "| rule | asks that |\n|---|---|"
    for rule, words in RULES.items():
        yield f"| `{rule}` | {words} |"


def processes() -> Iterator[str]:
    """All rows of the benchmark of one lock, alone and with ten."""
    data = _read("benchmarks/lock")
    yield "| | 1 client | 10 clients | fairness | handoff p50 / p99 | x baseline, 1 / 10 | x classic Lua, 1 / 10 |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    rows = {(row["contender"], row["clients"]): row for row in data["rows"]}
    for contender in dict.fromkeys(row["contender"] for row in data["rows"]):
        alone, many = rows[contender, 1], rows[contender, 10]
        handoff = f"{many['handoff_p50_us']:.0f} / {many['handoff_p99_us']:,.0f} µs"
        ratios = (f"{alone[to]:.2f} / {many[to]:.2f}" for to in ("to_floor", "to_classic"))
        rates = f"{alone['rate']:,.0f} | {many['rate']:,.0f}"
        yield f"| {COUNTED[contender]} | {rates} | {many['fairness']:.2f} | {handoff} | {' | '.join(ratios)} |"
    yield _circumstances(data)


def speed() -> Iterator[str]:
    """The sentence of the README about speed."""
    data = _read("benchmarks/lock")
    ours, theirs = (
        next(row for row in data["rows"] if (row["contender"], row["clients"]) == (one, 10))
        for one in ("handfast", "redis-py")
    )
    yield textwrap.fill(
        f"Where ten processes want the same lock, on {data['machine']['cores']} cores, it is granted {ours['rate']:,.0f} times a second, "
        f"and a release reaches the next process in {ours['handoff_p50_us']:.0f} µs (median; {theirs['handoff_p50_us']:.0f} µs with "
        "redis-py's `Lock`). [Benchmarks](docs/results/benchmarks.md) has asyncio, semaphores, limiters and other libraries. "
        "In a clone this repeats it:",
        100,
        break_on_hyphens=False,
    )
    yield "\n```text\npip install ./lint ./lab && handfast bench lock --seconds 2 --rounds 5\n```"


def facts() -> Iterator[str]:
    """Two figures of the front page."""
    data = _read("benchmarks/lock")
    row = {row["contender"]: row for row in data["rows"] if row["clients"] == 10}
    ours, theirs = (row[one]["handoff_p50_us"] for one in ("handfast", "redis-py"))
    figures = (one for trial in _read("reliability/trials") for one in trial["figures"] if one["id"] == "R8")
    cancelled = max((one for one in figures if "handfast" in one["contender"]), key=lambda one: one["tried"])
    yield f"**{ours:.0f} µs**"
    yield f"from a release to the next holder, where ten processes want one lock: the median, on {data['machine']['cores']} cores."
    yield f"With redis-py's `Lock` it is {theirs:.0f} µs. [Benchmarks](results/benchmarks.md) has the settings."
    yield f"\n**{cancelled['bad']} of {cancelled['tried']:,}**"
    yield "cancelled acquires leave a lease or a place in the queue behind."
    yield "[Reliability](results/reliability-summary.md), with commands and seeds"


def tasks() -> Iterator[str]:
    """The rows of the benchmark of tasks that say most."""
    data = _read("benchmarks/async")
    yield (
        "| | 1 task | 100 locks, 100 tasks | 1,000 locks, 1,000 tasks | x redis.asyncio | one lock, 100 tasks | fairness | "
        "x redis.asyncio | connections, 1,000 tasks | bytes per waiter |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    rows = {(row["contender"], row["setting"], row["clients"]): row for row in data["rows"]}
    memory = {one["contender"]: f"{one['bytes_per_waiter']:,.0f}" for one in data["memory"]}
    for contender in dict.fromkeys(row["contender"] for row in data["rows"]):
        rates = (f"{rows[contender, 'distinct', number]['rate']:,.0f}" for number in (1, 100, 1000))
        most, one = rows[contender, "distinct", 1000], rows[contender, "one", 100]
        contended = f"{one['rate']:,.0f} | {one['fairness']:.2f} | {one['to_redis']:.1f}"
        yield (
            f"| {TASKS.get(contender, contender)} | {' | '.join(rates)} | {most['to_redis']:.1f} | {contended} | "
            f"{most['connections']:,} | {memory.get(contender, '')} |"
        )
    yield _circumstances(data)


def _circumstances(data: Any) -> str:
    machine, settings = data["machine"], data["settings"]
    return (
        f"\n{settings['rounds']} interleaved rounds of {settings['seconds']:g} s, medians; {machine['cores']} cores, "
        f"Python {machine['python']}, redis-py {machine['redis']}, {machine['server']}, {machine['date'][:10]}."
    )


def handoff() -> Iterator[str]:
    """What an acquire of a contended lock and its release cost."""
    data = _read("benchmarks/handoff")
    yield "| | commands | server reads | bytes | server writes | bytes | wake-ups of clients | of the server |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for row in data["rows"]:
        received = f"{row['reads']:.1f} | {row['bytes_received']:,.0f}"
        sent = f"{row['writes']:.1f} | {row['bytes_sent']:,.0f}"
        wakes = f"{row['client_wakeups']:.1f} | {row['server_wakeups']:.1f}"
        yield f"| {COUNTED.get(row['contender'], row['contender'])} | {row['commands']:.1f} | {received} | {sent} | {wakes} |"
    machine, settings = data["machine"], data["settings"]
    yield (
        f"\n{settings['clients']} processes, {settings['rounds']} interleaved rounds of {settings['seconds']:g} s, medians; "
        f"{machine['cores']} cores, {machine['server']}, {machine['date'][:10]}."
    )


def cluster() -> Iterator[str]:
    """Locks on the primaries of a cluster, beside those on one server."""
    data = _read("benchmarks/cluster")
    yield "| | | cycles/s | slowest to fastest | x one server | client, µs | servers, µs | busiest server, µs | connections |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for row in data["rows"]:
        rates = f"{row['rate']:,.0f} | {row['slowest']:,.0f} to {row['fastest']:,.0f} | {row['to_server']:.2f}"
        times = " | ".join(f"{row[which]:.1f}" for which in ("client_us", "server_us", "busiest_us"))
        yield f"| {row['load']} | {row['place']} | {rates} | {times} | {row['connections']:.1f} |"
    settings = data["settings"]
    yield f"\n{settings['clients']} processes, {settings['names']} names each. {_circumstances(data).strip()}"


def routing() -> Iterator[str]:
    """The Python frames of a call on a plain session and through the router."""
    yield "| | acquire | release |\n|---|--:|--:|"
    for one in _read("benchmarks/cluster")["frames"]:
        yield f"| {one['api']}, {one['place']} | {one['acquire']} | {one['release']} |"


def client() -> Iterator[str]:
    """The instructions of a client for a call, and for a start."""
    data = _read("benchmarks/client")
    counts = {(row["call"], row["api"]): row["instructions"] for row in data["rows"]}
    yield "| | sync | asyncio |\n|---|--:|--:|"
    for call in dict.fromkeys(row["call"] for row in data["rows"]):
        yield f"| {call} | {counts[call, 'sync']:,} | {counts[call, 'asyncio']:,} |"
    starts = ", ".join(f"`{name}` {count / 1e6:,.0f} million" for name, count in data["start"].items())
    machine = data["machine"]
    versions = f"Python {machine['python']}, redis-py {machine['redis']}, {machine['server']}, {machine['date'][:10]}"
    yield f"\nStart of a process, the import without redis-py's: {starts}.\n\n{versions}."


def limiters() -> Iterator[str]:
    """Calls that do not wait, and the memory of an admission."""
    data = _read("benchmarks/limiter")
    few, most = sorted({one["admissions"] for one in data["memory"]})
    yield (
        "| | 1 process, admitted / refused | 10 processes, admitted / refused | x GCRA, 1 process | server, µs | "
        f"bytes each, {few:,} / {most:,} admissions |"
    )
    yield "|---|--:|--:|--:|--:|--:|"
    rows = {(row["contender"], row["clients"], row["setting"]): row for row in data["asking"]}
    memory = {(one["contender"], one["admissions"]): one["bytes"] / one["admissions"] for one in data["memory"]}
    for contender in dict.fromkeys(row["contender"] for row in data["asking"]):
        alone, many = ([rows[contender, number, how] for how in ("admitted", "refused")] for number in (1, 10))
        rates = (" / ".join(f"{row['rate']:,.0f}" for row in both) for both in (alone, many))
        ratios, costs = (
            " / ".join(f"{row[what]:{form}}" for row in alone)
            for what, form in (("to_base", ".2f"), ("server_us", ".0f"))
        )
        stored = " / ".join(f"{memory[contender, count]:,.1f}" for count in (few, most))
        yield f"| {_bold(contender)} | {' | '.join(rates)} | {ratios} | {costs} | {stored} |"
    yield _circumstances(data)


def waiters() -> Iterator[str]:
    """Threads that wait for a rate."""
    data = _read("benchmarks/limiter")
    yield "| | seconds over the shortest | inversions | calls of scripts per admission |\n|---|--:|--:|--:|"
    for row in data["waiting"]:
        order = f"{row['inversions']:,} of {row['pairs']:,}"
        yield f"| {_bold(row['contender'])} | {row['over_s']:.2f} | {order} | {row['calls']:.1f} |"
    yield f"\n{data['settings']['waiters']} waiters, {data['settings']['rounds']} rounds, medians; inversions of all rounds."


def _bold(contender: str) -> str:
    return "**Handfast**" if contender == "handfast" else contender


def cutoffs() -> Iterator[str]:
    """How many leases a replica lacked when it took over, with and without acknowledgement."""
    yield (
        "| | primaries killed | acknowledged leases | of these lost | other leases | of these lost | by so many primaries | "
        "median acquire, acknowledged / other |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    runs = [run for run in _read("reliability/trials") if run["trial"] == "cutoffs"]
    for figure in (figure for run in runs for figure in run["figures"]):
        found = figure["measured"]
        acknowledged = f"{found['acknowledged leases']:,} | {figure['bad']:,}"
        others = f"{found['other leases']:,} | {found['other leases lost']:,} | {found['primaries that lost some']:,}"
        times = f"{found['median acknowledged acquire, ms']:.1f} / {found['median acquire, ms']:.1f} ms"
        yield f"| {figure['contender']} | {figure['tried']:,} | {acknowledged} | {others} | {times} |"
    machine = runs[0]["machine"]
    yield f"\n{machine['cores']} cores, {machine['server']}, {machine['date'][:10]}."


def servers() -> Iterator[str]:
    """How many tests passed on each server, with each redis-py."""
    yield "| server | redis-py | Python | tests | failed | passed over | date |\n|---|---|---|--:|--:|--:|---|"
    rows = [row for path in sorted(RESULTS.glob("servers/*.json")) for row in _read(f"servers/{path.stem}")]
    for row in sorted(rows, key=lambda row: (row["machine"]["server"], row["machine"]["redis"])):
        machine = row["machine"]
        versions = f"{machine['server']} | {machine['redis']} | {machine['python']}"
        yield f"| {versions} | {row['tests']:,} | {row['failed']:,} | {row['skipped']:,} | {machine['date'][:10]} |"


def deep() -> Iterator[str]:
    """How each part of the deep suite went, and which tests failed."""
    yield f"| part | tests | failed | flakes | minutes | commit | date | {OLDER} |\n|---|--:|--:|--:|--:|---|---|---|"
    record = _read("deep")
    for name, row in record.items():
        count = f"{row['tests']:,}" if "tests" in row else ""
        found = f"{len(row['failures'])} | {len(row['flakes'])}"
        yield f"| {name} | {count} | {found} | {row['seconds'] / 60:.1f} | {row['commit']} | {row['date'][:10]} | {row.get('older', '')} |"
    yield f"\n{EVIDENCE}"
    for kind in ("failures", "flakes"):
        if tests := [f"- `{found['test']}` ({name})" for name, row in record.items() for found in row[kind]]:
            yield f"\n{kind.capitalize()}:\n"
            yield from tests


OLDER = "older than its sources since"
EVIDENCE = fill(
    "In a clone, `python tools/evidence.py` shows what has changed since these commits. Its option `--mark` writes the last "
    "column, before each release.",
    100,
)
"""What the pages say below the commits of runs."""


def evidence(folder: str) -> Iterator[str]:
    """Yield the commit of each part of a folder of results, and the first commit since that changed its sources."""
    yield f"| part | commit | date | {OLDER} |\n|---|---|---|---|"
    for part, _, made in runs(*files(folder)):
        commit = made["commit"] + ", with changes" * bool(made.get("changed"))
        yield f"| {part.removeprefix(f'{folder}/')} | {commit} | {made['date'][:10]} | {made.get('older', '')} |"
    yield f"\n{EVIDENCE}"


def reliability() -> Iterator[str]:
    """What was tried, how often, and how often it went wrong."""
    figures = [figure for run in _read("reliability/trials") for figure in run["figures"]]
    ours = [figure for figure in figures if figure["contender"].startswith("handfast")]
    histories, schedules = _read("reliability/histories"), _read("reliability/schedules")
    planted, mutants = _read("reliability/planted")["planted"], _read("reliability/mutants")["all"]
    played = Counter[str]()
    for part in histories["played"]:
        played.update({key: part[key] for key in ("histories", "operations", "strikes")})
        played["findings"] += len(part["findings"])
    caught = sum(1 for bug in planted if bug["caught_after"])
    faults = len({part["fault"] for part in histories["played"]} - {"none"})
    yield "| | amount | violations |\n|---|--:|--:|"
    yield (
        f"| [faults on real servers](reliability.md#faults-on-real-servers): {len({f['id'] for f in ours})} kinds of the "
        f"[catalogue](../design/faults.md) | {sum(f['tried'] for f in ours):,} tries | {sum(f['bad'] for f in ours):,} |"
    )
    yield (
        f"| [histories](reliability.md#histories-r1) under {faults} kinds of faults | {played['histories']:,} histories, "
        f"{played['operations']:,} operations, {played['strikes']:,} faults | {played['findings']:,} |"
    )
    yield (
        f"| [simulated schedules](reliability.md#simulated-schedules-r2) | {schedules['schedules']:,} schedules, "
        f"{schedules['calls']:,} script calls, {schedules['faults']:,} faults | {len(schedules['findings']):,} |"
    )
    yield f"| [planted bugs](reliability.md#planted-bugs-r3) | {len(planted)} planted, {caught} caught | |"
    yield (
        f"| [mutants of the scripts](reliability.md#mutants-of-the-scripts-r29) | {mutants['mutants']:,} mutants, "
        f"{mutants['killed'] + mutants['timed out']:,} killed, {mutants['justified']:,} justified | {mutants['survived']:,} survived |"
    )
    yield "\n" + fill(" ".join(_age_of_reliability()), 100, break_long_words=False, break_on_hyphens=False)


def _age_of_reliability() -> Iterator[str]:
    """Yield sentences: of which days the records are, and what is newer than its record."""
    parts = [_read(f"reliability/{name}") for name in ("histories", "schedules", "planted", "mutants")]
    parts += _read("reliability/trials")
    days = sorted({part["machine"]["date"][:10] for part in parts})
    yield f"The records are of {days[0]} to {days[-1]}." if len(days) > 1 else f"The records are of {days[0]}."
    recorded, planted = _read("reliability/mutants")["scripts"], _read("reliability/planted")["planted"]
    scripts = [f"`{path.stem}`" for path in sorted(LUA.glob("*.lua")) if path.stem not in recorded]
    mistakes = {one.name for one in PLANTED} - {bug["name"] for bug in planted}
    if scripts:
        yield f"Newer than the record of mutants, and not yet in it, are {len(scripts)} scripts: {', '.join(scripts)}."
    if mistakes:
        yield f"Newer than the record of planted bugs, and not yet in it, are {len(mistakes)} of {len(PLANTED)}."


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "cli": commands,
    "calls": calls,
    "loops": loops,
    "scripts": scripts,
    "lint": rules,
    "lock": processes,
    "facts": facts,
    "speed": speed,
    "tasks": tasks,
    "handoff": handoff,
    "cluster": cluster,
    "routing": routing,
    "client": client,
    "limiters": limiters,
    "waiters": waiters,
    "cutoffs": cutoffs,
    "servers": servers,
    "deep": deep,
    "reliability": reliability,
    **{f"evidence_{folder}": partial(evidence, folder) for folder in ("benchmarks", "reliability", "servers")},
}

if __name__ == "__main__":
    sys.exit(main())
