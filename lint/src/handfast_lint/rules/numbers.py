"""Strings used as numbers, and numbers converted to strings.

ARGV and most replies are strings. Lua converts a string in arithmetic, and fails if it is not a number; it refuses to
compare a string with a number, and compares two strings character by character, so that '10' is less than '9'. In the
other direction it writes 14 digits only, and a time in microseconds has 16.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast_lint.findings import Finding
from handfast_lint.parsing import Node
from handfast_lint.script import CheckedScript
from handfast_lint.values import ARITHMETIC, TOO_LARGE, Values

__all__ = ["RULES", "check"]

RULES = {
    "text-as-number": "Values from outside are converted with tonumber before comparisons and arithmetic.",
    "number-as-text": "Numbers with many digits or a fraction are converted to strings with string.format.",
}

ORDERING = ("<", ">", "<=", ">=")
EQUALITY = ("==", "~=")


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check each operator and each call."""
    values = Values(script)
    for node in script.nodes:
        if node.kind == "binary":
            yield from _operator(script, values, node)
        elif node.kind == "unary" and node.word == "-":
            yield from _calculated(script, values, node.one("operand"))
        elif node.kind == "call":
            yield from _call(script, values, node)


def _operator(script: CheckedScript, values: Values, node: Node) -> Iterator[Finding]:
    sides = [node.one("left"), node.one("right")]
    if node.word in ORDERING:
        yield from _ordered(script, values, node, sides)
    elif node.word in EQUALITY:
        for one, other in (sides, sides[::-1]):
            if values.is_text(one) and values.is_number(other):
                answer = "never" if node.word == "==" else "always"
                yield script.finding(
                    "text-as-number",
                    one,
                    f"{_shown(one)} is a string, and {node.word} with a number is {answer} true: "
                    f"write tonumber({_shown(one)})",
                )
    elif node.word in ARITHMETIC:
        for side in sides:
            yield from _calculated(script, values, side)
    elif node.word == "..":
        for side in sides:
            yield from _joined(script, values, side)


def _ordered(script: CheckedScript, values: Values, node: Node, sides: list[Node]) -> Iterator[Finding]:
    texts = [side for side in sides if values.is_text(side)]
    if any(side.kind == "string" and not side.word.isdecimal() for side in sides):
        return  # the order of strings is intended
    if len(texts) == 1 and any(values.is_number(side) for side in sides):
        yield script.finding(
            "text-as-number",
            texts[0],
            f"{_shown(texts[0])} is a string, and {node.word} with a number fails: write tonumber({_shown(texts[0])})",
        )
    elif texts:
        yield script.finding(
            "text-as-number",
            texts[0],
            f"{_shown(texts[0])} is a string, and {node.word} compares strings by character, '10' before '9': "
            "write tonumber(...) on both sides",
            "warning",
        )


def _calculated(script: CheckedScript, values: Values, node: Node) -> Iterator[Finding]:
    if values.is_text(node) and values.from_argument(node):
        yield script.finding(
            "text-as-number",
            node,
            f"{_shown(node)} is a string: Lua converts it in arithmetic, but not in comparisons; write tonumber(...) "
            "once, where it is assigned",
            "warning",
        )


def _call(script: CheckedScript, values: Values, call: Node) -> Iterator[Finding]:
    called, arguments = script.flow.called(call), call.many("arguments")
    if called.startswith("math.") and called != "math.randomseed":
        for argument in arguments:
            yield from _calculated(script, values, argument)
    elif called == "tostring" and arguments:
        yield from _joined(script, values, arguments[0])
    elif called in ("table.concat", "cjson.encode") and arguments and arguments[0].kind == "table":
        for item in arguments[0].many("items"):
            yield from _joined(script, values, item.one("value"))
    elif called == "string.format":
        yield from _formatted(script, values, call)


def _formatted(script: CheckedScript, values: Values, call: Node) -> Iterator[Finding]:
    """Check %s, which writes a number as tostring does."""
    callee, arguments = call.one("callee"), call.many("arguments")
    form = callee.one("base") if callee.kind == "method" else arguments[0] if arguments else None
    if form is None or form.kind != "string":
        return
    letters = [part.lstrip("0123456789.-+ #")[:1] for part in form.word.replace("%%", "").split("%")[1:]]
    given = arguments if callee.kind == "method" else arguments[1:]
    for letter, argument in zip(letters, given, strict=False):
        if letter == "s":
            yield from _joined(script, values, argument)


def _joined(script: CheckedScript, values: Values, node: Node) -> Iterator[Finding]:
    size = values.size(node)
    shown = _shown(node)
    if size is not None and size >= TOO_LARGE and not values.is_text(node):
        yield script.finding(
            "number-as-text",
            node,
            f"{shown} has more than the 14 digits that Lua writes, so the last ones are lost: "
            f"write string.format('%.0f', {shown})",
        )
    elif values.is_cut(node) or (values.has_fraction(node) and node.kind != "number"):
        yield script.finding(
            "number-as-text",
            node,
            f"{shown} may have a fraction, and Lua writes 14 digits of it: say how many, "
            f"string.format('%.3f', {shown}), or %.17g for all",
            "warning",
        )


def _shown(node: Node) -> str:
    text = " ".join(node.text.split())
    return text if len(text) <= 40 else "(...)"
