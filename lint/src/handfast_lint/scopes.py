"""Scopes: which variable a name means, the values assigned to each variable, and the calls of each function.

A name that no `local`, loop or parameter declares is a global. Assignments are collected over the whole script, without
order: the rules ask what a value may be, not what it is at a certain line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from handfast_lint.parsing import Node

__all__ = ["Function", "Giving", "Scopes", "Variable", "values_at"]


@dataclass(frozen=True, slots=True, eq=False)
class Giving:
    """One place where a variable gets a value.

    value       the ``index``-th value of the expression ``node``, from 0; most have one only
    nothing     ``local x``, or fewer values than names
    parameter   the ``index``-th argument of the function ``node``
    item        the ``index``-th name of the generic loop ``node``
    counter     the name of the numeric loop ``node``
    """

    how: Literal["value", "nothing", "parameter", "item", "counter"]
    node: Node
    index: int = 0


@dataclass(slots=True, eq=False)
class Variable:
    """A local variable, a loop variable or a parameter."""

    name: str
    node: Node
    """Where it is declared."""
    given: list[Giving] = field(default_factory=list)
    reads: list[Node] = field(default_factory=list)
    items: list[tuple[Node | None, Node]] = field(default_factory=list)
    """If it is a table: the keys and values assigned to it. The key is None if it is not constant."""


@dataclass(slots=True, eq=False)
class Function:
    """A function of the script, and the arguments of each of its calls."""

    node: Node
    calls: list[list[Node]] = field(default_factory=list)
    escapes: bool = False
    """Whether it may be called from elsewhere, with unknown arguments."""

    @property
    def known(self) -> bool:
        """Whether `calls` are all its calls."""
        return bool(self.calls) and not self.escapes

    def returns(self) -> list[Node]:
        """Return its return statements, without those of nested functions."""
        return [node for node in self.node.one("body").walk() if node.kind == "return" and owner(node) is self.node]


class Scopes:
    """The names of a script and the variables that they mean."""

    def __init__(self, block: Node) -> None:
        self._variables: dict[Node, Variable] = {}
        self.globals_read: list[Node] = []
        self.globals_written: list[Node] = []
        self._block(block, {})
        self.functions: dict[Node, Function] = {
            node: Function(node) for node in block.walk() if node.kind == "function"
        }
        for function in self.functions.values():
            self._find_calls(function)

    @property
    def variables(self) -> list[Variable]:
        """All variables, in the order of their declarations."""
        return list(dict.fromkeys(self._variables.values()))

    def uses(self) -> Iterable[tuple[Node, Variable]]:
        """Return each name that means a variable, with it."""
        return self._variables.items()

    def variable(self, name: Node) -> Variable | None:
        """Return the variable that a name means; None for a global, or another kind of node."""
        return self._variables.get(name)

    def function_of(self, callee: Node) -> Function | None:
        """Return the function of the script that a callee means; None if it may be another."""
        given = self._held(callee)
        if len(given) == 1 and given[0].kind == "function":
            return self.functions[given[0]]
        return None

    def is_global(self, node: Node, name: str) -> bool:
        """Return whether a node is the global of that name."""
        return node.kind == "name" and node.word == name and node not in self._variables

    def _held(self, callee: Node) -> list[Node]:
        if callee.kind == "name" and (variable := self.variable(callee)):
            return [giving.node for giving in variable.given]
        if (
            callee.kind == "index"
            and callee.one("key").kind == "string"
            and (holder := self.variable(callee.one("base")))
        ):
            key = callee.one("key").word
            inside = [item for giving in holder.given if giving.how == "value" for item in giving.node.many("items")]
            named = [(item.one("key"), item.one("value")) for item in inside if item.many("key")]
            return [value for name, value in [*named, *holder.items] if name is None or name.word == key]
        return []

    # Names, block by block. A block copies the dict of its scope, so what it declares ends with it.

    def _block(self, block: Node, scope: dict[str, Variable]) -> None:
        scope = dict(scope)
        for statement in block.many("statements"):
            self._statement(statement, scope)

    def _statement(self, node: Node, scope: dict[str, Variable]) -> None:
        match node.kind:
            case "local":
                self._expressions(node.many("values"), scope)
                self._declare(node.many("names"), node.many("values"), scope)
            case "local define":
                value = node.one("value")
                self._declare([node.one("target")], [value], scope)
                self._expressions([value], scope)
            case "define" | "assign":
                targets = node.many("targets") or node.many("target")
                values = node.many("values") or node.many("value")
                self._expressions(values, scope)
                for place, target in enumerate(targets):
                    self._written(target, values_at(values, place), scope)
            case "count":
                self._expressions(node.many("range"), scope)
                self._loop([node.one("name")], "counter", node, scope)
            case "each":
                self._expressions(node.many("values"), scope)
                self._loop(node.many("names"), "item", node, scope)
            case "repeat":
                inner = dict(scope)  # the condition sees the locals of the body
                for statement in node.one("body").many("statements"):
                    self._statement(statement, inner)
                self._expressions(node.many("condition"), inner)
            case "if":
                for arm in node.many("arms"):
                    self._expressions(arm.many("condition"), scope)
                    self._block(arm.one("body"), scope)
            case "while" | "do":
                self._expressions(node.many("condition"), scope)
                self._block(node.one("body"), scope)
            case _:
                self._expressions([node], scope)

    def _loop(self, names: list[Node], how: Literal["item", "counter"], node: Node, scope: dict[str, Variable]) -> None:
        inner = dict(scope)
        for place, name in enumerate(names):
            self._new(name, inner).given.append(Giving(how, node, place))
        self._block(node.one("body"), inner)

    def _declare(self, names: list[Node], values: list[Node], scope: dict[str, Variable]) -> None:
        for place, name in enumerate(names):
            value = values_at(values, place)
            giving = Giving("value", *value) if value else Giving("nothing", name)
            self._new(name, scope).given.append(giving)

    def _new(self, name: Node, scope: dict[str, Variable]) -> Variable:
        variable = Variable(name.word, name)
        scope[name.word] = variable
        self._variables[name] = variable
        return variable

    def _written(self, target: Node, value: tuple[Node, int] | None, scope: dict[str, Variable]) -> None:
        if target.kind != "name":
            self._expressions([target], scope)
            holder = self.variable(target.one("base")) if target.kind == "index" else None
            if holder is not None and value is not None:
                holder.items.append((target.one("key"), value[0]))
        elif (variable := scope.get(target.word)) is not None:
            self._variables[target] = variable
            variable.given.append(Giving("value", *value) if value else Giving("nothing", target))
        else:
            self.globals_written.append(target)

    def _expressions(self, nodes: list[Node], scope: dict[str, Variable]) -> None:
        waiting = list(reversed(nodes))
        while waiting:
            node = waiting.pop()
            if node.kind == "function":
                self._enter(node, scope)
                continue
            if node.kind == "name":
                self._read(node, scope)
            waiting += [child for part in reversed(node.parts.values()) for child in reversed(part)]

    def _read(self, name: Node, scope: dict[str, Variable]) -> None:
        variable = scope.get(name.word)
        if variable is None:
            self.globals_read.append(name)
        else:
            self._variables[name] = variable
            variable.reads.append(name)

    def _enter(self, function: Node, scope: dict[str, Variable]) -> None:
        inner = dict(scope)
        for place, name in enumerate(function.many("parameters")):
            if name.kind == "name":
                self._new(name, inner).given.append(Giving("parameter", function, place))
            elif name.kind == "vararg" and not _uses_more(function):
                # The arguments as a table, with the field n. Where the function has `...` itself, it is nil.
                variable = Variable("arg", name)
                variable.given.append(Giving("value", name))
                self._variables[name], inner["arg"] = variable, variable
        self._block(function.one("body"), inner)

    # Calls.

    def _find_calls(self, function: Function) -> None:
        match self._place_of(function.node):
            case Variable() as variable:
                for read in variable.reads:
                    self._use(function, read)
            case (Variable() as holder, str() as key):
                self._calls_of_item(function, holder, key)
            case _:
                function.escapes = not self._is_called_at_once(function)

    def _place_of(self, function: Node) -> Variable | tuple[Variable, str] | None:
        """Return the variable that the function is assigned to, or the table variable and the key."""
        around = function.parent
        if around is None:
            return None
        if around.kind == "item" and around.parent is not None and around.many("key"):
            holder = self._place_of(around.parent)
            return (holder, around.one("key").word) if isinstance(holder, Variable) else None
        targets = around.many("targets") or around.many("names") or around.many("target")
        values = around.many("values") or around.many("value")
        if function not in values or values.index(function) >= len(targets):
            return None
        target = targets[values.index(function)]
        if target.kind == "index" and target.one("key").kind == "string":
            holder = self.variable(target.one("base"))
            return (holder, target.one("key").word) if holder else None
        return self.variable(target)

    def _is_called_at_once(self, function: Function) -> bool:
        call = function.node.parent
        if call is not None and call.kind == "call":
            if call.one("callee") is function.node:
                function.calls.append(call.many("arguments"))
                return True
            if self.is_global(call.one("callee"), "pcall") and call.many("arguments")[0] is function.node:
                function.calls.append(call.many("arguments")[1:])
                return True
        return False

    def _calls_of_item(self, function: Function, holder: Variable, key: str) -> None:
        for read in holder.reads:
            use = read.parent
            if use is None or use.kind != "index" or use.one("base") is not read or use.one("key").kind != "string":
                function.escapes = True
            elif use.one("key").word == key and not _is_target(use):
                self._use(function, use)

    def _use(self, function: Function, read: Node) -> None:
        call = read.parent
        if call is not None and call.kind == "call":
            if call.one("callee") is read:
                function.calls.append(call.many("arguments"))
                return
            if self.is_global(call.one("callee"), "pcall") and call.many("arguments")[0] is read:
                function.calls.append(call.many("arguments")[1:])
                return
        function.escapes = True


def values_at(values: list[Node], place: int) -> tuple[Node, int] | None:
    """Return the expression for a position of a list, and the index of its value: a last call may have several."""
    if place < len(values):
        return values[place], 0
    if values and values[-1].kind in ("call", "vararg") and not values[-1].grouped:
        return values[-1], place - len(values) + 1
    return None


def _uses_more(function: Node) -> bool:
    """Return whether the body of a function has `...`, without the functions in it."""
    return any(node.kind == "vararg" and owner(node) is function for node in function.one("body").walk())


def owner(node: Node) -> Node | None:
    """Return the innermost function around a node; None at the top level."""
    return next((above for above in node.above() if above.kind == "function"), None)


def _is_target(node: Node) -> bool:
    around = node.parent
    return around is not None and node in (*around.many("targets"), *around.many("target"))
