"""Why a lease was lost: the cause in one word, for events and metrics, and a text, for errors and the log.

The code that finds the loss gives both together. No cause is read from a text, which may be the reason of an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from handfast.events import LossCause

__all__ = [
    "CLOSED",
    "DROPPED",
    "EXPIRED",
    "FORKED",
    "PLANNED",
    "RAN_OUT",
    "Loss",
    "gone",
    "preempted",
    "revoked",
]


class Loss(NamedTuple):
    """Why a lease was lost."""

    cause: LossCause
    text: str
    """The cause in words, with the reason of an operator."""


EXPIRED = Loss("expired", "its ttl ended before it was renewed or released")
PLANNED = EXPIRED._replace(cause="planned")
"""The ttl of a lease that is not renewed: no failure, so it is logged at DEBUG."""
CLOSED = Loss("closed", "its client was closed, which released it")
RAN_OUT = Loss("closed", "its client was closed, and its ttl has ended since")
FORKED = Loss("closed", "it belongs to the process that this process was forked from")
DROPPED = Loss("dropped", "the program kept no reference to it")


def gone(change: str) -> Loss:
    """Return the loss of a lease that the server did not know when it was to be changed, such as "renewed"."""
    return Loss("server", f"the server no longer had it when it was to be {change}")


def revoked(reason: str) -> Loss:
    """Return the loss of a lease that was taken away, with the text of the server's message or an operator's reason."""
    return Loss("revoked", reason)


def preempted(reason: str) -> Loss:
    """Return the loss of a lease whose holder a later request has asked to end. The server's message has the same text."""
    return Loss("revoked", f"its holder was asked to end and did not in time: {reason}")
