"""A client of the sync colour in virtual time: a connection for each caller that waits, and a keeper with its own.

The counterpart of drivers/sync; what it says there about why holds here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar, cast

from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as ServerSilent

from holdfast.drivers.patience import ERRAND, PATIENCE, PAUSES, UNDO_PATIENCE
from holdfast.drivers.sync.keeper import TICK
from holdfast.protocol.acquiring import Attempt, Grant, acquire, cancel, try_acquire
from holdfast.protocol.holding import Holding, release
from holdfast.simulator.client import SHORTEST_LIMIT, Client, Watcher
from holdfast.simulator.network import Link, Network, Request
from holdfast.simulator.world import Process, Steps, Task
from holdfast.wire.effects import Answer, Bell, Call, Park, Waking
from holdfast.wire.effects import Steps as Protocol
from holdfast.wire.refusals import forgotten, passing, refusal
from holdfast.wire.resp import ErrorReply, Push
from holdfast.wire.rings import Granted, Revoked, read_ring
from holdfast.words.errors import AcquireTimeout, HoldfastError, NotHeld, ServerRefused

__all__ = ["ThreadClient"]

T = TypeVar("T")

_OPENED = object()


class Session:
    """One connection and its inbox."""

    def __init__(
        self, client: ThreadClient, inbox: bytes, address: bytes, on_revoked: Callable[[bytes, str], None] | None = None
    ) -> None:
        self._client = client
        self._world = client.world
        self._inbox = inbox
        self._address = address
        self._on_revoked = on_revoked
        self._link: Link | None = None
        self._fresh: Link | None = None
        self._bells: dict[bytes, Bell] = {}
        self._waiter: Task | None = None
        self._trouble: Exception | None = None
        self._replies: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended while nobody used it."""
        return self._link is not None and self._trouble is not None

    def open(self, within: float) -> Steps[None]:
        """Connect and subscribe to the inbox."""
        link = self._fresh = self._client.network.open(self._client.process, self._inbox, self)
        outcome = yield from self._await(within)
        self._fresh = None
        if outcome is not _OPENED:
            self._client.network.close(link)
            raise outcome or ServerSilent("the server did not answer in time")
        self._client.reached = True
        self._link, self._trouble = link, None
        self._bells.clear()
        self._replies.clear()

    def close(self) -> None:
        """Let go of the connection, whatever state it is in."""
        for link in (self._link, self._fresh):
            if link is not None:
                self._client.network.close(link)
        self._link = self._fresh = None

    def call(self, call: Call, within: float) -> Steps[Answer | ErrorReply]:
        """Run a script and wait that many seconds for its reply, opening the session first if need be."""
        if self._link is None:
            yield from self.open(within)
        sent_at = self.send([call], sources=False)
        (reply,) = yield from self.replies(1, within)
        if type(reply) is ErrorReply and forgotten(reply):
            sent_at = self.send([call], sources=True)
            (reply,) = yield from self.replies(1, within)
        return reply if type(reply) is ErrorReply else Answer(sent_at, reply)

    def send(self, calls: list[Call], *, sources: bool) -> float:
        """Send several scripts at once and say when."""
        link = cast("Link", self._link)
        sent_at = self._client.monotonic()
        for call in calls:
            self._client.network.send(link, Request(call, self._address, whole=sources))
        return sent_at

    def replies(self, count: int, within: float) -> Steps[list[Any]]:
        """The replies to what was sent, each within that many seconds."""
        while len(self._replies) < count:
            if self._trouble is None:
                outcome = yield from self._await(within)
            error = self._trouble or (
                None if outcome is not None else ServerSilent("the server did not answer in time")
            )
            if error is not None:
                self.close()
                raise error
        replies, self._replies = self._replies, []
        return replies

    def park(self, park: Park) -> Steps[Waking]:
        """Wait for the inbox to ring. A connection that breaks ends the wait too: whoever waits asks again then."""
        token, until = park
        while True:
            bell = self._bells.pop(token, None)
            now = self._client.monotonic()
            if bell is not None or now >= until:
                return Waking(now, bell)
            self._bells.clear()
            if self._trouble is None:
                yield from self._await(until - now, shortest=0.0)
            if self._trouble is not None:
                self.close()
                return Waking(self._client.monotonic(), None)

    def nudge_on_ring(self, task: Task) -> None:
        """Wake this task when something comes, as a poll does."""
        self._waiter = task

    # --- what comes

    def opened(self, link: Link) -> None:
        """It is there, and the inbox is subscribed to."""
        if link is self._fresh:
            self._wake(_OPENED)

    def answered(self, link: Link, request: Request, frame: Any) -> None:
        """The reply to a request."""
        del request
        if link is self._link:
            self._replies.append(frame)
            self._wake(frame)

    def heard(self, link: Link, payload: bytes) -> None:
        """Something was published to the inbox."""
        if link is not self._link:
            return
        match read_ring(Push([b"message", self._inbox, payload])):
            case Granted(token, bell):
                self._bells[token] = bell
            case Revoked(token, reason) if self._on_revoked is not None:
                self._on_revoked(token, reason)
        self._wake(payload)

    def broken(self, link: Link, error: Exception) -> None:
        """It is no more."""
        if link is self._link or link is self._fresh:
            self._trouble = error
            self._wake(error)

    def _wake(self, value: Any) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.come(value)

    def _await(self, seconds: float, shortest: float = SHORTEST_LIMIT) -> Steps[Any]:
        self._waiter = self._world.current
        try:
            return (yield self._world.now + max(seconds, shortest))
        finally:
            self._waiter = None


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
        self._keeper = Keeper(self, Session(self, self._home, b"", self.revoked))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background any more."""
        return not self._keeper.errands

    def watch(self, holding: Holding) -> None:
        """Have the keeper keep it."""
        self._keeper.watch(holding)

    def wait(self, attempt: Attempt, timeout: float | None) -> Steps[Holding]:
        """Wait for a lease."""
        until = inf if timeout is None else self.monotonic() + timeout
        try:
            grant, entered = yield from self._enter(attempt, until)
            if entered:
                try:
                    grant = yield from self._run(acquire(attempt, until), attempt.want.name, until)
                finally:
                    self._places += 1
        except (ServerGone, ServerSilent) as error:
            attempt.unanswered = True
            if self.monotonic() >= until and isinstance(error, ServerSilent):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if grant is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return self.held(attempt, grant)

    def ask_once(self, attempt: Attempt) -> Steps[Holding | None]:
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
                self._keeper.run_errand(call)
            else:
                yield from self._clean_up(cancel(attempt), call, attempt.want.name)

    def release(self, holding: Holding, until: float = inf) -> Steps[bool]:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        name = holding.permits.name
        try:
            lost = holding.lost(self.monotonic())
            self.ledger.drop(holding)
            released = yield from self._run(release(holding), name, until)
        except (ServerGone, ServerSilent):
            self._keeper.run_errand(holding.permits.release(holding.token))
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
        yield from self._clean_up(release(holding), holding.permits.release(holding.token), name)
        raise error

    def leave(self, holding: Holding, *, failed: bool) -> Steps[bool]:
        """Release at the end of a block, which may have failed; False when the caller is to hear of a loss."""
        if holding.lost(self.monotonic()) and not holding.given_up:
            self.ledger.drop(holding)
            holding.given_up = True
            self._keeper.run_errand(holding.permits.release(holding.token))
            return failed
        try:
            until = self.monotonic() + UNDO_PATIENCE if failed else inf
            return (yield from self.release(holding, until)) or failed
        except (RedisError, HoldfastError):
            if not failed:
                raise
            return True

    def change(self, holding: Holding, steps: Protocol[bool], what: str) -> Steps[bool]:
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
        except HoldfastError:
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
                until = now + UNDO_PATIENCE
            within = min(within, until - now)
        try:
            outcome = yield from session.call(call, within)
        except (ServerGone, ServerSilent) as error:
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
        give_up = min(self.monotonic() + PATIENCE, until)
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            hopeless = self.monotonic() + pause >= give_up
            if isinstance(trouble, Exception):
                unheard = True
                if hopeless or not self.reached:
                    raise trouble
            elif hopeless or not passing(trouble):
                raise refusal(trouble, name, again=unheard)
            session.close()
            yield self.world.now + pause
            try:
                outcome = yield from session.call(call, min(self.response_timeout, give_up - self.monotonic()))
            except (ServerGone, ServerSilent) as error:
                trouble = error
            else:
                if not isinstance(outcome, ErrorReply):
                    return outcome._replace(again=unheard)
                trouble = outcome
        raise AssertionError("the pauses never end")

    def _clean_up(self, steps: Protocol[object], call: Call, name: str) -> Steps[None]:
        try:
            yield from self._run(steps, name, until=self.monotonic() + UNDO_PATIENCE)
        except (RedisError, HoldfastError):
            self._keeper.run_errand(call)


class Keeper:
    """Renews what is in the ledger, and runs errands."""

    def __init__(self, client: ThreadClient, session: Session) -> None:
        self._client = client
        self._session = session
        self._sources = False
        self._wakes_at = inf
        self._stopping = False
        self._task = cast("Task", None)
        self._rung = False
        self._sleeps = False
        self._slept_at = 0.0
        self.errands: list[tuple[Call, float]] = []

    def watch(self, holding: Holding) -> None:
        """Keep this lease from now on."""
        self._client.ledger.add(holding)
        if holding.due_at < self._next_look():
            self._nudge()
        else:
            self.tick()

    def tick(self) -> None:
        """The real one looks at the ledger every tick; here only those are looks that may find something new."""
        if self._sleeps:
            moment = self._next_look() - self._client.process.offset
            if moment < inf:
                self._client.world.at(moment, self._client.process.meet, self._awake, self._task.turn)

    def _next_look(self) -> float:
        """When the real one would look next by itself."""
        if not self._sleeps or self._wakes_at == inf:
            return self._wakes_at
        return self._slept_at + math.ceil((self._client.monotonic() - self._slept_at) / TICK) * TICK

    def _awake(self, turn: int) -> None:
        if self._sleeps and self._task.turn == turn:
            self._sleeps = False
            self._task.wake(turn, None)

    def run_errand(self, call: Call) -> None:
        """Send this as soon as the server can be reached."""
        self.errands.append((call, self._client.monotonic() + ERRAND))
        self._nudge()

    def stop(self) -> None:
        """End; leases run out by themselves."""
        self._stopping = True
        self._nudge()

    def _nudge(self) -> None:
        if self._task is None and not self._stopping:
            self._task = self._client.process.begin(self._go_on())
            return
        self._rung = True
        if self._sleeps:
            world = self._client.world
            world.at(world.now, self._client.process.meet, self._awake, self._task.turn)

    def _go_on(self) -> Steps[None]:
        while not self._stopping:
            yield from self._sleep()
            yield from self._look()
        yield from self._finish_errands()
        self._session.close()

    def _sleep(self) -> Steps[None]:
        client, now = self._client, self._client.monotonic()
        busy = bool(client.ledger) or bool(self.errands)
        lazy = self._wakes_at != inf and not busy
        self._wakes_at = inf if lazy else now + TICK
        due = client.ledger.next_due()
        if due is not None:
            self._wakes_at = min(due, now + TICK)
        if not self._rung and self._wakes_at > now:
            self._sleeps, self._slept_at = True, now
            if self._session.is_open:
                self._session.nudge_on_ring(self._task)
            until = self._wakes_at
            if due is not None and due > until and not self.errands and self._session.is_open:
                until = due  # no look before that would find anything to do
            yield client.world.now + (until - now)
        self._sleeps = self._rung = False
        if self._session.is_broken:
            self._session.close()

    def _look(self) -> Steps[None]:
        client = self._client
        for holding in client.ledger.over(client.monotonic()):
            client.announce(holding)
        if (client.ledger or self.errands) and not self._session.is_open:
            try:
                yield from self._session.open(self._patience())
                for holding in client.ledger.all():
                    if holding.permits.renew:
                        holding.due_at = client.monotonic()
            except RedisError:
                pass
        if not self._session.is_open:
            client.ledger.due(client.monotonic())
            self.errands = [errand for errand in self.errands if client.monotonic() < errand[1]]
            return
        try:
            yield from self._renew()
            if self.errands and self._session.is_open:
                yield from self._do_errands()
        except RedisError:
            pass

    def _renew(self) -> Steps[None]:
        client = self._client
        due = client.ledger.due(client.monotonic())
        if due:
            within = self._patience()
            calls = [holding.permits.renew_for(holding.token, holding.permits.ttl_ms) for holding in due]
            sent_at = self._session.send(calls, sources=self._sources)
            self._settle(due, sent_at, (yield from self._session.replies(len(due), within)))

    def _settle(self, due: list[Holding], sent_at: float, replies: list[Any]) -> None:
        client = self._client
        self._sources = False
        for holding, reply in zip(due, replies, strict=True):
            if isinstance(reply, ErrorReply):
                if forgotten(reply):
                    self._sources, holding.due_at = True, client.monotonic()
                    continue
                if passing(reply):
                    self._session.close()
            elif reply[0] == b"renewed":
                holding.renewed(sent_at, reply[1])
                if client.ledger.find(holding.token) is holding:
                    client.watcher.believes(client, holding)
            elif client.ledger.find(holding.token) is holding:
                client.lose(holding, "the server no longer had it when it was to be renewed")

    def _do_errands(self) -> Steps[None]:
        errands = list(self.errands)
        within = self._patience()
        self._session.send([call for call, _ in errands], sources=True)
        replies = yield from self._session.replies(len(errands), within)
        for errand, reply in zip(errands, replies, strict=True):
            goes_on = isinstance(reply, ErrorReply) or (reply[0] != b"lost" and reply[1])
            if not goes_on or self._client.monotonic() >= errand[1]:
                self.errands.remove(errand)

    def _finish_errands(self) -> Steps[None]:
        client = self._client
        until = client.monotonic() + UNDO_PATIENCE
        while self.errands and client.monotonic() < until:
            try:
                if not self._session.is_open:
                    yield from self._session.open(until - client.monotonic())
                yield from self._do_errands()
            except RedisError:
                pass
            if self.errands:
                yield client.world.now + PAUSES[1]

    def _patience(self) -> float:
        holdings = self._client.ledger.all()
        ends = min((holding.deadline for holding in holdings if holding.permits.renew), default=inf)
        return min(self._client.response_timeout, ends - self._client.monotonic())
