"""A `handfast run` inside another one of the same name: refused where it would wait for itself.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast import Handfast
from tests._support.helpers import eventually
from tests._support.running import CAT, HANDFAST, done, ready
from tests.gate.cli import test_cli_nested as gate

start = gate.start

pytestmark = pytest.mark.usefixtures("raw")


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ([], ["--namespace", "other"]),
        ([], ["-x"]),
        (["-s"], ["-s"]),
        (["--slots", "2"], ["--slots", "2"]),
        ([], ["--slots", "1"]),
    ],
    ids=lambda words: " ".join(words) or "plain",
)
def test_a_run_that_has_nothing_to_wait_for_runs(start, outer, inner):
    assert done(start(*HANDFAST, "a", *outer, "--", *HANDFAST, "a", *inner, "--", "echo", "ran")) == (0, "ran\n", "")


def test_a_process_that_outlives_its_run_waits_for_other_runs(start, server):
    left = {"HANDFAST_HELD": "17", "HANDFAST_NAME": "a", "HANDFAST_FENCE": "17"}
    holder = ready(start(*HANDFAST, "a", "--", *CAT))
    words = [f"{name}={value}" for name, value in left.items()]
    waiter = start("env", *words, *HANDFAST, "a", "--", "echo", "ran")
    with Handfast(server.url) as hf:
        eventually(lambda: hf.lock("a").status().waiting)
    assert done(holder)[0] == 0
    assert done(waiter)[:2] == (0, "ran\n")
