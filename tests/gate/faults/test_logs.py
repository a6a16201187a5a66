"""What the log says of leases and outages, and what a lease says of its own time, in both APIs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

from handfast import LeaseLost, ServerRefused
from handfast._drivers import background
from handfast._drivers.background import Background
from handfast._drivers.log import LoggerApart
from tests._support.apis import until_queued
from tests._support.family import until_listening
from tests._support.helpers import BOUND_S, eventually, eventually_async

pytestmark = pytest.mark.usefixtures("short_ticks")

SOON_S = 0.05


@pytest.fixture
def records(caplog):
    """A function that returns the records of one logger so far."""
    caplog.set_level(logging.DEBUG, "handfast")
    return lambda logger: [record for record in caplog.records if record.name == logger]


# --- of leases


async def test_debug_shows_who_had_it_and_for_how_long(here, there, records):
    first = await here.lock("a").acquire()

    async def wait():
        async with there.lock("a").acquire(timeout=20) as second:
            return second

    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(wait())
        await until_queued(here.lock("a"))
        await first.release()
    second = waiter.result()
    acquired, released, next_acquired, next_released = sorted(
        records("handfast.lease"), key=lambda record: (record.fence, record.getMessage())
    )
    for lease, one, other in ((first, acquired, released), (second, next_acquired, next_released)):
        assert one.getMessage() == f"acquired 'a' with fence {lease.fence} after {lease.waited:.3f} s"
        assert other.getMessage().startswith(f"released 'a' with fence {lease.fence} after ")
        assert (one.lock, one.fence, one.waited) == ("a", lease.fence, lease.waited)
        assert (other.lock, other.fence) == ("a", lease.fence)
        assert lease.held_for <= other.held_for < lease.held_for + 1


async def test_a_block_that_fails_logs_its_release_too(here, records):
    with pytest.raises(ZeroDivisionError):
        async with here.lock("a"):
            1 / 0  # noqa: B018 -- the error is the purpose
    assert [record.getMessage().split()[0] for record in records("handfast.lease")] == ["acquired", "released"]


async def test_above_debug_nothing_is_said_of_leases_that_end_well(here, caplog):
    caplog.set_level(logging.INFO, "handfast")
    async with here.lock("a"):
        pass
    assert not caplog.records


# --- the time of a lease


async def test_held_for_stops_when_the_lease_is_revoked(here, there):
    lease = await here.lock("a").acquire()
    await there.lock("a").force_release()
    await eventually_async(lambda: lease.lost)
    ended = lease.held_for
    assert 0 < ended < 30
    with pytest.raises(LeaseLost):
        lease.check()
    assert lease.held_for == ended


# --- cleanups


@pytest.mark.parametrize("call", ["acquire", "try_acquire"])
async def test_who_may_run_no_script_gets_an_error_and_no_cleanup(api, server, raw, records, call):
    raw.execute_command("ACL", "SETUSER", "idle", "on", ">x", "~*", "&*", "+@all", "-eval", "-evalsha")
    try:
        async with api.client(server.url.replace("unix://", "unix://idle:x@")) as client:
            with pytest.raises(ServerRefused, match=r"\+evalsha"):
                await getattr(client.lock("a"), call)()
    finally:
        raw.execute_command("ACL", "DELUSER", "idle")
    assert not records("handfast.cleanup")


# --- leases that end as planned


async def test_a_lease_without_renewal_that_is_taken_away_is_still_an_error(here, there, raw, records):
    lease = await here.lock("a", renew=False).acquire()
    await eventually_async(lambda: raw.pubsub_channels("hf:control:*"))
    await there.lock("a").force_release(reason="deploy")
    (record,) = await eventually_async(lambda: records("handfast.renewal"))
    assert record.levelno == logging.ERROR
    assert (record.reason, lease.lost) == ("deploy", True)


async def test_a_lease_without_renewal_that_is_held_too_long_is_still_an_error(here, records):
    lease = await here.lock("a", ttl=60, renew=False, max_hold=SOON_S).acquire()
    (record,) = await eventually_async(lambda: records("handfast.renewal"))
    assert record.levelno == logging.ERROR
    assert (record.reason, lease.lost) == ("it was held for max_hold, 0.05 s", True)


# --- handlers, which have a thread of their own


class Handler(logging.Handler):
    """Keeps the records and the threads that brought them. Each record waits until the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate, self.seen = threading.Event(), []

    def emit(self, record):
        self.seen.append((record, threading.current_thread()))
        self.gate.wait(BOUND_S)


