"""Comments that suppress findings: ``-- @allow <rule>: <reason>``.

At the end of a line it applies to the statement on that line; alone on a line, to the next statement; in the comment at
the top, to the whole script. A comment without a reason, with an unknown rule, or that suppresses nothing is an error
itself, so none outlives its purpose.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from handfast_lint.findings import Finding
from handfast_lint.parsing import Comment, Node, Tree

__all__ = ["RULE", "apply_suppressions"]

RULE = "allow"
LAST_LINE = 1 << 31
"""Greater than any line number."""

_ALLOW = re.compile(r"--\s*@allow\b:?\s*([\w-]*)\s*:?\s*(.*)")


@dataclass(frozen=True, slots=True)
class Suppression:
    """A comment that suppresses a rule, and the lines to which it applies."""

    comment: Comment
    rule: str
    reason: str
    lines: Container[int]


def apply_suppressions(
    name: str, source: str, findings: list[Finding], tree: Tree, rules: list[str]
) -> Iterator[Finding]:
    """Yield the findings that are not suppressed, and the errors of suppression comments."""
    used: set[Comment] = set()
    suppressions = list(_suppressions(tree, _header_end(source)))
    for finding in findings:
        suppressing = [
            one for one in suppressions if one.rule == finding.rule and finding.line in one.lines and one.reason
        ]
        used.update(one.comment for one in suppressing)
        if not suppressing:
            yield finding
    for one in suppressions:
        if message := _fault(one, rules, used=one.comment in used):
            yield Finding(name, one.comment.line, one.comment.column, RULE, "error", message)


def _fault(one: Suppression, rules: list[str], *, used: bool) -> str:
    if not one.rule:
        return "this comment names no rule: write -- @allow <rule>: <reason>"
    if one.rule not in rules:
        close = get_close_matches(one.rule, rules, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the rules are {', '.join(rules)}"
        return f"there is no rule {one.rule!r} to allow: {hint}"
    if not one.reason:
        return f"this comment gives no reason: write -- @allow {one.rule}: <reason>"
    if not used:
        return f"this comment suppresses nothing: remove it, or move it to the line with the {one.rule!r} finding"
    return ""


def _header_end(source: str) -> int:
    """Return the first line after the comment at the top, as `handfast._engine.header` reads it."""
    begun = False
    for number, line in enumerate(source.split("\n"), 1):
        text = line.strip()
        if text.startswith("--"):
            begun = True
        elif begun or (text and not (number == 1 and text.startswith("#!"))):
            return number
    return LAST_LINE


def _suppressions(tree: Tree, header_end: int) -> Iterator[Suppression]:
    comments = {comment.line for comment in tree.comments if comment.alone}
    statements = [node for node in tree.block.walk() if node.parent is not None and node.parent.kind == "block"]
    for comment in tree.comments:
        if match := _ALLOW.match(comment.text):
            everywhere = comment.alone and comment.line < header_end
            lines = range(1, LAST_LINE) if everywhere else _lines(comment, statements, comments)
            yield Suppression(comment, match[1], match[2], lines)


def _lines(comment: Comment, statements: list[Node], comments: Container[int]) -> Container[int]:
    """Return the lines to which a comment within the code applies."""
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
