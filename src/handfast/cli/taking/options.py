"""The options for the name and the wait, parsed and checked before any server is contacted or started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

import click

from handfast._engine.validate import check_int
from handfast._kinds import MAX_PERMITS
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import head_start_option, parse_duration, parse_duration_or_zero
from handfast.cli.exits import BUSY
from handfast.cli.holding import label_option

__all__ = ["Options", "taking_options"]

F = TypeVar("F", bound=Callable[..., Any])


class Options(NamedTuple):
    """The name to take, and how. Durations are in seconds."""

    name: str
    slots: int | None
    shared: bool
    exclusive: bool
    nonblock: bool
    wait: float | None
    conflict_exit_code: int
    ttl: float
    at_least: float | None
    url: str
    namespace: str
    label: str | None
    verbose: bool
    skip_ok: bool = False
    max_hold: float | None = None
    head_start: float = 0.0
    preempt: bool = False
    replace: bool = False
    grace: float | None = None

    @classmethod
    def of(cls, ctx: click.Context, given: dict[str, Any]) -> Self:
        """Take our options out of the command line. Raises click's UsageError for options that exclude each other."""
        options = cls(**{field: given.pop(field) for field in cls._fields if field in given})
        if fault := next(options._faults(), None):
            raise click.UsageError(fault, ctx)
        return options

    def _faults(self) -> Iterator[str]:
        """Yield what is wrong with the options together."""
        families = (self.slots is not None) + self.shared + self.exclusive
        takes_over = self.preempt or self.replace
        if self.nonblock and self.wait:
            yield "Use either --nonblock or --wait."
        if families > 1:
            yield "Use only one of --slots, --shared and --exclusive."
        if self.preempt and self.replace:
            yield "Use either --preempt or --replace."
        if takes_over and (self.nonblock or self.wait == 0):
            yield "Use --preempt and --replace without --nonblock and --wait 0."
        if takes_over and (self.shared or self.exclusive or (self.slots or 1) > 1):
            yield "Use --preempt and --replace without -s, -x and more than one slot."
        if self.grace is not None and not self.preempt:
            yield "Use --grace with --preempt."
        if self.at_least and families:
            yield "Use --at-least without --slots, --shared and --exclusive."

    @property
    def wait_timeout(self) -> float | None:
        """Seconds to wait in the queue: 0 does not wait, None waits indefinitely."""
        skips = self.skip_ok and not (self.preempt or self.replace)
        return self.wait if self.wait is not None or not (self.nonblock or skips) else 0.0

    @property
    def busy_code(self) -> int:
        """The exit code if the name is taken."""
        return 0 if self.skip_ok else self.conflict_exit_code


def parse_slots(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Check the limit of a semaphore as the library does."""
    try:
        return None if value is None else check_int(value, "the number of slots", MAX_PERMITS)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def taking_options(own: Callable[[F], F]) -> Callable[[F], F]:
    """Add NAME and the options of `Options`, with those that only this command has among them."""
    before: list[Callable[[F], F]] = [
        click.argument("name", callback=parse_name),
        click.option(
            "--slots",
            type=int,
            metavar="N",
            callback=parse_slots,
            help="Semaphore: let up to N hold NAME at a time. If N differs, each waits until fewer than its own N hold it.",
        ),
        click.option(
            "-s", "--shared", is_flag=True, help="Read-write lock: hold NAME together with others that use -s."
        ),
        click.option(
            "-x", "--exclusive", is_flag=True, help="Read-write lock: hold NAME alone, without any that uses -s or -x."
        ),
        click.option("-n", "--nonblock", is_flag=True, help="Do not wait if NAME is taken."),
        click.option(
            "-w",
            "--wait",
            callback=parse_duration_or_zero,
            metavar="TIME",
            help="Wait at most this long; 0 does not wait.  [default: no limit]",
        ),
        head_start_option,
        click.option(
            "--preempt",
            is_flag=True,
            help="If NAME is taken, ask its holder to end, and take NAME from it if it does not (see --grace). A run that is "
            "asked sends its COMMAND SIGTERM. Of several, the newest is next, and the others give up.",
        ),
        click.option(
            "--grace",
            callback=parse_duration_or_zero,
            metavar="TIME",
            help="With --preempt: how long the holder has to end.  [default: 5]",
        ),
        click.option("--replace", is_flag=True, help="If NAME is taken, be the next: all that wait for it give up."),
        click.option(
            "-E",
            "--conflict-exit-code",
            type=click.IntRange(0, 255),
            metavar="N",
            default=BUSY,
            show_default=True,
            help="Exit code if NAME is taken.",
        ),
    ]
    after: list[Callable[..., Any]] = [
        click.option(
            "--at-least",
            callback=parse_duration,
            metavar="TIME",
            help="Keep NAME taken for at least this long, even if it is released earlier: for jobs that several machines start.",
        ),
        server_options,
        namespace_option,
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="After a second of waiting, say on standard error who holds NAME and how many wait before. On a terminal it "
            "does so in any case.",
        ),
        label_option,
    ]

    def add(command: F) -> F:
        for option in reversed([*before, own, *after]):
            command = option(command)
        return command

    return add
