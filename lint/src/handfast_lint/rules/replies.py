"""Replies: the values that a script returns and those that its header lists, and the parts of a reply that get lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handfast_lint.findings import Finding
from handfast_lint.flow import CALLS
from handfast_lint.parsing import Node
from handfast_lint.scopes import Function, owner
from handfast_lint.script import CheckedScript
from handfast_lint.values import Values

__all__ = ["RULES", "check"]

RULES = {
    "reply": "The script returns the replies that its header lists under REPLY, and every one of them.",
    "never-nil": "No reply of a command is compared with nil: a missing value is false in scripts.",
    "lossy-reply": "No reply has parts that the protocol drops: fractions, items after a nil, named fields.",
}

SINGLE = (*CALLS, "tonumber", "tostring", "type", "table.concat", "cjson.encode", "cjson.decode")
MEANT = {"ok", "err", "double", "map", "set", "big_number", "verbatim_string", "format", "string", "warnings"}
"""Names of fields with a meaning in a reply: a status, an error, the types of RESP3."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One value that the script may return."""

    node: Node
    """The return statement."""
    tag: str | None
    """The first item; None if it is not a tagged array."""
    fields: int | None
    """How many items follow the tag; None if unknown."""
    plain: bool = True
    """Whether it is known to be neither an error nor a table of unknown content."""


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check the replies against the header, then each value."""
    returned = [(node, next(iter(node.many("values")), None)) for node in _returns(script)]
    if script.header.replies or script.header.untagged:
        yield from _against_header(
            script, [answer for node, value in returned for answer in _answers(script, node, value)]
        )
    values = Values(script)
    for _, value in returned:
        if value is not None:
            yield from _lost(script, values, value)
    if not any(script.flow.called(node) == "redis.setresp" for node in script.nodes):  # with RESP3 it is nil
        for node in script.nodes:
            if node.kind == "binary" and node.word in ("==", "~="):
                yield from _never_nil(script, node)


def _never_nil(script: CheckedScript, node: Node) -> Iterator[Finding]:
    for one, other in (("left", "right"), ("right", "left")):
        if node.one(one).kind == "nil" and _is_reply(script, node.one(other)):
            answer = "never" if node.word == "==" else "always"
            yield script.finding(
                "never-nil",
                node,
                f"a missing value is false in a script, so {node.word} nil is {answer} true: compare it with false",
            )


def _is_reply(script: CheckedScript, value: Node) -> bool:
    """Return whether a value is the whole reply of a command in any case."""
    if value.kind == "call":
        return script.flow.called(value) in CALLS
    variable = script.scopes.variable(value)
    return variable is not None and all(
        giving.how == "value" and giving.index == 0 and giving.node.kind == "call" and _is_reply(script, giving.node)
        for giving in variable.given
    )


def _returns(script: CheckedScript) -> list[Node]:
    return [node for node in script.nodes if node.kind == "return" and owner(node) is None]


def _against_header(script: CheckedScript, answers: list[Answer]) -> Iterator[Finding]:
    replies, untagged = script.header.replies, script.header.untagged
    yield from _wrong(script, answers)
    if replies and not untagged and not _always_returns(script, script.block):
        last = (script.block.many("statements") or [script.block])[-1]
        yield script.finding(
            "reply", last, "the script may end here without a reply: return one, or add a line -- REPLY - that says so"
        )
    if all(answer.tag is not None or answer.plain for answer in answers):
        tags = {answer.tag for answer in answers}
        for tag in replies:
            if tag not in tags:
                yield script.finding_in_header(
                    "reply", "REPLY", tag, f"the script never returns {tag!r}: return it, or remove it from the header"
                )


def _wrong(script: CheckedScript, answers: list[Answer]) -> Iterator[Finding]:
    """Yield the answers that the header does not list, or with other fields."""
    replies, untagged = script.header.replies, script.header.untagged
    for answer in answers:
        if answer.tag is not None and answer.tag not in replies and replies:
            yield script.finding(
                "reply",
                answer.node,
                f"the header lists no reply {answer.tag!r}: add a line -- REPLY {answer.tag}, or correct the tag",
            )
        elif answer.tag in replies and answer.fields is not None and answer.fields != len(replies[answer.tag]):
            names = " ".join(replies[answer.tag]) or "none"
            yield script.finding(
                "reply",
                answer.node,
                f"the reply {answer.tag!r} has {_fields(answer.fields)} here, "
                f"and the header names {_fields(len(replies[answer.tag]))}: {names}",
            )
        elif answer.tag is None and answer.plain and not untagged:
            yield script.finding(
                "reply",
                answer.node,
                "the header does not list this reply: return a table that begins with one of its tags, "
                "or add a line -- REPLY - that describes it",
            )


def _fields(count: int) -> str:
    return f"{count or 'no'} field{'s' * (count != 1)}"


def _answers(script: CheckedScript, node: Node, value: Node | None, depth: int = 0) -> Iterator[Answer]:
    """Yield the values that a return statement may return."""
    if value is None or value.kind in ("nil", "false", "true"):
        yield Answer(node, None, None)
        return
    if value.kind == "binary" and value.word in ("and", "or"):
        for side in ("left", "right") if value.word == "or" else ("right",):
            yield from _answers(script, node, value.one(side), depth)
        return
    function = script.scopes.function_of(value.one("callee")) if value.kind == "call" else None
    if function is not None and depth < 5:
        for inner in function.returns():
            yield from _answers(script, inner, next(iter(inner.many("values")), None), depth + 1)
        return
    for origin in script.flow.origins(value):
        if origin.kind == "value":
            yield _answer(script, node, origin.node, changed=origin.node is not value)
        else:
            yield Answer(node, None, None, plain=origin.kind in ("key", "argument"))


def _answer(script: CheckedScript, node: Node, value: Node, *, changed: bool) -> Answer:
    if value.kind == "call":
        called = script.flow.called(value)
        may_be_any = called.endswith((".error_reply", "pcall", ".decode", ".unpack")) or called == "error"
        return Answer(node, None, None, plain=bool(called) and not may_be_any)
    if value.kind != "table":
        return Answer(node, None, None)
    items = value.many("items")
    if any(item.many("key") and item.one("key").word == "err" for item in items):
        return Answer(node, None, None, plain=False)
    placed = [item.one("value") for item in items if not item.many("key")]
    tags = script.flow.constants(placed[0]) if placed else None
    if tags is None or len(tags) != 1:
        known = bool(placed) and placed[0].kind not in ("name", "index", "call", "vararg")
        return Answer(node, None, None, plain=known and not changed)
    count = len(placed) - 1 if not changed and _is_single(script, placed[-1]) else None
    return Answer(node, next(iter(tags)), count)


def _is_single(script: CheckedScript, value: Node) -> bool:
    """Return whether the last item of a table is a single value."""
    if value.kind == "vararg":
        return value.grouped
    if value.kind != "call" or value.grouped:
        return True
    called = script.flow.called(value)
    if called in SINGLE or called.startswith("math."):
        return True
    if called.startswith("string."):
        return called not in ("string.match", "string.find", "string.gsub", "string.byte")
    function: Function | None = script.scopes.function_of(value.one("callee"))
    return function is not None and all(
        len(node.many("values")) == 1 and node.many("values")[0].kind not in ("call", "vararg")
        for node in function.returns()
    )


def _always_returns(script: CheckedScript, block: Node) -> bool:
    """Return whether a block always returns or raises."""
    if not block.many("statements"):
        return False
    last = block.many("statements")[-1]
    match last.kind:
        case "call":
            return script.flow.called(last) == "error"
        case "do":
            return _always_returns(script, last.one("body"))
        case "while":
            return last.one("condition").kind == "true" and not any(node.kind == "break" for node in last.walk())
        case "if":
            has_else = not last.many("arms")[-1].many("condition")
            return has_else and all(_always_returns(script, arm.one("body")) for arm in last.many("arms"))
        case _:
            return last.kind == "return"


def _lost(script: CheckedScript, values: Values, value: Node) -> Iterator[Finding]:
    """Check a returned value for parts that the protocol drops."""
    if value.kind == "binary" and value.word in ("and", "or"):
        for side in ("left", "right") if value.word == "or" else ("right",):
            yield from _lost(script, values, value.one(side))
    elif value.kind in ("table", "name") and (tables := _tables(script, value)):
        for table in tables:
            yield from _lost_of_table(script, values, table)
    elif values.has_fraction(value):
        yield script.finding(
            "lossy-reply",
            value,
            "the server truncates numbers in a reply to integers: return math.floor(n) if that is intended, "
            "or a string, string.format('%.17g', n)",
        )


def _tables(script: CheckedScript, value: Node) -> list[Node]:
    """Return the constructors of the tables that a value may be."""
    return [
        origin.node for origin in script.flow.origins(value) if origin.kind == "value" and origin.node.kind == "table"
    ]


def _lost_of_table(script: CheckedScript, values: Values, table: Node) -> Iterator[Finding]:
    items = table.many("items")
    named = [item for item in items if item.many("key") and item.one("key").kind == "string"]
    if named and not any(item.one("key").word in MEANT for item in named):
        yield script.finding(
            "lossy-reply",
            named[0],
            f"a reply has no named fields, so the server drops {named[0].one('key').word!r}: return a list, or cjson.encode(...)",
        )
    placed = [item.one("value") for item in items if not item.many("key")]
    for place, item in enumerate(placed):
        if item.kind == "nil" and place < len(placed) - 1:
            yield script.finding(
                "lossy-reply", item, "a reply ends before the first nil: write false, which is returned as nil"
            )
        if not named:
            yield from _lost(script, values, item)
