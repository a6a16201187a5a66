"""Commands as users start them, as processes of their own. Most other tests fork them, which has to give the same."""

from __future__ import annotations

import os
import signal

import pytest

from tests._support.forked import PROGRAM
from tests._support.helpers import eventually
from tests._support.running import BOUND, PYTHON, done, starting, until_queued

pytestmark = pytest.mark.usefixtures("raw")


@pytest.fixture(params=[False, True], ids=["new", "forked"])
def call(request, server):
    """Return a function that starts ``handfast <words>`` in either way."""
    variables = os.environ | {"HANDFAST_URL": server.url}
    with starting(forks=request.param) as start:
        yield lambda *words: start(*PROGRAM, *words, env=variables)


@pytest.mark.parametrize("words", ["run a", "elect a", "once a --keep 1h", "limit a 9/h"])
def test_the_command_has_the_streams_of_the_process_and_gives_the_exit_code(call, words):
    process = call(*words.split(), "--", "sh", "-c", "cat; echo complaint >&2; exit 7")
    assert done(process, "hello") == (7, "hello", "complaint\n")


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ("done a x --of 2", (0, "1 to be done\n", "")),
        ("wait a --of 1 -w 0", (75, "", "handfast: 'a' is not open: 1 part is still to be done\n")),
        ("ls", (1, "", "handfast: no name is held or waited for\n")),
    ],
)
def test_output_and_exit_code_of_what_runs_no_command(call, words, ends):
    assert done(call(*words.split())) == ends


def test_wrong_usage_names_the_command_as_it_was_started(call):
    code, out, err = done(call("run"))
    assert (code, out) == (64, "")
    assert err.startswith("Usage: python -m handfast run [OPTIONS] NAME -- COMMAND...\n")


def test_a_signal_ends_the_wait(call, hf):
    job = hf.lock("job")
    with job:
        process = call("run", "job", "--", "true")
        until_queued(job)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert done(process) == (128 + signal.SIGTERM, "", "")
        assert not job.status().waiting


@pytest.mark.parametrize("call", [True], ids=["forked"], indirect=True)
def test_a_signal_that_ends_a_forked_process_is_its_exit_code(call, hf):
    process = call("wait", "a", "--of", "2")
    eventually(lambda: hf.latch("a", 2).status().waiting)
    process.send_signal(signal.SIGKILL)
    assert process.wait(BOUND) == process.poll() == -signal.SIGKILL


INHERITED = """
import os, signal
print("leads" if os.getsid(0) == os.getppid() else "does not lead", "its session")
print("ignored", *(int(number) for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN))
print("blocked", *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
print("files", *(number for number in range(64) if os.path.exists(f"/dev/fd/{number}")))
"""


def test_the_process_leads_a_session_and_has_no_signals_or_files_of_its_parents(call):
    ignored = f"{signal.SIGPIPE:d} {signal.SIGXFSZ:d}"  # by each interpreter
    expected = f"leads its session\nignored {ignored}\nblocked\nfiles 0 1 2\n"
    assert done(call("run", "job", "--", *PYTHON, INHERITED)) == (0, expected, "")
