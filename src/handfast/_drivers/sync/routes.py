"""The way to the primary of each slot of a cluster, for all threads of a client."""

from __future__ import annotations

from math import inf
from typing import Any

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from handfast._drivers.chart import Chart
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import no_shares, outside_cluster
from handfast._drivers.sync.connect import SyncConnector
from handfast._engine.resp import ErrorReply
from handfast._engine.slots import SHARES, Node, Redirection

__all__ = ["Routes"]

QUICK_S = 0.5
"""Seconds for which each node is waited for at first; the next one may answer sooner."""

MIN_TIMEOUT_S = 0.02
"""Time that a node has for an answer even when the caller's time is over, in seconds."""

PAUSE_S = 0.05
"""However many threads doubt the chart, the nodes are asked again no sooner, in seconds."""


class Routes:
    """Keeps the chart of the cluster.

    Threads may ask the nodes at the same time: each learns the truth, and the last answer wins.
    """

    def __init__(self, connector: SyncConnector) -> None:
        self._connector = connector
        self._chart = Chart(connector.seeds, connector.remap)
        self._is_doubtful = True
        self._asked_at = -inf
        self.learned = 0
        """How often the nodes have told which primary has which slot."""

    @property
    def response_timeout(self) -> float:
        return self._connector.response_timeout

    def connector_to(self, node: Node) -> SyncConnector:
        return self._connector.at(node)

    def node_of(self, slot: int | None, within: float) -> Node | None:
        """Return the primary of a slot, or any node for None.

        It may take ``within`` seconds to find out; None if no primary has the slot.

        Raises the errors of the network if no node tells.
        """
        if self._is_doubtful and monotonic() >= self._asked_at + PAUSE_S:
            self._learn(within)
        return self._chart.node_of(slot)

    def likely_node(self, slot: int | None) -> Node:
        """Return the primary of a slot as far as is known; any node if nothing is. No I/O."""
        return self._chart.node_of(slot) or self._chart.candidates()[0]

    def follow(self, redirection: Redirection, asked: Node) -> Node | None:
        """Take a redirection, and return where it leads; None if it does not say.

        A lasting redirection seldom comes alone: have the nodes asked again.
        """
        if not redirection.for_once:
            self.doubt()
        return self._chart.follow(redirection, asked)

    def doubt(self) -> None:
        """Have the nodes asked again: a primary could not be reached, or does not serve a slot."""
        self._is_doubtful = True

    def primaries(self) -> list[Node]:
        """Return the primaries with slots, as far as is known. No I/O."""
        return self._chart.primaries()

    def _learn(self, within: float) -> None:
        error: Exception | None = None
        until = monotonic() + within
        # A node whose machine is gone does not answer: in the first round it costs the caller little time.
        for patience in (QUICK_S, within):
            for node in self._chart.candidates():
                left = until - monotonic()
                # Without an error nothing was asked yet: one node
                # is asked even where the caller's time is over.
                if error is not None and left <= 0:
                    raise error
                try:
                    reply = _ask(self._connector.at(node), max(MIN_TIMEOUT_S, min(patience, left)))
                except AuthenticationError:
                    # Before `RedisError`, of which it is one. Nodes have
                    # the same users, so the next one would refuse as well.
                    raise
                except ResponseError as refusal:
                    error = no_shares(ErrorReply(refusal))
                except (RedisError, OSError) as failure:
                    error = failure
                else:
                    if self._chart.learn(reply, node):
                        self._asked_at, self._is_doubtful = monotonic(), False
                        self.learned += 1
                        return
                    error = outside_cluster()
        if error is not None:
            raise error


def _ask(connector: SyncConnector, timeout: float) -> Any:
    """Ask a node for the shares, on a separate connection. Errors of the client library pass through."""
    connection: Any = connector.connect(timeout)
    try:
        connection.send_packed_command([SHARES.prefix.evalsha + SHARES.packed])
        return connection.read_response()
    finally:
        connection.disconnect()
