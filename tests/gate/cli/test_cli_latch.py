"""``handfast done`` and ``handfast wait`` as processes: output and exit codes."""

from __future__ import annotations

import signal

import pytest

from tests._support.forked import PROGRAM
from tests._support.helpers import eventually
from tests._support.running import done, starting


@pytest.fixture
def call(server, raw):
    """Return a function that starts ``handfast <words>``."""
    with starting(forks=True) as start:
        yield lambda verb, *words: start(*PROGRAM, verb, "import", *words, "--of", "2", "--url", server.url)


def test_jobs_say_that_their_parts_are_done_and_a_command_goes_on_then(call, hf):
    waiting = call("wait")
    eventually(lambda: hf.latch("import", 2).status().waiting == 1)
    assert done(call("done", "a")) == (0, "1 to be done\n", "")
    assert done(call("done", "a", "b")) == (0, "all are done\n", "")
    assert done(waiting) == (0, "", "")
    assert done(call("wait", "-w", "0")) == (0, "", "")


def test_who_waits_too_long_exits_75(call):
    assert done(call("wait", "-w", "50ms")) == (
        75,
        "",
        "handfast: 'import' was not open within 0.05 s: 2 parts are still to be done\n",
    )


def test_a_signal_ends_the_wait(call, hf):
    waiting = call("wait")
    eventually(lambda: hf.latch("import", 2).status().waiting == 1)
    waiting.send_signal(signal.SIGTERM)
    assert done(waiting)[0] == 128 + signal.SIGTERM
