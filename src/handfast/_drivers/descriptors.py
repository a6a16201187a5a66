"""Tell an open file from a later file with the same number: daemons close all files, those of libraries, too."""

from __future__ import annotations

import os

__all__ = ["identity"]


def identity(fd: int) -> tuple[int, int] | None:
    """Return a pair that no other open file has; None if the number belongs to no open file."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
