"""Which primitives are meant, as a command line says it: ``--for lock,semaphore``."""

from __future__ import annotations

import click

__all__ = ["ALL", "uses"]

ALL = "all"


def uses(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    """The names of `handfast.acl.USES` in a list with commas; ``all`` is all of them."""
    from handfast.acl import USES

    given = [word.strip() for word in value.split(",")]
    if ALL in given:
        return USES
    if unknown := [word for word in given if word not in USES]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join((*USES, ALL))}")
    return tuple(given)
