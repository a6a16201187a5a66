"""The classic marketplace behaves as documented, flaws included.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import pytest
import redis

from handfast.embedded import PrivateServer
from tests._support import listings
from tests._support.helpers import eventually

form = listings.form


def serves(node):
    """Return whether a cluster node serves its slots."""
    try:
        return node.exists("market:") == 0
    except redis.ResponseError:
        return False


# --- flaws of both forms


def test_flaw_market_does_not_work_in_a_cluster(form):
    """A cluster node with the slot of the market, and without the slots of the other keys."""
    with PrivateServer("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no") as server:
        with redis.Redis.from_url(server.url) as node:
            slot = {key: node.execute_command("CLUSTER KEYSLOT", key) for key in ("market:", "inventory:1", "users:2")}
            assert len(set(slot.values())) == 3
            node.execute_command("CLUSTER ADDSLOTS", slot["market:"])
            eventually(lambda: serves(node))
            with pytest.raises(redis.ResponseError, match=r"[Ss]lot|local key"):
                form.list_item(node, "sword", 1, 30)
            with pytest.raises(redis.ResponseError, match=r"[Ss]lot|local key"):
                form.purchase_item(node, 2, "sword", 1)
