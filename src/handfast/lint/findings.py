"""What the linter says: one finding for each thing to mend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something to mend in a script. ``line`` and ``column`` count from 1, columns in characters.

    An error is wrong on some server or for some call. A warning is wrong more often than not.
    """

    name: str
    """Of the script, as `check` was told."""
    line: int
    column: int
    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}: {self.severity} [{self.rule}] {self.message}"
