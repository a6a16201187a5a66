"""Virtual time: processes, an event loop on which asyncio's own tasks run, and a transport that carries bytes."""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import pkgutil
import re
import secrets
import time
from math import inf
from pathlib import Path

import pytest

pytest.importorskip("lupa")

import handfast
from handfast._drivers import clock
from handfast_lab.simulator.client import SimulatedConnector
from handfast_lab.simulator.isolation import isolated, readers_of_the_clock
from handfast_lab.simulator.loop import MAX_TURNS, VirtualLoop
from handfast_lab.simulator.network import Network
from handfast_lab.simulator.server import SimulatedServer
from handfast_lab.simulator.world import Process, World, readable

REAL = os.urandom, secrets.token_hex


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def process(world):
    return Process(world, "A", 100.0)


@pytest.fixture
def loop(process):
    with isolated():
        loop = VirtualLoop(process)
        yield loop
        loop.close()


def run(world, loop, coroutine):
    """Run a coroutine to its end, and return its task."""
    task = loop.create_task(coroutine)
    world.run(inf)
    return task


# --- the world


def test_events_run_in_time_order(world):
    log = []
    for moment, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        world.at(moment, log.append, name)
    world.run(1.5)
    assert (log, world.now) == (["a", "b"], 1.5)
    world.run(3.0)
    assert log == ["a", "b", "c"]


def test_a_frozen_process_receives_events_when_it_thaws_and_a_dead_one_never(world, process):
    log, dead = [], Process(world, "B", 0.0)
    world.at(1.0, process.freeze)
    world.at(1.0, dead.die)
    for one in (process, dead):
        world.at(2.0, one.fire, log.append, (one.name, "timer"))
        world.at(3.0, one.deliver, log.append, (one.name, "bytes"))
    world.run(4.0)
    assert log == []
    world.at(5.0, process.thaw)
    world.run(inf)
    assert sorted(log) == [("A", "bytes"), ("A", "timer")]


def test_tokens_are_unique_and_readable(world, process):
    tokens = [process.urandom(16).hex() for _ in range(3)]
    assert [readable(token) for token in tokens] == ["a-1", "a-2", "a-3"]
    assert {len(token) for token in tokens} == {32}
    assert readable("deadline 1790000000000000") == "deadline 1790000000000000"


# --- the loop


def test_sleeping_takes_virtual_time_only(world, process, loop):
    async def sleep():
        before = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - before

    began = time.monotonic()
    assert run(world, loop, sleep()).result() == pytest.approx(3600)
    assert world.now == pytest.approx(3600)
    assert process.monotonic() == 100.0 + world.now
    assert time.monotonic() - began < 10


def test_a_timeout_and_a_wait_work_as_on_any_loop(world, loop):
    async def wait():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await loop.create_future()
        done, pending = await asyncio.wait({loop.create_future()}, timeout=1.5)
        return asyncio.get_running_loop() is loop, len(done), len(pending), asyncio.current_task() is not None

    assert run(world, loop, wait()).result() == (True, 0, 1, True)
    assert world.now == pytest.approx(4.0)


def test_a_timer_never_expires_early(world, process, loop):
    early = []
    for number in range(1, 500):
        when = loop.time() + number / 7
        loop.call_at(when, lambda when=when: early.append(when) if loop.time() < when else None)
    world.run(inf)
    assert early == []


def test_a_cancelled_timer_does_not_run_and_a_cancelled_task_ends(world, loop):
    log = []
    loop.call_later(1.0, log.append, "never").cancel()
    task = loop.create_task(asyncio.sleep(9))
    loop.call_later(2.0, task.cancel)
    world.run(inf)
    assert log == []
    assert task.cancelled()
    assert world.now == pytest.approx(9.0)  # the cancelled timer is an event that does nothing


def test_callbacks_run_in_order_turn_by_turn(world, loop):
    log = []

    def first():
        log.append("first")
        loop.call_soon(log.append, "third")

    loop.call_soon(first)
    loop.call_soon(log.append, "second")
    world.run(inf)
    assert log == ["first", "second", "third"]


