"""The lease that all adapters hold: see test_starlette.py for an outage of its server."""

from __future__ import annotations

import logging

import pytest

from handfast.contrib._common import Holding


def test_an_interrupt_in_leaving_releases_the_lease(hf, monkeypatch):
    """It strikes where the lease has no guard yet."""
    lease = hf.lock("a").acquire()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(lease), "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt), Holding(lease, logging.getLogger("handfast.test")):
        pass
    assert not hf.lock("a").locked()
