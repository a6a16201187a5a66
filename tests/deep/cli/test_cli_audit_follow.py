"""``handfast audit --follow`` as a process: it goes on while the server is away, and ends with SIGINT."""

from __future__ import annotations

import signal
import sys

from handfast import Handfast
from handfast.testing import ServerController
from tests._support.running import starting


def test_it_follows_through_an_outage():
    with ServerController() as server, Handfast(server.url) as hf, starting() as start:
        hf.note("hold", "a", kind="lock", reason="one")
        follower = start(sys.executable, "-m", "handfast", "audit", "--follow", "--url", server.url)
        assert "hold    lock 'a'" in follower.stdout.readline()
        server.kill()
        assert follower.stderr.readline().startswith("handfast: cannot look, and tries again: ")
        server.restart()
        hf.note("unhold", "b", kind="lock", reason="two")
        assert "unhold  lock 'b'" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 0
