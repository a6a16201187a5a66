"""What may go wrong, and which checks hold under it.

A fault strikes when a script is sent. It is about that call, its connection, its process or the server, and it may take
effect at once, around the call, or a little later: so it meets clients that wait or hold, too. Each seed has some kinds of
them, or none, and they end after a while, since what must happen in the end must happen then.

    what is looked at                                  holds under
    the state after each script (invariants.lua)       all; what it knew is forgotten with the data that is lost
    fences grow strictly                               all, but for data that is lost where the clock had stepped back
    who is done with a token is done with it           all; after a loss of data tombstones are lost, too
    nothing is sent for a token after its release      all
    a client believes no longer than the server (8)    all but `jump` forwards, which ends leases early
    no two believe who may not both hold               all but `jump` forwards, lost data, and leases taken by force
    the history as a whole (checking/)                 the same; its fences under all but lost data where the clock had stepped back
    everybody comes to an end                          all; a `jump` back adds its length
    nothing is left in the end                         all; but what its owner could not take back within 20 s, and what a
                                                       stale replica brings back or an eviction leaves, runs out by itself

Lost data are `flush`, `restart`, `failover` and `evict`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from handfast._engine.calls import PARTS
from handfast._engine.resp import ErrorReply
from handfast_lab.simulator.network import Link, SentCall
from handfast_lab.simulator.world import Process

if TYPE_CHECKING:
    from handfast_lab.simulator.simulation import Simulation

__all__ = ["KINDS", "Faults"]

LATEST = 15.0
"""Seconds that a late duplicate comes late at most: within the 20 s for which the server remembers what is over."""

REFUSALS = tuple(
    map(
        ErrorReply,
        (
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
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
    """What goes wrong in one simulation. ``kinds`` are those that may, ``rate`` is how often one strikes."""

    def __init__(self, simulation: Simulation, kinds: tuple[str, ...], rate: float, most: int) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._network = simulation.network
        self._kinds = kinds
        self._rate = rate
        self._left = most
        self.counts: dict[str, int] = {}
        self.lost_data = self.jumped_forward = self.stepped_back = False
        self.last = 0.0
        """When the last fault came, or ended."""
        self._saved: object | None = None
        if "failover" in kinds:
            self._save()

    def end(self) -> None:
        """Nothing goes wrong from now on, and what lasts is over."""
        self._left = 0
        network = self._network
        network.set_memory(out=False)
        network.server.model[b"set_refusal"](False)
        network.refusal = None
        network.losing_pushes = 0.0
        if network.is_down:
            network.come_up()
        if network.stalled:
            network.resume()
        for link in network.links:
            if link.demoted:
                link.demoted = False
                network.cut(link)
        for client in self._simulation.clients:
            client.process.thaw()
        self.last = max(self.last, self._world.now)

    def strike(self, request: SentCall) -> None:
        """A script is sent. Maybe something goes wrong."""
        chance = self._world.chance
        if self._left <= 0 or chance() >= self._rate:
            return
        self._left -= 1
        kind = self._kinds[int(chance() * len(self._kinds))]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.last = max(self.last, self._world.now)
        if self._world.log is not None:
            self._world.say(
                "FAULT", f"{kind} at {request.name.decode()} of {request.link.process.name}/{request.link.number}"
            )
        KINDS[kind](self, request)

    # --- the call

    def lose_request(self, request: SentCall) -> None:
        """It never arrives. The client hears of it, or it hears nothing at all."""
        request.link.mute = True
        self._tell_or_not(request.link)

    def lose_reply(self, request: SentCall) -> None:
        """It is executed, and the reply is lost with the connection."""
        request.lost_reply = True
        request.link.deaf = True
        self._world.at(self._world.now + self._network.tempo * 4, self._tell_or_not, request.link)

    def duplicate(self, request: SentCall) -> None:
        """It is given up, and executed later, alone."""
        late = LATEST * self._world.chance() ** 3
        request.link.mute = True
        self._network.send_late(request, self._world.now + self._network.travel() + late)
        self._tell_or_not(request.link)

    def delay(self, request: SentCall) -> None:
        """It takes its time, and what is behind it waits."""
        link = request.link
        link.to_server = max(link.to_server, self._world.now + 8 * self._world.chance() ** 3)
        self.last = max(self.last, link.to_server)

    def forget_scripts(self, request: SentCall) -> None:
        """SCRIPT FLUSH."""
        del request
        self._network.known.clear()

    # --- the connection

    def cut(self, request: SentCall) -> None:
        """It breaks now, with the request on its way."""
        self._network.cut(request.link, notice=self._notice())

    def cut_later(self, request: SentCall) -> None:
        """It breaks later: while its client waits, or does something else."""
        self._later(4, self._cut_if_there, request.link)

    def cut_all(self, request: SentCall) -> None:
        """All connections of the client break."""
        for link in self._network.links:
            if link.process is request.link.process and link.here:
                self._network.cut(link, notice=self._notice())

    def partition(self, request: SentCall) -> None:
        """Nothing goes to or from the client for a while. It arrives afterwards, if it is still waited for."""
        until = self._lasting(10)
        request.link.process.blocked_until = max(request.link.process.blocked_until, until)

    def lose_pushes(self, request: SentCall) -> None:
        """Messages to inboxes get lost for a while."""
        del request
        self._network.losing_pushes = 0.3 + 0.7 * self._world.chance()
        self._world.at(self._lasting(20), self._set, "losing_pushes", 0.0)

    # --- the process

    def die(self, request: SentCall) -> None:
        """The process is killed, or its machine goes dark."""
        self._later(3, self._simulation.kill, request.link.process, self._world.chance() < 0.7)

    def freeze(self, request: SentCall) -> None:
        """The process stands still for a while, as by SIGSTOP."""
        self._later(2, self._freeze, request.link.process)

    # --- the server

    def stall(self, request: SentCall) -> None:
        """The server stands still for a while."""
        del request
        if not self._network.stalled:
            self._network.stall()
            self._world.at(self._lasting(8), self._network.resume)

    def out_of_memory(self, request: SentCall) -> None:
        """It has no memory for more."""
        del request
        self._network.set_memory(out=True)
        self._world.at(self._lasting(6), self._remember)

    def refuse(self, request: SentCall) -> None:
        """It refuses scripts for a while."""
        del request
        self._network.refusal = REFUSALS[self._world.below(len(REFUSALS))]
        self._world.at(self._lasting(3), self._set, "refusal", None)

    def refuse_writes(self, request: SentCall) -> None:
        """It takes no writes for a while."""
        del request
        words = NO_WRITES[self._world.below(len(NO_WRITES))]
        self._network.server.model[b"set_refusal"](words)
        self._world.at(self._lasting(3), self._network.server.model[b"set_refusal"], False)

    def restart_with_data(self, request: SentCall) -> None:
        """It restarts and has all its data, but no scripts."""
        del request
        self._go_down()

    def restart(self, request: SentCall) -> None:
        """It restarts and has nothing."""
        del request
        self._around(self._restart)

    def flush(self, request: SentCall) -> None:
        """FLUSHALL."""
        del request
        self._around(self._flush)

    def failover(self, request: SentCall) -> None:
        """A replica takes over that does not have the latest writes. Those who do not know yet talk to the old primary."""
        del request
        self._around(self._fail_over)

    def evict(self, request: SentCall) -> None:
        """It throws a key away."""
        del request
        self._around(self._evict)

    def jump(self, request: SentCall) -> None:
        """Its clock is set."""
        del request
        self._around(self._jump)

    # --- how

    def _later(self, within: float, action: Callable[..., object], *args: object) -> None:
        moment = self._world.now + within * self._world.chance() ** 3
        self._world.at(moment, self._if_not_ended, action, *args)

    def _around(self, action: Callable[[], None]) -> None:
        """Before the call arrives, between it and its reply, or later."""
        chance = self._world.chance()
        if chance < 0.3:
            action()
        elif chance < 0.6:
            self._world.at(self._world.now + 2 * self._network.tempo, self._if_not_ended, action)
        else:
            self._later(5, action)

    def _if_not_ended(self, action: Callable[..., object], *args: object) -> None:
        if not self._simulation.is_quiet:
            self.last = max(self.last, self._world.now)
            action(*args)

    def _lasting(self, most: float) -> float:
        """The moment at which something ends that lasts so many seconds at most."""
        until = self._world.now + most * self._world.chance() ** 2
        self.last = max(self.last, until)
        return until

    def _notice(self) -> float | None:
        """How late the server learns that a connection is no more; None for at once."""
        return None if self._world.chance() < 0.7 else 60 * self._world.chance() ** 2

    def _tell_or_not(self, link: Link) -> None:
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
        if not self._simulation.is_quiet:
            self._world.at(self._world.now + 6 * self._world.chance() ** 2 + 0.001, self._save)

    def _fail_over(self) -> None:
        demoted = self._world.chance() < 0.5
        self._network.known.clear()
        for link in self._network.links:
            if not demoted:
                self._network.drop(link)
                self._network.cut(link)
            elif link.there:
                link.demoted = True
                self._network.drop(link)
        self._network.server.model[b"restore"](self._saved)
        self._lost(None, torn=False)

    def _evict(self) -> None:
        tag = self._simulation.tags[self._world.below(len(self._simulation.tags))]
        part = PARTS[self._world.below(len(PARTS))]
        self._network.server.model[b"evict"](f"{tag}:{part}".encode())
        self._lost(tag, torn=True)

    def _jump(self) -> None:
        seconds = 0.001 * 60_000 ** self._world.chance()
        back = self._world.chance() < 0.5
        self._network.jump_us += int(seconds * (-1e6 if back else 1e6))
        if back:
            self.stepped_back = True
            if self.lost_data:
                self._simulation.watch.forget_fences()
        else:
            self.jumped_forward = True
            self._simulation.watch.forget_past()
        self._simulation.grace += seconds if back else 0.0
        if self._world.log is not None:
            self._world.say("FAULT", f"the server's clock jumps by {-seconds if back else seconds:.6f} s")

    def _lost(self, tag: str | None, *, torn: bool) -> None:
        self.lost_data = True
        self._simulation.watch.forget(tag, torn=torn)
        if self._world.log is not None:
            self._world.say("FAULT", f"data of {tag or 'all names'} is lost")


KINDS: dict[str, Callable[[Faults, SentCall], None]] = {
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
    "stall": Faults.stall,
    "out of memory": Faults.out_of_memory,
    "refusal": Faults.refuse,
    "no writes": Faults.refuse_writes,
    "restart with data": Faults.restart_with_data,
    "restart": Faults.restart,
    "flush": Faults.flush,
    "failover": Faults.failover,
    "evict": Faults.evict,
    "jump": Faults.jump,
}
"""By what they are called in plans and reports."""
