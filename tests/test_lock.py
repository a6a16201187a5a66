"""The lock, as its users see it."""

from __future__ import annotations

import os
import threading

import pytest
import redis

from holdfast import AcquireTimeout, Holdfast, QueueFull, ServerUnsupported
from tests.support import eventually


def test_a_lock_excludes_others_until_it_is_released(hf, other):
    lease = hf.lock("a").acquire()
    assert other.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout, match=r"'a' could not be acquired within 0\.05 s: others hold it"):
        other.lock("a").acquire(timeout=0.05)
    assert lease.release() is True
    with other.lock("a") as second:
        assert second.fence > lease.fence


def test_a_release_hands_the_lock_to_the_thread_that_waits(hf, other):
    got = threading.Event()
    lease = hf.lock("a").acquire()

    def wait():
        with other.lock("a"):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not hf.lock("a").status().waiters:
        pass
    assert not got.is_set()
    lease.release()
    thread.join(5)
    assert got.is_set()


def test_a_decorated_function_runs_under_the_lock(hf, other):
    lock = hf.lock("a")

    @lock
    def job(value, *, other_value):
        """Its own words."""
        assert other.lock("a").try_acquire() is None
        return value + other_value

    assert job(1, other_value=2) == 3
    assert job(3, other_value=4) == 7
    assert job.__doc__ == "Its own words."
    assert not lock.locked()


def test_a_coroutine_function_is_not_decorated_by_a_sync_lock(hf):
    async def job():
        pass

    with pytest.raises(TypeError, match="AsyncHoldfast"):
        hf.lock("a")(job)


def test_status_tells_who_holds_and_who_waits(server, raw):
    with Holdfast(server.url, label="billing worker 3") as mine, Holdfast(server.url) as yours:
        with mine.lock("a", ttl=30) as lease:
            thread = threading.Thread(target=lambda: yours.lock("a").acquire(timeout=20).release())
            thread.start()
            eventually(lambda: mine.lock("a").status().waiting)
            status = mine.lock("a").status()
            (holder,), (waiter,) = status.holders, status.waiters
            assert (holder.label, holder.fence, holder.weight) == ("billing worker 3", lease.fence, 1)
            assert lease.token.startswith(holder.token)
            assert 29 < holder.remaining <= 30
            assert holder.held_for >= 0
            assert str(os.getpid()) in waiter.label
            assert (waiter.position, waiter.weight) == (0, 1)
            assert status.fence == lease.fence
            assert waiter.waited_for >= 0
        thread.join(20)
        assert not mine.lock("a").status().waiters


def test_different_namespaces_are_different_locks(server, raw):
    with Holdfast(server.url, namespace="one") as one, Holdfast(server.url, namespace="two") as two:
        with one.lock("a"), two.lock("a"):
            assert {key.split(":")[0] for key in raw.scan_iter()} == {"{one", "{two"}


def test_a_line_that_is_full_turns_the_next_one_away(hf, other):
    with hf.lock("a"):
        thread = threading.Thread(target=lambda: other.lock("a").acquire(timeout=20).release())
        thread.start()
        eventually(lambda: hf.lock("a").status().waiting)
        with pytest.raises(QueueFull, match="1 are already waiting for 'a'"):
            hf.lock("a", max_waiters=1).acquire()
    thread.join(20)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": -1}, ValueError),
        ({"ttl": float("nan")}, ValueError),
        ({"ttl": "30"}, TypeError),
        ({"on_lost": "ignore"}, ValueError),
        ({"max_waiters": 0}, ValueError),
    ],
)
def test_bad_options_are_refused_before_any_io(options, error):
    with Holdfast("redis://127.0.0.1:1/0") as hf, pytest.raises(error):
        hf.lock("a", **options)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), "1"])
def test_bad_timeouts_are_refused_before_any_io(timeout):
    with Holdfast("redis://127.0.0.1:1/0") as hf, pytest.raises((ValueError, TypeError), match="timeout must"):
        hf.lock("a").acquire(timeout=timeout)


@pytest.mark.parametrize(
    ("server", "error", "words"),
    [
        (42, TypeError, "must be a URL"),
        ("nonsense://x", ValueError, "scheme"),
        (object.__new__(redis.RedisCluster), ServerUnsupported, "Cluster is not supported yet"),
    ],
)
def test_a_server_that_cannot_be_is_refused(server, error, words):
    with pytest.raises(error, match=words):
        Holdfast(server)


def test_a_client_with_bad_options_is_refused():
    with pytest.raises(ValueError, match="namespace must not be empty"):
        Holdfast("redis://127.0.0.1:1/0", namespace="")
    with pytest.raises(ValueError, match="max_sessions"):
        Holdfast("redis://127.0.0.1:1/0", max_sessions=0)
