"""The linter for Lua scripts: finds mistakes without a server.

    for finding in check(Path("take.lua").read_text(), name="take.lua"):
        print(finding)

It works in steps, one module each:

    parsing       source to syntax tree, with tree-sitter
    syntax        errors in the servers' Lua 5.1; if there are any, the other steps are skipped
    limits        what is too much for the compiler of servers
    scopes        which variable a name means, and the calls of each function
    flow          where a value comes from, through variables, tables and calls
    values        whether a value is a string, and how large a number gets
    script        all of this about one script, for the rules
    rules/        the rules, one family per module
    suppressions  findings that the author allows, ``-- @allow <rule>: <reason>``

`commands` and `versions` are tables of the servers' commands, `memo` ends cycles of questions. The linter runs no
script and contacts no server. A rule that cannot decide reports nothing: a false alarm is a bug of the linter.
"""

from __future__ import annotations

from handfast._engine.header import HeaderError, read_header
from handfast._naming import name_publicly
from handfast_lint.findings import Finding, Severity
from handfast_lint.limits import crowded
from handfast_lint.parsing import build, parse, place_of
from handfast_lint.rules import FAMILIES, RULES
from handfast_lint.script import CheckedScript
from handfast_lint.suppressions import apply_suppressions
from handfast_lint.syntax import faults
from handfast_lint.versions import DEFAULT, Servers, parse_oldest

__all__ = ["RULES", "Finding", "Servers", "Severity", "check", "parse_oldest"]


__version__ = "0.1.0"

FIXED = ("syntax", "header", "allow")
"""Rules that a comment cannot suppress."""


def check(source: str, *, name: str = "script", oldest: Servers = DEFAULT) -> list[Finding]:
    """Find mistakes in a script.

    Args:
        source: The Lua source.
        name: What the findings call it, such as the name of its file.
        oldest: The oldest server of each kind that it must run on, as `parse_oldest` returns it; by default Redis 6.2
            and Valkey 7.2. A NEEDS line in the header of the script takes precedence.

    Returns:
        The findings, in the order of the lines.

    """
    try:
        parsed = parse(source)
    except UnicodeEncodeError as fault:
        line = source.count("\n", 0, fault.start) + 1
        return [Finding(name, line, 1, "syntax", "error", "this is not valid Unicode: save the file as UTF-8")]
    lines = source.split("\n")
    if broken := faults(parsed, source):
        return sorted(Finding(name, *place_of(fault.raw, lines), "syntax", "error", fault.message) for fault in broken)
    try:
        header = read_header(source)
    except HeaderError as fault:
        return [Finding(name, fault.line, 1, "header", "error", str(fault))]
    try:
        tree = build(parsed, source)
        script = CheckedScript(name, source, header, tree, oldest)
        if (too_much := crowded(script.scopes)) is not None:
            return [script.finding("syntax", *too_much)]
        found = {finding for family in FAMILIES for finding in family.check(script)}
    except RecursionError:
        return [
            Finding(
                name, 1, 1, "syntax", "warning", "this is nested too deeply to be checked: split its longest expression"
            )
        ]
    return sorted(apply_suppressions(name, source, sorted(found), tree, [rule for rule in RULES if rule not in FIXED]))


name_publicly(globals())
