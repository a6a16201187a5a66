"""What the script returns against the replies that its header lists, and what of a reply never reaches the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from handfast.lint.findings import Finding
from handfast.lint.flow import CALLS
from handfast.lint.parsing import Node
from handfast.lint.scopes import Function, owner
from handfast.lint.script import Body
from handfast.lint.values import Values

__all__ = ["RULES", "check"]

RULES = {
    "reply": "The script answers what its header lists under REPLY, and all of it.",
    "lossy-reply": "No reply has what the protocol drops: a fraction, what follows a nil, items with names.",
}

SINGLE = (*CALLS, "tonumber", "tostring", "type", "table.concat", "cjson.encode", "cjson.decode")
MEANT = {"ok", "err", "double", "map", "set", "big_number", "verbatim_string", "format", "string", "warnings"}
"""Names that a table is returned with on purpose: a status, an error, the types of RESP3."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One value that the script may return."""

    node: Node
    """Where it is returned."""
    tag: str | None
    """None where it is no tagged array."""
    fields: int | None
    """How many follow the tag; None where that cannot be told."""
    plain: bool = True
    """Whether it is known what it is, and that it is neither an error nor a table from elsewhere."""


def check(body: Body) -> Iterator[Finding]:
    """First the header, then the values."""
    returned = [(node, next(iter(node.many("values")), None)) for node in _returns(body)]
    if body.header.replies or body.header.in_words:
        yield from _against_header(body, [answer for node, value in returned for answer in _answers(body, node, value)])
    values = Values(body)
    for _, value in returned:
        if value is not None:
            yield from _lost(body, values, value)


def _returns(body: Body) -> list[Node]:
    return [node for node in body.nodes if node.kind == "return" and owner(node) is None]


def _against_header(body: Body, answers: list[Answer]) -> Iterator[Finding]:
    replies, in_words = body.header.replies, body.header.in_words
    for answer in answers:
        if answer.tag is not None and answer.tag not in replies and replies:
            yield body.finding(
                "reply",
                answer.node,
                f"the header lists no reply {answer.tag!r}: add a line -- REPLY {answer.tag}, or mend the tag",
            )
        elif answer.tag in replies and answer.fields is not None and answer.fields != len(replies[answer.tag]):
            names = " ".join(replies[answer.tag]) or "none"
            yield body.finding(
                "reply",
                answer.node,
                f"the reply {answer.tag!r} has {_fields(answer.fields)} here, "
                f"and the header names {_fields(len(replies[answer.tag]))}: {names}",
            )
        elif answer.tag is None and answer.plain and not in_words:
            yield body.finding(
                "reply",
                answer.node,
                "this reply is none of those that the header lists: return a table that begins with one of its tags, "
                "or add a line -- REPLY - that says what it means",
            )
    if replies and not in_words and not _always_returns(body, body.block):
        last = (body.block.many("statements") or [body.block])[-1]
        yield body.finding(
            "reply", last, "the script may end here without a reply: return one, or add a line -- REPLY - that says so"
        )
    if all(answer.tag is not None or answer.plain for answer in answers):
        tags = {answer.tag for answer in answers}
        for tag in replies:
            if tag not in tags:
                yield body.finding_in_header(
                    "reply", "REPLY", tag, f"the script never answers {tag!r}: return it, or take it out of the header"
                )


def _fields(count: int) -> str:
    return f"{count or 'no'} field{'s' * (count != 1)}"


def _answers(body: Body, node: Node, value: Node | None, depth: int = 0) -> Iterator[Answer]:
    """What one return may answer."""
    if value is None or value.kind in ("nil", "false", "true"):
        yield Answer(node, None, None)
        return
    if value.kind == "binary" and value.word in ("and", "or"):
        for side in ("left", "right") if value.word == "or" else ("right",):
            yield from _answers(body, node, value.one(side), depth)
        return
    function = body.scopes.function_of(value.one("callee")) if value.kind == "call" else None
    if function is not None and depth < 5:
        for inner in function.returns():
            yield from _answers(body, inner, next(iter(inner.many("values")), None), depth + 1)
        return
    for origin in body.flow.origins(value):
        if origin.kind == "value":
            yield _answer(body, node, origin.node, changed=origin.node is not value)
        else:
            yield Answer(node, None, None, plain=origin.kind in ("key", "argument"))


