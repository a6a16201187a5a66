"""Data flow: the sources of a value, through variables, tables, parameters and the script's own functions.

The result is every source that a value may have anywhere in the script, regardless of the order of its lines. A source
that cannot be determined is unknown, and the rules ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from handfast_lint.memo import Memo
from handfast_lint.parsing import Node
from handfast_lint.scopes import Function, Giving, Scopes, Variable, values_at

__all__ = ["CALLS", "Flow", "Origin"]

CALLS = tuple(f"{table}.{name}" for table in ("redis", "server") for name in ("call", "pcall"))
"""Functions that send a command."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One source of a value.

    key, argument   ``node`` is KEYS[n] or ARGV[n], or an expression of all of them, such as unpack(KEYS)
    value           the value of the expression ``node``
    item            an item of the table that is the value of ``node``, such as a reply with several parts
    unknown         anything
    """

    kind: Literal["key", "argument", "value", "item", "unknown"]
    node: Node
    site: Node | None = None
    """If it came through a parameter: the argument at the call."""


Follow = Callable[[Node, int], list[Origin]]


class Flow:
    """The sources of every value of a script."""

    def __init__(self, block: Node, scopes: Scopes) -> None:
        self._scopes = scopes
        self._memo = Memo().get
        for call in block.walk():
            if call.kind == "call" and self.path(call.one("callee")) == "table.insert" and call.many("arguments"):
                table, *rest = call.many("arguments")
                if rest and (variable := scopes.variable(table)):
                    variable.items.append((None, rest[-1]))
        for variable in scopes.variables:
            self._of(variable)

    def path(self, node: Node) -> str:
        """Return the global path that a node means, such as ``redis.call``, also under a local name; "" for anything else."""
        if node.kind == "index" and node.one("key").kind == "string":
            base = self.path(node.one("base"))
            return f"{base}.{node.one('key').word}" if base else ""
        if node.kind == "method":  # ('%d'):format(x) is string.format('%d', x)
            return f"string.{node.word}" if self._is_text(node.one("base")) else ""
        if node.kind != "name":
            return ""
        variable = self._scopes.variable(node)
        if variable is None:
            return node.word
        if len(variable.given) == 1 and variable.given[0].how == "value" and variable.given[0].index == 0:
            value = variable.given[0].node
            return self.path(value) if value.kind in ("name", "index") else ""
        return ""

    def called(self, node: Node) -> str:
        """Return the `path` of the function that a call calls; "" if the node is not a call."""
        return self.path(node.one("callee")) if node.kind == "call" else ""

    def constants(self, node: Node) -> frozenset[str] | None:
        """Return the strings that a value may be; None if it may be anything else."""
        found = self.origins(node)
        if not found or any(origin.kind != "value" or origin.node.kind != "string" for origin in found):
            return None
        return frozenset(origin.node.word for origin in found)

    def made_of(self, node: Node) -> Iterator[Node]:
        """Yield all nodes that the value of an expression depends on, also through variables."""
        waiting, seen = [node], set()
        while waiting:
            for part in waiting.pop().walk():
                yield part
                variable = self._scopes.variable(part)
                if variable is not None and variable not in seen:
                    seen.add(variable)
                    waiting += [giving.node for giving in variable.given if giving.how in ("value", "item")]

    def origins(self, node: Node) -> list[Origin]:  # noqa: PLR0911 -- one for each kind of node
        """Return all sources of the value of an expression; an empty list if it is always nil."""
        match node.kind:
            case "name":
                variable = self._scopes.variable(node)
                return self._of(variable) if variable else [Origin("unknown", node)]
            case "index":
                return self.items(node.one("base"), node.one("key"), node)
            case "binary" if node.word in ("and", "or"):
                return self._each(self.origins(side) for side in _sides(node))
            case "call":
                return self._of_call(node, 0)
            case "nil" | "false":
                return []
            case "vararg":
                return [Origin("unknown", node)]
            case _:
                return [Origin("value", node)]

    def items(self, table: Node, key: Node | None, at: Node | None = None) -> list[Origin]:
        """Return all sources of a table's items, or of one item if the key is constant.

        ``at`` is where they are read.
        """
        at = at or table
        match table.kind:
            case "name":
                variable = self._scopes.variable(table)
                return self._items_of(variable, key, at) if variable else [_passed(table, at)]
            case "table":
                return self._items_made(table, key)
            case "binary" if table.word in ("and", "or"):
                return self._each(self.items(side, key, at) for side in _sides(table))
            case "call" if function := self._scopes.function_of(table.one("callee")):
                return self._returned(function, 0, lambda value, _: self.items(value, key, at), _constant(key), at)
            case "index":
                return self._items_of_items(table, key)
            case _:
                return [Origin("item" if table.kind == "call" else "unknown", table)]

    def _of(self, variable: Variable) -> list[Origin]:
        return self._memo(("value", variable), lambda: self._each(map(self._given, variable.given)), [])

    def _given(self, giving: Giving) -> list[Origin]:
        match giving.how:
            case "value":
                return self._one_of_several(giving.node, giving.index)
            case "nothing":
                return []
            case "counter":
                return [Origin("value", giving.node.many("range")[0])]
            case "item":
                return self._looped(giving)
            case _:
                return self._passed_in(giving, self._one_of_several)

    def _looped(self, giving: Giving) -> list[Origin]:
        """Return the values of a loop variable: for ipairs and pairs, the items of a table."""
        values = giving.node.many("values")
        if (
            values
            and giving.index == 1
            and self.called(values[0]) in ("ipairs", "pairs")
            and values[0].many("arguments")
        ):
            return self.items(values[0].many("arguments")[0], None)
        return [Origin("unknown", giving.node)]

    def _passed_in(self, giving: Giving, follow: Follow) -> list[Origin]:
        """Return the arguments for a parameter in all calls of its function."""
        function = self._scopes.functions[giving.node]
        if not function.known:
            return [Origin("unknown", giving.node)]
        given = [values_at(arguments, giving.index) for arguments in function.calls]
        return self._each(
            [origin if origin.site else replace(origin, site=value[0]) for origin in follow(*value)]
            for value in given
            if value
        )

    def _of_call(self, call: Node, index: int) -> list[Origin]:
        """Return the sources of one of the values that a call returns."""
        first = next(iter(call.many("arguments")), None)
        called = self.called(call)
        if first is not None and called in ("unpack", "table.remove"):
            return self.items(first, None, call)
        if first is not None and called == "assert":
            return self.origins(call.many("arguments")[min(index, len(call.many("arguments")) - 1)])
        if first is not None and called == "select" and first.word != "#":
            return self._one_of_several(call.many("arguments")[-1], 1)
        if first is not None and called == "tostring":
            found = self.origins(first)  # a string does not change
            return found if all(origin.kind in ("key", "argument") for origin in found) else [Origin("value", call)]
        if function := self._scopes.function_of(call.one("callee")):
            return self._returned(function, index, self._one_of_several, index)
        return [Origin("value" if index == 0 else "unknown", call)]

    def _one_of_several(self, node: Node, index: int) -> list[Origin]:
        return self._of_call(node, index) if node.kind == "call" else self.origins(node)

    def _returned(self, function: Function, index: int, follow: Follow, *what: object) -> list[Origin]:
        def every() -> list[Origin]:
            given = [values_at(node.many("values"), index) for node in function.returns()]
            return self._each(follow(*value) for value in given if value)

        return self._memo(("return", function, *what), every, [])

    def _items_of(self, variable: Variable, key: Node | None, at: Node) -> list[Origin]:
        def every() -> list[Origin]:
            found: list[Origin] = []
            for giving in variable.given:
                if giving.how == "value":
                    found += self.items(giving.node, key, at)
                elif giving.how == "parameter":
                    found += self._passed_in(giving, lambda value, _: self.items(value, key))
                elif giving.how == "item":
                    found.append(Origin("unknown", at))
            return self._each([found, *(self.origins(value) for place, value in variable.items if _may_be(place, key))])

        return self._memo(("items", variable, _constant(key), at), every, []) or [Origin("unknown", at)]

    def _items_made(self, table: Node, key: Node | None) -> list[Origin]:
        """Return the sources of the item at that key in a table constructor; of all items if the key is not constant."""
        found: list[list[Origin]] = []
        place = 0
        for item in table.many("items"):
            if item.many("key"):
                fits = _may_be(item.one("key"), key)
            else:
                place += 1
                several = item.one("value").kind in ("call", "vararg") and item is table.many("items")[-1]
                wanted = _constant(key)
                fits = wanted is None or wanted == ("number", str(place)) or (several and wanted[0] == "number")
            if fits:
                found.append(self.origins(item.one("value")))
        return self._each(found)

    def _items_of_items(self, table: Node, key: Node | None) -> list[Origin]:
        inner = self.items(table.one("base"), table.one("key"))
        if inner and all(origin.kind == "value" and origin.node.kind == "table" for origin in inner):
            return self._each(self.items(origin.node, key) for origin in inner)
        known = [Origin("item", origin.node) for origin in inner if origin.kind != "unknown"]
        return known or [Origin("unknown", table)]

    def _is_text(self, node: Node) -> bool:
        return node.kind == "string" or self.called(node).startswith("string.")

    def _each(self, found: Iterable[list[Origin]]) -> list[Origin]:
        return list(dict.fromkeys(origin for origins in found for origin in origins))


def _sides(node: Node) -> list[Node]:
    """Return the operands that may be the value of an `and` or `or`: the left one of an `and` only if nil or false."""
    return [node.one("left"), node.one("right")] if node.word == "or" else [node.one("right")]


def _passed(table: Node, at: Node) -> Origin:
    """Return the source of an item of a global table."""
    if table.word == "KEYS":
        return Origin("key", at)
    return Origin("argument" if table.word == "ARGV" else "unknown", at)


def _may_be(place: Node | None, key: Node | None) -> bool:
    """Return whether two keys of a table may be equal."""
    one, other = _constant(place), _constant(key)
    return one is None or other is None or one == other


def _constant(key: Node | None) -> tuple[str, str] | None:
    """Return a constant key; None for any other."""
    return (key.kind, key.word) if key is not None and key.kind in ("string", "number") else None
