"""Tell an exception of a signal handler from an exception of a socket.

A job's time limit is often a handler that raises TimeoutError, which is an OSError: taken for a broken connection, the
limit would be gone. The handler's frame in the traceback shows the difference: the second argument of a handler is the
interrupted frame.
"""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["raise_from_handler"]


def raise_from_handler(error: BaseException) -> None:
    """Raise the exception of a signal handler, if this error is one, or was made of one by the client library."""
    if _is_from_handler(error):
        raise error
    cause = error.__context__
    if cause is not None and _is_from_handler(cause) and not _is_handled_around(cause):
        raise cause


def _is_from_handler(error: BaseException) -> bool:
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        interrupted, step = step.tb_frame, step.tb_next
        for value in step.tb_frame.f_locals.values():
            if value is interrupted or (type(value) is tuple and any(one is interrupted for one in value)):
                return True
    return False


def _is_handled_around(error: BaseException) -> bool:
    """Return whether the error is older: a caller of this code is in the middle of an ``except`` clause for it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- documented
    caught_in = error.__traceback__.tb_frame if error.__traceback__ else None
    while frame is not None and frame is not caught_in:
        frame = frame.f_back
    return frame is not None
