"""Ways to the server, in both APIs: passwords, databases, TLS, Sentinel, and what else a user's client was told.

These tests need real time, processes or chance; the others are in the gate.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile

import pytest

from handfast import ServerRefused, embedded
from handfast.acl import rights_for
from handfast.embedded import supervisor
from handfast.testing import ServerController
from tests._support.apis import use
from tests._support.helpers import more

# --- embedded


@pytest.fixture
def home(monkeypatch):
    """Where the shared server of this test alone lives."""
    base = tempfile.mkdtemp(prefix="hf-", dir="/tmp")
    monkeypatch.setattr(embedded, "PLACE", base)
    path = f"{base}/handfast-{os.getuid()}/s"
    yield path
    if supervisor.answers(path):
        os.kill(supervisor.server_pid(path), signal.SIGKILL)
    shutil.rmtree(base)


async def test_the_shared_server_is_started_and_started_again(api, home):
    async with api.embedded(namespace="mine") as client:
        await use(client)
        pid = supervisor.server_pid(home)
        os.kill(pid, signal.SIGKILL)
        await use(client)
        assert supervisor.server_pid(home) != pid


@pytest.mark.parametrize("missing", ["pubsub|numsub", *more("subscribe")])
async def test_the_error_of_a_user_who_may_not_hear_of_grants_names_the_missing_right(api, server, raw, missing):
    rules = [rule for rule in rights_for(["lock"]).rules() if rule != f"+{missing}"]
    raw.execute_command("ACL", "SETUSER", "deaf", "reset", "on", ">x", *rules)
    try:
        async with api.client(server.url.replace("unix://", "unix://deaf:x@")) as client:
            for _ in range(7):  # the pauses before asyncio's tries grow, beyond the time that a call has
                with pytest.raises(ServerRefused, match=rf"{re.escape(f'+{missing}')}.*`handfast acl`"):
                    await client.lock("a").acquire(timeout=0.01)
    finally:
        raw.execute_command("ACL", "DELUSER", "deaf")


async def test_a_server_without_lua_is_refused_in_words_and_leaves_no_cleanup(api, raw, caplog):
    if not any(one["name"] == "lua" for one in raw.module_list()):
        pytest.skip("the server's Lua is not a module")
    with ServerController("--enable-module-command", "yes") as server:
        server.admin.execute_command("MODULE", "UNLOAD", "lua")
        with pytest.raises(ServerRefused, match="it runs no scripts, or not those in Lua; use a server that does"):
            async with api.client(server.url) as client:
                await use(client)
    assert not caplog.records
