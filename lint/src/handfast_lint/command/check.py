"""``handfast script check``: print the findings of `handfast_lint`, each with its source line."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from handfast.cli.operate.table import printable

if TYPE_CHECKING:
    from handfast_lint import Finding, Servers

__all__ = ["check"]

WRONG = 1
"""Exit code if a script has errors."""

STDIN = "-"
RULE_WIDTH = 21
STYLES = {"error": "red", "warning": "yellow"}

EPILOG = """
\b
Exit codes:
   0  no findings, or warnings only
   1  errors, or with --strict also warnings
  64  wrong usage, such as a missing file

A finding is suppressed by a comment at the end of its line, on the line above, or, for a whole script, in the comment at
its top:

\b
  -- @allow <rule>: <reason>
"""


def _oldest(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Servers | None:
    from handfast_lint import parse_oldest

    try:
        return None if value is None else parse_oldest(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _list_rules(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's signature
    if value and not ctx.resilient_parsing:
        from handfast_lint import RULES

        most = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
        for rule, words in RULES.items():
            first, *rest = textwrap.wrap(words, most - RULE_WIDTH)
            click.echo(click.style(f"{rule:{RULE_WIDTH}}", fg="cyan") + first)
            for line in rest:
                click.echo(" " * RULE_WIDTH + line)
        ctx.exit()


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON array of objects.")
@click.option(
    "--oldest",
    callback=_oldest,
    metavar="SERVERS",
    help="Oldest servers that the scripts must run on, unless a header says so.  [default: redis=6.2,valkey=7.2]",
)
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
@click.option(
    "--rules", is_flag=True, is_eager=True, expose_value=False, callback=_list_rules, help="List the rules and exit."
)
@click.pass_context
def check(
    ctx: click.Context, /, *, files: tuple[str, ...], as_json: bool, oldest: Servers | None, strict: bool
) -> None:
    """Find mistakes in Lua scripts, without a server.

    FILE is a script, a folder, which stands for all .lua files in it, or - for standard input.
    """
    sources = dict(_sources(ctx, files))
    findings = [finding for name, data in sources.items() for finding in _findings(name, data, oldest)]
    if as_json:
        named = [asdict(finding) for finding in findings]
        click.echo(json.dumps([{"file": one.pop("name"), **one} for one in named], indent=1))
    else:
        for finding in findings:
            _show(finding, sources[finding.name])
        click.echo(_summary(len(sources), findings), err=True)
    ctx.exit(WRONG if any(strict or finding.severity == "error" for finding in findings) else 0)


def _sources(ctx: click.Context, files: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each script."""
    for file in files:
        if file == STDIN:
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        path = Path(file)
        inside = sorted(filter(Path.is_file, path.rglob("*.lua"))) if path.is_dir() else [path]  # not a link to nothing
        if not inside:
            raise click.UsageError(f"There is no .lua file in {file!r}.", ctx)
        for one in inside:
            try:
                yield str(one), one.read_bytes()
            except OSError as error:
                raise click.UsageError(f"Cannot read {str(one)!r}: {error.strerror}.", ctx) from None


def _findings(name: str, data: bytes, oldest: Servers | None) -> list[Finding]:
    from handfast_lint import Finding, check

    try:
        source = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = "this is not UTF-8: save the file as UTF-8, and write other bytes as decimals, such as \\255"
        return [Finding(name, line, 1, "syntax", "error", message)]
    return check(source, name=name) if oldest is None else check(source, name=name, oldest=oldest)


def _show(finding: Finding, data: bytes) -> None:
    """Print a finding, its source line, and a mark below its column."""
    from rich.cells import cell_len

    where = click.style(f"{finding.name}:{finding.line}:{finding.column}:", bold=True)
    severity = click.style(finding.severity, fg=STYLES[finding.severity], bold=True)
    click.echo(f"{where} {severity} [{click.style(finding.rule, fg='cyan')}] {finding.message}")
    lines = data.decode(errors="replace").split("\n")
    if finding.line <= len(lines):
        line = printable(lines[finding.line - 1])
        before = cell_len(printable(lines[finding.line - 1][: finding.column - 1]))
        number = f"{finding.line:5} | "
        click.echo(click.style(number, dim=True) + line)
        click.echo(click.style(" " * 5 + " | ", dim=True) + " " * before + click.style("^", fg="green", bold=True))


def _summary(scripts: int, findings: Sequence[Finding]) -> str:
    errors = sum(finding.severity == "error" for finding in findings)
    found = [_count(errors, "error")] if errors else []
    found += [_count(len(findings) - errors, "warning")] if len(findings) > errors else []
    return f"{_count(scripts, 'script')} checked: {', '.join(found) or 'no findings'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
