"""``handfast elect`` as a process: terms, what is printed of them, signals and exit codes."""

from __future__ import annotations

import json
import signal

import pytest

from tests._support.forked import PROGRAM
from tests._support.helpers import eventually
from tests._support.running import CAT, LISTENER, PYTHON, done, line_of, ready, starting, until_queued

FENCE = [*PYTHON, "import os; print(os.environ['HANDFAST_NAME'], os.environ['HANDFAST_FENCE'])"]


@pytest.fixture
def call(server, raw):
    """Return a function that starts ``handfast elect job <words>``."""
    with starting(forks=True) as start:
        yield lambda *words: start(*PROGRAM, "elect", "job", "--url", server.url, *words)


@pytest.fixture
def job(hf):
    """The election of the processes."""
    return hf.election("job")


def test_a_command_runs_in_a_term_and_its_exit_code_is_returned(call, job):
    code, out, said = done(call("--", *FENCE))
    assert (code, said) == (0, "")
    assert out == f"job {job.history(1)[0].fence}\n"
    assert done(call("--", "sh", "-c", "exit 7")) == (7, "", "")
    assert job.leader() is None
    eventually(lambda: [one.why for one in job.history()] == ["resigned", "resigned"])


def test_candidates_lead_one_after_the_other(call, job):
    first = call("--value", "one", "--", *CAT)
    ready(first)
    second = call("--value", "two", "--", *CAT)
    until_queued(job)
    assert job.leader().value == "one"
    assert done(first)[0] == 0
    ready(second)
    assert job.leader().value == "two"
    assert done(second)[0] == 0


def test_after_a_loss_the_command_is_ended_and_the_candidate_waits_again(call, job):
    process = call("--", *LISTENER)
    ready(process)
    fence = job.leader().fence
    assert job.force_release(reason="maintenance") == 1
    assert line_of(process) == "SIGTERM\n"
    ready(process)
    assert job.leader().fence > fence
    process.send_signal(signal.SIGTERM)
    code, out, said = done(process)
    assert (code, out) == (5, "SIGTERM\n")
    assert said.endswith("handfast: 'job' was lost; waiting to be elected again\n")
    assert job.leader() is None


def test_a_signal_that_comes_after_a_loss_ends_the_candidacy(call, job):
    process = call("--on-lost", "term", "--kill-after", "30", "--", "sh", "-c", "trap : TERM; echo ready; cat; exit 3")
    ready(process)
    assert job.force_release() == 1
    eventually(lambda: job.leader() is None)
    process.send_signal(signal.SIGINT)
    assert done(process)[0] == 74
    assert job.leader() is None


def test_a_signal_ends_the_wait(call, job):
    with job:
        process = call("--", "true")
        until_queued(job)
        process.send_signal(signal.SIGTERM)
        assert done(process)[0] == 128 + signal.SIGTERM
        assert not job.status().waiting


def test_who_waits_too_long_exits_75(call, job):
    with job:
        code, out, said = done(call("-w", "50ms", "--", "true"))
    assert (code, out) == (75, "")
    assert said.startswith("handfast: 'job' could not be acquired within 0.05 s: ")


def test_the_ready_file_exists_while_the_command_runs(call, job, tmp_path):
    path = tmp_path / "ready"
    path.write_text("of a process that was killed")
    with job:
        process = call("--ready-file", str(path), "--", *CAT)
        until_queued(job)
        assert not path.exists()
    ready(process)
    assert path.read_text() == f"{job.leader().fence}\n"
    assert done(process)[0] == 0
    assert not path.exists()


def test_the_ready_file_is_gone_when_the_term_is_lost_and_the_command_goes_on(call, job, tmp_path):
    path = tmp_path / "ready"
    process = call("--on-lost", "ignore", "--ready-file", str(path), "--", *CAT)
    ready(process)
    assert path.exists()
    assert job.force_release(reason="maintenance") == 1
    eventually(lambda: not path.exists())
    done(process)


def test_the_ready_file_of_another_leader_stays(call, job, tmp_path):
    path = tmp_path / "ready"
    first = call("--ready-file", str(path), "--", *CAT)
    ready(first)
    text = path.read_text()
    second = call("--ready-file", str(path), "--", *CAT)
    until_queued(job)
    assert path.read_text() == text
    path.write_text("the next leader's")
    assert done(first)[0] == 0
    ready(second)
    assert path.read_text() == f"{job.leader().fence}\n"
    assert done(second)[0] == 0


def test_a_command_that_an_operator_asks_to_end_is_ended_and_the_candidate_waits_again(call, job, hf, raw):
    process = call("--", *LISTENER)
    ready(process)
    fence = job.leader().fence
    hf.hold("job", 3600, kind="election", reason="a migration", now=True, grace=60)
    assert line_of(process) == "SIGTERM\n"
    until_queued(job)
    assert hf.unhold("job", kind="election")
    ready(process)
    assert job.leader().fence > fence
    process.send_signal(signal.SIGTERM)
    code, _, said = done(process)
    assert code == 5
    assert "'job' was given up; waiting to be elected again\n" in said


def test_a_command_that_would_wait_for_the_one_around_it_is_refused(call, server):
    inner = [*PROGRAM, "elect", "job", "--url", server.url, "--", "true"]
    code, _, said = done(call("--", *inner))
    assert code == 64
    assert "'job' is led by a `handfast elect` around this one" in said


def test_a_ready_file_that_can_not_be_written_ends_the_term(call, job, tmp_path):
    code, _, said = done(call("--ready-file", str(tmp_path / "no" / "ready"), "--", "true"))
    assert code == 64
    assert said.endswith("ready': No such file or directory\n")
    assert job.leader() is None


def test_the_leader_is_printed(call, hf):
    assert done(call("--leader")) == (1, "", "")
    assert done(call("--leader", "--json")) == (1, '{"name": "job", "leader": null}\n', "")
    with hf.election("job", value="http://10.0.0.5:8000 \x1b[31m") as term:
        assert done(call("--leader")) == (0, "http://10.0.0.5:8000 \\x1b[31m\n", "")
        found = json.loads(done(call("--leader", "--json"))[1])["leader"]
        assert (found["value"], found["fence"]) == ("http://10.0.0.5:8000 \x1b[31m", term.fence)
    with hf.election("job"):
        assert done(call("--leader")) == (0, f"{hf._driver.label}\n", "")


def test_each_change_is_printed(call, hf, raw):
    process = call("--leader", "--follow")
    assert line_of(process) == "\n"
    with hf.election("job", value="one"):
        assert line_of(process) == "one\n"
    assert line_of(process) == "\n"
    process.send_signal(signal.SIGINT)
    assert done(process)[0] == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give either a COMMAND or --leader."),
        (("--leader", "--", "true"), "Give either a COMMAND or --leader."),
        (("--follow", "--", "true"), "Use --follow and --json with --leader."),
        (("--value", "x" * 1025, "--", "true"), "value must be at most 1024 bytes"),
    ],
    ids=str,
)
def test_wrong_usage_exits_64(call, words, said):
    code, out, text = done(call(*words))
    assert (code, out) == (64, "")
    assert said in " ".join(text.split())
