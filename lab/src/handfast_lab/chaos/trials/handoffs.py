"""Let holders compute for longer than the claim window right after their grants: each keeps its lease for the whole ttl.

R33  Processes contend for a lock, so that nearly every lease is handed over. Each holder computes for some seconds as
     soon as it has the lease, and nothing else of its process runs meanwhile: as with an event loop that is blocked, or
     with a call into C that keeps the GIL. Counted: leases that were lost by their release, and holds that overlap.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from itertools import pairwise
from time import monotonic
from typing import NamedTuple

from handfast.testing import ServerController
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.killable import LockUser, LockUsers
from handfast_lab.chaos.trials import Progress
from handfast_lab.children import Parent, ProcessFailed
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "Computing", "Hold", "applies", "trial"]

ROWS = ("R33",)
COUNT = 48
"""Holds."""

COMPUTES, TTL = 3.0, 10.0
"""For how long a holder computes, which is longer than Handfast's claim window of 2 s, and its lease, in seconds."""

LOCKS, CONTENDING = 8, 3
"""Locks that are used in parallel, and the processes that contend for each."""

RETRY_FOR = 60.0
"""Seconds beyond the time of all holds that the trial waits for a process: one rival polls every 30 s."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: a holder of every contender can compute."""
    return True


class Hold(NamedTuple):
    """From the end of an acquire to the beginning of its release."""

    entered: float
    left: float
    kept: bool
    """Whether the release found the lease."""


class Computing(LockUser):
    """A process whose holders compute."""

    def __init__(self, parent: Parent, contender: Contender, url: str) -> None:
        super().__init__(parent, contender, url)
        self.orders["compute"] = self.compute
        self._keeping_the_gil = ctypes.PyDLL(None)

    def compute(self, name: str, count: int) -> None:
        """Acquire and release that many times, and report the holds."""
        holds = []
        for _ in range(count):
            lock = self._client.lock(name, TTL, renew=True)
            if lock.acquire():
                entered = monotonic()
                self._keeping_the_gil.usleep(int(COMPUTES * 1e6))
                left = monotonic()
                holds.append(Hold(entered, left, lock.release()))
        self.report("computed", holds)


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Let processes hold locks `count` times, in as many turns of each process as that takes."""
    turns = -(-count // (LOCKS * CONTENDING))
    holds, wrong = defaultdict[str, list[Hold]](list), list[str]()
    with ServerController() as server, LockUsers(server.url, Computing) as users:
        processes = users.new(contender, min(count, LOCKS * CONTENDING))
        names = [f"computed-{number % LOCKS}" for number in range(len(processes))]
        for name, process in zip(names, processes, strict=True):
            process.order("compute", name, turns)
        for name, process in zip(names, processes, strict=True):
            try:
                holds[name] += process.expect("computed", CONTENDING * turns * COMPUTES + RETRY_FOR).value
            except ProcessFailed as error:
                wrong.append(f"{name}: {error}")
            progress(sum(map(len, holds.values())))
    lost = [f"{name}: a lease of {TTL:g} s was lost" for name, some in holds.items() for hold in some if not hold.kept]
    overlaps = [
        f"{name}: the next holder came {one.left - other.entered:.3f} s too early"
        for name, some in holds.items()
        for one, other in pairwise(sorted(some))
        if other.entered < one.left
    ]
    return [
        Figure(
            id="R33",
            what=f"a holder that computes for {COMPUTES:g} s right after its grant",
            contender=contender.name,
            tried=sum(map(len, holds.values())) + len(wrong),
            bad=len(wrong) + len(lost) + len(overlaps),
            unit="lost, overlapping or failed",
            measured={"leases lost": len(lost), "overlaps": len(overlaps), "lease, s": TTL},
            seed=seed,
            examples=examples_of(wrong + overlaps + lost),
        )
    ]
