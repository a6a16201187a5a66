"""``handfast run`` as a process: its streams, signals and exit code.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import redis

from handfast.testing import ServerController
from tests._support.helpers import eventually, more
from tests._support.running import BOUND, CAT, HANDFAST, LISTENER, PYTHON, done, line_of, ready, until_queued
from tests.gate.cli import test_cli_run as gate
from tests.gate.cli.test_cli_run import NOWHERE

start = gate.start
run = gate.run
job = gate.job

DEAF = ["sh", "-c", "trap '' TERM; echo ready; exec tail -f /dev/null"]
"""A command that ignores SIGTERM."""

SHELL = [
    *PYTHON,
    """
import os, signal, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # a session leader gets the first terminal that it opens
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
"""A shell with one job: Ctrl-Z stops the job, and a line of input continues it in the foreground."""


EMBEDDED_IN = """
import sys
from handfast import embedded
embedded.PLACE = sys.argv.pop(1)
from handfast.cli import main
main()
"""


def embedded_in(place):
    """Return the command ``handfast run``, whose embedded server is in another place than this user's."""
    return [sys.executable, "-c", EMBEDDED_IN, str(place), "run"]


def test_command_inherits_other_open_files(run):
    reader, writer = os.pipe()
    process = run("--", "sh", "-c", f"echo hello >/dev/fd/{writer}", pass_fds=[writer])
    os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() == "hello\n"
    assert done(process)[0] == 0


def test_options_after_the_dashes_belong_to_the_command(run):
    assert done(run("--", "echo", "-n", "--", "--ttl")) == (0, "-- --ttl", "")


# Outages
@pytest.mark.parametrize("words", [["--skip-ok", "-w", "0.3"], *more(["-n"])], ids="".join)
def test_a_server_that_does_not_answer_is_no_reason_to_skip_a_run(start, words):
    with ServerController() as server:
        options = ["--url", f"{server.url}?socket_timeout=0.5"]
        assert done(start(*HANDFAST, "job", *options, "--", "true")) == (0, "", "")
        server.pause()
        code, output, errors = done(start(*HANDFAST, "job", *options, *words, "--", "echo", "ran"))
        assert (code, output) == (69, "")
        assert re.fullmatch(
            "handfast: 'job' was not acquired: cannot use unix:.*: the server did not answer: .+\n", errors
        )
        server.resume()


def test_run_in_another_namespace_does_not_wait(run, job):
    with job.acquire():
        assert done(run("-n", "--namespace", "other", "--", "true"))[0] == 0


def test_second_run_waits_for_the_first(run, job):
    first = ready(run("--", *CAT))
    second = run("--", "echo", "second")
    until_queued(job)
    assert second.poll() is None
    assert done(first)[0] == 0
    assert done(second) == (0, "second\n", "")


def test_a_run_that_waits_says_for_whom_if_it_is_asked_to(run, job):
    with job.acquire():
        quiet = run("--label", "quiet", "--", "true")
        until_queued(job)
        first = run("-v", "--", "true")
        until_queued(job, 2)
        second = run("-v", "-w", "30", "--", "true")
        holder = re.escape(f"{os.uname().nodename}:{os.getpid()}")
        held = rf"handfast: waiting: 'job' is held by {holder} for \d+\.\ds; "
        assert re.fullmatch(rf"{held}1 ahead in the queue\n", first.stderr.readline())
        assert re.fullmatch(rf"{held}2 ahead in the queue\n", second.stderr.readline())
    assert done(quiet) == (0, "", ""), "cron would mail it"
    assert done(first) == done(second) == (0, "", "")


@pytest.mark.parametrize("words", [["-w", "1"], ["-n"]])
def test_a_run_that_does_not_wait_long_says_only_that_it_gave_up(run, job, words):
    with job.acquire():
        code, _, errors = done(run("-v", *words, "--", "true"))
    assert code == 75
    assert len(errors.splitlines()) == 1
    assert "waiting" not in errors


def test_a_run_that_waits_says_for_whom_on_a_terminal(start, server, job):
    with job.acquire() as lease:
        terminal = Terminal(start, server.url, *LISTENER)
        terminal.read("next in the queue\r\n")
        assert "handfast: waiting: 'job' is held by " in terminal.shown
        lease.release()
        terminal.end()