def test_bytes_that_arrive_between_two_iterations_precede_later_callbacks(world, process):
    log = []
    loop = VirtualLoop(process, lag=1.0, lagging=1.0)
    loop.call_soon(lambda: loop.call_soon(lambda: loop.call_soon(log.append, "third turn")))
    world.at(1e-6, loop.arrive, log.append, "bytes")
    world.run(inf)
    loop.close()
    assert log == ["bytes", "third turn"]


def test_the_loop_of_a_frozen_process_pauses_and_that_of_a_dead_one_ends(world, process, loop):
    log = []

    async def sleep():
        await asyncio.sleep(2)
        log.append(world.now)
        await asyncio.sleep(2)
        log.append(world.now)

    loop.create_task(sleep())
    world.at(1.0, process.freeze)
    world.at(50.0, process.thaw)
    world.at(51.0, process.die)
    world.run(inf)
    assert log == [50.0]


def test_an_unhandled_exception_is_reported(world, process):
    errors = []
    loop = VirtualLoop(process, on_error=errors.append)
    loop.call_soon(lambda: 1 / 0)
    world.run(inf)
    loop.close()
    assert len(errors) == 1
    assert "ZeroDivisionError" in errors[0]


def test_a_spinning_loop_is_detected(world, loop):
    def spin():
        loop.call_soon(spin)

    spin()
    with pytest.raises(RuntimeError, match=f"{MAX_TURNS:,} turns"):
        world.run(inf)


# --- what the library takes from the operating system


def library_modules():
    """Every module that an asyncio client runs, and its syntax tree."""
    folder = Path(handfast.__file__).parent
    for module in pkgutil.walk_packages([str(folder)], "handfast."):
        if module.name.startswith("handfast._") and not re.search(r"\.(sync|__main__|_watch)\b", module.name):
            file = folder.joinpath(*module.name.split(".")[1:])
            source = file / "__init__.py" if module.ispkg else file.with_suffix(".py")
            yield module.name, ast.parse(source.read_text(encoding="utf-8"))


def test_the_library_reads_clocks_and_randomness_only_where_the_simulator_replaces_them():
    readers = {clock.__name__}
    not_simulated = {"handfast._drivers.aio.stand_in", "handfast._drivers.null"}  # no threads, and always a server
    for name, tree in library_modules():
        if name in readers | not_simulated:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
                assert not names & {"time", "random", "uuid", "datetime"}, name
            elif isinstance(node, ast.ImportFrom) and node.module == clock.__name__:
                names = {(alias.name, alias.asname) for alias in node.names} - {
                    ("wall_clock", None),
                    ("unix_time", None),
                }
                if names:  # the time of day is read by no simulated client
                    assert names == {("monotonic", None)}, name
                    readers.add(name)
            elif isinstance(node, ast.ImportFrom) and node.module in (
                "time",
                "random",
                "uuid",
                "datetime",
                "os",
                "secrets",
            ):
                allowed = {(kind, None) for kind in ("date", "datetime", "timedelta", "UTC", "UUID")}
                assert {(alias.name, alias.asname) for alias in node.names} <= allowed, name
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datetime":
                assert node.attr == "fromtimestamp", name
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "secrets":
                assert node.attr == "token_hex", name
    for name in readers:
        importlib.import_module(name)
    assert {
        module.__name__ for module in readers_of_the_clock() if ".sync" not in module.__name__
    } == readers | not_simulated
    assert len(readers) >= 4


def test_clock_and_randomness_belong_to_the_running_process_and_are_restored(world, process):
    from handfast._drivers.aio import session

    world.now = 7.0
    drawn = []
    with isolated():
        loop = VirtualLoop(process)
        loop.call_soon(lambda: drawn.extend((session.monotonic(), os.urandom(16).hex(), secrets.token_hex(8))))
        world.run(inf)
        assert drawn[0] == 107.0
        assert readable(drawn[1]) == "a-1"
        assert drawn[2].startswith("a0")
        loop.close()
        assert session.monotonic() == 0.0, "no process is running"
        assert os.urandom(2) == b"\0\0"
        assert readers_of_the_clock() == []
    assert (os.urandom, secrets.token_hex) == REAL
    assert session.monotonic is clock.monotonic


