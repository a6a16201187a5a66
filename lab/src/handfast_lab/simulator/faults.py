"""The faults, and the checks that hold under each of them.

A fault occurs when a command is sent. It concerns that command, its connection, its process or the server, and takes
effect at once, around the command, or a little later, so that it also affects clients that wait or hold. Each seed has
some kinds of faults, or none. Faults end after a while, because some checks concern the final state.

    check                                               holds under
    the state after each script (invariants.lua)        all; after lost data the check starts again
    fences grow strictly                                all but lost data after the clock was set back
    a token stays ended after its release               all but lost data, which includes tombstones
    nothing is sent for a token after its release       all
    no lease lasts longer for its client than on the    all but `jump` forwards, which ends leases early
    server (8)
    clients rely on no more permits than the limit      all but `jump` forwards, lost data and revokes
    the history as a whole (checker)                    the same; fences under all but lost data after the
                                                        clock was set back
    a holder that blocks its event loop keeps its      no fault so far, no revoke
    lease for its ttl
    a holder learns that an operator took its lease     all but lost data; without renewal, all but lost messages
    every operation ends                                all; a `jump` back adds its length
    no holder or waiter remains at the end              all; data that its owner could not undo within 20 s, or that
                                                        a stale replica or an eviction leaves, expires
    what a period of a limiter admits                   all but lost data, which begins a window anew, and `jump`
                                                        forwards, which ends it early
    a limiter admits once for a token, and nothing for  the same
    one that has ended without an admission
    waiters of a limiter are admitted in their order,   all
    and the first one at once when it fits
    the record of a key of `once`, and what callers     all; after lost data it is what is there. After the clock was set
    are answered of it (24 to 29)                       back, what seems too young to be made anew may be
    the results that callers of `once` get (29)         all
    a lease with ``min_replicas`` that is relied on is  all but `flush`, `restart`, `evict`, `jump` forwards and
    on each new primary, and within the limit there     revokes

Data is lost by `flush`, `restart`, `failover`, `new primary` and `evict`. A script that is cut off leaves what it
wrote: from then on the counts of its names need not be exact, and a waiter may have lost its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.cluster import PRIMARIES, Cluster
from handfast_lab.simulator.links import Command, Link
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.orders import Plan
from handfast_lab.simulator.replication import Replication
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import Process

__all__ = ["KINDS", "SETTINGS", "Faults"]

LATEST = 15.0
"""Longest delay of a duplicate in seconds: less than the 20 s for which the server keeps tombstones."""

REFUSALS = tuple(
    map(
        ErrorReply,
        (
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "TRYAGAIN Multiple keys command during rehashing of slot",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ),
    )
)
NO_WRITES = (
    b"READONLY You can't write against a read only replica.",
    b"NOREPLICAS Not enough good replicas to write.",
    b"MISCONF Errors writing to the AOF file: No space left on device",
)


class Faults:
    """Causes the faults of one simulation, as its plan says.

    ``kill`` ends a client; its second argument says whether its connections are closed at once.
    """

    def __init__(
        self,
        plan: Plan,
        network: Network,
        watch: Watch,
        clients: list[Client],
        kill: Callable[[Client, bool], None],
    ) -> None:
        self._network = network
        self._world = network.world
        self._watch = watch
        self._damage = watch.damage
        self._clients = clients
        self._tags, self._parts = plan.tags, plan.parts
        self._kill = kill
        self._setting = plan.setting
        self._kinds = plan.faults
        self._rate = plan.rate
        self._left = plan.most_faults
        self._saved: object | None = None
        if "failover" in self._kinds:
            self._save()

    def end(self) -> None:
        """End all faults."""
        self._left = 0
        network = self._network
        network.set_memory(out=False)
        network.server.model[b"set_refusal"](False)
        network.refusal = None
        network.losing_pushes = network.cutting = 0.0
        network.end_old()
        if network.replication is not None:
            network.replication.lag = 0.0
        if network.cluster is not None:
            network.cluster.settle()
        if network.is_down:
            network.come_up()
        if network.stalled:
            network.resume()
        for link in network.links:
            if network.is_demoted(link):
                network.cut(link)
        for client in self._clients:
            client.process.thaw()
        self._damage.is_over = True
        self._note_time(self._world.now)

    def strike(self, command: Command) -> None:
        """Cause a fault at this command, or not."""
        chance = self._world.chance
        if self._left <= 0 or chance() >= self._rate:
            return
        self._left -= 1
        kind = self._kinds[int(chance() * len(self._kinds))]
        self._damage.counts[kind] = self._damage.counts.get(kind, 0) + 1
        self._note_time(self._world.now)
        if self._world.log is not None:
            self._world.say(
                "FAULT", f"{kind} at {command.name.decode()} of {command.link.process.name}/{command.link.number}"
            )
        SETTINGS[self._setting][kind](self, command)

    # --- the call

    def lose_request(self, command: Command) -> None:
        """The command never arrives. The connection breaks, or the client notices nothing."""
        command.link.mute = True
        self._perhaps_cut(command.link)

    def lose_reply(self, command: Command) -> None:
        """The command is executed, and its reply is lost with the connection."""
        command.lost_reply = True
        command.link.deaf = True
        self._world.at(self._world.now + self._network.tempo * 4, self._perhaps_cut, command.link)

    def duplicate(self, command: Command) -> None:
        """The client gives up on the command, and the server executes it later."""
        late = LATEST * self._world.chance() ** 3
        command.link.mute = True
        self._network.send_late(command, self._world.now + self._network.travel() + late)
        self._perhaps_cut(command.link)

    def delay(self, command: Command) -> None:
        """The command is delayed, and with it those behind it."""
        link = command.link
        link.to_server = max(link.to_server, self._world.now + 8 * self._world.chance() ** 3)
        self._note_time(link.to_server)

    def forget_scripts(self, command: Command) -> None:
        """SCRIPT FLUSH."""
        del command
        self._network.known.clear()

    # --- the connection

    def cut(self, command: Command) -> None:
        """The connection breaks now, with the command on the way."""
        self._network.cut(command.link, notice=self._notice())

    def cut_later(self, command: Command) -> None:
        """The connection breaks later, for example while its client waits."""
        self._later(4, self._cut_if_there, command.link)

    def cut_all(self, command: Command) -> None:
        """All connections of the client break."""
        for link in self._network.links:
            if link.process is command.link.process and link.here:
                self._network.cut(link, notice=self._notice())

    def partition(self, command: Command) -> None:
        """No data passes to or from the client for a while. It arrives afterwards."""
        until = self._lasting(10)
        command.link.process.blocked_until = max(command.link.process.blocked_until, until)

    def lose_pushes(self, command: Command) -> None:
        """Messages to inboxes are lost for a while."""
        del command
        self._network.losing_pushes = 0.3 + 0.7 * self._world.chance()
        self._world.at(self._lasting(20), self._set, "losing_pushes", 0.0)

    # --- the process

    def die(self, command: Command) -> None:
        """The process is killed, or its machine fails."""
        self._later(3, self._kill, self._client_of(command.link), self._world.chance() < 0.7)

    def freeze(self, command: Command) -> None:
        """The process is suspended for a while, as by SIGSTOP."""
        self._later(2, self._freeze, command.link.process)

    def go_away(self, command: Command) -> None:
        """The machine of the process is suspended for a minute or so, and the server closes its connections meanwhile."""
        self._later(2, self._go_away, command.link.process)

    # --- the server

    def stall(self, command: Command) -> None:
        """The server is suspended for a while."""
        del command
        if not self._network.stalled:
            self._network.stall()
            self._world.at(self._lasting(8), self._network.resume)

    def out_of_memory(self, command: Command) -> None:
        """The server is out of memory."""
        del command
        self._network.set_memory(out=True)
        self._world.at(self._lasting(6), self._remember)

    def refuse(self, command: Command) -> None:
        """The server refuses scripts for a while."""
        del command
        self._network.refusal = REFUSALS[self._world.below(len(REFUSALS))]
        self._world.at(self._lasting(3), self._set, "refusal", None)

    def cut_off(self, command: Command) -> None:
        """Scripts are cut off at any of their calls for a while, as in a slot that moves.

        What they wrote before stays.
        """
        del command
        self._network.cutting = 0.3 + 0.7 * self._world.chance()
        self._world.at(self._lasting(3), self._set, "cutting", 0.0)

    def refuse_writes(self, command: Command) -> None:
        """The server refuses writes for a while."""
        del command
        words = NO_WRITES[self._world.below(len(NO_WRITES))]
        self._network.server.model[b"set_refusal"](words)
        self._world.at(self._lasting(3), self._network.server.model[b"set_refusal"], False)

    def restart_with_data(self, command: Command) -> None:
        """The server restarts with its data, but without scripts."""
        del command
        self._go_down()

    def restart(self, command: Command) -> None:
        """The server restarts without data."""
        del command
        self._around(self._restart)

    def flush(self, command: Command) -> None:
        """FLUSHALL."""
        del command
        self._around(self._flush)

    def failover(self, command: Command) -> None:
        """A replica, which lacks the latest writes, becomes the primary. Some connections still lead to the old one."""
        del command
        self._around(self._fail_over)

    def lag(self, command: Command) -> None:
        """The replicas lag behind for a while."""
        del command
        replication = self._replication()
        replication.lag = 4 * self._world.chance() ** 2
        self._world.at(self._lasting(10), setattr, replication, "lag", 0.0)

    def replace_primary(self, command: Command) -> None:
        """The replica that has most becomes the primary.

        The old one goes on for a while, or is gone, or becomes a replica.
        """
        del command
        self._around(self._replace_primary)

    def move_slot(self, command: Command) -> None:
        """A slot of the cluster moves to the other primary, key by key."""
        del command
        cluster = self._cluster()
        until = self._lasting(3)
        self._around(partial(cluster.move, cluster.slot(), until - self._world.now))

    def move_slot_at_once(self, command: Command) -> None:
        """A slot of the cluster moves to the other primary in one step."""
        del command
        cluster = self._cluster()
        self._around(partial(cluster.move, cluster.slot(), 0.0))

    def replace_node(self, command: Command) -> None:
        """A replica with all data takes over from a primary of the cluster."""
        del command
        is_gone = self._world.chance() < 0.4
        self._around(partial(self._cluster().replace, self._world.below(PRIMARIES), is_gone=is_gone))

    def promote(self, command: Command) -> None:
        """A replica with all data becomes the primary. All connections still lead to the old one."""
        del command
        self._around(self._network.promote)

    def evict(self, command: Command) -> None:
        """The server evicts a key."""
        del command
        self._around(self._evict)

    def jump(self, command: Command) -> None:
        """The server's clock is set."""
        del command
        self._around(self._jump)

    # --- how

    def _note_time(self, moment: float) -> None:
        self._damage.last = max(self._damage.last, moment)

    def _client_of(self, link: Link) -> Client:
        return next(client for client in self._clients if client.process is link.process)

    def _later(self, within: float, action: Callable[..., object], *args: object) -> None:
        moment = self._world.now + within * self._world.chance() ** 3
        self._world.at(moment, self._if_not_ended, action, *args)

    def _around(self, action: Callable[[], None]) -> None:
        """Return a time before the call arrives, between it and its reply, or later."""
        chance = self._world.chance()
        if chance < 0.3:
            action()
        elif chance < 0.6:
            self._world.at(self._world.now + 2 * self._network.tempo, self._if_not_ended, action)
        else:
            self._later(5, action)

    def _if_not_ended(self, action: Callable[..., object], *args: object) -> None:
        if not self._damage.is_over:
            self._note_time(self._world.now)
            action(*args)

    def _lasting(self, most: float) -> float:
        """Return a random end within this many seconds."""
        until = self._world.now + most * self._world.chance() ** 2
        self._note_time(until)
        return until

    def _notice(self) -> float | None:
        """Return after how many seconds the server notices a lost connection; None for at once."""
        return None if self._world.chance() < 0.7 else 60 * self._world.chance() ** 2

    def _perhaps_cut(self, link: Link) -> None:
        if self._world.chance() < 0.7:
            self._network.cut(link, notice=self._notice())

    def _cut_if_there(self, link: Link) -> None:
        if link.here:
            self._network.cut(link, notice=self._notice())

    def _set(self, what: str, value: object) -> None:
        setattr(self._network, what, value)

    def _remember(self) -> None:
        self._network.set_memory(out=False)

    def _freeze(self, process: Process) -> None:
        process.freeze()
        self._world.at(self._lasting(40), process.thaw)

    def _go_away(self, process: Process) -> None:
        process.freeze()
        for link in self._network.links:
            if link.process is process and link.here:
                self._network.cut(link, notice=self._notice())
        self._world.at(self._lasting(100), process.thaw)

    def _go_down(self) -> None:
        self._network.go_down()
        self._world.at(self._lasting(3), self._network.come_up)

    def _restart(self) -> None:
        self._go_down()
        self._flush()

    def _flush(self) -> None:
        self._network.server.model[b"flush"]()
        self._lost(None, torn=False)

    def _save(self) -> None:
        self._saved = self._network.server.model[b"snapshot"]()
        if not self._damage.is_over:
            self._world.at(self._world.now + 6 * self._world.chance() ** 2 + 0.001, self._save)

    def _fail_over(self) -> None:
        if self._world.chance() < 0.5:
            for link in self._network.links:
                self._network.drop(link)
                self._network.cut(link)
        self._network.promote()
        self._network.server.model[b"restore"](self._saved)
        self._lost(None, torn=False)

    def _cluster(self) -> Cluster:
        assert self._network.cluster is not None  # noqa: S101 -- its setting is one
        return self._network.cluster

    def _replication(self) -> Replication:
        assert self._network.replication is not None  # noqa: S101 -- its setting has replicas
        return self._network.replication

    def _replace_primary(self) -> None:
        replication, network, chance = self._replication(), self._network, self._world.chance
        goes_on = chance() < 0.6
        if not replication.promote(goes_on=goes_on):
            return
        if network.stalled:
            network.resume()
        network.come_up()
        if not goes_on and chance() < 0.5:
            for link in network.links:
                network.drop(link)
                network.cut(link)
        until = self._lasting(10)
        self._world.at(until, network.end_old)
        self._world.at(until + network.travel(), replication.rejoin)
        self._lost(None, torn=False, acknowledged=False)
        self._watch.check_acknowledged()

    def _evict(self) -> None:
        tag = self._tags[self._world.below(len(self._tags))]
        part = self._parts[self._world.below(len(self._parts))]
        self._network.server.model[b"evict"](f"{tag}:{part}".encode())
        self._lost(tag, torn=True)

    def _jump(self) -> None:
        seconds = 0.001 * 60_000 ** self._world.chance()
        back = self._world.chance() < 0.5
        if not back and self._world.chance() < 0.5:
            seconds = self._world.between(60, 120)  # longer than a wait-lease
        self._network.jump_us += int(seconds * (-1e6 if back else 1e6))
        if back:
            self._damage.stepped_back = True
            if self._damage.lost_data:
                self._watch.forget_fences()
        else:
            self._damage.jumped_forward = True
            self._watch.forget_finished()
        self._damage.grace += seconds if back else 0.0
        if self._world.log is not None:
            self._world.say("FAULT", f"the server's clock jumps by {-seconds if back else seconds:.6f} s")

    def _lost(self, tag: str | None, *, torn: bool, acknowledged: bool = True) -> None:
        self._damage.lost_data = True
        self._damage.lost_acknowledged = self._damage.lost_acknowledged or acknowledged
        if self._network.replication is not None:
            self._network.replication.wrote(None)
        self._watch.forget(tag, torn=torn)
        if self._world.log is not None:
            self._world.say("FAULT", f"data of {tag or 'all names'} is lost")


