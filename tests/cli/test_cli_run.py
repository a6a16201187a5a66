"""``handfast run``, as a shell or cron sees it: a process with streams, signals and an exit code."""

from __future__ import annotations

import os
import pty
import signal
import tempfile
from pathlib import Path

import pytest

from tests._support.helpers import eventually
from tests._support.running import BOUND, CAT, HANDFAST, LISTENER, PYTHON, done, ready, starting, until_queued

DEAF = ["sh", "-c", "trap '' TERM; echo ready; exec tail -f /dev/null"]
"""Does not hear SIGTERM."""

SHELL = [
    *PYTHON,
    """
import os, signal, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # who opens a terminal first is controlled by it
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
print(f"job={job}=", flush=True)
while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
    if os.WSTOPSIG(status) != signal.SIGTSTP:
        continue
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
print(f"exit={os.waitstatus_to_exitcode(status)}=", flush=True)
""",
]
"""A shell of one job, which Ctrl-Z stops and a line of input takes to the foreground again."""


@pytest.fixture
def start():
    """Starts processes, and ends them after the test."""
    with starting() as start:
        yield start


@pytest.fixture
def run(start, server, raw):
    """Starts ``handfast run job <words>``."""
    return lambda *words, **options: start(*HANDFAST, "job", "--url", server.url, *words, **options)


@pytest.fixture
def job(hf):
    """The lock that they are about."""
    return hf.lock("job")


def without_server(folder):
    """An environment that names no server and has its shared one in this folder."""
    named = {"HANDFAST_URL", "REDIS_URL"}
    return {key: value for key, value in os.environ.items() if key not in named} | {"XDG_RUNTIME_DIR": str(folder)}


# What passes through


def test_the_exit_code_is_the_commands_own(run):
    assert done(run("--", "sh", "-c", "exit 7")) == (7, "", "")


def test_a_command_that_a_signal_ends_exits_as_in_a_shell(run):
    assert done(run("--", "sh", "-c", "kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_the_streams_pass_through(run):
    assert done(run("--", "sh", "-c", "cat; echo complaint >&2"), "hello") == (0, "hello", "complaint\n")


def test_further_open_files_pass_through(run):
    reader, writer = os.pipe()
    process = run("--", "sh", "-c", f"echo hello >/dev/fd/{writer}", pass_fds=[writer])
    os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() == "hello\n"
    assert done(process)[0] == 0


def test_options_after_the_dashes_are_the_commands(run):
    assert done(run("--", "echo", "-n", "--", "--ttl")) == (0, "-- --ttl", "")


def test_the_command_finds_name_fence_and_token_in_its_environment(run, job):
    process = run("--label", "me", "--", "sh", "-c", "echo $HANDFAST_NAME $HANDFAST_FENCE $HANDFAST_TOKEN; exec cat")
    name, fence, token = process.stdout.readline().split()
    (holder,) = job.status().holders
    assert (name, int(fence), holder.label) == ("job", holder.fence, "me")
    assert token.startswith(holder.token)
    assert len(token) == 32
    assert done(process)[0] == 0


# Holding and waiting


def test_the_lock_is_held_while_the_command_runs_and_free_afterwards(run, job):
    process = ready(run("--", *CAT))
    assert job.try_acquire() is None
    assert done(process, "hello") == (0, "hello", "")
    with job.acquire(timeout=BOUND):
        pass


def test_the_namespace_is_another_lock(run, job):
    with job.acquire():
        assert done(run("-n", "--namespace", "other", "--", "true"))[0] == 0


def test_a_second_run_waits_and_gets_in_after_the_first(run, job):
    first = ready(run("--", *CAT))
    second = run("--", "echo", "second")
    until_queued(job)
    assert second.poll() is None
    assert done(first)[0] == 0
    assert done(second) == (0, "second\n", "")


def test_a_bounded_wait_may_end_with_the_lock(run, job):
    lease = job.acquire()
    process = run("-w", "30", "--", "true")
    until_queued(job)
    lease.release()
    assert done(process)[0] == 0


@pytest.mark.parametrize("options", [["-n"], ["-w", "0"]])
def test_busy_says_who_has_the_lock_and_exits_75(run, hf, other, options):
    with hf.lock("job"):
        code, out, err = done(run(*options, "--", "echo", "no"))
    assert (code, out) == (75, "")
    assert err.startswith(f"handfast: 'job' has been held by {os.uname().nodename}:{os.getpid()} for ")


def test_a_wait_that_is_over_exits_75_and_leaves_the_line(run, job):
    with job.acquire():
        code, _, err = done(run("-w", "0.05", "--", "true"))
        assert not job.status().waiters
    assert code == 75
    assert err.endswith("; gave up after 0.05 s\n")


def test_the_exit_code_for_busy_can_be_chosen(run, job):
    with job.acquire():
        assert done(run("-n", "-E", "9", "--", "true"))[0] == 9


@pytest.mark.parametrize("options", [[], ["-w", "0.05"], ["-n", "-E", "9"]])
def test_skip_ok_is_quiet_success_when_busy(run, job, options):
    with job.acquire():
        assert done(run("--skip-ok", *options, "--", "echo", "no")) == (0, "", "")


def test_skip_ok_runs_the_command_when_it_can(run):
    assert done(run("--skip-ok", "--", "sh", "-c", "exit 7"))[0] == 7


# What cannot be


@pytest.mark.parametrize(
    ("command", "code"),
    [("no-such-command", 127), ("/etc/passwd/no", 127), ("/etc/passwd", 126), ("/etc", 126)],
)
def test_a_command_that_cannot_run_exits_as_in_a_shell_and_holds_nothing(run, job, command, code):
    found, _, err = done(run("--", command))
    assert found == code
    assert err.startswith(f"handfast: cannot run {command!r}: ")
    assert not job.locked()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["job"],
        ["job", "--"],
        ["job", "true"],
        ["job", "ls", "-l"],
        ["job", "more", "--", "true"],
        ["", "--", "true"],
        ["job", "--namespace", "", "--", "true"],
        ["job", "--no-such-option", "--", "true"],
        ["job", "--ttl", "0", "--", "true"],
        ["job", "--ttl", "soon", "--", "true"],
        ["job", "-w", "-1", "--", "true"],
        ["job", "-w", "nan", "--", "true"],
        ["job", "-n", "-w", "1", "--", "true"],
        ["job", "-E", "256", "--", "true"],
        ["job", "--slots", "0", "--", "true"],
        ["job", "--slots", "1000000001", "--", "true"],
        ["job", "--slots", "some", "--", "true"],
        ["job", "--slots", "1", "-s", "--", "true"],
        ["job", "--slots", "1", "-x", "--", "true"],
        ["job", "-s", "-x", "--", "true"],
        ["job", "--kill-after", "inf", "--", "true"],
        ["job", "--on-lost", "pray", "--", "true"],
        ["job", "--url", "nonsense", "--", "true"],
    ],
)
@pytest.mark.slow
def test_wrong_usage_exits_64_and_starts_no_server(start, tmp_path, words):
    code, out, err = done(start(*HANDFAST, *words, env=without_server(tmp_path)))
    assert (code, out) == (64, "")
    assert err.startswith("Usage: ")
    assert not list(tmp_path.iterdir())


