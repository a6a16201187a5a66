"""``handfast run`` as a process: its streams, signals and exit code."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast.cli.durations import parse_duration, parse_duration_or_zero, span
from handfast.cli.supervision.signals import FORWARDED
from tests._support.forked import PROGRAM
from tests._support.helpers import eventually, more
from tests._support.running import BOUND, CAT, HANDFAST, LISTENER, PYTHON, done, line_of, ready, starting, until_queued


@pytest.fixture
def start():
    """Return a function that starts processes, which end with the test."""
    with starting(forks=True) as start:
        yield start


@pytest.fixture
def run(start, server, raw):
    """Return a function that starts ``handfast run job <words>``."""
    return lambda *words, **options: start(*HANDFAST, "job", "--url", server.url, *words, **options)


@pytest.fixture
def job(hf):
    """The lock that the runs compete for."""
    return hf.lock("job")


ECHO = """
import os, signal
heard = signal.valid_signals() - {signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
os.write(1, b"ready\\n")
while (number := int(signal.sigwait(heard))) != signal.SIGRTMAX:
    os.write(1, b"%d\\n" % number)
os.write(1, b"%d\\n" % number)
"""
"""A command that reports its signals by their numbers, and ends with the last one."""

NOWHERE = {key: value for key, value in os.environ.items() if key not in {"HANDFAST_URL", "REDIS_URL"}}
"""An environment that names no server, as cron's does."""


# Streams, files, exit codes
def test_run_returns_the_exit_code_of_the_command(run):
    assert done(run("--", "sh", "-c", "exit 7")) == (7, "", "")


def test_run_exits_128_plus_n_if_signal_n_ends_the_command(run):
    assert done(run("--", "sh", "-c", "kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_command_inherits_standard_streams(run):
    assert done(run("--", "sh", "-c", "cat; echo complaint >&2"), "hello") == (0, "hello", "complaint\n")


def test_command_gets_name_fence_and_token_in_its_environment(run, job):
    process = run("--label", "me", "--", "sh", "-c", "echo $HANDFAST_NAME $HANDFAST_FENCE $HANDFAST_TOKEN; exec cat")
    name, fence, token = line_of(process).split()
    (holder,) = job.status().holders
    assert (name, int(fence), holder.label) == ("job", holder.fence, "me")
    assert token.startswith(holder.token)
    assert len(token) == 32
    assert done(process)[0] == 0


def test_runs_with_slots_get_numbers_of_their_own(run, hf):
    command = ("--slots", "3", "--", "sh", "-c", "echo slot $HANDFAST_SLOT; exec cat")
    first = run(*command)
    assert line_of(first) == "slot 0\n"
    second = run(*command)
    assert line_of(second) == "slot 1\n"
    assert {one.slot for one in hf.semaphore("job", 3).status().holders} == {0, 1}
    assert done(first)[0] == 0
    third = run(*command)
    assert line_of(third) == "slot 0\n"
    assert done(second)[0] == done(third)[0] == 0


def test_a_run_beyond_all_numbers_has_none(run):
    show, around = ("--", "sh", "-c", "echo ${HANDFAST_SLOT-none}"), os.environ | {"HANDFAST_SLOT": "3"}
    assert done(run("--slots", "1025", *show, env=around))[:2] == (0, "none\n")
    assert done(run(*show, env=around))[:2] == (0, "none\n"), "that is the number of a run around this"


def test_only_a_lock_is_kept_for_a_time(run):
    code, _, errors = done(run("--at-least", "1h", "--slots", "2", "--", "true"))
    assert code == 64
    assert "Use --at-least without --slots, --shared and --exclusive." in errors


def test_lock_is_held_while_the_command_runs_and_free_afterwards(run, job):
    process = ready(run("--", *CAT))
    assert job.try_acquire() is None
    assert done(process, "hello") == (0, "hello", "")
    with job.acquire(timeout=BOUND):
        pass


@pytest.mark.parametrize("options", [["-n"], ["-w", "0"]])
def test_busy_run_names_the_holder_and_exits_75(run, hf, other, options):
    with hf.lock("job"):
        code, out, err = done(run(*options, "--", "echo", "no"))
    assert (code, out) == (75, "")
    assert err.startswith(f"handfast: 'job' is held by {os.uname().nodename}:{os.getpid()} for ")


def test_run_exits_75_and_leaves_the_queue_after_its_wait_limit(run, job):
    with job.acquire():
        code, _, err = done(run("-w", "0.05", "--", "true"))
        assert not job.status().waiters
    assert code == 75
    assert err.endswith("; gave up after 0.05s\n")


@pytest.mark.parametrize("options", [[], *more(["-w", "0.05"], ["-n", "-E", "9"])])
def test_skip_ok_exits_0_silently_when_busy(run, job, options):
    with job.acquire():
        assert done(run("--skip-ok", *options, "--", "echo", "no")) == (0, "", "")


def test_skip_ok_runs_the_command_when_free(run):
    assert done(run("--skip-ok", "--", "sh", "-c", "exit 7"))[0] == 7


def test_unreachable_server_exits_69(start, tmp_path):
    code, out, err = done(start(*HANDFAST, "job", "--url", f"unix://{tmp_path}/none", "--", "echo", "no"))
    assert (code, out) == (69, "")
    assert "handfast: " in err
    assert "Traceback" not in err


# Signals
def test_signals_are_forwarded_to_the_command(run):
    process = ready(run("--", *LISTENER))
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        assert line_of(process) == f"{name}\n"
    assert done(process)[0] == 5


def test_every_signal_that_can_be_caught_is_forwarded(run):
    """But those that belong to this process, or to both."""
    process = run("--", *PYTHON, ECHO)
    ready(process)
    numbers = sorted(FORWARDED - {signal.SIGPIPE, signal.SIGXFSZ})  # which Python has ignored since it began
    assert len(numbers) > 40
    for number in numbers:
        process.send_signal(number)
        assert int(line_of(process)) == number
    assert done(process)[0] == 0


@pytest.mark.parametrize(
    "number", [signal.SIGABRT, signal.SIGALRM, *more(signal.SIGXCPU, signal.SIGRTMIN + 3)], ids=int
)
def test_every_signal_ends_the_wait(run, job, number):
    with job.acquire():
        process = run("--", "true")
        until_queued(job)
        process.send_signal(number)
        assert done(process) == (128 + number, "", "")
        assert not job.status().waiters


@pytest.mark.parametrize(
    "how", ["pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])", "signal(signal.SIGCHLD, signal.SIG_IGN)"]
)
def test_a_run_sees_the_end_of_a_command_whatever_became_of_sigchld(start, server, how):
    """Some runtimes block it. The command finds it as it was."""
    become = [*PYTHON, f"import os, signal, sys; signal.{how}; os.execv(sys.argv[1], sys.argv[1:])"]
    blocked = "import signal, sys; print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))); sys.exit(3)"
    process = start(*become, *HANDFAST, "job", "--url", server.url, "--", *PYTHON, blocked)
    assert done(process)[:2] == (3, f"{signal.SIGCHLD:d}\n" if "BLOCK" in how else "\n")


def test_a_script_without_an_interpreter_line_is_for_the_shell(run, tmp_path):
    """As for execvp(3), and so for env, nohup, flock and nice."""
    script = tmp_path / "job"
    script.write_text('test "$1" = "a b" && exit 4')
    script.chmod(0o700)
    assert done(run("--", str(script), "a b"))[0] == 4
    assert done(run("--", "job", "a b", env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}))[0] == 4


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux can do without process 1")
def test_orphans_that_come_to_a_run_leave_no_zombies(start, server):
    """As process 1 of a container it gets those of the command."""
    become = [
        *PYTHON,
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])",
    ]
    orphans = "for n in 1 2 3; do sh -c 'true & exit 0'; done; echo ready; exec cat"
    process = start(*become, *HANDFAST, "job", "--url", server.url, "--", "sh", "-c", orphans)
    ready(process)
    eventually(lambda: len(children(process.pid)) == 1)
    assert done(process)[0] == 0


