"""A client process: the library's asyncio API and driver on a loop of virtual time and a simulated connection.

All that is replaced is the connector, which makes connections; what it hands to the driver is a transport, as asyncio's
own are. The simulator looks into the library at two places only, both in this file: at the `Attempt` of an acquire,
which says whether anything may be left of it on the server, and at the `LeaseState` of a lease, which says until when
it is believed in.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast import AsyncHandfast, AsyncLease
from handfast._drivers.aio.connect import AsyncConnector
from handfast._drivers.driver import A
from handfast._drivers.events import Events
from handfast._engine.calls import Request
from handfast._engine.slots import Node
from handfast._protocol.acquire import Attempt, BaseAttempt
from handfast._protocol.lease import LeaseState
from handfast_lab.simulator.cluster import PRIMARIES, address
from handfast_lab.simulator.loop import VirtualLoop
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.world import Process

__all__ = ["ON_ATTEMPT", "Client", "SimulatedConnector", "SimulatedTransport", "leaves_nothing", "state_of"]

ON_ATTEMPT: ContextVar[Callable[[Any], None]] = ContextVar("ON_ATTEMPT")
"""The callback of a task for each attempt to acquire."""


CONGESTED_S = 1.0
"""Travel time of bytes on a connection that may pause its writers."""


class Client:
    """One client of the library, in its own process."""

    def __init__(self, process: Process, network: Network, loop: VirtualLoop, response_timeout: float) -> None:
        self.process = process
        self.loop = loop
        self.closed = False
        """Whether a caller has closed it."""
        self.callers = 0
        """Number of callers that have not finished."""
        self.tokens: list[bytes] = []
        """Of all that its callers have begun to acquire."""
        connector: Any = SimulatedConnector(
            network, process, loop, response_timeout
        )  # not for users, so not in the types
        self.api = AsyncHandfast(connector, label=process.name)
        self._driver = self.api._driver  # noqa: SLF001 -- see above
        self._begin_attempt = self._driver.attempt
        self._driver.attempt = self._attempt  # type: ignore[method-assign]  # see above
        self._begin_other = self._driver.begin
        self._driver.begin = self._begin  # type: ignore[method-assign]  # see above

    def _attempt(self, request: Request) -> Attempt:
        attempt = self._begin_attempt(request)
        ON_ATTEMPT.get()(attempt)
        return attempt

    def _begin(self, kind: Callable[[Any, bytes, float], A], request: Any) -> A:
        attempt = self._begin_other(kind, request)
        ON_ATTEMPT.get()(attempt)
        return attempt

    async def block(self, seconds: float) -> None:
        """Block the event loop, as a computation without an await does; the task that does it is the first to go on."""
        done, world = self.loop.create_future(), self.process.world
        self.process.freeze()
        world.at(world.now + seconds, self._unblock, done)
        await done

    def _unblock(self, done: asyncio.Future[None]) -> None:
        if self.process.alive:
            if not done.done():  # else its task was cancelled
                done.set_result(None)
            self.process.thaw()

    def discard(self) -> None:
        """Break the references that would keep the client alive after the simulation."""
        self.loop.close()
        for value in list(vars(self._driver).values()):
            if isinstance(value, weakref.finalize):
                value()


def state_of(lease: AsyncLease) -> LeaseState:
    """Return the driver's state of a lease."""
    return lease._state  # noqa: SLF001 -- see above


def leaves_nothing(attempt: BaseAttempt) -> bool:
    """Return whether an attempt without a lease can have left no data on the server."""
    return not attempt.may_be_there


