"""The driver of the asyncio colour, and its keeper; what _drivers/aio/driver.py, performing.py and keeper.py are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.aio.renewer import ERRAND_PAUSE, SHORTEST_NAP
from handfast._drivers.timeouts import CLEANUP_FOR, PAUSES, RETRY_FOR, UNDO_WAIT
from handfast._engine.effects import Answer, Call, Park
from handfast._engine.effects import Steps as Protocol
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_failover, is_transient, refusal
from handfast._protocol.acquire import Attempt, Grant, acquire, try_acquire
from handfast._protocol.lease import LeaseState, release
from handfast.errors import AcquireTimeout, HandfastError, NotHeld, ServerRefused
from handfast_lab.simulator.client import Client, Watcher
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.tasks.coming import Coming
from handfast_lab.simulator.tasks.session import Session
from handfast_lab.simulator.world import Process, Steps, Task

__all__ = ["TaskClient"]

T = TypeVar("T")


class TaskClient(Client):
    """The asyncio driver, and its keeper."""

    def __init__(self, process: Process, network: Network, watcher: Watcher, response_timeout: float) -> None:
        super().__init__(process, network, watcher, response_timeout)
        self._session = Session(self, b"inbox:" + process.name.encode(), self.ask_for_all)
        self._renewals: dict[bytes, Coming] = {}
        self._errands: set[Coming] = set()
        self._alarms = 0
        self._wakes_at = inf
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background any more."""
        return not self._errands

    def later(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        """Do this on the loop after so many seconds."""
        self.world.at(self.world.now + seconds, self.process.meet, action, *args)

    # --- the driver

    def wait(self, attempt: Attempt, timeout: float | None) -> Steps[LeaseState]:
        """Wait for a lease."""
        until = inf if timeout is None else self.monotonic() + timeout
        try:
            holding = yield from self._hold(attempt, acquire(attempt, until), until)
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.unanswered = True
            if self.monotonic() >= until and isinstance(error, RedisTimeoutError):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if holding is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return holding

    def ask_once(self, attempt: Attempt) -> Steps[LeaseState | None]:
        """Ask once for a lease."""
        holding = yield from self._hold(attempt, try_acquire(attempt))
        if holding is None:
            yield from self.undo(attempt)
        return holding

    def undo(self, attempt: Attempt) -> Steps[None]:
        """Leave nothing of an attempt behind."""
        if not attempt.pending or not self.reached or self._ended:
            return
        holding = self.ledger.find(attempt.token)
        if holding is not None:
            self._forget(holding)
            holding.given_up = True
        errand = self._run_errand(attempt.want.cancel(attempt.token))
        if not attempt.unanswered:
            yield from self._see_to(errand)

    def release(self, holding: LeaseState) -> Steps[bool]:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        if self._ended:
            raise HandfastError("this client was closed; make a new one", name=holding.permits.name)
        lost = holding.lost(self.monotonic())
        self._forget(holding)
        try:
            released = yield from self._perform(release(holding), holding.permits.name)
        except (RedisConnectionError, RedisTimeoutError):
            self._run_errand(holding.permits.release(holding.token))
            raise
        except GeneratorExit:
            raise
        except BaseException as ended:  # noqa: BLE001 -- it is raised again below, after the cleaning up
            error = ended
        else:
            holding.given_up = True
            if not released and not lost:
                self.lose(holding, "the server no longer had it when it was to be released")
            return released and not lost
        yield from self._see_to(self._run_errand(holding.permits.release(holding.token)))
        raise error

    def leave(self, holding: LeaseState, *, failed: bool) -> Steps[bool]:
        """Release at the end of a block, which may have failed; False when the caller is to hear of a loss."""
        if not failed and not holding.lost(self.monotonic()):
            return (yield from self.release(holding))
        if not holding.given_up:
            self._forget(holding)
            holding.given_up = True
            if self._ended:
                return failed
            errand = self._run_errand(holding.permits.release(holding.token))
            if holding.loss is None:
                yield from self._see_to(errand)
        return failed

    def change(self, holding: LeaseState, steps: Protocol[bool], what: str) -> Steps[bool]:
        """Change a lease; False when it was lost."""
        if (yield from self._perform(steps, holding.permits.name, holding.deadline)) and holding.loss is None:
            self.watcher.believes(self, holding)
            return True
        if self.ledger.find(holding.token) is holding:
            self.lose(holding, f"the server no longer had it when it was to be {what}")
        if holding.loss is None:
            raise NotHeld(holding.permits.name)
        return False

    def ask(self, steps: Protocol[T], name: str) -> Steps[T]:
        """Perform a protocol that leaves nothing behind."""
        return self._perform(steps, name)

    def close(self) -> Steps[None]:
        """Close the connection."""
        self.closed = True
        until = self.monotonic() + UNDO_WAIT
        error = HandfastError("this client was closed meanwhile")
        self._session.ears.refuse(error)
        while not (self._session.is_idle and self.is_idle) and self.monotonic() < until:
            yield self.world.now + 0.05
        for holding in self.ledger.all():
            self._forget(holding)
        self._session.end(error)
        self._ended = True

    def _hold(self, attempt: Attempt, steps: Protocol[Grant | None], until: float = inf) -> Steps[LeaseState | None]:
        ears = self._session.ears
        ears.expect(attempt.token)
        try:
            grant = yield from self._perform(steps, attempt.want.name, until)
        finally:
            taken = ears.forget(attempt.token)
        if grant is None:
            return None
        holding = self.held(attempt, grant)
        if taken is not None:
            self.lose(holding, taken)
        return holding

    # --- performing

    def _perform(self, steps: Protocol[T], name: str, until: float = inf) -> Steps[T]:
        if self._ended:
            raise HandfastError("this client was closed; make a new one", name=name)
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Park):
                    effect = steps.send((yield from self._session.ears.park(effect)))
                    continue
                try:
                    answer = yield from self._call(effect, name, until)
                except ServerRefused as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as end:
            return cast("T", end.value)

    def _call(self, call: Call, name: str, until: float) -> Steps[Answer]:
        session = self._session
        asked_at, breaks = self.monotonic(), session.breaks
        coming = session.send(call)
        outcome = yield from coming.wait(inf if until == inf else self.world.now + self._left(until))
        if isinstance(outcome, Answer):
            return outcome if session.breaks == breaks else outcome._replace(again=True)
        give_up = self.monotonic() + min(RETRY_FOR, self._left(until))
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            if not is_transient(outcome) or self.monotonic() + pause >= give_up:
                raise refusal(outcome, name, again=session.breaks != breaks)
            if is_failover(outcome):
                session.refresh(asked_at)
            yield self.world.now + pause
            asked_at, refused = self.monotonic(), outcome
            try:
                outcome = yield from session.send(call).wait(self.world.now + give_up - self.monotonic())
            except (RedisConnectionError, RedisTimeoutError) as error:
                raise refusal(refused, name, again=True) from error
            if isinstance(outcome, Answer):
                return outcome._replace(again=session.breaks != breaks)
        raise AssertionError("the pauses never end")

    def _left(self, until: float) -> float:
        left = until - self.monotonic()
        return left if left > 0 else UNDO_WAIT

    # --- the keeper

    def watch(self, holding: LeaseState) -> None:
        """Have the keeper keep it."""
        self.ledger.add(holding)
        if holding.due_at < self._wakes_at:
            self._wake_at(holding.due_at)

    def ask_for_all(self) -> None:
        """While nobody listened, a lease may have been taken away: ask for each."""
        for holding in self.ledger.all():
            if holding.permits.renew:
                holding.due_at = self.monotonic()
        if self.ledger:
            self._wake_at(self.monotonic())

    def _forget(self, holding: LeaseState) -> None:
        self.ledger.drop(holding)
        renewal = self._renewals.pop(holding.token, None)
        if renewal is not None:
            renewal.withdraw()

    def _wake_at(self, moment: float) -> None:
        self._wakes_at = moment
        self._alarms += 1
        self.later(max(0.0, moment - self.monotonic()), self._alarm, self._alarms)

    def _alarm(self, number: int) -> None:
        if number == self._alarms:
            self._look()

    def _look(self) -> None:
        self._wakes_at = inf
        now = self.monotonic()
        for holding in self.ledger.over(now):
            self._forget(holding)
            self.announce(holding)
        for holding in () if self.closed else self.ledger.due(now):
            if holding.token not in self._renewals:
                self._renew(holding)
        due_at = self.ledger.next_due()
        if due_at is not None and due_at < self._wakes_at:
            self._wake_at(max(due_at, now + SHORTEST_NAP))

    def _renew(self, holding: LeaseState) -> None:
        renewal = self._session.send(holding.permits.renew_for(holding.token, holding.permits.ttl_ms))
        self._renewals[holding.token] = renewal
        renewal.tell(self._settle, holding, self.monotonic(), renewal)

    def _settle(self, holding: LeaseState, asked_at: float, renewal: Coming) -> None:
        if renewal.withdrawn:
            return
        self._renewals.pop(holding.token, None)
        if renewal.error is not None:
            return
        outcome = renewal.value
        if isinstance(outcome, ErrorReply):
            if is_failover(outcome):
                self._session.refresh(asked_at)
        elif outcome.reply[0] == b"renewed":
            holding.renewed(outcome.sent_at, outcome.reply[1])
            if self.ledger.find(holding.token) is holding:
                self.watcher.believes(self, holding)
        elif self.ledger.find(holding.token) is holding:
            self.lose(holding, "the server no longer had it when it was to be renewed")

    # --- errands

    def _run_errand(self, call: Call) -> Coming:
        errand = Coming(self.process)
        self._errands.add(errand)
        self._send_errand(call, self.monotonic() + CLEANUP_FOR, errand)
        return errand

    def _send_errand(self, call: Call, until: float, errand: Coming) -> None:
        sent = self._session.send(call, max(0.0, until - self.monotonic()))
        sent.tell(self._settle_errand, call, until, errand, sent)

    def _settle_errand(self, call: Call, until: float, errand: Coming, sent: Coming) -> None:
        outcome = sent.value
        if sent.error is not None or self.monotonic() >= until:
            pass
        elif isinstance(outcome, ErrorReply):
            self.later(ERRAND_PAUSE, self._send_errand, call, until, errand)
            return
        elif isinstance(outcome, Answer) and outcome.reply[0] != b"lost" and outcome.reply[1]:
            self._send_errand(call, until, errand)
            return
        self._errands.discard(errand)
        errand.settle(outcome)

    def _see_to(self, errand: Coming) -> Steps[None]:
        if not errand.done:
            task = cast("Task", self.world.current)
            errand.tell(task.wake, task.turn, None)
            yield self.world.now + UNDO_WAIT
