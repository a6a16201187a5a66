"""Connections between processes and the server in virtual time, and the state of the server.

What travels on a connection are the bytes of RESP3: the commands that the client's driver wrote, and the replies and pushes
that its reader takes apart. They stay in order, each way; what is sent on different connections does not. A connection may be
cut at one end before the other one notices, swallow what is sent, or never answer; a command that was sent before the cut may
be executed later, alone, when its sender has long given it up.

There are a primary and its replicas. A replica may become the primary, and connections outlive that: one that leads to the old
primary is refused scripts, and receives what the new one publishes, but is not counted there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import unpack
from typing import Any, Protocol

from handfast._engine import batches
from handfast._engine.packing import read_reply
from handfast._engine.resp import INCOMPLETE, ErrorReply, Reader
from handfast_lab.simulator.server import SCRIPT_NAMES, SimulatedServer
from handfast_lab.simulator.world import Process, World

__all__ = ["SPARE", "Command", "Link", "LinkEnd", "Network", "encode"]

START_US = 1_790_000_000_000_000
"""The time of the server's clock at the start."""

NOT_KNOWN = ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
NO_PRIMARY = ErrorReply("READONLY You can't write against a read only replica.")

SPARE = {batches.ACQUIRE.name.encode(): 8, batches.RELEASE.name.encode(): 0}
"""How many bytes follow each token in the first argument of a batch."""

TOKEN_ZEROS = "0" * 27
"""The zeros that the log omits from a token: tokens are numbered, and a client has fewer than 10,000."""


class LinkEnd(Protocol):
    """The client's end of a connection."""

    def opened(self) -> None:
        """The server has accepted the connection."""

    def refused(self, reply: str | None) -> None:
        """The connection failed: no server listens, or it replied to the handshake with this error."""

    def received(self) -> None:
        """Bytes have arrived: see `Network.arrived`."""

    def broken(self) -> None:
        """The connection has closed."""


class Link:
    """One connection."""

    __slots__ = (
        *("channels", "deaf", "end", "here", "inbound", "mute", "number", "process", "reader", "server", "swallows"),
        *("there", "to_client", "to_server"),
    )

    def __init__(self, number: int, process: Process, end: LinkEnd) -> None:
        self.number = number
        self.process = process
        self.end = end
        self.reader = Reader()
        self.server = 0
        """The number of the server that it leads to."""
        self.channels: list[bytes] = []
        """The channels that the client has subscribed to."""
        self.inbound: list[tuple[float, bytes, Callable[[], None] | None]] = []
        """Bytes on the way to the client, when they arrive, and what is called then."""
        self.here = True
        """Whether it is open for the client."""
        self.there = False
        """Whether it is open for the server."""
        self.mute = False
        """Whether commands get lost."""
        self.deaf = False
        """Whether replies get lost."""
        self.swallows = False
        """Whether commands on the way at the cut are never executed."""
        self.to_server = 0.0
        self.to_client = 0.0


class Command:
    """A command on its way. ``name`` is the script's, if it runs one."""

    __slots__ = (
        "is_script",
        "key_count",
        "late",
        "link",
        "lost_reply",
        "name",
        "source",
        "ticket",
        "token",
        "tokens",
        "words",
    )

    def __init__(self, link: Link, words: list[bytes]) -> None:
        verb = words[0]
        self.link = link
        self.is_script = verb in (b"EVALSHA", b"EVAL")
        self.source = verb == b"EVAL"
        """Whether it contains the source of the script."""
        self.late = False
        """Whether it is executed even if its connection has closed."""
        self.lost_reply = False
        self.ticket: int | None = None
        """The ticket that its client has for the token, if any."""
        self.name, self.token, self.key_count, self.words = verb, b"", 0, words[1:]
        if self.is_script:
            self.name, self.key_count, self.words = SCRIPT_NAMES[words[1]], int(words[2]), words[3:]
            self.token = self.words[self.key_count]
            """The first argument, which is the token of most scripts."""
        self.tokens = _tokens_of_batch(self.token, SPARE[self.name]) if self.name in SPARE else (self.token,)


