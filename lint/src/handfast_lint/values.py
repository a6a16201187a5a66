"""Properties of values: whether one is a string or a number, how large a number gets, and whether it has a fraction.

All three answer yes only if the script leaves little doubt. Lua converts between strings and numbers implicitly, and
the rules on numbers report where that goes wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from handfast_lint.commands import INTEGER_REPLIES, TEXT_REPLIES
from handfast_lint.flow import Origin
from handfast_lint.memo import Memo
from handfast_lint.parsing import Node
from handfast_lint.scopes import Variable
from handfast_lint.script import CheckedScript

__all__ = ["TOO_LARGE", "Values"]

TOO_LARGE = 1e14
"""From here on Lua's implicit conversion of numbers to strings loses digits: it writes 14, and an exponent."""

NOW_S = 1.7e9
"""The time in seconds since 1970, roughly."""

ARITHMETIC = ("+", "-", "*", "/", "%", "^")
WHOLE = ("math.floor", "math.ceil")
FRACTIONAL = ("math.sqrt", "math.exp", "math.log", "math.log10", "math.sin", "math.cos", "math.tan", "math.pi")
FLOAT_REPLIES = frozenset({"INCRBYFLOAT", "HINCRBYFLOAT"})
TEXTS = (
    "tostring",
    "table.concat",
    *(f"string.{name}" for name in ("format", "lower", "match", "rep", "sub", "upper")),
)


_SIZED = ("tonumber", "math.floor", "math.ceil", "math.abs", "math.max", "math.min", "math.pow", "math.ldexp")
"""Functions whose result is as large as their arguments make it."""

DIGITS = 14
"""Digits that Lua writes of a number."""


