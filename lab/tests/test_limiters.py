"""The adapters of the rate limiters work as documented, so that the results of a trial are those of the library."""

from __future__ import annotations

import pytest

from handfast_lab.chaos.limiter_users import admissions_of
from handfast_lab.rivals.limiters import LIMITERS, installed
from handfast_lab.rivals.limiters.contender import Rate

HOURLY = Rate(5, 3600.0)


@pytest.fixture(params=LIMITERS.values(), ids=LIMITERS)
def contender(request):
    if request.param.version is None:
        pytest.skip(f"{request.param.distribution} is not installed")
    return request.param


def test_a_limiter_admits_as_much_as_its_rate_says(contender, server, raw):
    with contender.open(server.url) as make:
        limiter, other = make("a", [HOURLY]), make("b", [HOURLY])
        assert [limiter.try_acquire(cost) for cost in (1, 2, 3, 2, 1)] == [True, True, False, True, False]
        assert limiter.used() == HOURLY.limit
        assert other.used() == 0
        assert other.try_acquire() is True


def test_a_limiter_that_waits_is_admitted_in_time_or_not_at_all(contender, server, raw):
    with contender.open(server.url) as make:
        if not contender.waits:
            with pytest.raises(NotImplementedError):
                make("a", [HOURLY]).acquire(1, 1.0)
            return
        limiter = make("a", [Rate(1, 1.0)])
        assert limiter.acquire(1, 30.0) is True
        assert limiter.acquire(1, 30.0) is True
        slow = make("b", [Rate(1, 3600.0)])
        assert slow.acquire(1, 0.1) is True
        assert slow.acquire(1, 0.1) is False


def test_several_rates_are_decided_together_where_the_contender_has_them(contender, server, raw):
    if contender.most_rates == 1:
        pytest.skip("one rate only")
    with contender.open(server.url) as make:
        limiter = make("a", [Rate(2, 60.0), Rate(3, 3600.0)])
        assert [limiter.try_acquire() for _ in range(3)] == [True, True, False]
        assert limiter.used() == 2


def test_admissions_of_the_server_are_recorded_with_their_cost(contender, server, raw):
    with contender.open(server.url) as make:
        make(
            "first", [HOURLY]
        ).try_acquire()  # this call may have the source of its script as an argument, which no one reads here
        with admissions_of(contender, raw) as found:
            limiter = make("a", [HOURLY])
            assert [limiter.try_acquire(cost) for cost in (1, 2, 3, 2)] == [True, True, False, True]
            if contender.most_rates > 1:
                assert make("b", [Rate(4, 60.0), Rate(5, 3600.0)]).try_acquire(4)
    now = float(".".join(f"{part:06}" for part in raw.time()))
    assert [one.cost for one in found] == [1, 2, 2, *([4] if contender.most_rates > 1 else [])]
    assert all(now - 60 < one.at <= now for one in found)


def test_only_installed_contenders_are_chosen():
    assert installed()[:2] == ["handfast", "handfast (asyncio)"]
    assert set(installed()) == {name for name, one in LIMITERS.items() if one.version is not None}
