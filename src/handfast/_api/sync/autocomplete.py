# Made by tools/unasync.py from _api/aio/autocomplete.py: edit that one, then run the tool.
"""Names that begin with what somebody has typed so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handfast._drivers.sync.driver import SyncDriver
from handfast._engine.autocomplete_calls import AutocompleteCalls
from handfast._engine.validate import check_limit, check_score
from handfast._protocol.completing import complete
from handfast._protocol.pieces import ask, each_piece

__all__ = ["Autocomplete"]


class Autocomplete:
    """An index of names. It is data, so it stays until it is removed; threads may share it.

    All calls are safe to repeat, and are repeated when a reply gets lost. Many names are sent in pieces of some hundreds:
    each piece is one step for other clients, all of them together are not.
    """

    def __init__(self, driver: SyncDriver, index: AutocompleteCalls) -> None:
        self._driver = driver
        self._index = index

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        """What the index is called."""
        return self._index.name

    def add(self, names: str | Iterable[str] | Mapping[str, float]) -> None:
        """Put a name in, or several, or (where they are ranked) several with their scores.

        What is there already stays. Without a score a new name of a ranked index has 0, and one that is there keeps its
        own. Raises TypeError and ValueError, before anything is sent, for what is no valid name (empty, above 16 KiB) or
        no finite score.
        """
        if isinstance(names, Mapping):
            if not self._index.ranked:
                raise TypeError(f"{self.name!r} does not rank its names: make it with ranked=True to give them scores")
            scored = [(self._index.entry(name), check_score(score, name)) for name, score in names.items()]
            self._driver.ask(each_piece(self._index.rank, scored), self.name)
        else:
            self._driver.ask(each_piece(self._index.add, self._entries(names)), self.name)

    def remove(self, names: str | Iterable[str]) -> None:
        """Take a name out, or several, written as they were added. What is not there is passed over."""
        self._driver.ask(each_piece(self._index.remove, self._entries(names)), self.name)

    def complete(self, prefix: str, *, limit: int = 10) -> tuple[str, ...]:
        """At most ``limit`` (to 10,000) of the names that begin with the prefix; all do with the empty one.

        In the order of their code points (folded, of what they fold to); or, ranked, by descending score and then in that
        order. One read of the server, which writes nothing; ranked, more of them where hundreds of names begin with the
        prefix and hardly any of the best ones do.
        """
        return self._driver.ask(complete(self._index, self._index.prefix(prefix), check_limit(limit)), self.name)

    def size(self) -> int:
        """How many names there are."""
        return int(self._driver.ask(ask(self._index.size()), self.name))

    def clear(self) -> None:
        """Forget all names."""
        self._driver.ask(ask(self._index.clear()), self.name)

    def _entries(self, names: str | Iterable[str]) -> list[bytes]:
        return [self._index.entry(name) for name in ([names] if isinstance(names, str) else names)]
