"""What a client gives as bytes or as str, depending on its ``decode_responses``, always as str."""

from __future__ import annotations

__all__ = ["text"]


def text(value: str | bytes) -> str:
    """The value as str."""
    return value.decode() if isinstance(value, bytes) else value