def children(pid):
    """Return the processes whose parent this is, zombies among them."""
    found = []
    for other in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (other / "stat").read_text().rpartition(")")[2].split()
            found += [other.name] * (int(fields[1]) == pid)
    return found


def test_too_few_files_are_an_error_and_no_traceback(start, server):
    process = start("sh", "-c", 'ulimit -n 5; exec "$@"', "sh", *HANDFAST, "job", "--url", server.url, "--", "true")
    code, _, err = done(process)
    assert code == 69
    assert err.count("\n") == 1
    assert "Too many open files" in err


@pytest.mark.parametrize(("on_lost", "expected"), [("term", 74), *more(("kill", 74), ("ignore", 7))])
def test_loss_that_only_the_release_finds_is_reported(run, raw, on_lost, expected):
    process = ready(run("--on-lost", on_lost, "--", "sh", "-c", "echo ready; cat; exit 7"))
    raw.flushall()  # the next renewal is seconds away
    code, _, err = done(process)
    assert code == expected
    assert "was lost before 'sh' ended" in err


# Which server
@pytest.mark.parametrize(
    "words", [["run", "job", "--", "true"], *more(["script", "load"], ["script", "run", os.devnull])]
)
def test_command_without_a_server_is_wrong_usage(start, words):
    code, out, err = done(start(*PROGRAM, *words, env=NOWHERE))
    assert (code, out) == (64, "")
    for way in ("--url", "HANDFAST_URL", "REDIS_URL", "--embedded"):
        assert way in " ".join(err.split())


def test_url_and_embedded_exclude_each_other(run):
    code, _, err = done(run("--embedded", "--", "true"))
    assert code == 64
    assert "Use either --url or --embedded." in err


# Durations
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[
            ("30", 30),
            ("0.5", 0.5),
            ("30s", 30),
            ("500ms", 0.5),
            ("5m", 300),
            ("1.5h", 5400),
            ("1d", 86400),
            ("1e3", 1000),
        ],
        *[("1m30s", 90), ("1h02m", 3720), ("3d04h", 273_600), ("1s500ms", 1.5), ("1d2h3m4s5ms", 93_784.005)],
    ],
)
def test_a_duration_is_in_seconds_or_has_a_unit(text, seconds):
    assert parse_duration(None, None, text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "soon",
        "5 m",
        "5w",
        "-1",
        "nan",
        "367d",
        "0",
        "0s",
        "30s1m",
        "1m1m",
        "1m 30s",
        "1m30",
        "1.5m30s",
        "PT1M",
    ],
)
def test_a_wrong_duration_is_refused(text):
    with pytest.raises(click.UsageError):
        parse_duration(None, None, text)


@given(st.integers(10, 366 * 86400))
def test_a_duration_can_be_read_as_it_is_printed(seconds):
    read = parse_duration(None, None, span(seconds))
    assert read <= seconds < read + (1 if seconds < 3600 else 60 if seconds < 86400 else 3600)


def test_a_wait_may_be_zero():
    assert parse_duration_or_zero(None, None, "0s") == 0
