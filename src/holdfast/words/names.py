"""Names that users choose, written so that no name can break out of the key it becomes a part of."""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["LONGEST_NAME", "encode_name"]

LONGEST_NAME = 16 * 1024
"""Bytes of UTF-8 that a name may have."""


def encode_name(name: str, what: str, *, safe: str = "") -> str:
    """The name with every byte but letters, digits, ``_.-~`` and those in ``safe`` percent-encoded.

    Different names stay different, the text is ASCII without braces, blanks or control characters, and
    ``urllib.parse.unquote`` brings the name back. Raises TypeError for what is no str, and ValueError
    for the empty name, one above 16 KiB and one that is no valid Unicode.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {name!r}")
    if not name:
        raise ValueError(f"{what} must not be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, not {name!r}") from None
    if size > LONGEST_NAME:
        raise ValueError(f"{what} must be at most {LONGEST_NAME} bytes of UTF-8, not {size}")
    return quote(name, safe=safe)
