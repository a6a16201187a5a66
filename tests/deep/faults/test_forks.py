"""Forks by C code of a process in which a client has a renewal thread."""

from __future__ import annotations

from tests.gate.faults import test_forks as gate

program = gate.program

QUIET = """
import time
from handfast import LeaseLost
from handfast._drivers.sync import renewer

def quiet(hf):
    "Wait until the renewal thread sleeps: one that waits for the interpreter just then makes the child hang, whatever we do."
    one = hf._driver._here.renewer
    while not one._session.is_open or one._unanswered:
        time.sleep(0.01)
    renewer.TICK_S = 3600.0
    time.sleep(1)
"""


def test_a_child_of_a_foreign_fork_owns_nothing_and_starts_anew(program):
    assert program(
        QUIET
        + """
hf = Handfast(url, release_at_exit=True)
lease = hf.lock("a").acquire()
quiet(hf)

def child():
    with hf.lock("b") as own:
        channels = hf._driver._here.pool._make()._subscribe().channels
        return [lease.release(), lease.lost, own.lost, lease.reason if hasattr(lease, "reason") else "", *channels]

print(forked(child))
print(forked(child) != forked(child), "each has inboxes of its own")
print(forked(lambda: "nothing is called, and it ends"))
print(lease.lost, hf.lock("a").locked(), lease.release())
"""
    )[1:] == ["True each has inboxes of its own", "nothing is called, and it ends", "False True True"]


def test_the_lease_of_the_parent_is_not_the_childs(program):
    (said,) = program(
        QUIET
        + """
hf = Handfast(url)
with hf.lock("a") as lease:
    quiet(hf)
    def child():
        free = hf.lock("b").locked()
        return free, lease.lost, lease.release()

    print(forked(child))
"""
    )
    assert said == "(False, True, False)"


def test_a_block_that_a_foreign_fork_copies_ends_with_the_loss_of_the_lease(program):
    (said,) = program(
        QUIET
        + """
hf = Handfast(url)

def copied():
    try:
        with hf.lock("a"):
            quiet(hf)
            if ctypes.PyDLL(None).fork() == 0:
                return
            os.wait()
    except LeaseLost:
        os.write(1, b"lost ")
        os._exit(0)
    os.write(1, b"%d" % hf.lock("a").locked())

copied()
"""
    )
    assert said == "lost 0"
