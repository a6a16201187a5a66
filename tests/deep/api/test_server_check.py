"""`check_server`, in both APIs: what it says of real servers, and of what real servers say.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import socket

import pytest

from handfast import ServerUnsupported
from handfast.testing import ServerController
from tests._support.helpers import eventually
from tests.gate.api.test_server_check import BAD, by_topic

SAFE = {"appendonly": "yes", "appendfsync": "always"}
"""With these settings a server of ours has nothing to be warned of."""


@pytest.fixture
def own():
    """A server of the test's own, with nothing to be warned of."""
    with ServerController(persistent=True) as server:
        for name, value in SAFE.items():
            server.admin.config_set(name, value)
        yield server


async def checked(api, server):
    """Return the findings by topic, and those that are bad."""
    async with api.client(server.url) as client:
        found = await client.check_server(timeout=20)
    return by_topic(found), [one for one in found if one.severity in BAD]


async def test_a_server_that_keeps_all_promises_has_no_bad_finding(api, own):
    found, bad = await checked(api, own)
    assert bad == []
    assert found["server"].text.endswith(": scripts run, and grants reach this client")
    assert own.admin.info()["redis_version"] in found["server"].text or "Valkey" in found["server"].text
    assert {topic for topic, one in found.items() if one.severity == "ok"} == {
        *("server", "eviction", "persistence", "replicas", "connections")
    }


async def test_nothing_is_changed(api, own):
    before = own.admin.dbsize(), own.admin.config_get("maxmemory*")
    await checked(api, own)
    assert (own.admin.dbsize(), own.admin.config_get("maxmemory*")) == before


async def test_what_may_evict_leases_is_a_failure_and_its_command_ends_it(api, own):
    own.admin.config_set("maxmemory", "100mb")
    own.admin.config_set("maxmemory-policy", "volatile-ttl")
    found, (failure,) = await checked(api, own)
    assert failure is found["eviction"]
    assert failure.severity == "failure"
    harm = "it may evict live leases, which unlocks them, and results of once"
    assert failure.text == f"{harm}: maxmemory-policy is volatile-ttl"
    own.admin.execute_command(*failure.command.split())
    assert (await checked(api, own))[1] == []


async def test_without_a_limit_of_memory_the_policy_is_only_mentioned(api, own):
    own.admin.config_set("maxmemory-policy", "allkeys-lru")
    found, bad = await checked(api, own)
    assert (found["eviction"].severity, bad) == ("info", [])


async def test_a_server_that_is_nearly_full_is_a_warning(api, own):
    own.admin.config_set("maxmemory", int(own.admin.info("memory")["used_memory"] * 1.02))
    _, (warning,) = await checked(api, own)
    assert (warning.topic, warning.severity) == ("memory", "warning")
    assert "% of maxmemory is used" in warning.text


@pytest.mark.parametrize(
    ("settings", "severity", "text"),
    [
        ({"appendfsync": "everysec"}, "info", "forgets the grants of the last second"),
        ({"appendonly": "no", "save": ""}, "warning", "a restart forgets every lease, queue and result of once"),
        ({"appendonly": "no", "save": "3600 1"}, "warning", "a restart forgets what came after the last snapshot"),
    ],
)
async def test_what_a_restart_forgets(api, own, settings, severity, text):
    for name, value in settings.items():
        own.admin.config_set(name, value)
    found, _ = await checked(api, own)
    assert found["persistence"].severity == severity
    assert text in found["persistence"].text


async def test_a_primary_and_its_replica(api, own):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    own.admin.config_set("bind", "127.0.0.1")
    own.admin.config_set("port", port)
    with ServerController() as replica:
        replica.admin.replicaof("127.0.0.1", port)
        eventually(lambda: own.admin.info("replication")["connected_slaves"] == 1)
        eventually(lambda: own.admin.info("replication")["slave0"]["state"] == "online", 20)
        found, (warning,) = await checked(api, own)
        assert warning is found["replicas"]
        assert warning.text.startswith("a failover forgets the grants of the last moments, and")
        own.admin.execute_command(*warning.command.split())
        found, bad = await checked(api, own)
        assert (found["replicas"].severity, bad) == ("info", [])
        found, bad = await checked(api, replica)
        assert found["replicas"].severity == "failure"
        assert found["replicas"].text == f"it refuses every acquire: it is a replica of 127.0.0.1:{port}"
    eventually(lambda: own.admin.info("replication")["connected_slaves"] == 0)
    _, (failure,) = await checked(api, own)
    assert failure.text == "it refuses every acquire: it wants 1 replica and has fewer"
    own.admin.execute_command(*failure.command.split())
    assert (await checked(api, own))[1] == []


async def test_a_node_of_a_cluster_is_refused_with_the_url_of_the_cluster(api):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with ServerController("--cluster-enabled", "yes", "--port", str(port)) as node:
        node.admin.cluster("ADDSLOTS", *range(16384))
        eventually(lambda: node.admin.cluster("INFO")["cluster_state"] == "ok")
        with pytest.raises(ServerUnsupported, match=r"is a node of a cluster, .* redis\+cluster://"):
            await checked(api, node)


async def test_few_free_connections_are_a_warning(api, own):
    own.admin.config_set("maxclients", 2)
    _, (warning,) = await checked(api, own)
    assert warning.topic == "connections"
    assert warning.text.endswith("of 2 connections are in use")
    own.admin.execute_command(*warning.command.split())
    assert own.admin.config_get("maxclients")["maxclients"] == "4"


async def test_what_the_user_may_not_read_is_said(api, own):
    own.admin.execute_command("ACL", "SETUSER", "app", "on", ">x", "+@all", "~*", "&*", "-info", "-config")
    async with api.users_client(unix_socket_path=own.socket, username="app", password="x") as mine:
        async with api.client(mine) as client:
            found = await client.check_server()
    assert [(one.severity, one.topic) for one in found] == [
        ("ok", "server"),
        ("info", "rights"),
        ("info", "rights"),
        ("info", "clock"),
    ]
    assert [one.command for one in found[1:3]] == ["ACL SETUSER … +info", "ACL SETUSER … +config|get"]


async def test_a_user_who_may_not_run_scripts_grants_nothing(api, own):
    own.admin.execute_command("ACL", "SETUSER", "app", "on", ">x", "+@all", "~*", "&*", "-evalsha")
    async with api.users_client(unix_socket_path=own.socket, username="app", password="x") as mine:
        async with api.client(mine) as client:
            first, *_ = await client.check_server()
    assert (first.severity, first.topic) == ("failure", "scripts")
    assert "ACL SETUSER … +evalsha" in first.text