def test_help_is_no_wrong_usage(start):
    code, out, _ = done(start(*HANDFAST, "--help"))
    assert code == 0
    assert "NAME -- COMMAND..." in out


def test_a_server_that_is_not_there_exits_69(start, tmp_path):
    code, out, err = done(start(*HANDFAST, "job", "--url", f"unix://{tmp_path}/none", "--", "echo", "no"))
    assert (code, out) == (69, "")
    assert "handfast: " in err
    assert "Traceback" not in err


def test_no_server_to_embed_exits_69(start, tmp_path):
    (tmp_path / "handfast").mkdir(mode=0o755)  # others could look in: no place for a server
    code, _, err = done(start(*HANDFAST, "job", "--", "true", env=without_server(tmp_path)))
    assert code == 69
    assert "not private to you" in err


def test_a_server_that_refuses_exits_69(run, raw):
    raw.config_set("maxmemory", 1)
    code, _, err = done(run("--", "true"))
    assert code == 69
    assert "out of memory" in err


# Signals


def test_signals_are_passed_on_to_the_command(run):
    process = ready(run("--", *LISTENER))
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        assert process.stdout.readline() == f"{name}\n"
    assert done(process)[0] == 5


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_while_waiting_leaves_nothing_behind(run, job, name):
    with job.acquire() as lease:
        process = run("--", "echo", "no")
        until_queued(job)
        process.send_signal(signal.Signals[name])
        assert done(process) == (128 + signal.Signals[name], "", "")
        status = job.status()
        assert not status.waiters
        assert [holder.fence for holder in status.holders] == [lease.fence]
    assert not job.locked()


def test_an_ignored_signal_stays_ignored(start, server, job):
    with job.acquire():
        nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
        process = start(*nohup, *HANDFAST, "job", "--url", server.url, "--", "true")
        until_queued(job)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)  # delivered second, so an ending by the first would show
        assert done(process)[0] == 128 + signal.SIGTERM


