"""Convert a script's reply: a tagged array to a `Reply`, any other reply as an annotation says.

Clients return strings as bytes or as str. `reader` makes a function of an annotation, which converts both alike:

    None                     any reply is ignored
    bool                     1 and OK are True, 0 and nil are False
    int, float               a number, or a string that is one
    str, bytes               a string, or a number
    X | None                 nil is None
    list[X], tuple[X, ...], set[X], frozenset[X], tuple[X, Y]
                             an array
    dict[K, V]               an array of alternating keys and values, or a map
    a NamedTuple, dataclass  an array, field by field
    Literal["a", "b"]        one of these strings
    Reply                    a tagged array of the header
    Any                      any reply, unchanged
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

from handfast._engine.resp import ErrorReply

__all__ = ["Reader", "Reply", "is_named", "reader", "tagged"]

Reader: TypeAlias = Callable[[Any], Any]


class Reply:
    """A tagged array that a script returned. The fields that the script's header names are attributes.

    Replies are immutable.

    Attributes:
        tag: The first item, which says which of the header's replies it is.

    Example:
        match take(client, source="a", target="b", amount=5):
            case Reply("taken", left=left):
                print(f"{left} are left")
            case Reply("short", missing=missing):
                print(f"{missing} are missing")
    """

    __slots__ = ("_fields", "tag")
    __match_args__ = ("tag",)

    tag: str

    def __init__(self, tag: str, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "tag", tag)
        object.__setattr__(self, "_fields", types.MappingProxyType(fields))

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            known = ", ".join(self._fields) or "none"
            raise AttributeError(f"the reply {self.tag!r} has no field {name!r}; its fields are: {known}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a reply is immutable; {name!r} can't be set")

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._fields]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reply) and (self.tag, self._fields) == (other.tag, other._fields)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a reply is immutable; {name!r} can't be deleted")

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # its fields may be lists

    def __reduce__(self) -> tuple[type[Reply], tuple[str, dict[str, Any]]]:
        return Reply, (self.tag, dict(self._fields))

    def __repr__(self) -> str:
        return f"Reply({', '.join([repr(self.tag), *(f'{name}={value!r}' for name, value in self._fields.items())])})"


def tagged(replies: dict[str, tuple[str, ...]], raw: Any) -> Reply | None:
    """Return the reply with the fields that the header lists; None if the header does not list it."""
    if not isinstance(raw, list) or not raw:
        return None
    tag, *values = raw
    tag = tag.decode(errors="replace") if isinstance(tag, bytes) else tag
    fields = replies.get(tag) if isinstance(tag, str) else None
    if fields is None or len(fields) != len(values):
        return None
    return Reply(tag, dict(zip(fields, values, strict=True)))


def reader(annotation: Any, whole: Reader) -> Reader:
    """Return the function that converts replies to an annotated type.

    Args:
        annotation: The type.
        whole: The function that makes a `Reply`.

    Raises:
        TypeError: A reply cannot be converted to this type.
    """
    if annotation is Reply:
        return whole
    for form in (_plain, _union, _array, _record):
        found = form(annotation, whole)
        if found is not None:
            return found
    raise TypeError(f"a reply cannot be read as {annotation!r}")


def is_named(annotation: Any) -> bool:
    """Return whether an annotation names the types of all parts of a reply, so that none is passed on as it comes."""
    if annotation in (Any, object, Reply, *_COLLECTIONS, dict):
        return False
    if typing.get_origin(annotation) is typing.Literal:
        return True
    inner: Iterable[Any] = typing.get_args(annotation)
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")):
        hints = typing.get_type_hints(annotation)
        inner = [hints.get(name, Any) for name in getattr(annotation, "_fields", hints)]
    return all(is_named(one) for one in inner if one is not Ellipsis)


def _plain(annotation: Any, _: Reader) -> Reader | None:
    """Read the types that contain no other types."""
    if typing.get_origin(annotation) is typing.Literal:
        texts = typing.get_args(annotation)
        return (lambda value: _one_of(texts, value)) if all(isinstance(one, str) for one in texts) else None
    return _PLAIN.get(annotation) if annotation.__hash__ else None


def _union(annotation: Any, whole: Reader) -> Reader | None:
    """Read X | None, the only union whose members every reply tells apart."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return None
    given = [one for one in typing.get_args(annotation) if one is not type(None)]
    if len(given) != 1:
        return None
    read = reader(given[0], whole)
    return lambda value: None if value is None else read(value)


