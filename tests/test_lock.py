"""The lock, as its users see it."""

from __future__ import annotations

import threading

import pytest

from holdfast import AcquireTimeout


def test_a_lock_excludes_others_until_it_is_released(hf, other):
    lease = hf.lock("a").acquire()
    assert other.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout, match="'a' was still held"):
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
