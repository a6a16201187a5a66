"""The linter of scripts: what is wrong with a Lua script, before a server finds out.

    for finding in check(Path("take.lua").read_text(), name="take.lua"):
        print(finding)

It works in steps, a file each:

    parsing     Lua text becomes a tree, by the parser of the extra ``lint``
    syntax      what the servers' Lua 5.1 does not take; the rest is left out then
    scopes      which variable a name means, and who calls which function
    flow        where a value comes from: through variables, tables and calls
    values      whether a value is a text, how large a number gets
    body        all of that about one script, for the rules
    rules/      the rules themselves, one family a file
    allowing    what the author allows, ``-- @allow <rule>: <reason>``

`commands` and `versions` are tables of what the servers have, and `asking` ends circles. Nothing is run and no server is
asked. A rule that cannot tell keeps quiet: a false alarm is a fault of the linter's.
"""

from __future__ import annotations

from handfast._engine.header import HeaderError, read_header
from handfast.lint.findings import Finding, Severity
from handfast.lint.parsing import ParserMissing, build, parse, place_of
from handfast.lint.rules import FAMILIES, RULES
from handfast.lint.script import Body
from handfast.lint.suppressions import sift
from handfast.lint.syntax import faults
from handfast.lint.versions import DEFAULT, Servers, parse_oldest

__all__ = ["RULES", "Finding", "ParserMissing", "Servers", "Severity", "check", "parse_oldest"]

FIXED = ("syntax", "header", "allow")
"""Rules that nobody can allow to be broken."""


def check(source: str, *, name: str = "script", oldest: Servers = DEFAULT) -> list[Finding]:
    """What is wrong with a script, in the order of its lines.

    ``oldest`` is the oldest server of each kind that it is to run on, as `parse_oldest` reads it; what the header NEEDS goes
    before. Raises ParserMissing where the extra ``lint`` is not installed.
    """
    parsed = parse(source)
    lines = source.split("\n")
    if broken := faults(parsed, source):
        return sorted(Finding(name, *place_of(fault.raw, lines), "syntax", "error", fault.message) for fault in broken)
    try:
        header = read_header(source)
    except HeaderError as fault:
        return [Finding(name, fault.line, 1, "header", "error", str(fault))]
    try:
        tree = build(parsed, source)
        body = Body(name, source, header, tree, oldest)
        found = {finding for family in FAMILIES for finding in family.check(body)}
    except RecursionError:
        return [
            Finding(
                name, 1, 1, "syntax", "warning", "this is nested too deeply to be checked: split its longest expression"
            )
        ]
    return sorted(sift(name, source, sorted(found), tree, [rule for rule in RULES if rule not in FIXED]))
