"""``handfast once`` as a process: whether the command runs, what is recorded of it, and the exit code."""

from __future__ import annotations

import re
import signal

import pytest

from tests._support.forked import PROGRAM
from tests._support.helpers import eventually, more
from tests._support.running import CAT, done, line_of, ready, starting

ONCE = [*PROGRAM, "once"]

KEEP = ["--keep", "1h"]


@pytest.fixture
def start():
    """Return a function that starts processes, which end with the test."""
    with starting(forks=True) as start:
        yield start


@pytest.fixture
def once(start, server, raw):
    """Return a function that starts ``handfast once job --keep 1h <words>``."""
    return lambda *words, **options: start(*ONCE, "job", *KEEP, "--url", server.url, *words, **options)


@pytest.fixture
def job(hf):
    """What the processes run once."""
    return hf.once("job", keep=3600.0)


def until_waiting(job, count=1):
    """Wait until that many wait for the one that runs."""
    eventually(lambda: job.status().waiting == count)


# Done
def test_what_was_done_is_not_run_again_and_exits_0_without_a_message(once):
    assert done(once("--", "echo", "ran")) == (0, "ran\n", "")
    assert done(once("--", "echo", "ran")) == (0, "", "")
    code, out, err = done(once("-v", "--", "echo", "ran"))
    assert (code, out) == (0, "")
    assert re.fullmatch(r"handfast: 'job' was done \d\.\ds ago, which counts for 1h00m: it is not run again\n", err)


def test_what_a_program_has_done_is_not_run_again_whatever_its_result(once, hf):
    hf.once("job", dumps=bytes).run(lambda: b"\xff no JSON")
    assert done(once("--", "echo", "ran")) == (0, "", "")


def test_a_program_gets_the_exit_code_as_the_result(once, job):
    assert done(once("--any-exit", "--", "sh", "-c", "exit 7"))[0] == 7
    assert job.run(lambda: None) == 7


# Not done
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), *more(("kill -KILL $$", 128 + signal.SIGKILL))])
def test_a_command_that_fails_was_not_done(once, job, script, code):
    assert done(once("--", "sh", "-c", script)) == (code, "", "")
    assert job.status().state != "done"
    assert done(once("--", "echo", "ran")) == (0, "ran\n", "")


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), *more(("/etc/passwd", 126), ("/etc", 126))])
def test_a_command_that_cannot_run_was_not_done(once, command, code):
    for _ in range(2):
        found, _, err = done(once("--any-exit", "--", command))
        assert found == code
        assert err.startswith(f"handfast: cannot run {command!r}: ")


def test_any_exit_code_counts_as_done_if_it_is_asked_for(once):
    assert done(once("--any-exit", "--", "sh", "-c", "exit 7")) == (7, "", "")
    assert done(once("--any-exit", "--", "echo", "ran")) == (0, "", "")


# Another one runs it
@pytest.mark.parametrize("options", [["-n"], *more(["-w", "0"])], ids=" ".join)
def test_one_that_does_not_wait_names_the_one_that_runs_and_exits_75(once, options):
    process = ready(once("--label", "me", "--", *CAT))
    code, out, err = done(once(*options, "--", "echo", "no"))
    assert (code, out) == (75, "")
    assert re.fullmatch(r"handfast: 'job' is run by me for \d+\.\ds\n", err)
    assert done(process)[0] == 0
    assert done(once(*options, "--", "echo", "no")) == (0, "", "")


# The command
def test_the_command_gets_the_environment_of_a_lease(once, job):
    process = once("--label", "me", "--", "sh", "-c", "echo $HANDFAST_NAME $HANDFAST_FENCE $HANDFAST_HELD; exec cat")
    name, fence, held = line_of(process).split()
    holder = job.status().held_by
    assert (name, int(fence), holder.label) == ("job", holder.fence, "me")
    assert held == fence
    assert done(process)[0] == 0


@pytest.mark.parametrize("name", ["SIGTERM", *more("SIGINT", "SIGHUP", "SIGUSR1")])
def test_a_signal_during_the_wait_leaves_no_waiter(once, job, name):
    first = ready(once("--", *CAT))
    process = once("--", "echo", "no")
    until_waiting(job)
    process.send_signal(signal.Signals[name])
    assert done(process) == (128 + signal.Signals[name], "", "")
    assert job.status().waiting == 0
    assert done(first)[0] == 0


# Loss, and servers that are away
@pytest.mark.parametrize(("on_lost", "expected"), [("term", 74), *more(("kill", 74), ("ignore", 0))])
def test_a_run_whose_lease_was_lost_is_not_recorded(once, raw, job, on_lost, expected):
    process = ready(once("--on-lost", on_lost, "--", *CAT))
    raw.flushall()  # the next renewal is seconds away
    code, _, err = done(process)
    assert code == expected
    assert "was lost before 'sh' ended" in err
    assert job.status().state != "done"


def test_an_unreachable_server_exits_69(start, tmp_path):
    code, out, err = done(start(*ONCE, "job", *KEEP, "--url", f"unix://{tmp_path}/none", "--", "echo", "no"))
    assert (code, out) == (69, "")
    assert err.startswith("handfast: ")
    assert "Traceback" not in err
