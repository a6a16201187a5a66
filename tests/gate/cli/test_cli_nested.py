"""A `handfast run` inside another one of the same name: refused where it would wait for itself."""

from __future__ import annotations

import os

import pytest

from handfast import Handfast
from tests._support.helpers import eventually, more
from tests._support.running import HANDFAST, done, ready, starting

pytestmark = pytest.mark.usefixtures("raw")

NOTE = "is held by a `handfast run` around this one, which ends only after it"


@pytest.fixture
def start(server):
    with starting(forks=True) as start:
        yield lambda *words, **options: start(*words, env=os.environ | {"HANDFAST_URL": server.url}, **options)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [([], []), (["-s"], ["-x"]), *more(([], ["-w", "60"]), (["-x"], ["-x"]), (["-x"], ["-s"]))],
    ids=lambda words: " ".join(words) or "plain",
)
def test_a_run_that_would_wait_for_the_one_around_it_is_refused(start, raw, outer, inner):
    code, out, err = done(start(*HANDFAST, "a", *outer, "--", *HANDFAST, "a", *inner, "--", "echo", "ran"))
    assert (code, out) == (64, "")
    assert NOTE in err
    assert "'a'" in err


def test_a_run_around_the_one_around_it_counts_too(start):
    code, out, err = done(start(*HANDFAST, "a", "--", *HANDFAST, "b", "--", *HANDFAST, "a", "--", "echo", "ran"))
    assert (code, out) == (64, "")
    assert NOTE in err


def test_a_run_that_does_not_wait_finds_the_name_taken(start):
    code, _, err = done(start(*HANDFAST, "a", "--", *HANDFAST, "a", "-n", "--", "echo", "ran"))
    assert code == 75
    assert NOTE not in err


def test_a_reader_behind_a_writer_that_waits_for_the_run_around_it_is_refused(start, server):
    script = 'read line; "$@"'
    outer = start(
        *HANDFAST, "a", "-s", "--", "sh", "-c", "echo ready; " + script, "-", *HANDFAST, "a", "-s", "--", "echo", "ran"
    )
    ready(outer)
    writer = start(*HANDFAST, "a", "-x", "--", "true")
    with Handfast(server.url) as hf:
        eventually(lambda: hf.rwlock("a").status().waiting)
    code, out, err = done(outer, "go\n")
    assert (code, out) == (64, "")
    assert NOTE in err
    assert done(writer)[0] == 0


def test_a_process_that_outlives_its_run_may_start_another_one(start):
    """A service that was restarted under a lock has that run's environment for as long as it lives."""
    left = start("sh", "-c", 'HANDFAST_HELD="17 1767225600000000" exec "$@"', "-", *HANDFAST, "a", "--", "echo", "ran")
    assert done(left) == (0, "ran\n", "")