def _tokens_of_batch(names: bytes, spare: int) -> tuple[bytes, ...]:
    """Return the tokens of a batch, each of which has so many bytes behind it."""
    tokens = []
    while names:
        size = 1 + names[0]
        tokens.append(names[1:size])
        names = names[size + spare :]
    return tuple(tokens)


class Network:
    """The server, and the connections to it. ``tempo`` is the approximate travel time of a message in seconds."""

    def __init__(self, world: World, server: SimulatedServer, tempo: float) -> None:
        self.world = world
        self.server = server
        self._chance = world.chance
        self.tempo = tempo
        self.links: list[Link] = []
        self.primary = 0
        """The number of the server that is the primary."""
        self.subscribers: dict[bytes, list[Link]] = {}
        """The connections to all servers, by channel."""
        self.known: set[bytes] = set()
        """The names of the loaded scripts."""
        self.refusal: ErrorReply | None = None
        """The error reply to every script, if any."""
        self.jump_us = 0
        self.out_of_memory = False
        self.stalled = False
        self.is_down = False
        self.pushes_first = world.chance() < 0.5
        """Whether a message that a script publishes to its own connection precedes the script's reply."""
        self.splitting = 0.3 if world.chance() < 0.1 else 0.0
        """The share of data that arrives in two pieces."""
        self.losing_pushes = 0.0
        self.calls = 0
        self._count = 0
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._listen = server.model[b"listen"]
        self.on_send: Callable[[Command], None] = lambda _: None
        """Called before a command is sent: faults occur here."""
        self.on_executed: Callable[[Command, Any, int], None] = lambda _, __, ___: None
        """Called after a script has run, with the server's time, before its reply is sent."""
        self.on_delivered: Callable[[Command, Any], None] = lambda _, __: None
        """Called when the reply of a script reaches its client."""

    def now_us(self) -> int:
        """Return the time of the server's clock in microseconds."""
        return START_US + int(self.world.now * 1e6) + self.jump_us

    def moment(self, server_us: float) -> float:
        """Return the virtual time at which the server's clock shows this time, if it does not jump."""
        return (server_us - START_US - self.jump_us) / 1e6

    def travel(self) -> float:
        """Return the travel time of a message; one in thirty takes up to 18 times as long."""
        chance = self._chance()
        return self.tempo * (0.5 + chance if chance < 0.97 else (chance - 0.97) * 600)

    # --- the client's end

    def open(self, process: Process, end: LinkEnd) -> Link:
        """Begin to connect; call the end after success or failure."""
        self._count += 1
        link = Link(self._count, process, end)
        self.links.append(link)
        link.to_server = max(self.world.now, process.blocked_until) + 2 * self.travel()
        self.world.at(link.to_server, self._accept, link)
        return link

    def write(self, link: Link, data: bytes) -> None:
        """Send some commands."""
        link.reader.feed(data)
        while (words := link.reader.frame()) is not INCOMPLETE:
            command = Command(link, words)
            self.on_send(command)
            if not link.mute:
                link.to_server = max(link.to_server, max(self.world.now, link.process.blocked_until) + self.travel())
                self.world.at(link.to_server, self._execute, command)

    def send_late(self, command: Command, moment: float) -> None:
        """Execute a command at this time, even if its connection has closed."""
        command.late = True
        self.world.at(moment, self._execute, command)

    def close(self, link: Link) -> None:
        """Close the client's end. The server notices after the data sent before; or, if that gets lost, much later."""
        link.here = False
        if link.process.alive and (link.there or not link.mute):
            wait = self.world.between(5, 90) if link.mute else self.travel()
            self.world.at(max(link.to_server, self.world.now + wait), self.drop, link)

    def arrived(self, link: Link) -> bytes:
        """Return all data that has arrived for the client and was not returned before."""
        inbound, now = link.inbound, self.world.now
        pieces = []
        while inbound and inbound[0][0] <= now:
            _, data, on_arrival = inbound.pop(0)
            if link.here and not link.deaf:
                pieces.append(data)
                if on_arrival is not None:
                    on_arrival()
        return b"".join(pieces)

    # --- what may happen to connections

    def cut(self, link: Link, *, notice: float | None = None) -> None:
        """Cut the connection; the server notices after ``notice`` seconds."""
        link.swallows = self.world.chance() < 0.5
        self.world.at(self.world.now + self.travel(), self._break, link)
        self.world.at(self.world.now + (self.travel() if notice is None else notice), self.drop, link)

    def _break(self, link: Link) -> None:
        if link.here:
            link.mute = True
            link.process.deliver(link.end.broken)

    def drop(self, link: Link) -> None:
        """Close the server's end."""
        link.there = False
        for channel in link.channels:
            self.subscribers[channel].remove(link)
            self._count_subscribers(channel)
        link.channels.clear()

    def is_demoted(self, link: Link) -> bool:
        """Return whether an open connection leads to a server that was the primary."""
        return link.there and link.server != self.primary

    def promote(self) -> None:
        """Make a replica the primary, which knows no scripts, and the primary its replica. All connections stay open."""
        self.primary += 1
        self.known.clear()
        for channel in self.subscribers:
            self._count_subscribers(channel)

    def _subscribers_at(self, server: int, channel: bytes) -> int:
        return sum(link.server == server for link in self.subscribers.get(channel, ()))

    def _count_subscribers(self, channel: bytes) -> None:
        self._listen(channel, self._subscribers_at(self.primary, channel))

    # --- the server's end

    def set_memory(self, *, out: bool) -> None:
        """Set whether the server is out of memory."""
        self.out_of_memory = out
        self.server.model[b"set_memory"](out)

    def stall(self) -> None:
        """Suspend the server, as SIGSTOP does."""
        self.stalled = True

    def resume(self) -> None:
        """Resume the server."""
        self.stalled = False
        backlog, self._backlog = self._backlog, []
        for action, args in backlog:
            action(*args)

    def go_down(self) -> None:
        """Stop the server, and with it all connections and scripts, but keep its data."""
        self.is_down = True
        self.known.clear()
        self._backlog.clear()
        for link in self.links:
            link.swallows = True
            self.drop(link)
            self.world.at(self.world.now + self.travel(), self._break, link)

    def come_up(self) -> None:
        """Start the server again."""
        self.is_down = False

    def _accept(self, link: Link) -> None:
        if self.stalled:
            self._backlog.append((self._accept, (link,)))
        elif link.mute or not link.here:
            pass
        elif self.is_down:
            self.world.at(self.world.now + self.travel(), self._refuse, link, None)
        elif self.refusal is not None and self.refusal.startswith(("LOADING", "BUSY")):
            self.world.at(self.world.now + self.travel(), self._refuse, link, self.refusal)
        else:
            link.there, link.server = True, self.primary
            self._travel_back(link, b"")

    def _refuse(self, link: Link, reply: str | None) -> None:
        if link.here:
            link.mute = True
            link.process.deliver(link.end.refused, reply)

    def _execute(self, command: Command) -> None:
        link = command.link
        if self.stalled:
            self._backlog.append((self._execute, (command,)))
        elif not self.is_down and (command.late or (link.there and not link.swallows)):
            if command.is_script:
                self._run(command)
            elif link.there:
                self._reply(link, self._plain(command))

    def _plain(self, command: Command) -> bytes:
        """Execute a command other than a script, and return the bytes of its reply."""
        link = command.link
        if command.name == b"SUBSCRIBE":
            for channel in command.words:
                link.channels.append(channel)
                self.subscribers.setdefault(channel, []).append(link)
                self._count_subscribers(channel)
            return b"".join(_push([b"subscribe", word, number]) for number, word in enumerate(command.words, 1))
        if command.name == b"PUBSUB":
            _, channel = command.words
            refused = self.refusal is not None and self.refusal.startswith("BUSY")
            return encode(self.refusal if refused else [channel, self._subscribers_at(link.server, channel)])
        return encode(ErrorReply(f"ERR unknown command '{command.name.decode()}'"))

    def _run(self, command: Command) -> None:
        link, world, now_us = command.link, self.world, self.now_us()
        messages: Any = ()
        if self.is_demoted(link):
            frame: Any = NO_PRIMARY
        elif self.refusal is not None:
            frame = self.refusal
        elif not command.source and command.name not in self.known:
            frame = NOT_KNOWN
        else:
            self.known.add(command.name)
            self.calls += 1
            frame, messages = self.server.run(command.name, now_us, command.key_count, command.words)
        if world.log is not None:
            self._say(command, frame, messages)
        if messages and self.pushes_first:
            self._publish(messages)
        if link.there and not command.lost_reply and not command.late:
            self._reply(link, encode(frame), partial(self.on_delivered, command, frame))
        if messages and not self.pushes_first:
            self._publish(messages)
        self.on_executed(command, frame, now_us)

    def _publish(self, messages: Any) -> None:
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            for link in self.subscribers.get(channel, ()):
                if self.losing_pushes and self.world.chance() < self.losing_pushes:
                    self.world.say("net", f"a message to connection {link.number} is lost")
                else:
                    self._reply(link, _push([b"message", channel, payload]))

    def _reply(self, link: Link, data: bytes, on_arrival: Callable[[], None] | None = None) -> None:
        if self.splitting and self._chance() < self.splitting:
            middle = int(self._chance() * len(data))
            self._travel_back(link, data[:middle])
            data = data[middle:]
        self._travel_back(link, data, on_arrival)

    def _travel_back(self, link: Link, data: bytes, on_arrival: Callable[[], None] | None = None) -> None:
        """Send bytes to the client; no bytes mark the end of the handshake."""
        link.to_client = max(link.to_client, max(self.world.now, link.process.blocked_until) + self.travel())
        if data:
            link.inbound.append((link.to_client, data, on_arrival))
            self.world.at(link.to_client, link.process.deliver, self._receive, link)
        else:
            self.world.at(link.to_client, link.process.deliver, self._open, link)

    def _open(self, link: Link) -> None:
        if link.here and not link.deaf:
            link.end.opened()

    def _receive(self, link: Link) -> None:
        if link.inbound and link.here and not link.deaf:
            link.end.received()

    def _say(self, command: Command, frame: Any, messages: Any) -> None:
        keys, args = command.words[: command.key_count], command.words[command.key_count :]
        names = " ".join(sorted({key.rsplit(b":", 1)[0].decode() for key in keys}))
        shown = frame if isinstance(frame, ErrorReply) else " ".join(map(_text, read_reply(frame)))
        said = " ".join(map(_text, args))
        late = " LATE" if command.late else ""
        link = command.link
        self.world.say(
            "server", f"{link.process.name}/{link.number}{late} {command.name.decode()} {names} {said} -> {shown}"
        )
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            self.world.say(
                "server",
                f"    to {channel.decode()} ({self._subscribers_at(self.primary, channel)}): {_text(payload)}",
            )


def encode(value: Any) -> bytes:
    """Return the bytes of a reply."""
    if type(value) is bytes:
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if type(value) is int:
        return b":%d\r\n" % value
    if isinstance(value, ErrorReply):
        return b"-%b\r\n" % value.encode()
    if value is None:
        return b"_\r\n"
    return b"*%d\r\n%b" % (len(value), b"".join(map(encode, value)))


def _push(items: list[Any]) -> bytes:
    return b">" + encode(items)[1:]


def _text(item: Any) -> str:
    """Return an argument, a message or a part of a reply for the log, with its doubles written out."""
    if not isinstance(item, bytes):
        return str(item)
    length = len(item) - 24 if item.startswith(b"granted ") else 0
    if item.isascii() and item.decode().isprintable():
        return item.decode()
    end = 32 if b":inbox:" in item else len(item)  # text follows the numbers of what an acquire wants
    if (end - length) % 8:
        return item.decode("latin-1")
    numbers = unpack(f"<{(end - length) // 8}d", item[length:end])
    return item[:length].decode() + " ".join([*(f"{number:.0f}" for number in numbers), item[end:].decode()]).rstrip()
