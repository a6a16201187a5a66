"""``handfast run`` with slots, shared and exclusive: what is its own, and what it has in common with a plain run."""

from __future__ import annotations

import contextlib
import os
import re
import signal

import pytest

from handfast import Holder, LockStatus, Waiter
from handfast._engine.keys import KeySet
from handfast.cli.run.messages import who_has
from handfast.cli.run.options import Order
from tests._support.running import BOUND, CAT, HANDFAST, done, ready, starting, until_queued

pytestmark = pytest.mark.slow

US = re.escape(f"{os.uname().nodename}:{os.getpid()}")
"""How this process is shown."""

KINDS = {
    "plain": ([], lambda hf: hf.lock("job")),
    "slots": (["--slots", "2"], lambda hf: hf.semaphore("job", 2)),
    "shared": (["-s"], lambda hf: hf.rwlock("job").read()),
    "exclusive": (["-x"], lambda hf: hf.rwlock("job").write()),
}
"""The options of a kind, and what they take."""

BUSY = {
    "plain": lambda hf: [hf.lock("job")],
    "slots": lambda hf: [hf.semaphore("job", 2)] * 2,
    "shared": lambda hf: [hf.rwlock("job").write()],
    "exclusive": lambda hf: [hf.rwlock("job").read()],
}
"""What is taken when a run of a kind has to wait."""

ANSWERS = {
    "plain": f"'job' has been held by {US} for 0 s",
    "slots": f"all 2 slots of 'job' are taken: {US} for 0 s, {US} for 0 s",
    "shared": f"'job' has been held exclusively by {US} for 0 s",
    "exclusive": f"'job' has been shared by {US} for 0 s",
}

NEW = pytest.mark.parametrize("kind", ["slots", "shared", "exclusive"])


@pytest.fixture
def run(server, raw):
    """Starts ``handfast run job <words>``, and ends it after the test."""
    with starting() as start:
        yield lambda *words: start(*HANDFAST, "job", "--url", server.url, *words)


