# Generated from _api/aio/worker.py by tools/unasync.py: edit that file and run the tool.
"""A worker of a partition: it follows the members and the items, and serves the assigned items.

A coordinator computes which items are this worker's. For each of them a job stands in the queue of the item's lock, and
calls the function which serves the item. Whatever the user's functions do, they keep nothing but themselves: the items
are asked for in a separate job, and a function that goes on long after the loss of the lease is left alone.
"""

# ruff: noqa: SLF001 -- leases are of this package

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from handfast._api.sync.group import Group
from handfast._api.sync.items import Change, ItemLease, ItemLock
from handfast._drivers import log
from handfast._drivers.clock import monotonic
from handfast._drivers.failures import OWN_ERRORS
from handfast._drivers.sync.cleanup import may_wait
from handfast._drivers.sync.driver import SyncDriver
from handfast._drivers.sync.jobs import Job, Mailbox
from handfast._drivers.sync.looping import Loop
from handfast._engine.calls import PermitRequest
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._protocol import assigning, grouping
from handfast.arguments import Items
from handfast.errors import AcquireCancelled, ClientClosed

if TYPE_CHECKING:
    from handfast._api.sync.group import Membership

__all__ = ["Settings", "Worker"]

Serve: TypeAlias = "Callable[[str, ItemLease], object]"

MOVES_PER_PERIOD = 10
"""Items that a worker gives up in each period at least; all are given up within a period. The first worker waits for others
for as long as a single move takes, and the coordinator waits so long for the function that knows the items."""

LATE_POLL_S = 1.0
"""How often, in seconds, the coordinator looks whether that function has returned, once it is late."""

LONGEST_LOOK_S = 10.0
"""Seconds after which the coordinator looks at its jobs at the latest, and whether it is to end."""

QUICK = 20_000
"""Items times members above which the assignment is computed in a thread."""


class Settings(NamedTuple):
    """The settings of a worker in a partition."""

    driver: SyncDriver
    place: KeySet
    options: LeaseOptions
    group: Group
    """The group of the workers."""
    items: Items
    """Checked, unless it is a function."""
    every: float
    """Seconds between two looks at the items."""
    value: str
    most: int | None

    def listed(self) -> frozenset[str]:
        """Return the items there are now."""
        found: Any = self.items() if callable(self.items) else self.items
        return assigning.check_items(found)


