"""Effects: a protocol yields them to the driver, and the driver sends the outcomes back.

A protocol is a generator. It yields a `Call` and is sent an `Answer`; it yields a `Park` and is sent a `Waking`. It
knows the time only from these two: moments of the driver's monotonic clock, in seconds. So tests need neither a server
nor sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from handfast._engine.packing import read_reply
from handfast._engine.resp import bulk
from handfast._engine.script import CommandPrefix, command, pack

__all__ = [
    "PROBE",
    "Acknowledgement",
    "Answer",
    "Call",
    "Confirmation",
    "Effect",
    "Found",
    "GrantMessage",
    "Joining",
    "Park",
    "Steps",
    "Waking",
    "make_answer",
    "make_call",
    "widest",
]

T = TypeVar("T")


class Joining:
    """How calls for a name join a batch, and whether the last reply found the name free."""

    __slots__ = ("is_free", "is_limiter", "key", "kind")

    def __init__(self, key: bytes, kind: bytes, *, is_limiter: bool = False) -> None:
        self.key: bytes = key
        """The keys of the name that the script of batches takes, packed."""
        self.kind: bytes = kind
        """Equal for all calls of a batch, packed: the ttl of a lock's leases in ms, or the rate of a limiter."""
        self.is_limiter: bool = is_limiter
        self.is_free: bool = True
        """Whether it was free when it was last asked for."""


class Acknowledgement(NamedTuple):
    """The replicas that must have a call's writes, and all writes before, for the call to survive a failover.

    A server waits for the replicas on the connection by which it was asked. So such calls travel on a connection apart,
    each or several of them with a `barrier` behind. A server does not wait for a call without changes, and the server
    that answered may be the primary no more. So the barrier begins with a message, which is replicated in any case,
    and stands behind the call in the same write.
    """

    replicas: int
    timeout_ms: int
    """For how long the server waits for them."""
    channel: bytes
    """A channel without subscribers."""

    @property
    def barrier(self) -> bytes:
        """The commands to send behind the calls, packed.

        They have two replies, of which the second is the number of replicas.
        """
        return b"*3\r\n$7\r\nPUBLISH\r\n%b$0\r\n\r\n*3\r\n$4\r\nWAIT\r\n%b%b" % (
            bulk(self.channel),
            bulk(self.replicas),
            bulk(self.timeout_ms),
        )


class Call(NamedTuple):
    """Run a script or a command. It may be sent more than once: the engine's scripts are idempotent."""

    prefix: CommandPrefix
    args: bytes
    """Keys and arguments, packed: all, or the part before ``token``."""
    token: bytes = b""
    """The token, if it travels between ``args`` and ``tail``, so that nothing is packed anew for each call."""
    tail: bytes = b""
    waiter: bytes = b""
    """The token that this call may put in the queue, if any. The session discards grant messages for the token that
    came before the reply: the reply is newer. And it adds the last argument, the `record`."""
    wants: bytes = b""
    """The beginning of the record: weight, limit and claim_ms, or the request of a limiter."""
    caller: bytes = b""
    """The next part of the record: the number of the thread or task, packed."""
    joining: Joining | None = None
    """Set if the call may join a batch."""
    once: bool = False
    """Whether the call must not be sent again after it may have run: a user's script may not be idempotent."""
    acknowledgement: Acknowledgement | None = None
    """What its answer waits for; None where that is the reply alone."""
    slot: int | None = None
    """In a cluster, a slot of the primary that is asked, for commands without keys; None where any node will do. Others
    go to that of their keys."""
    value: bytes = b""
    """The end of the record: the words behind the owner text."""

    @property
    def packed(self) -> bytes:
        """Keys and arguments, but for a record."""
        return self.args + self.token + self.tail

    def record(self, owner: bytes) -> bytes:
        """Return the last argument of a call that may wait, packed; ``owner`` is the owner text of the session."""
        return bulk(self.wants + self.caller + owner + self.value)


make_call: Callable[
    [tuple[CommandPrefix, bytes, bytes, bytes, bytes, bytes, bytes, Joining | None, bool, None, None, bytes]], Call
] = partial(tuple.__new__, Call)
"""Make a call of all its fields, for the hot path: faster than the class, whose ``__new__`` is a Python function."""

PROBE = Call(command("PUBSUB", 2), pack(("NUMSUB", "-")))
"""Changes nothing. Every user who may open a session may send it."""


def widest(calls: Sequence[Call]) -> Acknowledgement:
    """Return an acknowledgement that covers those of all these calls."""
    asked = [call.acknowledgement for call in calls if call.acknowledgement is not None]
    return max(asked)._replace(timeout_ms=max(one.timeout_ms for one in asked))


class Answer(NamedTuple):
    """The reply to a `Call`, and the moment just before the call was last sent."""

    sent_at: float
    reply: Any
    again: bool = False
    """Whether the call was also sent before without an answer, so that the server may still run that copy."""
    replicas: int = 0
    """How many replicas have what the call wrote; 0 unless it asked."""

    @property
    def fields(self) -> list[Any]:
        """The reply of a lock's script: the tag and the numbers."""
        return read_reply(self.reply)


make_answer: Callable[[tuple[float, Any, bool, int]], Answer] = partial(tuple.__new__, Answer)
"""Make an answer of all its fields, as `make_call` makes a call."""


class Park(NamedTuple):
    """Wait for a grant message for the token, or until the moment ``until``.

    Messages count since the reply that put the token in the queue. The driver sends ``confirm`` in the same step in
    which it receives a grant, and does not wait for the reply.
    """

    token: bytes
    until: float
    confirm: Call | None = None
    poll_at: float = inf
    """Until when to wait instead where no message comes through."""


class GrantMessage(NamedTuple):
    """A grant published by a script: times in microseconds, ``granted_us`` on the server's clock.

    A lease of 0 only wakes the waiter, which then asks again. The messages of a limiter have this form too, and other
    numbers: their protocol reads them.
    """

    fence: int
    granted_us: int
    lease_us: int
    more: tuple[int, ...] = ()


class Found(NamedTuple):
    """The record of an earlier run, which an acquire for a key of `once` may find in place of a lease."""

    outcome: Literal["begun", "done", "failed", "unstored"]
    """As in lua/lib/outcome.lua."""
    age: float
    """In seconds."""
    fence: int
    """That of the run."""
    value: bytes
    """The result, or the reason why there is none."""


class Confirmation:
    """The reply to the confirmation of a grant, which may come before the lease is made, and in another thread.

    ``pending`` is the session or future that reads the reply.
    """

    __slots__ = ("_answers", "_take", "pending")

    def __init__(self, pending: Any = None) -> None:
        self.pending: Any = pending
        self._answers: list[Answer | None] = []
        self._take: Callable[[Answer | None], object] | None = None

    def settle(self, answer: Answer | None) -> None:
        """Take the reply; None if it is an error, or if none will come."""
        self._answers.append(answer)
        if self._take is not None:
            self._take(answer)

    def then(self, take: Callable[[Answer | None], object]) -> None:
        """Call a function with the reply, now or when it comes.

        The function must tolerate a second call with the same reply.
        """
        self._take = take
        for answer in self._answers:
            take(answer)


class Waking(NamedTuple):
    """The end of a `Park`: the moment, and the grant message if it came. A park may also end without a reason."""

    woke_at: float
    grant: GrantMessage | None
    confirmation: Confirmation | None = None


Effect: TypeAlias = Call | Park
Steps: TypeAlias = Generator[Effect, Any, T]
