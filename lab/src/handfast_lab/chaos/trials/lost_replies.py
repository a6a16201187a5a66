"""The reply of a call gets lost: the server did it, and the client is cut off before it hears of it.

Client libraries send a command again when that happens, so a call that is not safe to repeat answers the wrong thing, or
takes something that nobody knows of. Each round is about a name of its own, and leases outlive the trial: what a round has
left behind is still there at the end, when everything has come to rest.

    R4  of an acquire: keys that still hold something though all was given back
    R5  of a release: callers who were told that it failed, or that they had lost the lease
    R6  of an extend or a renewal: leases that last longer than was asked
    R7  of a semaphore's acquire: permits that nobody has and that are out nevertheless
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count as counting

from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Tell
from handfast_lab.rivals.contender import Contender, Wire
from handfast_lab.rivals.verbs import LEASE, Client, Lock

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R4", "R5", "R6", "R7")
COUNT = 1_000
"""Rounds of each kind."""

WAIT, FREE_WAIT, RIVALS_WAIT = 0.02, 5.0, 0.3
"""Seconds that a caller is willing to wait, where it waits: for what others hold, and for what is free. A rival that has the
lock without knowing it waits for itself, so that it is not let wait for long."""

SHORT = 30.0
"""Seconds of a lease that is to be extended."""

MORE = 60.0
"""Seconds that it is extended to, or by."""

LIMIT = 4
"""Permits of a semaphore."""

REST, RIVALS_REST = 5.0, 0.2
"""Seconds that what goes on in the background is given to clean up. Rivals have less to do there, and leave more behind."""


UNTOLD = object()
"""What a caller is told who gets an error of the network."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- every trial has this one: it is asked about somebody
    """Whoever can take a lock can lose a reply."""
    return True


def trial(contender: Contender, count: int, seed: int, tell: Tell) -> list[Figure]:
    """So many rounds of each kind that the contender has."""
    done = counting(1)
    figures = []
    with _scene(contender) as scene:
        for play, sum_up in _KINDS:
            if play is _Scene.extend and not contender.extends:
                continue
            if play is _Scene.permit and "semaphore" not in contender.has:
                continue
            notes = _Notes(contender.name, seed)
            for number in range(count):
                play(scene, number, notes)
                tell(next(done))
            figures.append(sum_up(notes, scene.left()))
            scene.server.admin.flushall()
    return figures


@dataclass
class _Notes:
    """What came of the rounds of one kind."""

    contender: str
    seed: int
    tried: int = 0
    unstruck: int = 0
    """Rounds in which the fault found nothing to hit."""
    misled: list[str] = field(default_factory=list)
    """Wrong answers."""
    untold: int = 0
    """Callers who were told that the connection broke, and no more: that is no wrong answer."""
    refused: list[str] = field(default_factory=list)
    """Whoever came next did not get it at once."""
    free_again: float = 0.0
    """How many seconds it took at most until somebody got it who was refused at first."""
    longest: float = 0.0
    """By how many milliseconds a lease lasted longer than was asked, at most."""
    longer: list[str] = field(default_factory=list)
    answered: float = 0.0
    """Seconds of the call that took longest."""

    def orphans(self, left: list[str]) -> list[str]:
        """What went wrong in acquires, the worst first."""
        return [*(f"left behind: {key}" for key in left), *self.refused, *self.misled]

    def figure(self, row: str, what: str, unit: str, wrong: list[str], bad: int, **measured: float) -> Figure:
        """The number that it comes to."""
        answers = {} if unit == "wrong errors" else {"wrong answers": len(self.misled)}
        others: dict[str, float | str] = {
            **answers,
            **measured,
            "refused to whoever came next": len(self.refused),
            "longest until it was free, s": round(self.free_again, 3),
            "told of a broken connection": self.untold,
            "calls that sent nothing to lose": self.unstruck,
            "longest call, s": round(self.answered, 3),
        }
        return Figure(
            row, what, self.contender, self.tried - self.unstruck, bad, unit, others, self.seed, examples_of(wrong)
        )


