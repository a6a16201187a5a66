"""The replicas of the primary: what each has of its writes, who waits for them, and which becomes the primary.

What the primary writes is numbered. A replica catches up after a while with all that was written until then, and the
primary hears of that a little later. So a replica always has a state that the primary once had, and when it becomes the
primary, what was written since is lost. As Sentinels and clusters do, the replica that has most becomes the primary.

The old primary may go on: it serves the connections that lead to it, from its own data, until it learns that there is
another one. It still counts the replicas that it had, which acknowledge nothing any more.
"""

from __future__ import annotations

from typing import NamedTuple

from handfast_lab.simulator.links import Link, Wires
from handfast_lab.simulator.server import OLD

__all__ = ["Replication"]

AGAIN_S = 0.05
"""Time after which a replica asks again for what a primary that stands still or is down has written."""


class _Replica:
    """One replica."""

    __slots__ = ("acknowledged", "has", "is_due", "is_synced", "saved")

    def __init__(self, saved: object) -> None:
        self.saved = saved
        """The data of the primary as it was ..."""
        self.has = 0
        """... after so many writes."""
        self.acknowledged = 0
        """How many of them the primary knows it to have."""
        self.is_due = False
        """Whether it is about to catch up."""
        self.is_synced = True
        """Whether it has caught up with the present primary at least once."""


class _Wait(NamedTuple):
    """What a connection waits for: that so many replicas have the first so many writes."""

    writes: int
    replicas: int


class Replication:
    """The replicas of a network's primary."""

    def __init__(self, network: Wires, count: int) -> None:
        self._network = network
        self._world = network.world
        self._model = network.server.model
        self.lag = 0.0
        """Within how many seconds more than a message takes the replicas catch up."""
        self._written = 0
        self._replicas = [_Replica(self._model[b"snapshot"]()) for _ in range(count)]
        self._written_by_old = 0
        self._known_to_old: list[int] = []
        """What the replicas had acknowledged when another server became the primary."""
        self._waiting: dict[Link, _Wait] = {}

    def wrote(self, link: Link | None) -> None:
        """Number a write, by a command of this connection if any, and have the replicas catch up."""
        if link is not None and link.server == self._network.old:
            self._written_by_old += 1
            link.wrote = self._written_by_old
            return
        self._written += 1
        if link is not None:
            link.wrote = self._written
        for replica in self._replicas:
            self._schedule(replica)

    def wait(self, link: Link, replicas: int, timeout_ms: int) -> int | None:
        """Return how many replicas have what was written on a connection; None if they are to be waited for."""
        if self._count(link, link.wrote) >= replicas:
            return self._count(link, link.wrote)
        link.held_back = []
        self._waiting[link] = wait = _Wait(link.wrote, replicas)
        self._world.at(self._world.now + timeout_ms / 1000, self._end_wait, link, wait)
        return None

    def forget(self, link: Link) -> None:
        """Let a connection that has closed wait no longer."""
        self._waiting.pop(link, None)
        link.held_back = None

    def promote(self, *, goes_on: bool) -> bool:
        """Make the replica that has most the primary. Return False if there is none that knows the present one."""
        ready = [replica for replica in self._replicas if replica.is_synced]
        if not ready:
            return False
        network, best = self._network, max(ready, key=lambda replica: replica.has)
        network.end_old()
        self._known_to_old = [replica.acknowledged for replica in self._replicas]
        self._written_by_old = self._written
        self._replicas.remove(best)
        if goes_on:
            self._model[b"copy_to"](OLD)
        network.promote(goes_on=goes_on)
        self._model[b"restore"](best.saved)
        self._written = best.has
        for replica in self._replicas:
            replica.is_synced = False
            self._schedule(replica)
        return True

    def rejoin(self) -> None:
        """Add the old primary as a replica without data."""
        replica = _Replica(self._model[b"snapshot"]())
        replica.is_synced = False
        self._replicas.append(replica)
        self._schedule(replica)

    def break_waits(self) -> None:
        """Cut the connections that wait for replicas at a server that is not the primary any more, as it does itself."""
        for link in list(self._waiting):
            if self._network.is_demoted(link):
                self._network.cut(link)
                self._network.drop(link)

    def _count(self, link: Link, writes: int) -> int:
        is_old = link.server == self._network.old
        known = self._known_to_old if is_old else [replica.acknowledged for replica in self._replicas]
        return sum(count >= writes for count in known)

    def _schedule(self, replica: _Replica) -> None:
        if not replica.is_due:
            replica.is_due = True
            delay = self._network.travel() + self.lag * self._world.chance()
            self._world.at(self._world.now + delay, self._catch_up, replica)

    def _catch_up(self, replica: _Replica) -> None:
        replica.is_due = False
        if replica not in self._replicas:
            return
        if self._network.stalled or self._network.is_down:
            replica.is_due = True
            self._world.at(self._world.now + AGAIN_S, self._catch_up, replica)
            return
        replica.has, replica.saved, replica.is_synced = self._written, self._model[b"snapshot"](), True
        self._world.at(self._world.now + self._network.travel(), self._acknowledge, replica, replica.has)

    def _acknowledge(self, replica: _Replica, writes: int) -> None:
        if replica not in self._replicas:
            return
        replica.acknowledged = max(replica.acknowledged, writes)
        for link, wait in list(self._waiting.items()):
            if self._count(link, wait.writes) >= wait.replicas:
                self._end_wait(link, wait)

    def _end_wait(self, link: Link, wait: _Wait) -> None:
        if self._waiting.get(link) is wait:
            del self._waiting[link]
            self._network.end_wait(link, self._count(link, wait.writes))
