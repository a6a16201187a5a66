"""What a script's author allows: ``-- @allow <rule>: <reason>``.

At the end of a line it holds for the statement of that line, alone on a line for the one below, and in the comment that
the script begins with for all of it. One that has no reason, names no rule or silences nothing is itself an error, so that
none outlives what it was written for.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from handfast.lint.findings import Finding
from handfast.lint.parsing import Comment, Node, Tree

__all__ = ["RULE", "sift"]

RULE = "allow"
FAR = 1 << 31
"""A line behind every other."""

_ALLOW = re.compile(r"--\s*@allow\b:?\s*([\w-]*)\s*:?\s*(.*)")


@dataclass(frozen=True, slots=True)
class Allowance:
    """A comment that allows something, and the lines that it speaks of."""

    comment: Comment
    rule: str
    reason: str
    lines: Container[int]


def sift(name: str, source: str, findings: list[Finding], tree: Tree, rules: list[str]) -> Iterator[Finding]:
    """The findings that nobody has allowed, and what is wrong with the comments that allow some."""
    used: set[Comment] = set()
    allowances = list(_allowances(tree, _header_end(source)))
    for finding in findings:
        allowing = [one for one in allowances if one.rule == finding.rule and finding.line in one.lines and one.reason]
        used.update(one.comment for one in allowing)
        if not allowing:
            yield finding
    for one in allowances:
        if message := _fault(one, rules, used=one.comment in used):
            yield Finding(name, one.comment.line, one.comment.column, RULE, "error", message)


def _fault(one: Allowance, rules: list[str], *, used: bool) -> str:
    if not one.rule:
        return "this allows nothing: write -- @allow <rule>: <reason>"
    if one.rule not in rules:
        close = get_close_matches(one.rule, rules, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the rules are {', '.join(rules)}"
        return f"there is no rule {one.rule!r} to allow: {hint}"
    if not one.reason:
        return f"this does not say why: write -- @allow {one.rule}: <reason>"
    if not used:
        return f"nothing here is silenced by this: take it away, or move it to the line that {one.rule!r} is about"
    return ""


def _header_end(source: str) -> int:
    """The first line behind the comment that the script begins with, as `handfast._engine.header` takes it."""
    begun = False
    for number, line in enumerate(source.split("\n"), 1):
        text = line.strip()
        if text.startswith("--"):
            begun = True
        elif begun or (text and not (number == 1 and text.startswith("#!"))):
            return number
    return FAR


def _allowances(tree: Tree, header_end: int) -> Iterator[Allowance]:
    comments = {comment.line for comment in tree.comments if comment.alone}
    statements = [node for node in tree.block.walk() if node.parent is not None and node.parent.kind == "block"]
    for comment in tree.comments:
        if match := _ALLOW.match(comment.text):
            everywhere = comment.alone and comment.line < header_end
            lines = range(1, FAR) if everywhere else _lines(comment, statements, comments)
            yield Allowance(comment, match[1], match[2], lines)


def _lines(comment: Comment, statements: list[Node], comments: Container[int]) -> Container[int]:
    """Which lines a comment within the code speaks of."""
    line = comment.line
    while comment.alone and line in comments:
        line += 1
    covered = {line}
    for statement in statements:
        if statement.line <= line <= statement.last_line and not _holds_blocks(statement):
            covered.update(range(statement.line, statement.last_line + 1))
    return covered


def _holds_blocks(statement: Node) -> bool:
    return any(node.kind == "block" for node in statement.walk())
