"""Durations on the command line: as timeout(1) and systemd take them, seconds or a number with a unit, and as people read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from handfast._engine.validate import head_start_microseconds, milliseconds

__all__ = [
    "TIMES",
    "head_start_option",
    "limit",
    "parse_duration",
    "parse_duration_or_zero",
    "parse_length",
    "period",
    "span",
]

F = TypeVar("F", bound=Callable[..., Any])

TIMES = "\nTIME is in seconds, or has units: 500ms, 30s, 1m30s, 1h, 1d.\n"
"""Says in the epilog of a command how a duration is written."""

UNITS: dict[str, float] = {"d": 86400, "h": 3600, "m": 60, "s": 1, "": 1, "ms": 0.001}
"""Seconds of each unit, the largest first."""


def parse_duration(_ctx: click.Context | None, _param: click.Parameter | None, value: str | None) -> float | None:
    """Return the seconds, within the bounds of the library."""
    if value is None:
        return None
    try:
        seconds = _seconds(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no duration: write 30, 30s, 5m, 1m30s, 1h, 1d or 500ms") from None
    try:
        milliseconds(seconds, "a duration")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return seconds


def parse_length(ctx: click.Context, param: click.Parameter, value: str | None) -> float:
    """Return the seconds of an option that is needed."""
    if value is None:
        raise click.UsageError(f"Missing option {param.opts[0]!r}, such as {param.opts[0]} 1h.", ctx)
    return parse_duration(ctx, param, value) or 0.0


def _seconds(text: str) -> float:
    """Return the seconds of a number with or without a unit; or of several with different ones, as `span` writes them.

    Raises ValueError.
    """
    if one := re.fullmatch(r"([-+.0-9]+(?:e[-+]?[0-9]+)?)([a-z]*)", text):
        if one[2] not in UNITS:
            raise ValueError(text)
        return float(one[1]) * UNITS[one[2]]
    if not re.fullmatch(r"([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?", text) or not text:
        raise ValueError(text)
    return sum(int(number) * UNITS[unit] for number, unit in re.findall("([0-9]+)([a-z]+)", text))


def parse_duration_or_zero(ctx: click.Context | None, param: click.Parameter | None, value: str | None) -> float | None:
    """Return the seconds, which may be 0."""
    return 0.0 if value is not None and re.fullmatch("0+(ms|s|m|h|d)?", value) else parse_duration(ctx, param, value)


def _parse_head_start(ctx: click.Context, param: click.Parameter, value: str) -> float:
    seconds = parse_duration_or_zero(ctx, param, value) or 0.0
    try:
        head_start_microseconds(seconds)
    except ValueError:
        raise click.BadParameter(f"{value!r} is more than a day") from None
    return seconds


head_start_option: Callable[[F], F] = click.option(
    "--head-start",
    callback=_parse_head_start,
    metavar="TIME",
    default="0",
    help="Wait as if this had come so much earlier, up to a day: before those who came within that time.",
)


def limit(seconds: float) -> str:
    """Return a length of time that someone has chosen: not rounded where it is short."""
    return f"{seconds:g}s" if seconds < 10 else span(seconds)


def period(seconds: float) -> str:
    """Return the period of a rate: ``1m``, ``24h`` as ``1d``, ``1m30s``."""
    return re.sub(r"(?<=[dhm])0+[hms]$", "", limit(seconds))


def span(seconds: float) -> str:
    """Return a length of time in at most two units, rounded down.

    For example ``0.8s``, ``21s``, ``4m12s``, ``1h02m``, ``3d04h``.
    """
    whole = int(seconds)
    if whole < 10:
        return f"{int(seconds * 10) / 10:.1f}s"
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02}{small}"
    return f"{whole}s"
