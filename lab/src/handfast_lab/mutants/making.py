"""Make mutants: copies of a script with one small mistake each. This module knows no tests and no server.

The kinds of mutants:

    comparison   ``<`` and ``<=``, ``>`` and ``>=``, ``==`` and ``~=`` in place of each other
    condition    the condition of an ``if`` is always true, or never
    logic        one side of an ``and`` or ``or`` on its own; no ``not``; ``true`` for ``false``
    arithmetic   ``+`` and ``-``, ``*`` and ``/`` in place of each other; ``math.max`` or ``math.min`` without an argument
    constant     a number plus or minus 1; from 2,000 on 0, or twice the number
    text         another reply tag, field, option, range limit, compared text or sent text; a format without its last number
    command      a similar command, such as ZREVRANGE for ZRANGE, or call for pcall
    drop         no call, assignment or break
    key          another key of the script in a call, or another element of KEYS
    argument     0 for an argument or a packed number; a text that is not converted to a number
    answer       0 or nil as the value that a script or a function returns

Not made, because a mutant above is harder to kill, or because it would prove nothing:

- ``and`` for ``or``, and ``math.min`` for ``math.max``: a test that kills one side on its own kills them too;
- an ``and`` that is always true, an ``or`` that is never true: the same;
- ``==`` for ``~=``, and no ``not``, as a whole condition: killed with the condition that is always or never true;
- an operator, an argument or a field whose operands are numbers or calls that have mutants of their own;
- a number in a condition that compares with ``==``: killed with the condition that is never true;
- 0 as the argument of a reading command: killed with the uses of its reply;
- another element of ARGV, or one that is not converted to a number: ``tools/check_scripts.py`` finds it;
- a hash in place of a sorted set, which is an error wherever the line runs; an endless ``while``; an invalid format;
- plus or minus 1 for durations of seconds to days, and minus 1 in a subscript;
- patterns; and in a call with the empty text, a member that does not exist, all mutants but those of the call and its
  options.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from handfast_lint.parsing import Node, build, parse

__all__ = ["FOLDERS", "ROOT", "Mutant", "make", "mutants_of", "scripts"]

ROOT = Path(__file__).parents[4]

FOLDERS = {
    "": "src/handfast/_engine/lua",
    "lib/": "src/handfast/_engine/lua/lib",
    "compat/": "src/handfast/compat/lua",
    "fencing/": "src/handfast/fencing/lua",
    "classic/": "src/handfast/classic/lua",
    "marketplace/": "examples/marketplace/lua",
}
"""The folders of the scripts, by the prefix of their names here."""

MANY = 2000
"""From here on a number is a duration or a distant limit, and a test cannot observe a difference of 1."""

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}

RELATIVES = {
    "DECRBY": "INCRBY",
    "EXISTS": "DEL",
    "GET": "GETDEL",
    "HINCRBY": "HSET",
    "HSET": "HSETNX",
    "INCRBY": "DECRBY",
    "PEXPIRE": "EXPIRE",
    "PTTL": "TTL",
    "SADD": "SREM",
    "SETEX": "PSETEX",
    "SISMEMBER": "SREM",
    "SREM": "SADD",
    "ZCOUNT": "ZREMRANGEBYSCORE",
    "ZPOPMIN": "ZPOPMAX",
    "ZRANGE": "ZREVRANGE",
    "ZRANGEBYSCORE": "ZREVRANGEBYSCORE",
    "ZRANK": "ZREVRANK",
}
"""Similar commands. HSET is replaced only if it sets one field."""

OPTIONS = {"NX": "XX", "XX": "NX", "GT": "LT", "PX": "EX", "EX": "PX", "-inf": "+inf", "+inf": "-inf"} | {
    "%.0f": "%.13g",
    "(%.0f": "%.0f",
    "(": "[",
    "[": "(",
}
WRITES = {
    "DECRBY",
    "DEL",
    "HDEL",
    "HINCRBY",
    "HSET",
    "INCRBY",
    "PEXPIRE",
    "PUBLISH",
    "SADD",
    "SET",
    "SETEX",
    "SREM",
} | {
    "ZADD",
    "ZPOPMIN",
    "ZREM",
    "ZREMRANGEBYSCORE",
}
LEFT_OUT = ("CH", "WITHSCORES")
"""Options that a call may omit."""
KEPT = ("LIMIT", "NUMSUB")
"""Words without which a call is an error."""

OURS = {"state", "tokens"}
"""Names of the keys of a name in the engine's scripts: a hash and a sorted set, so there is no other one for a call."""

