"""Test the least rights: with them everything works, without any one of them a call fails clearly.

    R30  as the user that `handfast acl` makes   operations that failed, of all operations of every primitive
    R30  without one command                     Each command is taken away in turn. Its lack must show, or the rights
                                                 were not the least. Every failure must name the missing right. Once the
                                                 command is granted again, every name can be acquired and no key lacks a
                                                 TTL.
    R30  no EVAL where scripts are preloaded      EVALs that were sent nevertheless

A server refuses a command within a script when the script reaches it, and keeps what the script wrote before. `refused
midway` counts these cases: every prefix of a script must leave a safe state.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any

from handfast import Handfast, LeaseLost
from handfast._engine.keys import KeySet
from handfast.acl import NAMESPACED, USES, Rights, rights_for, scripts_for
from handfast.testing import ServerController
from handfast_lab.chaos.apis import Api, api_of, log_silenced, settled
from handfast_lab.chaos.figures import Figure, Tally
from handfast_lab.chaos.trials import Progress
from handfast_lab.chaos.workloads import KEYS, TTL, WORKLOADS, Observation, Workload
from handfast_lab.rivals.contender import Contender

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R30",)
COUNT = 200
"""Commands taken away, one after the other. There are fewer than this, so all of them are tried."""

USER, PASSWORD = "app", "secret"

RETRY_FOR = 5.0
"""Seconds that the trial waits for what must happen."""

FREE = 10.0
"""Seconds within which a name must be available once all rights are granted again."""

NOT_REACHED = {("lock_all", "zpopmin"), ("lock_all", "hmget"), ("names", "zscore")}
NOT_REACHED |= {("check_server", command) for command in ("hdel", "hset", "pexpire", "pttl", "zadd", "zrem")}
NOT_REACHED |= {(use, "publish") for use in ("autocomplete", "scores")}
"""Commands in parts of scripts that a use shares with others, and does not reach itself. And the message that each connection sends to
itself: where nothing waits, a server that refuses it notes that in its `ACL LOG`, and nothing else fails."""


def applies(contender: Contender) -> bool:
    """Return True for Handfast, whose rights are known."""
    return contender.is_ours


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Test with all rights, without each of up to `count` commands, and with preloaded scripts."""
    api, chance = api_of(contender), random.Random(seed)  # noqa: S311 -- test data
    with log_silenced(), ServerController() as server:
        version = str(server.admin.info("server")["redis_version"])
        complete, parts, preloaded = (Tally(measured={"server": version}) for _ in range(3))
        usual = {use: api.run(_run(api, server, use, _rights(use))) for use in USES}
        for use, observations in usual.items():
            complete.tried += len(observations)
            complete.wrong += [f"{use}: {one}" for one in observations if one.outcome in ("refused", "unclear")]
            api.run(_run_preloaded(api, server, use, preloaded))
        pairs = [(use, command) for use in USES for command in _rights(use).commands]
        for use, command in chance.sample(pairs, min(count, len(pairs))):
            api.run(_run_without(api, server, use, command=command, usual=usual[use], tally=parts))
            parts.tried += 1
            progress(parts.tried)
    return [
        complete.figure("R30", "as the user that `handfast acl` makes", contender.name, "failed", seed=seed),
        parts.figure("R30", "without one command", contender.name, "not noticed, unclear, or not recovered", seed=seed),
        preloaded.figure("R30", "no EVAL where scripts are preloaded", contender.name, "sent", seed=seed),
    ]


def _rights(use: str, *, preloaded: bool = False) -> Rights:
    keys = [KEYS[use]] if use in KEYS else []
    return rights_for([use], keys=keys, preloaded=preloaded)


def _grant(server: ServerController, *rules: str) -> None:
    admin: Any = server.admin
    admin.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *rules)


@asynccontextmanager
async def _workload(api: Api, server: ServerController, use: str) -> AsyncIterator[Workload]:
    """Open two clients of the user on an empty server."""
    server.admin.flushall()
    url = server.url.replace("unix://", f"unix://{USER}:{PASSWORD}@")
    if use in NAMESPACED:
        async with api.client(url) as one, api.client(url) as other:
            yield Workload(api, server.admin, one, other)
        return
    one, other = (api.library.Redis.from_url(url) for _ in range(2))
    try:
        yield Workload(api, server.admin, one, other)
    finally:
        for client in (one, other):
            await settled(client.close() if api.name == "sync" else client.aclose())


async def _run(api: Api, server: ServerController, use: str, rights: Rights) -> list[Observation]:
    """Run the workload with these rights and return its observations."""
    _grant(server, *rights.rules())
    server.admin.script_flush()
    async with _workload(api, server, use) as workload:
        await WORKLOADS[use](workload)
    return workload.observations


