"""Which functions a primitive may decorate, and for which name: the primitive's, filled with the call's arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from types import FunctionType
from typing import Any, ParamSpec, Self, TypeVar

from handfast._signatures import signature_of

__all__ = [
    "CallKey",
    "NameTemplate",
    "awaited_function",
    "awaiting",
    "called_function",
    "calling",
    "check_called_here",
    "check_finished",
    "check_parameterless",
    "coroutine_function",
    "plain_function",
]

UNKNOWN = 1 << 30
"""Code flags of callables that are no functions, or are marked as another kind of function than their code."""

MARKS = frozenset({"_is_coroutine_marker", "_is_coroutine"})
"""Attributes of a function that `inspect` or `asyncio` takes for a coroutine function."""

P = ParamSpec("P")
R = TypeVar("R")


class NameTemplate:
    """A name with fields for parameters of a function."""

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature
        self._formatter = _Fields()

    @classmethod
    def of(cls, names: Iterable[str], function: Callable[..., Any]) -> Self | None:
        """Return the template; None if no name has braces.

        Raises ValueError for fields without a parameter of the function.
        """
        templates = [name for name in names if "{" in name or "}" in name]
        # Before the signature is asked for: functions written in C have none, and may have a plain name.
        if not templates:
            return None
        signature = signature_of(function)
        for name in templates:
            try:
                fields = list(_fields_of(name))
            except ValueError as error:
                raise ValueError(
                    f"the name {name!r} of a decorator is a template, and not a valid one: {error}; write {{{{ and }}}} for "
                    "braces themselves"
                ) from None
            for field in fields:
                # A field may go on with an attribute or an index, which only the value of a call can tell.
                if re.split(r"[.\[]", field)[0] not in signature.parameters:
                    known = ", ".join(signature.parameters) or "none"
                    raise ValueError(
                        f"the name {name!r} has the field {field!r}, which is no parameter of {_shown(function)}; these are: {known}"
                    )
        return cls(signature)

    def filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[str], str]:
        """Return a function which fills a name with the arguments of a call.

        Raises TypeError if the call does not fit the function.

        The returned function raises ValueError for None: all callers without a value would share a name.
        """
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return lambda name: self._formatter.vformat(name, (), call.arguments)


def _fields_of(template: str) -> Iterator[str]:
    """Yield the fields of a template, also those within a format such as ``{number:{width}}``."""
    for _, field, form, _ in Formatter().parse(template):
        if field is not None:
            yield field
            yield from _fields_of(form or "")


class _Fields(Formatter):
    """Fills fields with values, and with no None."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value, first = super().get_field(field_name, args, kwargs)
        if value is None:
            raise ValueError(f"the field {field_name!r} of a decorator's name is None in this call; give it a value")
        return value, first


class CallKey:
    """The parameters of a function whose arguments make the key of a call."""

    def __init__(self, by: Sequence[str], function: Callable[..., Any], name: str) -> None:
        if "{" in name:
            raise ValueError(
                f"the name {name!r} of a decorator is no template here; use by= for the arguments of a call"
            )
        self._by = by
        if not by:
            return  # then no argument counts, and a function without a signature will do
        self._signature = signature_of(function)
        for parameter in by:
            if parameter not in self._signature.parameters:
                known = ", ".join(self._signature.parameters) or "none"
                raise ValueError(
                    f"by has {parameter!r}, which is no parameter of {_shown(function)}; these are: {known}"
                )

    def parts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the key arguments of a call. Raises TypeError if the call does not fit the function."""
        call = self._signature.bind(*args, **kwargs)
        call.apply_defaults()
        return [call.arguments[parameter] for parameter in self._by]


def replacing(function: Callable[P, Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for the replacement of a function; of a static method it is a static method as well."""

    def replace(wrapper: Callable[P, R]) -> Callable[P, R]:
        functools.update_wrapper(wrapper, function)
        return staticmethod(wrapper) if isinstance(function, staticmethod) else wrapper

    return replace


