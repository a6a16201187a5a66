"""The classic listings in virtual time: the guarantees of their scripts, without network faults.

Their clients poll and know no queue, no fence and no lost reply, so there are two checks only: no more clients hold a thing
than may, as long as each is within its time, and a client that is gone leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from importlib.resources import files
from math import inf
from typing import Any

from handfast_lab.simulator.server import SimulatedServer
from handfast_lab.simulator.world import World

__all__ = ["ClassicSimulation", "classic_scripts"]

SCRIPTS = "lock_acquire", "lock_release", "semaphore_acquire", "semaphore_refresh"
START = 1_790_000_000
TRAVEL = 0.001


def classic_scripts() -> dict[str, str]:
    """Return the listings, by name, and the command that releases a semaphore."""
    folder = files("handfast.classic") / "lua"
    sources = {name: (folder / f"{name}.lua").read_text(encoding="utf-8") for name in SCRIPTS}
    return sources | {"zrem": "return redis.call('ZREM', KEYS[1], ARGV[1])"}


class ClassicSimulation:
    """Some clients that use one lock, or one semaphore, and may die or oversleep."""

    def __init__(self, seed: int, server: SimulatedServer, log: Callable[[str], None] | None = None) -> None:
        self._world = World(seed, log)
        self._server = server
        server.reset()
        world = self._world
        self._limit = 1 + world.below(3)
        self._seconds = 1 + world.below(3)
        self._is_lock = world.chance() < 0.5
        self._held: dict[str, float] = {}
        self._findings: list[str] = []
        for number in range(2 + world.below(3)):
            name = chr(ord("A") + number)
            self._go_on(self._lock(name) if self._is_lock else self._semaphore(name))

    def run(self) -> list[str]:
        """Run the clients, and return the findings."""
        world = self._world
        world.run(60)
        world.run(60 + 2 * self._seconds)
        probe = self._lock_once("probe") if self._is_lock else self._place_once("probe")
        if not self._findings and not probe:
            self._find("rest: all clients are gone, and it cannot be acquired")
        return self._findings

    def _go_on(self, steps: Generator[float]) -> None:
        """Run a client until its next wait."""
        for moment in steps:
            self._world.at(moment, self._go_on, steps)
            break

    def _find(self, words: str) -> None:
        if words not in self._findings:
            self._findings.append(words)
            self._world.say("FOUND", words)

    def _run(self, name: str, key: str, *words: object) -> Any:
        now_us = START * 1_000_000 + int(self._world.now * 1e6)
        sent = [str(word).encode() for word in words]
        reply, _ = self._server.run(name.encode(), now_us, 1, [key.encode(), *sent])
        if self._world.log is not None:
            self._world.say("server", f"{name} {' '.join(map(str, words))} -> {reply}")
        return reply

    def _take(self, identifier: str, until: float, limit: int) -> None:
        """Record that the client relies on its hold until this time."""
        now = self._world.now
        self._held = {other: end for other, end in self._held.items() if end > now}
        if len(self._held) >= limit:
            self._find(f"{identifier} holds it beside {', '.join(sorted(self._held))}, and {limit} may")
        self._held[identifier] = until

    # --- a lock

    def _lock_once(self, identifier: str) -> bool:
        return bool(self._run("lock_acquire", "lock:a", identifier, self._seconds))

    def _lock(self, name: str) -> Generator[float]:
        world = self._world
        for turn in range(3):
            yield world.now + world.chance()
            identifier = f"{name}{turn}"
            sent_at = world.now
            while not self._lock_once(identifier):
                yield world.now + 0.05 + 0.01 * world.chance()
                sent_at = world.now
            self._take(identifier, sent_at + self._seconds, 1)
            yield world.now + TRAVEL + self._seconds * 1.5 * world.chance() ** 2
            if world.chance() < 0.1:
                return  # it dies
            self._held.pop(identifier, None)
            self._run("lock_release", "lock:a", identifier)

    # --- a semaphore

    def _place_once(self, identifier: str) -> bool:
        now = START + self._world.now
        return bool(self._run("semaphore_acquire", "semaphore", identifier, self._limit, now, now - self._seconds))

    def _semaphore(self, name: str) -> Generator[float]:
        world = self._world
        for turn in range(3):
            yield world.now + world.chance()
            identifier = f"{name}{turn}"
            tries = 0
            while not self._place_once(identifier):
                tries += 1
                if tries > 200:
                    return
                yield world.now + 0.05 + 0.01 * world.chance()
            self._take(identifier, world.now + self._seconds, self._limit)
            until = inf
            while world.chance() < 0.6:
                yield world.now + self._seconds * 1.5 * world.chance()
                if not self._run("semaphore_refresh", "semaphore", identifier, START + world.now):
                    until = 0
                    break
                self._held.pop(identifier, None)
                self._take(identifier, world.now + self._seconds, self._limit)
            if world.chance() < 0.15:
                return  # it dies
            self._held.pop(identifier, None)
            if until:
                self._run("zrem", "semaphore", identifier)