async def _run_without(
    api: Api, server: ServerController, use: str, *, command: str, usual: list[Observation], tally: Tally
) -> None:
    """Run the workload without one command, check its observations, and grant the command again."""
    rules, what = _rights(use).rules(), f"{use} without {command}"
    _grant(server, *(rule for rule in rules if rule != f"+{command}"))
    server.admin.script_flush()
    async with _workload(api, server, use) as workload:
        await WORKLOADS[use](workload)
        refused = [one for one in workload.observations if one.outcome == "refused"]
        is_reached = (use, command) not in NOT_REACHED
        if is_reached and _outcomes(workload.observations) == _outcomes(usual):
            tally.wrong.append(f"{what}: nothing was different")
        tally.wrong += [f"{what}: {one}" for one in workload.observations if one.outcome == "unclear"]
        tally.count("refused", len(refused))
        tally.count("refused midway", sum(one.wrote for one in refused))
        tally.count("refusals that name the command", sum(f"'{command}'" in one.error for one in refused))
        tally.count("commands whose lack is no error", not refused)
        tally.count("keys without a TTL meanwhile", len(_lasting_keys(server, use)))
        _grant(server, *rules)
        if use in NAMESPACED and use not in ("autocomplete", "scores"):
            with _acquiring(use, server) as take:
                longest = tally.measured.get("longest until a name was free, s", 0.0)
                for name in "abcdefg":
                    began = monotonic()
                    if not take(name):
                        tally.wrong.append(f"{what}: {name!r} was not available for {FREE:g} s")
                    longest = max(longest, monotonic() - began)
                tally.measured["longest until a name was free, s"] = round(longest, 3)
        elif use == "compat":
            freed = await api.eventually(lambda: not server.admin.exists(KEYS[use]), FREE)
            tally.wrong += [] if freed else [f"{what}: the lock stayed"]
    tally.wrong += [f"{what}: {key} has no TTL" for key in _lasting_keys(server, use)]


@contextmanager
def _acquiring(use: str, server: ServerController) -> Iterator[Any]:
    """Yield a function that acquires and releases a name with all rights."""
    with Handfast(server.url) as hf:

        def take(name: str) -> bool:
            made: dict[str, Any] = {
                "lock": lambda: hf.lock(name, ttl=TTL),
                "semaphore": lambda: hf.semaphore(name, 1, ttl=TTL),
                "rwlock": lambda: hf.rwlock(name, ttl=TTL).write(),
                "names": lambda: hf.lock(name, ttl=TTL),
                "check_server": lambda: hf.lock(name, ttl=TTL),
                "min_replicas": lambda: hf.lock(name, ttl=TTL),
                "limiter": lambda: hf.limiter(name, "4/400ms; 5/s"),
                "once": lambda: hf.once(name, ttl=TTL),
                "lock_all": lambda: hf.lock_all([name, f"{name}-too"], ttl=TTL),
            }
            try:
                lease = made[use]().acquire(timeout=FREE)
                return use == "limiter" or bool(lease.release())
            except TimeoutError:
                return False

        yield take


def _outcomes(observations: list[Observation]) -> list[tuple[str, str]]:
    """Return the outcome of each operation, sorted: concurrent ones finish in any order."""
    return sorted((one.what, one.outcome) for one in observations)


def _lasting_keys(server: ServerController, use: str) -> list[str]:
    """Return Handfast's keys without a TTL. Data, and the guards beside a user's own keys, need none."""
    if use in ("autocomplete", "scores", "fencing"):
        return []
    return [str(key) for key in server.admin.scan_iter(count=1000) if server.admin.pttl(key) == -1]


async def _release_late(api: Api, workload: Workload) -> None:
    """Leave a block whose lease is lost, so that the library releases it in the background."""
    lock = workload.one.lock("late", ttl=TTL)
    lease = await settled(lock.acquire(timeout=RETRY_FOR))
    workload.admin.delete(KeySet("hf", "lock", "late").key("state"))
    await api.eventually(lambda: lease.lost)
    try:
        if api.name == "sync":
            lease.__exit__(None, None, None)
        else:
            await lease.__aexit__(None, None, None)
    except LeaseLost:
        await api.sleep(RETRY_FOR / 10)


async def _run_preloaded(api: Api, server: ServerController, use: str, tally: Tally) -> None:
    """Run the workload as a user who may not send EVAL, with the scripts preloaded."""
    _grant(server, *_rights(use, preloaded=True).rules())
    server.admin.script_flush()
    for script in scripts_for([use]):
        server.admin.script_load(script.source)
    async with _workload(api, server, use) as workload:
        server.admin.config_resetstat()
        await WORKLOADS[use](workload)
        if use == "lock":
            await _release_late(api, workload)
        told: Any = server.admin.info("commandstats")
        # The administrator's own EVALs in `Workload.request_as_dead_client` are not rejected.
        sent = told.get("cmdstat_eval", {}).get("rejected_calls", 0)
        tally.tried += told.get("cmdstat_evalsha", {}).get("calls", 0)
    tally.wrong += [f"{use}: an EVAL was sent"] * sent
    tally.wrong += [f"{use}: {one}" for one in workload.observations if one.outcome in ("refused", "unclear")]
