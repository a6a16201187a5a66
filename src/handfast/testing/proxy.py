"""A proxy between clients and a server: it loses, delays, repeats and cuts single commands and replies.

    with FaultProxy("redis://localhost:6379/0") as proxy:
        client = redis.Redis.from_url(proxy.url)
        fault = proxy.lose_reply(command("INCRBY"))
        client.incr("visits")    # the server increments; the client is cut off, retries, and increments once more
        assert fault.happened == 1

The proxy parses RESP2 and RESP3, so a fault hits exactly one command of a pipeline: earlier commands are executed and
answered, later ones are lost with the connection. The first matching fault, in the order of injection, applies to a
command. TLS and clients that turn replies off (``CLIENT REPLY``) are not supported.
"""

from __future__ import annotations

import contextlib
import logging
import select
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Literal, Self
from urllib.parse import SplitResult, quote, unquote, urlsplit

from handfast.embedded import private_folder
from handfast.testing.commands import Command, Match, anything
from handfast.testing.connection import THREAD_NAME, ProxiedConnection
from handfast.testing.faults import Direction, Fault, Rule, Rules

__all__ = ["FaultProxy"]

logger: logging.Logger = logging.getLogger("handfast.testing")

TIMEOUT_S = 5.0
"""How long, in seconds, connecting to the server may take, and each thread when the proxy is closed."""

BACKLOG = 512
"""Clients that may wait to be accepted."""


