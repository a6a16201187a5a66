"""Texts that are taken for numbers, and numbers that are made texts.

Everything that comes from outside is a text, ARGV as well as most replies. Lua calculates with such a text, and fails where
it is no number; it does not compare one with a number, and compares two of them letter by letter, where '10' is less than
'9'. The other way round it writes 14 digits only, and a time in microseconds has 16.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast.lint.findings import Finding
from handfast.lint.parsing import Node
from handfast.lint.script import Body
from handfast.lint.values import ARITHMETIC, TOO_LARGE, Values

__all__ = ["RULES", "check"]

RULES = {
    "text-as-number": "What comes from outside goes through tonumber before it is compared or calculated with.",
    "number-as-text": "A number with many digits or a fraction becomes a text by string.format.",
}

ORDERING = ("<", ">", "<=", ">=")
EQUALITY = ("==", "~=")


def check(body: Body) -> Iterator[Finding]:
    """Each operator and each call."""
    values = Values(body)
    for node in body.nodes:
        if node.kind == "binary":
            yield from _operator(body, values, node)
        elif node.kind == "unary" and node.word == "-":
            yield from _calculated(body, values, node.one("operand"))
        elif node.kind == "call":
            yield from _call(body, values, node)


def _operator(body: Body, values: Values, node: Node) -> Iterator[Finding]:
    sides = [node.one("left"), node.one("right")]
    if node.word in ORDERING:
        yield from _ordered(body, values, node, sides)
    elif node.word in EQUALITY:
        for one, other in (sides, sides[::-1]):
            if values.is_text(one) and values.is_number(other):
                answer = "never" if node.word == "==" else "always"
                yield body.finding(
                    "text-as-number",
                    one,
                    f"{_shown(one)} is a text, and {node.word} with a number is {answer} true: "
                    f"write tonumber({_shown(one)})",
                )
    elif node.word in ARITHMETIC:
        for side in sides:
            yield from _calculated(body, values, side)
    elif node.word == "..":
        for side in sides:
            yield from _joined(body, values, side)


def _ordered(body: Body, values: Values, node: Node, sides: list[Node]) -> Iterator[Finding]:
    texts = [side for side in sides if values.is_text(side)]
    if any(side.kind == "string" and not side.word.isdecimal() for side in sides):
        return  # letter by letter is what is meant
    if len(texts) == 1 and any(values.is_number(side) for side in sides):
        yield body.finding(
            "text-as-number",
            texts[0],
            f"{_shown(texts[0])} is a text, and {node.word} with a number fails: write tonumber({_shown(texts[0])})",
        )
    elif texts:
        yield body.finding(
            "text-as-number",
            texts[0],
            f"{_shown(texts[0])} is a text, and {node.word} compares texts letter by letter, '10' before '9': "
            "write tonumber(...) on both sides",
            "warning",
        )


def _calculated(body: Body, values: Values, node: Node) -> Iterator[Finding]:
    if values.is_text(node) and values.from_argument(node):
        yield body.finding(
            "text-as-number",
            node,
            f"{_shown(node)} is a text: Lua calculates with it, but compares it letter by letter; write tonumber(...) "
            "once, where it gets its name",
            "warning",
        )


def _call(body: Body, values: Values, call: Node) -> Iterator[Finding]:
    called, arguments = body.flow.called(call), call.many("arguments")
    if called.startswith("math.") and called != "math.randomseed":
        for argument in arguments:
            yield from _calculated(body, values, argument)
    elif called == "tostring" and arguments:
        yield from _joined(body, values, arguments[0])
    elif called in ("table.concat", "cjson.encode") and arguments and arguments[0].kind == "table":
        for item in arguments[0].many("items"):
            yield from _joined(body, values, item.one("value"))
    elif called == "string.format":
        yield from _formatted(body, values, call)


def _formatted(body: Body, values: Values, call: Node) -> Iterator[Finding]:
    """A %s is no format for a number: it writes what tostring does."""
    callee, arguments = call.one("callee"), call.many("arguments")
    form = callee.one("base") if callee.kind == "method" else arguments[0] if arguments else None
    if form is None or form.kind != "string":
        return
    letters = [part.lstrip("0123456789.-+ #")[:1] for part in form.word.replace("%%", "").split("%")[1:]]
    given = arguments if callee.kind == "method" else arguments[1:]
    for letter, argument in zip(letters, given, strict=False):
        if letter == "s":
            yield from _joined(body, values, argument)


def _joined(body: Body, values: Values, node: Node) -> Iterator[Finding]:
    size = values.size(node)
    shown = _shown(node)
    if size is not None and size >= TOO_LARGE and not values.is_text(node):
        yield body.finding(
            "number-as-text",
            node,
            f"{shown} has more than the 14 digits that Lua writes, so the last ones get lost: "
            f"write string.format('%.0f', {shown})",
        )
    elif values.has_fraction(node) and node.kind != "number":
        yield body.finding(
            "number-as-text",
            node,
            f"{shown} may have a fraction, and Lua writes 14 digits of it: say how many, "
            f"string.format('%.3f', {shown}), or %.17g for all",
            "warning",
        )


def _shown(node: Node) -> str:
    text = " ".join(node.text.split())
    return text if len(text) <= 40 else "(...)"