@pytest.fixture
def handler(monkeypatch, records_at_once):
    """A handler of our records, which are handled as they are for users."""
    monkeypatch.setattr(LoggerApart, "handle", records_at_once)
    logger, handler = logging.getLogger("handfast.renewal"), Handler()
    logger.addHandler(handler)
    yield handler
    handler.gate.set()
    logger.removeHandler(handler)


async def test_while_a_handler_hangs_other_leases_are_looked_after(here, there, raw, handler):
    first, second = await here.lock("a").acquire(), await here.lock("b").acquire()
    await until_listening(raw)
    await there.lock("a").force_release()
    await eventually_async(lambda: handler.seen)
    await there.lock("b").force_release()
    await eventually_async(lambda: second.lost)
    assert first.lost
    assert [record.lock for record, _ in handler.seen] == ["a"]
    handler.gate.set()
    await eventually_async(lambda: [record.lock for record, _ in handler.seen] == ["a", "b"])


def test_a_record_says_which_thread_made_it_and_is_handled_by_one_that_ends(hf, other, raw, handler):
    handler.gate.set()
    lease = hf.lock("a").acquire()
    eventually(lambda: raw.pubsub_channels("hf:control:*"))
    other.lock("a").force_release(reason="deploy")
    ((record, thread),) = eventually(lambda: handler.seen)
    assert (record.threadName, record.funcName, lease.lost) == ("handfast-renewer", "lost", True)
    thread.join(BOUND_S)
    assert (thread.name, thread.daemon, thread.is_alive()) == ("handfast-records", False, False)


def test_what_a_handler_raises_is_shown_and_the_next_record_is_handled(handler, monkeypatch):
    shown, logger = [], LoggerApart("handfast.renewal")
    monkeypatch.setattr(threading, "excepthook", shown.append)
    monkeypatch.setattr(handler, "filter", lambda record: 1 / 0 if record.msg == "bad" else True)
    handler.gate.set()
    logger.warning("bad")
    logger.warning("good")
    eventually(lambda: handler.seen)
    assert [one.exc_type for one in shown] == [ZeroDivisionError]
    assert [record.msg for record, _ in handler.seen] == ["good"]


def test_below_the_level_of_its_logger_nothing_is_made(handler):
    handler.gate.set()
    logging.getLogger("handfast").setLevel(logging.ERROR)
    try:
        assert not LoggerApart("handfast.renewal").isEnabledFor(logging.WARNING)
    finally:
        logging.getLogger("handfast").setLevel(logging.NOTSET)
    assert LoggerApart("handfast.renewal").isEnabledFor(logging.WARNING)


def test_in_a_forked_child_the_thread_is_started_anew(monkeypatch):
    called, one, parent = [], Background("test", daemon=True), os.getpid()
    one._running.acquire()  # as if the parent's thread had it
    monkeypatch.setattr(background.os, "getpid", lambda: parent + 1)
    one.call(lambda: called.append(1))
    assert eventually(lambda: called) == [1]


def test_what_no_thread_can_be_started_for_is_not_called_later(monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    called, one = [], Background("test", daemon=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            one.call(lambda: called.append(1))
    one.call(lambda: called.append(2))
    assert eventually(lambda: called) == [2]


def test_at_the_end_of_the_interpreter_a_record_is_handled_at_once(handler, monkeypatch):
    def fail(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    handler.gate.set()
    monkeypatch.setattr(threading.Thread, "start", fail)
    LoggerApart("handfast.renewal").warning("the last")
    ((record, thread),) = handler.seen
    assert (record.msg, thread) == ("the last", threading.current_thread())