KINDS: dict[str, Callable[[Faults, Command], None]] = {
    "lost request": Faults.lose_request,
    "lost reply": Faults.lose_reply,
    "duplicate": Faults.duplicate,
    "delay": Faults.delay,
    "scripts forgotten": Faults.forget_scripts,
    "cut": Faults.cut,
    "cut later": Faults.cut_later,
    "all cut": Faults.cut_all,
    "partition": Faults.partition,
    "lost messages": Faults.lose_pushes,
    "death": Faults.die,
    "freeze": Faults.freeze,
    "away": Faults.go_away,
    "stall": Faults.stall,
    "out of memory": Faults.out_of_memory,
    "refusal": Faults.refuse,
    "no writes": Faults.refuse_writes,
    "restart with data": Faults.restart_with_data,
    "restart": Faults.restart,
    "flush": Faults.flush,
    "failover": Faults.failover,
    "planned failover": Faults.promote,
    "evict": Faults.evict,
    "jump": Faults.jump,
}
"""Each fault of a single server, by its name in plans and reports."""

SETTINGS: dict[str, dict[str, Callable[[Faults, Command], None]]] = {
    "server": KINDS,
    "cut off": KINDS | {"cut off": Faults.cut_off},
    "replicas": {kind: cause for kind, cause in KINDS.items() if kind != "failover"}
    | {"lag": Faults.lag, "new primary": Faults.replace_primary},
    "cluster": {kind: cause for kind, cause in KINDS.items() if kind not in ("failover", "planned failover")}
    | {
        "cut off": Faults.cut_off,
        "slot moves": Faults.move_slot,
        "slot moves at once": Faults.move_slot_at_once,
        "new node": Faults.replace_node,
    },
}
"""What there is of servers in a plan, and which faults befall that."""
