"""How long an operation goes on when the network or the server fails, in both colours."""

from __future__ import annotations

import contextlib

__all__ = ["CLEANUP_FOR", "PAUSES", "RETRY_FOR", "UNDO_WAIT", "copy_exception"]

RETRY_FOR = 10.0
"""Seconds that a server which was there before is given to come back."""

UNDO_WAIT = 1.0
"""Seconds that cleaning up may take the caller; then it goes on in the background."""

CLEANUP_FOR = 20.0
"""Seconds for which it goes on there: as long as the server remembers what is over."""

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try; the last one goes on."""


def copy_exception(error: Exception) -> Exception:
    """The same error for one more who waits: each that is raised collects a traceback of its own."""
    with contextlib.suppress(TypeError):
        return type(error)(*error.args)
    return error
