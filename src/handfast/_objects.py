"""The base of public objects: they are not copied, and unknown attributes lead to an error with the right call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

__all__ = ["AsyncBlockOnly", "BlockOnly", "Named", "PublicObject"]


class _Elsewhere:
    """Stands for an attribute of other libraries' objects: an error with the right call.

    A ``__getattr__`` would do the same and make each access of each attribute slower.
    """

    __slots__ = ("_advice", "_name")

    def __init__(self, name: str, advice: str) -> None:
        self._name, self._advice = name, advice

    def __get__(self, instance: object, kind: type) -> NoReturn:
        what = f"{kind.__name__!r} object" if instance is not None else f"type object {kind.__name__!r}"
        raise AttributeError(
            f"{what} has no attribute {self._name!r}; {self._advice}", name=self._name, obj=instance or kind
        )


class _Guided(type):
    """The class of `PublicObject`: ``dir()`` shows real attributes only."""

    def __dir__(cls) -> list[str]:
        return _without_elsewhere(cls, super().__dir__())


def _without_elsewhere(kind: type[Any], names: Iterable[str]) -> list[str]:
    found = {name: next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None) for name in names}
    return [name for name, value in found.items() if not isinstance(value, _Elsewhere)]


class PublicObject(metaclass=_Guided):
    """Stands for something on the server or in this process, of which a copy would be a second owner."""

    __slots__ = ()

    _instead: ClassVar[str] = "make a client there, and the object from it"
    """The advice of the error for a copy."""

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """The right calls, by the attributes of other libraries' objects."""

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: `copy.copy`, `copy.deepcopy` and `pickle` each ask for a reduction."""
        raise TypeError(f"{self!r} cannot be copied or pickled; {self._instead}")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, advice in vars(cls).get("_elsewhere", {}).items():
            if not hasattr(cls, name):
                setattr(cls, name, _Elsewhere(name, advice))

    def __dir__(self) -> list[str]:
        return _without_elsewhere(type(self), super().__dir__())


class AsyncBlockOnly:
    """Refuses ``with``."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse the block by themselves
        __enter__ = _Elsewhere("__enter__", "it is of the asyncio API: use 'async with'")


class BlockOnly:
    """Refuses ``async with``."""

    __slots__ = ()

    if not TYPE_CHECKING:  # as above
        __aenter__ = _Elsewhere("__aenter__", "it is of the sync API: use 'with', or AsyncHandfast in coroutines")


class _HasName(Protocol):
    name: str


class Named(PublicObject):
    """An object with a name on the server."""

    _request: _HasName

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """The name given to the object, and the parts of the key behind it if it has one: ``login|4711``.

        Of an object with `keyed`, a ``|`` and a backslash inside the name or a part have a backslash before them. So no two
        keys of a kind have the same text. `names`, `hold` and the command ``handfast`` use the same text.
        """
        return self._request.name
