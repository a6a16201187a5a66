"""The driver of the sync colour; what _drivers/sync/driver.py is."""

from __future__ import annotations

import itertools
from math import inf
from typing import TypeVar, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.timeouts import PAUSES, RETRY_FOR, UNDO_WAIT
from handfast._engine.effects import Answer, Call
from handfast._engine.effects import Steps as Protocol
from handfast._engine.resp import ErrorReply
from handfast._engine.server_errors import is_transient, refusal
from handfast._protocol.acquire import Attempt, Grant, acquire, cancel, try_acquire
from handfast._protocol.lease import LeaseState, release
from handfast.errors import AcquireTimeout, HandfastError, NotHeld, ServerRefused
from handfast_lab.simulator.client import Client, Watcher
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.threads.keeper import Renewer
from handfast_lab.simulator.threads.session import Session
from handfast_lab.simulator.world import Process, Steps

__all__ = ["ThreadClient"]

T = TypeVar("T")


class ThreadClient(Client):
    """The sync driver."""

    def __init__(
        self, process: Process, network: Network, watcher: Watcher, response_timeout: float, places: int
    ) -> None:
        super().__init__(process, network, watcher, response_timeout)
        self._home = b"home:" + process.name.encode()
        self._count = 0
        self._idle: list[Session] = []
        self._places = places
        self._keeper = Renewer(self, Session(self, self._home, b"", self.revoked))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background any more."""
        return not self._keeper.errands

    def watch(self, holding: LeaseState) -> None:
        """Have the keeper keep it."""
        self._keeper.watch(holding)

    def wait(self, attempt: Attempt, timeout: float | None) -> Steps[LeaseState]:
        """Wait for a lease."""
        until = inf if timeout is None else self.monotonic() + timeout
        try:
            grant, entered = yield from self._enter(attempt, until)
            if entered:
                try:
                    grant = yield from self._run(acquire(attempt, until), attempt.want.name, until)
                finally:
                    self._places += 1
        except (RedisConnectionError, RedisTimeoutError) as error:
            attempt.unanswered = True
            if self.monotonic() >= until and isinstance(error, RedisTimeoutError):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if grant is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return self.held(attempt, grant)

    def ask_once(self, attempt: Attempt) -> Steps[LeaseState | None]:
        """Ask once for a lease."""
        grant = yield from self._run(try_acquire(attempt), attempt.want.name)
        if grant is None:
            yield from self.undo(attempt)
            return None
        return self.held(attempt, grant)

    def undo(self, attempt: Attempt) -> Steps[None]:
        """Leave nothing of an attempt behind."""
        if attempt.pending and self.reached:
            holding = self.ledger.find(attempt.token)
            if holding is not None:
                self.ledger.drop(holding)
                holding.given_up = True
            call = attempt.want.cancel(attempt.token)
            if attempt.unanswered:
                self._keeper.clean_up_later(call)
            else:
                yield from self._clean_up(cancel(attempt), call, attempt.want.name)

    def release(self, holding: LeaseState, until: float = inf) -> Steps[bool]:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        name = holding.permits.name
        try:
            lost = holding.lost(self.monotonic())
            self.ledger.drop(holding)
            released = yield from self._run(release(holding), name, until)
        except (RedisError, HandfastError):
            self._keeper.clean_up_later(holding.permits.release(holding.token))
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
        self.ledger.drop(holding)
        yield from self._clean_up(release(holding), holding.permits.release(holding.token), name)
        holding.given_up = True
        raise error

    def leave(self, holding: LeaseState, *, failed: bool) -> Steps[bool]:
        """Release at the end of a block, which may have failed; False when the caller is to hear of a loss."""
        if holding.lost(self.monotonic()) and not holding.given_up:
            self.ledger.drop(holding)
            self._keeper.clean_up_later(holding.permits.release(holding.token))
            holding.given_up = True
            return failed
        try:
            until = self.monotonic() + UNDO_WAIT if failed else inf
            return (yield from self.release(holding, until)) or failed
        except (RedisError, HandfastError):
            if not failed:
                raise
            holding.given_up = True
            return True

    def change(self, holding: LeaseState, steps: Protocol[bool], what: str) -> Steps[bool]:
        """Change a lease; False when it was lost."""
        if (yield from self._run(steps, holding.permits.name, holding.deadline)) and holding.loss is None:
            self._keeper.tick()
            self.watcher.believes(self, holding)
            return True
        if self.ledger.find(holding.token) is holding:
            self.lose(holding, f"the server no longer had it when it was to be {what}")
        if holding.loss is None:
            raise NotHeld(holding.permits.name)
        return False

    def ask(self, steps: Protocol[T], name: str) -> Steps[T]:
        """Perform a protocol that leaves nothing behind."""
        return self._run(steps, name)

    def close(self) -> Steps[None]:
        """Close the sessions and end the keeper."""
        self.closed = True
        self._keeper.stop()
        while self._idle:
            self._idle.pop().close()
        yield self.world.now

    def _enter(self, attempt: Attempt, until: float) -> Steps[tuple[Grant | None, bool]]:
        if self._take_place():
            return None, True
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            grant = yield from self._run(try_acquire(attempt), attempt.want.name, until)
            if grant is not None:
                return grant, False
            yield self.world.now + max(0.0, min(pause, until - self.monotonic()))
            if self._take_place():
                return None, True
            if self.monotonic() >= until:
                break
        return None, False

    def _take_place(self) -> bool:
        taken = self._places > 0
        self._places -= taken
        return taken

    def _take(self) -> Session:
        if self._idle:
            return self._idle.pop()
        self._count += 1
        inbox = b"inbox:%b:%d" % (self.process.name.encode(), self._count)
        return Session(self, inbox, b"%b %b %b" % (inbox, self._home, self.process.name.encode()))

    def _give(self, session: Session) -> None:
        self._idle.append(session)
        if self.closed:
            while self._idle:
                self._idle.pop().close()

    def _run(self, steps: Protocol[T], name: str, until: float = inf) -> Steps[T]:
        session = self._take()
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Call):
                    try:
                        answer = yield from self._call(session, effect, name, until)
                    except ServerRefused as error:
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(answer)
                else:
                    effect = steps.send((yield from session.park(effect)))
        except StopIteration as end:
            return cast("T", end.value)
        except HandfastError:
            raise
        except BaseException:
            session.close()
            raise
        finally:
            self._give(session)

    def _call(self, session: Session, call: Call, name: str, until: float) -> Steps[Answer]:
        within = self.response_timeout
        if until != inf:
            now = self.monotonic()
            if until <= now:
                until = now + UNDO_WAIT
            within = min(within, until - now)
        try:
            outcome = yield from session.call(call, within)
        except (RedisConnectionError, RedisTimeoutError) as error:
            trouble: ErrorReply | Exception = error
        else:
            if not isinstance(outcome, ErrorReply):
                return outcome
            trouble = outcome
        return (yield from self._insist(session, call, name, until, trouble))

    def _insist(
        self, session: Session, call: Call, name: str, until: float, trouble: ErrorReply | Exception
    ) -> Steps[Answer]:
        unheard = False
        give_up = min(self.monotonic() + RETRY_FOR, until)
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            hopeless = self.monotonic() + pause >= give_up
            if isinstance(trouble, Exception):
                unheard = True
                if hopeless or not self.reached:
                    raise trouble
            elif hopeless or not is_transient(trouble):
                raise refusal(trouble, name, again=unheard)
            session.close()
            yield self.world.now + pause
            try:
                outcome = yield from session.call(call, min(self.response_timeout, give_up - self.monotonic()))
            except (RedisConnectionError, RedisTimeoutError) as error:
                trouble = error
            else:
                if not isinstance(outcome, ErrorReply):
                    return outcome._replace(again=unheard)
                trouble = outcome
        raise AssertionError("the pauses never end")

    def _clean_up(self, steps: Protocol[object], call: Call, name: str) -> Steps[None]:
        try:
            yield from self._run(steps, name, until=self.monotonic() + UNDO_WAIT)
        except (RedisError, HandfastError):
            self._keeper.clean_up_later(call)
