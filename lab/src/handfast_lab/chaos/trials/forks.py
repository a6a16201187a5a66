"""R24: a process that holds leases forks, and its child tries to use them.

A lease belongs to the process that acquired it. A child must not release it, renew it or use the parent's connections,
however it was forked and however it ends. It must be able to acquire a lock of its own with the inherited objects. The
parent must not be affected.

The holder is a process of its own. Its connections and those of its children go through a proxy, which records the
commands on connections that were opened after a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import multiprocessing.util
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, NamedTuple, NoReturn

import redis

from handfast import HandfastError
from handfast.testing import Command, FaultProxy, ServerController
from handfast_lab.chaos.apis import Api, api_of, is_renewed, settled
from handfast_lab.chaos.figures import Figure, examples_of
from handfast_lab.chaos.trials import Progress
from handfast_lab.children import run_in_subprocess
from handfast_lab.rivals.contender import Contender
from handfast_lab.rivals.verbs import LEASE

__all__ = ["COUNT", "ROWS", "applies", "trial"]

ROWS = ("R24",)
COUNT = 200
"""Forks."""

BATCH = 20
"""Children alive at the same time. Each is forked while the parent holds the lease that the child tries to use."""

TTL = 2.0
"""Lease duration in seconds, where it is renewed: renewals fall due while the children run, and the lease outlasts all
forks of a batch."""

LIFETIME = 0.75
"""Seconds that a child stays alive, long enough to renew a lease that it believes to hold."""

WARM = 5.0
"""Seconds within which the first renewal must have happened."""

Misuse = Literal["release", "leave", "extend"]
"""What a child does with its parent's lease. ``leave``: exit the block in which it was forked."""

Exit = Literal["_exit", "exit", "multiprocessing"]
"""How a child is made and ends: by `os._exit`, as the interpreter ends a program, or by `multiprocessing`."""

MISUSES: tuple[Misuse, ...] = ("release", "leave", "extend")
EXITS: tuple[Exit, ...] = ("_exit", "exit", "multiprocessing")


def applies(contender: Contender) -> bool:
    """Return True for a sync API and for Handfast.

    A child cannot go on with its parent's event loop, and only Handfast defines what an asyncio client can do instead.
    """
    return contender.sync is not None or contender.is_ours


class Fork(NamedTuple):
    """One child, as both processes saw it."""

    name: str
    """The lock that the parent held."""
    report: str
    """From the child: empty if it could not use the lease and acquired a lock of its own."""
    kept: str
    """From the parent: empty if it still had its lease afterwards."""


def trial(contender: Contender, count: int, seed: int, progress: Progress) -> list[Figure]:
    """Fork `count` children and report those that used their parent's lease."""
    with ServerController() as server, FaultProxy(server.url) as proxy:
        forks: list[Fork] = run_in_subprocess(_fork_all, contender, server.url, proxy.url, count, on_progress=progress)
        sent = _sent_by_children(proxy.commands)
    wrong, bad, kinds = [], 0, Counter[str]()
    for fork in forks:
        found = {
            "wrong answers in the child": fork.report,
            "lost by the parent": fork.kept,
            "sent by the child": sent[fork.name],
        }
        bad += any(found.values())
        kinds.update(what for what, how in found.items() if how)
        wrong += [f"{fork.name}: {what}: {how}" for what, how in found.items() if how]
    what, unit = "fork in the holder", "children with an effect"
    return [Figure("R24", what, contender.name, len(forks), bad, unit, {**kinds}, seed, examples_of(wrong))]


def _sent_by_children(commands: list[Command]) -> Counter[str]:
    """Count, for each lock held across a fork, the commands about it that the parent did not send.

    A child uses connections opened after the fork. A command about the child's own lock on an older connection was sent
    on its parent's connection, and counts as well.
    """
    sent: Counter[str] = Counter()
    newest, before = 0, None
    for command in commands:
        if command.name == "ECHO":
            before = newest if command.args == (b"forking",) else None
        newest = max(newest, command.connection)
        if before is not None:
            mine = b"child-of-" if command.connection <= before else b""
            about = [
                arg for arg in command.args if b"forked-" in arg and (mine in arg if mine else b"child-of-" not in arg)
            ]
            sent.update({_name_in(arg) for arg in about})
    return sent


def _name_in(arg: bytes) -> str:
    return arg[arg.index(b"forked-") :][: len("forked-00000")].decode()


# --- in the process that holds


def _fork_all(contender: Contender, direct: str, url: str, count: int, progress: Progress) -> list[Fork]:
    api = api_of(contender)
    with redis.Redis.from_url(direct, decode_responses=True) as admin, redis.Redis.from_url(url) as marker:
        marker.ping()
        return api.run(_Parent(api, contender, admin, marker).run(url, count, progress))