def test_run_with_wait_limit_acquires_a_lock_that_is_released_in_time(run, job):
    lease = job.acquire()
    process = run("-w", "30", "--", "true")
    until_queued(job)
    lease.release()
    assert done(process)[0] == 0


def test_conflict_exit_code_replaces_75(run, job):
    with job.acquire():
        assert done(run("-n", "-E", "9", "--", "true"))[0] == 9


# Failures
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("no-such-command", 127),
        ("/etc/passwd", 126),
        *more(("/etc/passwd/no", 127), ("/etc", 126)),
    ],
)
def test_command_that_cannot_run_exits_126_or_127_and_releases_the_lock(run, job, command, code):
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
        ["job", "--ttl", "5 m", "--", "true"],
        ["job", "--ttl", "5w", "--", "true"],
        ["job", "--ttl", "367d", "--", "true"],
        ["job", "--ttl", "s", "--", "true"],
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
def test_wrong_usage_exits_64_and_starts_no_server(start, tmp_path, words):
    code, out, err = done(start(*embedded_in(tmp_path), *words, env=NOWHERE | {"HANDFAST_URL": "embedded:"}))
    assert (code, out) == (64, "")
    assert err.startswith("Usage: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_exits_0(start, option):
    code, out, _ = done(start(*HANDFAST, option))
    assert code == 0
    assert "NAME -- COMMAND..." in out


def test_unusable_folder_for_the_embedded_server_exits_69(start, tmp_path):
    (tmp_path / f"handfast-{os.getuid()}").mkdir(mode=0o755)  # readable by others, so no server is started in it
    code, _, err = done(start(*embedded_in(tmp_path), "job", "--embedded", "--", "true"))
    assert code == 69
    assert "not private to you" in err


def test_server_that_refuses_exits_69(run, raw):
    raw.config_set("maxmemory", 1)
    code, _, err = done(run("--", "true"))
    assert code == 69
    assert "out of memory" in err


@pytest.mark.parametrize("name", ["SIGTERM", *more("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")])
def test_signal_during_the_wait_leaves_no_waiter(run, job, name):
    with job.acquire() as lease:
        process = run("--", "echo", "no")
        until_queued(job)
        process.send_signal(signal.Signals[name])
        assert done(process) == (128 + signal.Signals[name], "", "")
        status = job.status()
        assert not status.waiters
        assert [holder.fence for holder in status.holders] == [lease.fence]
    assert not job.locked()


def test_ignored_signal_stays_ignored(start, server, job):
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
        """Read until this text is shown."""
        while text not in self.shown:
            self.shown += os.read(self.master, 4096).decode()

    def type(self, text):
        os.write(self.master, text.encode())

    def job(self):
        """The process id of ``handfast run``."""
        self.read("ready")
        return int(self.shown.split("job=")[1].split("=")[0])

    def end(self):
        """End the job and check that its shell notices."""
        os.kill(self.job(), signal.SIGTERM)
        self.read("exit=5=")
        self.shell.wait(BOUND)
        os.close(self.master)


def test_ctrl_c_in_a_terminal_reaches_the_command_once(start, server, raw):
    terminal = Terminal(start, server.url, *LISTENER)
    terminal.read("ready")
    # `handfast run` is stopped, so that a SIGINT which it forwarded would not merge with the one from the terminal.
    os.kill(terminal.job(), signal.SIGSTOP)
    terminal.type("\x03")
    terminal.read("SIGINT")
    os.kill(terminal.job(), signal.SIGCONT)
    terminal.end()  # signals are forwarded in order: a second SIGINT would be shown before the SIGTERM
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
def test_lost_lease_ends_the_command_with_sigterm(run, job):
    process = ready(run("--", *LISTENER))
    job.force_release()
    code, out, err = done(process)
    assert code == 74
    assert "SIGTERM\n" in out
    assert "lost the lease of 'job'" in err
    assert "sent SIGTERM to" in err


@pytest.mark.parametrize("kind", [[], ["--slots", "2"], ["-s"], ["-x"]], ids="".join)
def test_a_command_that_hangs_is_ended_when_it_was_held_for_long_enough(run, kind):
    code, _, err = done(run("--ttl", "1", "--max-hold", "2", *kind, "--", "sleep", "60"))
    assert code == 74
    assert "it was held for max_hold, 2 s" in err


def test_a_command_that_ends_while_signals_are_sent_to_it_keeps_its_exit_code():
    """`Popen.send_signal` looks first whether it has ended, and takes its status."""
    script = """
import os, signal
from handfast.cli.supervision.child import Child, LossPlan
from handfast.cli.supervision.signals import Signals
with Signals() as signals:
    signals.collect()
    child = Child(["sh", "-c", "exit 3"], os.environ, signals, print)
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    child._send(signal.SIGCONT)
    print(child.supervise(LossPlan("term", 1.0)))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=BOUND, check=False)
    assert (ended.stdout, ended.stderr) == ("3\n", "")


def test_command_that_ignores_sigterm_is_killed_after_the_grace_period(run, job):
    process = ready(run("--kill-after", "0.1", "--", *DEAF))
    job.force_release()
    code, _, err = done(process)
    assert code == 74
    assert err.index("sent SIGTERM") < err.index("sent SIGKILL")


def test_stopped_command_is_ended_by_a_lost_lease(run, job):
    process = run("--", "sh", "-c", 'echo $$; exec "$@"', "sh", *LISTENER)
    pid = int(line_of(process))
    ready(process)
    os.kill(pid, signal.SIGSTOP)
    job.force_release()
    code, out, _ = done(process)
    assert code == 74
    assert "SIGTERM\n" in out


def test_on_lost_kill_sends_sigkill_at_once(run, job):
    process = ready(run("--on-lost", "kill", "--", *LISTENER))
    job.force_release()
    code, out, err = done(process)
    assert (code, out) == (74, "")
    assert "sent SIGKILL to" in err


def test_on_lost_ignore_prints_a_message_and_continues(run, job):
    process = ready(run("--on-lost", "ignore", "--", "sh", "-c", "echo ready; cat; exit 7"))
    job.force_release()
    stderr = ""
    while "continues although the lease is lost" not in stderr:
        stderr += process.stderr.readline()
    assert process.poll() is None
    assert done(process, "unharmed")[:2] == (7, "unharmed")


def test_sigkill_of_run_frees_the_lock_after_the_ttl_while_the_command_lives_on(run, job):
    process = ready(run("--ttl", "0.5", "--", *CAT))
    process.kill()
    process.wait(BOUND)
    eventually(lambda: not job.locked())
    process.stdin.write("still here\n")
    process.stdin.flush()
    assert line_of(process) == "still here\n"


def test_runs_on_the_embedded_server_meet_whatever_their_environments_say(start):
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as place:
        embedded = [*embedded_in(place), "job"]
        login = NOWHERE | {"XDG_RUNTIME_DIR": place, "TMPDIR": place}
        cron = {key: NOWHERE[key] for key in ("PATH", "PYTHONPATH") if key in NOWHERE} | {"HANDFAST_URL": "embedded:"}
        first = ready(start(*embedded, "--embedded", "--", *CAT, env=login))
        code, _, err = done(start(*embedded, "-n", "--", "true", env=cron))
        assert code == 75
        assert "only your processes on this machine share" in err.splitlines()[0]
        assert done(first)[0] == 0
        assert done(start(*embedded, "-n", "--embedded", "--", "true", env=login))[0] == 0
        (folder,) = Path(place).iterdir()
        with redis.Redis(unix_socket_path=f"{folder}/s") as client:
            client.flushall()
        eventually(lambda: not any(folder.iterdir()), within=BOUND)


# Holding and waiting
def test_a_run_that_is_over_keeps_the_name_for_the_time_that_it_asked_for(run, job):
    assert done(run("--at-least", "1h", "--label", "me", "--", "true")) == (0, "", "")
    (holder,) = job.status().holders
    assert holder.released
    code, output, errors = done(run("-n", "--", "echo", "ran"))
    assert (code, output) == (75, "")
    assert re.fullmatch(r"handfast: 'job' is held by me for \d\.\ds \(done, and taken for 59m\d\ds more\)\n", errors)
    assert job.force_release(reason="test") == 1
    assert done(run("-n", "--", "echo", "ran")) == (0, "ran\n", "")
