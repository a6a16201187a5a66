"""Connections between processes and the server in virtual time, and the state that the server is in.

What travels on one connection stays in order, each way. What is sent on different ones does not. A connection may be cut
at one end before the other one knows, swallow what is sent, or never answer; what was sent before it was cut may be
executed later, alone, when its sender has long given it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError

from handfast._engine.effects import Call
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.server import SimulatedServer, unpacked
from handfast_lab.simulator.world import Process, World

__all__ = ["Caller", "Link", "Network", "SentCall"]

START_US = 1_790_000_000_000_000
"""What the server's clock shows at the beginning of time."""

NOT_KNOWN = ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
NO_PRIMARY = ErrorReply("READONLY You can't write against a read only replica.")


class Caller(Protocol):
    """Who has a connection."""

    def opened(self, link: Link) -> None:
        """It is there, and the inbox is subscribed to."""

    def heard(self, link: Link, payload: bytes) -> None:
        """Something was published to the inbox."""

    def answered(self, link: Link, request: SentCall, frame: Any) -> None:
        """The reply to a request."""

    def broken(self, link: Link, error: Exception) -> None:
        """It is no more."""


class Link:
    """One connection."""

    __slots__ = (
        *("caller", "channel", "deaf", "demoted", "here", "late_until", "mute", "number", "process", "swallows"),
        *("there", "to_client", "to_server"),
    )

    def __init__(self, number: int, process: Process, channel: bytes, caller: Caller) -> None:
        self.number = number
        self.process = process
        self.channel = channel
        self.caller = caller
        self.here = True
        """Whether the client has it, as far as it knows."""
        self.there = False
        """Whether the server has it, and counts it among those who listen."""
        self.mute = False
        """Whether what is sent vanishes."""
        self.deaf = False
        """Whether what is answered vanishes."""
        self.swallows = False
        """Whether what was on its way when it was cut is never executed."""
        self.demoted = False
        """Whether it leads to a server that is no primary any more."""
        self.to_server = 0.0
        self.to_client = 0.0


class SentCall:
    """A script on its way."""

    __slots__ = ("call", "key_count", "late", "link", "lost_reply", "name", "token", "whole", "words")

    def __init__(self, call: Call, address: bytes, *, whole: bool) -> None:
        self.call = call
        self.name, self.key_count, self.words = unpacked(call)
        if call.waiter:
            self.words.append(address)
        self.token = self.words[self.key_count]
        """Whom it is about; of scripts that are about nobody it is something else."""
        self.whole = whole
        self.link: Link
        self.late = False
        """Whether it is executed even though its connection is gone by then."""
        self.lost_reply = False


