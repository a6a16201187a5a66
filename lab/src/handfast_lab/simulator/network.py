"""Connections between processes and the server in virtual time, and the state of the server.

What travels on a connection are the bytes of RESP3: the commands that the client's driver wrote, and the replies and
pushes that its reader takes apart. They stay in order, each way; what is sent on different connections does not. A
connection may be cut at one end before the other one notices, swallow what is sent, or never answer; a command that was
sent before the cut may be executed later, alone, when its sender has long given it up.

There are a primary and its replicas. A replica may become the primary, and connections outlive that: one that leads to
the old primary is refused scripts, and receives what the new one publishes, but is not counted there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from struct import unpack
from typing import Any

from handfast._engine.packing import read_reply
from handfast._engine.resp import INCOMPLETE, ErrorReply
from handfast._engine.slots import slot_of_key
from handfast_lab.simulator.cluster import Cluster
from handfast_lab.simulator.links import Command, Link, LinkEnd
from handfast_lab.simulator.replication import Replication
from handfast_lab.simulator.server import MAIN, OLD, SCRIPT_NAMES, SimulatedServer
from handfast_lab.simulator.world import Process, World

__all__ = ["Network", "encode", "is_torn"]

START_US = 1_790_000_000_000_000
"""The time of the server's clock at the start."""

NOT_KNOWN = ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
NO_PRIMARY = ErrorReply("READONLY You can't write against a read only replica.")

_TORN = "attempted to access a non local key in a cluster node"

LONGEST_PREFIX = 20
"""A script that is cut off has made fewer calls of the server than this. Most make fewer in any case."""


