"""What the public objects have in common: they are not copied, and an error says how to write what others write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol

__all__ = ["AsyncBlockOnly", "BlockOnly", "Named", "NoBlock", "PublicObject"]


class PublicObject:
    """Stands for something on the server or in this process, of which a copy would be a second owner."""

    __slots__ = ()

    _instead: ClassVar[str] = "make a client there, and the object from it"
    """What to do instead of a copy."""

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """What to write instead of attributes that objects of other libraries have."""

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: `copy.copy`, `copy.deepcopy` and `pickle` each ask for a reduction."""
        raise TypeError(f"{self!r} cannot be copied or pickled; {self._instead}")

    if not TYPE_CHECKING:  # type checkers refuse these by themselves

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with what to write if other libraries have this attribute."""
            advice = f"; {self._elsewhere[name]}" if name in self._elsewhere else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{advice}", name=name, obj=self
            )


if TYPE_CHECKING:  # type checkers refuse these blocks by themselves

    class AsyncBlockOnly:
        """Refuses ``with``."""

    class BlockOnly:
        """Refuses ``async with``."""

    class NoBlock:
        """Refuses both."""

else:

    class AsyncBlockOnly:
        """Refuses ``with``."""

        __slots__ = ()

        def __enter__(self) -> NoReturn:
            raise TypeError(f"{self!r} is of the asyncio API: use 'async with'")

        def __exit__(self, *exc: object) -> NoReturn:
            raise NotImplementedError

    class BlockOnly:
        """Refuses ``async with``."""

        __slots__ = ()

        async def __aenter__(self) -> NoReturn:
            raise TypeError(f"{self!r} is of the sync API: use 'with', or AsyncHandfast in coroutines")

        async def __aexit__(self, *exc: object) -> NoReturn:
            raise NotImplementedError

    class NoBlock(AsyncBlockOnly, BlockOnly):
        """Refuses both."""

        _block: ClassVar[str]
        """What to use instead."""

        def __enter__(self) -> NoReturn:
            raise TypeError(f"{self!r} has no block of its own: {self._block}")

        async def __aenter__(self) -> NoReturn:
            raise TypeError(f"{self!r} has no block of its own: {self._block}")


class _HasName(Protocol):
    name: str


class Named(PublicObject):
    """An object with a name on the server."""

    _request: _HasName

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """The name that the object was made with, and the parts of its key behind it if it has one: ``login|4711``."""
        return self._request.name
