"""Where a thread entered a ``with`` block: it shows whether a waiting call runs inside this block.

The frame that entered the block shows it. If this frame runs in the same thread and has gone on since, only it can
leave the block, and so not before the waiting call returns. The frame of a generator or coroutine is not among the
running frames while it is suspended: another thread or task may resume it. If a worker's frame calls ``__enter__`` for
others, it is at the same instruction again when it works for the next caller. An exit stack's frame has ended.
"""

from __future__ import annotations

import inspect
import sys
from threading import get_ident
from types import CodeType, FrameType
from typing import NamedTuple

__all__ = ["Entry"]


_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Entry(NamedTuple):
    """The instruction that entered a block, in one frame of a thread.

    An entry does not refer to the frame, so it keeps no local variables alive.
    """

    frame: int
    code: CodeType
    instruction: int
    thread: int

    @classmethod
    def of(cls, frame: FrameType) -> Entry:
        """Return the entry being made by a frame."""
        return cls(id(frame), frame.f_code, frame.f_lasti, get_ident())

    def is_around(self) -> bool:
        """Return whether the caller runs inside the block."""
        if self.thread != get_ident():
            return False
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- documented, and nothing else tells blocks apart
        while frame is not None:
            if id(frame) == self.frame and frame.f_code is self.code:
                return frame.f_lasti != self.instruction
            frame = frame.f_back
        return False

    def is_suspended(self) -> bool:
        """Return whether a generator or coroutine entered the block, and waits to be resumed."""
        return bool(self.code.co_flags & _SUSPENDABLE) and not self.is_around()