class _Parent(NamedTuple):
    """The process that holds leases and forks."""

    api: Api
    contender: Contender
    admin: redis.Redis
    marker: redis.Redis
    """Sends markers through the proxy, which sees them in order with all other commands."""

    async def run(self, url: str, count: int, progress: Progress) -> list[Fork]:
        """Fork `count` children, in batches."""
        forks: list[Fork] = []
        async with _holder(self.contender, self.api, url) as hold:
            anchor = await hold("anchor", "release")
            if "renewal" in self.contender.has:  # opens the renewal connection
                await self.api.eventually(is_renewed(self.contender, self.admin, "anchor"), WARM)
            while len(forks) < count:
                forks += await self._fork(hold, range(len(forks), min(count, len(forks) + BATCH)))
                progress(len(forks))
            await anchor.release()
        return forks

    async def _fork(self, hold: Hold, numbers: range) -> list[Fork]:
        """Fork a batch of children, each while the parent holds a lease of its own for it."""
        held = [await hold(f"forked-{number:05}", MISUSES[number % len(MISUSES)]) for number in numbers]
        self.marker.echo("forking")
        exits = [EXITS[number // len(MISUSES) % len(EXITS)] for number in numbers]
        children = [_Child(self.api, hold, lease, way) for lease, way in zip(held, exits, strict=True)]
        while not all([child.is_over() for child in children]):  # noqa: C419 -- poll every child
            await self.api.sleep(0.01)
        self.marker.echo("joined")
        return [
            Fork(lease.name, child.report(), await self._lost(lease))
            for child, lease in zip(children, held, strict=True)
        ]

    async def _lost(self, lease: _ParentLease) -> str:
        """Return what went wrong for the parent, or an empty string."""
        gone = "" if self.contender.remaining(self.admin, lease.name) else "the server no longer had it"
        try:
            return gone if await lease.release() else gone or "its release reported that it was lost"
        except Exception as error:  # noqa: BLE001 -- a contender may raise anything
            return gone or f"its release raised {error!r}"


class _ParentLease:
    """A lease of the parent, and what a child can do with it."""

    def __init__(self, name: str, misuse: Misuse, thing: Any, lease: Any) -> None:
        self.name, self._misuse, self._thing, self._lease = name, misuse, thing, lease

    async def release(self) -> bool:
        """In the parent: release the lease; return whether it was still held."""
        if self._misuse == "leave":
            await settled(_exit_of(self._thing))
            return True  # leaving the block would have raised
        return bool(await settled(self._lease.release()))

    async def misuse(self) -> str:
        """In the child: try to use the lease. Return what succeeded wrongly, or an empty string."""
        try:
            if self._misuse == "leave":
                await settled(_exit_of(self._thing))
            elif self._misuse == "extend":
                await settled(self._lease.extend(LEASE))
                return "it could be extended"
            elif await settled(self._lease.release()):
                return "it could be released"
        except Exception as error:  # noqa: BLE001 -- a rival may refuse with any exception
            return f"it raised {error!r}" if isinstance(error, HandfastError) and self._misuse != "extend" else ""
        return ""


def _exit_of(thing: Any) -> Any:
    leave = getattr(thing, "__aexit__", None) or thing.__exit__
    return leave(None, None, None)


Hold = Callable[[str, Misuse], Any]


@contextlib.asynccontextmanager
async def _holder(contender: Contender, api: Api, url: str) -> AsyncIterator[Hold]:
    """Yield a function that acquires locks.

    Handfast holds them with a block or a lease; a rival with its methods, which its blocks use too.
    """
    if contender.is_ours:
        async with api.client(url) as client:

            async def take(name: str, misuse: Misuse) -> _ParentLease:
                thing = client.lock(name, ttl=TTL)
                if misuse != "leave":
                    return _ParentLease(name, misuse, thing, await settled(thing.acquire()))
                enter = getattr(thing, "__aenter__", None) or thing.__enter__
                return _ParentLease(name, misuse, thing, await settled(enter()))

            yield take
    else:
        renews = "renewal" in contender.has
        ttl = max(TTL, contender.shortest_ttl) if renews else LEASE
        with contender.client(url) as rival:

            async def take_rivals(name: str, misuse: Misuse) -> _ParentLease:  # noqa: ARG001 -- see above
                lock = rival.lock(name, ttl, renew=renews)
                if not lock.acquire(10):
                    raise RuntimeError(f"{name} is free, and could not be acquired")
                return _ParentLease(name, "release", lock, lock)

            yield take_rivals


class _Child:
    """A forked process that tries to use a lease of its parent."""

    def __init__(self, api: Api, hold: Hold, held: _ParentLease, exit_by: Exit) -> None:
        self._reading, writing = os.pipe()
        self._over = False
        self._poll: Callable[[], bool]

        def run() -> None:
            report = "it did not end"
            try:
                report = api.run(_run_child(api, hold, held))
            except BaseException as error:  # noqa: BLE001 -- report to the parent and to nothing else in this process
                report = f"it raised {error!r}"
            finally:
                os.write(writing, report.encode()[:4000] + b"\n")

        if exit_by == "multiprocessing":
            process = multiprocessing.get_context("fork").Process(target=run)
            process.start()
            self._poll = lambda: process.exitcode is not None
        else:
            pid = os.fork()
            if pid == 0:
                _run_and_exit(run, exit_by)
            self._poll = lambda: os.waitpid(pid, os.WNOHANG)[0] == pid
        os.close(writing)

    def is_over(self) -> bool:
        """Return whether the process has ended."""
        self._over = self._over or self._poll()
        return self._over

    def report(self) -> str:
        """Return what the child reported, once it is over."""
        with open(self._reading, errors="replace") as pipe:
            report = pipe.read()
        return report.strip() if report else "it reported nothing"


def _run_and_exit(run: Callable[[], None], exit_by: Exit) -> NoReturn:
    """In the child: run, and end as a program does, or at once."""
    try:
        run()
        if exit_by == "exit":
            atexit.unregister(vars(multiprocessing.util)["_exit_function"])  # it would wait for the parent's children
            gc.collect()
            atexit._run_exitfuncs()  # noqa: SLF001 -- the interpreter's last step; there is no other way
    finally:
        os._exit(0)


async def _run_child(api: Api, hold: Hold, held: _ParentLease) -> str:
    """Run the child's part; return what went wrong, or an empty string."""
    wrong = await held.misuse()
    mine = await hold(f"child-of-{held.name}", "release")
    if not await mine.release():
        wrong += " its own lock was lost"
    await api.sleep(LIFETIME)
    return wrong
