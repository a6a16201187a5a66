"""Finds out which primary of a cluster has which slot, on one event loop.

Any node with an answer will do: the nodes are asked at first, after a redirection, and again and again while a primary
can't be reached.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from contextvars import Context
from typing import Protocol

from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.aio.pending import Outcome
from handfast._drivers.aio.session import Session
from handfast._drivers.chart import Chart
from handfast._drivers.failures import no_shares, outside_cluster
from handfast._engine.effects import Answer
from handfast._engine.resp import ErrorReply
from handfast._engine.slots import SHARES, Node

__all__ = ["Lookout"]

HEDGE_S = 0.25
"""After so many seconds without an answer another node is asked as well."""

ASK_EVERY_S = 0.1
"""While a primary can't be reached, the other nodes are asked every so many seconds whether there is another one."""


class Follower(Protocol):
    """A router."""

    @property
    def is_stuck(self) -> bool:
        """Whether a call waits for a primary which is not known, or can't be reached."""

    def session_at(self, node: Node) -> Session:
        """Return the session of a node."""

    def is_broken(self, node: Node) -> bool:
        """Return whether the connection to a node could not be opened."""

    def follow(self) -> None:
        """Send the requests for former primaries to the present primaries."""

    def fail_held(self) -> None:
        """Fail the requests whose time is over."""


class Lookout:
    """Keeps the chart for the routers of a client, and has them follow it."""

    def __init__(self, connector: AsyncConnector) -> None:
        self._connector = connector
        self.chart = Chart(connector.seeds, connector.remap)
        self.routers: list[Follower] = []
        """The first one has the sessions by which the nodes are asked."""
        self.trouble: Exception | None = None
        """Why no node answers; None if one did when it was last asked."""
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None
        self._ended = False

    def ask(self) -> None:
        """Begin to ask the nodes, unless this is in progress."""
        if not self._ended and (self._asking is None or self._asking.done()):
            # In an empty context: the task that happens to be first lends none of its context variables to the others.
            self._asking = self._loop.create_task(self._keep_asking(), name="handfast-cluster", context=Context())
            self._asking.add_done_callback(self._on_asked)

    def end(self) -> None:
        """Ask no more."""
        self._ended = True
        if self._asking is not None:
            self._asking.cancel()

    async def _keep_asking(self) -> None:
        """Ask the nodes, and again while a call waits for a primary that can't be reached."""
        while True:
            await self._ask_nodes()
            for router in self.routers:
                router.fail_held()
            if not self._is_needed:
                break
            await asyncio.sleep(ASK_EVERY_S)

    def _on_asked(self, asking: asyncio.Task[None]) -> None:
        if asking.cancelled() and self._is_needed:  # with all tasks of the loop, perhaps
            self.ask()

    @property
    def _is_needed(self) -> bool:
        return any(router.is_stuck for router in self.routers)

    async def _ask_nodes(self) -> None:
        """Ask the nodes in turn, each a moment after the last, until a node answers."""
        asked: dict[Future[Outcome], Node] = {}
        router = self.routers[0]
        candidates = sorted(self.chart.candidates(), key=router.is_broken)
        try:
            for left in range(len(candidates), 0, -1):
                node = candidates[-left]
                asked[router.session_at(node).send(SHARES, 0)] = node
                while asked:
                    within = HEDGE_S if left > 1 else self._connector.response_timeout
                    done, _ = await asyncio.wait(asked, timeout=within, return_when=asyncio.FIRST_COMPLETED)
                    if not done:
                        break
                    for future in done:
                        if self._take(future, asked.pop(future)):
                            return
        finally:
            for future in asked:
                future.cancel()

    def _take(self, answered: Future[Outcome], node: Node) -> bool:
        """Take the reply of a node. Return whether it answered the question."""
        error = answered.exception()
        outcome = None if error is not None else answered.result()
        if isinstance(outcome, Answer):
            try:
                self.trouble = None if self.chart.learn(outcome.reply, node) else outside_cluster()
            except Exception as raised:  # noqa: BLE001 -- by the remap of the user's, and pending requests get it
                self.trouble = raised
            if self.trouble is None:
                for router in self.routers:
                    router.follow()
                return True
        elif isinstance(outcome, ErrorReply):
            self.trouble = no_shares(outcome)
        elif isinstance(error, Exception):
            self.trouble = error
        return False