@dataclass
class _Scene:
    """One client whose replies get lost, and one at the server itself."""

    contender: Contender
    server: ServerController
    proxy: FaultProxy
    wire: Wire
    far: Client
    near: Client

    def acquire(self, number: int, notes: _Notes) -> None:
        """The reply of an acquire is lost: of one that is in luck, or of one that finds others in its way."""
        name = f"acquired-{number}"
        lock, other = self.far.lock(name), self.near.lock(name)
        taken = number % 4 == 3 and other.acquire(0)
        told = self._told(self.wire.takes, lambda: lock.acquire(self._patience(number)), notes)
        self._judge_acquire(name, told, taken=taken, notes=notes)
        if told is True:
            lock.release()
        if taken:
            other.release()
        self._follow(name, self.near.lock(name), notes)

    def permit(self, number: int, notes: _Notes) -> None:
        """The same of a semaphore, of which others hold some or all permits."""
        name = f"permits-{number}"
        permit = self.far.semaphore(name, LIMIT)
        others = [self.near.semaphore(name, LIMIT) for _ in range(LIMIT if number % 4 == 3 else number % 4)]
        for other in others:
            other.acquire(0)
        told = self._told(self.wire.permits, lambda: permit.acquire(self._patience(number)), notes)
        self._judge_acquire(name, told, taken=len(others) == LIMIT, notes=notes)
        if told is True:
            permit.release()
        for other in others:
            other.release()
        self._follow(name, _All([self.near.semaphore(name, LIMIT) for _ in range(LIMIT)]), notes)

    def release(self, number: int, notes: _Notes) -> None:
        """The reply of a release is lost."""
        name = f"released-{number}"
        lock = self.far.lock(name)
        lock.acquire(0)
        told = self._told(self.wire.gives, lock.release, notes)
        if told not in (True, UNTOLD):
            notes.misled.append(f"{name}: it was given up, and its caller was told {_said(told)}")
        self._follow(name, self.near.lock(name), notes)

    def extend(self, number: int, notes: _Notes) -> None:
        """The reply of what makes a lease longer is lost."""
        name = f"extended-{number}"
        lock = self.far.lock(name, SHORT)
        lock.acquire(0)
        before = self._remaining(name)
        told = self._told(self.wire.extends, lambda: lock.extend(MORE), notes)
        asked = {"to": MORE, "by": before / 1000 + MORE, "again": SHORT}[self.contender.extends] * 1000
        excess = self._remaining(name) - asked
        if isinstance(told, Exception):
            notes.misled.append(f"{name}: it was extended, and its caller was told {_said(told)}")
        notes.longest = max(notes.longest, excess)
        if excess > 1:
            notes.longer.append(f"{name}: asked for {asked:.0f} ms, got {excess:.0f} ms more")
        lock.release()

    def left(self) -> list[str]:
        """What still holds something once everything has come to rest."""
        until = time.monotonic() + self._rest
        while (left := self.contender.left(self.server.admin)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def _told(self, words: frozenset[str], call: Callable[[], object], notes: _Notes) -> object:
        """What the caller is told when the reply is lost: what it is given, or the error that it gets."""
        fault = self.proxy.lose_reply(Wire.match(words))
        begun = time.monotonic()
        try:
            told = call()
        except Exception as error:  # noqa: BLE001 -- whatever a contender raises is its answer
            told = UNTOLD if _is_of_network(error) else error
            notes.untold += told is UNTOLD
        notes.answered = max(notes.answered, time.monotonic() - begun)
        fault.clear()
        notes.tried += 1
        notes.unstruck += not fault.happened
        return told

    def _judge_acquire(self, name: str, told: object, *, taken: bool, notes: _Notes) -> None:
        if told is UNTOLD:
            return
        if taken and told is not False:
            notes.misled.append(f"{name}: others held it, and its caller was told {_said(told)}")
        elif not taken and told is not True:
            notes.misled.append(f"{name}: it was free, and its caller was told {_said(told)}")

    def _follow(self, name: str, lock: Lock, notes: _Notes) -> None:
        """Whoever comes next gets it at once; if not, note how long it took, as long as there is hope."""
        begun = time.monotonic()
        had = lock.acquire(0)
        if not had:
            notes.refused.append(f"{name}: all was given back, and whoever came next did not get it")
            until = begun + (REST if self.contender.is_ours else 0)
            while not (had := lock.acquire(0)) and time.monotonic() < until:
                time.sleep(0.005)
            notes.free_again = max(notes.free_again, time.monotonic() - begun if had else 0)
        if had:
            lock.release()

    def _patience(self, number: int) -> float:
        """Every second caller waits, where that can be told in less than a second; every fourth finds others in its way."""
        wait = WAIT if number % 4 == 3 else FREE_WAIT if self.contender.is_ours else RIVALS_WAIT
        return wait if number % 2 and self.contender.shortest_wait <= wait else 0

    @property
    def _rest(self) -> float:
        return REST if self.contender.is_ours else RIVALS_REST

    def _remaining(self, name: str) -> float:
        return self.contender.remaining(self.server.admin, name)


class _All:
    """All permits of a semaphore: whoever leaks one leaves the others to be had, and only all of them tell."""

    def __init__(self, permits: list[Lock]) -> None:
        self._permits = permits

    def acquire(self, timeout: float | None = None) -> bool:
        """All or none, though they are taken one by one."""
        had = []
        for permit in self._permits:
            if not permit.acquire(timeout):
                break
            had.append(permit)
        if len(had) < len(self._permits):
            for permit in had:
                permit.release()
        return len(had) == len(self._permits)

    def release(self) -> bool:
        """Give them back."""
        return all([permit.release() for permit in self._permits])  # noqa: C419 -- each is to be given back

    def extend(self, seconds: float) -> None:
        """Extend them."""
        for permit in self._permits:
            permit.extend(seconds)


@contextlib.contextmanager
def _scene(contender: Contender) -> Iterator[_Scene]:
    with (
        ServerController() as server,
        FaultProxy(server.url, record=False) as proxy,
        contender.client(proxy.url) as far,
        contender.client(server.url) as near,
    ):
        for client in (near, far):  # so that the server knows every script, and the clients the server
            lock = client.lock("warm", LEASE)
            lock.acquire(0)
            if contender.extends:
                lock.extend(LEASE)
            lock.release()
        yield _Scene(contender, server, proxy, contender.wire(), far, near)


def _is_of_network(error: Exception) -> bool:
    """Whether that is all it says. Each library has classes of its own for it."""
    return any("Connection" in kind.__name__ or "Timeout" in kind.__name__ for kind in type(error).__mro__)


def _said(told: object) -> str:
    """An answer in short: what errors say may go on and on, and name sockets that are gone."""
    return type(told).__name__ if isinstance(told, Exception) else repr(told)


def _acquired(notes: _Notes, left: list[str]) -> Figure:
    return notes.figure("R4", "lost reply of acquire", "orphans", notes.orphans(left), len(left))


def _permitted(notes: _Notes, left: list[str]) -> Figure:
    return notes.figure("R7", "lost reply of a semaphore's acquire", "leaked permits", notes.orphans(left), len(left))


def _released(notes: _Notes, left: list[str]) -> Figure:
    return notes.figure(
        "R5", "lost reply of release", "wrong errors", notes.misled, len(notes.misled), orphans=len(left)
    )


def _extended(notes: _Notes, left: list[str]) -> Figure:  # noqa: ARG001 -- what is too long is what counts here
    wrong, most = notes.longer + notes.misled, {"most beyond what was asked, ms": round(notes.longest, 1)}
    return notes.figure("R6", "lost reply of extend", "leases too long", wrong, len(notes.longer), **most)


_KINDS: tuple[tuple[Callable[[_Scene, int, _Notes], None], Callable[[_Notes, list[str]], Figure]], ...] = (
    (_Scene.acquire, _acquired),
    (_Scene.release, _released),
    (_Scene.extend, _extended),
    (_Scene.permit, _permitted),
)
"""What is played, and what is made of it."""
