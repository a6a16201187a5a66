"""A password that is replaced again and again under load, and that the provider sometimes learns of too late."""

from __future__ import annotations

import asyncio
import random
import secrets

import pytest
import redis

ROTATIONS = 12
CALLERS = 12


class Provider(redis.CredentialProvider):
    """Gives the password, or an old one, three times in ten, or an error, once in ten."""

    def __init__(self):
        self.password, self.asked, self.wrong = "", 0, 0
        self._chance = random.Random(20261125)

    def get_credentials(self):
        self.asked += 1
        chance = self._chance.random() if self.asked > 1 else 1.0  # what was never let in fails at once
        self.wrong += chance < 0.4
        if chance < 0.1:
            raise LookupError("the metadata service is gone")
        return "worker", "ended" if chance < 0.4 else self.password

    async def get_credentials_async(self):
        await asyncio.sleep(0)
        return self.get_credentials()

    def rotate(self, raw):
        self.password = f"p{secrets.token_hex(8)}"
        raw.execute_command(
            "ACL", "SETUSER", "worker", "reset", "on", f">{self.password}", "~*", "&*", "+@all", "-@admin"
        )
        raw.execute_command("CLIENT", "KILL", "USER", "worker")


@pytest.fixture
def provider(raw):
    provider = Provider()
    yield provider
    raw.execute_command("ACL", "DELUSER", "worker")


async def test_under_load_no_one_is_thrown_out_and_no_lease_is_lost(api, server, raw, provider):
    provider.rotate(raw)
    inside, grants, over = [], [], False

    async def work(client):
        while not over:
            async with client.lock("a", ttl=20).acquire(timeout=60) as lease:
                inside.append(lease.fence)
                assert len(inside) == 1
                await asyncio.sleep(0.005)
                inside.remove(lease.fence)
                grants.append(lease.fence)

    async with api.users_client(unix_socket_path=server.socket, credential_provider=provider) as mine:
        async with api.client(mine, retry_for=20) as client, client.lock("long", ttl=5) as long:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(CALLERS):
                    tasks.create_task(work(client))
                for _ in range(ROTATIONS):
                    await asyncio.sleep(0.4)
                    provider.rotate(raw)
                over = True
            long.check()
    assert provider.wrong > ROTATIONS / 2
    assert len(grants) > CALLERS
    assert grants == sorted(grants)
