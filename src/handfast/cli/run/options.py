"""What was asked for on a command line, and how it is read: checked before any server is reached or started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from handfast._engine.durations import milliseconds
from handfast._engine.names import encode_name
from handfast._engine.validate import check_int

__all__ = ["BUSY", "Order", "RunCommand", "Usage", "name", "seconds", "seconds_or_zero", "slots"]

USAGE, BUSY = 64, 75
"""Exit codes, as in sysexits.h."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for. Durations in seconds."""

    name: str
    command: tuple[str, ...]
    slots: int | None
    shared: bool
    exclusive: bool
    nonblock: bool
    wait: float | None
    conflict_exit_code: int
    skip_ok: bool
    ttl: float
    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float
    url: str | None
    namespace: str
    label: str | None

    @property
    def patience(self) -> float | None:
        """How long to wait: 0 not at all, None without limit."""
        return self.wait if self.wait is not None or not (self.nonblock or self.skip_ok) else 0.0

    @property
    def busy_code(self) -> int:
        """The exit code when the name is taken."""
        return 0 if self.skip_ok else self.conflict_exit_code


class Usage(click.UsageError):
    """A usage error that exits as sysexits.h has it."""

    exit_code = USAGE


class RunCommand(click.Command):
    """Our own options end at ``--`` and what comes later is COMMAND's: no option is ever taken for the other's."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """How the command line looks."""
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line, ours by click, and COMMAND's not at all."""
        end = args.index("--") if "--" in args else len(args)
        try:
            super().parse_args(ctx, args[:end])
            if (ctx.args or not args[end + 1 :]) and not ctx.resilient_parsing:
                ctx.fail("Give one NAME and one COMMAND, with -- between them.")
        except click.UsageError as error:
            hint = "" if "--" in args else " The command comes after --."
            raise Usage(error.format_message() + hint, ctx) from None
        ctx.params["command"] = tuple(args[end + 1 :])
        ctx.args = []
        return []


def seconds(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """A duration as the library takes it."""
    try:
        milliseconds(0.001 if value is None else value, "it")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def seconds_or_zero(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """The same, or zero, which means: not at all."""
    return value if value == 0 else seconds(ctx, param, value)


def name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """A name as the library takes it."""
    try:
        encode_name(value, "it")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def slots(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """A number of slots as the library takes it."""
    from handfast._engine.calls import MAX_PERMITS

    try:
        return None if value is None else check_int(value, "it", MAX_PERMITS)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
