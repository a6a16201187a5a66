"""The scripts that a server knows, as far as one session has found out. No I/O."""

from __future__ import annotations

__all__ = ["KnownScripts"]


class KnownScripts:
    """Decides which calls wait until it is known whether the server has their script.

    The first call of a script leaves with its digest. Most servers know it; where one does not, that call leaves again
    with the source, and those that waited right behind it. Without that, all calls of a start would be refused, and
    sent twice.
    """

    __slots__ = ("asked", "known")

    def __init__(self) -> None:
        self.known: set[str] = set()
        """Their digests."""
        self.asked: set[str] = set()
        """Those that were called once, without a reply so far."""

    def may_leave(self, digest: str) -> bool:
        """Return whether a call may leave now: the first one of its script, or any if the script is known."""
        if digest in self.known:
            return True
        if digest in self.asked:
            return False
        self.asked.add(digest)
        return True

    def note(self, digest: str) -> None:
        """Let the calls of a script leave: the server knows it, or its source leaves before them."""
        self.asked.discard(digest)
        self.known.add(digest)

    def forget(self, digest: str) -> None:
        """Let another call be the first one of a script: the server does not know it, and that call was given up."""
        self.asked.discard(digest)

    def reconnect(self) -> None:
        """Expect no replies any more.

        The next server most likely has the same scripts: what is sent again keeps its order.
        """
        self.asked.clear()
