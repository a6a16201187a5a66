"""``handfast extend`` and ``handfast release --token``: leases by their tokens.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import sys

import pytest

from handfast import Handfast
from tests._support.running import HANDFAST, done, starting


@pytest.mark.parametrize("options", [[], ["--slots", "2"], ["-s"], ["-x"]])
def test_a_command_of_a_run_may_extend_its_lease(server, raw, options):
    kind = {"": "lock", "--slots": "semaphore", "-s": "rwlock", "-x": "rwlock"}["".join(options[:1])]
    inner = [sys.executable, "-m", "handfast", "extend", "a", "--kind", kind, "--ttl", "1h", "--url", server.url]
    show = [sys.executable, "-m", "handfast", "show", "a", "--json", "--url", server.url]
    with starting() as start:
        ended = done(
            start(
                *HANDFAST,
                "a",
                "--url",
                server.url,
                *options,
                "--",
                "sh",
                "-c",
                '"$@" && ' + " ".join(show),
                "-",
                *inner,
            )
        )
    assert ended[0] == 0, ended
    assert '"ends_in": 35' in ended[1] or '"ends_in": 36' in ended[1], ended
    with Handfast(server.url) as hf:
        assert not [found for found in hf.names() if found.status.holding]
