"""One session against a server that is played by the test: pieces, orders and strangers.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import threading
import time

import pytest

from handfast._engine.effects import GrantMessage
from handfast._engine.packing import doubles
from tests.gate.faults import test_sync_session as gate
from tests.gate.faults.test_sync_session import CALL, LARGE, QUEUED, TOKEN, park, push

stage = gate.stage


GRANTED = push(b"granted " + TOKEN + b" " + doubles(7, 2000, 3000))

OLDER = push(b"granted " + TOKEN + b" " + doubles(6, 9000, 3000))


def play(server, pieces):
    def say():
        for piece in pieces:
            server.sendall(piece)
            time.sleep(0.02)

    threading.Thread(target=say).start()


@pytest.mark.parametrize("pieces", [[OLDER + QUEUED], [OLDER, QUEUED]])
def test_a_message_that_came_before_the_reply_is_dropped(stage, pieces):
    """Its grant was over by then, whatever the time of it says: the server's clock may have jumped back meanwhile."""
    session, server, _ = stage
    play(server, pieces)
    assert session.call(CALL, 5.0).reply == [b"queued", 1000, 0, 5000]
    assert park(session, 0.05) is None
    play(server, [OLDER + QUEUED + GRANTED])
    assert session.call(CALL, 5.0).reply == [b"queued", 1000, 0, 5000]
    assert park(session) == GrantMessage(7, 2000, 3000)


def test_a_call_that_the_system_does_not_take_at_once_is_sent_whole(stage):
    session, server, _ = stage
    sent = []

    def play():
        while sum(map(len, sent)) < len(LARGE.prefix.evalsha + LARGE.packed):
            sent.append(server.recv(1_000_000))
        server.sendall(b":1\r\n")

    threading.Thread(target=play).start()
    assert session.call(LARGE, 5.0).reply == 1
    assert b"".join(sent) == LARGE.prefix.evalsha + LARGE.packed
    server.sendall(b":2\r\n")
    assert session.call(CALL, 5.0).reply == 2
