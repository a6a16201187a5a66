"""Replies as str, whether or not the client has ``decode_responses``."""

from __future__ import annotations

__all__ = ["text"]


def text(value: str | bytes) -> str:
    """Return the value as str. Bytes that are no text stay different from each other."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
