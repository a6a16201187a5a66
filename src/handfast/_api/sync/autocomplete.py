# Generated from _api/aio/autocomplete.py by tools/unasync.py: edit that file and run the tool.
"""An index of names that completes prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handfast._api.sync.object import Object
from handfast._engine.autocomplete import AutocompleteRequest
from handfast._engine.validate import check_limit, check_score
from handfast._naming import name_publicly
from handfast._protocol.asking import in_batches, reply_to
from handfast._protocol.completing import complete

__all__ = ["Autocomplete"]


class Autocomplete(Object):
    """A named index that completes prefixes to entries. Made by the client's ``autocomplete()``.

    It is data and stays on the server until it is removed. All calls are idempotent and are sent again if a reply is
    lost. Large calls are sent in batches of some hundred entries. Each batch is atomic, the whole call is not. Threads
    or tasks may share the object.

    Every method may raise ServerRefused and redis-py's connection errors.

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        cities = hf.autocomplete("cities", fold_case=True)
        cities.add(["Berlin", "Bern"])
        cities.complete("be")
    """

    _request: AutocompleteRequest

    def add(self, names: str | Iterable[str] | Mapping[str, float]) -> None:
        """Add entries; existing entries stay.

        Args:
            names: One entry, or several, each of 1 byte to 16 KiB of UTF-8. For a ranked index also a mapping of
                entries to finite scores. Without a score, a new entry of a ranked index gets 0.0 and an existing entry
                keeps its score.

        Raises:
            TypeError: An entry is no str, a score no number, or the index is not ranked. Nothing was sent.
            ValueError: An entry or a score is out of range. Nothing was sent.
        """
        if isinstance(names, Mapping):
            if not self._request.ranked:
                raise TypeError(f"{self.name!r} does not rank its names: make it with ranked=True to give them scores")
            scored = [(self._request.entry(name), check_score(score, name)) for name, score in names.items()]
            self._driver.run(in_batches(self._request.rank, scored), self.name)
        else:
            self._driver.run(in_batches(self._request.add, self._entries(names)), self.name)

    def remove(self, names: str | Iterable[str]) -> None:
        """Remove entries, spelled as they were added. Those that are not there are ignored.

        Args:
            names: One entry, or several.
        """
        self._driver.run(in_batches(self._request.remove, self._entries(names)), self.name)

    def complete(self, prefix: str, *, limit: int = 10) -> tuple[str, ...]:
        """Return entries that begin with a prefix, and write nothing.

        They are in the order of their code points (with ``fold_case``, of their folded form); with ``ranked``, in
        descending order of their scores, and then in this order. Takes one round trip for up to 1,500 entries, or 380
        with ``fold_case``. With ``ranked`` it takes more of them where hundreds of entries begin with the prefix, but
        few of those with the highest scores do.

        Args:
            prefix: The beginning of the entries; the empty prefix returns all of them.
            limit: How many entries at most, from 1 to 10,000.
        """
        return self._driver.run(complete(self._request, self._request.prefix(prefix), check_limit(limit)), self.name)

    def size(self) -> int:
        """Return the number of entries. Takes a round trip."""
        return int(self._driver.run(reply_to(self._request.command("ZCARD", "names")), self.name))

    def clear(self) -> None:
        """Remove all entries. Takes a round trip."""
        self._driver.run(reply_to(self._request.clear()), self.name)

    def _entries(self, names: str | Iterable[str]) -> list[bytes]:
        return [self._request.entry(name) for name in ([names] if isinstance(names, str) else names)]


name_publicly(globals(), "handfast")