class Worker:
    """A worker, from `start` to `leave`. The coordinator and its jobs keep it alive, and not the block that entered it.

    Without a function, the items are offered to the reader of ``changes``.
    """

    def __init__(self, settings: Settings, serve: Serve | None, items: frozenset[str] | None) -> None:
        self._settings = settings
        self._name = settings.place.name
        self.changes: Mailbox[Change | None] = Mailbox()
        self.error: BaseException | None = None
        """The error with which the coordinator ended."""
        self.held: dict[Job, tuple[str, ItemLease]] = {}
        """The leases of jobs that have one."""
        self.is_over = False
        """Whether no item is to be served any more. Anybody may set this, the garbage collector included."""
        self._serve: Serve = serve or self._offer
        self._is_by_hand = serve is None
        self._coordinator: Job | None = None
        self._member: Membership | None = None
        self._jobs: dict[str, Job] = {}
        """By item: jobs which are to go on."""
        self._ending: dict[Job, None] = {}
        """Jobs which are to stop. Each is added here before it is removed from ``_jobs``: leaving the block waits for all."""
        self._lost_at: dict[Job, float] = {}
        """Since when a job goes on whose lease was lost."""
        self._items = items
        """None until they are known."""
        self._asking: Job | None = None
        """The job that asks for the items; None while none does."""
        self._ask_at, self._late_at = 0.0, inf
        """When the items are asked for next, and when the function that knows them is late."""
        self._move_at, self._gap = 0.0, 0.0
        """When the next item may be given up, and seconds between two items."""

    def start(self) -> None:
        """Join the group of the workers. The caller must call `leave` on any exception."""
        settings = self._settings
        if self._items is None:
            self._items = settings.listed()
        self._asking_loop = self._loop(f"the function for the items of {self._name!r}")
        self._ask_at = monotonic() + settings.every
        self._member = settings.group.join(value=settings.value)
        self._coordinator = Job(self._coordinate)

    def leave(self, error: BaseException | None, *, waits: bool = True) -> None:
        """Leave the group, and end all jobs. It may be called again. ``error`` is why, if the block failed."""
        self.is_over = True
        for job in (self._coordinator, self._asking):
            if job is not None:
                job.stop()
        try:
            if self._member is not None:
                with contextlib.suppress(*OWN_ERRORS):  # then it is released in the background, or ends with the ttl
                    self._member._leave(error)  # first: others then stand in the queues of the items
        finally:
            for job in [*self._jobs.values()]:
                self._stop(job)
        waits = waits and may_wait(error)
        patience = monotonic() + self._settings.options.ttl_ms / 1000
        for job in [*self._ending] if waits else ():
            job.wait(max(0.0, patience - monotonic()))

    def abandon(self) -> None:
        """Have the coordinator end the worker soon. The garbage collector calls this: it waits for nothing, not even a lock."""
        self.is_over = True

    def until_it_ends(self) -> None:
        """Wait until the coordinator ends. Raises the error with which it has ended."""
        if self._coordinator is not None:
            self._coordinator.wait()
        self.check()

    def check(self) -> None:
        """Raise the error with which the coordinator has ended, if it has."""
        if self.error is not None:
            raise self.error

    def _loop(self, function: str = "") -> Loop:
        return Loop(self._settings.driver, "partition", self._name, function, repeats=True, apart=Job.apart)

    # --- the coordinator

    def _coordinate(self, job: Job) -> None:
        """Follow members and items until the end."""
        try:
            self._follow(job)
        except BaseException as error:  # noqa: BLE001 -- the block raises it
            if not job.stopping:
                self.error = error
        finally:
            self.changes.put_nowait(None)
        if self.is_over and not job.stopping:
            self._coordinator = None  # it can't stop itself
            self.leave(None)

    def _follow(self, job: Job) -> None:
        """Follow members and items. Errors are logged, and tried again; jobs go on meanwhile."""
        every, group, loop = self._settings.every, self._settings.group, self._loop()
        mine, seen, begins = frozenset[str](), (frozenset[int](), frozenset[str]()), True
        known, fences = grouping.NOTHING, frozenset[int]()
        until = -inf
        while not (job.stopping or self.is_over):
            try:
                loop.check()
                member = self._joined(job)
                known, members = group._following(known, until)
                if members is not None:
                    fences = frozenset(one.fence for one in members)
                    if begins:  # so that workers which start together share the items from the beginning
                        begins = False
                        oldest = max((one.joined_for for one in members), default=0.0)
                        job.sleep(max(0.0, every / MOVES_PER_PERIOD - oldest))
                        continue
                elif (left := until - monotonic()) > 0:
                    job.sleep(left)  # there is no server
                look_at = self._look()
                # This worker may have joined after the list was
                # made, and would get no item without itself in it.
                everyone, items = fences | {member.fence}, self._items or frozenset()
                # Only after a change: the gap is for the items to be given
                # up now, and would grow with each of them that is gone.
                if (everyone, items) != seen:
                    mine = self._assigned(everyone, items, member.fence)
                    seen = everyone, items
                    self._gap = every / max(MOVES_PER_PERIOD, len(self._jobs.keys() - mine))
                    # Not from a moment that is over: all items would be
                    # given up at once, to make up for a rest without moves.
                    self._move_at = max(self._move_at, monotonic())
                until = min(look_at, self._settle(job, mine, items))
            except BaseException as error:
                pause = loop.after(error)
                if pause is None:
                    raise
            else:
                continue
            job.sleep(pause)

    def _joined(self, job: Job) -> Membership:
        """Return the membership, which is a new one after a loss."""
        member = self._member
        if member is None or member.lost:
            member = self._member = self._settings.group.join(value=self._settings.value)
            if job.stopping:  # `leave` may not have seen it
                member.release()
        return member

    def _look(self) -> float:
        """Ask for the items if it is time, and wait for a moment. Return when to look again."""
        every, now = self._settings.every, monotonic()
        if not callable(self._settings.items):
            return now + min(LONGEST_LOOK_S, every)
        if self._asking is None and now >= self._ask_at:
            self._ask_at = self._late_at = now + every
            self._asking = Job(self._ask)
        if self._asking is None:
            return min(self._ask_at, now + LONGEST_LOOK_S)
        if self._asking.wait(min(LATE_POLL_S, every / MOVES_PER_PERIOD)):
            self._asking = None
            return min(self._ask_at, now + LONGEST_LOOK_S)
        if now >= self._late_at:
            log.items_late(self._name, now - self._late_at + every)
            self._late_at = inf
        return now + min(LATE_POLL_S, every)

    def _ask(self, _job: Job) -> None:
        """Ask for the items. After an error they stay as they were."""
        try:
            self._items = self._asking_loop.call(self._settings.listed)
        except BaseException as error:
            pause = self._asking_loop.after(error)
            if pause is None:
                raise
            self._ask_at = min(self._ask_at, monotonic() + pause)

    def _assigned(self, members: frozenset[int], items: frozenset[str], mine: int) -> frozenset[str]:
        """Return the items of this worker."""
        compute = partial(assigning.assigned, members, items, self._settings.most)
        found = compute()
        return frozenset(item for item, member in found.items() if member == mine)

    def _settle(self, coordinator: Job, mine: frozenset[str], items: frozenset[str]) -> float:
        """Start and stop jobs. Return when the next item is to be given up, or a job that hangs is to be left alone."""
        for ended in [one for one in [*self._ending] if one.done]:
            self._ending.pop(ended, None)
        look_at = inf
        for item in sorted(mine):
            job, hangs_at = self._jobs.get(item), inf
            if job is not None and not job.done and (hangs_at := self._hangs_at(job)) > monotonic():
                look_at = min(look_at, hangs_at)
                continue
            if job is not None and not job.done:
                # The lock of the item decides (invariant 46). A new job
                # stands in its queue, and the hanging one is asked to end.
                log.serve_hangs(self._name, item, self._settings.options.ttl_ms / 1000)
                self._ending[job] = None
                job.ask()
            job = self._jobs[item] = Job(self._hold, item)
            if coordinator.stopping:  # `leave` may not have seen the job
                self._stop(job)
                return inf
        others = [(item, job) for item, job in self._jobs.items() if item not in mine]
        for item, job in others:
            # A job without a lease serves nothing, so it is stopped at once. Those with a lease go one by
            # one, so that other workers need not begin with all items at a time.
            is_waiting = job not in self.held
            if is_waiting or item not in items or monotonic() >= self._move_at:
                if item in items and not is_waiting:
                    self._move_at += self._gap  # however late: all are to be given up within a period
                self._stop(job)
                # Behind `_stop`, which adds the job to `_ending`: `leave` finds it in one of the two.
                del self._jobs[item]
        return min(look_at, self._move_at) if self._jobs.keys() - mine else look_at

    def _hangs_at(self, job: Job) -> float:
        """Return the moment from which on a job counts as hanging: a ttl after the lease was found lost."""
        _, lease = self.held.get(job, ("", None))
        if lease is None or not lease.lost:
            self._lost_at.pop(job, None)
            return inf
        return self._lost_at.setdefault(job, monotonic()) + self._settings.options.ttl_ms / 1000

    def _stop(self, job: Job) -> None:
        """Tell a job to stop. By hand the reader of `changes` has the item for as long as the lease lasts."""
        self._ending[job] = None
        _, lease = self.held.get(job, ("", None))
        if lease is not None:
            lease._want()
            if self.is_over and self._is_by_hand:
                lease._end()
            elif self._is_by_hand:
                job.ask()
                return
        job.stop()

    # --- the job of an item

    def _hold(self, job: Job, item: str) -> None:
        """Stand in the queue of an item, and have it served, until the item is assigned to another."""
        settings = self._settings
        lock = ItemLock(settings.driver, PermitRequest(settings.place.keyed((item,)), settings.options), "raise")
        loop = self._loop(f"the function that serves {item!r} of {self._name!r}")
        while not (job.stopping or self.is_over or loop.is_over):
            # A function that returns while the item is still its own is called again, after a rest.
            lease, pause = None, settings.every
            try:
                with lock.acquire(
                    cancel=job.stopped,
                ) as lease:
                    self.held[job] = item, lease
                    if job.stopping:  # `_stop` has not seen the lease
                        lease._want()
                        if self.is_over and self._is_by_hand:
                            lease._end()
                    try:
                        loop.call(self._serve, item, lease)
                    finally:
                        del self.held[job]
                        self._lost_at.pop(job, None)
            except BaseException as error:
                if isinstance(error, AcquireCancelled) and job.stopping:
                    return
                after = loop.after(error, lease)
                # The coordinator meets the same error, and raises it once for all items.
                if after is None and isinstance(error, ClientClosed):
                    return
                if after is None:
                    raise
                pause = after
            if not job.stopping:
                job.sleep(pause)

    def _offer(self, item: str, lease: ItemLease) -> None:
        """Leave an item to the reader of `changes`, until the lease ends."""
        self.changes.put_nowait(Change(item, lease))
        try:
            lease.wanted_event.wait()
        finally:
            self.changes.put_nowait(Change(item, None))
        lease._ended.wait()
