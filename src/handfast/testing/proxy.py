"""A proxy between client and server that loses, delays, repeats and cuts just what it is told to.

    with FaultProxy("redis://localhost:6379/0") as proxy:
        client = redis.Redis.from_url(proxy.url)
        fault = proxy.lose_reply(command("INCRBY"))
        client.incr("visits")    # the server counts; the client is cut off, tries again, and counts once more
        assert fault.happened == 1

It understands the protocol, RESP2 and RESP3, so that a fault hits exactly one command, however many came in one piece:
commands before it are executed and answered, those behind it are lost with the connection. Faults that were ordered
are asked in their order, and the first that matches a command has it. TLS is not understood, nor is a client that asks
for no replies (``CLIENT REPLY``).
"""

from __future__ import annotations

import contextlib
import logging
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Literal, Self
from urllib.parse import SplitResult, unquote, urlsplit

from handfast.testing.commands import Command, Match, anything
from handfast.testing.connection import NAME, Passage
from handfast.testing.faults import Direction, Fault, Rule, Rules

__all__ = ["FaultProxy"]

logger = logging.getLogger("handfast")

RETRY_FOR = 5.0
"""Seconds to reach the server, and for a thread to end when the proxy is closed."""

BACKLOG = 512


class FaultProxy:
    """Stands between clients and the server at ``url``, which begins with ``unix://`` or ``redis://``.

    Clients connect to `url`: a unix socket in a private folder, or with ``tcp`` a port on 127.0.0.1. Everything may be called
    from any thread. Use it as a context manager, or call `close`: then no thread, socket or folder of it is left.

    ``record`` keeps what was asked in `commands`; without it a long run takes no memory. Raises ValueError for a URL that
    it cannot serve.
    """

    def __init__(self, url: str, *, tcp: bool = False, record: bool = True) -> None:
        parts = _split(url)
        self._target = _address(parts)
        self._board = Rules(commands=[] if record else None)
        self._passages: set[Passage] = set()
        self._connections = 0
        self._closed = False
        self._folder: str | None = None
        self._wake, self._woken = socket.socketpair()
        self.path: str | None = None
        """The unix socket that clients connect to, if it is one."""
        self.port: int | None = None
        """The port on 127.0.0.1 that clients connect to, if it is one."""
        try:
            self._listener = self._listen(tcp=tcp)
        except BaseException:
            self._wake.close()
            self._woken.close()
            self._remove_folder()
            raise
        self.url = _rebuilt(parts, self.path, self.port)
        """Where clients find it. User, password, database and options are those of the server's URL."""
        self._accepting = threading.Thread(target=self._accept, name=NAME, daemon=True)
        self._accepting.start()

    def __repr__(self) -> str:
        return f"<FaultProxy of {self._target}, {self.connections} connections so far>"

    @property
    def connections(self) -> int:
        """How many connections clients have made so far."""
        return self._connections

    @property
    def commands(self) -> list[Command]:
        """What clients have asked for so far, in its order. It is the proxy's own list: clear it to forget.

        Raises RuntimeError where nothing is recorded.
        """
        if self._board.commands is None:
            raise RuntimeError("this proxy was told not to record; leave record=False out to look at commands")
        return self._board.commands

    # --- one command at a time

    def lose_reply(self, match: Match = anything, *, times: int | None = 1, after: int = 0) -> Fault:
        """Let the server execute the command, then cut the client off instead of telling it.

        It counts as happened only when the server had executed it. A reply that says that the server does not know a script
        (NOSCRIPT) is passed on, and the fault waits for the next match. In a transaction it is EXEC that executes.

        ``times`` is how many matches it hits, None for all of them; ``after`` how many it lets off first. Raises
        ValueError for numbers that make no sense.
        """
        return self._order(Rule(self._board.changed, "lose reply", match, times=times, skip=after))

    def lose_request(self, match: Match = anything, *, times: int | None = 1, after: int = 0) -> Fault:
        """Cut the client off before the command reaches the server. ``times`` and ``after`` as in `lose_reply`."""
        return self._order(Rule(self._board.changed, "lose request", match, times=times, skip=after))

    def delay(self, match: Match = anything, *, seconds: float = 0.2, times: int | None = 1, after: int = 0) -> Fault:
        """Hold the command back for so many seconds, and what is behind it on its connection too.

        It counts as happened when it is held. `Fault.clear` lets it go. ``times`` and ``after`` as in `lose_reply`.
        """
        return self._order(Rule(self._board.changed, "delay", match, times=times, skip=after, seconds=seconds))

    def duplicate(self, match: Match = anything, *, after: float = 0.5, times: int | None = 1) -> Fault:
        """Cut the client off, and let the server execute the command ``after`` so many seconds, when nobody waits for it.

        To the client it is a request that got lost, so it tries again, and the first one arrives late. It counts as happened
        when the server has executed the late one, which `cut` and `retarget` do not prevent. ``times`` as in `lose_reply`.
        """
        return self._order(Rule(self._board.changed, "duplicate", match, times=times, seconds=after))

    def before(self, match: Match, action: Callable[[Command], object], *, times: int | None = None) -> Fault:
        """Call ``action`` with the command before it goes on, in the thread that carries it; then faults have their turn.

        What it raises cuts the connection, and is raised again by `close`. ``times`` as in `lose_reply`.
        """
        return self._order(Rule(self._board.changed, "before", match, times=times, action=action))

    def lose_pushes(self, match: Match = anything, *, times: int | None = None, after: int = 0) -> Fault:
        """Let messages of subscriptions vanish on their way to clients; connections, confirmations and replies stay whole.

        ``match`` is asked about a `Command` named after the kind of message, ``MESSAGE``, with channel and payload as its
        arguments, so that ``containing(b"...")`` finds one. ``times`` is how many are lost, all if it is None; ``after`` as
        in `lose_reply`. `Fault.clear` ends it.
        """
        return self._order(Rule(self._board.changed, "lose push", match, times=times, skip=after))

    # --- bytes and connections

    def cut_after(self, count: int, direction: Direction = "to client") -> Fault:
        """Cut the connection through which, in that direction, the byte number ``count`` goes from now on.

        The bytes of all connections are counted together. The cut may be within a reply or a request.
        """
        if direction not in self._board.holes:
            raise ValueError(f"direction must be 'to server' or 'to client', not {direction!r}")
        return self._order(Rule(self._board.changed, "cut after", skip=count, direction=direction))

    @contextlib.contextmanager
    def dribbling(self, *, pause: float = 0.0) -> Iterator[None]:
        """Within the block everything goes byte by byte, with ``pause`` seconds after each."""
        if not 0 <= pause <= 1:
            raise ValueError(f"a pause is 0 to 1 s, not {pause!r}")
        self._board.dribbles.append(pause)
        try:
            yield
        finally:
            self._board.dribbles.remove(pause)

    @contextlib.contextmanager
    def black_hole(self, direction: Direction | Literal["both"] = "both") -> Iterator[None]:
        """Within the block what goes that way vanishes, and connections stay.

        A connection that lost something that way stays mute for good, as one whose peer is gone: what follows could not be
        understood. Other connections, and those made after the block, work.
        """
        if direction != "both" and direction not in self._board.holes:
            raise ValueError(f"direction must be 'to server', 'to client' or 'both', not {direction!r}")
        ways = [way for way in self._board.holes if direction in (way, "both")]
        with self._board.changed:
            for way in ways:
                self._board.holes[way] += 1
        try:
            yield
        finally:
            with self._board.changed:
                for way in ways:
                    self._board.holes[way] -= 1

    def cut(self) -> None:
        """Cut every connection that there is."""
        for passage in self._live():
            passage.cut()

    def retarget(self, url: str) -> None:
        """Lead new connections to another server, as after a failover, and cut the old ones. `url` stays what it is."""
        with self._board.changed:
            self._target = _address(_split(url))
        self.cut()

    # --- its life

    def close(self) -> None:
        """End it: every connection is cut, and what was still to be executed late never is.

        Raises what a match or an action had raised. At the end of a block that failed it is only logged.
        """
        with self._board.changed:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._wake.close()
        self._accepting.join(RETRY_FOR)
        passages = self._live()
        for passage in passages:
            passage.cut(late=True)
        for passage in passages:
            passage.join(RETRY_FOR)
        self._remove_folder()
        if self._board.error is not None:
            raise self._board.error.__cause__ or self._board.error

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
            logger.exception("what was called for a command of the client's had failed")

    def _order(self, rule: Rule) -> Fault:
        if self._closed:
            raise RuntimeError("this proxy is closed")
        return self._board.add(rule)

    def _live(self) -> list[Passage]:
        with self._board.changed:
            return list(self._passages)

    def _listen(self, *, tcp: bool) -> socket.socket:
        listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        try:
            if tcp:
                listener.bind(("127.0.0.1", 0))
                self.port = listener.getsockname()[1]
            else:
                self._folder = tempfile.mkdtemp(prefix="handfast-")
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
                except OSError:  # it went away before it was let in, or there is no room for it
                    continue
                self._carry(client)

    def _carry(self, client: socket.socket) -> None:
        _without_delay(client)
        with self._board.changed:
            self._connections += 1
            passage = Passage(self._connections, self._board, client, self._reach, self._forget)
            self._passages.add(passage)
        try:
            passage.start()
        except RuntimeError:  # there are as many threads as there can be
            client.close()
            self._forget(passage)

    def _reach(self) -> socket.socket:
        """A connection to the server."""
        target = self._target
        if isinstance(target, tuple):
            server = socket.create_connection(target, RETRY_FOR)
            _without_delay(server)
        else:
            server = socket.socket(socket.AF_UNIX)
            try:
                server.settimeout(RETRY_FOR)
                server.connect(target)
            except BaseException:
                server.close()
                raise
        server.settimeout(None)
        return server

    def _forget(self, passage: Passage) -> None:
        with self._board.changed:
            self._passages.discard(passage)

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("unix", "redis") or (parts.scheme == "unix" and not parts.path):
        raise ValueError(f"a proxy leads to unix:///path or redis://host:port, not to {parts.scheme or url!r}")
    return parts


def _address(parts: SplitResult) -> str | tuple[str, int]:
    """Where the server listens: a path, or a host and a port."""
    if parts.scheme == "unix":
        return unquote(parts.path)
    return unquote(parts.hostname or "localhost"), parts.port or 6379


def _rebuilt(parts: SplitResult, path: str | None, port: int | None) -> str:
    """The URL by which clients come to the proxy, with all that is not the address as in the server's."""
    user, at, _ = parts.netloc.rpartition("@")
    query, database = parts.query, ""
    if parts.scheme == "redis":
        database = parts.path.strip("/")
    if path is not None:
        options = [option for option in (query, f"db={database}" if database else "") if option]
        return f"unix://{user}{at}{path}" + ("?" + "&".join(options) if options else "")
    return f"redis://{user}{at}127.0.0.1:{port}" + (f"/{database}" if database else "") + (f"?{query}" if query else "")


def _without_delay(end: socket.socket) -> None:
    if end.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):  # it is gone already
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
