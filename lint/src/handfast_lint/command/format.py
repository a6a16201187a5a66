"""Format replies and source lines, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from handfast._engine.header import Header

if TYPE_CHECKING:
    from handfast._engine.replies import Reply

__all__ = ["to_json", "to_text"]


def _items(reply: Reply, header: Header) -> dict[str, Any]:
    """Return the fields of a reply, by their names in the header."""
    return {name: getattr(reply, name) for name in header.replies[reply.tag]}


def to_json(value: Any, header: Header) -> Any:
    """Convert a reply to JSON types: lists, dicts, str, numbers, bool and None."""
    from handfast._engine.replies import Reply

    match value:
        case Reply():
            return [value.tag, *(to_json(field, header) for field in _items(value, header).values())]
        case bytes():
            return value.decode(errors="backslashreplace")
        case dict():
            return {str(to_json(key, header)): to_json(item, header) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_json(item, header) for item in value]
        case Exception():
            return {"error": str(value)}
    has_no_json = isinstance(value, float) and not math.isfinite(value)
    return str(value) if has_no_json else value


def to_text(value: Any, header: Header) -> Iterator[str]:
    """Format a reply as redis-cli does; the fields of a reply that the header lists are labelled with their names."""
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
                yield from _labelled(f"{' '.join(to_text(key, header))} => ", item, header)
            if not value:
                yield "(empty hash)"
        case _:
            yield _single(value)


def _labelled(label: str, value: Any, header: Header) -> Iterator[str]:
    first, *rest = to_text(value, header)
    yield label + first
    for line in rest:
        yield " " * len(label) + line


def _single(value: Any) -> str:
    match value:
        case None:
            return "(nil)"
        case Exception():
            text = f"(error) {value}"
            return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
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
