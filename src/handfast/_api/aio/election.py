"""An election: a single candidate leads, and others see who."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

from handfast._api.aio.announced import AsyncAnnouncedLease
from handfast._api.aio.inspectable import AsyncInspectable
from handfast._api.aio.primitive import AsyncPrimitive
from handfast._api.decorators import awaited_function
from handfast._drivers.aio.driver import AsyncDriver
from handfast._drivers.aio.looping import AsyncLoop
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer
from handfast._engine.objects import ObjectRequest
from handfast._engine.validate import check_int, reply_seconds
from handfast._naming import name_publicly
from handfast._protocol import electing
from handfast._protocol.asking import ObjectAttempt, watch
from handfast._protocol.lease import LeaseState
from handfast.arguments import Duration, OnLost

if TYPE_CHECKING:
    from handfast.records import Leader, Term

__all__ = ["AsyncElection", "AsyncLeadership"]

R = TypeVar("R")

MAX_TERMS = 32
"""Terms that the server remembers, as in ``election_announce.lua``."""


class AsyncLeadership(AsyncAnnouncedLease):
    """The lease of a leader. It comes from the methods of an election, and ends with the term.

    Example:
        async with hf.election("scheduler") as term:
            await plan(fence=term.fence)
    """

    __slots__ = ()


class AsyncElection(AsyncInspectable, AsyncPrimitive[AsyncLeadership]):
    """A named election: a single candidate leads, the others wait in the order in which they came. Made by ``election()``.

    Every method of a lock is here: a leader is the holder of a lease, a candidate waits for it, and a term has a fence.
    In addition, others read who leads (`leader`), hear of changes (`observe`), and see the last terms (`history`).

    Network errors come from redis-py, as `Handfast` lists them.

    Example:
        election = hf.election("scheduler", value="http://10.0.0.5:8000")

        async with election as term:
            ...
    """

    _request: PermitRequest

    def __init__(self, driver: AsyncDriver, request: PermitRequest, on_lost: OnLost) -> None:
        super().__init__(driver, request, on_lost)
        self._terms = ObjectRequest(request.place)

    async def run(self, lead: Callable[[AsyncLeadership], Awaitable[R]]) -> R:
        """Campaign, and call a function for each term, until the function returns or raises.

        After a loss, and after an operator's hold, it campaigns again, behind the other candidates. So it does after an
        outage, for as long as the process lives: failures of the server are logged. In the asyncio API the function is
        cancelled when the term is lost, or its end is asked for. In the sync API it must look: `Lease.lost`,
        `Lease.wanted`, `Lease.check`, `Lease.lost_event`.

        Example:
            async def lead(term):
                while True:
                    await plan(fence=term.fence)

            await hf.election("scheduler").run(lead)

        Args:
            lead: Called with the lease of each term. A result after the loss of the term, or after the end was asked
                for, is dropped, and so is its LeaseLost. An error that is not its own, such as the ClientClosed of
                another client, is logged, and the campaign goes on after 1, 2, 4 … 60 seconds.

        Returns:
            The result of the function.

        Raises:
            AcquireTimeout: The election was made with a ``timeout``, and others led for so long.
            QueueFull: There are ``max_waiters`` candidates already.
            ClientClosed: The client was closed.
            TypeError: The function is of the other API: of the asyncio API only a coroutine function, or a lambda that
                returns a coroutine, is taken; of the sync API neither.
        """
        lead = awaited_function(lead)
        loop = AsyncLoop(self._driver, "election", self.name, f"the function that leads {self.name!r}")
        while True:
            term, pause = None, 0.0
            try:
                async with self.acquire() as term:
                    result = await loop.call(lead, term)
                if term.wanted is None:
                    return result
            except BaseException as error:
                after = loop.after(error, term)
                if after is None:
                    raise
                pause = after
            await loop.rest(pause)

    async def leader(self, *, timeout: Duration | None = None) -> Leader | None:
        """Return who leads; None without a leader. Takes a round trip and changes nothing.

        Args:
            timeout: Seconds (a number or a timedelta), from 0.001 s to 366 days, for which the server is waited for; it
                has a quarter of a second at least. None takes the ``socket_timeout`` of the client's settings, 5 s by
                default.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``timeout`` is neither a number nor a timedelta.
            ValueError: ``timeout`` is out of range.
        """
        return await self._driver.look(electing.look(self._request), self.name, reply_seconds(timeout))

    async def observe(self) -> AsyncIterator[Leader | None]:
        """Yield who leads, now and after each change that is seen; None while there is no leader.

        The latest leader is always seen; short terms in between may be missed. Leaders announce their terms. If a
        leader dies, the end of the lease tells. Tasks of an event loop that observe the same share a single request.
        During an outage nothing is yielded: it is logged, and the server asked again for as long as the process lives.

        Example:
            async for leader in election.observe():
                print(leader.value if leader else "no leader")

        Returns:
            An iterator, which is asynchronous in the asyncio API.

        Raises:
            ClientClosed: The client was closed.
        """
        known, loop = electing.NOTHING, AsyncLoop(self._driver, "election", self.name)
        while True:
            leader = electing.leader(await loop.ask(partial(self._after, known)))
            if known == (leader.fence if leader else 0):
                return  # there is no server
            known = leader.fence if leader else 0
            yield leader

    async def _after(self, known: int) -> Answer:
        """Wait for another leader than the known one."""
        attempt = self._driver.begin(ObjectAttempt, self._terms.having(known=known))
        return await self._driver.watch(attempt, partial(watch, attempt, "watch", has_end=True), inf)

    async def history(self, limit: int = MAX_TERMS) -> tuple[Term, ...]:
        """Return the last terms, the newest first. Takes a round trip and changes nothing.

        The server remembers 32 terms, for 30 days after the last announcement. If a leader died before
        the announcement arrived, the term is missing.

        Args:
            limit: How many terms, from 1 to 32.

        Raises:
            ServerRefused: The server refused, for example for lack of permissions.
            TypeError: ``limit`` is no int.
            ValueError: ``limit`` is out of range.
        """
        steps = electing.history(self._terms, check_int(limit, "limit", MAX_TERMS))
        return await self._driver.look(steps, self.name)

    def _lease(self, state: LeaseState) -> AsyncLeadership:
        return AsyncLeadership(self._driver, state, self._on_lost, partial(self._announce, state))

    def _announce(self, state: LeaseState, why: str = "") -> None:
        """Have observers told of the beginning of a term, or of the end, with the cause."""
        text = electing.text_of(self._driver.label, self._request.options.value, state.loss_text or why)
        ends = state.loss is not None or bool(why)
        self._driver.perform_later(state, electing.announce(self._terms, state.fence, text, ends=ends))


name_publicly(globals(), "handfast")
