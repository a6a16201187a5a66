"""`check_server`, in both APIs: what it says of real servers, and of what real servers say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handfast import ServerFinding
from handfast._engine.calls import PermitRequest
from handfast._engine.effects import Answer
from handfast._engine.keys import KeySet
from handfast._engine.options import LeaseOptions
from handfast._engine.server_facts import INFO, TIME, setting
from handfast._protocol.server_check import check_server

BAD = "warning", "failure"


def by_topic(found):
    return {one.topic: one for one in found}


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_a_wrong_timeout_is_refused(here, timeout):
    with pytest.raises(ValueError, match="timeout"):
        await here.check_server(timeout=timeout)


async def test_the_embedded_server_gets_no_advice(api, server, monkeypatch):
    monkeypatch.setattr("handfast.embedded.shared_url", lambda: server.url)
    found = {}
    for url in (server.url, "embedded:"):
        async with api.client(url) as client:
            found[url] = by_topic(await client.check_server(timeout=20))["persistence"]
    assert (found[server.url].severity, bool(found[server.url].advice)) == ("warning", True)
    told = found["embedded:"]
    assert (told.severity, told.advice, told.command) == ("info", "", "")
    assert "stores nothing on disk" in told.text


# --- judged from canned replies: states that a test cannot bring about


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)

HEALTHY = "redis_version:7.2.4\r\nrole:master\r\nconnected_slaves:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nmaxclients:100\r\n"

SETTINGS = {"save": "3600 1", "appendfsync": "always", "stop-writes-on-bgsave-error": "yes"}


def judged(info="", settings=SETTINGS, clock=NOW, moments=(NOW, NOW)):
    """Return the findings of a server that says this."""
    inspect = PermitRequest(KeySet("hf", "lock", "-"), LeaseOptions(1, renew=False)).inspect()
    times = iter(moments)
    steps = check_server(inspect, lambda: next(times), lambda: True)
    replies = {INFO: (HEALTHY + info).encode(), TIME: [b"%d" % clock.timestamp(), b"%d" % clock.microsecond]}
    for name, value in settings.items():
        replies[setting(name)] = {name.encode(): value.encode()}
    call = next(steps)
    try:
        while True:
            call = steps.send(Answer(0.0, replies.get(call, {})))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ("aof_last_write_status:err", "it refuses every acquire: its last write to the append-only file failed"),
        ("rdb_last_bgsave_status:err", "it refuses every acquire: its last snapshot failed"),
    ],
)
def test_a_server_that_cannot_write_to_its_disk_is_a_failure(info, text):
    assert [one for one in judged() if one.severity in BAD] == []
    assert [one.text for one in judged(info) if one.severity in BAD] == [text]


def test_a_replica_that_is_behind_is_a_warning():
    replicas = (
        "connected_slaves:2\r\nslave0:ip=a,port=1,state=online,lag=0\r\nslave1:ip=b,port=2,state=online,lag=45\r\n"
    )
    (warning,) = [one for one in judged(replicas, SETTINGS | {"min-replicas-to-write": "1"}) if one.severity in BAD]
    assert warning.text.startswith("a failover to a replica forgets the grants of 45 s: ")


def test_evicted_keys_and_refused_connections_are_counted():
    found = by_topic(judged("maxmemory_policy:allkeys-lru\r\nevicted_keys:1234\r\nrejected_connections:5\r\n"))
    assert found["eviction"].text.endswith("it has evicted 1,234 keys since it started")
    assert found["connections"].text.endswith("and it has refused 5 since it started")


@pytest.mark.parametrize(
    ("clock", "text"),
    [
        (NOW + timedelta(seconds=0.1), "agrees with this machine's"),
        (NOW + timedelta(seconds=60), "59.8 s ahead of this machine's"),
        (NOW - timedelta(seconds=60), "60 s behind this machine's"),
    ],
)
def test_the_clock_is_compared_as_far_as_that_can_be_known(clock, text):
    found = by_topic(judged(clock=clock, moments=(NOW, NOW + timedelta(seconds=0.2))))["clock"]
    assert text in found.text
    assert found.severity == "info"


def test_a_finding_can_be_compared_and_printed():
    assert ServerFinding("ok", "server", "x") == ServerFinding("ok", "server", "x")
    assert "eviction" in repr(ServerFinding("ok", "eviction", "x"))
