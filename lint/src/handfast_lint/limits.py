"""The limits of the compiler of Lua 5.1: correct source that is too large for it.

The numbers are from Lua's luaconf.h, and were measured on servers.
"""

from __future__ import annotations

from handfast_lint.parsing import Node, Raw
from handfast_lint.scopes import Scopes, owner

__all__ = ["crowded", "deep"]

MAX_LEVELS = 200
"""How deep expressions and blocks may be nested."""

MAX_LOCALS = 200
"""Local variables of a function at the same time; a loop has three hidden locals."""

MAX_UPVALUES = 60
"""Locals of enclosing functions that a function uses."""

MAX_REGISTERS = 249
"""Locals and values of a function at the same time."""

_HIDDEN = 3
"""Locals of a loop that have no name."""

_LEVELS: dict[str, tuple[str, ...]] = {
    "binary_expression": ("right",),
    "unary_expression": ("operand",),
    "bracket_index_expression": ("field",),
    "field": ("value",),
    "if_statement": ("condition",),
    "elseif_statement": ("condition",),
    "while_statement": ("condition",),
    "repeat_statement": ("condition",),
    "for_numeric_clause": ("start", "end", "step"),
}
"""Which parts of a node the compiler enters a level deeper. Of the first three, it reads the other part on its own."""

_FUNCTIONS = ("function_declaration", "function_definition")
_BODIES = (*_FUNCTIONS, "if_statement", "do_statement", "while_statement", "for_statement", "repeat_statement")
_LISTS = ("expression_list", "parenthesized_expression")


class _Walk:
    """Reads a script in source order, without recursion: the nesting may be deep."""

    def __init__(self, root: Raw) -> None:
        self.locals = [0]
        """How many there are now in each function that is being read, the innermost last."""
        self._waiting: list[tuple[Raw, int] | int | None] = [(root, 1)]
        """The next steps, in reverse order: a node and the level; the number of locals from there on; None at the end of
        a function."""

    def next(self) -> tuple[Raw, int] | None:
        """Return the next node and the level; None at the end."""
        while self._waiting:
            one = self._waiting.pop()
            if isinstance(one, int):
                self.locals[-1] = one
            elif one is None:
                self.locals.pop()
            else:
                return one
        return None

    def enter(self, raw: Raw, level: int) -> None:
        """Have the parts of a node read next."""
        parts = [(child, _level(raw, index, child, level)) for index, child in enumerate(raw.children)][::-1]
        held, more = self.locals[-1], _declared(raw)
        if raw.type in _FUNCTIONS:
            self.locals[-1] = held + more
            self.locals.append(_parameters(raw))
            self._waiting += [None, *parts]
        elif raw.type == "for_statement":
            clause = [part for part in parts if part[0].type.endswith("_clause")]
            self._waiting += [held, *(part for part in parts if part not in clause), held + more, *clause]
        elif raw.type == "block":
            self._waiting += [held, *parts]
        elif more:
            self._waiting += [held + more, *parts]
        else:
            self._waiting += parts


def deep(root: Raw) -> tuple[Raw, str] | None:
    """Return the first node that the compiler cannot take, and why."""
    walk = _Walk(root)
    while (here := walk.next()) is not None:
        raw, level = here
        held = walk.locals[-1]
        if level + (raw.type in _BODIES) > MAX_LEVELS:
            return raw, (
                f"this is more than {MAX_LEVELS} levels deep, which the Lua of servers refuses: split the expression, join "
                "long chains of .. with table.concat, and move inner blocks to functions"
            )
        if max(held + _declared(raw), _parameters(raw)) > MAX_LOCALS:
            return raw, (
                f"more than {MAX_LOCALS} locals of one function live here, which the Lua of servers refuses: put some into a "
                "table, or into do ... end"
            )
        if held + _values(raw) > MAX_REGISTERS:
            return raw, (
                f"locals and values are more than {MAX_REGISTERS} here, which the Lua of servers refuses: put the values into "
                "a table, and use unpack"
            )
        if raw.type == "assignment_statement" and _targets(raw) > MAX_LEVELS + 1 - level:
            return raw, "this assigns to more variables at once than the Lua of servers takes: use a table"
        walk.enter(raw, level)
    return None


def _level(raw: Raw, index: int, child: Raw, level: int) -> int:
    """Return the level at which the compiler reads a part of a node."""
    if not child.is_named:
        return level
    if child.type == "block" or raw.type in _LISTS or raw.field_name_for_child(index) in _LEVELS.get(raw.type, ()):
        return level + 1
    is_key = raw.type == "field" and raw.children[0].type == "[" and raw.field_name_for_child(index) == "name"
    is_argument = raw.type == "arguments" and raw.children[0].type == "("
    return level + (is_key or is_argument)


def _declared(raw: Raw) -> int:
    """Return how many locals of the function around begin at a node."""
    if raw.type in _FUNCTIONS:
        return raw.children[0].type == "local"
    if raw.type == "variable_declaration":
        return _listed(next((child for child in raw.children if child.type == "assignment_statement"), raw))
    if raw.type == "for_statement":
        clause = raw.child_by_field_name("clause")
        return _HIDDEN + (_listed(clause) if clause is not None and clause.type == "for_generic_clause" else 1)
    return 0


def _parameters(raw: Raw) -> int:
    """Return how many locals a function begins with: `...` makes one, and a method another."""
    if raw.type not in _FUNCTIONS:
        return 0
    name = raw.child_by_field_name("name")
    return _count(raw.child_by_field_name("parameters")) + (name is not None and name.type == "method_index_expression")


def _targets(raw: Raw) -> int:
    """Return how many variables a statement assigns to, if it declares none."""
    return 0 if raw.parent is not None and raw.parent.type == "variable_declaration" else _listed(raw)


def _listed(raw: Raw) -> int:
    return sum(_count(child) for child in raw.children if child.type == "variable_list")


def _count(raw: Raw | None) -> int:
    named = [] if raw is None else raw.named_children
    return sum(child.type not in ("comment", "attribute") for child in named)


def _values(raw: Raw) -> int:
    """Return how many values a node needs at the same time."""
    if raw.type == "arguments":
        return 1 + _count(raw)
    if raw.type == "return_statement":
        return sum(_count(child) for child in raw.children if child.type == "expression_list")
    return 0


def crowded(scopes: Scopes) -> tuple[Node, str] | None:
    """Return the first function that uses more locals of functions around it than the compiler takes, and why."""
    used: dict[Node, set[Node]] = {}
    for name, variable in scopes.uses():
        home = owner(variable.node)
        for around in name.above():
            if around is home:
                break
            if around.kind == "function":
                used.setdefault(around, set()).add(variable.node)
    for function in scopes.functions:
        if len(used.get(function, ())) > MAX_UPVALUES:
            return function, (
                f"this function uses more than {MAX_UPVALUES} locals from outside, which the Lua of servers refuses: put "
                "some into a table"
            )
    return None