def _answer(body: Body, node: Node, value: Node, *, changed: bool) -> Answer:
    if value.kind == "call":
        called = body.flow.called(value)
        may_be_any = called.endswith((".error_reply", "pcall", ".decode", ".unpack")) or called == "error"
        return Answer(node, None, None, plain=bool(called) and not may_be_any)
    if value.kind != "table":
        return Answer(node, None, None)
    items = value.many("items")
    if any(item.many("key") and item.one("key").word == "err" for item in items):
        return Answer(node, None, None, plain=False)
    placed = [item.one("value") for item in items if not item.many("key")]
    tags = body.flow.constants(placed[0]) if placed else None
    if tags is None or len(tags) != 1:
        known = bool(placed) and placed[0].kind not in ("name", "index", "call", "vararg")
        return Answer(node, None, None, plain=known and not changed)
    count = len(placed) - 1 if not changed and _is_single(body, placed[-1]) else None
    return Answer(node, next(iter(tags)), count)


def _is_single(body: Body, value: Node) -> bool:
    """Whether the last item of a table is one value only."""
    if value.kind == "vararg":
        return value.grouped
    if value.kind != "call" or value.grouped:
        return True
    called = body.flow.called(value)
    if called in SINGLE or called.startswith("math."):
        return True
    if called.startswith("string."):
        return called not in ("string.match", "string.find", "string.gsub", "string.byte")
    function: Function | None = body.scopes.function_of(value.one("callee"))
    return function is not None and all(
        len(node.many("values")) == 1 and node.many("values")[0].kind not in ("call", "vararg")
        for node in function.returns()
    )


def _always_returns(body: Body, block: Node) -> bool:
    """Whether a block never comes to its end."""
    if not block.many("statements"):
        return False
    last = block.many("statements")[-1]
    match last.kind:
        case "call":
            return body.flow.called(last) == "error"
        case "do":
            return _always_returns(body, last.one("body"))
        case "while":
            return last.one("condition").kind == "true" and not any(node.kind == "break" for node in last.walk())
        case "if":
            has_else = not last.many("arms")[-1].many("condition")
            return has_else and all(_always_returns(body, arm.one("body")) for arm in last.many("arms"))
        case _:
            return last.kind == "return"


def _lost(body: Body, values: Values, value: Node) -> Iterator[Finding]:
    """What of a returned value the protocol drops."""
    if value.kind == "binary" and value.word in ("and", "or"):
        for side in ("left", "right") if value.word == "or" else ("right",):
            yield from _lost(body, values, value.one(side))
    elif value.kind in ("table", "name") and (tables := _tables(body, value)):
        for table in tables:
            yield from _lost_of_table(body, values, table)
    elif values.has_fraction(value):
        yield body.finding(
            "lossy-reply",
            value,
            "the server cuts the fraction off a number that it replies: return math.floor(n) if that is meant, "
            "or a text, string.format('%.17g', n)",
        )


def _tables(body: Body, value: Node) -> list[Node]:
    """The constructors of the tables that a value is."""
    return [
        origin.node for origin in body.flow.origins(value) if origin.kind == "value" and origin.node.kind == "table"
    ]


def _lost_of_table(body: Body, values: Values, table: Node) -> Iterator[Finding]:
    items = table.many("items")
    named = [item for item in items if item.many("key") and item.one("key").kind == "string"]
    if named and not any(item.one("key").word in MEANT for item in named):
        yield body.finding(
            "lossy-reply",
            named[0],
            f"a reply has no names, so the server drops {named[0].one('key').word!r}: return a list, or cjson.encode(...)",
        )
    placed = [item.one("value") for item in items if not item.many("key")]
    for place, item in enumerate(placed):
        if item.kind == "nil" and place < len(placed) - 1:
            yield body.finding(
                "lossy-reply", item, "a reply ends before the first nil: write false, which the caller gets as nil"
            )
        if not named:
            yield from _lost(body, values, item)
