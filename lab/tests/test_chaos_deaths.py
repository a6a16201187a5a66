"""The trial of deaths: a few, and planted faults: grants that are too early, too late, out of order or missing."""

from __future__ import annotations

import time

import pytest
import redis

from handfast.testing import ServerController
from handfast_lab.chaos.killable import LockUsers
from handfast_lab.chaos.trials import deaths
from handfast_lab.children import ProcessFailed
from handfast_lab.rivals import CONTENDERS, OURS, OURS_AIO
from lab.tests._support.planted_locks import kept, planted, polled, stolen


def figures_of(contender, count):
    seen = []
    figures = deaths.trial(contender, count, 1, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(seen)
    return {figure.what.partition(",")[2].strip() or figure.what: figure for figure in figures}


def test_every_contender_can_be_killed():
    assert all(map(deaths.applies, CONTENDERS.values()))


@pytest.mark.parametrize("contender", [OURS, OURS_AIO], ids=lambda one: one.name)
def test_a_few_deaths_lead_to_no_finding(contender):
    found = figures_of(contender, 8)
    for what in ("renewed until then", "not renewed"):
        assert found[what].tried == 4
        assert found[what].measured["before the end"] == 0
        assert found[what].measured["a plain sleep on this machine, p99 late, ms"] > 0
    order, stall = found["the head among them: order"], found["the head among them: stall"]
    assert (order.bad, order.measured["queues"]) == (0, 2)
    assert order.tried + order.measured["waiters killed"] == 2 * deaths.WAITERS
    assert stall.measured["queues that got stuck"] == 0


def test_late_and_misordered_grants_are_detected():
    found = figures_of(planted(polled), 40)
    killed = found["not renewed"]
    assert killed.measured["later than 50 ms"] > 0
    assert killed.bad > 0
    assert found["the head among them: order"].bad > 0


def test_a_stolen_lock_is_detected():
    killed = figures_of(planted(stolen), 40)["not renewed"]
    assert killed.measured["before the end"] > 0
    assert killed.bad > 0
    assert "before the lease had ended" in killed.examples[0]


def test_a_stuck_queue_is_detected(monkeypatch):
    monkeypatch.setattr(deaths, "RETRY_FOR", 0.3)
    monkeypatch.setattr(deaths, "QUEUE_TTL", 0.02)
    with ServerController() as server, LockUsers(server.url) as users:
        queues = deaths._KilledWaiters(deaths._KillTest(planted(kept), server, users, 1, lambda: None))
        queues.kill(1)
    assert queues.stall().bad == 1
    assert queues.stall().measured["queues that got stuck"] == 1


# --- processes


@pytest.fixture
def users(server, raw):
    with LockUsers(server.url) as users:
        yield users


def test_a_process_acquires_and_releases_on_request(users):
    (user,) = users.new(OURS)
    before = time.monotonic()
    user.order("acquire", "a", 5.0)
    asked, entered = user.expect("acquiring", 10), user.expect("acquired", 10)
    assert before <= asked.at <= entered.at <= time.monotonic()
    user.order("release", "a")
    assert user.expect("released", 10).value is True
    user.order("acquire and release", "a", 5.0)
    assert [user.receive(10).word for _ in range(3)] == ["acquiring", "acquired", "released"]


def test_an_error_in_a_process_is_reported(users):
    (user,) = users.new(OURS)
    user.order("release", "never taken")
    with pytest.raises(ProcessFailed, match="'failed' instead of 'released': KeyError"):
        user.expect("released", 10)
    with pytest.raises(ProcessFailed, match="reported nothing"):
        user.receive(0.01)


def test_a_killed_process_is_gone_and_its_lock_stays(users, server):
    (user,) = users.new(OURS_AIO)
    user.order("acquire", "a", 5.0)
    user.expect("acquiring", 10)
    user.expect("acquired", 10)
    users.discard(user)
    with redis.Redis.from_url(server.url, decode_responses=True) as admin:
        assert 0 < OURS.remaining(admin, "a") <= 5000
    with pytest.raises(ProcessFailed, match=r"ended|closed its pipe"):
        user.receive(1)
