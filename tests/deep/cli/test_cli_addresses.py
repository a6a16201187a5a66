"""Every command finds the server by every address that the library takes.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import shutil

import pytest

from handfast.acl import scripts_for
from handfast.cli.demo.command import command as demo
from tests._support.cluster import NODES, Cluster
from tests._support.sentinel import Watched
from tests.gate.cli import test_cli_addresses as gate
from tests.gate.cli.test_cli_addresses import called, use_all

over_tcp = gate.over_tcp


def test_the_demo_takes_a_url_of_valkey(over_tcp):
    done = called(demo, "--url", f"valkey://{over_tcp}", "--seconds", "1")
    assert done.exit_code == 0, done.output


def test_every_command_finds_a_sentinels_primary():
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs a redis-server")
    watched = Watched(binary)
    try:
        watched.start()
        use_all(watched.url)
    finally:
        watched.close()


def test_scripts_are_loaded_into_every_primary_of_a_cluster():
    with Cluster() as cluster:
        use_all(cluster.url)
        digests = [one.digest for one in scripts_for(["lock"])]
        assert [node.script_exists(*digests) for node in cluster.nodes] == [[True] * len(digests)] * NODES
