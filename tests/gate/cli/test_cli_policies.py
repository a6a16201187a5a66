"""``handfast run`` that preempts, replaces, or has a head start; and a run that is asked to end."""

from __future__ import annotations

import pytest

from tests._support.helpers import eventually
from tests._support.running import CAT, HANDFAST, LISTENER, done, line_of, ready, starting, until_queued


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


def test_a_run_that_is_asked_to_end_sends_sigterm_and_exits_74(run, job):
    process = ready(run("--", *LISTENER))
    with job.preempt(grace=20, reason="a deploy"):
        code, out, errors = done(process)
    assert (code, out) == (74, "SIGTERM\nSIGCONT\n") or (code, out) == (74, "SIGTERM\n")
    assert "sent SIGTERM to " in errors
    assert "'job' is to be given up in " in errors
    assert " s: a deploy; SIGKILL follows then\n" in errors


def test_a_run_that_does_not_end_is_killed_with_its_lease(run, job, raw):
    process = ready(
        run("--kill-after", "1h", "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    )
    eventually(lambda: raw.pubsub_channels("hf:control:*"))
    with job.preempt(grace=0.3, reason="a deploy"):
        code, _, errors = done(process)
    assert code == 74
    assert "sent SIGKILL to " in errors


def test_a_run_that_ignores_a_loss_ignores_the_request_as_well(run, job, raw):
    process = ready(run("--on-lost", "ignore", "--", *CAT))
    eventually(lambda: raw.pubsub_channels("hf:control:*"))
    with job.preempt(grace=0.5, reason="a deploy"):
        pass
    code, out, errors = done(process, "goes on")
    assert (code, out) == (0, "goes on")
    assert "continues although 'job' is to be given up" in errors


def test_a_run_preempts_the_holder(run, job):
    with job as lease:
        process = run("--preempt", "--grace", "20", "--", "true")
        assert lease.wanted_event.wait(20)
        assert lease.wanted == "a later run"
        assert lease.remaining() <= 20
    assert done(process) == (0, "", "")


def test_of_runs_that_preempt_the_newest_is_next_and_the_others_exit_75(run, hf, job):
    with hf.lock("job", yields=False):
        older = run("--preempt", "--", "echo", "older")
        until_queued(job)
        newest = run("--preempt", "--", "echo", "newest")
        code, out, errors = done(older)
        assert (code, out) == (75, "")
        assert errors == "handfast: a later request for 'job' took the place of this one in the queue\n"
    assert done(newest)[:2] == (0, "newest\n")


def test_a_run_replaces_those_that_wait(run, job):
    with job:
        older = run("--skip-ok", "-w", "20", "--", "echo", "older")
        until_queued(job)
        newest = run("--replace", "--", "echo", "newest")
        assert done(older) == (0, "", "")
    assert done(newest) == (0, "newest\n", "")


def test_a_run_with_a_head_start_is_before_others(run, job):
    with job:
        plain = run("--", "sh", "-c", "echo plain; exec cat")
        until_queued(job)
        urgent = run("--head-start", "1h", "--", "sh", "-c", "echo urgent; exec cat")
        until_queued(job, 2)
    assert line_of(urgent) == "urgent\n"
    assert job.locked()
    assert done(urgent)[0] == 0
    assert line_of(plain) == "plain\n"
    assert done(plain)[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preempt", "--replace"), "Use either --preempt or --replace."),
        (("--grace", "5"), "Use --grace with --preempt."),
        (("--replace", "--grace", "5"), "Use --grace with --preempt."),
        (("--preempt", "-n"), "Use --preempt and --replace without --nonblock and --wait 0."),
        (("--replace", "-w", "0"), "Use --preempt and --replace without --nonblock and --wait 0."),
        (("--preempt", "--slots", "2"), "Use --preempt and --replace without -s, -x and more than one slot."),
        (("--replace", "-x"), "Use --preempt and --replace without -s, -x and more than one slot."),
        (("--head-start", "2d"), "'2d' is more than a day"),
        (("--head-start", "soon"), "'soon' is no duration"),
    ],
    ids=str,
)
def test_wrong_usage(run, words, message):
    code, _, errors = done(run(*words, "--", "true"))
    assert code == 64
    assert message in errors
