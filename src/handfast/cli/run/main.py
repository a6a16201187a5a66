"""The flow of a run: connect, acquire, run the command, release."""

from __future__ import annotations

from collections.abc import Sequence

from handfast.cli.holding import run_holding
from handfast.cli.supervision.child import LossPlan
from handfast.cli.supervision.signals import Signals
from handfast.cli.taking.acquire import acquire, connect, release, slot
from handfast.cli.taking.notice import Notice
from handfast.cli.taking.options import Options

__all__ = ["run"]


def run(options: Options, command: Sequence[str], plan: LossPlan, signals: Signals) -> int:
    """Acquire, run the command, release, and return the exit code.

    Raises Interrupted if a signal ended the wait, and click's Exit if the lease was not granted.
    """
    client, primitive = connect(options)
    with client, Notice(options, primitive) as notice:
        lease = None
        try:
            lease = acquire(options, primitive)
            notice.end()
            ended = run_holding(lease, command, signals, plan, slot(lease, options))
        finally:
            # CPython runs signal handlers at calls and loops, never between a return and its assignment. So a grant
            # that acquire() did not undo is in `lease`, and every later exception passes through here.
            if lease is not None:
                release(lease)
        return ended.exit_code(lease, command[0], plan)
