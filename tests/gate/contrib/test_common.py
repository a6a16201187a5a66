"""What the adapters share."""

from __future__ import annotations

import logging

import handfast
from handfast import Handfast
from handfast.contrib._common import Holding
from handfast.testing import calm, interrupt_everywhere

LOG = logging.getLogger("handfast.test")


def test_a_block_that_is_interrupted_releases_its_lease(server, raw):
    with Handfast(server.url) as hf:
        lock = hf.lock("a")

        def use():
            with Holding(lock.acquire(), LOG):
                calm()  # from here on it is not interrupted

        struck = 0
        for run in interrupt_everywhere(use, within=handfast):
            assert not lock.locked(), run.place
            struck += run.struck
        assert struck > 20


def test_an_interrupt_in_leaving_releases_the_lease(server, raw, monkeypatch):
    """It strikes where the lease itself has no guard yet."""
    with Handfast(server.url) as hf:
        lease = hf.lock("a").acquire()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(lease), "__exit__", interrupted)
        try:
            with Holding(lease, LOG):
                pass
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the interrupt is raised")
        assert not hf.lock("a").locked()
