"""The measurements of the server's instructions and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from handfast.embedded import find_binary
from handfast.testing import ServerController
from handfast_lab.bench import footprint
from handfast_lab.bench.instructions import (
    BATCH,
    CASES,
    NAIVE,
    SIZES,
    Connection,
    among_names,
    among_permits,
    drive,
    in_line,
)
from handfast_lab.stored import read_stored


@pytest.fixture(scope="module")
def server():
    with ServerController() as server:
        yield server


@pytest.mark.parametrize("case", [NAIVE, *CASES], ids=lambda case: case.name)
def test_every_cycle_is_answered_without_an_error_and_leaves_as_much_as_the_one_before(server, case):
    server.admin.flushall()
    found = []
    with Connection(Path(server.socket)) as connection:
        for cycles in (BATCH, 2 * BATCH):
            server.admin.flushall()
            drive(case, connection, Path(server.socket), cycles)
            tags = {key.rpartition(":")[0] for key in server.admin.scan_iter()}
            found.append({tag: len(read_stored(server.admin, tag).holders) for tag in tags if tag})
    assert found[0] == found[1]


def test_a_handed_over_lease_has_its_new_holder(server):
    server.admin.flushall()
    server.admin.config_resetstat()
    (case,) = (case for case in CASES if case.name.endswith("handed over and renewed"))
    with Connection(Path(server.socket)) as connection:
        drive(case, connection, Path(server.socket), BATCH)
    stored = read_stored(server.admin, "{hf:lock:a}")
    assert [*stored.holders] == [f"{BATCH:032}"]
    assert not stored.queue
    assert server.admin.info("commandstats")["cmdstat_publish"]["calls"] == BATCH


@pytest.mark.parametrize("make", [in_line, among_names, among_permits])
def test_what_is_stored_before_the_cycles_is_there_all_the_time(server, make):
    number = SIZES[0]
    server.admin.flushall()
    with Connection(Path(server.socket)) as connection:
        case = make(number)
        connection.ask(list(case.stored()))
        drive(case, connection, Path(server.socket), BATCH)
    names = [read_stored(server.admin, key.removesuffix(":state")) for key in server.admin.scan_iter("*:state")]
    if make is in_line:
        assert [len(name.queue) for name in names] == [number]
    else:
        assert sum(len(name.holders) for name in names) == number


def test_each_name_holder_waiter_and_token_takes_memory():
    found = {case: footprint.measure(case, 300, find_binary()) for case in footprint.CASES}
    assert 2000 > found["name, held"] > found["finished token"] > 20
    assert 2000 > found["name, released"] > found["finished token"]
    assert 2000 > found["holder of a semaphore"] > found["finished token"]
    assert 2000 > found["waiter"] > 50


def test_each_connection_takes_memory():
    assert 100_000 > footprint.measure_connection(50, find_binary()) > 500