def is_torn(frame: Any) -> bool:
    """Return whether this is the error reply of a script that was cut off."""
    return isinstance(frame, ErrorReply) and _TORN in frame


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
        self.old = -1
        """The number of a server that was the primary and goes on, as far as its connections are concerned; -1 for
        none."""
        self.cluster: Cluster | None = None
        """The nodes, if there is more than one primary."""
        self.replication: Replication | None = None
        """The replicas, where there are some that matter."""
        self.subscribers: dict[bytes, list[Link]] = {}
        """The connections to all servers, by channel."""
        self.known: set[tuple[int, bytes]] = set()
        """The nodes of the cluster, or 0, and the names of the scripts that each has loaded."""
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
        self.cutting = 0.0
        """The share of scripts that are cut off at one of their first calls of the server."""
        self.calls = 0
        self._count = 0
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._listen = server.model[b"listen"]
        self._cut_off = server.model[b"cut_off"]
        self.on_send: Callable[[Command], None] = lambda _: None
        """Called before a command is sent: faults occur here."""
        self.on_executed: Callable[[Command, Any, int], None] = lambda _, __, ___: None
        """Called after a script has run, with the server's time, before its reply is sent."""
        self.on_strayed: Callable[[Command, Sequence[bytes]], None] = lambda _, __: None
        """Called with what it published after a script has run at a server that was the primary, in place of that."""
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

    def open(self, process: Process, end: LinkEnd, node: int = 0) -> Link:
        """Begin to connect; call the end after success or failure."""
        self._count += 1
        link = Link(self._count, process, end, node)
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
        if self.replication is not None:
            self.replication.forget(link)
        for channel in link.channels:
            self.subscribers[channel].remove(link)
            self._count_subscribers(channel)
        link.channels.clear()

    def is_demoted(self, link: Link) -> bool:
        """Return whether an open connection leads to a server that was the primary."""
        return self.cluster is None and link.there and link.server not in (self.primary, self.old)

    def load_scripts(self) -> None:
        """Have all servers know all scripts."""
        self.known.update((node, name) for node in self._nodes() for name in SCRIPT_NAMES.values())

    def _nodes(self) -> range:
        return range(1) if self.cluster is None else self.cluster.nodes

    def promote(self, *, goes_on: bool = False) -> None:
        """Make a replica the primary, which knows no scripts.

        The primary becomes its replica, or goes on. All connections stay open.
        """
        self.old = self.primary if goes_on else self.old
        self.primary += 1
        self.known.clear()
        for channel in self.subscribers:
            self._count_subscribers(channel)
        if self.replication is not None:
            self.replication.break_waits()

    def end_old(self) -> None:
        """Let the server that was the primary learn that there is another one: it cuts all its connections."""
        if self.old >= 0:
            for link in [link for link in self.links if link.there and link.server == self.old]:
                self.cut(link)
                self.drop(link)
            self.old = -1

    def _subscribers_at(self, server: int, channel: bytes) -> int:
        return sum(link.server == server for link in self.subscribers.get(channel, ()))

    def _count_subscribers(self, channel: bytes) -> None:
        if self.cluster is not None:
            for node in self.cluster.nodes:
                self._listen(channel, self._subscribers_at(node, channel), node)
            return
        self._listen(channel, self._subscribers_at(self.primary, channel), MAIN)
        if self.old >= 0:
            self._listen(channel, self._subscribers_at(self.old, channel), OLD)

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
        elif self.is_down or (self.cluster is not None and link.node in self.cluster.gone):
            self.world.at(self.world.now + self.travel(), self._refuse, link, None)
        elif self.refusal is not None and self.refusal.startswith(("LOADING", "BUSY")):
            self.world.at(self.world.now + self.travel(), self._refuse, link, self.refusal)
        else:
            link.there, link.server = True, self.primary if self.cluster is None else link.node
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
            if link.held_back is not None:
                link.held_back.append(command)
            elif command.is_script or command.is_plain:
                self._run(command)
            elif link.there and not command.late and (reply := self._plain(command)):
                self._reply(link, reply)

    def _plain(self, command: Command) -> bytes:
        """Execute a command other than a script, and return the bytes of its reply."""
        link = command.link
        if command.name == b"SUBSCRIBE":
            return b"".join(self._subscribe(link, b"subscribe", channel) for channel in command.words)
        if command.name == b"PUBSUB":
            _, channel = command.words
            refused = self.refusal is not None and self.refusal.startswith("BUSY")
            return encode(self.refusal if refused else [channel, self._subscribers_at(link.server, channel)])
        if self.cluster is not None and command.name in (b"ASKING", b"CLUSTER", b"SSUBSCRIBE"):
            return self._of_cluster(command, self.cluster)
        if self.replication is not None and command.name in (b"PUBLISH", b"WAIT"):
            return self._replicated(command, self.replication)
        if command.name == b"PUBLISH":
            self._publish(command.words, is_old=link.server == self.old)
            return encode(1)
        return encode(ErrorReply(f"ERR unknown command '{command.name.decode()}'"))

    def _subscribe(self, link: Link, verb: bytes, channel: bytes) -> bytes:
        link.channels.append(channel)
        self.subscribers.setdefault(channel, []).append(link)
        self._count_subscribers(channel)
        return _push([verb, channel, len(link.channels)])

    def _of_cluster(self, command: Command, cluster: Cluster) -> bytes:
        """Execute a command that only nodes of a cluster are sent."""
        link = command.link
        link.asking = command.name == b"ASKING"
        if command.name == b"SSUBSCRIBE":
            redirection = cluster.elsewhere(link.server, command.words[0])
            return (
                self._subscribe(link, b"ssubscribe", command.words[0]) if redirection is None else encode(redirection)
            )
        return encode(b"OK" if link.asking else cluster.shares(link.server))

    def _replicated(self, command: Command, replication: Replication) -> bytes:
        """Execute one of the two commands that ask for replicas. Nothing is replied yet by one that waits."""
        link, reply = command.link, b""
        if self.refusal is not None and self.refusal.startswith(("LOADING", "BUSY")):
            reply = encode(self.refusal)
        elif command.name == b"PUBLISH":
            replication.wrote(link)
            self._publish(command.words, is_old=link.server == self.old)
            reply = encode(0)
        elif self.is_demoted(link):
            reply = encode(ErrorReply("ERR WAIT cannot be used with replica instances."))
        elif (count := replication.wait(link, *map(int, command.words))) is not None:
            reply = encode(count)
        return reply

    def end_shards(self, node: int, slot: int) -> None:
        """End the subscriptions at a node to the channels of a slot, and say so."""
        for link in self.links:
            if link.there and link.server == node:
                for channel in [one for one in link.channels if _is_sharded(one) and slot_of_key(one) == slot]:
                    link.channels.remove(channel)
                    self.subscribers[channel].remove(link)
                    self._count_subscribers(channel)
                    self._reply(link, _push([b"sunsubscribe", channel, 0]))

    def end_wait(self, link: Link, count: int) -> None:
        """Reply to a command that waited for replicas, and execute those behind it."""
        if self.stalled:
            self._backlog.append((self.end_wait, (link, count)))
            return
        held_back, link.held_back = link.held_back or [], None
        if link.there:
            self._reply(link, encode(count))
        for command in held_back:
            self._execute(command)

    def _run(self, command: Command) -> None:
        link, world, now_us = command.link, self.world, self.now_us()
        messages: Any = ()
        is_old = link.server == self.old
        frame: Any = self._refused(command)
        if frame is None:
            frame, messages = self._execute_script(command, now_us)
        if world.log is not None:
            self._say(command, frame, messages)
        if messages and self.pushes_first:
            self._publish(messages, is_old=is_old, node=link.server)
        if link.there and not command.lost_reply and not command.late:
            self._reply(link, encode(frame), partial(self.on_delivered, command, frame))
        if messages and not self.pushes_first:
            self._publish(messages, is_old=is_old, node=link.server)
        if is_old:
            self.on_strayed(command, messages)
        else:
            self.on_executed(command, frame, now_us)

    def _refused(self, command: Command) -> ErrorReply | None:
        """Return the error reply to a script that is not run at all."""
        link = command.link
        asking, link.asking = link.asking, False
        if self.is_demoted(link):
            return NO_PRIMARY
        refusal = self.refusal
        if refusal is None and self.cluster is not None:
            refusal = self.cluster.redirect(command, asking=asking)
        is_known = command.source or command.is_plain or (link.node, command.name) in self.known
        if refusal is None and not is_known:
            refusal = NOT_KNOWN
        return refusal

    def _execute_script(self, command: Command, now_us: int) -> tuple[Any, Sequence[bytes]]:
        """Run a script on the data of the connection's server. Return its reply, and what it published."""
        link, use = command.link, self.server.model[b"use"]
        self.known.add((link.node, command.name))
        self.calls += 1
        if self.cutting and command.is_script and self._chance() < self.cutting:
            self._cut_off(self.world.below(LONGEST_PREFIX))
        if link.server == self.old:
            use(OLD)
        elif self.cluster is not None:
            use(link.server)
        ran = self.server.run(command.name, now_us, command.key_count, command.words)
        if link.server == self.old:
            use(MAIN)
        if self.replication is not None and self.server.model[b"wrote"]():
            self.replication.wrote(link)
        return ran

    def _publish(self, messages: Any, *, is_old: bool = False, node: int = 0) -> None:
        """Send messages to all subscribers, of replicas too; but neither to nor from a server that goes on beside the primary.

        In a cluster, what is published on a sharded channel stays with its node.
        """
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            is_sharded = _is_sharded(channel)
            for link in self.subscribers.get(channel, ()):
                if (link.server == self.old) != is_old or (is_sharded and link.server != node):
                    continue
                if self.losing_pushes and self.world.chance() < self.losing_pushes:
                    self.world.say("net", f"a message to connection {link.number} is lost")
                else:
                    self._reply(link, _push([b"smessage" if is_sharded else b"message", channel, payload]))

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
        shown = frame if isinstance(frame, ErrorReply) or command.is_plain else " ".join(map(_text, read_reply(frame)))
        said = " ".join(map(_text, args))
        late = " LATE" if command.late else ""
        link = command.link
        self.world.say(
            "server", f"{link.process.name}/{link.number}{late} {command.name.decode()} {names} {said} -> {shown}"
        )
        for channel, payload in zip(messages[::2], messages[1::2], strict=True):
            self.world.say(
                "server",
                f"    to {channel.decode()} ({self._subscribers_at(self.old if link.server == self.old else self.primary, channel)}): {_text(payload)}",
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


def _is_sharded(channel: bytes) -> bool:
    return b"{" in channel


def _push(items: list[Any]) -> bytes:
    return b">" + encode(items)[1:]


def _text(item: Any) -> str:
    """Return an argument, a message or a part of a reply for the log, with its doubles written out."""
    if not isinstance(item, bytes):
        return str(item)
    length = len(item) - 24 if item.startswith(b"granted ") else 0
    if item.isascii() and item.decode().isprintable():
        return item.decode()
    end = (
        item.find(b"hf:inbox:") if b":inbox:" in item else len(item)
    )  # text follows the numbers of what an acquire wants
    if end % 8 == 1:  # a limiter's, which has a byte behind the cost
        return f"{_text(item[:8])} {_text(item[9:end])} {item[end:].decode()}"
    if (end - length) % 8:
        return item.decode("latin-1")
    numbers = unpack(f"<{(end - length) // 8}d", item[length:end])
    return item[:length].decode() + " ".join([*(f"{number:.0f}" for number in numbers), item[end:].decode()]).rstrip()
