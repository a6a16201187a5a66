"""Examples of `handfast.testing` that are never run, only type-checked."""

from __future__ import annotations

import asyncio
from typing import Literal, assert_type

import redis

import handfast
from handfast import Script
from handfast.testing import (
    Command,
    Fault,
    FaultProxy,
    Match,
    Run,
    ServerController,
    Stepper,
    anything,
    calm,
    cancel_at,
    cancel_everywhere,
    command,
    containing,
    interrupt_after,
    interrupt_at,
    interrupt_everywhere,
    script,
)

# --- the proxy

match: Match = command("SET", "GET")
match = containing(b"key")
match = containing("key")
match = script()
match = script("permit_acquire", Script("return 1"), redis.Redis().register_script("return 1"))
match = anything


def mine(asked: Command) -> bool:
    assert_type(asked.name, str)
    assert_type(asked.args, tuple[bytes, ...])
    return asked.connection == 1


with FaultProxy("redis://localhost", tcp=True, record=False) as proxy:
    assert_type(proxy.url, str)
    assert_type(proxy.path, str | None)
    assert_type(proxy.connections, int)
    assert_type(proxy.commands, list[Command])
    fault = proxy.lose_reply(mine, times=None, after=3)
    assert_type(fault, Fault)
    assert_type(fault.happened, int)
    assert_type(fault.wait(5.0, times=2), bool)
    fault.clear()
    proxy.lose_reply()
    proxy.lose_request(match, times=2)
    proxy.delay(match, seconds=0.5)
    proxy.duplicate(match, after=1.0)
    proxy.lose_pushes(containing("grant"))
    proxy.before(match, print)
    proxy.cut_after(100, "to server")
    with proxy.dribbling(pause=0.001), proxy.black_hole("to client"), proxy.black_hole():
        proxy.cut()
    proxy.retarget("unix:///run/redis.sock")
    proxy.cut_after(100, "sideways")  # type: ignore[arg-type]  # there are two directions
    proxy.lose_reply("SET")  # type: ignore[arg-type]  # a match is a predicate

# --- the server

with ServerController("--maxclients", "10", persistent=True) as server:
    assert_type(server.url, str)
    assert_type(server.pid, int)
    server.kill()
    server.restart(keep_data=True)
    with server.paused(), server.flushing_scripts(every=0.1), server.out_of_memory(policy="allkeys-lru"):
        assert_type(server.kill_clients("pubsub"), int)
    replica = server.replica()
    assert_type(replica, ServerController)
    replica.freeze()
    replica.promote()
    admin: redis.Redis = server.admin
    server.kill_clients("replica")  # type: ignore[arg-type]  # no such kind

# --- cancellations and interrupts


async def work() -> int:
    return await Stepper(asyncio.sleep(1, 5), at=lambda number, _future: print(number))


async def cancelled() -> None:
    run = await cancel_at(work, 1, 2, when="ready")
    assert_type(run, Run[int])
    assert_type(run.result, int | None)
    assert_type(run.how, Literal["stopped", "finished", "failed"])
    async for one in cancel_everywhere(work, twice=True):
        assert_type(one, Run[int])


def interrupted() -> str:
    calm()
    return "done"


assert_type(interrupt_at(interrupted, 3, within=handfast, points="bytecodes"), Run[str])
assert_type(interrupt_after(interrupted, 0.01, exception=SystemExit), Run[str])
for each in interrupt_everywhere(interrupted, within=["tests", handfast], every=10):
    assert_type(each, Run[str])
