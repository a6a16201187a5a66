"""Writes before a check.

A script is atomic, but never rolled back: its writes before a failure stay. A check here is an `assert`, or an `if`
whose branch returns or raises an error (`redis.error_reply`, ``{err = ...}``, `error`), and which could come first
because it does not depend on the reply of a write. Ignored are cleanup writes, branches that write before they return,
because they undo, and replies such as false or 0, because many scripts write first and reply so.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast_lint.commands import CLEANUP, WRITING
from handfast_lint.findings import Finding
from handfast_lint.parsing import Node
from handfast_lint.scopes import owner
from handfast_lint.script import CheckedScript

__all__ = ["RULES", "check"]

RULES = {"write-before-check": "All checks precede the first write, because scripts are never rolled back."}

LOOPS = ("while", "repeat", "count", "each")


def check(script: CheckedScript) -> Iterator[Finding]:
    """Yield one warning for each write before a check."""
    order = _Order(script)
    reported: set[Node] = set()
    for leave in script.nodes:
        write = next((write for write in order.writes_before(leave) if write not in reported), None)
        if write is not None:
            reported.add(write)
            yield script.finding(
                "write-before-check",
                write,
                f"this writes before the check on line {order.line_of(leave)}{_iteration(write, leave)}, and the write stays "
                "if the check fails: check first, write last",
                "warning",
            )


def _iteration(write: Node, leave: Node) -> str:
    return " in the next iteration" if write.line > leave.line else ""


class _Order:
    """The writes and the checks of a script, and their order."""

    def __init__(self, script: CheckedScript) -> None:
        self._script = script
        self._writers: dict[Node, bool] = {}

    def _is_failure(self, node: Node) -> bool:
        """Return whether a node ends the script with an error, or may do so."""
        if node.kind == "call":
            is_statement = node.parent is not None and node.parent.kind == "block"
            return is_statement and self._script.flow.called(node) in ("error", "assert")
        return node.kind == "return" and any(map(self._is_error, node.many("values")[:1]))

    def writes_before(self, leave: Node) -> list[Node]:
        """Return the writes that precede a failing check; an empty list if the node is not a check, or is ignored."""
        if not self._is_failure(leave):
            return []
        guards, branch = self._guards(leave)
        if (
            not guards
            or self._writes_in(branch, before=leave)
            or any(self._depends_on_write(guard) for guard in guards)
        ):
            return []
        return [write for write in self._earlier(leave) if not self._is_cleanup(write)]

    def line_of(self, leave: Node) -> int:
        """Return the line of the check that ends the script at this node."""
        guards, _ = self._guards(leave)
        return guards[-1].line

    def _is_error(self, value: Node) -> bool:
        if value.kind == "table":
            return any(item.many("key") and item.one("key").word == "err" for item in value.many("items"))
        return self._script.flow.called(value).endswith(".error_reply")

    def _guards(self, leave: Node) -> tuple[list[Node], Node | None]:
        """Return the conditions of a check, and its branch."""
        if leave.kind == "call" and self._script.flow.called(leave) == "assert":
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
        """Return whether a call writes, itself or through a function of the script."""
        if any(command.name in WRITING for command in self._script.sent_by(call)):
            return True
        function = self._script.scopes.function_of(call.one("callee"))
        if function is None:
            return False
        if function.node not in self._writers:
            self._writers[function.node] = False  # in progress: it may call itself
            self._writers[function.node] = any(
                self._writes(node) for node in function.node.walk() if node.kind == "call"
            )
        return self._writers[function.node]

    def _is_cleanup(self, call: Node) -> bool:
        sent = self._script.sent_by(call)
        return bool(sent) and all(command.name in CLEANUP for command in sent)

    def _depends_on_write(self, guard: Node) -> bool:
        """Return whether a condition depends on the reply of a write."""
        return any(self._writes(node) for node in self._script.flow.made_of(guard) if node.kind == "call")

    def _earlier(self, leave: Node) -> Iterator[Node]:
        """Yield the writes that may precede a node, in the order of the source."""
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
        """Yield the writes of a statement, without branches that end the script."""
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
