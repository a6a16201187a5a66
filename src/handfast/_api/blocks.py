"""The ``with`` blocks of an object which threads or tasks share, with the lease of each; or a single block."""

from __future__ import annotations

from types import FrameType
from typing import Any, Generic, Protocol, Self, TypeVar
from weakref import ref

from handfast._drivers.failures import unbalanced_exit
from handfast.errors import NotOwner

__all__ = ["Blocks", "Entrance"]


class Entered(Protocol):
    """The object held by a block: the scope of a driver."""

    def _begin(self, frame: FrameType, caller: Any, /) -> Self: ...


L = TypeVar("L", bound=Entered)


class Callers(Protocol):
    """Knows threads or tasks, as drivers do."""

    def caller(self) -> object: ...

    def is_over(self, caller: object) -> bool: ...


class Blocks(Generic[L]):
    """The entered blocks of each caller, in order: the entering frame, and the lease.

    With ``owned``, a block that its frame does not tell belongs to the caller, or to a caller that has ended.
    """

    def __init__(self, callers: Callers, *, owned: bool = False) -> None:
        self._callers = callers
        self._owned = owned
        self._entered: dict[object, list[tuple[FrameType, L]]] = {}

    def __len__(self) -> int:
        """Return how many callers are in blocks."""
        return len(self._entered)

    def enter(self, frame: FrameType, lease: L) -> L:
        """Enter a block of the caller in this frame, with a lease just acquired."""
        caller = self._callers.caller()
        blocks = self._entered.get(caller)
        if blocks is None:
            self._entered[caller] = [(frame, lease)]
        else:
            blocks.append((frame, lease))
        return lease._begin(frame, caller)  # noqa: SLF001 -- of the drivers, too

    def leave(self, frame: FrameType) -> L | None:
        """Remove the block being left in this frame, and return the lease; None without a block."""
        mine = self._callers.caller()
        blocks = self._entered.get(mine)
        if blocks and blocks[-1][0] is frame:  # as nearly always
            caller, lease = mine, blocks[-1][1]
        elif (scope := self.left_in(frame)) is not None:
            caller, lease = scope
        else:
            return None
        self.forget(caller, lease)
        return lease

    def left_in(self, frame: FrameType) -> tuple[object, L] | None:
        """Return the block being left in this frame: the caller that entered it, and the lease.

        A framework may enter a block in one thread or task, and leave it in another: the block of a generator, for
        example, whose frame stays the same. An exit stack enters and leaves in separate frames: then it is the caller's
        latest block, or else the block of the only other caller. Of several other callers none is chosen, since the
        choice might be wrong.
        """
        mine = self._callers.caller()
        # The caller's own blocks first. The tuple is a copy: other threads enter and leave meanwhile.
        for caller in (mine, *self._entered):
            # The innermost first: one frame may have entered several blocks.
            for entered_in, lease in reversed(self._entered.get(caller, ())):
                if entered_in is frame:
                    return caller, lease
        if blocks := self._entered.get(mine):
            return mine, blocks[-1][1]
        others = [caller for caller in list(self._entered) if not self._owned or self._callers.is_over(caller)]
        foreign = [(caller, blocks[-1][1]) for caller in others if (blocks := self._entered.get(caller))]
        return foreign[0] if len(foreign) == 1 else None

    def forget(self, caller: object, lease: L) -> None:
        """Remove a block from the books. A second call changes nothing."""
        blocks = self._entered.get(caller, [])
        for block in blocks:
            if block[1] is lease:
                blocks.remove(block)
                break
        if not blocks:
            self._entered.pop(caller, None)

    def unbalanced_exit(self, primitive: Any) -> Exception:
        """Return the error for an exit that leaves none of the blocks."""
        if self._owned and self._entered:
            return NotOwner(primitive.name)
        return unbalanced_exit(primitive, others=len(self._entered) > 1)


class Entrance:
    """Lets a single caller into a block that can be entered once, whether others come at the same time or later."""

    def __init__(self, block: object, advice: str) -> None:
        self._block = ref(block)
        self._advice = advice
        self._places = [True]

    def claim(self) -> None:
        """Enter. Raises RuntimeError if another caller is in, or was."""
        try:
            self._places.pop()  # atomic
        except IndexError:
            raise RuntimeError(f"{self._block()!r} can be entered once; {self._advice}") from None

    def reopen(self) -> None:
        """Let another caller in, since this caller did not get in."""
        self._places.append(True)