def coroutine_function(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for an object of AsyncHandfast to decorate. Raises TypeError if it can't be decorated."""
    _refuse_generators(function)
    if not _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{_shown(function)} is not a coroutine function; decorate it with what Handfast makes")
    return function


def plain_function(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for an object of Handfast to decorate. Raises TypeError if it can't be decorated.

    A plain function may wrap a coroutine function or a generator function, which shows only when it is called.
    """
    _refuse_generators(function)
    if _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{_shown(function)} is a coroutine function; decorate it with what AsyncHandfast makes")

    @replacing(function)
    def finishing(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if kind := _unfinished(result):
            raise TypeError(
                f"{_shown(function)} returned a {kind}, whose body would run after the call; decorate the function that makes it "
                "with what AsyncHandfast makes, or use a with block in it"
            )
        return result

    return finishing


def awaited_function(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Return the function for a loop of AsyncHandfast to call. Raises TypeError if it can't be awaited.

    Of a lambda only the result tells.
    """
    _refuse_generators(function, "which a loop can't await")
    if _is(inspect.iscoroutinefunction, function):
        return function
    if getattr(function, "__name__", "") != "<lambda>":
        raise TypeError(
            f"{_shown(function)} is not a coroutine function, and would block the event loop; use Handfast for it"
        )

    async def awaited(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if not inspect.isawaitable(result):
            raise TypeError(f"{_shown(function)} returned {type(result).__name__}, which can't be awaited")
        return await result

    return awaited


def called_function(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for a loop of Handfast to call. Raises TypeError if the body would run after the call.

    Of the wrapper of such a function only the result tells.
    """
    _refuse_generators(function, "which a loop can't call")
    check_called_here(function)

    @functools.wraps(function, updated=())
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        if kind := _unfinished(result):
            raise TypeError(
                f"{_shown(function)} returned a {kind}, whose body would run after the call; use AsyncHandfast for it"
            )
        return result

    return called


def check_called_here(function: Callable[..., Any], advice: str = "use AsyncHandfast for it") -> None:
    """Raise TypeError if the function can't be called, or is a coroutine function, which nothing would await."""
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    if _is(inspect.iscoroutinefunction, function):
        raise TypeError(f"{_shown(function)} is a coroutine function, and nothing would await it here; {advice}")


def awaiting(function: Callable[[], Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Return a coroutine function which calls the given function for a result. Raises TypeError if it gives none.

    The given function may be a coroutine function, or a plain function that returns an awaitable or the result.
    """
    _check_called(function)

    async def called() -> Any:
        result = function()
        return await result if inspect.isawaitable(result) else result

    return called


def calling(function: Callable[[], R]) -> Callable[[], R]:
    """Return the function for Handfast to call for a result. Raises TypeError if it gives none."""
    flags = _check_called(function)
    if flags & inspect.CO_COROUTINE or (flags == UNKNOWN and _is(inspect.iscoroutinefunction, function)):
        raise TypeError(
            f"{_shown(function)} is a coroutine function, and nothing would await it here; use AsyncHandfast, or a function that "
            "calls asyncio.run()"
        )
    return function


def check_parameterless(function: Callable[..., object]) -> None:
    """Refuse a function whose calls would share a result, whatever their arguments are. Raises ValueError.

    A function without a signature, like some that are written in C, will do.
    """
    try:
        parameters = [*signature_of(function).parameters]
    except ValueError:
        return
    if parameters:
        raise ValueError(
            f"{_shown(function)} has parameters ({', '.join(parameters)}), and without by= all its calls would get the result of "
            f"one; name those that make the key, as in by={parameters[0]!r}, or pass by=() if one result is for all calls"
        )


def check_finished(value: object, name: str) -> None:
    """Refuse a value which is no result yet, such as a coroutine. Raises TypeError."""
    if kind := _unfinished(value):
        raise TypeError(
            f"the result of {name!r} is a {kind}, whose body has not run: nothing is recorded; pass what it returns or yields"
        )


def _check_called(function: Callable[[], object]) -> int:
    """Refuse generators and objects that cannot be called. Return the code flags of the function."""
    flags = _flags(function)
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR) == 0 and flags != UNKNOWN:
        return flags
    if not callable(function):
        raise TypeError(
            f"function must be a function without arguments, which is called to get the result, not {function!r}"
        )
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TypeError(
            f"{_shown(function)} is a generator function, whose body runs after the call; return a list of it"
        )
    return flags


def _flags(function: Callable[..., object]) -> int:
    """Return the flags of the code of a function, also of a partial one; UNKNOWN for other callables.

    `once` asks in each call, and `inspect`, which handles any callable, takes a tenth of a call.
    """
    while type(function) is functools.partial:
        function = function.func
    if type(function) is not FunctionType or not MARKS.isdisjoint(function.__dict__):
        return UNKNOWN
    return function.__code__.co_flags


def _unfinished(result: object) -> str | None:
    """Return the kind of an object that runs only later; None for a result. It is closed, so Python does not warn."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return None
    if hasattr(result, "close"):
        result.close()
    return type(result).__name__


def _refuse_generators(
    function: Callable[..., Any], why: str = "which a decorator would replace; decorate its methods"
) -> None:
    if isinstance(function, type):
        raise TypeError(f"{_shown(function)} is a class, {why}")
    if not callable(function):
        advice = "; put @classmethod above this decorator" if isinstance(function, classmethod) else ""
        raise TypeError(f"{function!r} can't be decorated, since it can't be called{advice}")
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TypeError(
            f"{_shown(function)} is a generator function, whose body runs after the call; use a with block in it"
        )


def _shown(function: Callable[..., Any]) -> str:
    """Return a function as a message shows it: by its name, without an address."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{name}()"


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Return whether a function, or the ``__call__`` of a callable object, is of this kind."""
    function = getattr(function, "__func__", function)  # of a static method
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004 -- the method itself is needed