class SimulatedConnector(AsyncConnector):
    """Makes connections to the simulated server, or to a node of the simulated cluster.

    No Sentinel watches over them.
    """

    takes_threads = False
    _url = ""
    service: str | None = None
    _remap = None
    _is_known = True

    def __init__(
        self,
        network: Network,
        process: Process,
        loop: VirtualLoop,
        response_timeout: float,
        *,
        whole: SimulatedConnector | None = None,
        node: int = 0,
    ) -> None:
        self.seeds = () if network.cluster is None or whole is not None else tuple(map(address, range(PRIMARIES)))
        self._whole = whole
        self._node = node
        self._network = network
        self._process = process
        self._loop = loop
        self.response_timeout = response_timeout
        self.events = Events() if whole is None else whole.events
        self.switches = 0

    @property
    def address(self) -> str:
        return "the simulated server"

    def at(self, node: Node) -> SimulatedConnector:
        number = node.port - address(0).port
        return SimulatedConnector(
            self._network, self._process, self._loop, self.response_timeout, whole=self, node=number
        )

    def read_arrived(self, writer: Any) -> bytes:
        arrived: bytes = writer.arrived()
        return arrived

    async def connect(self) -> Any:
        transport = SimulatedTransport(self._network, self._process, self._loop, self._node)
        try:
            async with asyncio.timeout(self.response_timeout):
                await transport.handshake
        except BaseException as error:
            transport.abort()
            if isinstance(error, TimeoutError):
                raise RedisTimeoutError("Timeout connecting to server") from None
            raise
        self.reached = True
        return transport


class SimulatedTransport(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, network: Network, process: Process, loop: VirtualLoop, node: int) -> None:
        super().__init__()
        self._network = network
        self._process = process
        self._loop = loop
        self._protocol: asyncio.Protocol | None = None
        self._closing = False
        self._paused = False
        self.handshake: asyncio.Future[None] = loop.create_future()
        self._link = network.open(process, self, node)

    # --- what the driver calls

    @property
    def transport(self) -> SimulatedTransport:
        """Itself: the driver takes the transport from a `asyncio.StreamWriter`."""
        return self

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)  # noqa: S101 -- all that a driver may give
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._network.write(self._link, bytes(data))
            self._press_back()

    def arrived(self) -> bytes:
        """Return what has arrived and the loop has not read yet."""
        return b"" if self._closing else self._network.arrived(self._link)

    def _press_back(self) -> None:
        """Sometimes let a connection whose bytes take long accept no more of them until they have arrived."""
        world, until = self._network.world, self._link.to_server
        if until > world.now + CONGESTED_S and not self._paused and self._protocol is not None and world.chance() < 0.5:
            self._paused = True
            self._protocol.pause_writing()
            world.at(until, self._process.deliver, self._loop.arrive, self._resume)

    def _resume(self) -> None:
        self._paused = False
        if self._protocol is not None and not self._closing:
            self._protocol.resume_writing()

    def abort(self) -> None:
        self._end(None)

    def close(self) -> None:
        self._end(None)

    # --- what the network calls

    def opened(self) -> None:
        self._loop.arrive(self._finish_handshake, None)

    def refused(self, reply: str | None) -> None:
        if reply is None:
            error: Exception = RedisConnectionError("Error 111 connecting to the server. Connection refused.")
        elif reply.startswith("LOADING"):
            error = RedisConnectionError(reply)
        else:
            error = ResponseError(reply)
        self._loop.arrive(self._finish_handshake, error)

    def received(self) -> None:
        self._loop.arrive(self._receive)

    def broken(self) -> None:
        """Report a reset or a close, at random."""
        error = ConnectionResetError(104, "Connection reset by peer") if self._network.world.chance() < 0.5 else None
        self._loop.arrive(self._break, error)

    # --- on the loop

    def _finish_handshake(self, error: Exception | None) -> None:
        if not self.handshake.done():
            if error is None:
                self.handshake.set_result(None)
            else:
                self.handshake.set_exception(error)

    def _receive(self) -> None:
        if self._protocol is not None and (data := self.arrived()):
            self._protocol.data_received(data)

    def _break(self, error: Exception | None) -> None:
        self._finish_handshake(RedisConnectionError("Connection closed by server."))
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._network.close(self._link)
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)
