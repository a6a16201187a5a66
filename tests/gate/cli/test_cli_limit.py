"""``handfast limit`` as a process: its turn, the command that it becomes, and its exit code."""

from __future__ import annotations

import re
import signal

import pytest

from tests._support.forked import PROGRAM
from tests._support.helpers import eventually, more
from tests._support.running import CAT, done, ready, starting

LIMIT = [*PROGRAM, "limit"]


@pytest.fixture
def start():
    """Return a function that starts processes, which end with the test."""
    with starting(forks=True) as start:
        yield start


@pytest.fixture
def limit(start, server, raw):
    """Return a function that starts ``handfast limit api <words>``."""
    return lambda *words, **options: start(*LIMIT, "api", "--url", server.url, *words, **options)


def until_waiting(limiter, count=1):
    """Wait until that many wait for their turn."""
    eventually(lambda: limiter.status().waiting == count)


# Its turn
def test_an_admission_without_a_command_exits_0(limit, hf):
    assert done(limit("5/h")) == (0, "", "")
    (rate,) = hf.limiter("api", "5/h").status().rates
    assert (rate.used, rate.remaining) == (1, 4)


@pytest.mark.parametrize("options", [["-n"], *more(["-w", "0"], ["-w", "5"])], ids=" ".join)
def test_who_is_not_admitted_in_time_exits_75_and_does_not_wait(limit, hf, options):
    limiter = hf.limiter("api", "1/h")
    limiter.acquire()
    code, out, err = done(limit("1/h", *options, "--", "echo", "no"))
    assert (code, out) == (75, "")
    assert re.fullmatch(r"handfast: 'api' admits no more (now|within 5 s); try again in (1h00m|59m\d\ds)\n", err)
    assert limiter.status().waiting == 0


def test_metrics_have_costs_of_their_own_and_who_is_not_admitted_hears_which_is_short(limit, hf):
    rates = "requests: 5/h; tokens: 1000/h"
    assert done(limit(rates, "--cost", "tokens=900"))[0] == 0
    code, _, err = done(limit(rates, "--cost", "tokens=200", "-n"))
    assert code == 75
    assert "'api' admits no more tokens now" in err
    assert done(limit(rates))[0] == 0
    status = hf.limiter("api", {"requests": "5/h", "tokens": "1000/h"}).status()
    assert [rate.used for rate in status.rates] == [2, 900]


@pytest.mark.parametrize(
    ("rates", "costs", "said"),
    [
        ("tokens: 9/h", ["5"], "METRIC=N, as RATE has metrics"),
        ("tokens: 9/h", ["tokens=10"], "a limit of 9 tokens, less than the 10 requested"),
        ("tokens: 9/h", [], "a call must count for something"),
        ("9/h", ["tokens=5"], "must be a number"),
        ("9/h", ["tokens=5", "5"], "a number alone, or METRIC=N"),
        ("9/h; tokens: 9/h", [], "stands before the first metric"),
    ],
)
def test_a_cost_that_does_not_fit_the_rate_exits_64(limit, rates, costs, said):
    code, _, err = done(limit(rates, *(word for cost in costs for word in ("--cost", cost))))
    assert code == 64
    assert said in err


def test_the_command_runs_when_its_turn_comes(limit, hf):
    limiter = hf.limiter("api", "1/h")
    admission = limiter.acquire()
    process = limit("1/h", "--", *CAT)
    until_waiting(limiter)
    assert process.poll() is None
    admission.settle(cost=0)
    assert done(ready(process)) == (0, "", "")
    assert limiter.status().rates[0].used == 1


# The command
def test_the_process_becomes_the_command(limit):
    process = limit("5/h", "--", "sh", "-c", "echo $$; cat; echo complaint >&2; exit 7")
    assert done(process, "hello") == (7, f"{process.pid}\nhello", "complaint\n")


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), *more(("/etc/passwd", 126), ("/etc", 126))])
def test_a_command_that_cannot_run_exits_126_or_127(limit, command, code):
    found, _, err = done(limit("5/h", "--", command))
    assert found == code
    assert err.startswith(f"handfast: cannot run {command!r}: ")


def test_a_script_without_an_interpreter_line_is_for_the_shell(limit, tmp_path):
    script = tmp_path / "job"
    script.write_text('test "$1" = "a b" && exit 4')
    script.chmod(0o700)
    assert done(limit("5/h", "--", str(script), "a b"))[0] == 4


def test_an_unreachable_server_exits_69(start, tmp_path):
    code, out, err = done(start(*LIMIT, "api", "5/s", "--url", f"unix://{tmp_path}/none", "--", "echo", "no"))
    assert (code, out) == (69, "")
    assert err.startswith("handfast: ")
    assert "Traceback" not in err


# Signals
@pytest.mark.parametrize("name", ["SIGTERM", *more("SIGINT", "SIGHUP", "SIGUSR1")])
def test_a_signal_during_the_wait_leaves_no_waiter(limit, hf, name):
    limiter = hf.limiter("api", "1/h")
    limiter.acquire()
    process = limit("1/h", "--", "echo", "no")
    until_waiting(limiter)
    process.send_signal(signal.Signals[name])
    assert done(process) == (128 + signal.Signals[name], "", "")
    assert limiter.status().waiting == 0
