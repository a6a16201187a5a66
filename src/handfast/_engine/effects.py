"""Effects: what a protocol asks of its driver, and what it gets back.

A protocol is a generator. It yields a `Call` and is sent an `Answer`; it yields a `Park` and is sent a `Waking`.
All it knows of time are the moments in these two, read from the driver's monotonic clock in seconds; so a test
needs neither server nor sleep.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from handfast._engine.script import CommandPrefix, command

__all__ = ["PING", "Answer", "Call", "Effect", "GrantMessage", "Park", "Steps", "Waking"]

T = TypeVar("T")


class Call(NamedTuple):
    """Run a script, or a command. It may be sent more than once: all of ours are idempotent."""

    head: CommandPrefix
    tail: bytes
    """Keys and arguments, packed."""
    waiter: bytes = b""
    """The token that this may put in line, if any. The session adds its own address as the last argument, for the server to
    ring there; and it forgets what rang for that token before the reply: the server has looked since."""
    once: bool = False
    """Whether it must not be sent again after it may have run: it is not ours, and promises nothing."""


PING = Call(command("PING", 0), b"")


class Answer(NamedTuple):
    """The reply to a `Call`, and the moment just before it was sent for the last time."""

    sent_at: float
    reply: Any
    again: bool = False
    """Whether it was sent before without an answer, so that the server may still come to that one."""


class Park(NamedTuple):
    """Wait until the inbox rings for this token, or has rung since the reply that put it in line; or until that moment."""

    token: bytes
    until: float


class GrantMessage(NamedTuple):
    """A grant, as the server rings it: times in microseconds, ``granted_us`` on the server's clock."""

    fence: int
    granted_us: int
    lease_us: int


class Waking(NamedTuple):
    """The end of a `Park`: at what moment, and whether the inbox rang. It may also end for no reason."""

    woke_at: float
    bell: GrantMessage | None


Effect: TypeAlias = Call | Park
Steps: TypeAlias = Generator[Effect, Any, T]