def _array(annotation: Any, whole: Reader) -> Reader | None:
    """Read arrays of any length, arrays item by item, and dicts."""
    kind, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    # The readers of the parts are made once, when the function is
    # declared: an unknown type is found there, not at a reply.
    readers = [reader(one, whole) for one in inner if one is not Ellipsis]
    # A tuple that names each item is a row of that length; `tuple[X, ...]` is an array of any length.
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return _row(tuple, readers, annotation)
    if kind is dict:
        return _pairs(readers or [_same, _same], annotation)
    if kind in _COLLECTIONS:
        each = readers[0] if readers else _same
        return lambda value: kind(map(each, _items(value, annotation)))
    return None


def _record(annotation: Any, whole: Reader) -> Reader | None:
    """Read a NamedTuple or a dataclass, field by field."""
    if not isinstance(annotation, type):
        return None
    hints = typing.get_type_hints(annotation)
    if dataclasses.is_dataclass(annotation):
        fields = {one.name: hints[one.name] for one in dataclasses.fields(annotation) if one.init}
    elif issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        fields = {name: hints.get(name, Any) for name in annotation._fields}
    else:
        return None
    readers = [reader(one, whole) for one in fields.values()]
    return _row(lambda values: annotation(**dict(zip(fields, values, strict=True))), readers, annotation)


def _row(make: Callable[[list[Any]], Any], readers: list[Reader], annotation: Any) -> Reader:
    def read(value: Any) -> Any:
        items = _items(value, annotation)
        if len(items) != len(readers):
            raise ValueError(f"{annotation!r} takes {len(readers)} items, but the reply has {len(items)}: {value!r}")
        return make([each(item) for each, item in zip(readers, items, strict=True)])

    return read


def _pairs(readers: list[Reader], annotation: Any) -> Reader:
    key, value = readers

    def read(raw: Any) -> dict[Any, Any]:
        items = [part for pair in raw.items() for part in pair] if isinstance(raw, dict) else _items(raw, annotation)
        if len(items) % 2:
            raise ValueError(f"{annotation!r} takes alternating keys and values, but the reply has {len(items)} items")
        return {key(one): value(other) for one, other in zip(items[::2], items[1::2], strict=True)}

    return read


def _items(value: Any, annotation: Any) -> list[Any]:
    if isinstance(value, list | tuple | set):
        return list(value)
    raise ValueError(f"{annotation!r} takes an array, but the reply is {value!r}")


def _one_of(texts: tuple[Any, ...], value: Any) -> str:
    text = _str(value)
    if text not in texts:
        raise ValueError(f"the reply {text!r} is none of {', '.join(map(repr, texts))}")
    return text


def _int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():  # a RESP3 double; RESP2 sends the string "3"
        return int(value)
    if isinstance(value, str | bytes | int):
        return int(value)
    raise ValueError(f"the reply {value!r} is no whole number")


def _float(value: Any) -> float:
    if isinstance(value, str | bytes | int | float):
        return float(value)
    raise ValueError(f"the reply {value!r} is no number")


def _str(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str | int | float) and not isinstance(value, bool | ErrorReply):
        return str(value)
    raise ValueError(f"the reply {value!r} is no text")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else _str(value).encode()


def _bool(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    if value in (b"OK", "OK"):
        return True
    raise ValueError(f"the reply {value!r} is neither true (1, OK) nor false (0, nil)")


def _same(value: Any) -> Any:
    return value


_PLAIN: dict[Any, Reader] = {
    None: lambda _: None,
    type(None): lambda _: None,
    Any: _same,
    object: _same,
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
}
_COLLECTIONS = (list, tuple, set, frozenset)
