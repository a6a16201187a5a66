"""What the tests of `once` share: helpers for either API, and its scripts, called by hand under a clock that a test sets."""

from __future__ import annotations

import asyncio
from struct import pack, unpack_from

import pytest

from handfast._engine.packing import doubles
from tests._support.engine import CALLER, CLAIM_MS, TTL_MS, WAIT_MS, Engine
from tests._support.helpers import eventually_async

__all__ = ["KEEP_MS", "PATIENCE", "RESULT", "OnceScripts", "finds", "is_free", "run", "unexpected"]

PATIENCE = 30
"""Seconds that a test waits at most."""

RESULT = "{hf:once:a}:result"
"""The key of what was recorded of the name "a"."""

KEEP_MS = 900_000


async def run(once, function, **options):
    """Run it: for a task of its own, which needs a coroutine."""
    return await once.run(function, **options)


def unexpected(api):
    """Return a function that must not be called."""
    return api.function(lambda: pytest.fail("it was run"))


async def finds(api, here, there, waiters):
    """Have a call wait for a run of another client and find its result, and check the gauge of waiters meanwhile."""
    other = await there.once("a").acquire()
    waiter = asyncio.create_task(run(here.once("a"), unexpected(api)))
    await eventually_async(lambda: waiters() == 1)
    await other.finish(1)
    assert await waiter == 1
    assert waiters() == 0


async def is_free(once):
    """Return whether no one runs it, and no one waits for it."""
    status = await once.status()
    return (status.held_by, status.waiting) == (None, 0)


class OnceScripts(Engine):
    """The scripts of one key, called with the argument names of their headers."""

    def __init__(self, client, name="a"):
        super().__init__(client, name, kind="once")

    @property
    def keys(self):
        return [self.key(part) for part in ("state", "tokens", "result")]

    def arguments(
        self,
        token,
        *,
        ttl=TTL_MS,
        claim=CLAIM_MS,
        wait=WAIT_MS,
        max_waiters=1000,
        refresh=-1,
        ticket=0,
        pause=0,
        fingerprint="",
        inbox=None,
    ):
        """Return the arguments of once_acquire. A waiter's inbox is ``inbox:<token>`` by default."""
        wants = doubles(1, 1, claim, CALLER) + f"{inbox or f'inbox:{token}'} control:{token} me".encode()
        request = doubles(ttl, wait, max_waiters, refresh, pause, ticket)
        return {"token": token, "request": request, "fingerprint": fingerprint, "wants": wants}

    def acquire(self, token, *, ttl=TTL_MS, **options):
        """Return the reply; that of a record with its state and value as text."""
        self.ttl_ms = ttl
        reply = self.call(self.load("once_acquire"), self.keys, self.arguments(token, ttl=ttl, **options))
        return [one.decode() if isinstance(one, bytes) else one for one in reply]

    def outcome(self, token, outcome="done", value="v", *, keep=KEEP_MS, copies=False, pause=0, fingerprint=""):
        """Return the arguments of once_record."""
        numbers = doubles(keep, copies, pause)
        return {"token": token, "outcome": outcome, "numbers": numbers, "fingerprint": fingerprint, "value": value}

    def end(self, token, outcome="done", value="v", **options):
        return self.call(self.load("once_record"), self.keys, self.outcome(token, outcome, value, **options))

    def cancel(self, token):
        return self.call(self.load("once_cancel"), self.keys, {"token": token})

    def recorded(self):
        """Return what is recorded: state and value; None if nothing is."""
        stored = self.client.execute_command("GET", self.key("result"), NEVER_DECODE=True)
        if stored is None:
            return None
        texts, rest = [], stored[16:]
        for _ in range(3):
            texts.append(rest[1 : rest[0] + 1].decode())
            rest = rest[rest[0] + 1 :]
        return texts[0], rest.decode()

    def age(self, us):
        """Let what is recorded be older."""
        stored = self.client.execute_command("GET", self.key("result"), NEVER_DECODE=True)
        self.client.set(self.key("result"), pack("<d", unpack_from("<d", stored)[0] - us) + stored[8:], keepttl=True)

    def dump(self):
        """Return everything stored of the name, without the TTLs."""
        return self.stored(), self.client.execute_command("GET", self.key("result"), NEVER_DECODE=True)
