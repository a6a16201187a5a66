"""Lose the reply of a call: the server executes it, and the connection is cut before the client reads the reply.

Client libraries then send the command again. A call that is not safe to repeat returns a wrong answer, or acquires a
lease that no client knows of. Each round uses a name of its own, and leases outlive the trial, so that anything a round
leaves behind is still there at the end.

    R4  acquire: keys that still hold something after everything was released
    R5  release: callers that got an error, or the answer that the lease was lost
    R6  extend or renewal: leases that last longer than requested
    R7  acquire of a semaphore: permits that are taken but have no holder
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from handfast.testing import FaultProxy, ServerController
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Progress, one_by_one
from handfast_lab.rivals.contender import Contender, Wire
from handfast_lab.rivals.verbs import LEASE, Client, Lock

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R4", "R5", "R6", "R7")
COUNT = 1_000
"""Rounds of each kind."""

WAIT, FREE_WAIT, RIVALS_WAIT = 0.02, 5.0, 0.3
"""Timeouts in seconds, where a caller waits: for a lock that another client holds, for a free one, and for a free one
with a rival. A rival that holds the lock without knowing it waits for itself, so its timeout is short."""

SHORT = 30.0
"""Duration of a lease before it is extended, in seconds."""

MORE = 60.0
"""Duration to which, or by which, it is extended, in seconds."""

LIMIT = 4
"""Permits of a semaphore."""

REST, RIVALS_REST = 5.0, 0.2
"""Seconds that background cleanup may take, for Handfast and for rivals. Rivals clean up less and leave more behind."""


NETWORK_ERROR = object()
"""The outcome of a call that raised a network error."""


def applies(contender: Contender) -> bool:  # noqa: ARG001 -- required by the Trial protocol
    """Return True: a reply can be lost for every contender."""
    return True


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Run `count` rounds of each kind of call that the contender has."""
    tick = one_by_one(progress)
    figures = []
    with _clients(contender) as clients:
        for run_round, sum_up in _KINDS:
            if run_round is _Clients.extend and not contender.extends:
                continue
            if run_round is _Clients.permit and "semaphore" not in contender.has:
                continue
            rounds = _Rounds(contender.name, seed)
            for number in range(count):
                run_round(clients, number, rounds)
                tick()
            figures.append(sum_up(rounds, clients.left()))
            clients.server.admin.flushall()
    return figures


@dataclass
class _Rounds:
    """Results of the rounds of one kind."""

    contender: str
    seed: int
    tried: int = 0
    not_lost: int = 0
    """Rounds in which the fault found no reply to drop."""
    wrong_answers: list[str] = field(default_factory=list)
    """Wrong answers."""
    network_errors: int = 0
    """Calls that raised a network error, which counts as a right answer."""
    refused: list[str] = field(default_factory=list)
    """Rounds in which the next caller could not acquire at once."""
    free_again: float = 0.0
    """Longest time until a refused next caller could acquire, in seconds."""
    longest: float = 0.0
    """Longest excess of a lease over the requested duration, in milliseconds."""
    longer: list[str] = field(default_factory=list)
    answered: float = 0.0
    """Duration of the longest call, in seconds."""

    def orphans(self, left: list[str]) -> list[str]:
        """Return what went wrong in acquires, the worst first."""
        return [*(f"left behind: {key}" for key in left), *self.refused, *self.wrong_answers]

    def figure(self, row: str, what: str, unit: str, wrong: list[str], bad: int, **measured: float) -> Figure:
        """Return the figure for these rounds."""
        answers = {} if unit == "wrong errors" else {"wrong answers": len(self.wrong_answers)}
        others: dict[str, float | str] = {
            **answers,
            **measured,
            "refused to the next caller": len(self.refused),
            "longest until it was free, s": round(self.free_again, 3),
            "network errors": self.network_errors,
            "calls that sent nothing to lose": self.not_lost,
            "longest call, s": round(self.answered, 3),
        }
        return Figure(
            row, what, self.contender, self.tried - self.not_lost, bad, unit, others, self.seed, examples_of(wrong)
        )


