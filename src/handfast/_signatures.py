"""The signature of a user's function, whose annotations may name what only type checkers import."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["signature_of"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function. Raises ValueError for one that has none, as some that are written in C.

    From Python 3.14 on `inspect.signature` evaluates annotations; those that can't be evaluated stay references here.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
