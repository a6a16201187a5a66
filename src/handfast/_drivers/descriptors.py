"""Tell an open file from another one that has got its number since: daemons close all files, those of libraries, too."""

from __future__ import annotations

import os

__all__ = ["identity"]


def identity(fd: int) -> tuple[int, int] | None:
    """Return what no other open file has; None if the number is no open file's."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
