"""The flow of a run.

Signals are handled first, so that one ends even a long wait cleanly. The lease comes next; the command starts after the
grant and has ended before the release. A resource that must refuse writes of a holder whose lease was lost, but which
does not know it yet, compares ``HANDFAST_FENCE``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from handfast.cli.run.acquire import acquire, connect, release
from handfast.cli.run.messages import say
from handfast.cli.run.options import Options
from handfast.cli.supervision.child import Child, LossPlan
from handfast.cli.supervision.signals import Signals

if TYPE_CHECKING:
    from handfast import Lease

__all__ = ["run"]

LOST = 74
"""Exit code if the lease was lost while the command ran (EX_IOERR of sysexits.h)."""

NOT_EXECUTABLE = 126
"""Exit code if the command cannot be executed, as in sh(1)."""

NOT_FOUND = 127
"""Exit code if there is no such command, as in sh(1)."""


def run(options: Options, signals: Signals) -> int:
    """Acquire, run the command, release, and return the exit code.

    Raises Interrupted if a signal ended the wait, and click's Exit if the lease was not granted.
    """
    client, primitive = connect(options)
    with client:
        lease = None
        try:
            lease = acquire(options, primitive)
            signals.collect()
            try:
                child = Child(options.command, _environment(lease), say)
            except OSError as error:
                return _cannot_run(options, error)
            lease.add_lost_callback(signals.notify_lost)
            code = child.supervise(signals, LossPlan(options.on_lost, options.kill_after))
        finally:
            # CPython runs signal handlers at calls and loops, never between a return and its assignment. So a grant that
            # acquire() did not undo is in `lease`, and every later exception passes through here.
            if lease is not None:
                release(lease)
        if not lease.lost:
            return code
        if not child.knew_of_loss:
            say(f"the lease of {options.name!r} was lost before {options.command[0]!r} ended")
        return code if options.on_lost == "ignore" else LOST


def _environment(lease: Lease) -> dict[str, str]:
    return os.environ | {
        "HANDFAST_NAME": lease.name,
        "HANDFAST_FENCE": str(lease.fence),
        "HANDFAST_TOKEN": lease.token,
    }


def _cannot_run(options: Options, error: OSError) -> int:
    say(f"cannot run {options.command[0]!r}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
