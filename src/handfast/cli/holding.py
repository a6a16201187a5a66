"""A command running while a lease is held: the options, the environment, and the effects of a lost lease on the command.

A signal ends even a long wait cleanly, so the caller handles signals before it acquires. The command starts after the
grant and has ended before the lease does. A resource that must refuse writes of a holder whose lease was lost, but
which does not know it yet, compares ``HANDFAST_FENCE``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from handfast._drivers.clock import monotonic
from handfast._engine.defaults import DEFAULT_TTL_S
from handfast.cli.durations import parse_duration, parse_duration_or_zero
from handfast.cli.exits import IO_ERROR
from handfast.cli.program import refuse_to_run, say
from handfast.cli.supervision.child import Child, LossPlan
from handfast.cli.supervision.signals import Signals

if TYPE_CHECKING:
    from handfast import Lease

__all__ = [
    "Ended",
    "fences_around",
    "label_option",
    "loss_options",
    "max_hold_option",
    "run_holding",
    "ttl_option",
]

HELD = "HANDFAST_HELD"
"""The variable that tells a command the fences of all runs that it is inside, separated by spaces."""

F = TypeVar("F", bound=Callable[..., Any])

ttl_option: Callable[[F], F] = click.option(
    "--ttl",
    callback=parse_duration,
    metavar="TIME",
    default=f"{DEFAULT_TTL_S:g}",
    show_default=True,
    help="Duration of the lease. It is renewed while COMMAND runs; if this process dies, NAME is free after this time.",
)

max_hold_option: Callable[[F], F] = click.option(
    "--max-hold",
    callback=parse_duration,
    metavar="TIME",
    help="Hold NAME no longer than this: then the lease is lost, as if the server had lost it (see --on-lost). Against a COMMAND that "
    "hangs.",
)

label_option: Callable[[F], F] = click.option(
    "--label", metavar="TEXT", help="Name of this run in messages and in status().  [default: host:pid]"
)


def loss_options(command: F) -> F:
    """Add the options ``--on-lost`` and ``--kill-after``, of which a `LossPlan` is made."""
    kill_after = click.option(
        "--kill-after",
        callback=parse_duration_or_zero,
        metavar="TIME",
        default="10",
        show_default=True,
        help="With --on-lost term: time from SIGTERM to SIGKILL. When the lease is asked for, SIGKILL comes with its end at the latest.",
    )
    on_lost = click.option(
        "--on-lost",
        type=click.Choice(["term", "kill", "ignore"]),
        default="term",
        show_default=True,
        help="If the lease is lost while COMMAND runs: send it SIGTERM, send it SIGKILL, or let it finish.",
    )
    return on_lost(kill_after(command))


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code as a shell has it: 128+n for signal n, 126 or 127 if it could not be run."""
    ran: bool
    exited: bool
    """Whether it ended by itself, and not by a signal."""
    knew_of_loss: bool
    """Whether the loss of the lease was known, and acted on, before it ended."""
    told_to_end: bool = False
    """Whether a signal came that asks a program to end."""
    preempted: bool = False
    """Whether a later request for the lease was known, and acted on, before it ended."""

    def exit_code(self, lease: Lease, program: str, plan: LossPlan) -> int:
        """Return our exit code once the lease has ended, and report facts known only since the end of the lease."""
        if not (self.ran and (lease.lost or self.preempted)):
            return self.code
        if not lease.lost:
            return IO_ERROR
        if not self.knew_of_loss and not self.preempted:
            say(f"the lease of {lease.name!r} was lost before {program!r} ended")
        return self.code if plan.on_lost == "ignore" else IO_ERROR


def run_holding(
    lease: Lease, command: Sequence[str], signals: Signals, plan: LossPlan, more: Mapping[str, str] | None = None
) -> Ended:
    """Run the command to its end, with ``more`` variables. From here on signals are forwarded to it, and raise nothing."""
    signals.collect()
    try:
        child = Child(command, _environment(lease) | dict(more or {}), signals, say)
    except OSError as error:
        return Ended(refuse_to_run(command[0], error), ran=False, exited=False, knew_of_loss=False)
    lease.add_lost_callback(signals.notify_lost)
    lease.add_wanted_callback(signals.notify_wanted)
    code = child.supervise(
        plan,
        lambda: f"{lease.name!r} is to be given up in {_grace_left(lease):.1f} s: {lease.wanted}",
        lambda: _grace_left(lease),
    )
    return Ended(code, True, child.exited, child.knew_of_loss, child.told_to_end, child.knew_of_request)


def _grace_left(lease: Lease) -> float:
    """Return the seconds until a holder asked to end loses the lease. Renewals do not prolong them."""
    return max(0.0, lease._state.ends_at - monotonic())  # noqa: SLF001 -- what `remaining` shows is less before a renewal


def fences_around() -> list[int]:
    """Return the fences of the leases that are held around this process."""
    return [int(fence) for fence in os.environ.get(HELD, "").split() if fence.isdecimal()]


def _environment(lease: Lease) -> dict[str, str]:
    around = {name: value for name, value in os.environ.items() if name != "HANDFAST_SLOT"}  # of a run around this
    return around | {
        "HANDFAST_NAME": lease.name,
        "HANDFAST_FENCE": str(lease.fence),
        "HANDFAST_TOKEN": lease.token,
        HELD: f"{os.environ.get(HELD, '')} {lease.fence}".strip(),
    }
