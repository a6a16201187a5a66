"""The connection that renewals of the sync API take: slow, refused, or none at all."""

from __future__ import annotations

import threading

import pytest
import redis

from handfast import Handfast
from handfast.testing import FaultProxy, script
from tests._support.helpers import BOUND_S, eventually, more, until_alone

pytestmark = pytest.mark.usefixtures("short_ticks")

RENEW = script("permit_renew")


def is_renewed(lease, times=2):
    """Wait until the lease was renewed that often."""
    for _ in range(times):
        before = lease._state.deadline
        eventually(lambda before=before: lease._state.deadline > before or lease.lost)
    return not lease.lost


@pytest.mark.parametrize("reason", ["maxclients", *more("descriptors")])
def test_renewals_go_through_an_idle_session_where_no_other_can_be_opened(raw, server, monkeypatch, reason):
    with Handfast(server.url) as hf:
        refused = []
        if reason == "maxclients":
            until_alone(raw)
            before = raw.config_get("maxclients")["maxclients"]
            raw.config_set("maxclients", 2)
        else:
            connect, caller = hf._driver._connector.connect, threading.current_thread()

            def refuse(*limits):
                if threading.current_thread() is caller:
                    return connect(*limits)
                refused.append(1)
                raise redis.ConnectionError("too many open files")

            monkeypatch.setattr(hf._driver._connector, "connect", refuse)
        try:
            lease = hf.lock("a", ttl=0.6).acquire()
            assert is_renewed(lease, 4)
            assert not hf._driver._here.renewer._session.is_open
            assert hf.lock("b").try_acquire().release() is True, "the pool has its session back"
        finally:
            if reason == "maxclients":
                raw.config_set("maxclients", before)
                assert raw.info("stats")["rejected_connections"]
            else:
                monkeypatch.undo()
                assert refused
        eventually(lambda: hf._driver._here.renewer._session.is_open)
        assert lease.release() is True


def test_a_lease_with_a_short_ttl_starves_no_other_on_a_slow_link(server, raw):
    """Each reply takes longer than the short lease has left when it is asked for."""
    with FaultProxy(server.url) as proxy, Handfast(proxy.url) as hf:
        long = hf.lock("long", ttl=3).acquire()
        eventually(lambda: hf._driver._here.renewer._session.is_open)
        connections = proxy.connections
        slow = proxy.delay(RENEW, seconds=0.35, times=None)
        short = hf.lock("short", ttl=0.4).acquire()
        before = long._state.deadline
        while long._state.deadline == before and not long.lost:
            if short.lost:
                short.release()
                short = hf.lock("short", ttl=0.4).acquire()
            eventually(lambda short=short: short.lost or long._state.deadline > before)
        assert not long.lost
        assert proxy.connections == connections, "it was not connected anew"
        slow.clear()
        assert long.release() is True
        short.release()


def test_while_a_name_is_looked_up_leases_are_renewed_through_an_idle_session(server, raw, monkeypatch):
    """A lookup has no limit of time. The same holds for a credential provider, and for Sentinels that do not answer."""
    with FaultProxy(server.url) as proxy, Handfast(proxy.url) as hf:
        lease = hf.lock("a", ttl=1.5).acquire()
        eventually(lambda: hf._driver._here.renewer._session.is_open)
        connect, found, asked = hf._driver._connector.connect, threading.Event(), []

        def look_up(*limits):
            asked.append(threading.current_thread().name)
            found.wait(BOUND_S)
            return connect(*limits)

        with monkeypatch.context() as patch:
            patch.setattr(hf._driver._connector, "connect", look_up)
            hf._driver._here.renewer.hang_up()
            eventually(lambda: asked)
            assert is_renewed(lease, 4)
            assert asked == ["handfast-connect"], "one lookup at a time"
            assert not hf._driver._here.renewer._session.is_open
            found.set()
            eventually(lambda: hf._driver._here.renewer._session.is_open)
        assert lease.release() is True
