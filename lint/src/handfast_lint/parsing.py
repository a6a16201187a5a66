"""Parsing: converts the parser's tree to a simpler one, with few kinds of nodes and a parent for each.

The parser is tree-sitter with its Lua grammar. Only this module and `handfast_lint.syntax` know its kinds and
fields; the rules know `Node`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import tree_sitter
import tree_sitter_lua

__all__ = ["Comment", "Node", "Parsed", "Raw", "Tree", "build", "parse", "place_of"]

Raw: TypeAlias = tree_sitter.Node

_TEXT = re.compile(
    rb"""--\[(=*)\[.*?\]\1\]|--[^\n]*|\[(=*)\[.*?\]\2\]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
"""Comments and strings, of one or several lines."""
_ESCAPED_BYTE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPABLE = b"abfnrtvxzu0123456789\\'\"\n"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": "\n"}
_ESCAPE = re.compile(r"\\(\d{1,3}|.)", re.DOTALL)


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """A node of the syntax tree: an expression, a statement or a block.

    Expressions
        name        ``word`` is the name
        string      ``word`` is its value
        number      ``word`` is as written
        true false nil vararg
        index       base, key; ``a.b`` is ``a['b']``
        method      base; ``word`` is its name
        call        callee, arguments
        unary       operand; ``word`` is the operator
        binary      left, right; ``word`` is the operator
        function    parameters, body
        table       items, each of kind item: key (none if it has only a position), value

    Statements
        local       names, values
        assign      targets, values
        define      target, value: ``function target() ... end``
        local define
        return      values
        if          arms, each of kind arm: condition (none of an else), body
        while       condition, body
        repeat      body, condition
        count       name, range, body
        each        names, values, body
        do          body
        break
        call        as above

    A block has statements.
    """

    kind: str
    line: int
    column: int
    last_line: int
    text: str
    word: str = ""
    parts: dict[str, list[Node]] = field(default_factory=dict)
    parent: Node | None = None
    grouped: bool = False
    """Whether it is in parentheses, and so has one value at most."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.line}:{self.column} {self.text!r}>"

    def many(self, part: str) -> list[Node]:
        """Return the nodes of a part; an empty list if there is no such part."""
        return self.parts.get(part, [])

    def one(self, part: str) -> Node:
        """Return the only node of a part."""
        return self.parts[part][0]

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, in the order of the source."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += [child for part in reversed(node.parts.values()) for child in reversed(part)]

    def above(self) -> Iterator[Node]:
        """Yield its ancestors, from the inside out."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment that ends with its line. ``alone``: there is nothing else on that line."""

    text: str
    line: int
    column: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of a whole script, and its comments."""

    block: Node
    comments: list[Comment]


class Parsed(NamedTuple):
    """The parser's own tree, and the bytes that were parsed."""

    root: Raw
    data: bytes


def parse(source: str) -> Parsed:
    """Parse a script to the parser's own tree."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_lua.language()))
    data = _TEXT.sub(_without_odd_escapes, source.replace("\r\n", "\n").encode(errors="surrogateescape"))
    return Parsed(parser.parse(data).root_node, data)


def _without_odd_escapes(text: re.Match[bytes]) -> bytes:
    """Replace escapes that the grammar does not know, keeping the length: in Lua 5.1 any escaped letter is itself."""
    if text[0][:1] not in (b"'", b'"'):
        return text[0]
    return _ESCAPED_BYTE.sub(lambda escape: escape[0] if escape[1] in _ESCAPABLE else b"_" + escape[1], text[0])


def build(parsed: Parsed, source: str) -> Tree:
    """Convert the parser's tree of a script without syntax errors."""
    builder = _Builder(source)
    return Tree(builder.block(parsed.root, parsed.root), builder.comments(parsed.root))


def place_of(raw: Raw, lines: list[str]) -> tuple[int, int]:
    """Return line and column in characters, both from 1; the parser counts columns in bytes, from 0."""
    row, column = raw.start_point.row, raw.start_point.column
    line = lines[row] if row < len(lines) else ""
    return row + 1, len(line.encode(errors="surrogateescape")[:column].decode(errors="replace")) + 1


