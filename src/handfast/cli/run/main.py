"""The order of things in a run, which keeps its promises.

Signals are taken first, so that one ends even the slowest wait cleanly; the lease comes next; the command starts after
the grant and has ended before the release. Whoever needs more than that, a resource that refuses the writes of a holder
who lost its lease and does not know it yet, compares ``HANDFAST_FENCE``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from handfast.cli.run.acquire import give_up, take, what_to_take
from handfast.cli.run.messages import say
from handfast.cli.run.options import Order
from handfast.cli.supervision.child import Child, LossPlan
from handfast.cli.supervision.signals import Signals

if TYPE_CHECKING:
    from handfast import Lease

__all__ = ["carry_out"]

LOST = 74
"""As in sysexits.h."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""As sh has it for commands that cannot be run."""


def carry_out(order: Order, signals: Signals) -> int:
    """Take, run, give back; the exit code. Ends by Interrupted or click's Exit where it does not come to the command."""
    client, wanted = what_to_take(order)
    with client:
        lease = None
        try:
            lease = take(order, wanted)
            signals.collect()
            try:
                child = Child(order.command, _environment(lease), say)
            except OSError as error:
                return _cannot_run(order, error)
            lease.add_lost_callback(signals.ring)
            code = child.supervise(signals, LossPlan(order.on_lost, order.kill_after))
        finally:
            # CPython looks for signals at calls and loops, never between a return and its assignment: a grant that the
            # wait did not undo is in `lease`, and whatever is raised from then on passes here.
            if lease is not None:
                give_up(lease)
        if not lease.lost:
            return code
        if not child.knew_of_loss:
            say(f"the lease of {order.name!r} was lost before {order.command[0]!r} ended")
        return code if order.on_lost == "ignore" else LOST


def _environment(lease: Lease) -> dict[str, str]:
    return os.environ | {
        "HANDFAST_NAME": lease.name,
        "HANDFAST_FENCE": str(lease.fence),
        "HANDFAST_TOKEN": lease.token,
    }


def _cannot_run(order: Order, error: OSError) -> int:
    say(f"cannot run {order.command[0]!r}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
