"""The options of a run, parsed and checked before any server is contacted or started."""

from __future__ import annotations

from typing import Literal, NamedTuple

import click

from handfast._engine.validate import check_int, encode_name

__all__ = [
    "BUSY",
    "Options",
    "RunCommand",
    "parse_name",
    "parse_slots",
]

BUSY = 75
"""Exit code if the name is taken, unless ``-E`` sets another (EX_TEMPFAIL of sysexits.h)."""


class Options(NamedTuple):
    """The command line, parsed. Durations are in seconds."""

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
    url: str
    namespace: str
    label: str | None

    @property
    def wait_timeout(self) -> float | None:
        """Seconds to wait in the queue: 0 does not wait, None waits indefinitely."""
        return self.wait if self.wait is not None or not (self.nonblock or self.skip_ok) else 0.0

    @property
    def busy_code(self) -> int:
        """The exit code if the name is taken."""
        return 0 if self.skip_ok else self.conflict_exit_code


class RunCommand(click.Command):
    """A click command whose own options end at ``--``; everything after it is COMMAND and is not parsed."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        try:
            super().parse_args(ctx, args[:end])
            if (ctx.args or not args[end + 1 :]) and not ctx.resilient_parsing:
                ctx.fail("Give one NAME and one COMMAND, separated by --.")
        except click.UsageError as error:
            hint = "" if "--" in args else " The command comes after --, as in: handfast run NAME -- COMMAND"
            raise click.UsageError(error.format_message() + hint, ctx) from None
        ctx.params["command"] = tuple(args[end + 1 :])
        ctx.args = []
        return []


def parse_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Check a name as the library does."""
    try:
        encode_name(value, "a name")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def parse_slots(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Check the limit of a semaphore as the library does."""
    from handfast._engine.calls import MAX_PERMITS

    try:
        return None if value is None else check_int(value, "the number of slots", MAX_PERMITS)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
