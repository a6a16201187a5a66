"""``handfast run`` with --slots, -s and -x: their own behaviour, and the behaviour that all kinds of run share."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import replace

import pytest

from handfast import Holder, LockStatus, Waiter
from handfast.cli.taking.messages import describe_conflict
from handfast.cli.taking.notice import describe_wait
from handfast.cli.taking.options import Options
from tests._support.engine import Engine
from tests._support.kinds import ROWS
from tests._support.running import BOUND, CAT, HANDFAST, done, line_of, ready, starting, until_queued

US = re.escape(f"{os.uname().nodename}:{os.getpid()}")
"""The label of this process."""

WORDS = {"lock": [], "semaphore": ["--slots", "2"], "read": ["-s"], "write": ["-x"]}
"""The options of each kind of run, by the row of what it acquires."""

BUSY = {
    "lock": lambda hf: [hf.lock("job")],
    "semaphore": lambda hf: [hf.semaphore("job", 2)] * 2,
    "read": lambda hf: [hf.rwlock("job").write()],
    "write": lambda hf: [hf.rwlock("job").read()],
}
"""What must be held for a run of each kind to wait."""

REASONS = {
    "lock": f"'job' is held by {US} for 0.0s",
    "semaphore": f"all 2 slots of 'job' are taken: {US} for 0.0s, {US} for 0.0s",
    "read": f"'job' is held exclusively by {US} for 0.0s",
    "write": f"'job' is shared by {US} for 0.0s",
}

NEW = pytest.mark.parametrize("kind", ["semaphore", "read", "write"])


@pytest.fixture
def run(server, raw):
    """Return a function that starts ``handfast run job <words>``, which ends with the test."""
    with starting() as start:
        yield lambda *words: start(*HANDFAST, "job", "--url", server.url, *words)


@pytest.fixture
def take(hf):
    """Return a function that acquires primitives and returns their leases, which are released after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda wanted: [stack.enter_context(each.acquire(timeout=BOUND)) for each in wanted]


# Each kind


def test_three_slots_admit_three_runs_and_a_fourth_waits(run, hf):
    slots = hf.semaphore("job", 3)
    first, *others = [run("--slots", "3", "--", *CAT) for _ in range(3)]
    for process in (first, *others):
        ready(process)
    fourth = run("--slots", "3", "--", *CAT)
    until_queued(slots)
    assert fourth.poll() is None
    assert done(first)[0] == 0
    ready(fourth)
    assert (len(slots.status().holders), slots.status().free) == (3, 0)
    assert [done(process)[0] for process in (*others, fourth)] == [0, 0, 0]
    assert not slots.locked()


def test_slot_of_a_killed_run_and_no_other_is_free_after_the_ttl(run, hf, take):
    process = ready(run("--slots", "2", "--ttl", "0.5", "--", *CAT))
    slots = hf.semaphore("job", 2)
    (kept,) = take([slots])
    process.kill()
    process.wait(BOUND)
    (back,) = take([slots])
    assert {holder.fence for holder in slots.status().holders} == {kept.fence, back.fence}
    process.stdin.write("still here\n")  # its parent is dead
    process.stdin.flush()
    assert line_of(process) == "still here\n"


def test_exclusive_run_waits_for_shared_runs_and_a_later_shared_run_waits_for_it(run, hf):
    readers = [ready(process) for process in [run("-s", "--", *CAT), run("-s", "--", *CAT)]]
    writer = run("-x", "-w", "30", "--", *CAT)
    until_queued(hf.rwlock("job"))
    late = run("--shared", "-n", "--", "true")
    code, _, err = done(late)
    assert code == 75
    assert re.search(r"'job' is shared by \S+ for \S+s, \S+ for \S+s; \S+ has waited \S+s to hold it exclusively$", err)
    assert [done(process)[0] for process in readers] == [0, 0]
    ready(writer)
    assert [holder.exclusive for holder in hf.rwlock("job").status().holders] == [True]
    assert done(writer)[0] == 0


def test_run_waits_by_its_own_number_of_slots(run, hf, take):
    take([hf.semaphore("job", 5)] * 2)
    assert done(run("--slots", "2", "-n", "--", "true"))[0] == 75
    assert done(run("--slots", "3", "-n", "--", "true"))[0] == 0


@pytest.mark.parametrize("kind", WORDS)
def test_run_ignores_holders_of_other_kinds(run, hf, take, kind):
    sides = {"read", "write"}
    unseen = [other for other in ("lock", "semaphore", "read") if other != kind and not {other, kind} <= sides]
    for other in unseen:
        take(BUSY[other](hf))
    assert len(unseen) == 2
    assert done(run(*WORDS[kind], "-n", "--", "true"))[0] == 0


