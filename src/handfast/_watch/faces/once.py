"""The face of a key of `once`: who runs it, and the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from handfast._protocol import once
from handfast._watch.faces.face import Act
from handfast._watch.faces.leases import LeaseFace
from handfast._watch.facts import Facts, Length, Seen, Sentence
from handfast.records import LockStatus, OnceStatus

if TYPE_CHECKING:
    from handfast import Handfast, Once
    from handfast._protocol.asking import Acted

__all__ = ["FACE", "OnceFace"]

CELLS = {"begun": "began, did not end", "unstored": "done, not stored"}
"""The words of a cell for the state of a record, where the state itself is unclear."""


class OnceFace(LeaseFace):
    """A key of `once`. It is held while it is run."""

    noun: ClassVar[str] = "once"
    acts: ClassVar[tuple[Act, ...]] = ("release", "hold", "forget")
    has_records: ClassVar[bool] = True

    def free(self, found: Seen[LockStatus]) -> Sentence:
        return () if found.recorded is None else (CELLS.get(found.recorded.state, found.recorded.state),)

    def last_used(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        record = found.recorded
        if record is not None and record.age is not None and not facts.holding:
            return Length(record.age), " ago"
        return super().last_used(found, facts)

    def says(self, found: Seen[LockStatus], facts: Facts) -> Sentence:
        record = found.recorded
        if record is None or facts.holding or facts.waiting:
            return super().says(found, facts)
        return _recorded(record)

    def notes(self, found: Seen[LockStatus], facts: Facts) -> Iterator[Sentence]:
        if found.recorded is not None and (facts.holding or facts.waiting):
            yield _recorded(found.recorded)
        yield from super().notes(found, facts)

    def summary(self, found: Seen[LockStatus]) -> dict[str, Any]:
        record = found.recorded
        own = {} if record is None else {"recorded": {"state": record.state, "age": record.age}}
        return super().summary(found) | own

    def version(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        made = _made(client, name, parts)
        version: str = client._driver.look(once.version(made._request), made.name)  # noqa: SLF001 -- no call has it
        return version

    def forget(self, client: Handfast, name: str, parts: tuple[str, ...], version: str) -> Acted:
        made = _made(client, name, parts)
        steps = once.forget_shown(made._request, version)  # noqa: SLF001 -- as above
        return client._driver.run(steps, made.name)  # noqa: SLF001 -- as above

    def recorded(self, client: Handfast, name: str, parts: tuple[str, ...]) -> str:
        return str(_made(client, name, parts).status())


def _recorded(record: OnceStatus) -> Sentence:
    """Return how far a key has come."""
    ago = Length(record.age or 0)
    states: dict[str, Sentence] = {
        "done": ("done ", ago, " ago"),
        "running": ("running since ", ago, " ago"),
        "failed": ("failed ", ago, " ago, and is not run again"),
        "begun": ("began ", ago, " ago and did not end; it is not run again"),
        "unstored": ("done ", ago, " ago, and its result could not be stored"),
    }
    return states.get(record.state, (record.state,))


def _made(client: Handfast, name: str, parts: tuple[str, ...]) -> Once:
    made = client.once(name)
    return made.keyed(*parts) if parts else made


FACE = OnceFace()
