"""Syntax errors in Lua 5.1, the version of every server.

The parser accepts newer versions of Lua and continues after an error, so this looks for the parser's errors and then
for newer syntax. Unmatched brackets or blocks are reported first, because they cause other errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from handfast_lint.limits import deep
from handfast_lint.parsing import Parsed, Raw

__all__ = ["Fault", "faults"]


class Fault(NamedTuple):
    """A syntax error and its node."""

    raw: Raw
    message: str


CLOSERS = {"(": ")", "[": "]", "{": "}", "repeat": "until", "if": "end", "do": "end", "function": "end"}
OPENERS_OF: dict[str, tuple[str, ...]] = {
    "end": ("if", "do", "function"),
    "until": ("repeat",),
    ")": ("(",),
    "]": ("[",),
    "}": ("{",),
}

NEWER = {
    "goto_statement": "goto came with Lua 5.2, and servers run 5.1: use a loop, an if or a function",
    "label_statement": "labels came with Lua 5.2, and servers run 5.1: use a loop, an if or a function",
    "attribute": "<const> and <close> came with Lua 5.4, and servers run 5.1: leave them out",
    "global": "global came with Lua 5.5, and servers run 5.1, which refuse writes of globals: write local",
    "//": "integer division came with Lua 5.3, and servers run 5.1: write math.floor(a / b)",
    "&": "bitwise operators came with Lua 5.3, and servers run 5.1: write bit.band(a, b)",
    "|": "bitwise operators came with Lua 5.3, and servers run 5.1: write bit.bor(a, b)",
    "~": "bitwise operators came with Lua 5.3, and servers run 5.1: write bit.bxor(a, b) or bit.bnot(a)",
    "<<": "bitwise operators came with Lua 5.3, and servers run 5.1: write bit.lshift(a, b)",
    ">>": "bitwise operators came with Lua 5.3, and servers run 5.1: write bit.rshift(a, b)",
}
FOREIGN = {
    "!": "write ~= for 'not equal', and not for 'not'",
    "&": "write and",
    "|": "write or",
    "?": "write condition and a or b",
    "+": "write x = x + 1",
    "-": "write x = x - 1",
    "=": "write == to compare, and = to assign",
}
"""Operators of other languages, and what to write instead."""

_RESERVED = re.compile(
    "and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]*)?([pP][+-]?\d+)?|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_JOINED = re.compile(rb"[\d.]+(?:[eE][+-]?)?\w*")
_ESCAPE = re.compile(r"\\(?:([xzu])|(\d{1,3})|.)", re.DOTALL)

MAX_BYTE = 255

_DECLARATIONS = ("variable_declaration", "function_declaration", "implicit_variable_declaration")
_LOOPS = ("while_statement", "for_statement", "repeat_statement")
_FUNCTIONS = ("function_declaration", "function_definition")


def faults(parsed: Parsed, source: str) -> list[Fault]:
    """Return the syntax errors of a script; if the parser failed, only the first one."""
    root = parsed.root
    if source.startswith("\ufeff"):
        return [
            Fault(root, "the file begins with a byte order mark, which servers refuse: save it as UTF-8 without one")
        ]
    if source.lstrip().startswith("#") and not source.startswith("#!"):
        return [Fault(root, "servers refuse a first line that begins with #, except #!lua: remove it")]
    if root.has_error:
        return [_unmatched(root) or _stumble(root)]
    if (too_much := deep(root)) is not None:
        return [Fault(*too_much)]
    return [fault for raw in _walk(root) for fault in _strange(raw, parsed.data)]


def _walk(raw: Raw) -> Iterator[Raw]:
    waiting = [raw]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _unmatched(root: Raw) -> Fault | None:
    """Return the first bracket or block that is not closed, or not opened."""
    opened: list[Raw] = []
    for leaf in _walk(root):
        if leaf.child_count or leaf.is_missing or _in_text(leaf):
            continue
        word = _text(leaf)
        if word in CLOSERS:
            opened.append(leaf)
        elif word in OPENERS_OF:
            if not opened:
                return Fault(
                    leaf, f"this {word!r} closes nothing: remove it, or look for a block that was closed too early"
                )
            opener = opened.pop()
            before = _text(opener)
            if before not in OPENERS_OF[word]:
                line = leaf.start_point.row + 1
                return Fault(
                    opener, f"this {before!r} is not closed: {CLOSERS[before]!r} is missing before line {line}"
                )
    if not opened:
        return None
    word = _text(opened[-1])
    hint = "; 'else if' opens one more, and elseif does not" if word == "if" and "else if" in _text(root) else ""
    return Fault(opened[-1], f"this {word!r} is never closed: its {CLOSERS[word]!r} is missing{hint}")


def _stumble(root: Raw) -> Fault:
    """Return the first error of the parser."""
    lost = next(raw for raw in _walk(root) if raw.is_error or raw.is_missing)
    if lost.is_missing and lost.parent is not None and lost.parent.type == "string":
        return Fault(lost.parent, f"the string that begins with {lost.type} here is not closed")
    if lost.is_missing:
        kind = "a value" if lost.type in ("identifier", "number") else repr(lost.type)
        return Fault(lost, f"{kind} is missing here")
    if any(raw.type == "return_statement" for raw in _walk(lost)):
        return Fault(
            lost, "return must be the last statement of its block: remove what follows, or write do return end"
        )
    shown = _text(lost).split("\n")[0][:40]
    if shown.startswith("--["):
        return Fault(lost, "this comment is not closed: ]] is missing at its end")
    return _hint(lost) or Fault(lost, f"this is not Lua: something is missing or superfluous near {shown!r}")


def _hint(lost: Raw) -> Fault | None:
    """Return an error with a hint, if the code looks like another language."""
    leaves = [leaf for leaf in _walk(lost) if not leaf.child_count]
    for leaf in leaves:
        if _text(leaf) in ("'", '"', "[[") and (leaf.parent is None or leaf.parent.type != "string"):
            return Fault(leaf, f"the string that begins with {_text(leaf)} here is not closed")
    for leaf in leaves:
        if hint := FOREIGN.get(_text(leaf)[:1]):
            return Fault(leaf, f"this is not Lua: {hint}")
    return Fault(lost, f"this is not Lua: {_text(lost)!r} is not allowed here") if len(leaves) == 1 else None


def _strange(raw: Raw, data: bytes) -> Iterator[Fault]:
    """Yield errors at this node that the parser does not report: newer syntax, and details that it ignores."""
    text = _text(raw)
    if raw.type in NEWER and (raw.type != "global" or (raw.parent is not None and raw.parent.type in _DECLARATIONS)):
        yield Fault(raw, NEWER[raw.type])
    elif raw.type == "identifier" and (_RESERVED.fullmatch(text) or not _NAME.fullmatch(text)):
        hint = FOREIGN.get(text[:1])
        yield Fault(raw, f"this is not Lua: {hint}" if hint else f"{text!r} cannot be a name in Lua")
    elif raw.type == "number":
        yield from _number_faults(raw, data)
    elif raw.type == "string" and not text.startswith("["):
        yield from _text_faults(raw, text)
    elif raw.type == "empty_statement":
        before = raw.prev_named_sibling
        if before is None or before.type in ("empty_statement", "comment"):
            yield Fault(raw, "Lua 5.1 allows a ';' only after a statement: remove it")
    elif raw.type == "break_statement":
        yield from _break_faults(raw)
    elif raw.type == "vararg_expression":
        yield from _more_faults(raw)
    elif raw.type == "arguments" and text.startswith("(") and _begins_a_line(raw):
        yield Fault(
            raw,
            "Lua 5.1 allows no call that continues on a new line with '(': join the lines, or separate them with a ';'",
        )


def _more_faults(raw: Raw) -> Iterator[Fault]:
    function = _around(raw, _FUNCTIONS)
    if function is not None and not _takes_more(function):
        yield Fault(raw, "this function has no '...': add it as the last parameter")
    after = raw.next_named_sibling
    if raw.parent is not None and raw.parent.type == "parameters" and after is not None and after.type == "identifier":
        yield Fault(after, "'...' has no name before Lua 5.5, and servers run 5.1: write local name = {...} below")


def _begins_a_line(arguments: Raw) -> bool:
    called, call = arguments.prev_sibling, arguments.parent
    if called is None or call is None or called.end_point.row == arguments.start_point.row:
        return False
    is_item = call.parent is not None and call.parent.type == "field"
    return not (is_item and called.type == "identifier")  # Lua looks ahead here and accepts it


def _number_faults(raw: Raw, data: bytes) -> Iterator[Fault]:
    joined = _JOINED.match(data, raw.start_byte)
    text = (joined[0] if joined else data[raw.start_byte : raw.end_byte]).decode()
    if not _NUMBER.fullmatch(text):
        yield Fault(raw, f"{text!r} is not a number in Lua 5.1: write it as 12, 1.5, 1e9 or 0xff, followed by a space")


def _text_faults(raw: Raw, text: str) -> Iterator[Fault]:
    for escape in _ESCAPE.finditer(text):
        if escape[2] and int(escape[2]) > MAX_BYTE:
            yield Fault(raw, f"\\{escape[2]} is no byte, which has three decimal digits up to \\{MAX_BYTE}")
            return
        if escape[1]:
            yield Fault(
                raw,
                f"\\{escape[1]} is just {escape[1]!r} in Lua 5.1: write a byte as three decimal digits, such as \\065 for A",
            )
            return
    if "\n" in _ESCAPE.sub("", text):
        yield Fault(
            raw,
            f"this string is not closed on its line: {text[0]} is missing; write a string of several lines in [[ ]]",
        )


def _break_faults(raw: Raw) -> Iterator[Fault]:
    after = raw.next_named_sibling
    while after is not None and after.type in ("comment", "empty_statement", "else_statement", "elseif_statement"):
        after = after.next_named_sibling
    if after is not None:
        yield Fault(
            raw, "break must be the last statement of its block in Lua 5.1: write do break end, or move what follows"
        )
    around = _around(raw, (*_LOOPS, *_FUNCTIONS))
    if around is None or around.type in _FUNCTIONS:
        yield Fault(raw, "break is outside of a loop")


def _around(raw: Raw, kinds: tuple[str, ...]) -> Raw | None:
    """Return the innermost ancestor of one of these kinds."""
    node = raw.parent
    while node is not None and node.type not in kinds:
        node = node.parent
    return node


def _takes_more(function: Raw) -> bool:
    parameters = function.child_by_field_name("parameters")
    return parameters is not None and any(child.type == "vararg_expression" for child in parameters.children)


def _in_text(leaf: Raw) -> bool:
    return leaf.type in ("string_content", "comment_content") or (
        leaf.parent is not None and leaf.parent.type in ("string", "comment", "string_content")
    )


def _text(raw: Raw) -> str:
    return (raw.text or b"").decode(errors="replace")
