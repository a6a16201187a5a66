"""Faulty writers for the trials. They are pickled for child processes, which import this module."""

from __future__ import annotations

from time import monotonic

import redis

from handfast._protocol.lease import LeaseState
from handfast_lab.chaos.writers import FENCED, PLAIN, WriteCount, Writer

__all__ = ["Believing", "Lawless", "Silenced"]


class Lawless(Writer):
    """Writes without a lock, and without a check of its fence."""

    def write(self, name, ttl, until):  # noqa: ARG002 -- it uses no lock
        count = WriteCount()
        with redis.Redis.from_url(self.url) as conn:
            while monotonic() < until:
                fenced, plain = int(conn.get(FENCED) or 0), int(conn.get(PLAIN) or 0)
                conn.set(FENCED, fenced + 1)
                conn.set(PLAIN, plain + 1)
                count.fenced += 1
                count.plain += 1
        self.report("written", count)


class Believing(Writer):
    """Never notices the loss of its lease."""

    def begin(self, stack):
        super().begin(stack)
        LeaseState.lost = lambda *_: False


class Silenced(Writer):
    """Carries out orders without answering."""

    def write(self, name, ttl, until):
        pass
