"""What the two kinds of simulated clients have in common.

A client is a process with a ledger, a keeper and connections of its own. `threads` and `tasks` do in virtual time
what drivers/sync and drivers/aio do, decision by decision and under the same names, so that the two can be read side by
side; what they perform are the very generators of protocol/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from handfast._engine.calls import PermitRequest, Request
from handfast._engine.effects import Steps as Protocol
from handfast._protocol.acquire import Attempt, Grant
from handfast._protocol.lease import LeaseState, LeaseTable, lower, renew
from handfast.errors import HandfastError
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.world import Cancelled, Process, Steps

__all__ = ["SHORTEST_LIMIT", "Client", "Watcher"]

SHORTEST_LIMIT = 0.02
"""Seconds that the server is given for a reply even when the caller's time is all but over; as in the sync session."""

T = TypeVar("T")


class Watcher(ABC):
    """Who looks at what clients believe."""

    @abstractmethod
    def believes(self, client: Client, holding: LeaseState) -> None:
        """The client holds a lease, or one was renewed."""

    @abstractmethod
    def loses(self, client: Client, holding: LeaseState) -> None:
        """The client has been told that a lease is lost."""


class Client(ABC):
    """One client of the library, in a process of its own."""

    def __init__(self, process: Process, network: Network, watcher: Watcher, response_timeout: float) -> None:
        self.process = process
        self.network = network
        self.world = process.world
        self.watcher = watcher
        self.response_timeout = response_timeout
        self.monotonic = process.monotonic
        self.ledger = LeaseTable()
        self.reached = False
        """Whether a connection was ever made."""
        self.closed = False
        self.callers = 0
        """How many still have something to do."""
        self._tokens = 0

    def attempt(self, want: Request) -> Attempt:
        """Begin to acquire."""
        if self.closed:
            raise HandfastError("this client was closed; make a new one", name=want.name)
        self._tokens += 1
        return Attempt(want, b"%b-%04d" % (self.process.name.encode(), self._tokens))

    def acquire(self, attempt: Attempt, timeout: float | None) -> Steps[LeaseState]:
        """Wait for a lease, and leave nothing behind if none comes."""
        try:
            return (yield from self.wait(attempt, timeout))
        except (Exception, Cancelled) as ended:  # noqa: BLE001 -- it is raised again below, after the cleaning up
            error = ended
        yield from self.undo(attempt)
        raise error

    def try_acquire(self, attempt: Attempt) -> Steps[LeaseState | None]:
        """Ask once for a lease, and leave nothing behind if none comes."""
        try:
            return (yield from self.ask_once(attempt))
        except (Exception, Cancelled) as ended:  # noqa: BLE001 -- it is raised again below, after the cleaning up
            error = ended
        yield from self.undo(attempt)
        raise error

    def extend(self, holding: LeaseState, ttl_ms: int) -> Steps[bool]:
        """Let a lease last that long from now; False when it was lost."""
        return self.change(holding, renew(holding, ttl_ms), "extended")

    def lower(self, holding: LeaseState, permits: PermitRequest) -> Steps[bool]:
        """Keep only these permits of a lease; False when it was lost."""
        return self.change(holding, lower(holding, permits), "downgraded")

    @abstractmethod
    def wait(self, attempt: Attempt, timeout: float | None) -> Steps[LeaseState]:
        """Wait for a lease."""

    @abstractmethod
    def ask_once(self, attempt: Attempt) -> Steps[LeaseState | None]:
        """Ask once for a lease."""

    @abstractmethod
    def undo(self, attempt: Attempt) -> Steps[None]:
        """Leave nothing of an attempt behind."""

    @abstractmethod
    def release(self, holding: LeaseState) -> Steps[bool]:
        """Give a lease up; False when there was nothing left to give up."""

    @abstractmethod
    def leave(self, holding: LeaseState, *, failed: bool) -> Steps[bool]:
        """Release at the end of a block, which may have failed; False when the caller is to hear of a loss."""

    @abstractmethod
    def change(self, holding: LeaseState, steps: Protocol[bool], what: str) -> Steps[bool]:
        """Change a lease; False when it was lost."""

    @abstractmethod
    def ask(self, steps: Protocol[T], name: str) -> Steps[T]:
        """Perform a protocol that leaves nothing behind."""

    @abstractmethod
    def close(self) -> Steps[None]:
        """Close the connections. Leases that are still held run out by themselves."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background any more."""

    def let_go(self, holding: LeaseState) -> None:
        """Renew a lease no more: its holder is gone without a word."""
        self.ledger.drop(holding)

    def held(self, attempt: Attempt, grant: Grant) -> LeaseState:
        """Keep what was granted."""
        if self.closed:
            raise HandfastError("this client was closed while it waited", name=attempt.want.name)
        holding = LeaseState(attempt.want, attempt.token, grant)
        self.watch(holding)
        self.watcher.believes(self, holding)
        return holding

    @abstractmethod
    def watch(self, holding: LeaseState) -> None:
        """Have the keeper keep it."""

    def announce(self, holding: LeaseState) -> None:
        """A lease is lost, and its holder is to know."""
        if self.world.log is not None:
            self.world.say(self.process.name, f"{holding.token.decode()} is lost: {holding.loss}")
        self.watcher.loses(self, holding)

    def lose(self, holding: LeaseState, reason: str) -> None:
        """The server says that a lease is gone."""
        self.ledger.lose(holding, reason)
        self.announce(holding)

    def revoked(self, token: bytes, reason: str) -> None:
        """The server rang: an operator took this lease away."""
        holding = self.ledger.find(token)
        if holding is not None:
            self.lose(holding, reason)

    def sleep(self, seconds: float) -> Steps[Any]:
        """Wait that long."""
        yield self.world.now + seconds
