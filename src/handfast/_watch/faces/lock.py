"""The face of a lock: of `lock`, `rlock`, `lock_all` and `together`."""

from __future__ import annotations

from typing import ClassVar

from handfast._watch.faces.leases import LeaseFace

__all__ = ["FACE", "LockFace"]


class LockFace(LeaseFace):
    """A lock."""

    noun: ClassVar[str] = "lock"


FACE = LockFace()
