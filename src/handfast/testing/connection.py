"""One connection through the proxy: what the client says goes on as whole commands, what the server says as whole replies.

Two threads carry a connection, one for each direction. The one towards the server writes down what it has asked, so
that the other knows which reply is whose. Replies come in the order of their requests; pushes are no replies, except that
they are all that a subscription is answered with. A connection of RESP2 that has subscribed gets pushes in the shape of
replies, and can then have no others.
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

__all__ = ["NAME", "Passage"]

NAME = "handfast-proxy"
"""Of every thread of a proxy."""

PIECE = 65536
"""Bytes that are read at once."""

SETTLE = 5.0
"""Seconds that the replies to earlier commands of a connection are waited for before it is cut for a later one."""

_SUBSCRIPTIONS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"})
_LANGUAGES = frozenset({"HELLO", "RESET"})
"""Commands whose reply is a map if the connection speaks RESP3 from then on."""
_MESSAGES = frozenset({b"message", b"pmessage", b"smessage"})


class _Asked:
    """A command that went to the server and is not answered yet."""

    __slots__ = ("command", "confirmations", "rule")

    def __init__(self, command: Command, rule: Rule | None = None) -> None:
        self.command = command
        self.rule = rule
        """What happens when its reply is there, if anything."""
        self.confirmations = 0
        """How many pushes it is answered with instead of one reply."""
        if command.name in _SUBSCRIPTIONS:
            self.confirmations = max(1, len(command.args))


class Passage:
    """Carries one client to the server that ``connect`` reaches. ``on_end`` is told when both its threads are done."""

    def __init__(
        self,
        number: int,
        board: Rules,
        client: socket.socket,
        connect: Callable[[], socket.socket],
        on_end: Callable[[Passage], None],
    ) -> None:
        self._number = number
        self._board = board
        self._client = client
        self._connect = connect
        self._on_end = on_end
        self._server: socket.socket | None = None
        self._ended = False
        self._late = False
        """Whether only a late duplicate is still to come."""
        self._gone = False
        """Whether the client is not there any more."""
        self._deaf: set[Direction] = set()
        """Directions in which bytes were lost: what follows them could not be understood, so it is lost too."""
        self._batch: list[tuple[bytes, _Asked | None]] = []
        """What is to go to the server next."""
        self._unanswered: deque[_Asked] = deque()
        self._subscribed = False
        self._resp3 = False
        self._threads = [threading.Thread(target=self._run, args=(self._forward,), name=NAME, daemon=True)]
        self._running = 1

    def start(self) -> None:
        """Begin to carry."""
        self._threads[0].start()

    def cut(self, *, late: bool = False) -> None:
        """Cut both ends. A duplicate that is still to come is spared, unless it is ``late`` too."""
        with self._board.changed:
            if self._late and not late:
                return
            self._ended = True
            self._give_back()
            self._board.changed.notify_all()
            ends = [self._client, self._server]
        for end in ends:
            _shut(end, socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        """Wait until both its threads are done, for that many seconds each."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except (OSError, ValueError):  # an end went away, or speaks another language
            self.cut(late=True)
        except BaseException as error:  # noqa: BLE001 -- the user's, told of when the proxy is closed
            self._board.fail(error)
            self.cut(late=True)
        finally:
            with self._board.changed:
                self._running -= 1
                last = not self._running
                if last:
                    self._give_back()
            if last:
                self._client.close()
                if self._server is not None:
                    self._server.close()
                self._on_end(self)

    def _give_back(self) -> None:
        """The faults that were to happen here did not, as far as anybody will know: they are still to come."""
        with self._board.changed:
            for asked in self._unanswered:
                if asked.rule is not None:
                    asked.rule.give_back()
                    asked.rule = None

    # --- to the server

    def _forward(self) -> None:
        server = self._connect()
        with self._board.changed:
            self._server = server
            if self._ended:
                return
            backward = threading.Thread(
                target=self._run, args=(partial(self._backward, server),), name=NAME, daemon=True
            )
            self._threads.append(backward)
            self._running += 1
        try:
            backward.start()
        except RuntimeError:
            with self._board.changed:
                self._running -= 1
                self._threads.remove(backward)
            raise
        splitter = Splitter(inline=True)
        while piece := self._client.recv(PIECE):
            for frame in splitter.feed(piece):
                if not self._carry(frame, server):
                    return
            self._flush(server)
        self._write(server, "to server", splitter.rest())
        _shut(server, socket.SHUT_WR)  # what the server still has to say may be read

    def _carry(self, frame: bytes, server: socket.socket) -> bool:
        """Do with a request what is to be done; whether the connection goes on."""
        asked = read_command(frame, self._number)
        if asked is None:
            self._batch.append((frame, None))
            return True
        if self._board.commands is not None:
            self._board.commands.append(asked)
        if self._swallowed("to server"):
            return True
        rules = self._board.rules
        for rule in rules:
            if rule.kind == "before" and _users(rule.takes, asked):
                self._flush(server)
                rule.count()
                _users(rule.action, asked)
        faults = (rule for rule in rules if rule.kind not in ("before", "cut after", "lose push"))
        fault = next((rule for rule in faults if _users(rule.takes, asked)), None)
        if fault is None:
            self._batch.append((frame, _Asked(asked)))
            return True
        if fault.kind == "delay":
            self._flush(server)
            fault.count()
            self._board.wait(lambda: self._ended or fault.cleared, fault.seconds)
            self._batch.append((frame, _Asked(asked)))
            return not self._ended
        if fault.kind == "lose reply":
            return self._lose_reply(frame, _Asked(asked, fault), server)
        self._flush(server)
        self._board.wait(lambda: self._ended or not self._unanswered, SETTLE)
        if fault.kind == "lose request":
            fault.count()
            self.cut()
        else:
            self._duplicate(frame, asked, fault, server)
        return False

    def _lose_reply(self, frame: bytes, asked: _Asked, server: socket.socket) -> bool:
        """Let the server execute it. What follows waits: it is lost with the connection, unless that survives."""
        self._batch.append((frame, asked))
        self._flush(server)
        self._board.wait(lambda: self._ended or asked not in self._unanswered)
        return not self._ended

    def _duplicate(self, frame: bytes, asked: Command, fault: Rule, server: socket.socket) -> None:
        with self._board.changed:
            if self._ended:
                fault.give_back()
                return
            self._late = True
        _shut(self._client, socket.SHUT_RDWR)
        self._board.wait(lambda: self._ended, fault.seconds)
        if self._ended:  # the proxy is closed: it is not sent after all
            fault.give_back()
            return
        self._batch.append((frame, _Asked(asked, fault)))
        self._flush(server)
        _shut(server, socket.SHUT_WR)

    def _flush(self, server: socket.socket) -> None:
        batch, self._batch = self._batch, []
        if batch:
            with self._board.changed:
                for _, asked in batch:
                    if asked is not None:
                        self._unanswered.append(asked)
                        self._subscribed = self._subscribed or bool(asked.confirmations)
            self._write(server, "to server", b"".join(frame for frame, _ in batch))

    # --- to the client

    def _backward(self, server: socket.socket) -> None:
        splitter = Splitter()
        while piece := server.recv(PIECE):
            ready: list[bytes] = []
            answered = 0
            for frame in splitter.feed(piece):
                asked = self._answered_by(frame, answered)
                if asked is not None and asked.rule is not None:
                    if not _unknown(frame):
                        self._deliver(ready)
                        self._happen(asked)
                        return
                    self._give_back()
                if asked is None and self._is_lost(frame):
                    continue
                ready.append(frame)
                answered += asked is not None
            self._deliver(ready)
            self._settle(answered)
        self._deliver([splitter.rest()])
        self.cut(late=True)

    def _happen(self, asked: _Asked) -> None:
        """The server has executed what nobody is to hear of."""
        with self._board.changed:
            rule, asked.rule = asked.rule, None  # none any more if it was cut just now, and its fault called off
            if rule is not None:
                rule.count()
        self.cut(late=True)

    def _deliver(self, frames: list[bytes]) -> None:
        data = b"".join(frames)
        if not data or self._late or self._gone or self._swallowed("to client"):
            return
        try:
            self._write(self._client, "to client", data)
        except OSError:
            if self._ended:
                raise
            self._gone = True  # but the server may still be at work on what it was asked
            _shut(self._client, socket.SHUT_RDWR)

    def _answered_by(self, frame: bytes, before: int) -> _Asked | None:
        """The command that is wholly answered by this frame, when ``before`` of those unanswered are by earlier ones."""
        waiting = self._unanswered
        if self._is_push(frame):
            subscriptions = (waiting[at] for at in range(before, len(waiting)) if waiting[at].confirmations)
            asked = next(subscriptions, None)
            if asked is None or _first(frame) in _MESSAGES or not _first(frame).endswith(b"subscribe"):
                return None
            asked.confirmations -= 1
            if asked.confirmations and asked.command.args:
                return None
        elif before < len(waiting):
            asked = waiting[before]
            if asked.command.name in _LANGUAGES and not frame.startswith(b"-"):
                self._resp3 = frame.startswith(b"%")
        else:
            return None  # such as what MONITOR goes on telling
        return asked

    def _is_push(self, frame: bytes) -> bool:
        if self._resp3 or not self._subscribed:
            return frame.startswith(b">")
        first = _first(frame)
        return frame.startswith(b"*") and (first in _MESSAGES or first.endswith(b"subscribe"))

    def _is_lost(self, frame: bytes) -> bool:
        """Whether it is a message that is to vanish."""
        rules = [rule for rule in self._board.rules if rule.kind == "lose push"]
        if not rules or not self._is_push(frame) or _first(frame) not in _MESSAGES:
            return False
        reader = Reader()
        reader.feed(frame)
        kind, *rest = reader.frame()
        said = Command(kind.decode().upper(), tuple(rest), self._number)
        rule = next((rule for rule in rules if _users(rule.takes, said)), None)
        if rule is not None:
            rule.count()
        return rule is not None

    def _settle(self, answered: int) -> None:
        """So many commands are answered, and the client has their replies."""
        if answered:
            with self._board.changed:
                for _ in range(answered):
                    self._unanswered.popleft()
                self._board.changed.notify_all()

    # --- both ways

    def _swallowed(self, direction: Direction) -> bool:
        """Whether what goes that way vanishes."""
        if self._board.holes[direction]:
            self._deaf.add(direction)
        return direction in self._deaf

    def _write(self, end: socket.socket, direction: Direction, data: bytes) -> None:
        for rule in self._board.rules:
            if (
                rule.kind == "cut after"
                and rule.direction == direction
                and (part := _reached(rule, len(data))) is not None
            ):
                end.sendall(data[:part])
                rule.count()
                self.cut()
                raise ConnectionAbortedError("cut as it was ordered")
        if not self._board.dribbles:
            end.sendall(data)
            return
        for at in range(len(data)):
            end.sendall(data[at : at + 1])
            if pause := max(self._board.dribbles, default=0.0):
                sleep(pause)


class _UsersError(BaseException):
    """Carries an error of the user's past our own handlers."""


def _users(function: Callable[[Command], Any], asked: Command) -> Any:
    """Call what the user gave: a ValueError or OSError of theirs is none of the network's."""
    try:
        return function(asked)
    except Exception as error:
        raise _UsersError from error


def _reached(rule: Rule, size: int) -> int | None:
    """How many of so many bytes may pass until the cut, or None for all of them."""
    with rule.changed:
        if rule.cleared or rule.left == 0:
            return None
        if size < rule.skip:
            rule.skip -= size
            return None
        rule.left = 0
        return rule.skip


def _unknown(frame: bytes) -> bool:
    """Whether the reply says that the server does not know the script: then it was not executed."""
    return frame.startswith(b"-") and is_noscript(frame[1:-2].decode(errors="replace"))


def _first(frame: bytes) -> bytes:
    """The first value of a group, where that is a string."""
    reader = Reader()
    reader.feed(frame)
    group = reader.frame()
    return group[0] if isinstance(group, list) and group and isinstance(group[0], bytes) else b""


def _shut(end: socket.socket | None, how: int) -> None:
    if end is not None:
        with contextlib.suppress(OSError):
            end.shutdown(how)
