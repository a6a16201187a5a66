"""Start a job on several machines whose clocks differ, and lose what the network can lose: it runs once.

R35  Clients start the same job one after the other, as cron does on machines whose clocks differ. The job takes no time, so
     it is over before the next client starts it; its lock, made with `at_least`, keeps the others out. In each round a
     request, a reply or nothing is lost, or a request arrives a second time. Counted: jobs that did not run once, and locks
     that stay taken for another time than the one asked for.
"""

from __future__ import annotations

import contextlib
import random

import redis

from handfast.testing import FaultProxy, ServerController, script
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, Tally
from handfast_lab.chaos.trials import Progress
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R35",)
COUNT = 500
"""Jobs."""

MACHINES = 3
APART, AT_LEAST = 0.005, 600.0
"""Between two starts of a job, and for how long its lock stays taken, in seconds: longer than the trial."""

LATE, EXACT = 0.008, 1e-3
"""After how many seconds a second copy of a request arrives; how exactly the time is kept."""

CALLS = script("permit_acquire"), script("permit_release")
FAULTS = "none", "lose_reply", "lose_request", "duplicate"


def applies(contender: Contender) -> bool:
    """Return True for Handfast: other locks are free when they are released."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Start `count` jobs on all machines."""
    api, chance = api_of(contender), random.Random(seed)  # noqa: S311 -- test data
    with log_silenced(), ServerController() as server, FaultProxy(server.url) as proxy:
        tally = api.run(_start_jobs(api, proxy, chance, count, progress))
    return [tally.figure("R35", "a short job on machines whose clocks differ", contender.name, "not once", seed=seed)]


async def _start_jobs(api: Api, proxy: FaultProxy, chance: random.Random, count: int, progress: Progress) -> Tally:
    tally = Tally()
    async with contextlib.AsyncExitStack() as stack:
        machines = [await stack.enter_async_context(api.client(proxy.url)) for _ in range(MACHINES)]
        for number in range(count):
            name, kind = f"job-{number}", chance.choice(FAULTS)
            fault = None
            if kind == "duplicate":
                fault = proxy.duplicate(chance.choice(CALLS), after=LATE)
            elif kind != "none":
                fault = getattr(proxy, kind)(chance.choice(CALLS))
            runs, failed = 0, list[str]()
            for machine in machines:
                try:
                    lease = await settled(machine.lock(name, at_least=AT_LEAST).try_acquire())
                    if lease is not None:
                        runs += 1
                        await settled(lease.release())
                except redis.RedisError as error:
                    failed.append(repr(error))
                await api.sleep(APART)
            if fault is not None:
                fault.clear()
            tally.check(runs == 1 and not failed, "{} ran {} times: {} {}", name, runs, kind, failed)
            holders = (await settled(machines[0].lock(name).status())).holders
            kept = [one.held_for + one.remaining for one in holders if one.released]
            tally.check(len(kept) == 1 and abs(kept[0] - AT_LEAST) < EXACT, "{} stays taken for {} s", name, kept)
            progress(number + 1)
    return tally
