"""The face of a budget: the spent and the held sum, the limit, and when the next period begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from handfast._amounts import amount_text
from handfast._watch.faces.face import Face, action_object
from handfast._watch.facts import Column, Facts, Label, Moment, Seen, Sentence, joined
from handfast.records import BudgetStatus

__all__ = ["FACE", "BudgetFace"]

IN_PERIOD = {"day": "today", "total": "in total"}
"""How a sentence says which period it is, where that is not ``this`` and the period."""


class BudgetFace(Face[BudgetStatus]):
    """An account of a budget. Who holds something of it is not recorded."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("BUDGET", is_flexible=True, shows="name"),
        *map(Column, ("SPENT", "HELD", "LIMIT", "RESETS IN")),
    )

    def facts(self, found: Seen[BudgetStatus]) -> Facts:
        status = found.status
        used = status.spent + status.held
        return Facts(
            share=float(used / status.limit) if status.limit else float(bool(used)),
            ends_at=None if status.resets_in is None else found.at + status.resets_in,
            is_idle=not used,
            last=status.last,
        )

    def who(self, found: Seen[BudgetStatus], facts: Facts) -> Sentence:
        status = found.status
        used = amount_text(status.spent + status.held)
        return (f"{used}/{amount_text(status.limit)} {_in_period(status)}",)

    def cells(self, found: Seen[BudgetStatus], facts: Facts) -> tuple[Sentence, ...]:
        status = found.status
        return (
            (Label(found.name),),
            (amount_text(status.spent),),
            (amount_text(status.held),) if status.held else (),
            (amount_text(status.limit),),
            () if facts.ends_at is None else (Moment(facts.ends_at),),
        )

    def says(self, found: Seen[BudgetStatus], facts: Facts) -> Sentence:
        status = found.status
        spent = f"{amount_text(status.spent)} of {amount_text(status.limit)} spent {_in_period(status)}"
        return joined((spent,), (f"{amount_text(status.held)} held",) if status.held else ())

    def notes(self, found: Seen[BudgetStatus], facts: Facts) -> Iterator[Sentence]:
        status = found.status
        if facts.ends_at is not None:
            yield f"the next {status.period} begins in ", Moment(facts.ends_at), f", in {status.zone}"
        if status.held:
            yield ("held by calls that go on, or were never settled",)
        if status.was:
            yield (f"the {status.period} before came to {amount_text(status.was)}",)

    def summary(self, found: Seen[BudgetStatus]) -> dict[str, Any]:
        status = found.status
        amounts = {name: str(getattr(status, name)) for name in ("spent", "held", "limit", "remaining")}
        ends = None if status.resets_at is None else status.resets_at.isoformat()
        return amounts | {"waiting": 0, "period": status.period, "resets_at": ends}

    def description(self, found: Seen[BudgetStatus]) -> dict[str, Any]:
        status = found.status
        rest = {"zone": status.zone, "begins": status.begins, "is_set": status.is_set, "was": str(status.was)}
        return rest | {"last": action_object(status.last)}


def _in_period(status: BudgetStatus) -> str:
    return IN_PERIOD.get(status.period, f"this {status.period}")


FACE = BudgetFace()
