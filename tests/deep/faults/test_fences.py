"""Invariant 3 when another server takes over, or the data is lost: fences grow while the clock is ahead of the last fence.

The servers and the replication are real. The clock of each is what its test says.
"""

from __future__ import annotations

import pytest
import redis

from handfast.testing import ServerController
from tests._support.engine import NOW_US, Clock, Engine

SECOND_US = 10**6
HOUR_US = 3600 * SECOND_US


class Machine:
    """A server and its clock, which stands still until a test moves it."""

    def __init__(self, server, now_us=NOW_US):
        self.server = server
        self.clock = Clock(redis.Redis.from_url(server.url, decode_responses=True))
        self.clock.now_us = now_us
        self._lock = Engine(self.clock)
        self._grants = 0

    def fence(self):
        """Acquire and release the lock; return its fence."""
        self._grants += 1
        token = f"{self.server.socket}-{self._grants}"
        tag, fence, *_ = self._lock.acquire(token, wait=0)
        assert tag == "granted"
        self._lock.release(token)
        return fence


@pytest.fixture
def primary():
    with ServerController() as server:
        yield Machine(server)


def failed_over(primary, *, lost_grants):
    """Promote a replica that lacks the last grants of its primary. Return it, and the last fence of the primary."""
    fence = primary.fence()
    replica = primary.server.replica()
    replica.freeze()
    for _ in range(lost_grants):
        primary.clock.now_us += 10
        fence = primary.fence()
    replica.promote()
    return Machine(replica, primary.clock.now_us), fence


def test_a_replica_that_has_the_last_fence_goes_on_from_it_whatever_its_clock_shows(primary):
    replica, last = failed_over(primary, lost_grants=0)
    replica.clock.now_us -= HOUR_US
    assert replica.fence() == last + 1
    replica.clock.now_us += HOUR_US + 5
    assert replica.fence() == last + 5


@pytest.mark.parametrize(
    ("behind_us", "takeover_us"),
    [(0, 1), (SECOND_US, SECOND_US + 1), (SECOND_US, 3 * SECOND_US), (-HOUR_US, 1), (200_000, 200_001)],
)
def test_a_replica_that_lacks_grants_goes_on_above_them_if_its_clock_is_behind_by_less_than_the_takeover(
    primary, behind_us, takeover_us
):
    replica, last = failed_over(primary, lost_grants=3)
    replica.clock.now_us += takeover_us - behind_us
    assert replica.fence() == last + takeover_us - behind_us > last


@pytest.mark.parametrize(
    ("behind_us", "takeover_us"), [(SECOND_US, SECOND_US), (SECOND_US, SECOND_US - 1), (HOUR_US, 5)]
)
def test_a_replica_that_lacks_grants_repeats_the_past_if_its_clock_is_behind_by_the_takeover_or_more(
    primary, behind_us, takeover_us
):
    replica, last = failed_over(primary, lost_grants=3)
    replica.clock.now_us += takeover_us - behind_us
    assert replica.fence() <= last
    replica.clock.now_us += behind_us - takeover_us + 1
    assert replica.fence() == last + 1, "the clock has caught up"


@pytest.mark.parametrize("lost", ["FLUSHALL", "a restart without data"])
def test_data_that_is_lost_after_a_takeover_is_missed_until_the_slower_clock_has_caught_up(primary, lost):
    replica, last = failed_over(primary, lost_grants=0)
    replica.clock.now_us += SECOND_US - HOUR_US
    assert replica.fence() == last + 1, "ahead of the clock from here on"
    if lost == "FLUSHALL":
        replica.server.admin.flushall()
    else:
        replica.server.kill()
        replica.server.restart()
    assert replica.fence() < last
    replica.clock.now_us += HOUR_US
    assert replica.fence() > last + 1


def test_data_that_is_lost_on_one_machine_is_not_missed_while_its_clock_runs_forward(primary):
    last = primary.fence()
    for lose in (primary.server.admin.flushall, lambda: (primary.server.kill(), primary.server.restart())):
        primary.clock.now_us += 1
        lose()
        fence = primary.fence()
        assert fence == last + 1
        last = fence
    primary.clock.now_us -= 1
    primary.server.admin.flushall()
    assert primary.fence() == last - 1, "the clock was set back while the last fence was forgotten"


def test_the_last_fence_is_kept_for_an_hour_after_the_last_use(primary):
    primary.fence()
    (tokens,) = (key for key in primary.server.admin.scan_iter() if key.endswith(":state"))
    assert primary.server.admin.ttl(tokens) >= 3600
