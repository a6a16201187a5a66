"""A connection through the proxy, which forwards whole commands to the server and whole replies to the client.

Two threads serve a connection, one per direction. The thread towards the server records each command, so the other
thread knows which reply belongs to which command. Replies arrive in the order of their requests. Pushes are not
replies, except for subscriptions, which are answered by pushes only. A subscribed RESP2 connection receives pushes
in the form of replies, and cannot have other replies then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

from handfast._engine.resp import Reader
from handfast._engine.server_errors import is_noscript
from handfast.testing.commands import Command, Splitter, read_command
from handfast.testing.faults import Direction, Rule, Rules

__all__ = ["THREAD_NAME", "ProxiedConnection"]

THREAD_NAME = "handfast-proxy"
"""Name of every thread of a proxy."""

CHUNK = 65536
"""Most bytes that one read returns."""

REPLIES_TIMEOUT_S = 5.0
"""How long, in seconds, a cut waits for the replies to earlier commands of the connection."""

_SUBSCRIPTIONS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"})
_PROTOCOL_SWITCHES = frozenset({"HELLO", "RESET"})
"""Commands whose reply is a map if the connection uses RESP3 from then on."""
_MESSAGES = frozenset({b"message", b"pmessage", b"smessage"})


class _Pending:
    """A command sent to the server and not answered yet."""

    __slots__ = ("command", "confirmations", "rule")

    def __init__(self, command: Command, rule: Rule | None = None) -> None:
        self.command = command
        self.rule = rule
        """The fault that happens when the reply arrives, if any."""
        self.confirmations = 0
        """How many pushes answer the command in place of one reply."""
        if command.name in _SUBSCRIPTIONS:
            self.confirmations = max(1, len(command.args))


class ProxiedConnection:
    """Forwards between a client and the server.

    Args:
        number: Number of the connection, from 1.
        rules: The state shared by the connections of the proxy.
        client: The socket of the client.
        connect: Connects to the server.
        on_end: Called when both threads have ended.

    """

    def __init__(
        self,
        number: int,
        rules: Rules,
        client: socket.socket,
        connect: Callable[[], socket.socket],
        on_end: Callable[[ProxiedConnection], None],
    ) -> None:
        self.number = number
        self._rules = rules
        self._client = client
        self._connect = connect
        self._on_end = on_end
        self._server: socket.socket | None = None
        self._ended = False
        self._late = False
        """Whether only a late duplicate remains to be sent."""
        self._client_gone = False
        self._discarding: set[Direction] = set()
        """Directions in which bytes were discarded: the rest of the stream could not be parsed, so it is discarded
        too."""
        self._batch: list[tuple[bytes, _Pending | None]] = []
        """Frames to be sent to the server next."""
        self._unanswered: deque[_Pending] = deque()
        self._subscribed = False
        self._resp3 = False
        self._threads = [threading.Thread(target=self._run, args=(self._forward,), name=THREAD_NAME, daemon=True)]
        self._running = 1

    def start(self) -> None:
        """Start forwarding."""
        self._threads[0].start()

    def cut(self, *, late: bool = False) -> None:
        """Shut both sockets down. A late duplicate still to be sent is kept, unless ``late`` is true."""
        with self._rules.changed:
            if self._late and not late:
                return
            self._ended = True
            self._unclaim()
            self._rules.changed.notify_all()
            ends = [self._client, self._server]
        for end in ends:
            _shut(end, socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        """Wait until both threads have ended, for ``timeout`` seconds each."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self, forward: Callable[[], None]) -> None:
        try:
            forward()
        except (OSError, ValueError):  # an end disconnected, or does not speak RESP
            self.cut(late=True)
        except BaseException as error:  # noqa: BLE001 -- the user's, raised when the proxy is closed
            self._rules.fail(error)
            self.cut(late=True)
        finally:
            with self._rules.changed:
                self._running -= 1
                last = not self._running
                if last:
                    self._unclaim()
            if last:
                self._client.close()
                if self._server is not None:
                    self._server.close()
                self._on_end(self)

    def _unclaim(self) -> None:
        """Give back the faults of the unanswered commands: no test will see them as happened."""
        with self._rules.changed:
            for pending in self._unanswered:
                if pending.rule is not None:
                    pending.rule.unclaim()
                    pending.rule = None

    # --- to the server

    def _forward(self) -> None:
        server = self._connect()
        with self._rules.changed:
            self._server = server
            if self._ended:
                return
            backward = threading.Thread(
                target=self._run, args=(partial(self._backward, server),), name=THREAD_NAME, daemon=True
            )
            self._threads.append(backward)
            self._running += 1
        try:
            backward.start()
        except RuntimeError:
            with self._rules.changed:
                self._running -= 1
                self._threads.remove(backward)
            raise
        splitter = Splitter(inline=True)
        while piece := self._client.recv(CHUNK):
            for frame in splitter.feed(piece):
                if not self._handle(frame, server):
                    return
            self._flush(server)
        self._write(server, "to server", splitter.rest())
        _shut(server, socket.SHUT_WR)  # replies may still be read

    def _handle(self, frame: bytes, server: socket.socket) -> bool:
        """Forward a request or apply a fault to it; return whether the connection continues."""
        sent = read_command(frame, self.number)
        if sent is None:
            self._batch.append((frame, None))
            return True
        if self._rules.commands is not None:
            self._rules.commands.append(sent)
        if self._discards("to server"):
            return True
        rules = self._rules.active
        for rule in rules:
            if rule.kind == "before" and _call_user(rule.claim, sent):
                # The action finds a server that has every earlier request.
                self._flush(server)
                rule.count()
                _call_user(rule.action, sent)
        faults = (rule for rule in rules if rule.kind not in ("before", "cut after", "lose push"))
        # One fault a command: `next` stops at the first claim, so the other rules wait for a later command.
        fault = next((rule for rule in faults if _call_user(rule.claim, sent)), None)
        if fault is None:
            self._batch.append((frame, _Pending(sent)))
            return True
        if fault.kind == "delay":
            self._flush(server)
            fault.count()
            self._rules.wait(lambda: self._ended or fault.cleared, fault.seconds)
            self._batch.append((frame, _Pending(sent)))
            return not self._ended
        if fault.kind == "lose reply":
            return self._lose_reply(frame, _Pending(sent, fault), server)
        self._flush(server)
        # Earlier commands get their replies first: only this one is lost with the connection.
        self._rules.wait(lambda: self._ended or not self._unanswered, REPLIES_TIMEOUT_S)
        if fault.kind == "lose request":
            fault.count()
            self.cut()
        else:
            self._duplicate(frame, sent, fault, server)
        return False

    def _lose_reply(self, frame: bytes, pending: _Pending, server: socket.socket) -> bool:
        """Let the server execute the command. Later commands wait: they are lost with the connection, if it is cut."""
        self._batch.append((frame, pending))
        self._flush(server)
        self._rules.wait(lambda: self._ended or pending not in self._unanswered)
        return not self._ended

    def _duplicate(self, frame: bytes, sent: Command, fault: Rule, server: socket.socket) -> None:
        with self._rules.changed:
            if self._ended:
                fault.unclaim()
                return
            self._late = True
        _shut(self._client, socket.SHUT_RDWR)
        self._rules.wait(lambda: self._ended or fault.cleared, fault.seconds)
        if self._ended:  # the proxy was closed, so the duplicate is not sent
            fault.unclaim()
            return
        self._batch.append((frame, _Pending(sent, fault)))
        self._flush(server)
        _shut(server, socket.SHUT_WR)

    def _flush(self, server: socket.socket) -> None:
        batch, self._batch = self._batch, []
        if batch:
            with self._rules.changed:
                for _, pending in batch:
                    if pending is not None:
                        self._unanswered.append(pending)
                        self._subscribed = self._subscribed or bool(pending.confirmations)
            self._write(server, "to server", b"".join(frame for frame, _ in batch))

    # --- to the client

    def _backward(self, server: socket.socket) -> None:
        splitter = Splitter()
        while piece := server.recv(CHUNK):
            ready: list[bytes] = []
            answered = 0
            for frame in splitter.feed(piece):
                pending = self._answered_by(frame, answered)
                if pending is not None and pending.rule is not None:
                    if not _is_noscript_reply(frame):
                        self._deliver(ready)
                        self._lose(pending)
                        return
                    self._unclaim()
                if pending is None and self._loses_push(frame):
                    continue
                ready.append(frame)
                answered += pending is not None
            self._deliver(ready)
            self._settle(answered)
        self._deliver([splitter.rest()])
        self.cut(late=True)

    def _lose(self, pending: _Pending) -> None:
        """Cut the connection: the server has executed the command, and the client must not get the reply."""
        with self._rules.changed:
            rule, pending.rule = pending.rule, None  # None if a concurrent cut has given the claim back
            if rule is not None:
                rule.count()
        self.cut(late=True)

    def _deliver(self, frames: list[bytes]) -> None:
        data = b"".join(frames)
        if not data or self._late or self._client_gone or self._discards("to client"):
            return
        try:
            self._write(self._client, "to client", data)
        except OSError:
            if self._ended:
                raise
            self._client_gone = True  # the server may still be executing commands, whose faults must be counted
            _shut(self._client, socket.SHUT_RDWR)

    def _answered_by(self, frame: bytes, before: int) -> _Pending | None:
        """Return the command whose answer this frame completes.

        ``before`` is the number of commands answered by earlier frames of the same piece; they are still in the queue.
        """
        waiting = self._unanswered
        if self._is_push(frame):
            subscriptions = (waiting[at] for at in range(before, len(waiting)) if waiting[at].confirmations)
            pending = next(subscriptions, None)
            if pending is None or _first(frame) in _MESSAGES or not _first(frame).endswith(b"subscribe"):
                return None
            pending.confirmations -= 1
            if pending.confirmations and pending.command.args:
                return None
        elif before < len(waiting):
            pending = waiting[before]
            if pending.command.name in _PROTOCOL_SWITCHES and not frame.startswith(b"-"):
                self._resp3 = frame.startswith(b"%")
        else:
            return None  # such as the output of MONITOR
        return pending

    def _is_push(self, frame: bytes) -> bool:
        if self._resp3 or not self._subscribed:
            return frame.startswith(b">")
        first = _first(frame)
        return frame.startswith(b"*") and (first in _MESSAGES or first.endswith(b"subscribe"))

    def _loses_push(self, frame: bytes) -> bool:
        rules = [rule for rule in self._rules.active if rule.kind == "lose push"]
        if not rules or not self._is_push(frame) or _first(frame) not in _MESSAGES:
            return False
        reader = Reader()
        reader.feed(frame)
        kind, *rest = reader.frame()
        message = Command(kind.decode().upper(), tuple(rest), self.number)
        rule = next((rule for rule in rules if _call_user(rule.claim, message)), None)
        if rule is not None:
            rule.count()
        return rule is not None

    def _settle(self, answered: int) -> None:
        """Remove the first ``answered`` commands from the queue: the client has their replies."""
        if answered:
            with self._rules.changed:
                for _ in range(answered):
                    self._unanswered.popleft()
                self._rules.changed.notify_all()

    # --- both directions

    def _discards(self, direction: Direction) -> bool:
        if self._rules.black_holes[direction]:
            self._discarding.add(direction)
        return direction in self._discarding

    def _write(self, end: socket.socket, direction: Direction, data: bytes) -> None:
        for rule in self._rules.active:
            if (
                rule.kind == "cut after"
                and rule.direction == direction
                and (part := _bytes_until_cut(rule, len(data))) is not None
            ):
                end.sendall(data[:part])
                rule.count()
                self.cut()
                raise ConnectionAbortedError("cut by cut_after()")
        if not self._rules.dribbles:
            end.sendall(data)
            return
        for at in range(len(data)):
            end.sendall(data[at : at + 1])
            if pause := max(self._rules.dribbles, default=0.0):
                sleep(pause)