# All kinds


@NEW
def test_nonblock_run_names_the_holders(run, hf, take, kind):
    take(BUSY[kind](hf))
    code, out, err = done(run(*WORDS[kind], "-n", "-E", "9", "--", "echo", "no"))
    assert (code, out) == (9, "")
    assert re.fullmatch(f"handfast: {REASONS[kind]}\n", re.sub(r"for \d+\.\ds", "for 0.0s", err))


@NEW
def test_run_leaves_the_queue_after_its_wait_limit(run, hf, take, kind):
    held = take(BUSY[kind](hf))
    code, _, err = done(run(*WORDS[kind], "-w", "0.05", "--", "echo", "no"))
    assert (code, err.split("; ")[1]) == (75, "gave up after 0.05s\n")
    status = ROWS[kind].make(hf, "job").status()
    assert (len(status.holders), len(status.waiters)) == (len(held), 0)


@NEW
def test_skip_ok_exits_0_silently(run, hf, take, kind):
    take(BUSY[kind](hf))
    assert done(run(*WORDS[kind], "--skip-ok", "--", "echo", "no")) == (0, "", "")


@NEW
def test_signal_during_the_wait_leaves_no_waiter(run, hf, take, kind):
    held = take(BUSY[kind](hf))
    wanted = ROWS[kind].make(hf, "job")
    process = run(*WORDS[kind], "--", "echo", "no")
    until_queued(wanted)
    process.send_signal(signal.SIGTERM)
    assert done(process) == (128 + signal.SIGTERM, "", "")
    status = wanted.status()
    assert {holder.fence for holder in status.holders} == {lease.fence for lease in held}
    assert not status.waiters


@NEW
def test_command_gets_its_lease_and_ends_when_it_is_lost(run, hf, kind):
    script = "echo $HANDFAST_NAME $HANDFAST_FENCE $HANDFAST_TOKEN; exec cat"
    process = run(*WORDS[kind], "--label", "me", "--ttl", "9", "--", "sh", "-c", script)
    name, fence, token = line_of(process).split()
    wanted = ROWS[kind].make(hf, "job")
    (holder,) = wanted.status().holders
    assert (name, int(fence), token[:8], holder.label) == ("job", holder.fence, holder.token, "me")
    assert 0 < holder.remaining <= 9
    assert wanted.force_release() == 1
    process.wait(BOUND)  # its input is still open, so only the loss can end it
    code, _, err = done(process)
    assert code == 74
    assert "lost the lease of 'job'" in err
    assert "sent SIGTERM to 'sh'" in err


def test_on_lost_ignore_names_the_lease_of_a_slot(run, hf):
    process = ready(run("--slots", "2", "--on-lost", "ignore", "--", *CAT))
    hf.semaphore("job", 2).force_release()
    assert "lost the lease of" in process.stderr.readline()
    line = process.stderr.readline()
    assert line.endswith(" continues although the lease is lost; another holder may be active\n")
    assert done(process)[0] == 0


def test_full_queue_exits_75(run, hf, raw):
    with hf.semaphore("job", 1):
        engine = Engine(raw, "job", kind="semaphore")
        raw.eval("for i = 1, 100100 do redis.call('ZADD', KEYS[1], -i, i) end", 1, engine.key("tokens"))
        raw.expire(engine.key("tokens"), BOUND)
        engine.set_length(100_100)
        code, _, err = done(run("--slots", "1", "--", "true"))
        raw.delete(engine.key("tokens"))
        engine.set_length(0)
    assert (code, err) == (75, "handfast: the queue of 'job' is full: 100000 are waiting\n")


# Messages


def options_of(**changes):
    """Options of a run of ``job``."""
    fields = dict.fromkeys(Options._fields) | {"name": "job", "shared": False, "exclusive": False}
    return Options(**fields | changes)


def status_of(*holders, waiters=(), limit=1):
    """A status; each holder or waiter is given as label, weight and age in seconds."""
    held = tuple(
        Holder("", 1, weight, 1.0, since, label, weight >= limit, "", False, False) for label, weight, since in holders
    )
    queue = tuple(Waiter("", weight, 0, since, label, weight >= limit, "", False) for label, weight, since in waiters)
    out = sum(weight for _, weight, _ in holders)
    return LockStatus(
        held, queue, 1, len(held), len(queue), limit, max(0, limit - out), 1, 0.0, None, held=min(limit, out)
    )


ALL = 1_000_000_000