# --- the transport


class Frames(asyncio.Protocol):
    def __init__(self):
        self.received = []
        self.lost = []
        self.pauses = []

    def data_received(self, data):
        self.received.append(data)

    def connection_lost(self, exc):
        self.lost.append(exc)

    def pause_writing(self):
        self.pauses.append("pause")

    def resume_writing(self):
        self.pauses.append("resume")


@pytest.fixture
def network(world):
    network = Network(world, SimulatedServer(), 0.01)
    network.splitting = 0.0
    return network


ASK, NONE_COUNTED = b"*3\r\n$6\r\nPUBSUB\r\n$6\r\nNUMSUB\r\n$1\r\nc\r\n", b"*2\r\n$1\r\nc\r\n:0\r\n"
"""A command, and its reply."""


def connect(world, network, process, loop, response_timeout=1.0):
    connector = SimulatedConnector(network, process, loop, response_timeout)
    return connector, run(world, loop, connector.connect())


def test_commands_replies_and_messages_travel_as_bytes(world, network, process, loop):
    connector, task = connect(world, network, process, loop)
    frames = Frames()
    task.result().set_protocol(frames)
    task.result().write(
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$2\r\nch\r\n*3\r\n$6\r\nPUBSUB\r\n$6\r\nNUMSUB\r\n$2\r\nch\r\n*1\r\n$4\r\nNOPE\r\n"
    )
    world.run(inf)
    assert connector.reached
    network._publish([b"ch", b"hello", b"other", b"unheard"])
    world.run(inf)
    assert b"".join(frames.received) == (
        b">3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n*2\r\n$2\r\nch\r\n:1\r\n-ERR unknown command 'NOPE'\r\n"
        b">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$5\r\nhello\r\n"
    )


def test_bytes_for_a_frozen_process_arrive_in_one_piece(world, network, process, loop):
    _, task = connect(world, network, process, loop)
    frames = Frames()
    task.result().set_protocol(frames)
    process.freeze()
    for _ in range(3):
        task.result().write(ASK)
    world.run(world.now + 1)
    assert frames.received == []
    process.thaw()
    world.run(inf)
    assert frames.received == [NONE_COUNTED * 3]


def test_a_cut_is_reported_and_an_aborted_transport_is_silent(world, network, process, loop):
    for end in ("cut", "abort"):
        _, task = connect(world, network, process, loop)
        frames = Frames()
        task.result().set_protocol(frames)
        task.result().write(ASK)
        if end == "cut":
            network.cut(network.links[-1])
        else:
            task.result().abort()
        world.run(inf)
        assert len(frames.lost) == 1
        assert task.result().is_closing()
        assert not network.links[-1].there
        task.result().write(ASK)
        world.run(inf)
        assert b"".join(frames.received) in ((b"", NONE_COUNTED) if end == "cut" else (b"",))


def test_a_connection_whose_bytes_take_long_may_accept_no_more_until_they_have_arrived(world, network, process, loop):
    _, task = connect(world, network, process, loop)
    frames = Frames()
    task.result().set_protocol(frames)
    for _ in range(20):  # every second time, about
        network.links[-1].to_server = world.now + 5
        task.result().write(ASK)
    assert frames.pauses == ["pause"]
    before = world.now
    world.run(before + 4.9)
    assert frames.pauses == ["pause"]
    world.run(inf)
    assert frames.pauses == ["pause", "resume"]


@pytest.mark.parametrize(
    "state_and_error",
    [
        ("down", "ConnectionError: Error 111"),
        ("loading", "ConnectionError: LOADING"),
        ("busy", "ResponseError: BUSY"),
        ("stalled", "TimeoutError: Timeout connecting"),
    ],
)
def test_an_absent_server_refuses_or_does_not_answer(world, network, process, loop, state_and_error):
    state, error = state_and_error
    if state == "down":
        network.go_down()
    elif state == "stalled":
        network.stall()
    else:
        network.refusal = f"{state.upper()} it is"
    connector, task = connect(world, network, process, loop)
    raised = task.exception()
    assert f"{type(raised).__name__}: {raised}".startswith(error)
    assert not connector.reached
