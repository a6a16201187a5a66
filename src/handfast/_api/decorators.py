"""Which functions a primitive may decorate, and for which name: that of the primitive, filled with the call's arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, Self

__all__ = ["NameTemplate", "require_coroutine_function", "require_plain_function"]


class NameTemplate:
    """A name with fields that stand for parameters of a function."""

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature

    @classmethod
    def of(cls, names: Iterable[str], function: Callable[..., Any]) -> Self | None:
        """Return the template; None if no name has braces. Raises ValueError for fields that the function has no value for."""
        templates = [name for name in names if "{" in name or "}" in name]
        if not templates:
            return None
        signature = inspect.signature(function)
        for name in templates:
            try:
                fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
            except ValueError as error:
                raise ValueError(
                    f"the name {name!r} of a decorator is a template, and not a valid one: {error}; write {{{{ and }}}} for "
                    "braces themselves"
                ) from None
            for field in fields:
                if re.split(r"[.\[]", field)[0] not in signature.parameters:
                    known = ", ".join(signature.parameters) or "none"
                    raise ValueError(
                        f"the name {name!r} has the field {field!r}, which is no parameter of {function!r}; these are: {known}"
                    )
        return cls(signature)

    def filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[str], str]:
        """Return what fills a name with the arguments of one call. Raises TypeError if the call does not fit the function."""
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return lambda name: name.format_map(call.arguments)


def require_coroutine_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for a function that a lock of AsyncHandfast can't decorate."""
    _refuse_generators(function)
    if not _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is not a coroutine function; decorate it with a lock of Handfast")


def require_plain_function(function: Callable[..., Any]) -> None:
    """Raise TypeError for a function that a lock of Handfast can't decorate."""
    _refuse_generators(function)
    if _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{function!r} is a coroutine function; decorate it with a lock of AsyncHandfast")


def _refuse_generators(function: Callable[..., Any]) -> None:
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TypeError(f"{function!r} is a generator function, whose body runs after the call; use a with block in it")


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return whether a function, or the ``__call__`` of a callable object, is of that kind."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 -- the method itself is needed