class FaultProxy:
    """A proxy that injects faults between clients and one server.

    Clients connect to `url`. All methods may be called from any thread. Use the proxy as a context manager, or call
    `close`: then no thread, socket or folder of it remains.

    Args:
        url: URL of the server, which begins with ``unix://`` or ``redis://``.
        tcp: Listen on a port of 127.0.0.1 in place of a unix socket in a private folder.
        record: Keep every command in `commands`. Turn it off in long runs, to bound the memory.

    Attributes:
        url: URL for clients. User, password, database and options are those of the server's URL.
        path: Path of the unix socket for clients; None with ``tcp``.
        port: Port on 127.0.0.1 for clients; None without ``tcp``.

    Raises:
        ValueError: The proxy does not support this URL.

    """

    def __init__(self, url: str, *, tcp: bool = False, record: bool = True) -> None:
        parts = _split(url)
        self._target = _address(parts)
        self._rules = Rules(commands=[] if record else None)
        self._connections: set[ProxiedConnection] = set()
        self._count = 0
        self._closed = False
        self._folder: str | None = None
        self._wake, self._woken = socket.socketpair()
        self.path: str | None = None
        self.port: int | None = None
        try:
            self._listener = self._listen(tcp=tcp)
        except BaseException:
            self._wake.close()
            self._woken.close()
            self._remove_folder()
            raise
        self.url: str = _rebuilt(parts, self.path, self.port)
        self._accepting = threading.Thread(target=self._accept, name=THREAD_NAME, daemon=True)
        self._accepting.start()

    def __repr__(self) -> str:
        return f"<FaultProxy of {self._target}, {self.connections} connections so far>"

    @property
    def connections(self) -> int:
        """How many connections clients have made so far."""
        return self._count

    @property
    def commands(self) -> list[Command]:
        """The commands sent by clients so far, in order. This is the proxy's own list; it may be cleared.

        Raises:
            RuntimeError: The proxy was made with ``record=False``.

        """
        if self._rules.commands is None:
            raise RuntimeError("this proxy does not record commands; make it without record=False")
        return self._rules.commands

    # --- one command at a time

    def lose_reply(self, match: Match = anything, *, times: int | None = 1, after: int = 0) -> Fault:
        """Let the server execute a command, then cut the connection in place of forwarding the reply.

        The fault counts as happened only when the server has executed the command. If the server does not know a script
        (NOSCRIPT), this reply is forwarded and the fault hits the next match. In a transaction, EXEC executes the
        commands.

        Args:
            match: Which commands are hit.
            times: How many matches are hit; None for all.
            after: How many matches are skipped first.

        Returns:
            The fault.

        Raises:
            ValueError: ``times`` is less than 1, or ``after`` less than 0.
            RuntimeError: The proxy is closed.

        """
        return self._inject(Rule(self._rules.changed, "lose reply", match, times=times, skip=after))

    def lose_request(self, match: Match = anything, *, times: int | None = 1, after: int = 0) -> Fault:
        """Cut the connection before a command reaches the server.

        Args, return value and errors are those of `lose_reply`.
        """
        return self._inject(Rule(self._rules.changed, "lose request", match, times=times, skip=after))

    def delay(self, match: Match = anything, *, seconds: float = 0.2, times: int | None = 1, after: int = 0) -> Fault:
        """Delay a command, and with it the later commands of the same connection.

        The fault counts as happened when the delay begins. `Fault.clear` ends it.

        Args:
            match: Which commands are delayed.
            seconds: How long.
            times: How many matches are delayed; None for all.
            after: How many matches are skipped first.

        Returns:
            The fault.

        Raises:
            ValueError: A number is out of range.
            RuntimeError: The proxy is closed.

        """
        return self._inject(Rule(self._rules.changed, "delay", match, times=times, skip=after, seconds=seconds))

    def duplicate(self, match: Match = anything, *, after: float = 0.5, times: int | None = 1) -> Fault:
        """Cut the connection, and send the command to the server later.

        A retrying client sends the command a second time, and the first copy arrives late. The fault counts as
        happened when the server has executed the late copy. `cut` and `retarget` do not prevent this; `close` does;
        `Fault.clear` has it sent at once.

        Args:
            match: Which commands are hit.
            after: Seconds until the late copy is sent.
            times: How many matches are hit; None for all.

        Returns:
            The fault.

        Raises:
            ValueError: A number is out of range.
            RuntimeError: The proxy is closed.

        """
        return self._inject(Rule(self._rules.changed, "duplicate", match, times=times, seconds=after))

    def before(self, match: Match, action: Callable[[Command], object], *, times: int | None = None) -> Fault:
        """Call a function before a command is forwarded, in the thread of the connection. Faults apply afterwards.

        Args:
            match: Which commands it is called for.
            action: Called with the command. An exception cuts the connection, and `close` raises it again.
            times: How many matches it is called for; None for all.

        Returns:
            A fault, which counts the calls.

        Raises:
            ValueError: ``times`` is less than 1.
            RuntimeError: The proxy is closed.

        """
        return self._inject(Rule(self._rules.changed, "before", match, times=times, action=action))

    def lose_pushes(self, match: Match = anything, *, times: int | None = None, after: int = 0) -> Fault:
        """Discard messages of subscriptions on their way to clients. Confirmations and replies are forwarded.

        Args:
            match: Which messages are lost. It is called with a `Command` named after the type of the message,
                ``MESSAGE``, with channel and payload as arguments, so ``containing(b"...")`` works.
            times: How many messages are lost; None for all, until `Fault.clear`.
            after: How many messages are skipped first.

        Returns:
            The fault.

        Raises:
            ValueError: A number is out of range.
            RuntimeError: The proxy is closed.

        """
        return self._inject(Rule(self._rules.changed, "lose push", match, times=times, skip=after))

    # --- bytes and connections

    def cut_after(self, count: int, direction: Direction = "to client") -> Fault:
        """Cut a connection after a number of bytes, possibly within a request or a reply.

        Args:
            count: How many more bytes pass in this direction, counted over all connections. The connection that would
                forward the next byte is cut.
            direction: ``"to client"`` or ``"to server"``.

        Returns:
            The fault.

        Raises:
            ValueError: ``count`` is negative, or there is no such direction.
            RuntimeError: The proxy is closed.

        """
        if direction not in self._rules.black_holes:
            raise ValueError(f"direction must be 'to server' or 'to client', not {direction!r}")
        return self._inject(Rule(self._rules.changed, "cut after", skip=count, direction=direction))

    @contextlib.contextmanager
    def dribbling(self, *, pause: float = 0.0) -> Iterator[None]:
        """Forward byte by byte within the ``with`` block.

        Args:
            pause: Seconds to wait after each byte, 0 to 1.

        Raises:
            ValueError: The pause is out of range.

        """
        if not 0 <= pause <= 1:
            raise ValueError(f"a pause is 0 to 1 s, not {pause!r}")
        self._rules.dribbles.append(pause)
        try:
            yield
        finally:
            self._rules.dribbles.remove(pause)

    @contextlib.contextmanager
    def black_hole(self, direction: Direction | Literal["both"] = "both") -> Iterator[None]:
        """Discard all bytes of a direction within the ``with`` block, without closing connections.

        A connection with discarded bytes stays silent in this direction after the block too, since the rest of
        the stream could not be parsed. Other connections, and those made after the block, work.

        Args:
            direction: ``"to server"``, ``"to client"`` or ``"both"``.

        Raises:
            ValueError: There is no such direction.

        """
        if direction != "both" and direction not in self._rules.black_holes:
            raise ValueError(f"direction must be 'to server', 'to client' or 'both', not {direction!r}")
        ways = [way for way in self._rules.black_holes if direction in (way, "both")]
        with self._rules.changed:
            for way in ways:
                self._rules.black_holes[way] += 1
        try:
            yield
        finally:
            with self._rules.changed:
                for way in ways:
                    self._rules.black_holes[way] -= 1

    def cut(self, *, but: int | None = None) -> None:
        """Cut every current connection.

        Args:
            but: The number of a connection to keep, as in `Command.connection`.

        """
        for connection in self._live():
            if connection.number != but:
                connection.cut()

    def retarget(self, url: str, *, cut: bool = True) -> None:
        """Connect new connections to another server, as after a failover, and cut the current ones.

        Args:
            url: URL of the other server. The proxy's own `url` does not change.
            cut: False leaves the current connections as they are, as a planned failover does.

        Raises:
            ValueError: The proxy does not support this URL.

        """
        with self._rules.changed:
            self._target = _address(_split(url))
        if cut:
            self.cut()

    # --- closing

    def close(self) -> None:
        """Cut every connection and close the proxy. Late copies not yet sent are dropped.

        Raises:
            Exception: The first error raised by a match or an action. At the end of a ``with`` block that fails with
                another exception, it is logged instead.

        """
        with self._rules.changed:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._wake.close()
        self._accepting.join(TIMEOUT_S)
        connections = self._live()
        for connection in connections:
            connection.cut(late=True)
        for connection in connections:
            connection.join(TIMEOUT_S)
        self._remove_folder()
        if self._rules.error is not None:
            raise self._rules.error.__cause__ or self._rules.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if exc is None:
                raise
            logger.exception("a match or an action of a FaultProxy failed")

    def _inject(self, rule: Rule) -> Fault:
        if self._closed:
            raise RuntimeError("this proxy is closed")
        return self._rules.add(rule)

    def _live(self) -> list[ProxiedConnection]:
        with self._rules.changed:
            return list(self._connections)

    def _listen(self, *, tcp: bool) -> socket.socket:
        listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        try:
            if tcp:
                listener.bind(("127.0.0.1", 0))
                self.port = listener.getsockname()[1]
            else:
                self._folder = private_folder()
                self.path = f"{self._folder}/s"
                listener.bind(self.path)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener

    def _accept(self) -> None:
        with self._listener, self._woken:
            while True:
                readable, _, _ = select.select([self._listener, self._woken], [], [])
                if self._woken in readable:
                    return
                try:
                    client = self._listener.accept()[0]
                except OSError:  # it disconnected before it was accepted, or no file descriptor is free
                    continue
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        _without_delay(client)
        with self._rules.changed:
            self._count += 1
            connection = ProxiedConnection(self._count, self._rules, client, self._connect, self._forget)
            self._connections.add(connection)
        try:
            connection.start()
        except RuntimeError:  # no further thread can be started
            client.close()
            self._forget(connection)

    def _connect(self) -> socket.socket:
        target = self._target
        if isinstance(target, tuple):
            server = socket.create_connection(target, TIMEOUT_S)
            _without_delay(server)
        else:
            server = socket.socket(socket.AF_UNIX)
            try:
                server.settimeout(TIMEOUT_S)
                server.connect(target)
            except BaseException:
                server.close()
                raise
        server.settimeout(None)
        return server

    def _forget(self, connection: ProxiedConnection) -> None:
        with self._rules.changed:
            self._connections.discard(connection)

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("unix", "redis") or (parts.scheme == "unix" and not parts.path):
        raise ValueError(f"a proxy connects to unix:///path or redis://host:port, not to {parts.scheme or url!r}")
    return parts


def _address(parts: SplitResult) -> str | tuple[str, int]:
    """Return the address of the server: a path, or a host and a port."""
    if parts.scheme == "unix":
        return unquote(parts.path)
    return unquote(parts.hostname or "localhost"), parts.port or 6379


def _rebuilt(parts: SplitResult, path: str | None, port: int | None) -> str:
    """Return the proxy's URL: the server's with another address."""
    user, at, _ = parts.netloc.rpartition("@")
    query, database = parts.query, ""
    if parts.scheme == "redis":
        database = parts.path.strip("/")
    if path is not None:
        options = [option for option in (query, f"db={database}" if database else "") if option]
        return f"unix://{user}{at}{quote(path)}" + ("?" + "&".join(options) if options else "")
    return f"redis://{user}{at}127.0.0.1:{port}" + (f"/{database}" if database else "") + (f"?{query}" if query else "")


def _without_delay(end: socket.socket) -> None:
    if end.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):  # disconnected already
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