class Network:
    """The server, and the connections to it."""

    def __init__(self, world: World, server: SimulatedServer, tempo: float) -> None:
        self.world = world
        self.server = server
        self._chance = world.chance
        self.tempo = tempo
        """Seconds that a message travels, about."""
        self.links: list[Link] = []
        self.subscribers: dict[bytes, list[Link]] = {}
        self.known: set[str] = set()
        """The digests of the scripts that the server knows."""
        self.refusal: ErrorReply | None = None
        """What every script is answered."""
        self.jump_us = 0
        self.out_of_memory = False
        self.stalled = False
        self.is_down = False
        self.pushes_first = world.chance() < 0.5
        self.losing_pushes = 0.0
        self.calls = 0
        self._count = 0
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._listen = server.model[b"listen"]
        self.on_send: Callable[[SentCall], None] = lambda _: None
        """Called before a request leaves: here faults strike."""
        self.on_executed: Callable[[SentCall, Any, int], None] = lambda _, __, ___: None
        """Called after a script was run, with the server's time, before anybody learns of it."""

    def now_us(self) -> int:
        """What the server's clock shows."""
        return START_US + int(self.world.now * 1e6) + self.jump_us

    def moment(self, server_us: float) -> float:
        """When the server's clock shows that, if it does not jump."""
        return (server_us - START_US - self.jump_us) / 1e6

    def travel(self) -> float:
        """How long a message travels; one in thirty takes its time."""
        chance = self._chance()
        return self.tempo * (0.5 + chance if chance < 0.97 else (chance - 0.97) * 600)

    # --- the client's end

    def open(self, process: Process, channel: bytes, caller: Caller) -> Link:
        """Begin to connect; the caller is told."""
        self._count += 1
        link = Link(self._count, process, channel, caller)
        self.links.append(link)
        link.to_server = max(self.world.now, process.blocked_until) + 2 * self.travel()
        self.world.at(link.to_server, self._welcome, link)
        return link

    def send(self, link: Link, request: SentCall) -> None:
        """Send a script; the caller is told its reply."""
        request.link = link
        self.on_send(request)
        if link.mute:
            return
        link.to_server = max(link.to_server, max(self.world.now, link.process.blocked_until) + self.travel())
        self.world.at(link.to_server, self._run, link, request)

    def send_late(self, request: SentCall, moment: float) -> None:
        """Have a request executed at that moment whatever becomes of its connection."""
        request.late = True
        self.world.at(moment, self._run, request.link, request)

    def close(self, link: Link) -> None:
        """The client lets go of a connection. The server learns it behind what was sent before; or only much later."""
        link.here = False
        if link.process.alive and (link.there or not link.mute):
            wait = self.world.between(5, 90) if link.mute else self.travel()
            self.world.at(max(link.to_server, self.world.now + wait), self.drop, link)

    # --- what may happen to connections

    def cut(self, link: Link, *, notice: float | None = None) -> None:
        """Both ends lose it; the server after ``notice`` seconds."""
        link.swallows = self.world.chance() < 0.5
        self.world.at(self.world.now + self.travel(), self._break, link)
        self.world.at(self.world.now + (self.travel() if notice is None else notice), self.drop, link)

    def _break(self, link: Link) -> None:
        if link.here:
            link.mute = True
            link.process.meet(link.caller.broken, link, RedisConnectionError("the connection to the server broke"))

    def drop(self, link: Link) -> None:
        """The server's end is closed."""
        if link.there:
            link.there = False
            heard = self.subscribers[link.channel]
            heard.remove(link)
            self._listen(link.channel, len(heard))

    # --- the server's end

    def set_memory(self, *, out: bool) -> None:
        """It has memory for more, or is out of it."""
        self.out_of_memory = out
        self.server.model[b"set_memory"](out)

    def stall(self) -> None:
        """The server stops, as by SIGSTOP."""
        self.stalled = True

    def resume(self) -> None:
        """It goes on."""
        self.stalled = False
        backlog, self._backlog = self._backlog, []
        for action, args in backlog:
            action(*args)

    def go_down(self) -> None:
        """The server is gone, and with it all connections and scripts; what it stores is another matter."""
        self.is_down = True
        self.known.clear()
        self._backlog.clear()
        for link in self.links:
            link.swallows = True
            self.drop(link)
            self.world.at(self.world.now + self.travel(), self._break, link)

    def come_up(self) -> None:
        """It is there again."""
        self.is_down = False

    def _welcome(self, link: Link) -> None:
        if self.stalled:
            self._backlog.append((self._welcome, (link,)))
            return
        if link.mute or not link.here:
            return
        if self.is_down or (self.refusal is not None and self.refusal.startswith(("LOADING", "BUSY"))):
            self.world.at(self.world.now + self.travel(), self._break, link)
            return
        link.there = True
        heard = self.subscribers.setdefault(link.channel, [])
        heard.append(link)
        self._listen(link.channel, len(heard))
        self._answer(link, link.caller.opened, link)

    def _run(self, link: Link, request: SentCall) -> None:
        if self.stalled:
            self._backlog.append((self._run, (link, request)))
            return
        if self.is_down or not (request.late or ((link.there or link.demoted) and not link.swallows)):
            return
        world, now_us = self.world, self.now_us()
        messages: Any = ()
        if link.demoted:
            frame: Any = NO_PRIMARY
        elif self.refusal is not None:
            frame = self.refusal
        elif not request.whole and request.call.head.digest not in self.known:
            frame = NOT_KNOWN
        else:
            self.known.add(request.call.head.digest)
            self.calls += 1
            frame, messages = self.server.run(request.name, now_us, request.key_count, request.words)
        if world.log is not None:
            self._say(link, request, frame, messages)
        if messages and self.pushes_first:
            self._publish(messages)
        if (link.there or link.demoted) and not request.lost_reply and not request.late:
            self._answer(link, link.caller.answered, link, request, frame)
        if messages and not self.pushes_first:
            self._publish(messages)
        self.on_executed(request, frame, now_us)

    def _publish(self, messages: Any) -> None:
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            for link in self.subscribers.get(channel, ()):
                if self.losing_pushes and self.world.chance() < self.losing_pushes:
                    self.world.say("net", f"a message to connection {link.number} is lost")
                else:
                    self._answer(link, link.caller.heard, link, payload)

    def _answer(self, link: Link, action: Callable[..., None], *args: Any) -> None:
        link.to_client = max(link.to_client, max(self.world.now, link.process.blocked_until) + self.travel())
        self.world.at(link.to_client, self._reach, link, action, args)

    def _reach(self, link: Link, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if link.here and not link.deaf:
            process = link.process
            if process.alive and not process.frozen:
                action(*args)
            else:
                process.meet(action, *args)

    def _say(self, link: Link, request: SentCall, frame: Any, messages: Any) -> None:
        keys, args = request.words[: request.key_count], request.words[request.key_count :]
        names = " ".join(sorted({key.rsplit(b":", 1)[0].decode() for key in keys}))
        shown = frame if isinstance(frame, ErrorReply) else b" ".join(b"%b" % _text(item) for item in frame).decode()
        said = " ".join(arg.decode() for arg in args)
        late = " LATE" if request.late else ""
        self.world.say(
            "server", f"{link.process.name}/{link.number}{late} {request.name.decode()} {names} {said} -> {shown}"
        )
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            self.world.say(
                "server", f"    to {channel.decode()} ({len(self.subscribers.get(channel, ()))}): {payload.decode()}"
            )


def _text(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
