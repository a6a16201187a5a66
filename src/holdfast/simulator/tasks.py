"""A client of the asyncio colour in virtual time: one connection for all its tasks, and a keeper that is a timer.

The counterpart of drivers/aio; what it says there about why holds here.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar, cast

from redis.exceptions import ConnectionError as ServerGone
from redis.exceptions import TimeoutError as ServerSilent

from holdfast.drivers.aio.keeper import ERRAND_PAUSE, SHORTEST_NAP
from holdfast.drivers.aio.session import TICKS
from holdfast.drivers.patience import ERRAND, PATIENCE, PAUSES, UNDO_PATIENCE, another
from holdfast.protocol.acquiring import Attempt, Grant, acquire, try_acquire
from holdfast.protocol.holding import Holding, release
from holdfast.simulator.client import Client, Watcher
from holdfast.simulator.network import Link, Network, Request
from holdfast.simulator.world import Process, Steps, Task, World
from holdfast.wire.effects import Answer, Bell, Call, Park, Waking
from holdfast.wire.effects import Steps as Protocol
from holdfast.wire.refusals import elsewhere, forgotten, passing, refusal
from holdfast.wire.resp import ErrorReply, Push
from holdfast.wire.rings import Granted, Revoked, read_ring
from holdfast.words.errors import AcquireTimeout, HoldfastError, NotHeld, ServerRefused

__all__ = ["TaskClient"]

T = TypeVar("T")

Outcome = Answer | ErrorReply


class Coming:
    """What a future is: a result to come, and who is to be told. They are told in a turn of their own."""

    __slots__ = ("_told", "done", "error", "process", "value", "withdrawn")

    def __init__(self, process: Process) -> None:
        self.process = process
        self.done = self.withdrawn = False
        self.value: Any = None
        self.error: Exception | None = None
        self._told: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def tell(self, action: Callable[..., object], *args: Any) -> None:
        """Do this when it is done."""
        if self.done:
            self._soon(action, args)
        else:
            self._told.append((action, args))

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Here it is."""
        if not self.done:
            self.done, self.value, self.error = True, value, error
            for action, args in self._told:
                self._soon(action, args)

    def withdraw(self) -> None:
        """Nobody wants it any more."""
        self.withdrawn = not self.done
        self.settle()

    def wait(self, until: float = inf) -> Steps[Any]:
        """Wait for it; ServerSilent if it did not come by that moment."""
        if not self.done:
            task = cast("Task", self.process.world.current)
            self.tell(task.wake, task.turn, None)
            try:
                yield until
            except BaseException:
                self.withdraw()
                raise
            if not self.done:
                self.withdraw()
                raise ServerSilent("the server did not answer in time")
        if self.error is not None:
            raise self.error
        return self.value

    def _soon(self, action: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.process.world.at(self.process.world.now, self.process.meet, action, *args)


class _Sending:
    """A script on its way, and who waits for its reply."""

    __slots__ = ("call", "coming", "give_up_at", "number", "patience", "sent_at", "source", "whole")

    def __init__(self, call: Call, coming: Coming, patience: float) -> None:
        self.call = call
        self.coming = coming
        self.patience = patience
        self.give_up_at = inf
        self.source = self.whole = False
        self.number = 0
        self.sent_at = 0.0


class _Gap:
    """Instead of a bell: the line was down, and something may have been missed."""


_GAP = _Gap()


class Ears:
    """One for each token that is expected."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client
        self.heard: dict[bytes, Any] = {}
        self.taken: dict[bytes, str] = {}
        self._refusal: Exception | None = None

    def expect(self, token: bytes) -> None:
        """Keep what rings for this token."""
        self.heard[token] = None

    def forget(self, token: bytes) -> str | None:
        """Listen for this token no more. The reason, if it was granted and taken away before anybody could see to it."""
        self.heard.pop(token, None)
        return self.taken.pop(token, None)

    def park(self, park: Park) -> Steps[Waking]:
        """Wait for the ring."""
        token, until = park
        client = self._client
        if self._refusal is not None:
            raise another(self._refusal)
        self.taken.pop(token, None)
        heard = self.heard[token]
        left = until - client.monotonic()
        if heard is None and left > 0:
            ear = self.heard[token] = Coming(client.process)
            task = cast("Task", client.world.current)
            ear.tell(task.wake, task.turn, None)
            yield client.world.now + left
            if ear.error is not None:
                raise ear.error
            heard = ear.value
            ear.settle()
        self.heard[token] = None
        if isinstance(heard, Bell):
            return Waking(client.monotonic(), heard)
        self.taken.pop(token, None)
        return Waking(client.monotonic(), None)

    def granted(self, token: bytes, bell: Bell) -> None:
        """It rang for this token."""
        self.taken.pop(token, None)
        heard = self.heard.get(token, _GAP)
        if isinstance(heard, Coming):
            heard.settle(bell)
        elif token in self.heard:
            self.heard[token] = bell

    def revoked(self, token: bytes, reason: str) -> None:
        """The grant of this token was taken away again."""
        if token in self.heard:
            self.taken[token] = reason

    def gap(self) -> None:
        """The line was down: wake everybody, and whoever is about to wait."""
        for token, heard in list(self.heard.items()):
            if isinstance(heard, Coming):
                heard.settle()
            self.heard[token] = heard or _GAP

    def refuse(self, error: Exception) -> None:
        """Let everybody fail who waits, now or later."""
        self._refusal = error
        for heard in list(self.heard.values()):
            if isinstance(heard, Coming):
                heard.settle(error=another(error))


class Session:
    """The one session of a client."""

    def __init__(self, client: TaskClient, inbox: bytes) -> None:
        self._client = client
        self._world: World = client.world
        self._inbox = inbox
        self._address = b"%b %b %b" % (inbox, inbox, client.process.name.encode())
        self.ears = Ears(client)
        self._link: Link | None = None
        self._opened_at = -inf
        self._greeting: Coming | None = None
        self._connecting = False
        self._outbox: deque[_Sending] = deque()
        self._sent: deque[_Sending] = deque()
        self._count = 0
        self._sources: dict[str, int] = {}
        self._tries = 0
        self._ticks = False
        self._silent_ticks = 0
        self._ended = False
        self.breaks = 0
        """How many connections have broken so far. Whatever waited for its reply then is sent a second time."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None and self._greeting is None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not (self._sent or self._outbox or self.ears.heard)

    def send(self, call: Call, patience: float = PATIENCE) -> Coming:
        """Send a script. Its reply, or the network's error once a break has lasted for ``patience`` seconds, is to come."""
        coming = Coming(self._client.process)
        self._outbox.append(_Sending(call, coming, patience))
        self._stir()
        return coming

    def refresh(self, asked_at: float) -> None:
        """Find the server anew, unless that was done since that moment."""
        if self.is_open and self._opened_at <= asked_at:
            self._break(ServerGone("the server is no primary any more"))

    def end(self, error: Exception) -> None:
        """Let go of the connection. Whoever still waits for something gets the error."""
        self._ended = True
        self._drop_link()
        self.ears.refuse(error)
        self._fail(error, inf)

    # --- what comes

    def opened(self, link: Link) -> None:
        """It is there, and the inbox is subscribed to."""
        if link is self._link and self._greeting is not None:
            self._silent_ticks = 0
            self._greeting.settle(value=True)

    def answered(self, link: Link, request: Request, frame: Any) -> None:
        """The reply to a request."""
        if link is not self._link:
            return
        self._silent_ticks = 0
        sending = self._sent.popleft()
        if sending.call is not request.call:
            raise AssertionError("a reply to another request")
        if sending.coming.done:
            return
        if type(frame) is not ErrorReply:
            self._tries = 0
            sending.coming.settle(Answer(sending.sent_at, frame))
        elif forgotten(frame) and not sending.whole:
            self._send_whole(sending)
        else:
            sending.coming.settle(frame)

    def heard(self, link: Link, payload: bytes) -> None:
        """Something was published to the inbox."""
        if link is not self._link:
            return
        self._silent_ticks = 0
        match read_ring(Push([b"message", self._inbox, payload])):
            case Granted(token, bell):
                self.ears.granted(token, bell)
            case Revoked(token, reason):
                self.ears.revoked(token, reason)
                self._client.revoked(token, reason)

    def broken(self, link: Link, error: Exception) -> None:
        """It is no more."""
        if link is self._link:
            self._break(ServerGone(f"the connection to the server broke: {error}"))

    # --- sending

    def _stir(self) -> None:
        if self._ended:
            self._fail(ServerGone("the session with the server is over"), inf)
        elif self._connecting:
            return
        elif self._link is None:
            self._connecting = True
            self._client.process.begin(self._connect())
        else:
            self._flush()

    def _flush(self) -> None:
        link, client = self._link, self._client
        while self._outbox and self.is_open and link is not None:
            sending = self._outbox.popleft()
            if sending.coming.done:
                continue
            self._count += 1
            sending.whole, sending.source = sending.source, False
            sending.number, sending.sent_at = self._count, client.monotonic()
            self._sent.append(sending)
            client.network.send(link, Request(sending.call, self._address, whole=sending.whole))
        if self._sent and not self._ticks:
            self._tick()

    def _send_whole(self, sending: _Sending) -> None:
        digest = sending.call.head.digest
        if self._sources.get(digest, -1) <= sending.number:
            sending.source = True
            self._sources[digest] = self._count + 1
        self._outbox.append(sending)
        self._stir()

    def _tick(self) -> None:
        self._ticks = False
        if self._link is None or not self._sent:
            self._silent_ticks = 0
        elif self._silent_ticks >= TICKS:
            self._break(ServerSilent("the server did not answer in time"))
        else:
            self._silent_ticks += 1
            self._ticks = True
            self._client.later(self._client.response_timeout / TICKS, self._tick)

    # --- connecting

    def _connect(self) -> Steps[None]:
        while True:
            yield self._world.now + PAUSES[min(self._tries, len(PAUSES) - 1)]
            self._tries += 1
            try:
                yield from self._open()
            except (ServerGone, ServerSilent) as error:
                if not self._client.reached:
                    self._tries = 0
                self._fail(error, self._client.monotonic() if self._client.reached else inf)
            if self.is_open or not self._outbox or self._ended:
                break
        self._connecting = False
        while self._outbox and self._outbox[0].coming.done:
            self._outbox.popleft()
        if self._outbox:
            self._stir()

    def _open(self) -> Steps[None]:
        client = self._client
        self._greeting = greeting = Coming(client.process)
        self._link = client.network.open(client.process, self._inbox, self)
        self._opened_at = client.monotonic()
        self._sources.clear()
        self._silent_ticks = 0
        try:
            yield from greeting.wait(self._world.now + client.response_timeout)
        except (ServerGone, ServerSilent):
            self._greeting = None
            self._drop_link()
            raise
        client.reached = True
        self._greeting = None

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._client.network.close(link)

    def _break(self, error: Exception) -> None:
        self.breaks += 1
        self._drop_link()
        if self._greeting is not None:
            self._greeting.settle(error=error)
            return
        self._fail(error, self._client.monotonic())
        self.ears.gap()
        self._client.ask_for_all()
        if self._outbox:
            self._stir()

    def _fail(self, error: Exception, moment: float) -> None:
        waiting = [*self._sent, *self._outbox]
        self._sent.clear()
        self._outbox.clear()
        for sending in waiting:
            if sending.coming.done:
                continue
            sending.give_up_at = min(sending.give_up_at, self._client.monotonic() + sending.patience)
            if sending.give_up_at <= moment:
                sending.coming.settle(error=error)
            else:
                self._outbox.append(sending)


class TaskClient(Client):
    """The asyncio driver, and its keeper."""

    def __init__(self, process: Process, network: Network, watcher: Watcher, response_timeout: float) -> None:
        super().__init__(process, network, watcher, response_timeout)
        self._session = Session(self, b"inbox:" + process.name.encode())
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

    def wait(self, attempt: Attempt, timeout: float | None) -> Steps[Holding]:
        """Wait for a lease."""
        until = inf if timeout is None else self.monotonic() + timeout
        try:
            holding = yield from self._hold(attempt, acquire(attempt, until), until)
        except (ServerGone, ServerSilent) as error:
            attempt.unanswered = True
            if self.monotonic() >= until and isinstance(error, ServerSilent):
                raise AcquireTimeout(attempt.want.name, timeout or 0, "the server did not answer") from error
            raise
        if holding is None:
            raise AcquireTimeout(attempt.want.name, timeout or 0)
        return holding

    def ask_once(self, attempt: Attempt) -> Steps[Holding | None]:
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

    def release(self, holding: Holding) -> Steps[bool]:
        """Give a lease up; False when there was nothing left to give up."""
        if holding.given_up:
            return False
        if self._ended:
            raise HoldfastError("this client was closed; make a new one", name=holding.permits.name)
        lost = holding.lost(self.monotonic())
        self._forget(holding)
        try:
            released = yield from self._perform(release(holding), holding.permits.name)
        except (ServerGone, ServerSilent):
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

    def leave(self, holding: Holding, *, failed: bool) -> Steps[bool]:
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

    def change(self, holding: Holding, steps: Protocol[bool], what: str) -> Steps[bool]:
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
        until = self.monotonic() + UNDO_PATIENCE
        error = HoldfastError("this client was closed meanwhile")
        self._session.ears.refuse(error)
        while not (self._session.is_idle and self.is_idle) and self.monotonic() < until:
            yield self.world.now + 0.05
        for holding in self.ledger.all():
            self._forget(holding)
        self._session.end(error)
        self._ended = True

    def _hold(self, attempt: Attempt, steps: Protocol[Grant | None], until: float = inf) -> Steps[Holding | None]:
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
            raise HoldfastError("this client was closed; make a new one", name=name)
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
        give_up = self.monotonic() + min(PATIENCE, self._left(until))
        for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
            if not passing(outcome) or self.monotonic() + pause >= give_up:
                raise refusal(outcome, name, again=session.breaks != breaks)
            if elsewhere(outcome):
                session.refresh(asked_at)
            yield self.world.now + pause
            asked_at, refused = self.monotonic(), outcome
            try:
                outcome = yield from session.send(call).wait(self.world.now + give_up - self.monotonic())
            except (ServerGone, ServerSilent) as error:
                raise refusal(refused, name, again=True) from error
            if isinstance(outcome, Answer):
                return outcome._replace(again=session.breaks != breaks)
        raise AssertionError("the pauses never end")

    def _left(self, until: float) -> float:
        left = until - self.monotonic()
        return left if left > 0 else UNDO_PATIENCE

    # --- the keeper

    def watch(self, holding: Holding) -> None:
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

    def _forget(self, holding: Holding) -> None:
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

    def _renew(self, holding: Holding) -> None:
        renewal = self._session.send(holding.permits.renew_for(holding.token, holding.permits.ttl_ms))
        self._renewals[holding.token] = renewal
        renewal.tell(self._settle, holding, self.monotonic(), renewal)

    def _settle(self, holding: Holding, asked_at: float, renewal: Coming) -> None:
        if renewal.withdrawn:
            return
        self._renewals.pop(holding.token, None)
        if renewal.error is not None:
            return
        outcome = renewal.value
        if isinstance(outcome, ErrorReply):
            if elsewhere(outcome):
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
        self._send_errand(call, self.monotonic() + ERRAND, errand)
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
            yield self.world.now + UNDO_PATIENCE