@pytest.fixture
def take(hf):
    """Takes things and gives their leases; releases them after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda wanted: [stack.enter_context(each.acquire(timeout=BOUND)) for each in wanted]


# What each kind is for


def test_three_slots_let_three_in_and_a_fourth_wait(run, hf):
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


def test_the_slot_of_a_run_that_is_killed_comes_back_after_the_ttl_and_no_other(run, hf, take):
    process = ready(run("--slots", "2", "--ttl", "0.5", "--", *CAT))
    slots = hf.semaphore("job", 2)
    (kept,) = take([slots])
    process.kill()
    process.wait(BOUND)
    (back,) = take([slots])
    assert {holder.fence for holder in slots.status().holders} == {kept.fence, back.fence}
    process.stdin.write("still here\n")  # an orphan by now
    process.stdin.flush()
    assert process.stdout.readline() == "still here\n"


def test_shared_runs_go_together_an_exclusive_one_waits_for_them_and_a_later_one_for_it(run, hf):
    readers = [ready(process) for process in [run("-s", "--", *CAT), run("-s", "--", *CAT)]]
    writer = run("-x", "-w", "30", "--", *CAT)
    until_queued(hf.rwlock("job"))
    late = run("--shared", "-n", "--", "true")
    code, _, err = done(late)
    assert code == 75
    assert re.search(
        "'job' has been shared by .* for .* s, .* for .* s; .* has waited for .* s to have it exclusively$", err
    )
    assert [done(process)[0] for process in readers] == [0, 0]
    ready(writer)
    assert [holder.exclusive for holder in hf.rwlock("job").status().holders] == [True]
    assert done(writer)[0] == 0


def test_each_run_counts_by_its_own_number_of_slots(run, hf, take):
    take([hf.semaphore("job", 5)] * 2)
    assert done(run("--slots", "2", "-n", "--", "true"))[0] == 75
    assert done(run("--slots", "3", "-n", "--", "true"))[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_do_not_see_each_other(run, hf, take, kind):
    sides = {"shared", "exclusive"}
    unseen = [other for other in ("plain", "slots", "shared") if other != kind and not {other, kind} <= sides]
    for other in unseen:
        take(BUSY[other](hf))
    assert len(unseen) == 2
    assert done(run(*KINDS[kind][0], "-n", "--", "true"))[0] == 0


# What all kinds have in common


@NEW
def test_one_that_will_not_wait_says_who_has_it(run, hf, take, kind):
    take(BUSY[kind](hf))
    code, out, err = done(run(*KINDS[kind][0], "-n", "-E", "9", "--", "echo", "no"))
    assert (code, out) == (9, "")
    assert re.fullmatch(f"handfast: {ANSWERS[kind]}\n", re.sub(r"for \d+ s", "for 0 s", err))


@NEW
def test_one_that_is_tired_of_waiting_leaves_the_line(run, hf, take, kind):
    held = take(BUSY[kind](hf))
    code, _, err = done(run(*KINDS[kind][0], "-w", "0.05", "--", "echo", "no"))
    assert (code, err.split("; ")[1]) == (75, "gave up after 0.05 s\n")
    status = KINDS[kind][1](hf).status()
    assert (len(status.holders), len(status.waiters)) == (len(held), 0)


@NEW
def test_one_that_may_be_skipped_is_quiet(run, hf, take, kind):
    take(BUSY[kind](hf))
    assert done(run(*KINDS[kind][0], "--skip-ok", "--", "echo", "no")) == (0, "", "")


@NEW
def test_a_signal_while_waiting_leaves_nothing_behind(run, hf, take, kind):
    held = take(BUSY[kind](hf))
    wanted = KINDS[kind][1](hf)
    process = run(*KINDS[kind][0], "--", "echo", "no")
    until_queued(wanted)
    process.send_signal(signal.SIGTERM)
    assert done(process) == (128 + signal.SIGTERM, "", "")
    status = wanted.status()
    assert {holder.fence for holder in status.holders} == {lease.fence for lease in held}
    assert not status.waiters


@NEW
def test_the_command_knows_its_lease_and_ends_when_that_is_lost(run, hf, kind):
    tells = "echo $HANDFAST_NAME $HANDFAST_FENCE $HANDFAST_TOKEN; exec cat"
    process = run(*KINDS[kind][0], "--label", "me", "--ttl", "9", "--", "sh", "-c", tells)
    name, fence, token = process.stdout.readline().split()
    wanted = KINDS[kind][1](hf)
    (holder,) = wanted.status().holders
    assert (name, int(fence), token[:8], holder.label) == ("job", holder.fence, holder.token, "me")
    assert 0 < holder.remaining <= 9
    assert wanted.force_release() == 1
    process.wait(BOUND)  # its input is still open: no other end than that
    code, _, err = done(process)
    assert code == 74
    assert "lost the lease of 'job'" in err
    assert "sent SIGTERM to 'sh'" in err


def test_on_lost_ignore_does_not_say_that_a_slot_is_a_lock(run, hf):
    process = ready(run("--slots", "2", "--on-lost", "ignore", "--", *CAT))
    hf.semaphore("job", 2).force_release()
    assert "lost the lease of" in process.stderr.readline()
    said = process.stderr.readline()
    assert said.endswith(" goes on although the lease is lost: others may have got in by now\n")
    assert done(process)[0] == 0


def test_a_line_that_takes_no_more_exits_75(run, hf, raw):
    with hf.semaphore("job", 1):
        line = KeySet("hf", "semaphore", "job").key("queue")
        raw.eval("for i = 1, 100100 do redis.call('ZADD', KEYS[1], i, i) end", 1, line)
        raw.expire(line, BOUND)
        code, _, err = done(run("--slots", "1", "--", "true"))
        raw.delete(line)
    assert (code, err) == (75, "handfast: 100000 are already waiting for 'job'\n")


# The words


def asked(**changes):
    """An order for ``job``."""
    fields = dict.fromkeys(Order.__slots__) | {"name": "job", "shared": False, "exclusive": False}
    return Order(**fields | changes)


def seen(*holders, waiters=(), limit=1):
    """A status: of a holder or waiter its label, its weight, and since when, in seconds."""
    held = tuple(Holder("", 1, weight, 1.0, since, label, weight >= limit) for label, weight, since in holders)
    line = tuple(Waiter("", weight, 0, since, label, weight >= limit) for label, weight, since in waiters)
    out = sum(weight for _, weight, _ in holders)
    return LockStatus(held, line, 1, len(line), limit, max(0, limit - out))


ALL = 1_000_000_000


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ({}, seen(("a", 1, 3.6)), "'job' has been held by a for 4 s"),
        ({}, seen(("a\x1b[m", 1, 3)), "'job' has been held by 'a\\x1b[m' for 3 s"),
        ({}, seen(), "'job' was taken"),
        ({}, seen(waiters=[("b", 1, 2), ("c", 1, 1)]), "b has waited for 'job' for 2 s and comes first"),
        ({"slots": 1}, seen(("a", 1, 3)), "the slot of 'job' is taken: a for 3 s"),
        ({"slots": 2}, seen(("a", 1, 3), ("b", 1, 9), limit=2), "all 2 slots of 'job' are taken: b for 9 s, a for 3 s"),
        ({"slots": 3}, seen(("a", 3, 3), limit=3), "all 3 slots of 'job' are taken: a (3 slots) for 3 s"),
        (
            {"slots": 2},
            seen(("a", 1, 3), ("b", 2, 2), limit=2),
            "3 slots of 'job' are taken and the limit is 2: a for 3 s, b (2 slots) for 2 s",
        ),
        ({"slots": 2}, seen(("a", 1, 3), limit=2), "'job' was taken"),
        (
            {"slots": 2},
            seen(("a", 1, 3), waiters=[("b", 2, 1)], limit=2),
            "b has waited for 'job' for 1 s and comes first",
        ),
        (
            {"slots": 7},
            seen(*[(letter, 1, 1) for letter in "abcdefg"], limit=7),
            "all 7 slots of 'job' are taken: a for 1 s, b for 1 s, c for 1 s, d for 1 s, e for 1 s, and 2 more",
        ),
        (
            {"slots": 100},
            seen(*[("a", 1, 1)] * 100, limit=100),
            f"all 100 slots of 'job' are taken: {'a for 1 s, ' * 5}and at least 95 more",
        ),
        ({"shared": True}, seen(("a", ALL, 3), limit=ALL), "'job' has been held exclusively by a for 3 s"),
        ({"exclusive": True}, seen(("a", ALL, 3), limit=ALL), "'job' has been held exclusively by a for 3 s"),
        (
            {"exclusive": True},
            seen(("a", 1, 3), ("b", 1, 1), waiters=[("c", ALL, 1)], limit=ALL),
            "'job' has been shared by a for 3 s, b for 1 s",
        ),
        (
            {"shared": True},
            seen(("a", 1, 3), waiters=[("c", ALL, 1)], limit=ALL),
            "'job' has been shared by a for 3 s; c has waited for 1 s to have it exclusively",
        ),
        ({"shared": True}, seen(("a", 1, 3), limit=ALL), "'job' was taken"),
        ({"shared": True}, seen(waiters=[("c", ALL, 1)], limit=ALL), "c has waited for 'job' for 1 s and comes first"),
        ({"exclusive": True}, seen(limit=ALL), "'job' was taken"),
    ],
)
def test_who_has_it_in_words(options, status, expected):
    assert who_has(asked(**options), status) == expected
