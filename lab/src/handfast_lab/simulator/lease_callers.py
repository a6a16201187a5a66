"""The callers of locks and their relatives: each order is a task that acquires a lease, has it for a while, and lets it go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from redis.exceptions import RedisError

from handfast._protocol.acquire import Attempt
from handfast.errors import AcquireTimeout, HandfastError, LeaseLost, LimitExceeded, QueueFull, Superseded
from handfast_lab.checker.history import Kind, Outcome
from handfast_lab.simulator.client import ON_ATTEMPT, Client, leaves_nothing, state_of
from handfast_lab.simulator.observers import Observed, ObserverWatch
from handfast_lab.simulator.orders import Order, Target
from handfast_lab.simulator.watch import Note, Watch
from handfast_lab.simulator.world import World

__all__ = ["ENDS", "Leased", "ScopeFailed"]


class ScopeFailed(Exception):
    """A caller's exception that ends the scope of a lease."""


ENDS = RedisError, HandfastError, asyncio.CancelledError, ScopeFailed
"""Exceptions that an operation may raise. Any other is an error of the library."""


class Leased:
    """The execution of one order."""

    def __init__(self, world: World, watch: Watch, client: Client, order: Order) -> None:
        self._world = world
        self._watch = watch
        self._client = client
        self._order = order
        self._attempt: Attempt | None = None
        self._note: Note

    async def run(self) -> None:
        """Do it."""
        order, target = self._order, self._order.target
        ON_ATTEMPT.set(self._begin)
        if order.verb in ("acquire", "try", "preempt", "replace"):
            lease = await self._get()
            if lease is not None:
                await self._have(lease)
        elif order.verb == "close":
            self._client.closed = True
            await self._client.api.close()
        elif order.verb == "observe":
            await self._observe(target)
        elif order.verb == "status":
            await self._primitive(target).status()
        elif order.verb in ("hold", "unhold"):
            await self._put_on_hold(target)
        elif order.verb == "revoke":
            self._watch.revoked = True
            await self._take_away(target)
        else:
            wanted = target._replace(limit=order.limit)
            await self._plain("resize", wanted, self._primitive(target).resize(order.limit or None))

    async def _take_away(self, target: Target) -> None:
        """Take the leases of a name, or that of one holder: of several, one in the middle."""
        primitive, fence = self._primitive(target), None
        if self._order.single:
            fences = sorted(one.fence for one in (await primitive.status()).holders if one.fence)  # 0: it was evicted
            if not fences:
                return
            fence = fences[len(fences) // 2]
        await self._plain("revoke", target, primitive.force_release(reason="by order", fence=fence), fence)

    async def _put_on_hold(self, target: Target) -> None:
        """Put the first name on hold, or end that."""
        kinds = {"all": "lock", "read": "rwlock", "write": "rwlock"}
        api, name = self._client.api, target.names[0]
        kind: Any = kinds.get(target.kind, target.kind)
        if self._order.verb == "unhold":
            await api.unhold(name, kind=kind)
        else:
            now = self._order.grace > 0
            await api.hold(name, self._order.hold, kind=kind, reason="by order", now=now, grace=self._order.grace)

    def _primitive(self, target: Target) -> Any:
        api = self._client.api
        options: dict[str, Any] = {"ttl": target.ttl_ms / 1000, "renew": target.renew, "on_lost": target.on_lost}
        if target.replicas:
            options |= {"min_replicas": target.replicas, "replica_timeout": target.replica_timeout}
        if target.kind == "all":
            return api.lock_all(target.names, **options)
        if target.kind == "semaphore":
            return api.semaphore(target.name, target.limit, yields=target.yields, **options)
        if target.kind in ("election", "group"):
            del options["renew"]
        if target.kind == "group":
            return api.group(target.name, **options)
        if target.kind == "election":
            return api.election(target.name, value=self._client.process.name, **options)
        if target.kind == "lock":
            at_least = target.at_least_ms / 1000 or None
            return api.lock(target.name, at_least=at_least, yields=target.yields, **options)
        both = api.rwlock(target.name, **options)
        return both.read() if target.kind == "read" else both.write()

    async def _observe(self, target: Target) -> None:
        """Observe until it is cancelled."""
        watch = self._watch
        assert isinstance(watch, ObserverWatch)  # noqa: S101 -- only their plans have observers
        observer = Observed(self._client, target)
        ON_ATTEMPT.set(lambda _attempt: None)
        try:
            if target.kind == "group":
                async for members in self._primitive(target).watch():
                    watch.observed(observer, tuple(one.fence for one in members))
            else:
                async for leader in self._primitive(target).observe():
                    watch.observed(observer, () if leader is None else (leader.fence,))
        except asyncio.CancelledError:
            watch.leaves(observer)
            raise

    def _begin(self, attempt: Attempt) -> None:
        """Record that the driver begins to acquire; it sends no command before this returns."""
        order = self._order
        token = attempt.token.decode()
        if self._world.log is not None:
            within = "" if order.timeout is None or order.verb == "try" else f" within {order.timeout:.3f} s"
            self._world.say(self._client.process.name, f"{order.verb} {token} of {order.target.name}{within}")
        self._attempt = attempt
        self._watch.asks(attempt.token)
        self._client.tokens.append(attempt.token)
        kind: Kind = "try_acquire" if order.verb == "try" else "acquire"
        self._note = self._watch.note(self._client, kind, order.target, token)

    async def _get(self) -> Any:
        order, client, watch = self._order, self._client, self._watch
        primitive = self._primitive(order.target)
        try:
            if order.target.kind == "group":
                lease = await primitive.join(value=client.process.name)
            elif order.verb == "acquire":
                lease = await primitive.acquire(timeout=order.timeout, **self._options())
            elif order.verb == "preempt":
                lease = await primitive.preempt(timeout=order.timeout, grace=order.grace)
            elif order.verb == "replace":
                lease = await primitive.replace(timeout=order.timeout)
            else:
                lease = await primitive.try_acquire(**self._options())
        except ENDS as error:
            attempt = self._attempt
            if attempt is not None:
                watch.ended(client, attempt.token, certain=leaves_nothing(attempt))
                ends = AcquireTimeout, asyncio.CancelledError, Superseded
                in_time = order.verb != "try" and isinstance(error, ends)
                refused = isinstance(error, QueueFull | LimitExceeded)
                outcome: Outcome = "timeout" if in_time else "refused" if refused else "failed"
                watch.noted(self._note, outcome if watch.fates[attempt.token] == "over" else "failed")
            raise
        assert self._attempt is not None  # noqa: S101 -- there is no lease without one
        if lease is None:
            watch.ended(client, self._attempt.token, certain=leaves_nothing(self._attempt))
            # One that waits for replicas, and had to be undone, may have been granted and revoked before they had it.
            unknown = self._order.target.replicas and self._attempt.is_left
            watch.noted(self._note, "failed" if unknown else "refused")
            return None
        return self._got(lease)

    def _options(self) -> dict[str, Any]:
        order = self._order
        options: dict[str, Any] = {"permits": order.target.weight} if order.target.kind == "semaphore" else {}
        if order.verb == "acquire" and order.head_start:
            options["head_start"] = order.head_start
        return options

    def _got(self, lease: Any) -> Any:
        """Record what an acquire has returned, and return what is left to be released."""
        state = state_of(lease)
        self._watch.holds(state.token)
        self._watch.acquired(self._client, self._order.target, state)
        self._watch.noted(self._note, "granted", state)
        return lease

    async def _have(self, lease: Any) -> None:
        order = self._order
        if order.end == "drop":
            try:
                await self._use(lease)
            except ENDS:
                pass
            else:
                self._watch.drops(state_of(lease).token)
                return
        elif order.in_scope:
            await lease.__aenter__()  # by hand, since the moment at which it is left is to be noted
            error: BaseException | None = None
            try:
                await self._use(lease)
                if order.end == "fail":
                    raise ScopeFailed
            except ENDS as ended:
                error = ended
            await self._leave(lease, lease.__aexit__(error and type(error), error, None), failed=error is not None)
            return
        else:
            with contextlib.suppress(*ENDS):
                await self._use(lease)
        await self._leave(lease, lease.release(), failed=False)

    async def _use(self, lease: Any) -> None:
        order = self._order
        if order.block:
            await self._client.block(order.block)
            self._watch.blocked(self._client, order.target, state_of(lease), lost=lease.lost)
        if order.slot is not None:
            for _ in range(2):
                lease._slot = None  # noqa: SLF001 -- so that it asks again
                number = await lease.slot(prefer=order.slot if order.slot < order.target.limit else None)
                self._watch.numbered(state_of(lease).token, number)
        if order.extend_ms:
            await asyncio.sleep(order.hold / 2)
            await lease.extend(order.extend_ms / 1000)
        if order.downgrade:
            await asyncio.sleep(order.hold / 2)
            await self._downgrade(lease)
        await asyncio.sleep(order.hold)

    async def _downgrade(self, lease: Any) -> None:
        watch, state = self._watch, state_of(lease)
        watch.downgrades(state.token)
        target = self._order.target._replace(weight=1)
        note = watch.note(self._client, "lower", target, state.token.decode())
        try:
            await lease.downgrade()
        except ENDS:
            # A loss may be known by the client's own clock: what the server did is unknown.
            watch.noted(note, "failed", state)
            raise
        watch.noted(note, "done", state)

    async def _leave(self, lease: Any, steps: Awaitable[Any], *, failed: bool) -> None:
        """Release the lease with these steps. ``failed``: its scope has ended with an exception."""
        watch, client, state = self._watch, self._client, state_of(lease)
        watch.gives_up(state.token)
        known = lease.lost
        note = watch.note(client, "release", self._order.target, state.token.decode(), self._value())
        try:
            released = await steps
        except LeaseLost:
            released = False
        except ENDS:
            watch.ended(client, state.token, certain=False)
            watch.noted(note, "failed", state)
            raise
        if released is None:
            released = not lease.lost
        # At the end of a scope that failed, and after a loss that was known, the driver does not wait for the server.
        waited = not failed and not known
        watch.ended(client, state.token, certain=waited)
        outcome: Outcome = "released" if released else "lost"
        certain = waited and (released or not watch.is_uncertain(state.token))
        watch.noted(note, outcome if certain else "failed", state)

    def _value(self) -> str | None:
        """Return what is recorded when the lease is released."""
        return None

    async def _plain(self, kind: Kind, target: Target, steps: Awaitable[Any], fence: int | None = None) -> None:
        note = self._watch.note(self._client, kind, target, "")
        note.fence = fence
        try:
            await steps
        except ENDS:
            self._watch.noted(note, "failed")
            raise
        self._watch.noted(note, "done")
