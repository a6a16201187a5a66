"""The values of a request for a name or a key: path, query, headers, client, and values of the application's state.

In FastAPI a value is read as the route reads it, whether the endpoint or a dependency declares it: ``/orders/007`` and ``/orders/7``
are the same order for ``order_id: int``, so they are one name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from string import Formatter
from typing import Annotated, Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

__all__ = ["check_field", "filler", "value_of"]

ROOTS = ("client", "cookies", "headers", "state", "user")
"""What a field with a point begins with: attributes of a request."""


class Parameter(NamedTuple):
    """How a route of FastAPI reads a value of the path or the query."""

    place: str
    alias: str
    read: Callable[[Any], Any]
    default: Any


def filler(name: str) -> Callable[[HTTPConnection], str]:
    """Return a function to fill the fields of a name with the values of a request.

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
    root, point, rest = field.partition(".")
    parts = [rest] if root in ("headers", "cookies") else rest.split(".")
    if not root.isidentifier() or (point and (root not in ROOTS or not all(parts))):
        roots = ", ".join(f"{root}.…" for root in ROOTS)
        raise ValueError(f"{field!r} is no field of a request: a parameter of the path or the query, or one of {roots}")


def value_of(request: HTTPConnection, field: str) -> Any:
    """Return a value of a request. Raises an answer for the client if the value is missing or can't be read."""
    root, point, rest = field.partition(".")
    if not point:
        return _parameter(request, field)
    found: Any = request.user if root == "user" else getattr(request, root)
    for part in [rest] if root in ("headers", "cookies") else rest.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    if found is None and root in ("state", "user"):
        raise RuntimeError(f"the request has no {field}: a middleware or an earlier dependency has to set it")
    if found is None:
        _refuse(request, root, rest, {"type": "missing", "msg": f"{field} is required"})
    return found


class _Fields(Formatter):
    def __init__(self, request: HTTPConnection) -> None:
        self._request = request

    def get_field(self, field_name: str, args: object, kwargs: object) -> Any:  # noqa: ARG002 -- as a Formatter calls it
        return value_of(self._request, field_name), field_name


def _parameter(request: HTTPConnection, name: str) -> Any:
    route = request.scope.get("route")
    if hasattr(route, "dependant"):
        known = _known(route, name)
        values: Mapping[str, Any] = request.path_params if known.place == "path" else request.query_params
        if known.alias in values:
            return _read(request, known, values[known.alias])
        found, place, name = known.default, known.place, known.alias
    else:
        found, place = request.path_params.get(name, request.query_params.get(name)), "query"
    return _refuse(request, place, name, {"type": "missing", "msg": "Field required"}) if found is None else found


def _read(request: HTTPConnection, known: Parameter, value: Any) -> Any:
    try:
        return known.read(value)
    except ValueError as error:
        found = {"type": "value_error", "msg": str(error)}
        errors = error.errors() if hasattr(error, "errors") else [found]
        return _refuse(request, known.place, known.alias, *errors)


def _refuse(request: HTTPConnection, place: str, name: str, *errors: Mapping[str, Any]) -> Any:
    """Answer as FastAPI does where it answers, and else in the same shape."""
    found = [{**error, "loc": (place, name)} for error in errors]
    if hasattr(request.scope.get("route"), "dependant"):
        raise importlib.import_module("fastapi.exceptions").RequestValidationError(found)
    raise HTTPException(422, "; ".join(f"{place} {name}: {error['msg']}" for error in found))


_KNOWN: dict[tuple[int, str], tuple[Any, Parameter]] = {}
"""The parameters of routes, by the id of the route, since a route has no hash. The route is kept, so its id stays its own."""


def _known(route: Any, name: str) -> Parameter:
    if (id(route), name) not in _KNOWN:
        _KNOWN[id(route), name] = route, _read_by(route, name)
    return _KNOWN[id(route), name][1]


def _read_by(route: Any, name: str) -> Parameter:
    """Return how a route of FastAPI reads a parameter. Raises ValueError for a parameter not read from path or query."""
    for place, field in _declared(route.dependant):
        if field.name == name:
            info = field.field_info
            adapter = importlib.import_module("pydantic").TypeAdapter(
                Annotated[info.annotation, info]
            )  # as FastAPI: with validators
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            return Parameter(place, field.alias, adapter.validate_python, default)
    known = sorted({field.name for _, field in _declared(route.dependant)})
    raise ValueError(
        f"the field {name!r} of a name is no parameter of the path or the query of {route.path!r}; these are: "
        f"{', '.join(known) or 'none'}"
    )


def _declared(dependant: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of an endpoint, and of the endpoint's dependencies."""
    for place, fields in (("path", dependant.path_params), ("query", dependant.query_params)):
        for field in fields:
            yield place, field
    for inner in dependant.dependencies:
        yield from _declared(inner)
