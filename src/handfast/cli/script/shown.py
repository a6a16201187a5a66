"""Replies and lines of source, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from handfast._engine.header import Header

if TYPE_CHECKING:
    from handfast._engine.replies import Reply

__all__ = ["plain", "printable", "readable"]


def printable(text: str) -> str:
    """A text that moves no cursor, whatever stands in the file."""
    text = text.rstrip("\r").replace("\t", "    ")
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _items(reply: Reply, header: Header) -> dict[str, Any]:
    """The fields of a reply that the header lists."""
    return {name: getattr(reply, name) for name in header.replies[reply.tag]}


def plain(value: Any, header: Header) -> Any:
    """A reply as JSON has it: arrays, and texts, numbers and null in them."""
    from handfast._engine.replies import Reply

    match value:
        case Reply():
            return [value.tag, *(plain(field, header) for field in _items(value, header).values())]
        case bytes():
            return value.decode(errors="backslashreplace")
        case dict():
            return {str(plain(key, header)): plain(item, header) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item, header) for item in value]
        case _:
            return value


def readable(value: Any, header: Header) -> Iterator[str]:
    """A reply as redis-cli shows it; the fields of one that the header lists have their names."""
    from handfast._engine.replies import Reply

    match value:
        case Reply():
            yield value.tag
            fields = _items(value, header)
            width = max(map(len, fields), default=0)
            for name, field in fields.items():
                yield from _labelled(f"  {name:{width}}  ", field, header)
        case list() | tuple() | set() | frozenset():
            width = len(str(len(value)))
            for place, item in enumerate(value, 1):
                yield from _labelled(f"{place:{width}}) ", item, header)
            if not value:
                yield "(empty array)"
        case dict():
            for key, item in value.items():
                yield from _labelled(f"{' '.join(readable(key, header))} => ", item, header)
            if not value:
                yield "(empty hash)"
        case _:
            yield _single(value)


def _labelled(label: str, value: Any, header: Header) -> Iterator[str]:
    first, *rest = readable(value, header)
    yield label + first
    for line in rest:
        yield " " * len(label) + line


def _single(value: Any) -> str:
    match value:
        case None:
            return "(nil)"
        case bool():
            return "(true)" if value else "(false)"
        case int():
            return f"(integer) {value}"
        case float():
            return f"(double) {value:.17g}"
        case bytes():
            text = value.decode(errors="backslashreplace")
        case _:
            text = str(value)
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in quoted)
