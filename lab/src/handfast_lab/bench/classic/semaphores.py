"""Clients that acquire and release a permit of one semaphore."""

from __future__ import annotations

from typing import ClassVar

from handfast_lab.bench.classic.client import FIRST, LUA, OURS, Conn, Contenders, MeasuredScene, Table, Waiting
from handfast_lab.bench.contenders import FAIR, LENIENT, SEMAPHORES, Contended
from handfast_lab.bench.runner import forget

__all__ = ["LIMIT", "Semaphores"]

LIMIT = 3


class Semaphores(Table):
    """``acquire_semaphore`` in its three forms, and ``hf.semaphore``."""

    name = "semaphores"
    title = f"One semaphore with {LIMIT} places"
    success = "acquires"
    effort = "tries"
    about = (
        f"Each client takes one of {LIMIT} places, waiting as long as it takes, and gives it up at once. A try is each time "
        "that it asks. The listings ask again after 1 ms; Handfast waits in line. The fair form ranks by a counter and "
        "closes its race with a lock, for which it waits 10 ms at most. The first form's places may be stolen, here by two "
        "clients whose commands arrive in another order than their clocks were read; that is counted and told."
    )
    contenders: ClassVar[Contenders] = dict.fromkeys(
        (FIRST, FAIR, LUA, OURS),
        lambda scene, _: Waiting(Contended(SEMAPHORES[scene.contender], scene.url, scene.name, LIMIT)),
    )
    limit = LIMIT
    lenient = LENIENT

    def clear(self, scene: MeasuredScene, conn: Conn) -> None:
        """Delete the holders, the owners and their counter."""
        forget(conn, scene.name)
