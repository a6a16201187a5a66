"""Names that users choose, written so that no name can break out of the key it becomes a part of."""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["LONGEST_NAME", "encode_name", "utf8"]

LONGEST_NAME = 16 * 1024
"""Bytes of UTF-8 that a name may have."""


def encode_name(name: str, what: str, *, safe: str = "") -> str:
    """The name with every byte but letters, digits, ``_.-~`` and those in ``safe`` percent-encoded.

    Different names stay different, the text is ASCII without braces, blanks or control characters, and
    ``urllib.parse.unquote`` brings the name back. Raises TypeError for what is no str, and ValueError
    for the empty name, one above 16 KiB and one that is no valid Unicode.
    """
    return quote(utf8(name, what), safe=safe)


def utf8(text: str, what: str) -> bytes:
    """The text as the server keeps it. Raises TypeError and ValueError as `encode_name` does."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {text!r}")
    if not text:
        raise ValueError(f"{what} must not be empty")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, not {text!r}") from None
    if len(data) > LONGEST_NAME:
        raise ValueError(f"{what} must be at most {LONGEST_NAME} bytes of UTF-8, not {len(data)}")
    return data
