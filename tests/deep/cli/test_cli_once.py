"""``handfast once`` as a process: whether the command runs, what is recorded of it, and the exit code.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from handfast.testing import ServerController
from tests._support.helpers import eventually, more
from tests._support.running import BOUND, CAT, LISTENER, done, line_of, ready
from tests.gate.cli import test_cli_once as gate
from tests.gate.cli.test_cli_once import KEEP, ONCE, until_waiting

start = gate.start
once = gate.once
job = gate.job


def test_another_exit_code_tells_that_it_was_done(once):
    assert done(once("-E", "9", "--", "echo", "ran")) == (0, "ran\n", "")
    assert done(once("-E", "9", "--", "echo", "ran")) == (9, "", "")


def test_what_was_done_runs_again_when_it_was_forgotten(once, job):
    assert done(once("--", "true"))[0] == 0
    assert job.status().state == "done"
    job.forget()
    assert done(once("--", "echo", "ran")) == (0, "ran\n", "")


def test_each_key_is_done_once(once):
    for keys in ([], ["--key", "ann"], ["--key", "ann", "--key", "blue"], ["--key", "blue"]):
        assert done(once(*keys, "--", "echo", "ran")) == (0, "ran\n", ""), keys
        assert done(once(*keys, "--", "echo", "ran")) == (0, "", ""), keys


def test_it_is_done_once_in_each_namespace(once):
    assert done(once("--", "echo", "ran"))[1] == "ran\n"
    assert done(once("--namespace", "other", "--", "echo", "ran"))[1] == "ran\n"


def test_all_that_start_meanwhile_wait_for_the_one_that_runs(once, job):
    first = ready(once("--", *CAT))
    others = [once("--", "echo", "ran") for _ in range(4)]
    until_waiting(job, 4)
    assert done(first)[0] == 0
    assert [done(process) for process in others] == [(0, "", "")] * 4


def test_one_that_waits_runs_it_when_the_first_has_failed(once, job):
    first = ready(once("--", "sh", "-c", "echo ready; cat; exit 7"))
    second = once("--", "echo", "ran")
    until_waiting(job)
    assert done(first)[0] == 7
    assert done(second) == (0, "ran\n", "")


def test_a_command_that_cannot_run_did_not_begin(once, job):
    assert done(once("--no-rerun", "--", "no-such-command"))[0] == 127
    assert job.status().state == "idle"
    assert done(once("--no-rerun", "--", "echo", "ran")) == (0, "ran\n", "")


def test_a_command_that_a_signal_ended_was_not_done(once):
    assert done(once("--any-exit", "--", "sh", "-c", "kill -TERM $$"))[0] == 128 + signal.SIGTERM
    assert done(once("--any-exit", "--", "echo", "ran")) == (0, "ran\n", "")


def test_a_run_that_died_is_repeated_after_its_ttl(once, job):
    process = ready(once("--ttl", "0.3", "--", *CAT))
    process.kill()
    process.wait(BOUND)
    assert done(once("--", "echo", "ran")) == (0, "ran\n", "")


@pytest.mark.parametrize("how", ["died", *more("failed")])
def test_a_run_that_began_is_not_repeated_if_it_is_not_to_be(once, job, how):
    process = ready(once("--no-rerun", "--ttl", "0.3", "--", *CAT)) if how == "died" else None
    if process:
        process.kill()
        process.wait(BOUND)
        eventually(lambda: job.status().held_by is None)
    else:
        assert done(once("--no-rerun", "--", "false")) == (1, "", "")
    code, out, err = done(once("--no-rerun", "--", "echo", "ran"))
    assert (code, out) == (70, "")
    assert err.startswith("handfast: 'job' began earlier and was not done; ")
    job.forget()
    assert done(once("--no-rerun", "--", "echo", "ran")) == (0, "ran\n", "")


def test_one_that_waits_long_enough_exits_75_and_leaves_the_queue(once, job):
    process = ready(once("--", *CAT))
    assert done(once("-w", "0.05", "--", "echo", "no")) == (
        75,
        "",
        "handfast: 'job' still runs elsewhere; gave up after 0.05 s\n",
    )
    assert job.status().waiting == 0
    assert done(process)[0] == 0


def test_one_that_is_inside_the_one_that_runs_does_not_wait_for_it(once, server):
    inner = [*ONCE, "job", *KEEP, "--url", server.url, "--", "echo", "no"]
    code, out, err = done(once("--", *inner))
    assert (code, out) == (64, "")
    assert err.startswith("handfast: 'job' is held by a `handfast once` around this one")
    other = [*ONCE, "other", *KEEP, "--url", server.url, "--", "echo", "ran"]
    assert done(once("--", *other)) == (0, "ran\n", "")


def test_signals_are_forwarded_to_the_command(once):
    process = ready(once("--", *LISTENER))
    for name in ("SIGHUP", "SIGUSR1", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        assert line_of(process) == f"{name}\n"
    assert done(process)[0] == 5


def test_a_lost_lease_ends_the_command(once, raw):
    process = ready(once("--ttl", "0.6", "--", *LISTENER))
    raw.flushall()
    code, out, err = done(process)
    assert code == 74
    assert "SIGTERM\n" in out
    assert "sent SIGTERM to" in err


def test_a_command_that_cannot_be_recorded_as_done_exits_69(start):
    with ServerController() as server:
        process = ready(start(*ONCE, "job", *KEEP, "--url", f"{server.url}?socket_timeout=0.5", "--", *CAT))
        server.pause()
        code, _, err = done(process)
        server.resume()
    assert code == 69
    assert "handfast: 'sh' has ended, but could not be recorded as done and may run again: " in err


def test_a_server_that_does_not_answer_is_no_reason_to_skip_it(start):
    with ServerController() as server:
        words = [*ONCE, "job", *KEEP, "--url", f"{server.url}?socket_timeout=0.5"]
        server.pause()
        code, out, err = done(start(*words, "-n", "--", "echo", "no"))
        assert (code, out) == (69, "")
        assert err.startswith("handfast: 'job' was not run: cannot use unix:")
        assert ": the server did not answer: " in err
        server.resume()


def test_a_server_that_refuses_exits_69(once, raw):
    raw.config_set("maxmemory", 1)
    code, _, err = done(once("--", "true"))
    assert code == 69
    assert "out of memory" in err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["job"],
        ["job", "--", "true"],
        ["job", *KEEP],
        ["job", *KEEP, "--"],
        ["job", *KEEP, "true"],
        ["job", "--keep", "0", "--", "true"],
        ["job", "--keep", "soon", "--", "true"],
        ["", *KEEP, "--", "true"],
        ["job", *KEEP, "--key", "", "--", "true"],
        ["job", *KEEP, "-w", "-1", "--", "true"],
        ["job", *KEEP, "-n", "-w", "1", "--", "true"],
        ["job", *KEEP, "-E", "256", "--", "true"],
        ["job", *KEEP, "--ttl", "0", "--", "true"],
        ["job", *KEEP, "--namespace", "", "--", "true"],
        ["job", *KEEP, "--url", "nonsense", "--", "true"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_64(start, server, words):
    code, out, err = done(start(*ONCE, *words, env=os.environ | {"HANDFAST_URL": server.url}))
    assert (code, out) == (64, "")
    assert " handfast once [OPTIONS] NAME -- COMMAND...\n" in err


def test_the_line_of_the_documentation_runs_once_a_day(server, raw):
    line = f"{' '.join(ONCE)} nightly --keep 12h --url {server.url} -- echo ran"
    ended = [
        subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, timeout=BOUND) for _ in range(3)
    ]
    assert [one.stdout for one in ended] == ["ran\n", "", ""]


def test_it_runs_again_when_the_time_is_over(start, server, raw):
    words = [*ONCE, "job", "--keep", "1ms", "--url", server.url, "--", "echo", "ran"]
    assert done(start(*words)) == done(start(*words)) == (0, "ran\n", "")
