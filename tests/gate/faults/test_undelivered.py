"""A connection in trouble is reset, so that nothing of it arrives later; an idle one is closed in order."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from handfast._drivers.sync.session import Session
from tests._support.connector import ScriptedConnector
from tests.gate.faults.test_aio_session import played, send
from tests.gate.faults.test_sync_session import CALL, OPENED, SUBSCRIBE


def connected():
    """Return both ends of a TCP connection: a unix socket delivers at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.settimeout(10)
    return ours, theirs


@pytest.mark.parametrize("silent", [True, False])
def test_a_sync_session_resets_its_connection_to_a_silent_server(silent):
    ours, theirs = connected()
    connector = ScriptedConnector(lambda _: SimpleNamespace(_sock=ours, disconnect=ours.close))
    session = Session(connector, SUBSCRIBE)
    theirs.sendall(OPENED)
    session.open()
    with theirs:
        if silent:
            with pytest.raises(RedisTimeoutError):
                session.call(CALL, 0.05)
            with pytest.raises(ConnectionResetError):
                while theirs.recv(4096):
                    pass
        else:
            session.close()
            while theirs.recv(4096):
                pass


async def test_an_asyncio_session_resets_its_connection_to_a_silent_server(monkeypatch):
    monkeypatch.setattr(socket, "socketpair", connected)
    async with played() as stage:
        peer = await stage.open(response_timeout=0.05)
        (answer,) = send(stage, 1)
        with pytest.raises(ConnectionResetError):
            await peer.hangs_up()
        answer.cancel()
