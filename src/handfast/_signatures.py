"""The signature of a user's function, whose annotations may have names imported by type checkers only."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["signature_of"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function. Raises ValueError for a function without one, as some written in C.

    From Python 3.14 on `inspect.signature` evaluates annotations; any that can't be evaluated stay references here.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
