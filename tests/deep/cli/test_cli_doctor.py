"""``handfast doctor``: what it prints, and when it fails.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import json

import pytest

from handfast import ServerUnsupported
from handfast.testing import ServerController
from tests.gate.cli.test_cli_doctor import call

POOR = "+subscribe", "+evalsha", "+eval", "~*"


@pytest.fixture
def own():
    with ServerController() as server:
        server.admin.execute_command("ACL", "SETUSER", "app", "on", ">x", "resetchannels", *POOR)
        yield server


def as_app(server):
    return server.url.replace("unix://", "unix://app:x@")


def test_it_says_what_is_good_and_what_to_do_about_the_rest(own):
    own.admin.config_set("maxmemory", "100mb")
    own.admin.config_set("maxmemory-policy", "allkeys-lru")
    code, output = call(own.url)
    lines = output.splitlines()
    assert code == 1
    assert any(line.endswith(": scripts run, and grants reach this client") for line in lines)
    at = lines.index(
        "FAIL  it may evict live leases, which unlocks them, and results of once: maxmemory-policy is allkeys-lru"
    )
    assert at == 0, "the worst comes first"
    assert lines[at + 1] == "    → let a full server refuse writes instead: CONFIG SET maxmemory-policy noeviction"
    own.admin.config_set("maxmemory-policy", "noeviction")
    assert [call(own.url, *words)[0] for words in ([], ["--strict"])] == [0, 1]


def test_json_is_one_finding_a_line(own):
    code, output = call(own.url, "--json")
    found = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert {tuple(one) for one in found} == {("severity", "topic", "text", "advice", "command")}
    assert {"server", "eviction", "persistence", "replicas", "connections", "clock", "rights"} == {
        one["topic"] for one in found
    }


def test_missing_rights_are_a_failure_and_their_command_ends_it(own):
    code, output = call(as_app(own), "--for", "lock", "--json")
    found = [json.loads(line) for line in output.splitlines()]
    assert code == 1
    (rights,) = [one for one in found if one["text"] == "the user 'app' lacks rights for lock"]
    assert rights["command"].startswith("ACL SETUSER app &hf:inbox:* ")
    own.admin.execute_command(*rights["command"].split())
    code, output = call(as_app(own), "--for", "lock", "--strict")
    assert "the user 'app' has all rights for lock\n" in output
    assert "this user may not read settings" in output
    assert code == 0


def test_a_server_that_cannot_tell_rights_is_no_failure(own, monkeypatch):
    def cannot_tell(*_):
        raise ServerUnsupported("it needs Redis 7.0", name="rights_check")

    monkeypatch.setattr("handfast.acl.missing_rights", cannot_tell)
    code, output = call(own.url)
    assert "info  this server cannot tell which rights a user has\n" in output
    assert code == 0
