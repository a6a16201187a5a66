"""The header and the code: the names of KEYS and ARGV, and their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from handfast_lint.findings import Finding
from handfast_lint.parsing import Node
from handfast_lint.scopes import Variable
from handfast_lint.script import CheckedScript, Passed

__all__ = ["RULES", "check"]

RULES = {
    "header-name": "A local for one of KEYS or ARGV has its name in the header.",
    "header-count": "The script uses only the KEYS and ARGV that the header names.",
    "unused": "The script uses every key and argument that the header names.",
}

NOUNS = {"KEYS": "key", "ARGV": "argument"}
CONVERTING = ("tonumber", "tostring", "assert")


def check(script: CheckedScript) -> Iterator[Finding]:
    """Compare the header with the code. Yields nothing if the header declares no KEYS and ARGV."""
    header = script.header
    if not header.declares:
        return
    for table, names, more in (("KEYS", header.keys, header.more_keys), ("ARGV", header.args, header.more_args)):
        uses = [passed for passed in script.passed if passed.table == table]
        single = names[:-1] if more else names
        yield from _names(script, table, single, uses)
        if not more:
            yield from _count(script, table, len(names), uses)
        yield from _unused(script, table, names, uses, more=more)


def _names(script: CheckedScript, table: str, names: tuple[str, ...], uses: list[Passed]) -> Iterator[Finding]:
    """Check names.

    A key or argument may have several locals, such as a string and its number: one must have its name.
    """
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
            yield script.finding(
                "header-name",
                locals_[0],
                f"{table}[{place}] is {locals_[0].word!r} here and {wanted!r} in the header: use one name, or correct the order",
            )


def _count(script: CheckedScript, table: str, count: int, uses: list[Passed]) -> Iterator[Finding]:
    beyond = [passed for passed in uses if passed.place is not None and passed.place > count]
    if beyond:
        first = beyond[0]
        yield script.finding(
            "header-count",
            first.node,
            f"{table}[{first.place}] is used, but the header names {count or 'no'} {NOUNS[table]}{'s' * (count != 1)}: "
            f"name it there, in a line that begins with -- {table}",
        )


def _unused(
    script: CheckedScript, table: str, names: tuple[str, ...], uses: list[Passed], *, more: bool
) -> Iterator[Finding]:
    used = {passed.place for passed in uses if not _is_ignored(script, passed)}
    if None in used:
        return
    for place, name in enumerate(names, 1):
        rest = more and place == len(names)
        if place in used or (rest and any(one is not None and one >= place for one in used)):
            continue
        yield script.finding_in_header(
            "unused",
            table,
            name,
            f"the script never uses the {NOUNS[table]} {name!r}: use it, or remove it from the header",
        )


def _is_ignored(script: CheckedScript, passed: Passed) -> bool:
    """Return whether it is only assigned to a local that is never read."""
    name = _local_for(passed.node)
    variable: Variable | None = script.scopes.variable(name) if name else None
    return variable is not None and not variable.reads


def _local_for(passed: Node) -> Node | None:
    """Return the local that is assigned just this, perhaps as a number or with a default."""
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
    """Return the locals of ``local a, b = unpack(KEYS)``."""
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