@dataclass
class _Clients:
    """One client behind the proxy, whose replies get lost, and one connected directly."""

    contender: Contender
    server: ServerController
    proxy: FaultProxy
    wire: Wire
    lossy: Client
    direct: Client

    def acquire(self, number: int, rounds: _Rounds) -> None:
        """Lose the reply of an acquire, of a free lock or of one that another client holds."""
        name = f"acquired-{number}"
        lock, other = self.lossy.lock(name), self.direct.lock(name)
        taken = number % 4 == 3 and other.acquire(0)
        answer = self._answer(self.wire.takes, lambda: lock.acquire(self._timeout(number)), rounds)
        self._judge_acquire(name, answer, taken=taken, rounds=rounds)
        if answer is True:
            lock.release()
        if taken:
            other.release()
        self._acquire_next(name, self.direct.lock(name), rounds)

    def permit(self, number: int, rounds: _Rounds) -> None:
        """Lose the reply of a semaphore's acquire, with none, some or all permits held by others."""
        name = f"permits-{number}"
        permit = self.lossy.semaphore(name, LIMIT)
        others = [self.direct.semaphore(name, LIMIT) for _ in range(LIMIT if number % 4 == 3 else number % 4)]
        for other in others:
            other.acquire(0)
        answer = self._answer(self.wire.permits, lambda: permit.acquire(self._timeout(number)), rounds)
        self._judge_acquire(name, answer, taken=len(others) == LIMIT, rounds=rounds)
        if answer is True:
            permit.release()
        for other in others:
            other.release()
        self._acquire_next(name, _All([self.direct.semaphore(name, LIMIT) for _ in range(LIMIT)]), rounds)

    def release(self, number: int, rounds: _Rounds) -> None:
        """Lose the reply of a release."""
        name = f"released-{number}"
        lock = self.lossy.lock(name)
        lock.acquire(0)
        answer = self._answer(self.wire.gives, lock.release, rounds)
        if answer not in (True, NETWORK_ERROR):
            rounds.wrong_answers.append(f"{name}: it was released, and the answer was {_described(answer)}")
        self._acquire_next(name, self.direct.lock(name), rounds)

    def extend(self, number: int, rounds: _Rounds) -> None:
        """Lose the reply of an extend."""
        name = f"extended-{number}"
        lock = self.lossy.lock(name, SHORT)
        lock.acquire(0)
        before = self._remaining(name)
        answer = self._answer(self.wire.extends, lambda: lock.extend(MORE), rounds)
        requested = {"to": MORE, "by": before / 1000 + MORE, "again": SHORT}[self.contender.extends] * 1000
        excess = self._remaining(name) - requested
        if isinstance(answer, Exception):
            rounds.wrong_answers.append(f"{name}: it was extended, and the answer was {_described(answer)}")
        rounds.longest = max(rounds.longest, excess)
        if excess > 1:
            rounds.longer.append(f"{name}: requested {requested:.0f} ms, got {excess:.0f} ms more")
        lock.release()

    def left(self) -> list[str]:
        """Wait for background cleanup to finish; return what still holds something."""
        until = time.monotonic() + self._rest
        while (left := self.contender.left(self.server.admin)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def _answer(self, words: frozenset[str], call: Callable[[], object], rounds: _Rounds) -> object:
        """Make the call with its reply lost.

        Return its result, the exception, or `NETWORK_ERROR` for a network error.
        """
        fault = self.proxy.lose_reply(Wire.match(words))
        begun = time.monotonic()
        try:
            answer = call()
        except Exception as error:  # noqa: BLE001 -- a contender may raise anything
            answer = NETWORK_ERROR if _is_of_network(error) else error
            rounds.network_errors += answer is NETWORK_ERROR
        rounds.answered = max(rounds.answered, time.monotonic() - begun)
        fault.clear()
        rounds.tried += 1
        rounds.not_lost += not fault.happened
        return answer

    def _judge_acquire(self, name: str, answer: object, *, taken: bool, rounds: _Rounds) -> None:
        if answer is NETWORK_ERROR:
            return
        if taken and answer is not False:
            rounds.wrong_answers.append(f"{name}: it was held, and the answer was {_described(answer)}")
        elif not taken and answer is not True:
            rounds.wrong_answers.append(f"{name}: it was free, and the answer was {_described(answer)}")

    def _acquire_next(self, name: str, lock: Lock, rounds: _Rounds) -> None:
        """Check that the next caller acquires at once; if not, record how long it took."""
        begun = time.monotonic()
        acquired = lock.acquire(0)
        if not acquired:
            rounds.refused.append(f"{name}: all was released, and the next caller could not acquire")
            until = begun + (REST if self.contender.is_ours else 0)
            while not (acquired := lock.acquire(0)) and time.monotonic() < until:
                time.sleep(0.005)
            rounds.free_again = max(rounds.free_again, time.monotonic() - begun if acquired else 0)
        if acquired:
            lock.release()

    def _timeout(self, number: int) -> float:
        """Return the timeout of a round.

        Every second caller waits, where the contender supports timeouts this short; every fourth finds the lock held.
        """
        wait = WAIT if number % 4 == 3 else FREE_WAIT if self.contender.is_ours else RIVALS_WAIT
        return wait if number % 2 and self.contender.shortest_wait <= wait else 0

    @property
    def _rest(self) -> float:
        return REST if self.contender.is_ours else RIVALS_REST

    def _remaining(self, name: str) -> float:
        return self.contender.remaining(self.server.admin, name)


class _All:
    """All permits of a semaphore.

    A single leaked permit leaves the others available, so only acquiring all of them shows it.
    """

    def __init__(self, permits: list[Lock]) -> None:
        self._permits = permits

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire all permits one by one; release them again if one is missing."""
        acquired = []
        for permit in self._permits:
            if not permit.acquire(timeout):
                break
            acquired.append(permit)
        if len(acquired) < len(self._permits):
            for permit in acquired:
                permit.release()
        return len(acquired) == len(self._permits)

    def release(self) -> bool:
        return all([permit.release() for permit in self._permits])  # noqa: C419 -- release each of them

    def extend(self, seconds: float) -> None:
        for permit in self._permits:
            permit.extend(seconds)


@contextlib.contextmanager
def _clients(contender: Contender) -> Iterator[_Clients]:
    with (
        ServerController() as server,
        FaultProxy(server.url, record=False) as proxy,
        contender.client(proxy.url) as lossy,
        contender.client(server.url) as direct,
    ):
        for client in (direct, lossy):  # load every script into the server and connect the clients
            lock = client.lock("warm", LEASE)
            lock.acquire(0)
            if contender.extends:
                lock.extend(LEASE)
            lock.release()
        yield _Clients(contender, server, proxy, contender.wire(), lossy, direct)


def _is_of_network(error: Exception) -> bool:
    """Return whether the error is a plain network error, by class name: each library has classes of its own."""
    return any("Connection" in kind.__name__ or "Timeout" in kind.__name__ for kind in type(error).__mro__)


def _described(answer: object) -> str:
    """Shorten an answer: error texts can be long and name sockets that no longer exist."""
    return type(answer).__name__ if isinstance(answer, Exception) else repr(answer)


def _acquired(rounds: _Rounds, left: list[str]) -> Figure:
    return rounds.figure("R4", "lost reply of acquire", "orphans", rounds.orphans(left), len(left))


def _permitted(rounds: _Rounds, left: list[str]) -> Figure:
    return rounds.figure("R7", "lost reply of a semaphore's acquire", "leaked permits", rounds.orphans(left), len(left))


def _released(rounds: _Rounds, left: list[str]) -> Figure:
    return rounds.figure(
        "R5",
        "lost reply of release",
        "wrong errors",
        rounds.wrong_answers,
        len(rounds.wrong_answers),
        orphans=len(left),
    )


def _extended(rounds: _Rounds, left: list[str]) -> Figure:  # noqa: ARG001 -- only durations count here
    wrong, most = rounds.longer + rounds.wrong_answers, {"longest excess, ms": round(rounds.longest, 1)}
    return rounds.figure("R6", "lost reply of extend", "leases too long", wrong, len(rounds.longer), **most)


_KINDS: tuple[tuple[Callable[[_Clients, int, _Rounds], None], Callable[[_Rounds, list[str]], Figure]], ...] = (
    (_Clients.acquire, _acquired),
    (_Clients.release, _released),
    (_Clients.extend, _extended),
    (_Clients.permit, _permitted),
)
"""What is tried, and how its results become a figure."""
