"""A signal handler that raises an OSError, as hand-written time limits do, ends a call, and nothing is left behind."""

from __future__ import annotations

import signal
from time import sleep
from types import SimpleNamespace

import pytest
import redis

from handfast import Handfast
from handfast._drivers.sync.session import Session
from handfast._drivers.sync.transport import Transport
from handfast.compat import RedisLock, _sync
from tests._support.engine import Engine


class OwnTimeout(TimeoutError):
    """What a job's time limit may raise."""


@pytest.fixture(params=[TimeoutError, OwnTimeout, ConnectionResetError, OSError])
def limit(request):
    """An error, and the function that has a signal raise it."""

    def handler(_number, _frame):
        raise request.param("the job took too long")

    def variadic(*_):
        raise request.param("the job took too long")

    former = signal.signal(signal.SIGUSR1, variadic if request.param is OSError else handler)
    yield request.param, lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, former)


def broken(*_):
    raise ConnectionResetError("by peer")


def strike(monkeypatch, owner, method, hit):
    """Have the signal arrive in the next call of a method."""
    real, left = getattr(owner, method), [hit]

    def struck(*args, **options):
        if left:
            left.pop()()
        return real(*args, **options)

    monkeypatch.setattr(owner, method, struck)
    return left


@pytest.mark.parametrize("method", ["ask", "receive", "take_frames", "drop"])
def test_a_call_ends(monkeypatch, hf, raw, limit, method):
    error, hit = limit
    with hf.lock("warm"):
        pass
    if method == "drop":
        strike(monkeypatch, Session, "ask", broken)
    left = strike(monkeypatch, Session, method, hit)
    with pytest.raises(error, match="the job took too long"):
        hf.lock("a").acquire() if method != "take_frames" else hf._driver._here.pool.take().open()
    assert not left
    assert Engine(raw).holders() == Engine(raw).queue() == []
    assert hf.lock("a").acquire(timeout=0).release()


def test_a_wait_ends(monkeypatch, hf, other, raw, limit):
    error, hit = limit
    park, left = Session.park, [hit]

    def parked(session, effect):
        strike(monkeypatch, Session, "receive", lambda: left and left.pop()())
        return park(session, effect)

    monkeypatch.setattr(Session, "park", parked)
    with other.lock("a"):
        with pytest.raises(error, match="the job took too long"):
            hf.lock("a").acquire()
        assert Engine(raw).queue() == []
    assert not left


def test_a_connect_ends(monkeypatch, server, raw, limit):
    """There the client library makes an error of its own of it."""
    error, hit = limit
    left = strike(monkeypatch, redis.connection.UnixDomainSocketConnection, "_connect", hit)
    with Handfast(server.url) as hf:
        with pytest.raises(error, match="the job took too long"):
            hf.lock("a").acquire()
        assert not left
        assert hf.lock("a").acquire(timeout=0).release()


def test_an_older_error_is_not_raised_again(monkeypatch, server, raw, limit):
    """The caller is handling it when a connection really breaks."""
    error, hit = limit

    def refuse(*_):
        raise ConnectionRefusedError("no one listens")

    with Handfast(server.url) as hf:
        monkeypatch.setattr(redis.connection.UnixDomainSocketConnection, "_connect", refuse)
        try:
            hit()
        except error:
            with pytest.raises(redis.ConnectionError, match="no one listens"):
                hf.lock("a").acquire()


def test_a_wait_of_the_replacement_for_redis_py_ends(monkeypatch, raw, limit):
    """One signal: a second one, in the thread of the cleanup, could end the wait for that thread, which outlives the test."""
    error, hit = limit
    clock = SimpleNamespace(sleep=sleep)
    left = strike(monkeypatch, clock, "sleep", hit)
    monkeypatch.setattr(_sync, "time", clock)
    held = RedisLock(raw, "k", timeout=60)
    with held:
        with pytest.raises(error, match="the job took too long"):
            RedisLock(raw, "k", timeout=60).acquire(blocking_timeout=30)
        assert not left
        assert raw.get("k") == held.local.token.decode()
    assert raw.get("k") is None


def test_an_error_of_the_socket_is_one_of_the_connection(monkeypatch, hf, raw):
    with hf.lock("warm"):
        pass

    left = strike(monkeypatch, Transport, "ask", broken)
    hf.lock("a").acquire().release()
    assert not left, "it was sent again"