class Values:
    """Properties of the values of one script."""

    def __init__(self, script: CheckedScript) -> None:
        self._script = script
        self._flow = script.flow
        self._memo = Memo().get
        for statement in script.nodes:  # in the order of the source, so that questions do not nest deeply
            # The target of an assignment comes first: the answers for all assigned values then use the target's.
            for value in (*statement.many("names"), *statement.many("targets"), *statement.many("values")):
                for know in (self.is_text, self.size, self.has_fraction):
                    know(value)

    def _meant(self, node: Node) -> Node | Variable:
        """Return the variable that a name means, which has the same answers wherever it is read; else the node."""
        return self._script.scopes.variable(node) or node

    # Strings and numbers.

    def is_text(self, node: Node) -> bool:
        """Return whether a value is a string from outside, or may be one if it has a default."""
        return self._memo(("text", self._meant(node)), lambda: self._is_text(node), otherwise=False)

    def _is_text(self, node: Node) -> bool:
        match node.kind:
            case "binary" if node.word == "or":
                return self.is_text(node.one("left")) or self.is_text(node.one("right"))
            case "binary" if node.word == "and":
                return self.is_text(node.one("right"))
            case "name" if variable := self._script.scopes.variable(node):
                sources = [giving for giving in variable.given if giving.how != "nothing"]
                if len(sources) == 1 and sources[0].how == "value" and sources[0].index == 0:
                    return self.is_text(sources[0].node)
        return self._all(node, self._is_text_from)

    def _is_text_from(self, origin: Origin) -> bool:
        if origin.kind == "value":
            return self._flow.called(origin.node) in TEXTS or self._replies(origin.node, TEXT_REPLIES["one"])
        if origin.kind == "item":
            return self._replies(origin.node, TEXT_REPLIES["items"])
        return origin.kind in ("key", "argument")

    def from_argument(self, node: Node) -> bool:
        """Return whether any of its sources is one of ARGV."""
        return any(origin.kind == "argument" for origin in self._flow.origins(node))

    def is_number(self, node: Node) -> bool:
        """Return whether it is a number in any case."""
        return self._all(node, self._is_number_from)

    def _is_number_from(self, origin: Origin) -> bool:
        node = origin.node
        if origin.kind != "value":
            return False
        if node.kind == "number" or (node.kind == "binary" and node.word in ARITHMETIC):
            return True
        if node.kind == "unary":
            return node.word in ("-", "#")
        called = self._flow.called(node)
        return called == "tonumber" or called.startswith("math.") or self._replies(node, INTEGER_REPLIES)

    def _all(self, node: Node, holds: Callable[[Origin], bool]) -> bool:
        origins = self._flow.origins(node)
        return bool(origins) and all(map(holds, origins))

    def _replies(self, call: Node, names: frozenset[str]) -> bool:
        sent = self._script.sent_by(call)
        return bool(sent) and all(command.name in names for command in sent)

    # How large.

    def size(self, node: Node) -> float | None:
        """Return how large a number gets, as far as known; None if nothing is known."""
        return self._memo(("size", self._meant(node)), lambda: self._size(node), otherwise=None)

    def _size(self, node: Node) -> float | None:
        match node.kind:
            case "number":
                return abs(_value(node))
            case "unary" if node.word == "-":
                return self.size(node.one("operand"))
            case "binary" if node.word in ARITHMETIC:
                return _combined(node.word, self.size(node.one("left")), self.size(node.one("right")))
            case "call" if node.many("arguments") and self._flow.called(node) in _SIZED:
                return self._size_of_call(self._flow.called(node), node.many("arguments"))
        origins = self._flow.origins(node)
        return _largest(self._size_from(origin, node) for origin in origins)

    def _size_of_call(self, called: str, arguments: list[Node]) -> float | None:
        sizes = [self._size_of_text(one) if called == "tonumber" else self.size(one) for one in arguments]
        if called in ("math.pow", "math.ldexp") and len(sizes) == 2:
            return _power(*sizes) if called == "math.pow" else _combined("*", sizes[0], _power(2, sizes[1]))
        if called == "math.min":
            return min((size for size in sizes if size is not None), default=None)
        return _largest(sizes)

    def _size_of_text(self, node: Node) -> float | None:
        """Return how large a number gets that may be given as a text."""
        if node.kind != "string":
            return self.size(node)
        try:
            return abs(_number(node.word.strip()))
        except ValueError:
            return None

    def _size_from(self, origin: Origin, asked: Node) -> float | None:
        if origin.kind == "item" and self._replies(origin.node, frozenset({"TIME"})):
            return NOW_S
        return self.size(origin.node) if origin.kind == "value" and origin.node is not asked else None

    def is_cut(self, node: Node) -> bool:
        """Return whether it is a number with a fraction that Lua writes with fewer digits."""
        return node.kind == "number" and float(f"{_value(node):.{DIGITS}g}") != _value(node)

    # Fractions.

    def has_fraction(self, node: Node) -> bool:
        """Return whether it is a number that is not whole for some inputs."""
        return self._memo(("fraction", self._meant(node)), lambda: self._has_fraction(node), otherwise=False)

    def _has_fraction(self, node: Node) -> bool:  # noqa: PLR0911 -- one for each kind of node
        match node.kind:
            case "number":
                value = _value(node)
                return math.isfinite(value) and not value.is_integer()
            case "unary" if node.word == "-":
                return self.has_fraction(node.one("operand"))
            case "index" if self._flow.path(node) in FRACTIONAL:
                return True
            case "binary" if node.word == "/":
                return not self._divides_evenly(node)
            case "binary" if node.word == "-" and _takes_fraction_off(node):
                return False
            case "binary" if node.word in ("+", "-", "*", "%"):
                return self.has_fraction(node.one("left")) or self.has_fraction(node.one("right"))
            case "call":
                return self._call_has_fraction(node)
        origins = self._flow.origins(node)
        return any(
            origin.kind == "value" and origin.node is not node and self.has_fraction(origin.node) for origin in origins
        )

    def _call_has_fraction(self, call: Node) -> bool:
        called, arguments = self._flow.called(call), call.many("arguments")
        if called in FRACTIONAL or (called == "math.random" and not arguments):
            return True
        if called in ("tonumber", "math.abs", "math.max", "math.min"):
            return any(map(self._is_float_or_has_fraction, arguments))
        return self._all(call, lambda origin: origin.node is not call and self.has_fraction(origin.node))

    def _is_float_or_has_fraction(self, node: Node) -> bool:
        return self.has_fraction(node) or self._all(node, lambda origin: self._replies(origin.node, FLOAT_REPLIES))

    def _divides_evenly(self, node: Node) -> bool:
        """Return whether a quotient is whole: of two constants, or of the length of a table, which then holds pairs."""
        left, right = node.one("left"), node.one("right")
        if left.kind == "number" and right.kind == "number" and _value(right):
            return (_value(left) / _value(right)).is_integer()
        return left.kind == "unary" and left.word == "#" and right.kind == "number"


def _combined(operator: str, left: float | None, right: float | None) -> float | None:
    """Return how large a result is. An unknown operand counts as 0 in a sum, and makes other results unknown."""
    if operator == "+":
        return _largest([left, right]) and (left or 0) + (right or 0)
    if operator == "%":
        return right
    if left is None or right is None:
        return None
    results = {
        "-": left if left > 2 * right else max(0.0, left - right),
        "*": left * right,
        "/": left / right if right else None,
    }
    return _power(left, right) if operator == "^" else results.get(operator)


def _power(base: float | None, exponent: float | None) -> float | None:
    if base is None or exponent is None:
        return None
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _largest(sizes: Iterable[float | None]) -> float | None:
    return max((size for size in sizes if size is not None), default=None)


def _value(node: Node) -> float:
    return _number(node.word)


def _number(text: str) -> float:
    """Read a number as Lua does. Raises ValueError."""
    try:
        return float(int(text, 16)) if text[:2].lower() == "0x" else float(text)
    except ValueError:
        return float.fromhex(text)


def _takes_fraction_off(node: Node) -> bool:
    """Return whether it is ``x - x % 1``, which is whole."""
    right = node.one("right")
    return right.kind == "binary" and right.word == "%" and right.one("right").word == "1"
