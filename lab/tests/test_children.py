"""Child processes: orders, reports, kills, freezes, and that none of them outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from handfast_lab.children import ProcessFailed, ProcessGroup, run_in_subprocess

FRESH = pytest.param((), id="fresh")
FORKED = pytest.param(("handfast.testing",), id="forked")
BOTH = pytest.mark.parametrize("preload", [FRESH, FORKED])
PATIENCE = 20


def work(parent, first):
    def note(number):
        parent.report("noted", number)

    def count():
        while True:
            parent.report("tick")
            time.sleep(0.005)

    orders = {"note": note, "count": count, "divide": lambda by: first / by, "fork": fork, "leave": lambda: os._exit(3)}
    parent.report("ready", first)
    parent.serve(orders, answer=True)


def fork():
    """A process that knows nothing of pipes."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    return pid


def wait_and_return(parent):
    while not parent.has_sent:
        time.sleep(0.001)
    assert parent.receive() == "enough"


def fail(parent):
    print("last words", flush=True)
    raise ZeroDivisionError("on purpose")


def die(parent):
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(*pids):
    until = time.monotonic() + PATIENCE
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(alive, pids))


@pytest.fixture
def group(preload):
    with ProcessGroup(preload=preload) as group:
        yield group


@BOTH
def test_orders_are_carried_out_and_reported_with_the_time(group):
    child = group.start(work, 6, name="A")
    assert child.expect("ready", PATIENCE).value == 6
    before = time.monotonic()
    child.order("note", 7)
    report = child.receive(PATIENCE)
    assert (report.word, report.value) == ("noted", 7)
    assert before <= report.at <= time.monotonic()
    assert child.expect("done", PATIENCE).value is None
    assert child.ask("divide", 2) == 3
    assert child.ask("divide", by=3) == 2


@BOTH
def test_an_order_that_fails_is_reported_and_the_next_one_carried_out(group):
    child = group.start(work, 6, name="A")
    child.expect("ready", PATIENCE)
    with pytest.raises(ProcessFailed, match="process A reported 'failed' instead of 'done': ZeroDivisionError"):
        child.ask("divide", 0)
    with pytest.raises(ProcessFailed, match="KeyError"):
        child.ask("unknown")
    assert child.ask("divide", 1) == 6


@BOTH
def test_silence_is_an_error(group):
    child = group.start(work, 1, name="A")
    child.expect("ready", PATIENCE)
    with pytest.raises(ProcessFailed, match=r"process A reported nothing for 0.01 s"):
        child.receive(0.01)


@BOTH
def test_a_killed_process_has_gone_with_all_that_it_forked(group):
    child = group.start(work, 1)
    child.expect("ready", PATIENCE)
    grandchild = child.ask("fork")
    assert alive(grandchild)
    child.kill()
    assert not alive(child.pid)
    assert gone(grandchild)
    child.kill()
    with pytest.raises(ProcessFailed, match="ended"):
        child.receive(PATIENCE)


@BOTH
def test_a_frozen_process_does_nothing_until_it_is_thawed(group):
    child = group.start(work, 1)
    child.expect("ready", PATIENCE)
    child.order("count")
    child.expect("tick", PATIENCE)
    child.freeze()
    frozen_at = time.monotonic()
    with pytest.raises(ProcessFailed, match="reported nothing"):
        while True:
            assert child.receive(0.1).at <= frozen_at
    child.thaw()
    assert child.expect("tick", PATIENCE).at > frozen_at
    child.freeze()
    group.discard(child)
    assert not alive(child.pid)
    assert len(group) == 0


@BOTH
def test_reports_of_all_are_received_together(group):
    children = {group.start(work, number): number for number in range(3)}
    found = {}
    while len(found) < 3:
        found.update({child: report.value for child, report in group.receive(PATIENCE)})
    assert found == children
    assert group.receive(0.01) == []
    group.kill_all()
    with pytest.raises(ProcessFailed):
        group.receive(PATIENCE)


@BOTH
def test_join_distinguishes_an_end_from_a_failure(group):
    child = group.start(wait_and_return)
    with pytest.raises(ProcessFailed, match="did not end in time"):
        child.join(0.01)
    child.send("enough")
    child.join(PATIENCE)
    with pytest.raises(ProcessFailed, match="ZeroDivisionError: on purpose"):
        group.start(fail).join(PATIENCE)


@BOTH
def test_a_process_that_dies_is_reported_with_what_it_printed(group):
    with pytest.raises(ProcessFailed, match=r"process A ended.*last words"):
        group.start(die, name="A").receive(PATIENCE)


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
@BOTH
def test_no_process_outlives_its_parent(preload, frozen):
    script = f"""
import os, signal
from handfast_lab.children import ProcessGroup
from lab.tests.test_children import work
group = ProcessGroup(preload={preload!r})
child = group.start(work, 1)
child.expect("ready", {PATIENCE})
if {frozen}:
    child.freeze()
print(child.pid, group._forker.pid if group._forker else child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    pids = [int(pid) for pid in found.stdout.split()]
    assert len(pids) == 2
    assert gone(*pids)


def test_a_function_that_cannot_be_pickled_leaves_no_process():
    with ProcessGroup() as group:
        with pytest.raises(Exception, match=r"pickle|local"):
            group.start(lambda _: None)
        assert len(group) == 0


# --- one call


def double(number, progress):
    progress(1)
    progress(2)
    return 2 * number


def fail_alone(progress):
    raise ZeroDivisionError("on purpose")


def die_alone(progress):
    print("last words", flush=True)
    os._exit(3)


def fork_alone(progress):
    return fork()


def test_the_result_of_a_subprocess_comes_back():
    progress = []
    assert run_in_subprocess(double, 21, on_progress=progress.append) == 42
    assert progress == [1]


def test_the_failure_of_a_subprocess_comes_back():
    with pytest.raises(RuntimeError, match="on purpose"):
        run_in_subprocess(fail_alone)
    with pytest.raises(RuntimeError, match=r"ended with 3: last words"):
        run_in_subprocess(die_alone)


def test_what_a_subprocess_forked_ends_with_it():
    assert gone(run_in_subprocess(fork_alone))
