"""A script as the rules see it: header, syntax tree, names, data flow and commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handfast._engine.header import Header
from handfast_lint.findings import Finding, Severity
from handfast_lint.flow import CALLS, Flow
from handfast_lint.parsing import Comment, Node, Tree
from handfast_lint.scopes import Scopes
from handfast_lint.versions import Servers

__all__ = ["CheckedScript", "Command", "Passed"]


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """A command that a script may send. A call whose command may be one of several names makes several of these."""

    node: Node
    """The whole call."""
    name: str
    """The name, in capitals."""
    arguments: list[Node]
    """The arguments after the name."""
    words: list[str | None]
    """The constant arguments, in capitals; None for the others."""
    sure: bool
    """Whether these arguments belong to this name: unknown if both are parameters of a function with several calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """One use of KEYS or ARGV."""

    table: str
    place: int | None
    """The index, from 1; None if it is not constant."""
    node: Node


class CheckedScript:
    """A script with everything that the rules need, computed once."""

    def __init__(self, name: str, source: str, header: Header, tree: Tree, oldest: Servers) -> None:
        self.name = name
        self.source = source
        self.lines: list[str] = source.split("\n")
        self.header = header
        self.block: Node = tree.block
        self.comments: list[Comment] = tree.comments
        self.oldest: dict[str, tuple[int, int]] | Servers = header.needs or oldest
        self.scopes: Scopes = Scopes(tree.block)
        self.flow: Flow = Flow(tree.block, self.scopes)
        self.nodes: list[Node] = list(tree.block.walk())
        self._sent = {node: list(self._commands(node)) for node in self.nodes if node.kind == "call"}
        self.commands: list[Command] = [command for sent in self._sent.values() for command in sent]
        self.passed: list[Passed] = [passed for name in self.scopes.globals_read if (passed := self._passed(name))]

    def finding(self, rule: str, node: Node, message: str, severity: Severity = "error") -> Finding:
        """Make a finding at a node."""
        return Finding(self.name, node.line, node.column, rule, severity, message)

    def finding_in_header(self, rule: str, keyword: str, word: str, message: str) -> Finding:
        """Make a finding at a word of a header line."""
        number = self.header.lines.get(keyword, 1)
        for offset, line in enumerate(self.lines[number - 1 :]):
            if not line.lstrip().startswith("--"):
                break
            first, *rest = line.lstrip().removeprefix("--").split() or [""]
            if first == keyword and word in (part.removesuffix("...") for part in rest):
                column = line.index(word, line.index(keyword) + len(keyword)) + 1
                return Finding(self.name, number + offset, column, rule, "error", message)
        return Finding(self.name, number, 1, rule, "error", message)

    def sent_by(self, call: Node) -> list[Command]:
        """Return the commands that a call may send; an empty list for other calls."""
        return self._sent.get(call, [])

    def _commands(self, call: Node) -> Iterator[Command]:
        callee, arguments = self.flow.called(call), call.many("arguments")
        if callee == "pcall" and arguments:
            callee, arguments = self.flow.path(arguments[0]), arguments[1:]
        if callee not in CALLS or not arguments:
            return
        words = [self._word(argument) for argument in arguments[1:]]
        names = self.flow.constants(arguments[0]) or frozenset()
        sure = len(names) == 1 or not any(origin.site for origin in self.flow.origins(arguments[0]))
        for name in sorted(names):
            yield Command(call, name.upper(), arguments[1:], words, sure)

    def _word(self, argument: Node) -> str | None:
        if argument.kind == "number":
            return argument.word
        constants = self.flow.constants(argument)
        return next(iter(constants)).upper() if constants is not None and len(constants) == 1 else None

    def _passed(self, name: Node) -> Passed | None:
        use = name.parent
        if name.word not in ("KEYS", "ARGV") or use is None:
            return None
        if use.kind == "unary" and use.word == "#":
            return None
        if use.kind == "index" and use.one("base") is name:
            place = use.one("key").word
            return Passed(name.word, int(place) if use.one("key").kind == "number" and place.isdecimal() else None, use)
        return Passed(name.word, None, name)
