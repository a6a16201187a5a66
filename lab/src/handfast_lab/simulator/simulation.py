"""One seed, from its plan to its verdict: callers that do what they are told, and all that is looked at meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from handfast_lab.checker import check_all, check_fences, check_holds
from handfast_lab.checker.history import Operation
from handfast_lab.simulator.callers import carry_out
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.faults import Faults
from handfast_lab.simulator.network import Network, SentCall
from handfast_lab.simulator.plans import ClientPlan, Plan, draw
from handfast_lab.simulator.server import ENGINE_DIGESTS, SimulatedServer
from handfast_lab.simulator.tasks.client import TaskClient
from handfast_lab.simulator.threads.client import ThreadClient
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import Process, World

__all__ = ["Result", "Simulation"]

LONGEST = 400.0
"""Seconds after the last fault in which everybody must have come to an end."""

TOO_MANY = 5_000
"""Scripts that no plan comes near to, unless somebody asks again and again."""

IDLE = 4.0
"""Seconds for which something that is free may stay so though somebody waits for it, when nothing goes wrong any more: a
waiter that was not rung asks after two, and a call may take its time."""


class Result(NamedTuple):
    """What came of a seed."""

    seed: int
    findings: list[str]
    calls: int
    faults: dict[str, int]
    seconds: float
    """Of virtual time."""
    history: list[Operation]


class Simulation:
    """One world. ``log`` takes what happens, line by line."""

    def __init__(
        self,
        seed: int,
        server: SimulatedServer,
        *,
        log: Callable[[str], None] | None = None,
        plan: Plan | None = None,
        every: int = 8,
    ) -> None:
        self.world = World(seed, log)
        self._seed = seed
        self.plan = draw(self.world.chance) if plan is None else plan
        self.tags = self.plan.tags
        self.clients: list[Client] = []
        self.is_quiet = False
        self.grace = 0.0
        """Seconds by which everything may take longer."""
        self._busy = 0
        server.reset()
        self.network = Network(self.world, server, self.plan.tempo)
        self.watch = Watch(self, records=seed % every == 0)
        self.faults = Faults(self, self.plan.faults, self.plan.rate, self.plan.most_faults)
        if self.plan.scripts_known:
            self.network.known.update(ENGINE_DIGESTS)
        self.network.on_send = self._sending
        self.network.on_executed = self.watch.executed
        for number, client in enumerate(self.plan.clients):
            self._begin(chr(ord("A") + number), client)

    def run(self) -> Result:
        """Let it take its course, and look at what is left."""
        world, plan = self.world, self.plan
        if world.log is not None:
            world.say("plan", f"{plan.kind} {' '.join(plan.names)}, faults: {', '.join(plan.faults) or 'none'}")
        world.at(plan.quiet_at, self._quiet)
        world.run(inf)
        if self._busy:
            self.watch.find(f"liveness: {self._busy} callers never come to an end")
        else:
            self._at_rest()
        self._judge()
        watch = self.watch
        return Result(self._seed, watch.findings, self.network.calls, self.faults.counts, world.now, watch.history)

    def _sending(self, request: SentCall) -> None:
        if request.token in self.watch.returned:
            self.watch.sent_after_all(request)
        if self.network.calls > TOO_MANY:
            self.watch.find(f"liveness: {TOO_MANY:,} scripts, and no end of it")
            self.world.stopped = True
        self.faults.strike(request)

    # --- what faults do

    def kill(self, process: Process, noticed: bool) -> None:  # noqa: FBT001 -- called by the clock
        """A process is gone. Its connections end at once, or are noticed to be gone much later."""
        if not process.alive:
            return
        process.die()
        self.world.say(process.name, "dies")
        for link in self.network.links:
            if link.process is process and link.here:
                link.here = False
                wait = self.network.travel() if noticed else self.world.between(1, 60)
                self.world.at(max(self.world.now + wait, link.to_server), self.network.drop, link)
        self.watch.died(process)
        for client in self.clients:
            if client.process is process:
                self._busy -= client.callers
                client.callers = 0
        self._end_if_done()

    # --- how it ends

    def _at_rest(self) -> None:
        """Nothing is left of those who are done with what they had, and what others left runs out."""
        self.world.stopped = False
        self.world.run(self.world.now + 25)
        self.watch.left()
        self.world.run(self.world.now + 1_000)
        self.watch.left_for_ever()

    def _judge(self) -> None:
        """The history as a whole."""
        faults, history = self.faults, self.watch.history
        if not history:
            return
        if not (faults.lost_data or faults.jumped_forward):
            # Where limits differ, the line is not modelled as it is; nor is a request that held while nobody heard of it.
            held = [*check_holds(history), *check_fences(history, exclusive=True)]
            found = check_all(history) if self.plan.uniform and not self.watch.held_unheard else held
        elif not (faults.lost_data and faults.stepped_back):
            found = check_fences(history)
        else:
            found = []
        self.watch.findings += map(str, found)

    def _quiet(self) -> None:
        """Faults end."""
        if self.is_quiet:
            return
        self.is_quiet = True
        self.world.say("FAULT", "no more faults")
        self.faults.end()
        self.world.at(self.world.now + LONGEST + 2 * self.grace, self._give_up)
        self._end_if_done()
        if self._busy:
            self.world.at(self.world.now + 30, self._probe, [])

    def _probe(self, before: list[tuple[str, bytes]]) -> None:
        """What is free and waited for is taken soon."""
        idle = self.watch.idle()
        for name, token in idle:
            if (name, token) in before:
                self.watch.find(f"liveness: {name} {token.decode()} waits for what is free")
        if self._busy:
            self.world.at(self.world.now + IDLE, self._probe, idle)

    def _give_up(self) -> None:
        self.world.stopped = True

    def _end_if_done(self) -> None:
        if not self._busy:
            self._quiet()
            self.world.stopped = True

    # --- what clients do

    def _begin(self, name: str, plan: ClientPlan) -> None:
        process = Process(self.world, name, plan.offset)
        client: Client
        if plan.threads:
            client = ThreadClient(process, self.network, self.watch, plan.response_timeout, plan.places)
        else:
            client = TaskClient(process, self.network, self.watch, plan.response_timeout)
        self.clients.append(client)
        for orders in plan.callers:
            self._busy += 1
            client.callers += 1
            process.begin(carry_out(self, client, orders))

    def leaves(self, client: Client) -> None:
        """One of its callers has done all that it was told."""
        client.callers -= 1
        self._busy -= 1
        self._end_if_done()
