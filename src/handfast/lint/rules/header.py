"""The header against the body: what it calls KEYS and ARGV, and how many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from handfast.lint.findings import Finding
from handfast.lint.parsing import Node
from handfast.lint.scopes import Variable
from handfast.lint.script import Body, Passed

__all__ = ["RULES", "check"]

RULES = {
    "header-name": "A local that holds one of KEYS or ARGV is called what the header calls it.",
    "header-count": "The body uses no more KEYS and ARGV than the header names.",
    "unused": "What the header names is used.",
}

WHAT = {"KEYS": "key", "ARGV": "argument"}
CONVERTING = ("tonumber", "tostring", "assert")


def check(body: Body) -> Iterator[Finding]:
    """All that the header and the first lines disagree on. Without KEYS and ARGV in the header, nothing."""
    header = body.header
    if not header.declares:
        return
    for table, names, more in (("KEYS", header.keys, header.more_keys), ("ARGV", header.args, header.more_args)):
        uses = [passed for passed in body.passed if passed.table == table]
        single = names[:-1] if more else names
        yield from _names(body, table, single, uses)
        if not more:
            yield from _count(body, table, len(names), uses)
        yield from _unused(body, table, names, uses, more=more)


def _names(body: Body, table: str, names: tuple[str, ...], uses: list[Passed]) -> Iterator[Finding]:
    """A place may have several locals, such as the text and the number made of it: one of them has its name."""
    held: dict[int, list[Node]] = defaultdict(list)
    for passed in uses:
        if passed.place is not None and passed.place <= len(names) and (name := _local_for(passed.node)):
            held[passed.place].append(name)
        elif passed.place is None:
            for place, name in enumerate(_unpacked_into(passed.node)[: len(names)], 1):
                held[place].append(name)
    for place, locals_ in held.items():
        wanted = names[place - 1]
        if all(name.word != wanted for name in locals_):
            yield body.finding(
                "header-name",
                locals_[0],
                f"{table}[{place}] is {locals_[0].word!r} here and {wanted!r} in the header: give it one name, or mend the order",
            )


def _count(body: Body, table: str, count: int, uses: list[Passed]) -> Iterator[Finding]:
    beyond = [passed for passed in uses if passed.place is not None and passed.place > count]
    if beyond:
        first = beyond[0]
        yield body.finding(
            "header-count",
            first.node,
            f"{table}[{first.place}] is used, but the header names {count or 'no'} {WHAT[table]}{'s' * (count != 1)}: "
            f"name it there, in a line that begins with -- {table}",
        )


def _unused(body: Body, table: str, names: tuple[str, ...], uses: list[Passed], *, more: bool) -> Iterator[Finding]:
    used = {passed.place for passed in uses if not _is_idle(body, passed)}
    if None in used:
        return
    for place, name in enumerate(names, 1):
        rest = more and place == len(names)
        if place in used or (rest and any(one is not None and one >= place for one in used)):
            continue
        yield body.finding_in_header(
            "unused",
            table,
            name,
            f"the script never uses the {WHAT[table]} {name!r}: use it, or take it out of the header",
        )


def _is_idle(body: Body, passed: Passed) -> bool:
    """Whether it is only put into a local that nobody reads."""
    name = _local_for(passed.node)
    variable: Variable | None = body.scopes.variable(name) if name else None
    return variable is not None and not variable.reads


def _local_for(passed: Node) -> Node | None:
    """The local that is given just this, perhaps as a number or with a default."""
    node, around = passed, passed.parent
    while around is not None and around.kind != "local":
        is_call = (
            around.kind == "call" and around.many("arguments")[:1] == [node] and _is_converting(around.one("callee"))
        )
        is_default = around.kind == "binary" and around.word == "or" and around.one("left") is node
        if not is_call and not is_default:
            return None
        node, around = around, around.parent
    if around is None:
        return None
    place = around.many("values").index(node)
    names = around.many("names")
    return names[place] if place < len(names) else None


def _unpacked_into(table: Node) -> list[Node]:
    """The locals of ``local a, b = unpack(KEYS)``."""
    call = table.parent
    if call is None or call.kind != "call" or call.one("callee").word != "unpack" or call.many("arguments") != [table]:
        return []
    around = call.parent
    if around is None or around.kind != "local" or around.many("values")[-1] is not call:
        return []
    return around.many("names")[len(around.many("values")) - 1 :]


def _is_converting(callee: Node) -> bool:
    if callee.kind == "index":
        return callee.one("base").word in ("math", "string")
    return callee.word in CONVERTING
