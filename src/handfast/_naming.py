"""The name under which users find a public object. Knows no other module."""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["name_publicly"]


def name_publicly(module: dict[str, Any], package: str | None = None) -> None:
    """Set ``__module__`` of the public classes and functions of a module to the name of their package.

    Reprs, tracebacks, pickles and help() then show the name from which users import them. Objects imported from other
    modules keep theirs.

    Args:
        module: The globals of the module, with ``__all__``.
        package: The name of the package; by default the module's.
    """
    name = package or module["__name__"]
    for public in map(module.__getitem__, module["__all__"]):
        if isinstance(public, type | FunctionType) and public.__module__.startswith(f"{name}."):
            public.__module__ = name