class _Builder:
    """Converts the parser's nodes."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self._makers: dict[str, Callable[[Raw], Node]] = {
            "identifier": lambda raw: self._node("name", raw, word=_text(raw)),
            "global": lambda raw: self._node("name", raw, word=_text(raw)),  # a keyword in Lua 5.5, a name in 5.1
            "number": lambda raw: self._node("number", raw, word=_text(raw)),
            "string": lambda raw: self._node("string", raw, word=_string(raw)),
            "vararg_expression": lambda raw: self._node("vararg", raw),
            "parenthesized_expression": self._group,
            "dot_index_expression": self._dot,
            "bracket_index_expression": self._bracket,
            "method_index_expression": self._method,
            "function_call": self._call,
            "unary_expression": self._unary,
            "binary_expression": self._binary,
            "function_definition": self._function,
            "table_constructor": self._table,
            "variable_declaration": self._local,
            "assignment_statement": self._assign,
            "function_declaration": self._define,
            "return_statement": lambda raw: self._node("return", raw, values=self._listed(raw, "expression_list")),
            "if_statement": self._if,
            "while_statement": self._while,
            "repeat_statement": self._repeat,
            "for_statement": self._for,
            "do_statement": lambda raw: self._node("do", raw, body=[self._body(raw)]),
            "break_statement": lambda raw: self._node("break", raw),
        }

    def comments(self, raw: Raw) -> list[Comment]:
        found, waiting = [], [raw]
        while waiting:
            node = waiting.pop()
            waiting += node.children
            if node.type == "comment" and not _text(node).startswith("--["):
                line, column = place_of(node, self._lines)
                alone = not self._lines[line - 1][: column - 1].strip()
                found.append(Comment(_text(node).rstrip(), line, column, alone))
        return sorted(found, key=lambda comment: comment.line)

    def block(self, raw: Raw | None, around: Raw) -> Node:
        """Convert a block; an empty one has no node of its own in the parser's tree, so ``around`` locates it."""
        made = [self._made(child) for child in _named(raw)] if raw is not None else []
        return self._node("block", raw if raw is not None else around, statements=made)

    def _node(self, kind: str, raw: Raw, *, word: str = "", **parts: list[Node]) -> Node:
        line, column = place_of(raw, self._lines)
        node = Node(kind, line, column, raw.end_point.row + 1, _text(raw), word, parts)
        for part in parts.values():
            for child in part:
                child.parent = node
        return node

    def _made(self, raw: Raw) -> Node:
        maker = self._makers.get(raw.type)
        return maker(raw) if maker else self._node(raw.type, raw)

    def _part(self, raw: Raw, name: str) -> Node:
        part = raw.child_by_field_name(name)
        assert part is not None, f"{raw.type} has no {name}"  # noqa: S101 -- guaranteed by the grammar
        return self._made(part)

    def _body(self, raw: Raw) -> Node:
        return self.block(raw.child_by_field_name("body"), raw)

    def _listed(self, raw: Raw, kind: str) -> list[Node]:
        """Return the members of a child list of that kind."""
        return [self._made(one) for child in _named(raw) if child.type == kind for one in _named(child, "attribute")]

    def _group(self, raw: Raw) -> Node:
        node = self._made(_named(raw)[0])
        node.grouped = True
        return node

    def _dot(self, raw: Raw) -> Node:
        name = raw.child_by_field_name("field")
        assert name is not None  # noqa: S101 -- see _part
        key = self._node("string", name, word=_text(name))
        return self._node("index", raw, base=[self._part(raw, "table")], key=[key])

    def _bracket(self, raw: Raw) -> Node:
        return self._node("index", raw, base=[self._part(raw, "table")], key=[self._part(raw, "field")])

    def _method(self, raw: Raw) -> Node:
        name = raw.child_by_field_name("method")
        return self._node("method", raw, word=_text(name) if name else "", base=[self._part(raw, "table")])

    def _call(self, raw: Raw) -> Node:
        arguments = raw.child_by_field_name("arguments")
        made = [self._made(child) for child in _named(arguments)] if arguments is not None else []
        return self._node("call", raw, callee=[self._part(raw, "name")], arguments=made)

    def _unary(self, raw: Raw) -> Node:
        return self._node("unary", raw, word=raw.children[0].type, operand=[self._part(raw, "operand")])

    def _binary(self, raw: Raw) -> Node:
        operator = next(child.type for child in raw.children if not child.is_named)
        return self._node(
            "binary", raw, word=operator, left=[self._part(raw, "left")], right=[self._part(raw, "right")]
        )

    def _function(self, raw: Raw) -> Node:
        parameters = raw.child_by_field_name("parameters")
        made = [self._made(child) for child in _named(parameters)] if parameters is not None else []
        return self._node("function", raw, parameters=made, body=[self._body(raw)])

    def _table(self, raw: Raw) -> Node:
        return self._node("table", raw, items=[self._item(child) for child in _named(raw)])

    def _item(self, raw: Raw) -> Node:
        name = raw.child_by_field_name("name")
        key = []
        if name is not None:
            bracketed = raw.children[0].type == "["
            key = [self._made(name) if bracketed else self._node("string", name, word=_text(name))]
        return self._node("item", raw, key=key, value=[self._part(raw, "value")])

    def _local(self, raw: Raw) -> Node:
        inner = next((child for child in _named(raw) if child.type == "assignment_statement"), raw)
        names, values = self._listed(inner, "variable_list"), self._listed(inner, "expression_list")
        return self._node("local", raw, names=names, values=values)

    def _assign(self, raw: Raw) -> Node:
        targets, values = self._listed(raw, "variable_list"), self._listed(raw, "expression_list")
        return self._node("assign", raw, targets=targets, values=values)

    def _define(self, raw: Raw) -> Node:
        kind = "local define" if raw.children[0].type == "local" else "define"
        return self._node(kind, raw, target=[self._part(raw, "name")], value=[self._function(raw)])

    def _if(self, raw: Raw) -> Node:
        arms = [self._arm(raw, "consequence")]
        arms += [self._arm(child, "consequence") for child in raw.children_by_field_name("alternative")]
        return self._node("if", raw, arms=arms)

    def _arm(self, raw: Raw, body: str) -> Node:
        condition = raw.child_by_field_name("condition")
        inner = raw.child_by_field_name(body) or raw.child_by_field_name("body")
        return self._node(
            "arm",
            raw,
            condition=[self._made(condition)] if condition is not None else [],
            body=[self.block(inner, raw)],
        )

    def _while(self, raw: Raw) -> Node:
        return self._node("while", raw, condition=[self._part(raw, "condition")], body=[self._body(raw)])

    def _repeat(self, raw: Raw) -> Node:
        return self._node("repeat", raw, body=[self._body(raw)], condition=[self._part(raw, "condition")])

    def _for(self, raw: Raw) -> Node:
        clause = raw.child_by_field_name("clause")
        assert clause is not None  # noqa: S101 -- see _part
        body = [self._body(raw)]
        if clause.type == "for_numeric_clause":
            name, *limits = (self._made(child) for child in _named(clause))
            return self._node("count", raw, name=[name], range=limits, body=body)
        names, values = self._listed(clause, "variable_list"), self._listed(clause, "expression_list")
        return self._node("each", raw, names=names, values=values, body=body)


def _named(raw: Raw | None, *but: str) -> list[Raw]:
    """Return the significant children, without comments and the shebang line."""
    left_out = ("comment", "hash_bang_line", *but)
    children = raw.children if raw is not None else []
    return [one for one in children if one.type == "global" or (one.is_named and one.type not in left_out)]


def _text(raw: Raw) -> str:
    return (raw.text or b"").decode(errors="replace")


def _string(raw: Raw) -> str:
    content = raw.child_by_field_name("content")
    if content is None:
        return ""
    text = _text(content)
    return text if _text(raw).startswith("[") else _ESCAPE.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape)) if escape.isdigit() else _ESCAPES.get(escape, escape)
