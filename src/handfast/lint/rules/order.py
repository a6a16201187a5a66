"""Writes that come before a check.

A script is atomic, but never rolled back: what it wrote before it failed stays. A check here is an `if` whose branch leaves
with an error, `redis.error_reply`, ``{err = ...}`` or `error`, or an `assert`. It is one that could have come first: it does
not depend on what a write answered. Not counted are writes that tidy up, branches that write themselves before they
leave, since they undo, and replies that only say "no", such as false or 0, since many scripts write and then say so.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast.lint.commands import TIDYING, WRITING
from handfast.lint.findings import Finding
from handfast.lint.parsing import Node
from handfast.lint.scopes import owner
from handfast.lint.script import Body

__all__ = ["RULES", "check"]

RULES = {"write-before-check": "Everything is checked before the first write, for nothing is ever rolled back."}

LOOPS = ("while", "repeat", "count", "each")


def check(body: Body) -> Iterator[Finding]:
    """One warning for each write that a check follows."""
    order = _Order(body)
    told: set[Node] = set()
    for leave in body.nodes:
        write = next((write for write in order.writes_before(leave) if write not in told), None)
        if write is not None:
            told.add(write)
            yield body.finding(
                "write-before-check",
                write,
                f"this writes before the check on line {order.line_of(leave)}{_turn(write, leave)}, and what is written stays "
                "when that fails: check first, write last",
                "warning",
            )


def _turn(write: Node, leave: Node) -> str:
    return " in the loop's next turn" if write.line > leave.line else ""


class _Order:
    """What writes, what leaves, and what comes before what."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._writers: dict[Node, bool] = {}

    def _is_failure(self, node: Node) -> bool:
        """Whether it leaves with an error, or may."""
        if node.kind == "call":
            is_statement = node.parent is not None and node.parent.kind == "block"
            return is_statement and self._body.flow.called(node) in ("error", "assert")
        return node.kind == "return" and any(map(self._is_error, node.many("values")[:1]))

    def writes_before(self, leave: Node) -> list[Node]:
        """The writes that may be done when a check leaves; none of what is no check, or is excused."""
        if not self._is_failure(leave):
            return []
        guards, branch = self._guards(leave)
        if (
            not guards
            or self._writes_in(branch, before=leave)
            or any(self._depends_on_write(guard) for guard in guards)
        ):
            return []
        return [write for write in self._earlier(leave) if not self._is_tidying(write)]

    def line_of(self, leave: Node) -> int:
        """Where the check begins that leaves there."""
        guards, _ = self._guards(leave)
        return guards[-1].line

    def _is_error(self, value: Node) -> bool:
        if value.kind == "table":
            return any(item.many("key") and item.one("key").word == "err" for item in value.many("items"))
        return self._body.flow.called(value).endswith(".error_reply")

    def _guards(self, leave: Node) -> tuple[list[Node], Node | None]:
        """The conditions on which it leaves, and the branch that it stands in."""
        if leave.kind == "call" and self._body.flow.called(leave) == "assert":
            return leave.many("arguments")[:1], None
        arm = next((above for above in leave.above() if above.kind in ("arm", "function")), None)
        if arm is None or arm.kind != "arm" or arm.parent is None:
            return [], None
        arms = arm.parent.many("arms")
        return [guard for one in arms[: arms.index(arm) + 1] for guard in one.many("condition")], arm.one("body")

    def _writes_in(self, branch: Node | None, before: Node) -> bool:
        if branch is None:
            return False
        return any(self._writes(node) for node in branch.walk() if node.kind == "call" and node.line <= before.line)

    def _writes(self, call: Node) -> bool:
        """Whether a call writes, itself or by a function of the script's own."""
        if any(command.name in WRITING for command in self._body.sent_by(call)):
            return True
        function = self._body.scopes.function_of(call.one("callee"))
        if function is None:
            return False
        if function.node not in self._writers:
            self._writers[function.node] = False  # while it is looked at: it may call itself
            self._writers[function.node] = any(
                self._writes(node) for node in function.node.walk() if node.kind == "call"
            )
        return self._writers[function.node]

    def _is_tidying(self, call: Node) -> bool:
        sent = self._body.sent_by(call)
        return bool(sent) and all(command.name in TIDYING for command in sent)

    def _depends_on_write(self, guard: Node) -> bool:
        """Whether a condition looks at what a write has answered."""
        return any(self._writes(node) for node in self._body.flow.made_of(guard) if node.kind == "call")

    def _earlier(self, leave: Node) -> Iterator[Node]:
        """The writes that may have been done when it leaves, in the order of the text."""
        inside = owner(leave)
        path = [leave, *leave.above()]
        blocks = [(above, path[place - 1]) for place, above in enumerate(path) if above.kind == "block" and place]
        for block, statement in reversed(blocks):
            if owner(statement) is not inside:
                continue
            statements = block.many("statements")
            place = statements.index(statement)
            again = block.parent is not None and block.parent.kind in LOOPS
            for other in statements if again else statements[:place]:
                if other is not statement:
                    yield from self._left_by(other)

    def _left_by(self, statement: Node) -> Iterator[Node]:
        """The writes of a statement, but for those on branches that leave the script."""
        waiting = [statement]
        while waiting:
            node = waiting.pop(0)
            if node.kind == "function":
                continue
            if node.kind == "block" and any(one.kind in ("return", "break") for one in node.many("statements")[-1:]):
                continue
            if node.kind == "call" and self._writes(node):
                yield node
            waiting[:0] = [child for part in node.parts.values() for child in part]
