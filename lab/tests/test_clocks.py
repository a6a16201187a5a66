"""Servers whose clocks are shifted."""

from __future__ import annotations

import sys
import time

import pytest

from handfast import Handfast, NoServer
from handfast_lab.clocks import ClockedServer, ShiftedClock, find_compiler


@pytest.fixture(scope="module")
def shifting():
    if not find_compiler():
        pytest.skip("a clock is shifted on Linux and with a C compiler only")
    with ClockedServer() as server:
        yield server


@pytest.fixture
def clocked(shifting):
    shifting.admin.flushall()
    yield shifting
    shifting.shift_clock(-shifting.clock_offset)


def is_ahead(server, seconds):
    """Return whether its clock is that much ahead of ours, in commands and in scripts."""
    for ask in (server.admin.time, lambda: server.admin.eval("return redis.call('TIME')", 0)):
        before = time.time()
        whole, micros = map(int, ask())
        found = whole + micros / 1e6 - seconds
        assert 0 <= micros < 10**6
        if not before - 0.05 < found < time.time() + 0.05:  # its look at the clock may be some milliseconds old
            return False
    return True


@pytest.mark.parametrize("seconds", [60, -3600, 0.5, -0.75, 86400 * 365])
def test_clock_shift_takes_effect_at_once(clocked, seconds):
    clocked.shift_clock(seconds)
    assert clocked.clock_offset == seconds
    assert is_ahead(clocked, seconds)
    assert not is_ahead(clocked, 0)
    clocked.shift_clock(-seconds)
    assert is_ahead(clocked, 0)


def test_clock_shifts_add_up_and_survive_a_restart():
    if not find_compiler():
        pytest.skip("a clock is shifted on Linux and with a C compiler only")
    with ClockedServer() as server:
        server.shift_clock(1000)
        server.shift_clock(-3000)
        server.kill()
        server.restart()
        assert server.clock_offset == -2000
        assert is_ahead(server, -2000)


def test_leases_end_early_or_late_when_the_clock_jumps(clocked):
    with Handfast(clocked.url) as hf, Handfast(clocked.url) as other:
        first = hf.lock("a", ttl=30, renew=False).acquire()
        assert other.lock("a").try_acquire() is None
        clocked.shift_clock(60)
        second = other.lock("a").try_acquire()
        assert second is not None, "the server has expired the first lease"
        assert first.release() is False
        third = hf.lock("b", ttl=30, renew=False).acquire()
        clocked.shift_clock(-60)
        (holder,) = other.lock("b").status().holders
        assert holder.remaining > 60, "the lease is longer by the jump"
        assert second.release()
        assert third.release()


def test_clock_shift_of_more_than_ten_years_is_refused(clocked):
    for seconds in (1e10, -1e10, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ten years"):
            clocked.shift_clock(seconds)
    assert clocked.clock_offset == 0


def test_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("handfast_lab.clocks.clock._library", [])
    with pytest.raises(NoServer, match="C compiler"):
        ShiftedClock(str(tmp_path))
    (tmp_path / "cc").write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    (tmp_path / "cc").chmod(0o700)
    if sys.platform == "linux":
        with pytest.raises(NoServer, match="no such header"):
            ShiftedClock(str(tmp_path))
