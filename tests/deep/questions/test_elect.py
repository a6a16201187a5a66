"""`handfast elect` goes on after an outage that is longer than its ttl and its retries: it leads again."""

from __future__ import annotations

import sys
import time

from handfast.testing import FaultProxy
from tests._support.helpers import eventually
from tests._support.running import LISTENER, done, line_of, ready, starting

OUTAGE_S = 7.0
"""Seconds; by default a client retries for five."""


def test_elect(server, there, tmp_path):
    election = there.election("job")
    with FaultProxy(server.url) as proxy, starting() as start:
        words = ("elect", "job", "--ttl", "2", "--url", proxy.url, "--", *LISTENER)
        process = start(sys.executable, "-m", "handfast", *words)
        ready(process)
        fence = election.leader().fence
        proxy.retarget(f"unix://{tmp_path}/nowhere")
        assert line_of(process) == "SIGTERM\n"
        time.sleep(OUTAGE_S)
        assert process.poll() is None
        assert election.leader() is None
        proxy.retarget(server.url)
        ready(process)
        eventually(lambda: election.leader() and election.leader().fence > fence)
        process.terminate()
        code, _, said = done(process)
    assert code == 5, said
