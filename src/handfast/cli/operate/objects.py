"""The findings, for programs: JSON objects whose keys and order are documented, in docs/how-to/operate.md."""

from __future__ import annotations

import json
from typing import Any

from handfast._watch.rows import Row

__all__ = ["description", "dumped", "summary"]


def dumped(value: dict[str, Any]) -> str:
    """Return an object as one line, without characters that would move the cursor of a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def summary(namespace: str, row: Row) -> dict[str, Any]:
    """Return the object of a name, without lists of those who hold and wait."""
    return {"namespace": namespace, "kind": row.kind, "name": row.name} | row.face.summary(row)


def description(namespace: str, row: Row) -> dict[str, Any]:
    """Return the object of a name, with those who hold and wait and the last action of an operator."""
    return summary(namespace, row) | row.face.description(row)
