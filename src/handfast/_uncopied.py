"""Objects that stand for something on the server or in this process, of which a copy would be a second owner."""

from __future__ import annotations

from typing import ClassVar, NoReturn

__all__ = ["Uncopied"]


class Uncopied:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`, each of which would ask for a reduction."""

    __slots__ = ()

    _instead: ClassVar[str] = "make a client there, and the object from it"
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        """Raise TypeError."""
        raise TypeError(f"{self!r} cannot be copied or pickled; {self._instead}")
