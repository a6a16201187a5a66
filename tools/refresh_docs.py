"""Write the generated sections of the documentation; ``--check`` fails if one of them is out of date.

A section stands between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``. Its source is the code or a raw result, so a page
cannot say anything else than they do:

- ``cli``: the commands, read from click;
- ``scripts``: the engine's scripts, read from their headers;
- ``lint``: the rules of the linter;
- ``performance``: the README's table, from ``results/benchmarks/lock.json``;
- ``handoff``: the counts of a contended handoff, from ``results/benchmarks/handoff.json``;
- ``reliability``: the summary of ``results/reliability/*.json``.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from handfast.cli import COMMANDS
from handfast.lint import RULES

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
LUA = ROOT / "src/handfast/_engine/lua"
SECTION = re.compile(r"(<!-- begin:(\w+) -->\n).*?(<!-- end:\2 -->)", re.DOTALL)

SHOWN = {
    "redis-py": "redis-py `Lock`",
    "redis-py-1ms": "redis-py `Lock`, `sleep=0.001`",
    "python-redis-lock": "python-redis-lock",
    "handfast": "**Handfast**",
    "floor": "bare socket, same scripts",
}
"""The rows of the README's table and their names there."""

COUNTED = SHOWN | {
    "classic-first": "classic listing, first form",
    "classic-lua": "classic listing, Lua form",
    "redis-py-1ms": "redis-py `Lock`, sleep 1 ms",
    "floor": "baseline",
}
"""The same of the table of a handoff's counts."""


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
    """The reference of the command line."""
    for name, (target, _) in COMMANDS.items():
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
            head, _, rest = paragraph.removeprefix("\b\n").partition("\n")
            paragraphs.append(f"{head}\n\n```text\n{rest}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def scripts() -> Iterator[str]:
    """The contracts of the engine's scripts, as they stand in the files."""
    for path in sorted(LUA.glob("*.lua")):
        header = takewhile(lambda line: line.startswith("--"), path.read_text(encoding="utf-8").splitlines())
        yield f"### {path.stem}\n\n```lua\n" + "\n".join(header) + "\n```\n"


def rules() -> Iterator[str]:
    """The rules of the linter, in its own words."""
    yield "| rule | asks that |\n|---|---|"
    for rule, words in RULES.items():
        yield f"| `{rule}` | {words} |"


def performance() -> Iterator[str]:
    """Five rows of the benchmark of one lock."""
    data = _read("benchmarks/lock")
    yield "| | 1 process | 10 processes | fairness | handoff p50 / p99 |\n|---|--:|--:|--:|--:|"
    rows = {(row["contender"], row["clients"]): row for row in data["rows"]}
    for contender, shown in SHOWN.items():
        alone, many = rows[contender, 1], rows[contender, 10]
        handoff = f"{many['handoff_p50_us']:.0f} / {many['handoff_p99_us']:.0f} µs"
        rates = f"{alone['rate']:,.0f}/s | {many['rate']:,.0f}/s"
        yield f"| {shown} | {rates} | {many['fairness']:.2f} | {handoff} |"
    machine, settings = data["machine"], data["settings"]
    yield (
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


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "cli": commands,
    "scripts": scripts,
    "lint": rules,
    "performance": performance,
    "handoff": handoff,
    "reliability": reliability,
}

if __name__ == "__main__":
    sys.exit(main())
