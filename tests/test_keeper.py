"""Renewal and loss, as the thread that sees to them does it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import weakref

import pytest
import redis

from holdfast import Holdfast, LeaseLost, NotHeld
from holdfast.drivers.embedded import PrivateServer
from tests.support import Engine, eventually


def test_a_lease_taken_by_force_is_known_at_once_and_why(hf, other):
    lost = threading.Event()
    lease = hf.lock("a").acquire()
    lease.add_lost_callback(lost.set)
    eventually(lambda: hf._driver._keeper._session.is_open)
    assert other.lock("a").force_release(reason="deploy") == 1
    assert lost.wait(10)
    with pytest.raises(LeaseLost, match="deploy") as caught:
        lease.check()
    assert (caught.value.name, caught.value.fence) == ("a", lease.fence)
    assert lease.release() is False


def test_force_release_lets_the_next_waiter_in(hf, other, actors):
    (waiter,) = actors()
    lease = hf.lock("a").acquire()
    waiter.tell("acquire")
    eventually(lambda: hf.lock("a").status().waiting == 1)
    assert other.lock("a").force_release() == 1
    assert waiter.answer() > lease.fence
    eventually(lambda: lease.lost)
    lease.release()


def test_force_release_of_a_free_lock_takes_nothing(hf):
    assert hf.lock("a").force_release() == 0


def test_leaving_a_block_after_a_loss_raises_unless_the_block_did(hf, raw):
    with pytest.raises(LeaseLost), hf.lock("a"):
        raw.flushall()
    with pytest.raises(KeyError), hf.lock("a"):
        raw.flushall()
        raise KeyError
    with pytest.warns(RuntimeWarning, match="was lost"), hf.lock("a", on_lost="warn"):
        raw.flushall()


def test_a_lease_without_renewal_ends_by_itself(hf, other):
    called = threading.Event()
    lease = hf.lock("a", ttl=0.1, renew=False).acquire()
    lease.add_lost_callback(called.set)
    assert called.wait(10)
    assert lease.lost
    assert lease.remaining() == 0
    with pytest.raises(LeaseLost):
        lease.extend(1)
    with other.lock("a"):
        pass
    assert lease.release() is False


def test_the_holder_never_believes_longer_than_the_server(hf, raw):
    lease = hf.lock("a", ttl=0.3).acquire()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        believed = time.monotonic() + lease.remaining()
        (holder,) = hf.lock("a").status().holders
        assert believed <= time.monotonic() + holder.remaining
    assert lease.release() is True


def test_renewals_fail_until_the_server_is_back_and_the_lease_lives():
    with PrivateServer() as server, Holdfast(server.url) as hf, hf.lock("a", ttl=2.0) as lease:
        eventually(lambda: hf._driver._keeper._session.is_open)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(server.pid, signal.SIGCONT)
        time.sleep(1.5)
        assert not lease.lost


def test_a_server_that_is_gone_for_longer_than_the_ttl_is_a_loss_known_without_it():
    with PrivateServer() as server:
        hf = Holdfast(server.url)
        lost = threading.Event()
        lease = hf.lock("a", ttl=0.6).acquire()
        lease.add_lost_callback(lost.set)
        os.kill(server.pid, signal.SIGSTOP)
        assert lost.wait(10)
        assert lease.lost
        os.kill(server.pid, signal.SIGCONT)
        assert lease.release() is False
        hf.close()


def test_a_callback_that_fails_is_logged_and_does_not_stop_the_keeper(hf, raw, caplog):
    called = threading.Event()

    def fail():
        raise RuntimeError("mine")

    lease = hf.lock("a", ttl=0.2).acquire()
    lease.add_lost_callback(fail)
    lease.add_lost_callback(called.set)
    with hf.lock("b", ttl=0.2) as second:
        raw.delete(Engine(raw, "a").key("holders"))
        assert called.wait(10)
        time.sleep(0.4)
        assert not second.lost
    assert "mine" in caplog.text
    assert lease.token not in caplog.text
    lease.release()


def test_a_callback_that_comes_after_the_loss_is_called_at_once(hf, raw):
    lease = hf.lock("a").acquire()
    raw.flushall()
    assert lease.release() is False
    called = []
    lease.add_lost_callback(lambda: called.append(1))
    assert called == [1]


def test_a_dropped_lease_is_told_of_and_renewed_no_more(hf, other):
    lease = hf.lock("a", ttl=0.3).acquire()
    with pytest.warns(ResourceWarning, match="was dropped without a release"):
        del lease
        gc.collect()
    with other.lock("a").acquire(timeout=10):
        pass


def test_a_dropped_lease_without_renewal_is_left_in_peace(hf, other):
    assert hf.lock("once an hour", ttl=3600, renew=False).try_acquire() is not None
    gc.collect()
    assert other.lock("once an hour", ttl=3600, renew=False).try_acquire() is None


def test_a_client_that_is_dropped_takes_its_thread_along(server, raw):
    hf = Holdfast(server.url)
    hf.lock("a", ttl=0.1).acquire().release()
    gone = weakref.ref(hf._driver)
    thread = hf._driver._keeper._thread
    del hf
    gc.collect()
    assert gone() is None
    thread.join(10)
    assert not thread.is_alive()


def test_a_released_lease_says_so(hf):
    lease = hf.lock("a").acquire()
    assert lease.release() is True
    assert lease.release() is False
    assert not lease.lost
    assert lease.remaining() == 0
    for use in (lease.check, lambda: lease.extend(1)):
        with pytest.raises(NotHeld, match="already released"):
            use()
    assert "released" in repr(lease)


def test_no_log_and_no_repr_shows_a_whole_token(hf, raw, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    lease = hf.lock("a", ttl=0.2).acquire()
    texts = [repr(lease), repr(hf.lock("a")), repr(hf.lock("a").status())]
    raw.flushall()
    eventually(lambda: lease.lost and caplog.records)
    assert not any(lease.token in text for text in [*texts, caplog.text])


def test_many_leases_are_renewed_together(hf, raw):
    leases = [hf.lock(f"n{number}", ttl=0.5).acquire() for number in range(200)]
    time.sleep(1.2)
    assert not any(lease.lost for lease in leases)
    assert all(lease.release() for lease in leases)


@pytest.mark.parametrize("decode", [True, False])
def test_an_existing_client_serves_as_it_is(server, raw, decode):
    with redis.Redis.from_url(server.url, decode_responses=decode) as mine, Holdfast(mine) as hf:
        with hf.lock("a") as lease:
            assert hf.lock("a").locked()
            assert lease.fence > 0
        assert not hf.lock("a").locked()


def test_no_callback_and_no_strangers_message_ends_the_keeper(hf, raw):
    called = threading.Event()
    lease = hf.lock("a", ttl=0.3).acquire()
    lease.add_lost_callback(sys.exit)
    lease.add_lost_callback(called.set)
    eventually(lambda: hf._driver._keeper._session.is_open)
    for channel in raw.pubsub_channels("hf:home:*"):
        for words in ("", "revoked", "granted x", "what is this"):
            raw.publish(channel, words)
    raw.flushall()
    assert called.wait(10)
    with hf.lock("b", ttl=0.3) as second:
        time.sleep(0.8)
        assert not second.lost
    lease.release()


def test_a_dropped_lease_may_be_collected_while_the_keeper_is_at_the_gate(hf):
    lease = hf.lock("a").acquire()
    with hf._driver._keeper._gate:
        hf._driver._keeper._sending = True
        with pytest.warns(ResourceWarning):
            del lease
            gc.collect()
        hf._driver._keeper._sending = False


def test_force_release_works_though_the_latest_fence_is_forgotten(hf, raw):
    lease = hf.lock("a").acquire()
    raw.hdel(Engine(raw).key("tokens"), "fence")
    assert hf.lock("a").force_release() == 1
    assert lease.release() is False


def test_status_is_told_though_a_record_is_missing(hf, raw):
    lease = hf.lock("a").acquire()
    raw.delete(Engine(raw).key("tokens"))
    (holder,) = hf.lock("a").status().holders
    assert holder.label == ""
    assert lease.release() is True


def test_a_keeper_without_a_server_does_not_spin():
    with PrivateServer() as server:
        hf = Holdfast(server.url)
        leases = [hf.lock(f"n{number}", ttl=3).acquire() for number in range(3)]
        eventually(lambda: hf._driver._keeper._session.is_open)
    before = time.process_time()
    eventually(lambda: all(lease.lost for lease in leases))
    assert time.process_time() - before < 1.5, "three seconds of trying again are no work"
    with pytest.raises(redis.ConnectionError):
        leases[0].release()
    for lease in leases:
        lease._holding.given_up = True
    hf.close()
