"""What a fence may be, and the errors of those who enforce it. It knows of no resource."""

from __future__ import annotations

from handfast.errors import HandfastError

__all__ = ["LARGEST_FENCE", "MissingRow", "StaleFence", "fence_of"]

LARGEST_FENCE = 2**53 - 1
"""Lua's numbers are doubles: above this, two fences might look the same. Those of leases, microseconds since 1970, come
there in the year 2255."""


class StaleFence(HandfastError):
    """A write was refused, and nothing was changed: somebody with a newer fence has been there."""

    def __init__(self, key: str | bytes | None, fence: int, newer: int | None) -> None:
        what = "a write" if key is None else f"a write to {key!r}"
        why = (
            f"the newer fence {newer} has been there, so the lock was lost and taken over"
            if newer is not None
            else "the row changed meanwhile, or the driver counts only what changes (for MySQL set FOUND_ROWS)"
        )
        super().__init__(
            f"{what} with fence {fence} was refused: {why}; stop the protected work, and acquire the lock again",
            name=key.decode(errors="backslashreplace") if isinstance(key, bytes) else key,
        )
        self.key = key
        """What was not written: a key, or a row in words. None for an error of a pipeline, which does not tell."""
        self.fence = fence
        self.newer = newer
        """The fence that was in the way; None where the database did not show it."""


class MissingRow(HandfastError, LookupError):
    """There is no such row to update. Nothing was changed."""

    def __init__(self, row: str) -> None:
        super().__init__(f"there is no row in {row}: insert it first, with its fence", name=row)


def fence_of(fence: int) -> int:
    """The fence. Raises TypeError for what is no int, and ValueError for one below 0 or above 2**53 - 1."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise TypeError(f"a fence must be an int, such as lease.fence, not {fence!r}")
    if not 0 <= fence <= LARGEST_FENCE:
        raise ValueError(f"a fence must be from 0 to 2**53 - 1, not {fence!r}")
    return int(fence)
