"""The stored form of a result of `once`, or of an item of `Debounce.collect`: bytes, by default of JSON."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["MAX_RESULT_BYTES", "Codec", "describe"]

MAX_RESULT_BYTES = 1024 * 1024
"""Upper bound of a stored result. Every caller gets it over the network, and the server keeps it in memory."""

MAX_REASON_CHARACTERS = 500
"""How much of an exception's text is stored."""


class Codec:
    """Two functions: from a value to bytes, and back. Errors call it ``what``; it has ``most`` bytes at most."""

    def __init__(
        self,
        dumps: Callable[[Any], Any] | None,
        loads: Callable[[bytes], Any] | None,
        what: str = "a result",
        most: int = MAX_RESULT_BYTES,
    ) -> None:
        if dumps is bytes:
            dumps, loads = _plain, loads or bytes
        if (dumps is None) != (loads is None):
            raise ValueError("dumps and loads belong together: give both or neither (dumps=bytes needs no loads)")
        for name, function in (("dumps", dumps), ("loads", loads)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function of one argument, not {function!r}")
        self._what = what
        self._most = most
        self._dumps = dumps or _to_json
        self._loads = loads or _from_json

    def encode(self, value: Any) -> tuple[bytes, Any]:
        """Return the bytes of a value, and the value which others will read from them.

        Raises TypeError, ValueError and the errors of the functions.
        """
        data = self._dumps(value)
        if not isinstance(data, bytes):
            raise TypeError(f"dumps must return bytes, not {type(data).__name__}")
        if len(data) > self._most:
            raise ValueError(f"{self._what} must be at most {self._most:,} bytes as it is stored, not {len(data):,}")
        return data, self.decode(data)

    def decode(self, data: bytes) -> Any:
        """Return the value of these bytes."""
        return self._loads(data)


def describe(error: BaseException) -> bytes:
    """Return the stored form of an exception: kind and text."""
    text = type(error).__name__
    with suppress(Exception):  # of its own __str__: a run ends however its error is made
        text = f"{text}: {error}".removesuffix(": ")
    return text[:MAX_REASON_CHARACTERS].encode(errors="replace")


def _plain(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):  # of a number, `bytes` would make so many zeros
        raise TypeError(f"it must be bytes with dumps=bytes, not {type(value).__name__}")
    return bytes(value)


def _to_json(value: Any) -> bytes:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(data: bytes) -> Any:
    import json

    return json.loads(data)
