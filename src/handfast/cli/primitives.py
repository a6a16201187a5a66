"""The option that names primitives on a command line: ``--for lock,semaphore``."""

from __future__ import annotations

import click

__all__ = ["ALL", "parse_uses"]

ALL = "all"


def parse_uses(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    """Return the names of `handfast.acl.USES` in a comma-separated list; ``all`` stands for every one of them."""
    from handfast.acl import USES

    given = [word.strip() for word in value.split(",")]
    if ALL in given:
        return USES
    if unknown := [word for word in given if word not in USES]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join((*USES, ALL))}")
    return tuple(given)
