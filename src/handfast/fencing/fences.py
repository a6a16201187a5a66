"""The range of fences, and the errors of fencing. Knows no resource."""

from __future__ import annotations

from handfast.errors import HandfastError

__all__ = ["LARGEST_FENCE", "MissingRow", "StaleFence", "check_fence"]

LARGEST_FENCE = 2**53 - 1
"""The largest fence. Lua's numbers are doubles, and above 2**53 two fences could compare equal. Fences of leases are
microseconds since 1970, and reach this in the year 2255."""


class StaleFence(HandfastError):
    """A write was refused because the resource has seen a newer fence. Nothing was changed.

    Attributes:
        key: The key of the refused write, or a description of the row. None for an error of a pipeline, which does not
            say which command failed.
        fence: The fence of the refused write.
        newer: The newer fence seen by the resource; None if the database did not show it.

    """

    def __init__(self, key: str | bytes | None, fence: int, newer: int | None) -> None:
        write = "a write" if key is None else f"a write to {key!r}"
        reason = (
            f"the resource has seen the newer fence {newer}, so the lock was lost and acquired by another holder"
            if newer is not None
            else "the row changed concurrently, or the driver counts only changed rows (for MySQL set FOUND_ROWS)"
        )
        super().__init__(
            f"{write} with fence {fence} was refused: {reason}; stop the protected work and acquire the lock again",
            name=key.decode(errors="backslashreplace") if isinstance(key, bytes) else key,
        )
        self.key = key
        self.fence = fence
        self.newer = newer


class MissingRow(HandfastError, LookupError):
    """The row to update does not exist. Nothing was changed."""

    def __init__(self, row: str) -> None:
        super().__init__(f"there is no row in {row}; insert it first, with its fence", name=row)


def check_fence(fence: int) -> int:
    """Return the fence.

    Raises:
        TypeError: It is not an int.
        ValueError: It is below 0 or above `LARGEST_FENCE`.

    """
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise TypeError(f"a fence must be an int, such as lease.fence, not {fence!r}")
    if not 0 <= fence <= LARGEST_FENCE:
        raise ValueError(f"a fence must be from 0 to 2**53 - 1, not {fence!r}")
    return int(fence)
