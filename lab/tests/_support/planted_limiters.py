"""Faulty users of rate limiters for the trial. They are pickled for child processes, which import this module."""

from __future__ import annotations

import time

import redis

from handfast_lab.chaos.limiter_users import LimiterUser

__all__ = ["Belated", "Generous", "Silent"]


class Generous(LimiterUser):
    """Takes every limit for twice as high."""

    def load(self, load):
        super().load(load._replace(rates=self._doubled(load.rates), longest_pause=0.0, timeout=0.0))

    def try_acquire(self, name, rates, times):
        super().try_acquire(name, self._doubled(rates), times)

    def _doubled(self, rates):
        return [rate._replace(limit=2 * rate.limit) for rate in rates]


class Belated(LimiterUser):
    """Every other waiter comes back from its wait when a later one has been served."""

    def acquire(self, name, rates, timeout):
        with redis.Redis.from_url(self.url) as conn, self.contender.open(self.url) as make:
            limiter, place = make(name, rates), conn.incr(f"places of {name}")
            self.report("acquiring")
            limiter.acquire(1, timeout)
            time.sleep(1.5 * (place % 2))
            self.report("admitted")


class Silent(LimiterUser):
    """Carries out orders without answering."""

    def __init__(self, parent, contender, url):
        super().__init__(parent, contender, url)
        self.orders = dict.fromkeys(self.orders, lambda *_: None)