BUILT_IN = {"tonumber", "unpack", "ipairs", "math", "string", "struct", "redis", "type"}
PACKING = {"struct.pack", "struct.unpack"}
SHOWN, SIDE = 80, 24
"""Number of characters of a line, and of an operand, in the name of a mutant."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A script with one mistake."""

    name: str
    """A stable name: the script, the line, the original and the replacement."""
    script: str
    """Name of the file, as in `scripts`."""
    kind: str
    text: str
    """The whole file with the mistake."""

    def diff(self) -> str:
        """Return the change as a patch."""
        path = scripts()[self.script]
        old, new = path.read_text(encoding="utf-8").splitlines(), self.text.splitlines()
        return "\n".join(difflib.unified_diff(old, new, self.script, self.name, n=2, lineterm=""))


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of a part of the text. Without a description the part is left out."""

    kind: str
    start: int
    end: int
    new: str
    description: str = ""


def scripts() -> dict[str, Path]:
    """Return the paths of all Lua files that we ship, by name."""
    return {
        prefix + path.stem: path for prefix, folder in FOLDERS.items() for path in sorted((ROOT / folder).glob("*.lua"))
    }


def make() -> list[Mutant]:
    """Return all mutants of all scripts, in the order of the text."""
    return [mutant for name, path in scripts().items() for mutant in mutants_of(name, path.read_text(encoding="utf-8"))]


def mutants_of(script: str, source: str) -> list[Mutant]:
    """Return all mutants of one file."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    texts = {source}
    for edit in _Mutator(source).edits():
        text = source[: edit.start] + edit.new + source[edit.end :]
        if text in texts:
            continue
        texts.add(text)
        name = f"{script}: {_line(source, edit.start)}: {edit.description or 'left out'}"
        seen[name] += 1
        name += f" #{seen[name]}" if seen[name] > 1 else ""
        found.append(Mutant(name, script, edit.kind, text))
    return found


