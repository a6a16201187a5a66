"""Run one seed: callers carry out their orders, and the checks run meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

from handfast_lab.checker import RateSpec, check_admissions, check_all, check_fences, check_holds, check_outcomes
from handfast_lab.checker.history import Operation
from handfast_lab.simulator.budgets import BudgetWatch
from handfast_lab.simulator.burst_watch import BurstWatch
from handfast_lab.simulator.callers import carry_out
from handfast_lab.simulator.client import Client
from handfast_lab.simulator.cluster import Cluster
from handfast_lab.simulator.faults import Faults
from handfast_lab.simulator.isolation import isolated
from handfast_lab.simulator.latches import LatchWatch
from handfast_lab.simulator.limiter_watch import LimiterWatch
from handfast_lab.simulator.links import Command
from handfast_lab.simulator.loop import VirtualLoop
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.observers import ElectionWatch, GroupWatch
from handfast_lab.simulator.once_watch import OnceWatch
from handfast_lab.simulator.orders import ClientPlan, Plan
from handfast_lab.simulator.partitions import PartitionWatch
from handfast_lab.simulator.plans import draw
from handfast_lab.simulator.replication import Replication
from handfast_lab.simulator.server import SimulatedServer
from handfast_lab.simulator.watch import Watch
from handfast_lab.simulator.world import Process, World

__all__ = ["Result", "Simulation"]

LONGEST_S = 400.0
"""Time after the last fault within which every caller must have ended, beside the time for which all hold their
leases."""

REST_S = 1_000
"""Time after which all data of the callers has expired, and in which a loop runs less than once a second."""

MAX_CALLS = 5_000
"""A number of scripts that no plan needs, unless a client repeats requests without end."""

IDLE_S = 4.0
"""Time for which a name may stay free though a waiter fits, when nothing goes wrong any more: a waiter that missed its
message asks after two seconds, and a call may take its time."""


class Result(NamedTuple):
    """The outcome of a seed."""

    seed: int
    findings: list[str]
    calls: int
    faults: dict[str, int]
    seconds: float
    """Of virtual time."""
    history: list[Operation]


class Simulation:
    """One world. ``log`` receives what happens, line by line; one in ``every`` histories is checked as a whole."""

    def __init__(
        self,
        seed: int,
        server: SimulatedServer,
        *,
        setting: str = "server",
        log: Callable[[str], None] | None = None,
        plan: Plan | None = None,
        every: int = 8,
    ) -> None:
        self.world = World(seed, log)
        self._seed = seed
        self.plan = draw(self.world.chance, setting, seed) if plan is None else plan
        self._clients: list[Client] = []
        self._busy = 0
        server.reset()
        self._network = Network(self.world, server, self.plan.tempo)
        watches: dict[str, type[Watch]] = {"limiter": LimiterWatch, "once": OnceWatch, "debounce": BurstWatch}
        watches |= {
            "budget": BudgetWatch,
            "latch": LatchWatch,
            "election": ElectionWatch,
            "group": GroupWatch,
            "partition": PartitionWatch,
        }
        self.watch = watches.get(self.plan.kind, Watch)(self.plan, self._network, records=seed % every == 0)
        self._damage = self.watch.damage
        if self.plan.setting == "cluster":
            self._network.cluster = Cluster(self._network, self.plan.tags, self.plan.parts)
        if self.plan.replicas:
            self._network.replication = Replication(self._network, self.plan.replicas)
        self._faults = Faults(self.plan, self._network, self.watch, self._clients, self._kill)
        if self.plan.scripts_known:
            self._network.load_scripts()
        self._network.on_send = self._sending
        self._network.on_executed = self.watch.executed
        self._network.on_strayed = self.watch.strayed
        self._network.on_delivered = self.watch.delivered

    def run(self) -> Result:
        """Run the plan, and check the final state."""
        world, plan = self.world, self.plan
        if world.log is not None:
            world.say("plan", f"{plan.kind} {' '.join(plan.names)}, faults: {', '.join(plan.faults) or 'none'}")
        with isolated():
            for number, client in enumerate(plan.clients):
                self._begin(chr(ord("A") + number), client)
            world.at(plan.quiet_at, self._end_faults)
            world.run(inf)
            if self._busy:
                self.watch.find(f"liveness: {self._busy} callers never come to an end")
            else:
                self._rest()
            self._discard()
        self._judge()
        watch = self.watch
        return Result(self._seed, watch.findings, self._network.calls, self._damage.counts, world.now, watch.history)

    def _begin(self, name: str, plan: ClientPlan) -> None:
        process = Process(self.world, name, plan.offset)
        loop = VirtualLoop(
            process,
            lag=self.plan.tempo,
            lagging=plan.lagging,
            on_pause=partial(self.watch.look, process),
            on_error=lambda words: self.watch.find(f"event loop: {words}"),
        )
        client = Client(process, self._network, loop, plan.response_timeout)
        self._clients.append(client)
        for orders in plan.callers:
            self._busy += 1
            client.callers += 1
            task = loop.create_task(carry_out(self.world, self.watch, client, orders))
            task.add_done_callback(lambda _: self._finish(client))

    def _finish(self, client: Client) -> None:
        """Note that a caller has carried out all its orders."""
        client.callers -= 1
        self._busy -= 1
        self._end_if_done()

    def _sending(self, command: Command) -> None:
        self.watch.sent(command)
        if self._network.calls > MAX_CALLS:
            self.watch.find(f"liveness: more than {MAX_CALLS:,} scripts")
            self.world.stopped = True
        self._faults.strike(command)

    def _kill(self, client: Client, noticed: bool) -> None:  # noqa: FBT001 -- called by the clock
        """Kill a process. The server notices at once or much later that its connections are closed."""
        process, world = client.process, self.world
        if not process.alive:
            return
        process.die()
        world.say(process.name, "dies")
        for link in self._network.links:
            if link.process is process and link.here:
                link.here = False
                wait = self._network.travel() if noticed else world.between(1, 60)
                world.at(max(world.now + wait, link.to_server), self._network.drop, link)
        self.watch.died(client, client.tokens)
        self._busy -= client.callers
        client.callers = 0
        self._end_if_done()

    # --- how it ends

    def _end_if_done(self) -> None:
        if not self._busy:
            self._end_faults()
            self.world.stopped = True

    def _end_faults(self) -> None:
        if self._damage.is_over:
            return
        self.world.say("FAULT", "no more faults")
        self._faults.end()
        orders = [order for client in self.plan.clients for caller in client.callers for order in caller]
        held = sum(2 * order.hold + order.block for order in orders)  # all may want the same name
        self.world.at(self.world.now + LONGEST_S + held + 2 * self._damage.grace, self._give_up)
        self._end_if_done()
        if self._busy:
            self.world.at(self.world.now + 30, self._probe, [])

    def _probe(self, before: list[tuple[str, bytes]]) -> None:
        """Check that free permits are soon granted to waiters whose clients could ask for them all the time."""
        awake = [client for client in self._clients if client.process.awake_since <= self.world.now - IDLE_S]
        asking = {token for client in awake for token in client.tokens}
        idle = [(name, token) for name, token in self.watch.idle() if token in asking]
        for name, token in idle:
            if (name, token) in before:
                self.watch.find(f"liveness: {name} {token.decode()} waits for what is free")
        if self._busy:
            self.world.at(self.world.now + IDLE_S, self._probe, idle)

    def _give_up(self) -> None:
        self.world.stopped = True

    def _rest(self) -> None:
        """Check that no ended token has data, that all other data expires, and that the loops are idle."""
        self.world.stopped = False
        self.world.run(self.world.now + 25)
        self.watch.check_remains()
        before = [client.loop.runs for client in self._clients]
        self.world.run(self.world.now + REST_S)
        self.watch.check_all_expired()
        for client, runs in zip(self._clients, before, strict=True):
            if client.loop.runs - runs > REST_S:
                self.watch.find(f"rest: the event loop of {client.process.name} runs {client.loop.runs - runs:,} times")

    def _discard(self) -> None:
        """End the simulation: finalizers have no effect from now on."""
        self._network.on_send = lambda _: None
        self.world.discard_events()
        for client in self._clients:
            client.discard()
        self._clients.clear()
        self._network.links.clear()
        self.watch.discard()

    def _judge(self) -> None:
        """Check the history as a whole."""
        damage, history = self._damage, self.watch.history
        if not history:
            return
        if self.plan.kind == "limiter":
            if not (damage.lost_data or damage.jumped_forward or damage.stepped_back):
                rates = self.plan.rates.items()
                specs = {name: [RateSpec(rate.limit, 1000 * rate.per_ms) for rate in some] for name, some in rates}
                self.watch.findings += map(str, check_admissions(history, specs))
            return
        if not (damage.lost_data or damage.jumped_forward):
            # The model has one limit for all, and no request that held without its owner learning of it.
            held = [*check_holds(history), *check_fences(history, exclusive=True)]
            if self.plan.overtakes:  # a history does not show that a lease is to end earlier than its grant said
                held = check_fences(history)
            plain = self.plan.uniform and not (self.plan.rests or self.plan.overtakes or self.watch.held_unheard)
            found = check_all(history) if plain and self.plan.kind != "once" else held
        elif not (damage.lost_data and damage.stepped_back):
            found = check_fences(history)
        else:
            found = []
        if self.plan.kind == "once":
            found += check_outcomes(
                history, keeps=self.plan.records_last and not (damage.lost_data or damage.jumped_forward)
            )
        self.watch.findings += map(str, found)
