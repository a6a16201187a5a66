"""The name under which users find a public object. Knows no other module."""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["name_publicly"]


def name_publicly(package: dict[str, Any]) -> None:
    """Set ``__module__`` of the public classes and functions of a package to its name.

    Reprs, tracebacks, pickles and help() then show the name from which users import them. Objects that the package only
    passes on from elsewhere keep theirs.

    Args:
        package: The globals of the package, with ``__all__``.
    """
    name = package["__name__"]
    for public in map(package.__getitem__, package["__all__"]):
        if isinstance(public, type | FunctionType) and public.__module__.startswith(f"{name}."):
            public.__module__ = name
