"""The scripts that a server knows, as far as one session has found out. No I/O."""

from __future__ import annotations

from typing import Any

from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_noscript

__all__ = ["KnownScripts"]


class KnownScripts:
    """Decides which calls wait until it is known whether the server has their script.

    The first call of a script leaves with the digest of the script. Most servers know it. If a server does not, this
    call leaves again with the source, and the waiting calls follow right behind it. Otherwise all calls of a start
    would be refused, and sent twice.
    """

    __slots__ = ("_sources_sent", "asked", "known", "unknown")

    def __init__(self) -> None:
        self.known: set[str] = set()
        """Their digests."""
        self.asked: set[str] = set()
        """Those that were called once, without a reply so far."""
        self.unknown: set[str] = set()
        """Those of batches that the server does not know."""
        self._sources_sent: dict[str, int] = {}
        """With which call of this connection the source of a script left last."""

    def may_leave(self, digest: str) -> bool:
        """Return whether a call may leave now: the first call of a script, or any call of a known script."""
        if digest in self.known:
            return True
        if digest in self.asked:
            return False
        self.asked.add(digest)
        return True

    def note(self, digest: str) -> None:
        """Let the calls of a script leave: the server knows it, or the source leaves before them."""
        self.asked.discard(digest)
        self.known.add(digest)

    def learn(self, digest: str, reply: Any) -> None:
        """Take a reply. If the server does not know the script, another call of it may be the first call."""
        if type(reply) is ErrorReply and is_noscript(reply):
            self.asked.discard(digest)
        else:
            self.note(digest)

    def needs_source(self, digest: str, number: int, count: int) -> bool:
        """Return whether a call refused with NOSCRIPT must bring the source: no source left after the call did.

        It was the call ``number`` of this connection, which has sent ``count``.
        """
        if self._sources_sent.get(digest, -1) > number:
            return False
        self._sources_sent[digest] = count + 1
        self.note(digest)
        return True

    def reconnect(self) -> None:
        """Expect no replies any more.

        The next server most likely has the same scripts: calls sent again keep their order.
        """
        self.asked.clear()
        self._sources_sent.clear()
