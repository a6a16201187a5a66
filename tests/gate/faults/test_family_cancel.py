"""The relatives of the lock, cancelled and interrupted wherever that can strike: nothing is left behind."""

from __future__ import annotations

import gc
import inspect
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

import handfast
from handfast import Lease, NotOwner, RLease
from handfast._api.sync import scope
from handfast._api.sync.scope import LeaseScope, PrimitiveScope
from handfast._drivers.sync import driver, performing
from handfast._protocol import lease as lease_module
from handfast.testing import interrupt_at
from tests._support.engine import Engine
from tests._support.helpers import THOROUGH, eventually

LIMIT = 3


@pytest.mark.parametrize(
    ("kind", "method", "relative"),
    [(Lease, "_begin", "semaphore"), (Lease, "_begin", "rlock"), (RLease, "__init__", "rlock")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_interrupt_while_an_inner_block_is_entered_leaves_the_outer_one_to_be_left(
    hf, raw, monkeypatch, *, kind, method, relative
):
    real, armed = getattr(kind, method), []

    def interrupted(self, *args):
        done = real(self, *args)
        if armed:
            armed.clear()
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(kind, method, interrupted)
    thing = hf.semaphore("a", LIMIT) if relative == "semaphore" else hf.rlock("a")
    with pytest.raises(KeyboardInterrupt) as caught:
        with thing:
            armed.append(True)
            with thing:
                pytest.fail("it was entered")
    try:
        assert not thing.status().holders
        assert not thing._blocks
    finally:
        thing.force_release()
    assert caught.value is not None, "and all that while its traceback is there"


FORMS = {
    "lock": lambda hf: [(hf.lock("a"), None)],
    "lock.acquire()": lambda hf: [(hf.lock("a"), {})],
    "semaphore": lambda hf: [(hf.semaphore("a", LIMIT), None)],
    "semaphore.acquire(permits=2)": lambda hf: [(hf.semaphore("a", LIMIT), {"permits": 2})],
    "semaphore, semaphore": lambda hf: 2 * [(hf.semaphore("a", LIMIT), None)],
    "read": lambda hf: [(hf.rwlock("a").read(), None)],
    "read.acquire()": lambda hf: [(hf.rwlock("a").read(), {})],
    "write": lambda hf: [(hf.rwlock("a").write(), None)],
    "write.acquire()": lambda hf: [(hf.rwlock("a").write(), {})],
    "rlock": lambda hf: [(hf.rlock("a"), None)],
    "rlock, rlock": lambda hf: 2 * [(hf.rlock("a"), None)],
    "rlock.acquire(), rlock.acquire()": lambda hf: 2 * [(hf.rlock("a"), {})],
    "rlock, rlock.acquire()": lambda hf: [(rlock := hf.rlock("a"), None), (rlock, {})],
    "lock_all": lambda hf: [(hf.lock_all(["a", "b"]), None)],
    "lock_all.acquire()": lambda hf: [(hf.lock_all(["a", "b"]), {})],
}
"""Blocks within each other: of something itself, or of a lease that is acquired with these options for it."""


def forms(*quick):
    """All of them; the others are so much like these that once in a while is enough."""
    return [form for form in FORMS if THOROUGH or form in quick]


class Alarm(Exception):
    """What a signal handler may raise as well."""


class Blocks:
    """Blocks that are interrupted, and what is held after that."""

    def __init__(self, hf, form):
        self.hf = hf
        self.blocks = FORMS[form](hf)
        self.kept = []
        """The leases of a run. One that is dropped is interrupted, too, but that exception is lost."""

    def run(self, depth=0):
        """Enter all of them and leave them again."""
        primitive, options = self.blocks[depth]
        with primitive if options is None else primitive.acquire(timeout=20, **options) as lease:
            self.kept.append(lease)
            if depth + 1 < len(self.blocks):
                self.run(depth + 1)

    def interrupted(self, step, exception):
        """At a point of all that."""
        return interrupt_at(self.run, step, within=handfast, exception=exception)

    def interrupted_while_left(self, step, exception):
        """Before an instruction of leaving the innermost one; then the others are left."""
        entered = [primitive if options is None else primitive.acquire(**options) for primitive, options in self.blocks]
        self.kept += [block.__enter__() for block in entered]
        ours = [handfast._api, driver, performing, scope, lease_module]  # not the renewer: its locks would stay locked
        leave = entered.pop().__exit__
        run = interrupt_at(lambda: leave(None, None, None), step, within=ours, points="bytecodes", exception=exception)
        while entered:
            entered.pop().__exit__(exception, run.error, None)
        return run

    def everywhere(self, interrupted, exception=KeyboardInterrupt):
        """Interrupt it at each point. The places where something is held afterwards.

        While something is held all the time, the renewer need not be woken, and each run has the same points.
        """
        with self.hf.lock("warm"):
            eventually(lambda: self.hf._driver._here.renewer._wakes_at < inf)
            return self._everywhere(interrupted, exception)

    def _everywhere(self, interrupted, exception):
        places, step = [], 0
        self.run()  # what is made only once is made now
        self.kept.clear()
        while (place := self.place(interrupted(step := step + 1, exception))) is not None:
            if self.is_held():
                places.append(place)
                self.forget()
            assert not any(primitive._blocks for primitive, _ in self.blocks), place
            self.kept.clear()
            self.run()  # so that there is a connection again
            self.kept.clear()
        assert step > 50
        return places

    def place(self, run):
        """Where it was struck, if it was."""
        assert run.how == ("stopped" if run.struck else "finished"), run
        return run.place

    def is_held(self):
        status = self.blocks[0][0].status()
        return any(one.holders or one.waiters for one in (status.values() if isinstance(status, dict) else [status]))

    def forget(self):
        """Release everything."""
        for primitive, _ in self.blocks:
            primitive._blocks._entered.clear()
        self.kept.clear()
        gc.collect()
        self.blocks[0][0].force_release()


@pytest.fixture
def no_litter():
    """Nothing is collected in the middle of a run, since that would be struck, too."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.usefixtures("no_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # leases that an interrupt took from the caller
@pytest.mark.parametrize("exception", [KeyboardInterrupt, Alarm])
@pytest.mark.parametrize("form", forms("lock"))
def test_an_interrupt_at_any_point_of_a_block_leaves_nothing_held_but_at_the_very_beginning_of_a_method(
    hf, form, exception
):
    """These beginnings are of ``with lock``: that of ``__exit__``; of ``with lock.acquire()``: those of ``__enter__`` and ``__exit__``.

    A signal handler is run as the first thing in a function, before any of its own instructions.
    """
    blocks = Blocks(hf, form)
    unavoidable = []
    for _, options in blocks.blocks:
        unavoidable += [PrimitiveScope.__exit__] if options is None else [LeaseScope.__enter__, LeaseScope.__exit__]
    places = blocks.everywhere(blocks.interrupted, exception)
    assert sorted(places) == sorted(up_to_try(method)[0] for method in unavoidable)


def test_a_caller_that_may_not_leave_a_block_gets_that_error_and_no_other(hf, raw):
    rlock = hf.rlock("a")
    with rlock as lease, ThreadPoolExecutor(1) as threads:
        for block, holders in ((rlock, [lease.token]), (lease, [])):  # a block of the lease is known to be its own
            with pytest.raises(NotOwner) as caught:
                threads.submit(block.__exit__, None, None, None).result(10)
            assert caught.value.__context__ is None
            assert Engine(raw).holders() == holders


def up_to_try(method):
    """Where something was struck that was struck before the ``try`` of this method was entered, from its beginning."""
    lines, first = inspect.getsourcelines(method)
    code, last = method.__code__, first + [line.strip() for line in lines].index("try:")
    return [f"{code.co_filename}:{line} in {code.co_qualname}" for line in range(first, last + 1)]