class Terminal:
    """A terminal with a shell that runs one ``handfast run`` in the foreground."""

    def __init__(self, start, url, *command):
        self.master, slave = pty.openpty()
        self.shown = ""
        words = [*SHELL, *HANDFAST, "job", "--url", url, "--", *command]
        self.shell = start(*words, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)

    def read(self, text):
        """Read until this is shown."""
        while text not in self.shown:
            self.shown += os.read(self.master, 4096).decode()

    def type(self, text):
        os.write(self.master, text.encode())

    def job(self):
        """The process id of ``handfast run``."""
        self.read("ready")
        return int(self.shown.split("job=")[1].split("=")[0])

    def end(self):
        """End the job and see that its shell knows."""
        os.kill(self.job(), signal.SIGTERM)
        self.read("exit=5=")
        self.shell.wait(BOUND)
        os.close(self.master)


def test_ctrl_c_in_a_terminal_reaches_the_command_once(start, server, raw):
    terminal = Terminal(start, server.url, *LISTENER)
    terminal.read("ready")
    # Ours is held up, so that a SIGINT which it passed on would not melt into the one that the terminal sent.
    os.kill(terminal.job(), signal.SIGSTOP)
    terminal.type("\x03")
    terminal.read("SIGINT")
    os.kill(terminal.job(), signal.SIGCONT)
    terminal.end()  # what is passed on comes in order: a second SIGINT would be shown before the SIGTERM
    assert terminal.shown.count("SIGINT") == 1
    assert "SIGTERM" in terminal.shown


def test_ctrl_z_stops_the_job_and_fg_continues_it(start, server, raw):
    terminal = Terminal(start, server.url, *LISTENER)
    terminal.read("ready")
    terminal.type("\x1a")
    terminal.read("stopped")
    terminal.type("fg\n")
    terminal.read("SIGCONT")
    terminal.end()


# Loss


def test_a_lost_lease_ends_the_command_with_sigterm(run, job):
    process = ready(run("--", *LISTENER))
    job.force_release()
    code, out, err = done(process)
    assert code == 74
    assert "SIGTERM\n" in out
    assert "lost the lease of 'job'" in err
    assert "sent SIGTERM to" in err


def test_a_command_that_does_not_mind_sigterm_is_killed_after_the_grace(run, job):
    process = ready(run("--kill-after", "0.1", "--", *DEAF))
    job.force_release()
    code, _, err = done(process)
    assert code == 74
    assert err.index("sent SIGTERM") < err.index("sent SIGKILL")


def test_a_command_that_is_stopped_hears_of_the_loss_too(run, job):
    process = run("--", "sh", "-c", 'echo $$; exec "$@"', "sh", *LISTENER)
    pid = int(process.stdout.readline())
    ready(process)
    os.kill(pid, signal.SIGSTOP)
    job.force_release()
    code, out, _ = done(process)
    assert code == 74
    assert "SIGTERM\n" in out


def test_a_lost_lease_can_kill_at_once(run, job):
    process = ready(run("--on-lost", "kill", "--", *LISTENER))
    job.force_release()
    code, out, err = done(process)
    assert (code, out) == (74, "")
    assert "sent SIGKILL to" in err


def test_a_lost_lease_can_be_ignored_but_not_in_silence(run, job):
    process = ready(run("--on-lost", "ignore", "--", "sh", "-c", "echo ready; cat; exit 7"))
    job.force_release()
    said = ""
    while "goes on although the lease is lost" not in said:
        said += process.stderr.readline()
    assert process.poll() is None
    assert done(process, "unharmed")[:2] == (7, "unharmed")


@pytest.mark.parametrize(("on_lost", "expected"), [("term", 74), ("kill", 74), ("ignore", 7)])
def test_a_loss_that_only_the_release_finds_is_told_too(run, raw, on_lost, expected):
    process = ready(run("--on-lost", on_lost, "--", "sh", "-c", "echo ready; cat; exit 7"))
    raw.flushall()  # the next renewal is seconds away
    code, _, err = done(process)
    assert code == expected
    assert "was lost before 'sh' ended" in err


def test_sigkill_frees_the_lock_after_the_ttl_though_the_orphan_lives_on(run, job):
    process = ready(run("--ttl", "0.5", "--", *CAT))
    process.kill()
    process.wait(BOUND)
    eventually(lambda: not job.locked())
    process.stdin.write("still here\n")
    process.stdin.flush()
    assert process.stdout.readline() == "still here\n"


# The shared server


@pytest.mark.slow
def test_two_runs_meet_on_the_shared_server(start):
    with tempfile.TemporaryDirectory() as folder:
        alone = without_server(folder)
        first = ready(start(*HANDFAST, "job", "--", *CAT, env=alone))
        second = start(*HANDFAST, "job", "-n", "--", "true", env=alone)
        assert done(second)[0] == 75
        assert done(first)[0] == 0
        third = start(*HANDFAST, "job", "-n", "--", "true", env=alone)
        assert done(third)[0] == 0
        eventually(lambda: not Path(folder, "handfast", "s").exists(), within=BOUND)