def queued(status, *owners, waiting=0):
    """That status with these owners of its waiters, and with that length of its queue."""
    queue = [
        replace(one, owner=owner, position=n) for n, (one, owner) in enumerate(zip(status.waiters, owners, strict=True))
    ]
    return replace(status, waiters=tuple(queue), waiting=waiting or len(queue))


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (
            {},
            queued(status_of(("a", 1, 3), waiters=[("me", 1, 2)]), "x.7"),
            "waiting: 'job' is held by a for 3.0s; next in the queue",
        ),
        (
            {},
            queued(status_of(("a", 1, 3), waiters=[("b", 1, 2), ("me", 1, 2), ("me", 1, 1)]), "y.7", "x.8", "x.7"),
            "waiting: 'job' is held by a for 3.0s; 2 ahead in the queue",
        ),
        ({}, queued(status_of(waiters=[("me", 1, 2)]), "x.7"), "waiting for 'job'; next in the queue"),
        (
            {"shared": True},
            queued(status_of(("a", 1, 3), waiters=[("b", ALL, 2), ("me", 1, 2)], limit=ALL), "y.7", "x.7"),
            "waiting: 'job' is shared by a for 3.0s; b has waited 2.0s to hold it exclusively; 1 ahead in the queue",
        ),
        (
            {},
            queued(status_of(("a", 1, 3), waiters=[("b", 1, 2)]), "y.7", waiting=200),
            "waiting: 'job' is held by a for 3.0s; at least 1 ahead in the queue",
        ),
    ],
)
def test_a_notice_names_holders_and_the_place_in_the_queue(options, status, expected):
    assert describe_wait(options_of(label="me", **options), status, ".7") == expected


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ({}, status_of(("a", 1, 3.6)), "'job' is held by a for 3.6s"),
        ({}, status_of(), "'job' was taken"),
        ({}, status_of(waiters=[("b", 1, 2), ("c", 1, 1)]), "b is first in the queue of 'job', for 2.0s"),
        ({"slots": 1}, status_of(("a", 1, 3)), "the slot of 'job' is taken: a for 3.0s"),
        (
            {"slots": 2},
            status_of(("a", 1, 3), ("b", 1, 9), limit=2),
            "all 2 slots of 'job' are taken: b for 9.0s, a for 3.0s",
        ),
        ({"slots": 3}, status_of(("a", 3, 3), limit=3), "all 3 slots of 'job' are taken: a (3 slots) for 3.0s"),
        (
            {"slots": 2},
            status_of(("a", 1, 3), ("b", 2, 2), limit=2),
            "3 slots of 'job' are taken and the limit is 2: a for 3.0s, b (2 slots) for 2.0s",
        ),
        ({"slots": 2}, status_of(("a", 1, 3), limit=2), "'job' was taken"),
        (
            {"slots": 2},
            status_of(("a", 1, 3), waiters=[("b", 2, 1)], limit=2),
            "b is first in the queue of 'job', for 1.0s",
        ),
        (
            {"slots": 7},
            status_of(*[(letter, 1, 1) for letter in "abcdefg"], limit=7),
            "all 7 slots of 'job' are taken: a for 1.0s, b for 1.0s, c for 1.0s, d for 1.0s, e for 1.0s, and 2 more",
        ),
        (
            {"slots": 100},
            status_of(*[("a", 1, 1)] * 100, limit=100),
            f"all 100 slots of 'job' are taken: {'a for 1.0s, ' * 5}and at least 95 more",
        ),
        ({"shared": True}, status_of(("a", ALL, 3), limit=ALL), "'job' is held exclusively by a for 3.0s"),
        ({"exclusive": True}, status_of(("a", ALL, 3), limit=ALL), "'job' is held exclusively by a for 3.0s"),
        (
            {"exclusive": True},
            status_of(("a", 1, 3), ("b", 1, 1), waiters=[("c", ALL, 1)], limit=ALL),
            "'job' is shared by a for 3.0s, b for 1.0s",
        ),
        (
            {"shared": True},
            status_of(("a", 1, 3), waiters=[("c", ALL, 1)], limit=ALL),
            "'job' is shared by a for 3.0s; c has waited 1.0s to hold it exclusively",
        ),
        ({"shared": True}, status_of(("a", 1, 3), limit=ALL), "'job' was taken"),
        ({"shared": True}, status_of(waiters=[("c", ALL, 1)], limit=ALL), "c is first in the queue of 'job', for 1.0s"),
        ({"exclusive": True}, status_of(limit=ALL), "'job' was taken"),
    ],
)
def test_conflict_message_names_holders_and_first_waiter(options, status, expected):
    assert describe_conflict(options_of(**options), status) == expected