def _line(source: str, start: int) -> str:
    """Return the code of the line at this position, without comments."""
    first = source.rfind("\n", 0, start) + 1
    line = source[first : source.find("\n", start)]
    return _short(re.sub(r"\s+--.*", "", line))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class _Mutator:
    """Finds the possible edits of one file."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = [0]
        for line in source.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._tree = build(parse(source), source).block
        names = {name for node in self._tree.walk() if node.kind == "local" for name in self._named_keys(node)}
        used = re.search(r"^-- USES(.*)$", source, re.MULTILINE)
        self._keys = names or set((used[1] if used else "").split()) & OURS
        self._tags = {node.word for node in self._tree.walk() if self._is_tag(node)}

    def edits(self) -> Iterator[Edit]:
        """Yield all edits, in the order of the text."""
        for node in self._tree.walk():
            yield from getattr(self, f"_of_{node.kind.replace(' ', '_')}", lambda _: ())(node)

    # --- expressions

    def _of_binary(self, node: Node) -> Iterator[Edit]:
        left, right = node.one("left"), node.one("right")
        if node.word in ("and", "or"):
            yield self._edit("logic", node, self._whole(left))
            yield self._edit("logic", node, self._whole(right))
        elif node.word in COMPARISONS and not (node.word in ("==", "~=") and self._is_condition(node)):
            yield self._swapped("comparison", left, node.word, COMPARISONS[node.word], right)
        elif node.word in ARITHMETIC and not (node.word in "+-" and right.kind == "number"):
            yield self._swapped("arithmetic", left, node.word, ARITHMETIC[node.word], right)

    def _swapped(self, kind: str, left: Node, old: str, new: str, right: Node) -> Edit:
        """Return the edit that replaces the operator between two operands."""
        between = self._source[self._end(left) : self._start(right)]
        start = self._end(left) + between.index(old)
        sides = f"{' '.join(left.text.split())[-SIDE:]} {{}} {' '.join(right.text.split())[:SIDE]}"
        return Edit(kind, start, start + len(old), new, f"{sides.format(old)} -> {new}")

    def _of_unary(self, node: Node) -> Iterator[Edit]:
        operand = node.one("operand")
        if node.word == "not" and not self._is_condition(node):
            yield self._edit("logic", node, self._whole(operand))
        if node.word == "-" and operand.kind == "number":
            for other in (1 - int(operand.word), -1 - int(operand.word)):
                yield self._edit("constant", node, str(other))

    def _of_number(self, node: Node) -> Iterator[Edit]:
        above = node.parent
        if above is not None and (
            (above.kind == "unary" and above.word == "-")
            or (above.kind == "count" and above.one("name").word == "_" and node.word == "1")
            or self._has_no_member(above)
        ):
            return
        if "." in node.word:  # a fraction, which matters as a whole
            yield self._edit("constant", node, "0")
            return
        number = int(node.word)
        if above is not None and above.kind == "index" and above.one("base").word in ("KEYS", "ARGV"):
            last = max(map(int, re.findall(r"KEYS\[(\d+)\]", self._source)), default=0)
            if (
                above.one("base").word == "KEYS"
                and last > 1
                and not (above.parent and self._has_no_member(above.parent))
            ):
                yield self._edit("key", above, f"KEYS[{number + 1 if number < last else number - 1}]")
            return
        if above is not None and above.kind == "binary" and above.word == "==" and self._is_condition(above):
            return
        if self._is_subscript(node):
            others = [number + 1]
        elif number >= MANY and number != 1_000_000:
            others = [0, 2 * number]
        elif number == 1 and above is not None and above.kind == "binary" and above.word in COMPARISONS:
            others = [0]
        else:
            others = [number + 1] if number == 0 else [number - 1, number + 1]
        step = above is not None and above.kind == "count" and above.many("range")[2:] == [node]
        for other in others:
            if not (step and other == 0):
                yield self._edit("constant", node, str(other))

    def _of_string(self, node: Node) -> Iterator[Edit]:
        above = node.parent
        if above is None or above.kind == "index":
            return
        if above.kind == "item" and above.many("key") == [node]:
            return
        if self._asks_server(above) and above.many("arguments")[0] is node:
            other = RELATIVES.get(node.word)
            if other is not None and (node.word != "HSET" or len(above.many("arguments")) == 4):
                yield self._edit("command", node, f"'{other}'")
        elif node.word in LEFT_OUT:
            start = self._source.rindex(",", 0, self._start(node))
            yield Edit("text", start, self._end(node), "", f"{node.text} left out")
        elif node.word in OPTIONS:
            yield self._edit("text", node, f"'{OPTIONS[node.word]}'")
        elif above.kind == "call" and above.one("callee").text in PACKING:
            if re.fullmatch(r"<?[dBc0]+d", node.word):
                yield self._edit("text", node, f"'{node.word[:-1]}'")
        elif self._is_tag(node):
            others = sorted(self._tags - {node.word})
            yield self._edit("text", node, f"'{others[0] if others else 'other'}'")
        elif node.word == "":
            if above.kind == "item" or (above.kind == "binary" and above.word != "or"):
                yield self._edit("text", node, "'x'")
        elif "%" not in node.word and node.word not in KEPT:
            yield self._edit("text", node, "'x'")

    def _of_true(self, node: Node) -> Iterator[Edit]:
        yield self._edit("logic", node, "false")

    def _of_false(self, node: Node) -> Iterator[Edit]:
        yield self._edit("logic", node, "true")

    def _of_index(self, node: Node) -> Iterator[Edit]:
        if node.text == "math.huge":
            yield self._edit("constant", node, "0")

    def _of_call(self, node: Node) -> Iterator[Edit]:
        callee, arguments = node.one("callee"), node.many("arguments")
        if node.parent is not None and node.parent.kind == "block":
            yield self._dropped(node)
        if callee.text in ("math.max", "math.min"):
            yield from self._of_extreme(node)
        elif callee.text == "tonumber" and not arguments[0].text.startswith("ARGV"):
            yield self._edit("argument", node, self._whole(arguments[0]))
        elif self._asks_server(node):
            if callee.text == "redis.pcall":
                yield self._edit("command", callee, "redis.call")
            yield from self._of_arguments(arguments[1:], writes=arguments[0].word in WRITES)
        elif callee.text == "struct.pack":
            yield from self._of_arguments(arguments[1:])
        elif callee.text.split(".")[0] not in BUILT_IN:
            yield from self._of_arguments(arguments)

    def _of_extreme(self, node: Node) -> Iterator[Edit]:
        """Yield the edits of math.max and math.min."""
        callee, arguments = node.one("callee"), node.many("arguments")
        for left_out in arguments:
            rest = ", ".join(self._whole(argument) for argument in arguments if argument is not left_out)
            yield self._edit("arithmetic", node, f"{callee.text}({rest})" if len(arguments) > 2 else f"({rest})")

    def _of_arguments(self, arguments: list[Node], *, writes: bool = True) -> Iterator[Edit]:
        for argument in arguments:
            if argument.kind == "name" and argument.word in self._keys:
                yield from self._of_key(argument)
            elif writes and argument.kind in ("name", "index") and not argument.text.startswith("KEYS["):
                yield self._edit("argument", argument, "0")

    def _of_key(self, node: Node) -> Iterator[Edit]:
        call = node.parent
        others = sorted(self._keys - {node.word})
        if call is None or not others or self._has_no_member(call) or (self._keys & OURS and self._asks_server(call)):
            return
        following = [key for key in others if key > node.word]
        yield self._edit("key", node, (following or others)[0])

    # --- statements

    def _of_assign(self, node: Node) -> Iterator[Edit]:
        yield self._dropped(node)

    def _of_break(self, node: Node) -> Iterator[Edit]:
        yield self._dropped(node)

    def _of_arm(self, node: Node) -> Iterator[Edit]:
        for condition in node.many("condition"):
            if condition.word != "and":
                yield self._edit("condition", condition, "true")
            if condition.word != "or":
                yield self._edit("condition", condition, "false")

    def _of_while(self, node: Node) -> Iterator[Edit]:
        yield self._edit("condition", node.one("condition"), "false")

    def _of_return(self, node: Node) -> Iterator[Edit]:
        for value in node.many("values"):
            if value.kind == "table":
                for item in value.many("items"):
                    field = item.one("value")
                    if field.kind not in ("string", "number", "binary", "unary"):
                        yield self._edit("answer", field, "0")
            elif value.kind not in ("number", "true", "false", "binary"):
                yield self._edit("answer", value, "nil")

    # --- helpers

    def _start(self, node: Node) -> int:
        return self._lines[node.line - 1] + node.column - 1

    def _end(self, node: Node) -> int:
        return self._start(node) + len(node.text)

    def _edit(self, kind: str, node: Node, new: str) -> Edit:
        return Edit(kind, self._start(node), self._end(node), new, f"{_short(node.text)} -> {_short(new)}")

    def _dropped(self, node: Node) -> Edit:
        return Edit("drop", self._start(node), self._end(node), "")

    def _whole(self, node: Node) -> str:
        return f"({node.text})" if node.grouped else node.text

    def _is_condition(self, node: Node) -> bool:
        above = node.parent
        return above is not None and above.kind in ("arm", "while") and node in above.many("condition")

    def _is_subscript(self, node: Node) -> bool:
        above = node.parent
        if above is not None and above.kind == "binary":
            node, above = above, above.parent
        return above is not None and above.kind == "index" and above.many("key") == [node]

    def _asks_server(self, node: Node) -> bool:
        return node.kind == "call" and node.one("callee").text in ("redis.call", "redis.pcall")

    def _has_no_member(self, node: Node) -> bool:
        """Return whether the node is a call with a member that does not exist: the empty text, or a space.

        In a sorted set of the engine the empty text is the last member.
        """
        arguments = node.many("arguments")
        if not self._asks_server(node) or arguments[-1].kind != "string" or arguments[-1].word.strip():
            return False
        return not (len(arguments) > 2 and arguments[-2].word == "+inf")

    def _is_tag(self, node: Node) -> bool:
        """Return whether the node is the tag of a reply: the first item of a table, or the text before its numbers."""
        above = node.parent
        if node.kind != "string" or above is None:
            return False
        if above.kind == "item":
            table = above.parent
            is_first = table is not None and table.many("items")[0] is above and above.one("value") is node
            return is_first and table is not None and table.parent is not None and table.parent.kind == "return"
        if above.kind == "binary" and above.word == ".." and above.one("left") is node:
            above = above.parent
        return above is not None and above.kind == "return" and " " in node.word

    def _named_keys(self, node: Node) -> Iterator[str]:
        for name, value in zip(node.many("names"), node.many("values"), strict=False):
            if value.kind == "index" and value.one("base").text == "KEYS":
                yield name.word
