"""``handfast limit`` as a process: its turn, the command that it becomes, and its exit code.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests._support.running import BOUND, CAT, done, ready
from tests.gate.cli import test_cli_limit as gate
from tests.gate.cli.test_cli_limit import LIMIT, until_waiting

start = gate.start
limit = gate.limit


def test_a_full_queue_exits_75(limit, hf, raw):
    hf.limiter("api", "1/h").acquire()
    # All of them live: their wait-lease goes on, and their inbox has a subscriber. They come when they are called.
    fill = """
    local record = struct.pack('<ddddBdd', 2^52, math.huge, 0, 1, 16, 1, 3600000) .. 'inbox control me'
    for i = 1, 100200 do
      redis.call('ZADD', KEYS[1], i, i)
      redis.call('HSET', KEYS[2], i, record)
    end
    """
    raw.eval(fill, 2, "{hf:limiter:api}:queue", "{hf:limiter:api}:waiting")
    for part in ("queue", "waiting"):
        raw.expire(f"{{hf:limiter:api}}:{part}", BOUND)
    with raw.pubsub() as inbox:
        inbox.subscribe("inbox")
        inbox.get_message(timeout=BOUND)
        code, _, err = done(limit("1/h"))
    assert code == 75
    assert re.fullmatch(r"handfast: the queue of 'api' is full: 100\d{3} are waiting\n", err)


def test_of_many_that_do_not_wait_as_many_run_as_the_rate_says(server, raw):
    words = [*LIMIT, "--url", server.url, "api", "3/h; 100/d", "-n", "--", "echo", "ran"]
    command = ["xargs", "-P", "4", "-n", "1", *words]
    ended = subprocess.run(command, input="1 2 3 4 5 6", capture_output=True, text=True, check=False, timeout=2 * BOUND)
    assert ended.returncode == 123
    assert len(ended.stdout.splitlines()) == 3
    assert len(ended.stderr.splitlines()) == 3


def test_each_key_has_a_rate_of_its_own(limit, hf):
    assert done(limit("1/h", "-n", "--key", "ann"))[0] == 0
    assert done(limit("1/h", "-n", "--key", "ann"))[0] == 75
    assert done(limit("1/h", "-n", "--key", "ann", "--key", "blue"))[0] == 0
    limiter = hf.limiter("api", "1/h")
    used = [one.status().rates[0].used for one in (limiter, limiter.keyed("ann"), limiter.keyed("ann", "blue"))]
    assert used == [0, 1, 1]


def test_the_cost_counts(limit, hf):
    assert done(limit("5/h", "--cost", "4"))[0] == 0
    assert hf.limiter("api", "5/h").status().rates[0].remaining == 1
    assert done(limit("5/h", "--cost", "2", "-n"))[0] == 75


def test_another_namespace_has_a_rate_of_its_own(limit, hf):
    hf.limiter("api", "1/h").acquire()
    assert done(limit("1/h", "-n", "--namespace", "other")) == (0, "", "")


def test_the_command_handles_signals_as_if_it_were_started_by_the_caller(limit):
    masks = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    assert done(limit("5/h", "--", sys.executable, "-c", masks)) == (0, "set()\n", "")
    for name in ("PIPE", "XFSZ", "TERM", "INT"):
        assert done(limit("9/h", "--", "sh", "-c", f"kill -{name} $$"))[0] == -signal.Signals[f"SIG{name}"]


def test_options_after_the_dashes_belong_to_the_command(limit):
    assert done(limit("5/h", "--", "echo", "-n", "--", "--key")) == (0, "-- --key", "")


def test_the_command_inherits_open_files(limit):
    reader, writer = os.pipe()
    process = limit("5/h", "--", "sh", "-c", f"echo hello >/dev/fd/{writer}", pass_fds=[writer])
    os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() == "hello\n"
    assert done(process)[0] == 0


def test_the_command_has_no_connection_of_ours(limit, raw):
    process = ready(limit("5/h", "--", *CAT))
    eventually(lambda: len(raw.client_list()) == 1)
    assert done(process)[0] == 0


# Failures
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["api"],
        ["api", "10"],
        ["api", "10/fortnight"],
        ["api", "0/s"],
        ["api", "10/s; 20/s"],
        ["api", "10/s", "--"],
        ["api", "10/s", "true"],
        ["api", "10/s", "more", "--", "true"],
        ["", "10/s"],
        ["api", "10/s", "--key", ""],
        ["api", "10/s", "--cost", "0"],
        ["api", "10/s", "--cost", "11"],
        ["api", "10/s", "--cost", "some"],
        ["api", "10/s", "-w", "-1"],
        ["api", "10/s", "-w", "soon"],
        ["api", "10/s", "-n", "-w", "1"],
        ["api", "10/s", "--namespace", ""],
        ["api", "10/s", "--no-such-option"],
        ["api", "10/s", "--url", "nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_64(start, server, words):
    code, out, err = done(start(*LIMIT, *words, env=os.environ | {"HANDFAST_URL": server.url}))
    assert (code, out) == (64, "")
    assert " handfast limit [OPTIONS] NAME RATE [-- COMMAND...]\n" in err


def test_a_server_that_does_not_answer_is_no_refusal(start):
    with ServerController() as server:
        options = ["--url", f"{server.url}?socket_timeout=0.5"]
        assert done(start(*LIMIT, "api", "5/s", *options)) == (0, "", "")
        server.pause()
        code, out, err = done(start(*LIMIT, "api", "5/s", "-n", *options, "--", "echo", "no"))
        assert (code, out) == (69, "")
        assert err.startswith("handfast: ")
        server.resume()


def test_a_server_that_refuses_exits_69(limit, raw):
    raw.config_set("maxmemory", 1)
    code, _, err = done(limit("5/s"))
    assert code == 69
    assert "out of memory" in err


def test_an_ignored_signal_stays_ignored(start, server, hf):
    limiter = hf.limiter("api", "1/h")
    admission = limiter.acquire()
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    process = start(
        *nohup, *LIMIT, "api", "1/h", "--url", server.url, "--", "sh", "-c", "kill -HUP $$; echo still here"
    )
    until_waiting(limiter)
    process.send_signal(signal.SIGHUP)
    admission.settle(cost=0)
    assert done(process) == (0, "still here\n", "")


LATE_SIGNAL = """
import os, signal
from handfast.cli import limit, main
hold_back = signal.pthread_sigmask
def mask(how, numbers):
    former = hold_back(how, numbers)
    if how == signal.SIG_BLOCK:
        os.kill(os.getpid(), signal.SIGTERM)
    return former
signal.pthread_sigmask = mask
main()
"""


def test_a_signal_after_the_wait_ends_the_process_before_it_becomes_the_command(start, server, raw):
    words = ["limit", "api", "5/h", "--url", server.url, "--", "echo", "no"]
    assert done(start(sys.executable, "-c", LATE_SIGNAL, *words)) == (-signal.SIGTERM, "", "")
