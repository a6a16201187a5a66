"""Objects that stand for something on the server or in this process, of which a copy would be a second owner."""

from __future__ import annotations

from typing import ClassVar, NoReturn, Protocol

__all__ = ["Named", "Uncopied"]


class Uncopied:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`, each of which would ask for a reduction."""

    __slots__ = ()

    _instead: ClassVar[str] = "make a client there, and the object from it"
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        """Raise TypeError."""
        raise TypeError(f"{self!r} cannot be copied or pickled; {self._instead}")


class _HasName(Protocol):
    name: str


class Named(Uncopied):
    """An object with a name on the server."""

    _request: _HasName

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """The name that the object was made with, and the parts of its key behind it if it has one: ``login|4711``."""
        return self._request.name
