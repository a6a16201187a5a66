"""The fault proxy: a fault hits exactly one command, the server executes it or not, and nothing remains at the end.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import redis

from handfast import Script
from handfast.testing import FaultProxy, ServerController, command, script
from tests._support.helpers import eventually
from tests.gate.testing import test_testing_proxy as gate
from tests.gate.testing.test_testing_proxy import RawClient, insistent

proxy = gate.proxy
peer = gate.peer


# --- one command of several


def test_unclaimed_fault_stays_active():
    with ServerController() as server, FaultProxy(server.url) as proxy:
        peer, digest = RawClient(proxy), Script("return 5").digest
        peer.send("PING")
        assert peer.receive() == b"PONG"
        fault = proxy.lose_reply(script())
        with server.paused():
            peer.send(f"EVALSHA {digest} 0")
            eventually(lambda: fault._rule.remaining == 0)
            proxy.lose_reply(command("PING"))
        assert peer.receive().startswith("NOSCRIPT")
        assert not fault.spent
        peer.send("EVAL return(5) 0")
        assert peer.receive_all() == []
        assert fault.spent
        peer.socket.close()


# --- bytes and connections


def test_dribbling_forwards_byte_by_byte(proxy, peer, raw):
    with proxy.dribbling(pause=0.01):
        peer.send("SET a 1", "GET a")
        piece = peer.socket.recv(100)
        assert b"+OK\r\n$1\r\n1\r\n".startswith(piece)
        assert len(piece) < 12
        peer.reader.feed(piece)
        assert [peer.receive(), peer.receive()] == [b"OK", b"1"]


def test_retarget_sends_new_connections_to_another_server(proxy, peer, raw):
    with ServerController() as other:
        peer.send("SET a here")
        assert peer.receive() == b"OK"
        proxy.retarget(other.url)
        assert peer.receive_all() == []
        fresh = RawClient(proxy)
        fresh.send("SET a there")
        assert fresh.receive() == b"OK"
        fresh.socket.close()
        assert (raw.get("a"), other.admin.get("a")) == ("here", "there")


def test_retarget_may_leave_the_connections_as_they_are_and_cut_may_spare_one(proxy, peer, raw):
    with ServerController() as other:
        peer.send("SET a here")
        assert peer.receive() == b"OK"
        proxy.retarget(other.url, cut=False)
        fresh = RawClient(proxy)
        for end in peer, fresh:
            end.send("APPEND a !")
            assert end.receive() == (5 if end is peer else 1)
        proxy.cut(but=proxy.commands[-2].connection)
        assert fresh.receive_all() == []
        peer.send("GET a")
        assert peer.receive() == b"here!"
        fresh.socket.close()
        assert other.admin.get("a") == "!"


def test_reply_that_never_arrived_does_not_count_as_lost():
    with ServerController() as server, FaultProxy(server.url) as proxy, insistent(proxy) as client:
        fault = proxy.lose_reply(command("INCRBY"))
        client.ping()
        server.pause()
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(client.incr, "n")
            eventually(lambda: any(asked.name == "INCRBY" for asked in proxy.commands))
            server.kill()
            assert isinstance(future.exception(20), redis.ConnectionError)
        assert not fault.spent
        server.restart()
        assert client.incr("n") == 2, "the fault happened now"
        assert fault.spent


# --- frames


def test_idle_proxy_uses_no_cpu_time(server):
    with FaultProxy(server.url) as proxy:
        peer = RawClient(proxy)
        peer.send("PING")
        assert peer.receive() == b"PONG"
        used = sum(os.times()[:2])
        sleep(0.1)
        assert sum(os.times()[:2]) - used < 0.09, "the proxy is spinning"
        peer.socket.close()
