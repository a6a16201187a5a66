"""How long a call that does not wait for its turn waits for a server: as long as its caller says. In both APIs."""

from __future__ import annotations

import sys

import pytest
import redis

from handfast.testing import FaultProxy, script

TRIES = {
    "lock": lambda client: client.lock("a"),
    "lock_all": lambda client: client.lock_all(["a", "b"]),
    "semaphore": lambda client: client.semaphore("a", 2),
    "read": lambda client: client.rwlock("a").read(),
    "limiter": lambda client: client.limiter("a", "5/min"),
    "key of a limiter": lambda client: client.limiter("a", "5/min").keyed("ann"),
    "once": lambda client: client.once("a"),
    "limiter of together": lambda client: client.together(client.lock("a"), client.limiter("a", "5/min")),
}
LATE_S = 20
"""By so much a call is late. It ends with the test."""

SOON_S = 0.05
"""The least time that a server has here, and for how long a call waits for its undo. Elsewhere in the gate
both are long, so that no stall of the machine looks like an outage."""


@pytest.fixture
def impatient(patience, monkeypatch):
    for name, module in list(sys.modules.items()):
        if name.startswith("handfast."):
            for constant in {"MIN_REPLY_S", "UNDO_WAIT"} & vars(module).keys():
                monkeypatch.setattr(module, constant, SOON_S)


def is_script(sent):
    return sent.name == "EVALSHA"


@pytest.mark.usefixtures("impatient", "raw")
@pytest.mark.parametrize("kind", TRIES)
async def test_a_try_waits_as_long_as_its_caller_says_and_not_as_its_client_is_set(api, server, kind):
    with FaultProxy(server.url) as proxy:
        async with api.client(f"{proxy.url}?socket_timeout=50") as client:
            one = TRIES[kind](client)
            first = await one.try_acquire(timeout=30)
            assert first
            late = proxy.delay(script("limit_acquire") if "together" in kind else is_script, seconds=LATE_S)
            if "together" in kind:
                await first.release()
            with pytest.raises(redis.TimeoutError):
                await one.try_acquire(timeout=0.001)
            assert late.happened == 1
            late.clear()


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (0, ValueError), (-1, ValueError)])
@pytest.mark.parametrize("kind", TRIES)
async def test_a_wrong_timeout_is_refused_before_anything_is_sent(api, kind, timeout, error):
    async with api.client("redis://nowhere.invalid") as client:
        with pytest.raises(error, match="timeout must be"):
            await TRIES[kind](client).try_acquire(timeout=timeout)
