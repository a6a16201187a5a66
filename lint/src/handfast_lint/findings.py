"""The findings of the linter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A mistake in a script.

    Attributes:
        name: The name of the script, as it was passed to `check`.
        line: The line, from 1.
        column: The column in characters, from 1.
        rule: The rule, a key of `RULES`.
        severity: ``"error"`` if it fails on some server or for some call, ``"warning"`` if it is probably a mistake.
        message: What is wrong and what to do.

    """

    name: str
    line: int
    column: int
    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}: {self.severity} [{self.rule}] {self.message}"
