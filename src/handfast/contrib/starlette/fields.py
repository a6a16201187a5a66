"""The values of a request that make a name or a key: of its path, its query, its client, and of what the application has found.

A value is read as the endpoint reads it: ``/orders/007`` and ``/orders/7`` are one order for an endpoint with
``order_id: int``, so they are one name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from string import Formatter
from typing import Any, NamedTuple, get_type_hints

from starlette.requests import HTTPConnection

from handfast._signatures import signature_of

__all__ = ["check_field", "filler", "value_of"]

ROOTS = ("client", "cookies", "headers", "state", "user")
"""What a field with a point begins with: attributes of a request."""


class Parameter(NamedTuple):
    """How an endpoint reads a value of the path or the query."""

    alias: str
    read: Callable[[str], Any]
    default: Any


def filler(name: str) -> Callable[[HTTPConnection], str]:
    """Return a function that fills the fields of a name with the values of a request.

    Raises ValueError for a name that is no template.
    """
    try:
        fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    except ValueError as error:
        raise ValueError(
            f"the name {name!r} is not a valid template: {error}; write {{{{ and }}}} for braces"
        ) from None
    for field in fields:
        check_field(field)
    return lambda request: _Fields(request).format(name)


def check_field(field: str) -> None:
    """Raise ValueError for a field that no request has."""
    root, point, _ = field.partition(".")
    if not root.isidentifier() or (point and root not in ROOTS):
        roots = ", ".join(f"{root}.…" for root in ROOTS)
        raise ValueError(f"{field!r} is no field of a request: a parameter of the path or the query, or one of {roots}")


def value_of(request: HTTPConnection, field: str) -> Any:
    """Return a value of a request. Raises an answer for the client if it has none, or one that can't be read."""
    root, point, rest = field.partition(".")
    found: Any
    if not point:
        return _parameter(request, field)
    found = request.user if root == "user" else getattr(request, root)
    for part in [rest] if root in ("headers", "cookies") else rest.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    if found is None:
        _refuse(request, root, rest, {"type": "missing", "msg": f"{field} is required"})
    return found


class _Fields(Formatter):
    def __init__(self, request: HTTPConnection) -> None:
        self._request = request

    def get_field(self, field_name: str, args: object, kwargs: object) -> Any:  # noqa: ARG002 -- as a Formatter calls it
        return value_of(self._request, field_name), field_name


def _parameter(request: HTTPConnection, name: str) -> Any:
    known = _known(request.scope.get("endpoint"), name)
    for place, values in (("path", request.path_params), ("query", request.query_params)):
        for key in (known.alias, name):
            if key in values:
                return _read(request, known, place, values[key])
    if known.default is not None:
        return known.default
    return _refuse(request, "query", known.alias, {"type": "missing", "msg": "Field required"})


def _read(request: HTTPConnection, known: Parameter, place: str, value: Any) -> Any:
    if not isinstance(value, str):  # a convertor of the path has read it
        return value
    try:
        return known.read(value)
    except ValueError as error:
        found = {"type": "value_error", "msg": str(error)}
        return _refuse(request, place, known.alias, *(error.errors() if hasattr(error, "errors") else [found]))


def _refuse(request: HTTPConnection, place: str, name: str, *errors: Mapping[str, Any]) -> Any:
    """Answer as FastAPI does where it answers, and else in the same shape."""
    from starlette.exceptions import HTTPException

    found = [{**error, "loc": (place, name)} for error in errors]
    if any(one.__module__.startswith("fastapi.") for one in type(request.app).__mro__):
        raise importlib.import_module("fastapi.exceptions").RequestValidationError(found)
    raise HTTPException(422, "; ".join(f"{place} {name}: {error['msg']}" for error in found))


@lru_cache(1000)
def _known(endpoint: Any, name: str) -> Parameter:
    """Return how an endpoint reads a parameter: as text if it has none of that name."""
    found = None
    if inspect.isroutine(endpoint):
        found = signature_of(endpoint).parameters.get(name)
    if found is None:
        return Parameter(name, str, None)
    default: Any = found.default if found.default is not found.empty else None
    annotation = _evaluated(endpoint, found.annotation)
    marks = (*getattr(annotation, "__metadata__", ()), default)
    alias = next((mark.alias for mark in marks if getattr(mark, "alias", None)), name)
    if hasattr(default, "alias"):  # it is a mark such as Query(), which has a default of its own
        default = default.get_default() if not default.is_required() else None
    if annotation in (found.empty, str, Any):
        return Parameter(alias, str, default)
    return Parameter(alias, importlib.import_module("pydantic").TypeAdapter(annotation).validate_python, default)


def _evaluated(function: Any, annotation: Any) -> Any:
    """Return the type that an annotation names: of this parameter alone, since others may name what only type checkers import."""
    holder = type("holder", (), {"__annotations__": {"it": annotation}})
    return get_type_hints(holder, inspect.unwrap(function).__globals__, include_extras=True)["it"]
