"""Durations on the command line: seconds as a number, or a number with a unit, as timeout(1) and systemd take them."""

from __future__ import annotations

import re

import click

from handfast._engine.validate import milliseconds

__all__ = ["parse_duration", "parse_duration_or_zero"]

UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of each unit."""


def parse_duration(_ctx: click.Context | None, _param: click.Parameter | None, value: str | None) -> float | None:
    """Return the seconds, within the bounds of the library."""
    if value is None:
        return None
    found = re.fullmatch(r"([-+.0-9]+(?:e[-+]?[0-9]+)?)([a-z]*)", value)
    try:
        seconds = float(found[1]) * UNITS[found[2]] if found else None
    except (ValueError, KeyError):
        seconds = None
    if seconds is None:
        raise click.BadParameter(f"{value!r} is no duration: write 30, 30s, 5m, 1h, 1d or 500ms")
    try:
        milliseconds(seconds, "a duration")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return seconds


def parse_duration_or_zero(ctx: click.Context | None, param: click.Parameter | None, value: str | None) -> float | None:
    """Return the seconds, which may be 0."""
    return 0.0 if value is not None and re.fullmatch("0+(ms|s|m|h|d)?", value) else parse_duration(ctx, param, value)
