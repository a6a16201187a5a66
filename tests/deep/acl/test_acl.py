"""The least rights of a user: derived from the scripts, sufficient for every operation, and none too many.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest

from handfast import LeaseLost, ServerRefused
from handfast._engine.keys import KeySet
from handfast_lab.chaos.apis import APIS, log_silenced, settled
from tests._support.engine import Engine
from tests.gate.acl import test_acl as gate
from tests.gate.acl.test_acl import load, of_use

user = gate.user


# --- preloaded scripts


def evals(raw):
    told = raw.info("commandstats").get("cmdstat_eval", {})
    return told.get("calls", 0) + told.get("rejected_calls", told.get("calls", 0))


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_forgotten_script_raises_with_the_remedy_and_works_when_loaded_again(api, raw, user):
    url = user(*of_use("lock", preloaded=True).rules())

    async def workload():
        async with api.client(url) as client:
            lock = client.lock("a")
            load(raw)
            assert await settled((await settled(lock.acquire())).release())
            raw.script_flush()
            with pytest.raises(ServerRefused, match=r"ACL SETUSER.*'eval'") as refused:
                await settled(lock.try_acquire())
            assert refused.value.name == "a"
            assert Engine(raw).holders() == []
            load(raw)
            assert await settled((await settled(lock.acquire())).release())

    with log_silenced():
        api.run(workload())


async def leave(lease):
    if hasattr(lease, "__aexit__"):
        await lease.__aexit__(None, None, None)
    else:
        lease.__exit__(None, None, None)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_what_is_given_back_in_the_background_needs_no_other_rights(api, raw, user):
    load(raw)
    url = user(*of_use("lock", preloaded=True).rules())

    async def workload():
        async with api.client(url) as client:
            raw.config_resetstat()
            lease = await settled(client.lock("late", ttl=1).acquire())
            raw.delete(KeySet("hf", "lock", "late").key("state"))
            await api.eventually(lambda: lease.lost)
            with pytest.raises(LeaseLost):  # and the library releases it in the background
                await leave(lease)
            await api.sleep(0.5)
        assert evals(raw) == 0

    with log_silenced():
        api.run(workload())