class _UserError(BaseException):
    """Wraps an error of the user's function, so that the handlers of network errors do not catch it."""


def _call_user(function: Callable[[Command], Any], sent: Command) -> Any:
    """Call a match or an action of the user."""
    try:
        return function(sent)
    except Exception as error:
        raise _UserError from error


def _bytes_until_cut(rule: Rule, size: int) -> int | None:
    """Return how many of the next ``size`` bytes pass before the cut, or None if all of them do."""
    with rule.changed:
        if rule.cleared or rule.remaining == 0:
            return None
        if size < rule.skip:
            rule.skip -= size
            return None
        rule.remaining = 0
        return rule.skip


def _is_noscript_reply(frame: bytes) -> bool:
    """Return whether the reply is NOSCRIPT: the server does not know the script, so did not execute it."""
    return frame.startswith(b"-") and is_noscript(frame[1:-2].decode(errors="replace"))


def _first(frame: bytes) -> bytes:
    """Return the first value of an array or push if it is a string, else b""."""
    reader = Reader()
    reader.feed(frame)
    group = reader.frame()
    return group[0] if isinstance(group, list) and group and isinstance(group[0], bytes) else b""


def _shut(end: socket.socket | None, how: int) -> None:
    if end is not None:
        with contextlib.suppress(OSError):
            end.shutdown(how)
