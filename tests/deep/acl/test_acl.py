"""The least rights of a user: derived from the scripts, sufficient for every operation, and none too many.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handfast import ServerRefused
from handfast.acl import USES
from handfast.testing import ServerController
from handfast_lab.chaos.apis import APIS
from handfast_lab.chaos.trials import privileges
from handfast_lab.rivals import OURS, OURS_AIO
from tests._support.engine import Engine
from tests.gate.acl import test_acl as gate
from tests.gate.acl.test_acl import load, of_use

user = gate.user


# --- the rights are minimal


@pytest.mark.parametrize(("use", "command"), [("lock", "zadd"), ("scores", "zrevrange"), ("fencing", "persist")])
def test_missing_command_raises_and_leaves_nothing_behind(use, command):
    assert lacking(use, command) == []


def test_trial_finds_a_right_that_nothing_needs(monkeypatch):
    def one_too_many(use, **options):
        rights = of_use(use, **options)
        return replace(rights, inside=(*rights.inside, "type"))

    monkeypatch.setattr(privileges, "_rights", one_too_many)
    assert lacking("scores", "type") == ["scores without type: nothing was different"]


def lacking(use, command):
    """Run a workload without the right to that command and return what is wrong."""
    api, tally = privileges.api_of(OURS), privileges.Tally()
    with privileges.log_silenced(), ServerController() as server:
        usual = api.run(privileges._run(api, server, use, privileges._rights(use)))
        api.run(privileges._run_without(api, server, use, command=command, usual=usual, tally=tally))
    return tally.wrong


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("contender", "count"), [(OURS, 60), (OURS_AIO, 12)], ids=["sync", "asyncio"])
def test_each_command_is_needed_and_its_lack_reported(contender, count):
    """A sample; the trial covers all. In asyncio the cleanup after each refusal is retried for a second."""
    whole, parts, _ = privileges.trial(contender, count, 0, lambda _: None)
    assert (whole.bad, whole.examples) == (parts.bad, parts.examples) == (0, ())
    assert parts.tried == min(count, sum(len(of_use(use).commands) for use in USES))


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
            assert await privileges.settled((await privileges.settled(lock.acquire())).release())
            raw.script_flush()
            with pytest.raises(ServerRefused, match=r"ACL SETUSER.*'eval'") as refused:
                await privileges.settled(lock.try_acquire())
            assert refused.value.name == "a"
            assert Engine(raw).holders() == []
            load(raw)
            assert await privileges.settled((await privileges.settled(lock.acquire())).release())

    with privileges.log_silenced():
        api.run(workload())


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
def test_what_is_given_back_in_the_background_needs_no_other_rights(api, raw, user):
    load(raw)
    url = user(*of_use("lock", preloaded=True).rules())

    async def workload():
        async with api.client(url) as client:
            raw.config_resetstat()
            await privileges._release_late(api, privileges.Workload(api, raw, client, client))
        assert evals(raw) == 0

    with privileges.log_silenced():
        api.run(workload())
